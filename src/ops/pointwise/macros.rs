//! [`pointwise!`](crate::pointwise): one row, one op.

/// Defines pointwise ops, one row each: forward loop for every type and instruction set, broadcasting,
/// type promotion, in-place form, fused backward and gradients of gradients all come from it.
///
/// ```
/// torchrs::pointwise! {
///     table activations;
///
///     /// Squared ReLU.
///     pub float squared_relu(x) = maximum(x, 0.0) * maximum(x, 0.0);
///         grad(g, x) { x: g * 2.0 * maximum(x, 0.0) }
///
///     /// A leak that is learned: `weight` broadcasts.
///     pub float leak(x, weight; scale = 1.0) = select(gt(x, 0.0), x, x * weight * scale);
///         grad(g, x, weight) {
///             x: select(gt(x, 0.0), g, g * weight * scale),
///             weight: select(gt(x, 0.0), 0.0, g * x * scale),
///         }
///         sample { weight: 0.1..0.5 }
/// }
///
/// use torchrs::Tensor;
/// let x = Tensor::from([-2f32, 3.0]).requires_grad_(true);
/// let y = squared_relu(&x);
/// assert_eq!(y.to_vec::<f32>(), [0.0, 9.0]);
/// y.sum().backward();
/// assert_eq!(x.grad().unwrap().to_vec::<f32>(), [0.0, 6.0]);
/// assert_eq!(leak(&x, 0.5, 1.0).to_vec::<f32>(), [-1.0, 3.0]);
/// assert_eq!(activations::ROWS.len(), 2);
/// ```
///
/// A row is
///
/// ```text
/// /// Documentation (at least one line).
/// VISIBILITY KIND name / name_ (inputs; params) = formula;
///     grad(g, saved...) { input: formula, ... }
///     sample { input: low..high, ... }
///     complex(z) { tensor }
///     nn { functional, module Name }
/// ```
///
/// - `KIND` is `float`, `arith`, `numeric`, `compare` or `bitwise`
///   ([`Kind`](crate::ops::pointwise::Kind)).
/// - `/ name_` asks for the in-place form and names it; leave it out where there is none.
/// - An input is a tensor or a number; inputs broadcast. `condition: bool` is an input that must be
///   bool. Parameters are numbers with a default, `slope = 0.01`; the default is what PyTorch has and
///   what the generic checks use, calls pass all parameters.
/// - A formula is an expression of inputs, parameters, f64 literals, operators and the functions of
///   [`formula`](crate::ops::pointwise::formula). No branches: `select(condition, a, b)`.
/// - `grad` lists what its formulas use: first the name for the result's gradient, then inputs by
///   their names, then any other name for the result. That list is what is saved for backward.
///   Parameters are always known. Leave `grad` out when the op has no derivative.
/// - `sample` says where the generic checks take their inputs; the default is `-3.0..3.0`.
/// - `complex`, for rows of this crate, is what the op is of complex numbers `z`; without it the row throws for them.
/// - `nn`, for rows of this crate, makes the function of that name in `nn::functional`, and the module of the name
///   that is given. The module's text names its parameters, but with `settings unnamed`.
///
/// Each row becomes a function of that name, and a static in the module that `table` names; the
/// module's `ROWS` lists them all.
#[macro_export]
macro_rules! pointwise {
    // Inside this crate: methods of `Tensor`.
    (table $table:ident for Tensor; $(
        $(#[$doc:meta])+ $vis:vis $kind:ident $name:ident $(/ $inplace:ident)?
        ( $x0:ident $(: $slot0:ident)? $(, $x:ident $(: $slot:ident)?)* $(; $($p:ident = $default:expr),+)? ) = $body:expr;
        $(grad ( $($names:ident),+ ) { $($by:ident : $derivative:expr),+ $(,)? })?
        $(sample { $($sampled:ident : $low:literal .. $high:literal),+ $(,)? })?
        $(complex ( $z:ident ) { $meaning:expr })?
        $(nn { $($nn:tt)+ })?
    )*) => {
        $crate::__pointwise_table! { $table $(
            $(#[$doc])+ $kind $name ( $x0 $(: $slot0)? $(, $x $(: $slot)?)* ) [$($($p),+)?] ($($($default),+)?) = $body;
            [$([$($names),+] { $($by: $derivative),+ })?] [$($(($sampled, $low, $high)),+)?] [$($z, $meaning)?] { $($($nn)+)? }
        )* }
        impl $crate::tensor::Tensor { $(
            $crate::__pointwise_method! {
                $(#[$doc])+ #[doc = concat!("\n\n`", stringify!($body), "`")]
                $vis $name [$($inplace)?] ($($x),*) ($($($p),+)?) $table
            }
        )* }
    };
    // Rows alone, whose methods are written by hand because they look at their arguments first.
    (table $table:ident without functions; $(
        $(#[$doc:meta])+ $kind:ident $name:ident
        ( $($x:ident $(: $slot:ident)?),+ $(; $($p:ident = $default:expr),+)? ) = $body:expr;
        $(grad ( $($names:ident),+ ) { $($by:ident : $derivative:expr),+ $(,)? })?
        $(sample { $($sampled:ident : $low:literal .. $high:literal),+ $(,)? })?
        $(complex ( $z:ident ) { $meaning:expr })?
        $(nn { $($nn:tt)+ })?
    )*) => {
        $crate::__pointwise_table! { $table $(
            $(#[$doc])+ $kind $name ( $($x $(: $slot)?),+ ) [$($($p),+)?] ($($($default),+)?) = $body;
            [$([$($names),+] { $($by: $derivative),+ })?] [$($(($sampled, $low, $high)),+)?] [$($z, $meaning)?] { $($($nn)+)? }
        )* }
    };
    // Anywhere: functions.
    (table $table:ident; $(
        $(#[$doc:meta])+ $vis:vis $kind:ident $name:ident $(/ $inplace:ident)?
        ( $($x:ident $(: $slot:ident)?),+ $(; $($p:ident = $default:expr),+)? ) = $body:expr;
        $(grad ( $($names:ident),+ ) { $($by:ident : $derivative:expr),+ $(,)? })?
        $(sample { $($sampled:ident : $low:literal .. $high:literal),+ $(,)? })?
        $(complex ( $z:ident ) { $meaning:expr })?
    )*) => {
        $crate::__pointwise_table! { $table $(
            $(#[$doc])+ $kind $name ( $($x $(: $slot)?),+ ) [$($($p),+)?] ($($($default),+)?) = $body;
            [$([$($names),+] { $($by: $derivative),+ })?] [$($(($sampled, $low, $high)),+)?] [$($z, $meaning)?] {}
        )* }
        $(
            $crate::__pointwise_function! {
                $(#[$doc])+ #[doc = concat!("\n\n`", stringify!($body), "`")]
                $vis $name [$($inplace)?] ($($x),*) ($($($p),+)?) $table
            }
        )*
    };
}

/// Defines fused updates, one row each: ops that write into some of their operands, such as an
/// optimizer's step. They are not recorded by autograd.
///
/// The assignments run in order, so a later one sees the new values of the earlier ones. Numbers that
/// several of them need are named before: `let { d = x - y; }`. All operands have one shape and are
/// tensors; computation is in f32, or f64 if the first operand is.
///
/// ```
/// torchrs::pointwise_update! {
///     table updates;
///
///     /// SGD with momentum.
///     pub momentum_step(param, grad, buffer; lr, momentum) {
///         buffer = buffer * momentum + grad;
///         param = param - buffer * lr;
///     }
/// }
///
/// use torchrs::Tensor;
/// let (p, b) = (Tensor::from([1f32, 2.0]), Tensor::from([0f32, 10.0]));
/// momentum_step(&p, &Tensor::from([1f32, 1.0]), &b, 0.5, 0.9);
/// assert_eq!(b.to_vec::<f32>(), [1.0, 10.0]);
/// assert_eq!(p.to_vec::<f32>(), [0.5, -3.0]);
/// ```
#[macro_export]
macro_rules! pointwise_update {
    (table $table:ident; $(
        $(#[$doc:meta])+ $vis:vis $name:ident ( $($x:ident),+ $(; $($p:ident),+)? ) $(let { $($local:ident = $local_value:expr;)+ })? { $($written:ident = $value:expr;)+ }
    )*) => {
        #[doc = "Rows made by `pointwise_update!`."]
        #[allow(non_upper_case_globals)]
        pub mod $table {
            $(
                $(#[$doc])+
                pub static $name: $crate::ops::pointwise::Row = $name::ROW;
                mod $name {
                    $crate::__pointwise_update_row! {
                        $name ($($x),+; $($($p),+)?)
                        { $($($local = $local_value;)+)? } { $($written = $value;)+ }
                    }
                }
            )*
            /// All rows of this table.
            pub static ROWS: &[&$crate::ops::pointwise::Row] = &[$(&$name),*];
        }
        $(
            $(#[$doc])+
            #[track_caller]
            #[allow(clippy::too_many_arguments)]
            $vis fn $name($($x: &$crate::tensor::Tensor),+ $($(, $p: f64)+)?) {
                $crate::ops::pointwise::apply_update(&$table::$name, &[$($x),+], &[$($($p.into()),+)?])
            }
        )*
    };
}

#[macro_export]
#[doc(hidden)]
macro_rules! __pointwise_method {
    ($(#[$doc:meta])+ $vis:vis $name:ident [] ($($x:ident),*) ($($p:ident),*) $table:ident) => {
        $(#[$doc])+
        #[track_caller]
        #[inline]
        #[allow(clippy::needless_lifetimes)]
        $vis fn $name<'a>(&'a self $(, $x: impl Into<$crate::tensor::Operand<'a>>)* $(, $p: impl Into<$crate::tensor::Scalar>)*) -> $crate::tensor::Tensor {
            $crate::ops::pointwise::apply(&$table::$name, &[self.into() $(, $x.into())*], &[$($p.into()),*])
        }
    };
    ($(#[$doc:meta])+ $vis:vis $name:ident [$inplace:ident] ($($x:ident),*) ($($p:ident),*) $table:ident) => {
        $crate::__pointwise_method! { $(#[$doc])+ $vis $name [] ($($x),*) ($($p),*) $table }

        #[doc = concat!("In-place form of [`", stringify!($name), "`](Self::", stringify!($name), ").")]
        #[track_caller]
        #[inline]
        #[allow(clippy::needless_lifetimes)]
        $vis fn $inplace<'a>(&'a self $(, $x: impl Into<$crate::tensor::Operand<'a>>)* $(, $p: impl Into<$crate::tensor::Scalar>)*) -> &'a $crate::tensor::Tensor {
            $crate::ops::pointwise::apply_inplace(&$table::$name, &[self.into() $(, $x.into())*], &[$($p.into()),*]);
            self
        }
    };
}

#[macro_export]
#[doc(hidden)]
macro_rules! __pointwise_function {
    ($(#[$doc:meta])+ $vis:vis $name:ident [] ($($x:ident),*) ($($p:ident),*) $table:ident) => {
        $(#[$doc])+
        #[track_caller]
        $vis fn $name<'a>($($x: impl Into<$crate::tensor::Operand<'a>>,)* $($p: impl Into<$crate::tensor::Scalar>),*) -> $crate::tensor::Tensor {
            $crate::ops::pointwise::apply(&$table::$name, &[$($x.into()),*], &[$($p.into()),*])
        }
    };
    ($(#[$doc:meta])+ $vis:vis $name:ident [$inplace:ident] ($($x:ident),*) ($($p:ident),*) $table:ident) => {
        $crate::__pointwise_function! { $(#[$doc])+ $vis $name [] ($($x),*) ($($p),*) $table }

        #[doc = concat!("In-place form of [`", stringify!($name), "`]: changes its first argument.")]
        #[track_caller]
        $vis fn $inplace<'a>($($x: impl Into<$crate::tensor::Operand<'a>>,)* $($p: impl Into<$crate::tensor::Scalar>),*) {
            $crate::ops::pointwise::apply_inplace(&$table::$name, &[$($x.into()),*], &[$($p.into()),*])
        }
    };
}

#[macro_export]
#[doc(hidden)]
macro_rules! __pointwise_table {
    ($table:ident $(
        $(#[$doc:meta])+ $kind:ident $name:ident $inputs:tt $params:tt $defaults:tt = $body:expr; $grad:tt $samples:tt $complex:tt $nn:tt
    )*) => {
        #[doc = "Rows made by `pointwise!`."]
        #[allow(non_upper_case_globals)]
        pub mod $table {
            $(
                $(#[$doc])+
                pub static $name: $crate::ops::pointwise::Row = $name::ROW;
                // A module of its own: there the rows' names are not in scope, so that an operand may
                // be called like a row.
                mod $name {
                    $crate::__pointwise_row! { $kind $name $inputs $params $defaults = $body; $grad $samples $complex }
                }
            )*
            /// All rows of this table.
            pub static ROWS: &[&$crate::ops::pointwise::Row] = &[$(&$name),*];
            $crate::__pointwise_in_nn! { $($nn $name $inputs $params $defaults ($body))* }
        }
    };
}

/// The rows for `nn`: the macro `in_nn!` of the table, which calls the caller's `rows!` with them.
#[macro_export]
#[doc(hidden)]
macro_rules! __pointwise_in_nn {
    ($({} $name:ident $inputs:tt $params:tt $defaults:tt $body:tt)*) => {};
    ($($row:tt)*) => {
        macro_rules! in_nn {
            () => {
                rows! { $($row)* }
            };
        }
        pub(crate) use in_nn;
    };
}

#[macro_export]
#[doc(hidden)]
macro_rules! __pointwise_row {
    (float $($row:tt)*) => { $crate::__pointwise_row! { @ Float Float float $($row)* } };
    (arith $($row:tt)*) => { $crate::__pointwise_row! { @ Number Arith number $($row)* } };
    (numeric $($row:tt)*) => { $crate::__pointwise_row! { @ Number Numeric number $($row)* } };
    (difference $($row:tt)*) => { $crate::__pointwise_row! { @ Number Difference number $($row)* } };
    (compare $($row:tt)*) => { $crate::__pointwise_row! { @ Number Compare number $($row)* } };
    (bitwise $($row:tt)*) => { $crate::__pointwise_row! { @ Bits Bitwise bits $($row)* } };
    (@ $Bound:ident $Kind:ident $compile:ident $name:ident
        ( $($x:ident $(: $slot:ident)?),+ ) $params:tt ( $($default:expr),* ) = $body:expr;
        [$($names:tt { $($by:ident : $derivative:expr),+ })?]
        [$(($sampled:ident, $low:literal, $high:literal)),*] $complex:tt
    ) => {
        #[allow(unused_imports)]
        use $crate::ops::pointwise::formula::*;
        use $crate::ops::pointwise::row;

        static INPUTS: &[row::Input] =
            &[$(row::Input { name: stringify!($x), mask: $crate::__pointwise_slot!($($slot)?) }),+];
        const PARAM_NAMES: &[&str] = $crate::__pointwise_names!($params);
        const IN: usize = INPUTS.len();
        const P: usize = PARAM_NAMES.len();
        const NAMES: &[&str] = $crate::__pointwise_names!($($names)?);
        const N: usize = NAMES.len();

        struct Forward;
        impl<S: $Bound> $crate::ops::pointwise::Formula<S, IN, P, 1> for Forward
        where
            f64: Literal<S>,
        {
            const REDUCES: bool = row::reduces(stringify!($body));
            const LIGHT: bool = row::is_light(stringify!($body));
            #[inline(always)]
            #[allow(unused_variables)]
            fn eval([$($x),+]: [S; IN], $params: [S; P]) -> [S; 1] {
                [Lift::<S>::lift($body)]
            }
        }
        pub(super) const ROW: row::Row = row::Row {
            name: stringify!($name),
            kind: row::Kind::$Kind,
            inputs: INPUTS,
            params: &row::params::<P>(PARAM_NAMES, [$($default),*]),
            writes: &[],
            formula: stringify!($body),
            kernel: $crate::ops::pointwise::Kernel::$compile::<Forward, IN, P, 1>()
                .written_as(row::result(&[$(stringify!($x)),+], PARAM_NAMES, stringify!($body))),
            saved: &row::sources::<N>(INPUTS, PARAM_NAMES, NAMES),
            gradients: &[$($({
                struct Derivative;
                impl<S: Float> $crate::ops::pointwise::Formula<S, N, P, 1> for Derivative
                where
                    f64: Literal<S>,
                {
                    const REDUCES: bool = row::reduces(stringify!($derivative));
                    const LIGHT: bool = row::is_light(stringify!($derivative));
                    #[inline(always)]
                    #[allow(unused_variables)]
                    fn eval($names: [S; N], $params: [S; P]) -> [S; 1] {
                                [Lift::<S>::lift($derivative)]
                    }
                }
                row::Gradient {
                    input: row::input_position(INPUTS, stringify!($by)),
                    formula: stringify!($derivative),
                    uses: row::mentioned(stringify!($derivative), NAMES),
                    passes_through: row::same(stringify!($derivative), NAMES[0]),
                    stepwise: row::mentioned(stringify!($derivative), &["stepwise"]) != 0,
                    kernel: $crate::ops::pointwise::Kernel::float::<Derivative, N, P, 1>()
                        .written_as(row::result(NAMES, PARAM_NAMES, stringify!($derivative))),
                    symbolic: |values, params| row::symbolic::<Derivative, N, P>(values, params),
                }
            }),+)?],
            samples: &[$((stringify!($sampled), $low, $high)),*],
            complex: $crate::__pointwise_complex!($complex),
        };
    };
}

#[macro_export]
#[doc(hidden)]
macro_rules! __pointwise_names {
    () => {
        &[]
    };
    ([$($name:ident),*]) => {
        &[$(stringify!($name)),*]
    };
}

#[macro_export]
#[doc(hidden)]
macro_rules! __pointwise_complex {
    ([]) => {
        None
    };
    ([$z:ident, $meaning:expr]) => {{
        use $crate::ops::pointwise::complex::Numbers;
        #[allow(unused_imports)]
        use $crate::ops::pointwise::complex::formulas::*;
        use $crate::tensor::Tensor;
        fn meaning($z: &Numbers<'_>) -> Tensor {
            $meaning
        }
        Some(meaning)
    }};
}

#[macro_export]
#[doc(hidden)]
macro_rules! __pointwise_slot {
    () => {
        false
    };
    (bool) => {
        true
    };
}

#[macro_export]
#[doc(hidden)]
macro_rules! __pointwise_update_row {
    (
        $name:ident ($($x:ident),+; $($p:ident),*)
        { $($local:ident = $local_value:expr;)* } { $($written:ident = $value:expr;)+ }
    ) => {
        #[allow(unused_imports)]
        use $crate::ops::pointwise::formula::*;
        use $crate::ops::pointwise::row;

        static INPUTS: &[row::Input] = &[$(row::Input { name: stringify!($x), mask: false }),+];
        const PARAMS: &[row::Param] = &[$(row::Param { name: stringify!($p), default: 0.5 }),*];
        const WRITES: &[usize] = &[$(row::input_position(INPUTS, stringify!($written))),+];
        const IN: usize = INPUTS.len();
        const P: usize = PARAMS.len();
        const OUT: usize = WRITES.len();
        const _: () = row::assert_distinct(WRITES);

        struct Forward;
        impl<S: Float> $crate::ops::pointwise::Formula<S, IN, P, OUT> for Forward
        where
            f64: Literal<S>,
        {
            #[inline(always)]
            #[allow(unused_variables)]
            fn eval([$($x),+]: [S; IN], [$($p),*]: [S; P]) -> [S; OUT] {
                $(let $local = Lift::<S>::lift($local_value);)*
                $(let $written = Lift::<S>::lift($value);)+
                [$($written),+]
            }
        }
        pub(super) const ROW: row::Row = row::Row {
            name: stringify!($name),
            kind: row::Kind::Update,
            inputs: INPUTS,
            params: PARAMS,
            writes: WRITES,
            formula: stringify!($($local = $local_value;)* $($written = $value;)+),
            kernel: $crate::ops::pointwise::Kernel::update::<Forward, IN, P, OUT>().written_as(row::Text {
                inputs: &[$(stringify!($x)),+],
                params: &[$(stringify!($p)),*],
                locals: &[$(stringify!($local)),*],
                written: &[$(stringify!($written)),+],
                body: stringify!($($local = $local_value;)* $($written = $value;)+),
            }),
            saved: &[],
            gradients: &[],
            samples: &[],
            complex: None,
        };
    };
}
