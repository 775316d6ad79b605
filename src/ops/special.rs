//! Special functions by PyTorch's names (`torch.special`). Most are methods of [`Tensor`], too; here an operand of two may be a number.
//!
//! ```
//! use torchrs::{Tensor, special};
//! let q = Tensor::from([1f64, 2.]);
//! let y = special::zeta(2.0, &q);
//! assert!((y.i(0).item() - y.i(1).item() - 1.0).abs() < 1e-12);
//! ```

use super::pointwise::{apply, incomplete_gamma, polynomials, special as table};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::tensor::{Dtype, Operand, Tensor};

macro_rules! of_one {
    ($($name:ident $method:ident;)*) => {$(
        #[doc = concat!("[`Tensor::", stringify!($method), "`] (`torch.special.", stringify!($name), "`).")]
        ///
        /// ```
        /// use torchrs::{Tensor, special};
        /// let x = Tensor::from([0.25f64, 0.5]);
        #[doc = concat!("assert!(special::", stringify!($name), "(&x).equal(&x.", stringify!($method), "()));")]
        /// ```
        #[track_caller]
        pub fn $name(input: &Tensor) -> Tensor {
            input.$method()
        }
    )*};
}
of_one! {
    airy_ai airy_ai;
    bessel_j0 bessel_j0;
    bessel_j1 bessel_j1;
    bessel_y0 bessel_y0;
    bessel_y1 bessel_y1;
    digamma digamma;
    entr entr;
    erf erf;
    erfc erfc;
    erfcx erfcx;
    erfinv erfinv;
    exp2 exp2;
    expit sigmoid;
    expm1 expm1;
    gammaln lgamma;
    i0 i0;
    i0e i0e;
    i1 i1;
    i1e i1e;
    log1p log1p;
    log_ndtr log_ndtr;
    modified_bessel_i0 modified_bessel_i0;
    modified_bessel_i1 modified_bessel_i1;
    modified_bessel_k0 modified_bessel_k0;
    modified_bessel_k1 modified_bessel_k1;
    ndtr ndtr;
    ndtri ndtri;
    psi digamma;
    scaled_modified_bessel_k0 scaled_modified_bessel_k0;
    scaled_modified_bessel_k1 scaled_modified_bessel_k1;
    sinc sinc;
    spherical_bessel_j0 spherical_bessel_j0;
}

macro_rules! of_two {
    ($($name:ident $method:ident $of:expr;)*) => {$(
        #[doc = concat!("[`Tensor::", stringify!($method), "`], of tensors or numbers (`torch.special.", stringify!($name), "`).")]
        ///
        /// ```
        /// use torchrs::{Tensor, special};
        /// let (x, y) = (Tensor::from([1.5f64, 2.5]), Tensor::from([2f64, 3.]));
        #[doc = concat!("assert!(special::", stringify!($name), "(&x, &y).equal(&x.", stringify!($method), "(&y)));")]
        #[doc = concat!("assert!(special::", stringify!($name), "(1.5, &y).i(0).equal(&x.", stringify!($method), "(&y).i(0)));")]
        /// ```
        #[track_caller]
        pub fn $name<'a>(input: impl Into<Operand<'a>>, other: impl Into<Operand<'a>>) -> Tensor {
            let operands = (input.into(), other.into());
            refuse_numbers(stringify!($name), operands);
            $of(operands.0, operands.1)
        }
    )*};
}

/// Two numbers have no device and no type.
#[track_caller]
fn refuse_numbers(op: &str, operands: (Operand<'_>, Operand<'_>)) {
    if let (Operand::Scalar(a), Operand::Scalar(b)) = operands {
        let message = format!("{a:?} and {b:?} are numbers; at least one must be a tensor");
        throw(Error::argument(op, "input", message));
    }
}

#[track_caller]
fn times_log(x: Operand<'_>, other: Operand<'_>) -> Tensor {
    apply(&table::rows::xlogy, &[x, other], &[])
}

#[track_caller]
fn times_log1p(x: Operand<'_>, other: Operand<'_>) -> Tensor {
    apply(&table::rows::xlog1py, &[x, other], &[])
}

of_two! {
    chebyshev_polynomial_t chebyshev_polynomial_t polynomials::of_operands::chebyshev_polynomial_t;
    chebyshev_polynomial_u chebyshev_polynomial_u polynomials::of_operands::chebyshev_polynomial_u;
    chebyshev_polynomial_v chebyshev_polynomial_v polynomials::of_operands::chebyshev_polynomial_v;
    chebyshev_polynomial_w chebyshev_polynomial_w polynomials::of_operands::chebyshev_polynomial_w;
    gammainc igamma incomplete_gamma::lower;
    gammaincc igammac incomplete_gamma::upper;
    hermite_polynomial_h hermite_polynomial_h polynomials::of_operands::hermite_polynomial_h;
    hermite_polynomial_he hermite_polynomial_he polynomials::of_operands::hermite_polynomial_he;
    laguerre_polynomial_l laguerre_polynomial_l polynomials::of_operands::laguerre_polynomial_l;
    legendre_polynomial_p legendre_polynomial_p polynomials::of_operands::legendre_polynomial_p;
    shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_t polynomials::of_operands::shifted_chebyshev_polynomial_t;
    shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_u polynomials::of_operands::shifted_chebyshev_polynomial_u;
    shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_v polynomials::of_operands::shifted_chebyshev_polynomial_v;
    shifted_chebyshev_polynomial_w shifted_chebyshev_polynomial_w polynomials::of_operands::shifted_chebyshev_polynomial_w;
    xlog1py xlog1py times_log1p;
    xlogy xlogy times_log;
    zeta zeta table::zeta;
}

/// [`Tensor::logit`] (`torch.special.logit`).
///
/// ```
/// use torchrs::{Tensor, special};
/// assert_eq!(special::logit(&Tensor::from([0.5f64]), None).item(), 0.0);
/// ```
#[track_caller]
pub fn logit(input: &Tensor, eps: Option<f64>) -> Tensor {
    input.logit(eps)
}

/// [`Tensor::polygamma`], with the order first (`torch.special.polygamma`).
///
/// ```
/// use torchrs::{Tensor, special};
/// let x = Tensor::from([2f64]);
/// assert!(special::polygamma(2, &x).equal(&x.polygamma(2)));
/// ```
#[track_caller]
pub fn polygamma(n: u32, input: &Tensor) -> Tensor {
    input.polygamma(n)
}

/// [`Tensor::mvlgamma`] (`torch.special.multigammaln`).
///
/// ```
/// use torchrs::{Tensor, special};
/// let x = Tensor::from([2f64]);
/// assert!(special::multigammaln(&x, 2).equal(&x.mvlgamma(2)));
/// ```
#[track_caller]
pub fn multigammaln(input: &Tensor, p: u32) -> Tensor {
    input.mvlgamma(p)
}

/// [`Tensor::round_decimals`] (`torch.special.round`).
///
/// ```
/// use torchrs::{Tensor, special};
/// assert_eq!(special::round(&Tensor::from([1.26f64]), 1).item(), 1.3);
/// ```
#[track_caller]
pub fn round(input: &Tensor, decimals: i32) -> Tensor {
    input.round_decimals(decimals)
}

/// [`Tensor::softmax`], of `input` as `dtype` if one is given (`torch.special.softmax`).
///
/// ```
/// use torchrs::{Dtype, Tensor, special};
/// let y = special::softmax(&Tensor::from([1i64, 1]), -1, Some(Dtype::F64));
/// assert_eq!(y.to_vec::<f64>(), [0.5, 0.5]);
/// ```
#[track_caller]
pub fn softmax(input: &Tensor, dim: i64, dtype: Option<Dtype>) -> Tensor {
    match dtype {
        Some(dtype) => input.to_dtype(dtype).softmax(dim),
        None => input.softmax(dim),
    }
}

/// [`Tensor::log_softmax`], of `input` as `dtype` if one is given (`torch.special.log_softmax`).
///
/// ```
/// use torchrs::{Dtype, Tensor, special};
/// let y = special::log_softmax(&Tensor::from([1i64, 1]), -1, Some(Dtype::F64));
/// assert_eq!(y.i(0).item(), -2f64.ln());
/// ```
#[track_caller]
pub fn log_softmax(input: &Tensor, dim: i64, dtype: Option<Dtype>) -> Tensor {
    match dtype {
        Some(dtype) => input.to_dtype(dtype).log_softmax(dim),
        None => input.log_softmax(dim),
    }
}

/// [`Tensor::logsumexp`] (`torch.special.logsumexp`).
///
/// ```
/// use torchrs::{Tensor, special};
/// let y = special::logsumexp(&Tensor::from([0f64, 0.]), &[0], false);
/// assert!((y.item() - 2f64.ln()).abs() < 1e-12);
/// ```
#[track_caller]
pub fn logsumexp(input: &Tensor, dim: &[i64], keepdim: bool) -> Tensor {
    input.logsumexp(dim, keepdim)
}

/// What is no row of a table. Rows have checks of their own.
#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    use crate::ops::checks::samples::{Order, positive, values};
    let x = || [positive([2, 3], 1)];
    vec![
        OpSample::new("special.polygamma(1)", x(), |x| polygamma(1, &x[0])).slack(8.0),
        OpSample::new("special.polygamma(0)", x(), |x| polygamma(0, &x[0])).slack(8.0),
        OpSample::new("special.multigammaln", x(), |x| multigammaln(&(&x[0] + 2.0), 3)).slack(8.0),
        OpSample::new("special.logit, eps", x(), |x| logit(&(&x[0] / 3.0), Some(0.3))).slack(8.0),
        OpSample::new("special.softmax", x(), |x| softmax(&x[0], -1, None)),
        OpSample::new("special.log_softmax", x(), |x| log_softmax(&x[0], 0, None)),
        OpSample::new("special.logsumexp", x(), |x| logsumexp(&x[0], &[0, 1], true)),
        OpSample::new("special.round", [values([2, 5], 3)], |x| round(&x[0], 1))
            .order(Order::None)
            .no_half(),
        OpSample::new("special.xlogy of a number", x(), |x| xlogy(2.0, &x[0])),
        OpSample::new("special.xlog1py by a number", x(), |x| xlog1py(&x[0], 0.5)),
        OpSample::new("special.gammaincc of a number", x(), |x| gammaincc(1.5, &x[0])).slack(8.0),
        OpSample::new("special.gammainc of a number", x(), |x| gammainc(0.75, &x[0])).slack(8.0),
        OpSample::new("special.zeta of a number", x(), |x| zeta(2.0, &(&x[0] + 0.5))).slack(8.0),
        OpSample::new("special.hermite_polynomial_h of a number", x(), |x| {
            hermite_polynomial_h(0.75, &(&x[0] * 0.0 + 3.0).detach())
        })
        .order(Order::None)
        .no_half(),
    ]
}
