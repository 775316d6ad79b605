//! What a table row is at run time: one static per op, made by [`pointwise!`](crate::pointwise).
//! The generic driver (`apply.rs`), the generic checks and, later, the CUDA code generator all work
//! from it.
//!
//! ```
//! torchrs::pointwise! { table rows; /** Doc. */ pub float leak(x; slope = 0.5) = maximum(x, x * slope); }
//! let row = &rows::leak;
//! assert_eq!((row.inputs[0].name, row.params[0].default), ("x", 0.5));
//! assert_eq!(row.formula, "maximum(x, x * slope)");
//! ```

use super::complex::Numbers;
use super::symbolic::Symbol;
use crate::cpu::elementwise::kernel::{Formula, Kernel};
use crate::loops::FUNCTIONS;
pub use crate::loops::Text;
use crate::tensor::{Dtype, Tensor};

/// Which element types an op takes, and what type its result has. The operands are first promoted
/// to a common type, as PyTorch does.
///
/// ```
/// use torchrs::Dtype;
/// use torchrs::ops::pointwise;
/// use torchrs::ops::pointwise::Kind;
/// let row = pointwise::tables().find(|row| row.name == "gt").unwrap();
/// assert_eq!((row.kind, row.result_dtype(Dtype::F32)), (Kind::Compare, Dtype::Bool));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Computes and results in floating point; integers and bool become f32 (`exp`, `div`).
    Float,
    /// Keeps the promoted type, bool included, where `+` means "or" (`add`, `maximum`).
    Arith,
    /// Keeps the promoted type; bool is refused (`neg`, `floor`).
    Numeric,
    /// As `Numeric`, and refuses a bool beside numbers, too (`sub`).
    Difference,
    /// Computes in the promoted type; the result is bool (`eq`, `logical_and`).
    Compare,
    /// Keeps the promoted type; integers and bool only.
    Bitwise,
    /// Writes into some of its operands and has no result (optimizer steps). Floating point; the
    /// first operand's type counts, no promotion.
    Update,
}

/// An operand of a row.
///
/// ```
/// use torchrs::ops::pointwise;
/// let row = pointwise::tables().find(|row| row.name == "where_").unwrap();
/// assert_eq!((row.inputs[0].name, row.inputs[0].mask, row.inputs[1].mask), ("condition", true, false));
/// ```
#[derive(Debug)]
pub struct Input {
    /// Its name in the formula.
    pub name: &'static str,
    /// True for a condition: must be bool, takes no part in promotion, and is 0 or 1 in the formula.
    pub mask: bool,
}

/// A number that is the same for all elements.
///
/// ```
/// use torchrs::ops::pointwise;
/// let row = pointwise::tables().find(|row| row.name == "leaky_relu").unwrap();
/// assert_eq!((row.params[0].name, row.params[0].default), ("negative_slope", 0.01));
/// ```
#[derive(Debug)]
pub struct Param {
    /// Its name in the formula.
    pub name: &'static str,
    /// PyTorch's default, with which the generic checks run.
    pub default: f64,
}

/// What a name in a row's `grad(...)` list stands for.
///
/// ```
/// use torchrs::ops::pointwise::{row::Source, tables};
/// let row = tables().find(|row| row.name == "mul").unwrap();
/// assert_eq!(row.saved, [Source::GradOutput, Source::Input(0), Source::Input(1)]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The gradient of the result: the first name.
    GradOutput,
    /// An input of the op; it is saved for backward.
    Input(usize),
    /// The result of the op; it is saved for backward.
    Output,
}

/// The derivative of a row by one of its inputs.
///
/// ```
/// use torchrs::ops::pointwise;
/// use torchrs::ops::pointwise::Symbol;
/// let row = pointwise::tables().find(|row| row.name == "square").unwrap();
/// let gradient = &row.gradients[0];
/// assert_eq!((gradient.input, gradient.formula, gradient.uses), (0, "g * (2.0 * x)", 0b11));
/// let dx = (gradient.symbolic)(&[Symbol::Number(0.5), Symbol::Number(3.0)], &[]);
/// assert!(matches!(dx, Symbol::Number(3.0)));
/// ```
pub struct Gradient {
    /// Position of the input.
    pub input: usize,
    /// The formula's text.
    pub formula: &'static str,
    /// Which of the row's [`saved`](Row::saved) names the formula uses, a bit each.
    pub uses: u32,
    /// True when the formula is the output's gradient and nothing else.
    pub passes_through: bool,
    /// True when it is evaluated op by op in f16
    /// ([`stepwise`](crate::ops::pointwise::formula::stepwise)).
    pub stepwise: bool,
    /// The formula as one fused loop.
    pub kernel: Kernel,
    /// The formula over recorded tensor ops, for gradients of gradients.
    pub symbolic: for<'a> fn(&[Symbol<'a>], &[Symbol<'a>]) -> Symbol<'a>,
}

/// A pointwise op.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::pointwise;
/// let row = pointwise::tables().find(|row| row.name == "leaky_relu").unwrap();
/// assert_eq!(row.formula, "select(gt(x, 0.0), x, x * negative_slope)");
/// let y = pointwise::apply(row, &[(&Tensor::from([-8f32, 2.])).into()], &[0.25.into()]);
/// assert_eq!(y.to_vec::<f32>(), [-2.0, 2.0]);
/// ```
pub struct Row {
    /// The op's public name.
    pub name: &'static str,
    /// Types it takes and gives.
    pub kind: Kind,
    /// Its operands, in order.
    pub inputs: &'static [Input],
    /// Its parameters, in order.
    pub params: &'static [Param],
    /// For updates: which inputs are written, in the order of the kernel's results. Else empty.
    pub writes: &'static [usize],
    /// The formula's text.
    pub formula: &'static str,
    /// The formula as a loop.
    pub kernel: Kernel,
    /// The names of the `grad(...)` list, in order.
    pub saved: &'static [Source],
    /// Derivatives by the inputs that have one.
    pub gradients: &'static [Gradient],
    /// Intervals from which the generic checks take inputs where the default one will not do: name,
    /// low, high.
    pub samples: &'static [(&'static str, f64, f64)],
    /// The op on complex numbers, where it has a meaning for them.
    #[doc(hidden)]
    pub complex: Option<fn(&Numbers<'_>) -> Tensor>,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} = {}", self.name, self.formula)
    }
}

impl Row {
    /// The interval from which checks take values of input `k`.
    ///
    /// ```
    /// use torchrs::ops::pointwise;
    /// let range = |name| pointwise::tables().find(|row| row.name == name).unwrap().sample_range(0);
    /// assert_eq!((range("log"), range("sin")), ((0.3, 5.0), (-3.0, 3.0)));
    /// ```
    pub fn sample_range(&self, k: usize) -> (f64, f64) {
        let name = self.inputs[k].name;
        self.samples.iter().find(|s| s.0 == name).map_or((-3.0, 3.0), |s| (s.1, s.2))
    }

    /// True when the op takes operands that promote to `dtype`.
    ///
    /// ```
    /// use torchrs::Dtype;
    /// use torchrs::ops::pointwise;
    /// let row = pointwise::tables().find(|row| row.name == "neg").unwrap();
    /// assert!(row.takes(Dtype::I32) && !row.takes(Dtype::Bool));
    /// ```
    pub fn takes(&self, dtype: Dtype) -> bool {
        match self.kind {
            Kind::Float | Kind::Arith | Kind::Compare => true,
            Kind::Numeric | Kind::Difference => dtype != Dtype::Bool,
            Kind::Bitwise => !dtype.is_floating_point(),
            Kind::Update => dtype.is_floating_point(),
        }
    }

    /// Type of the result for operands that promote to `dtype`.
    ///
    /// ```
    /// use torchrs::Dtype;
    /// use torchrs::ops::pointwise;
    /// let of_integers = |name| {
    ///     pointwise::tables().find(|row| row.name == name).unwrap().result_dtype(Dtype::I64)
    /// };
    /// assert_eq!((of_integers("exp"), of_integers("add")), (Dtype::F32, Dtype::I64));
    /// ```
    #[inline]
    pub fn result_dtype(&self, dtype: Dtype) -> Dtype {
        match self.kind {
            Kind::Float if !dtype.is_floating_point() => crate::tensor::default_dtype(),
            Kind::Compare => Dtype::Bool,
            _ => dtype,
        }
    }
}

/// Evaluates a formula of one result over tensors; what [`Gradient::symbolic`] points to.
///
/// ```
/// use torchrs::ops::pointwise::{Formula, Symbol, formula::Number, row};
/// struct Square;
/// impl<S: Number> Formula<S, 1, 0, 1> for Square {
///     fn eval([x]: [S; 1], _: [S; 0]) -> [S; 1] { [x * x] }
/// }
/// assert!(matches!(row::symbolic::<Square, 1, 0>(&[Symbol::Number(3.0)], &[]), Symbol::Number(9.0)));
/// ```
pub fn symbolic<'a, K, const IN: usize, const PARAMS: usize>(
    inputs: &[Symbol<'a>],
    params: &[Symbol<'a>],
) -> Symbol<'a>
where
    K: Formula<Symbol<'a>, IN, PARAMS, 1>,
{
    let inputs = inputs.try_into().expect("one value for each name of the row's grad list");
    let params = params.try_into().expect("one value for each parameter of the row");
    let [result] = K::eval(inputs, params);
    result
}

/// The text of a formula with one result.
///
/// ```
/// use torchrs::ops::pointwise::row;
/// let text = row::result(&["x"], &["slope"], "x * slope");
/// assert_eq!((text.inputs, text.params, text.body), (&["x"][..], &["slope"][..], "x * slope"));
/// ```
pub const fn result(
    inputs: &'static [&'static str],
    params: &'static [&'static str],
    body: &'static str,
) -> Text {
    Text { inputs, params, locals: &[], written: &[], body }
}

/// Position of `name` among the inputs, at compile time.
///
/// ```
/// use torchrs::ops::pointwise::row::{Input, input_position};
/// const INPUTS: &[Input] = &[Input { name: "x", mask: false }, Input { name: "y", mask: false }];
/// assert_eq!(const { input_position(INPUTS, "y") }, 1);
/// ```
pub const fn input_position(inputs: &[Input], name: &str) -> usize {
    let mut i = 0;
    while i < inputs.len() {
        if same(inputs[i].name, name) {
            return i;
        }
        i += 1;
    }
    panic!("a name in this row is none of its inputs");
}

/// The parameters of a row.
///
/// ```
/// use torchrs::ops::pointwise::row;
/// let params = row::params(&["low", "high"], [-1.0, 1.0]);
/// assert_eq!((params[1].name, params[1].default), ("high", 1.0));
/// ```
pub const fn params<const P: usize>(names: &[&'static str], defaults: [f64; P]) -> [Param; P] {
    let mut params = [const { Param { name: "", default: 0.0 } }; P];
    let mut i = 0;
    while i < P {
        params[i] = Param { name: names[i], default: defaults[i] };
        i += 1;
    }
    params
}

/// What the names of a `grad` list stand for: the result's gradient, then inputs or the output.
///
/// ```
/// use torchrs::ops::pointwise::row::{Input, Source, sources};
/// let sources = sources::<3>(&[Input { name: "x", mask: false }], &["slope"], &["g", "x", "y"]);
/// assert_eq!(sources, [Source::GradOutput, Source::Input(0), Source::Output]);
/// ```
pub const fn sources<const N: usize>(
    inputs: &[Input],
    params: &[&str],
    names: &[&str],
) -> [Source; N] {
    let mut sources = [Source::GradOutput; N];
    let mut n = 1;
    while n < N {
        let mut i = 0;
        while i < params.len() {
            assert!(
                !same(params[i], names[n]),
                "parameters are always known in `grad`; name only inputs and the output there"
            );
            i += 1;
        }
        sources[n] = Source::Output;
        let mut i = 0;
        while i < inputs.len() {
            if same(inputs[i].name, names[n]) {
                sources[n] = Source::Input(i);
            }
            i += 1;
        }
        n += 1;
    }
    sources
}

/// Refuses an update row that assigns to an operand twice.
///
/// ```
/// use torchrs::ops::pointwise::row::assert_distinct;
/// assert_distinct(&[0, 2]);
/// assert!(std::panic::catch_unwind(|| assert_distinct(&[0, 2, 0])).is_err());
/// ```
pub const fn assert_distinct(writes: &[usize]) {
    let mut i = 0;
    while i < writes.len() {
        let mut k = 0;
        while k < i {
            assert!(writes[i] != writes[k], "an update row assigns to each operand at most once");
            k += 1;
        }
        i += 1;
    }
}

/// Which of `names` appear in the formula as identifiers, a bit each.
///
/// ```
/// use torchrs::ops::pointwise::row::mentioned;
/// assert_eq!(mentioned("g * exp(x) + xy", &["g", "x", "y"]), 0b011);
/// ```
pub const fn mentioned(formula: &str, names: &[&str]) -> u32 {
    let mut bits = 0;
    let mut i = 0;
    while i < names.len() {
        if mentions(formula.as_bytes(), names[i].as_bytes()) {
            bits |= 1 << i;
        }
        i += 1;
    }
    bits
}

/// Whether a function in the formula reduces its arguments first, which is quicker where they are moderate.
///
/// ```
/// use torchrs::ops::pointwise::row::reduces;
/// assert!(reduces("g * cos(x)") && !reduces("g * cosh(x)"));
/// ```
pub const fn reduces(formula: &str) -> bool {
    mentioned(formula, crate::cpu::numbers::lane::NEAR_FUNCTIONS) != 0
}

/// Whether a formula is arithmetic and choice only, for whose operands in memory one waits longer than for its results.
///
/// ```
/// use torchrs::ops::pointwise::row::is_light;
/// assert!(is_light("select(gt(x, 0.0), x, x * slope)") && !is_light("log(x) * y"));
/// ```
pub const fn is_light(formula: &str) -> bool {
    let mut i = 0;
    while i < FUNCTIONS.len() {
        if !FUNCTIONS[i].composed && mentions(formula.as_bytes(), FUNCTIONS[i].name.as_bytes()) {
            return false;
        }
        i += 1;
    }
    true
}

const fn mentions(text: &[u8], name: &[u8]) -> bool {
    let mut start = 0;
    while start + name.len() <= text.len() {
        let mut n = 0;
        while n < name.len() && text[start + n] == name[n] {
            n += 1;
        }
        let end = start + name.len();
        if n == name.len()
            && (start == 0 || !is_identifier(text[start - 1]))
            && (end == text.len() || !is_identifier(text[end]))
        {
            return true;
        }
        start += 1;
    }
    false
}

const fn is_identifier(c: u8) -> bool {
    c == b'_' || c.is_ascii_alphanumeric()
}

/// Equality of texts at compile time.
///
/// ```
/// use torchrs::ops::pointwise::row::same;
/// assert!(same("x", "x") && !same("x", "xy"));
/// ```
pub const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_whole_words() {
        assert_eq!(mentioned("g * exp(x) + xy", &["g", "x", "y", "e"]), 0b11);
        assert_eq!(mentioned("select(gt(y, 0.0), g, 0.0)", &["g", "x", "y"]), 0b101);
        assert_eq!(mentioned("x", &["x"]), 1);
    }
}
