//! The functions that formulas may call, a line each: what computes it for f32 and f64, and where it is in CUDA C.
//!
//! The CPU's numbers, whole tensors and CUDA C are all made from this table, [`functions!`](crate::functions).

/// Calls `$callback! { .. }` with the table:
///
/// ```text
/// "What it is." name: OF_F32 OF_F64 OF_CUDA;
/// ```
///
/// | for f32, f64 | the function is |
/// | --- | --- |
/// | `vector` | in `math/single`, `math/double.rs` of the CPU: code that vectorises |
/// | `std` | a method of the number |
/// | `scalar` | in `math/special.rs`, in f64 |
///
/// For CUDA it says a [`Cuda`](crate::Cuda). Functions of one number are `elementary`, or `special` where they are rare in
/// training. Those of two numbers are `pairs`, in f64 in `math/special.rs` for f32 too, or `binary`, with an implementation
/// by hand for each kind of number.
/// `composed` ones are formulas, in `ops/pointwise/slopes.rs`.
#[macro_export]
macro_rules! functions {
    ($callback:ident) => {
        $callback! {
            elementary {
                "e^x." exp: vector vector math;
                "e^x - 1, exact near 0." expm1: vector vector math;
                "2^x." exp2: vector vector math;
                "Natural logarithm." log: vector vector math;
                "log(1 + x), exact near 0." log1p: vector vector math;
                "Logarithm to base 2." log2: vector vector math;
                "Logarithm to base 10." log10: vector vector math;
                "Square root." sqrt: std std math;
                "1 / sqrt(x)." rsqrt: vector vector formula;
                "Sine." sin: vector std math;
                "Cosine." cos: vector std math;
                "Tangent." tan: vector std math;
                "Inverse sine." asin: vector std math;
                "Inverse cosine." acos: vector std math;
                "Inverse tangent." atan: vector std math;
                "Hyperbolic sine." sinh: vector std math;
                "Hyperbolic cosine." cosh: vector std math;
                "Hyperbolic tangent." tanh: vector vector math;
                "Error function." erf: vector vector math;
                "x times the normal distribution's function." gelu: vector vector formula;
                "Logistic function 1 / (1 + e^-x)." sigmoid: vector vector formula;
            }
            special {
                "1 - erf(x)." erfc: vector scalar special;
                "e^(x^2) erfc(x)." erfcx: scalar scalar special;
                "Inverse of the error function." erfinv: vector scalar special;
                "Inverse of the normal distribution's function." ndtri: scalar scalar special;
                "Logarithm of the gamma function's absolute value." lgamma: vector scalar special;
                "Derivative of `lgamma`." digamma: vector scalar special;
                "Derivative of `digamma`." trigamma: scalar scalar special;
                "Modified Bessel function of order 0." i0: vector scalar special;
                "Modified Bessel function of order 1." i1: vector scalar special;
                "`i0` times e^-|x|." i0e: vector scalar special;
                "`i1` times e^-|x|." i1e: vector scalar special;
                "Airy's function Ai." airy_ai: scalar scalar bessel;
                "Bessel function of the first kind and order 0." bessel_j0: scalar scalar bessel;
                "Bessel function of the first kind and order 1." bessel_j1: scalar scalar bessel;
                "Bessel function of the second kind and order 0." bessel_y0: scalar scalar bessel;
                "Bessel function of the second kind and order 1." bessel_y1: scalar scalar bessel;
                "Modified Bessel function of the second kind and order 0." modified_bessel_k0: scalar scalar bessel;
                "Modified Bessel function of the second kind and order 1." modified_bessel_k1: scalar scalar bessel;
                "`modified_bessel_k0` times e^x." scaled_modified_bessel_k0: scalar scalar bessel;
                "`modified_bessel_k1` times e^x." scaled_modified_bessel_k1: scalar scalar bessel;
                "Spherical Bessel function of the first kind and order 0." spherical_bessel_j0: scalar scalar bessel;
            }
            pairs {
                "Regularised lower incomplete gamma function." igamma: gamma;
                "Regularised upper incomplete gamma function." igammac: gamma;
                "Chebyshev's polynomial of the first kind." chebyshev_polynomial_t: polynomial;
                "Chebyshev's polynomial of the second kind." chebyshev_polynomial_u: polynomial;
                "Chebyshev's polynomial of the third kind." chebyshev_polynomial_v: polynomial;
                "Chebyshev's polynomial of the fourth kind." chebyshev_polynomial_w: polynomial;
                "`chebyshev_polynomial_t` of 2 x - 1." shifted_chebyshev_polynomial_t: polynomial;
                "`chebyshev_polynomial_u` of 2 x - 1." shifted_chebyshev_polynomial_u: polynomial;
                "`chebyshev_polynomial_v` of 2 x - 1." shifted_chebyshev_polynomial_v: polynomial;
                "`chebyshev_polynomial_w` of 2 x - 1." shifted_chebyshev_polynomial_w: polynomial;
                "Hermite's polynomial as physicists have it." hermite_polynomial_h: polynomial;
                "Hermite's polynomial as probabilists have it." hermite_polynomial_he: polynomial;
                "Laguerre's polynomial." laguerre_polynomial_l: polynomial;
                "Legendre's polynomial." legendre_polynomial_p: polynomial;
            }
            binary {
                zeta: special_formula;
                atan2: formula;
                nextafter: formula;
                pow: formula;
                remainder: formula;
                fmod: formula;
                floor_divide: formula;
            }
            composed {
                over_squares: formula;
                sinc_slope: formula;
                i1_slope_near: formula;
                j1_slope_near: formula;
                i1_slope: special_formula;
            }
        }
    };
}

/// Where a function is in CUDA C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cuda {
    /// CUDA C's own, for f32 with an `f` at its end.
    Math,
    /// `t_NAME` in `kernels/formula.cuh`.
    Formula,
    /// `special_NAME` in `kernels/special.cuh`, in f64.
    Special,
    /// `t_NAME` in `kernels/special.cuh`.
    SpecialFormula,
    /// `special_NAME` in `kernels/bessel.cuh`, in f64.
    Bessel,
    /// `t_NAME` in `kernels/incomplete_gamma.cuh`.
    IncompleteGamma,
    /// `t_NAME` in `kernels/polynomials.cuh`.
    Polynomial,
}

/// A function of formulas.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// As formulas call it.
    pub name: &'static str,
    /// Where it is in CUDA C.
    pub cuda: Cuda,
    /// Made of others, whose time it takes.
    pub composed: bool,
}

macro_rules! cuda {
    (math) => {
        Cuda::Math
    };
    (formula) => {
        Cuda::Formula
    };
    (special) => {
        Cuda::Special
    };
    (special_formula) => {
        Cuda::SpecialFormula
    };
    (bessel) => {
        Cuda::Bessel
    };
    (gamma) => {
        Cuda::IncompleteGamma
    };
    (polynomial) => {
        Cuda::Polynomial
    };
}

macro_rules! list {
    (
        elementary { $($d0:literal $elementary:ident: $s0:ident $f0:ident $c0:ident;)* }
        special { $($d1:literal $special:ident: $s1:ident $f1:ident $c1:ident;)* }
        pairs { $($pair_doc:literal $pair:ident: $c4:ident;)* }
        binary { $($binary:ident: $c2:ident;)* }
        composed { $($composed:ident: $c3:ident;)* }
    ) => {
        /// All functions of the table.
        pub const FUNCTIONS: &[Function] = &[
            $(Function { name: stringify!($elementary), cuda: cuda!($c0), composed: false },)*
            $(Function { name: stringify!($special), cuda: cuda!($c1), composed: false },)*
            $(Function { name: stringify!($pair), cuda: cuda!($c4), composed: false },)*
            $(Function { name: stringify!($binary), cuda: cuda!($c2), composed: false },)*
            $(Function { name: stringify!($composed), cuda: cuda!($c3), composed: true },)*
        ];
    };
}
functions!(list);
