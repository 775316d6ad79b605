//! Reductions and normalisations of the elements that a mask keeps (`torch.masked`): a mask is a bool tensor, true where
//! an element counts, that broadcasts to the input's shape. Without one all elements count. An empty list of dimensions
//! means all; what reduces no element is the reduction's start (0 for [`sum`], minus infinity for [`amax`]) or NaN.
//!
//! ```
//! use torchrs::{Tensor, masked};
//! let x = Tensor::from([[1f64, 2., 9.], [3., 9., 9.]]);
//! let mask = Tensor::from([[true, true, false], [true, false, false]]);
//! assert_eq!(masked::mean(&x, &[1], false, &mask).to_vec::<f64>(), [1.5, 3.0]);
//! ```

#[cfg(test)]
mod samples;

use crate::error::{Error, throw};
use crate::ops::linalg::vector_norm;
use crate::tensor::{Dtype, Scalar, Tensor};

crate::ops::table::ops! {
    samples { samples }
}

/// A mask, or none: what the functions of this module take.
#[derive(Clone, Copy, Default)]
pub struct Mask<'a>(Option<&'a Tensor>);

impl<'a> From<&'a Tensor> for Mask<'a> {
    fn from(mask: &'a Tensor) -> Self {
        Mask(Some(mask))
    }
}

impl<'a> From<Option<&'a Tensor>> for Mask<'a> {
    fn from(mask: Option<&'a Tensor>) -> Self {
        Mask(mask)
    }
}

impl Mask<'_> {
    /// As bools of the input's shape.
    #[track_caller]
    fn of(self, op: &'static str, x: &Tensor) -> Option<Tensor> {
        let mask = self.0?;
        let fits = mask.dim() <= x.dim()
            && mask
                .shape()
                .iter()
                .rev()
                .zip(x.shape().iter().rev())
                .all(|(m, n)| m == n || *m == 1);
        if !fits {
            let message = format!(
                "of shape {:?}; must broadcast to the input's, {:?}",
                mask.shape(),
                x.shape()
            );
            throw(Error::argument(op, "mask", message));
        }
        Some(mask.detach().to_dtype(Dtype::Bool).expand(x.shape()))
    }

    /// The input, with `start` where the mask keeps nothing.
    #[track_caller]
    fn applied(self, op: &'static str, x: &Tensor, start: impl Into<Scalar>) -> Tensor {
        match self.of(op, x) {
            None => x.clone(),
            Some(mask) => mask.where_(x, &Tensor::full([], start, (x.dtype(), x.device()))),
        }
    }

    /// How many elements count, along the dimensions, in the type that is asked for.
    #[track_caller]
    fn count(self, op: &'static str, x: &Tensor, dims: &[i64], keepdim: bool) -> Tensor {
        match self.of(op, x) {
            Some(mask) => mask.sum_dim(dims, keepdim),
            None => Tensor::ones(x.shape(), (Dtype::I64, x.device())).sum_dim(dims, keepdim),
        }
    }
}

/// The lowest or the highest number of a type.
#[track_caller]
fn end(op: &'static str, dtype: Dtype, highest: bool) -> Scalar {
    if dtype.is_floating_point() {
        return Scalar::F(if highest { f64::INFINITY } else { f64::NEG_INFINITY });
    }
    if !dtype.is_integral() {
        throw(Error::dtype(op, format!("takes real numbers, got {dtype}")));
    }
    Scalar::I(if highest { dtype.iinfo().max } else { dtype.iinfo().min })
}

/// The sum of the elements that count (`torch.masked.sum`); of integers and bools i64.
///
/// ```
/// use torchrs::{Tensor, masked};
/// let x = Tensor::from([1i64, 2, 3]);
/// assert_eq!(masked::sum(&x, &[], false, &Tensor::from([true, false, true])).item(), 4.0);
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] for a mask that does not broadcast to the input.
#[track_caller]
pub fn sum<'a>(x: &Tensor, dims: &[i64], keepdim: bool, mask: impl Into<Mask<'a>>) -> Tensor {
    mask.into().applied("masked.sum", x, 0).sum_dim(dims, keepdim)
}

/// The product of the elements that count (`torch.masked.prod`); of integers and bools i64.
///
/// ```
/// use torchrs::{Tensor, masked};
/// let x = Tensor::from([2f32, 5., 3.]);
/// assert_eq!(masked::prod(&x, &[0], false, &Tensor::from([true, false, true])).item(), 6.0);
/// ```
///
/// # Panics
/// As [`sum`].
#[track_caller]
pub fn prod<'a>(x: &Tensor, dims: &[i64], keepdim: bool, mask: impl Into<Mask<'a>>) -> Tensor {
    let kept = mask.into().applied("masked.prod", x, 1);
    if x.dim() == 0 {
        return kept.prod();
    }
    let all: Vec<i64> = (0..x.dim() as i64).collect();
    let dims = if dims.is_empty() { &all } else { dims };
    let mut places = crate::tensor::normalize_dims("masked.prod", dims, x.dim()).to_vec();
    places.sort_unstable();
    places.iter().rev().fold(kept, |kept, &dim| kept.prod_dim(dim as i64, keepdim))
}

/// The greatest of the elements that count, the type's lowest number where none does (`torch.masked.amax`).
///
/// ```
/// use torchrs::{Tensor, masked};
/// let x = Tensor::from([1f32, 9.]);
/// assert_eq!(masked::amax(&x, &[], false, &Tensor::from([true, false])).item(), 1.0);
/// ```
///
/// # Panics
/// As [`sum`]; throws [`Error::Dtype`] for bools and complex numbers.
#[track_caller]
pub fn amax<'a>(x: &Tensor, dims: &[i64], keepdim: bool, mask: impl Into<Mask<'a>>) -> Tensor {
    let op = "masked.amax";
    mask.into().applied(op, x, end(op, x.dtype(), false)).amax(dims, keepdim)
}

/// The least of the elements that count, the type's highest number where none does (`torch.masked.amin`).
///
/// ```
/// use torchrs::{Tensor, masked};
/// let x = Tensor::from([7i64, 3]);
/// assert_eq!(masked::amin(&x, &[], false, &Tensor::from([true, false])).item(), 7.0);
/// ```
///
/// # Panics
/// As [`amax`].
#[track_caller]
pub fn amin<'a>(x: &Tensor, dims: &[i64], keepdim: bool, mask: impl Into<Mask<'a>>) -> Tensor {
    let op = "masked.amin";
    mask.into().applied(op, x, end(op, x.dtype(), true)).amin(dims, keepdim)
}

/// The place along `dim` of the greatest element that counts, among all elements for none (`torch.masked.argmax`).
///
/// ```
/// use torchrs::{Tensor, masked};
/// let x = Tensor::from([1f32, 9., 2.]);
/// assert_eq!(masked::argmax(&x, 0, false, &Tensor::from([true, false, true])).item(), 2.0);
/// ```
///
/// # Panics
/// As [`amax`].
#[track_caller]
pub fn argmax<'a>(
    x: &Tensor,
    dim: impl Into<Option<i64>>,
    keepdim: bool,
    mask: impl Into<Mask<'a>>,
) -> Tensor {
    let op = "masked.argmax";
    let kept = mask.into().applied(op, x, end(op, x.dtype(), false));
    place(kept, dim.into(), keepdim, Tensor::argmax, Tensor::argmax_dim)
}

/// The place along `dim` of the least element that counts, among all elements for none (`torch.masked.argmin`).
///
/// ```
/// use torchrs::{Tensor, masked};
/// let x = Tensor::from([1f32, 9., 2.]);
/// assert_eq!(masked::argmin(&x, None, false, &Tensor::from([false, true, true])).item(), 2.0);
/// ```
///
/// # Panics
/// As [`amax`].
#[track_caller]
pub fn argmin<'a>(
    x: &Tensor,
    dim: impl Into<Option<i64>>,
    keepdim: bool,
    mask: impl Into<Mask<'a>>,
) -> Tensor {
    let op = "masked.argmin";
    let kept = mask.into().applied(op, x, end(op, x.dtype(), true));
    place(kept, dim.into(), keepdim, Tensor::argmin, Tensor::argmin_dim)
}

#[track_caller]
fn place(
    x: Tensor,
    dim: Option<i64>,
    keepdim: bool,
    of_all: fn(&Tensor) -> Tensor,
    along: fn(&Tensor, i64, bool) -> Tensor,
) -> Tensor {
    match dim {
        Some(dim) => along(&x, dim, keepdim),
        None if keepdim => of_all(&x).reshape(vec![1; x.dim()]),
        None => of_all(&x),
    }
}

/// The mean of the elements that count, NaN where none does (`torch.masked.mean`).
///
/// ```
/// use torchrs::{Tensor, masked};
/// let x = Tensor::from([1f32, 9., 2.]);
/// assert_eq!(masked::mean(&x, &[], false, &Tensor::from([true, false, true])).item(), 1.5);
/// ```
///
/// # Panics
/// As [`sum`]; throws [`Error::Dtype`] for integers and bools.
#[track_caller]
pub fn mean<'a>(x: &Tensor, dims: &[i64], keepdim: bool, mask: impl Into<Mask<'a>>) -> Tensor {
    if !x.dtype().is_differentiable() {
        crate::tensor::dtype::not_floating("masked.mean", x.dtype());
    }
    let mask = mask.into();
    let count = mask.count("masked.mean", x, dims, keepdim);
    sum(x, dims, keepdim, mask) / count
}

/// The median along `dim` of the elements that count, the lower one of two (`torch.masked.median`); NaN where none does.
/// NaN among the elements is left out. Integers are exact up to 2^53 in magnitude.
///
/// ```
/// use torchrs::{Tensor, masked};
/// let x = Tensor::from([1f32, 9., 2., 5.]);
/// let mask = Tensor::from([true, false, true, true]);
/// assert_eq!(masked::median(&x, 0, false, &mask).item(), 2.0);
/// ```
///
/// # Panics
/// As [`sum`]; throws [`Error::Argument`] for integers of which none counts.
#[track_caller]
pub fn median<'a>(x: &Tensor, dim: i64, keepdim: bool, mask: impl Into<Mask<'a>>) -> Tensor {
    let op = "masked.median";
    if x.dtype().is_floating_point() {
        return mask.into().applied(op, x, f64::NAN).nanmedian_dim(dim, keepdim).0;
    }
    let middle = mask.into().applied(op, &x.to_dtype(Dtype::F64), f64::NAN);
    let middle = middle.nanmedian_dim(dim, keepdim).0;
    if middle.isnan().any().item() != 0.0 {
        let message = format!("leaves no element of some row, and {} has no NaN", x.dtype());
        throw(Error::argument(op, "mask", message));
    }
    middle.to_dtype(x.dtype())
}

/// The p-norm, of power `ord`, of the elements that count (`torch.masked.norm`).
///
/// ```
/// use torchrs::{Tensor, masked};
/// let x = Tensor::from([3f32, 9., 4.]);
/// assert_eq!(masked::norm(&x, 2.0, &[], false, &Tensor::from([true, false, true])).item(), 5.0);
/// ```
///
/// # Panics
/// As [`sum`]; throws [`Error::Dtype`] for integers and bools.
#[track_caller]
pub fn norm<'a>(
    x: &Tensor,
    ord: f64,
    dims: &[i64],
    keepdim: bool,
    mask: impl Into<Mask<'a>>,
) -> Tensor {
    // Its power of a negative order is 0, so that it has no say. (PyTorch begins with 0 there, and gives 0.)
    let start = if ord < 0.0 { f64::INFINITY } else { 0.0 };
    vector_norm(&mask.into().applied("masked.norm", x, start), ord, dims, keepdim)
}

/// The variance of the elements that count, by their number less `correction` (`torch.masked.var`; 1 there where nothing
/// is said). Of integers f32.
///
/// ```
/// use torchrs::{Tensor, masked};
/// let x = Tensor::from([1f32, 9., 3.]);
/// assert_eq!(masked::var(&x, &[], 1.0, false, &Tensor::from([true, false, true])).item(), 2.0);
/// ```
///
/// # Panics
/// As [`sum`].
#[track_caller]
pub fn var<'a>(
    x: &Tensor,
    dims: &[i64],
    correction: f64,
    keepdim: bool,
    mask: impl Into<Mask<'a>>,
) -> Tensor {
    let op = "masked.var";
    let x = &if x.dtype().is_floating_point() { x.clone() } else { x.to_dtype(Dtype::F32) };
    let mask = mask.into();
    // Infinite numbers that do not count would make the gradient NaN.
    let x = &mask.applied(op, x, 0);
    let middle = sum(x, dims, true, mask) / mask.count(op, x, dims, true);
    let total = sum(&(x - middle).square(), dims, keepdim, mask);
    let count = mask.count(op, x, dims, keepdim).to_dtype(total.dtype());
    total / (count - correction).clamp_min(0.0)
}

/// The square root of [`var`] (`torch.masked.std`).
///
/// ```
/// use torchrs::{Tensor, masked};
/// assert_eq!(masked::std(&Tensor::from([1f32, 9., 3.]), &[], 0.0, false, &Tensor::from([true, false, true])).item(), 1.0);
/// ```
///
/// # Panics
/// As [`sum`].
#[track_caller]
pub fn std<'a>(
    x: &Tensor,
    dims: &[i64],
    correction: f64,
    keepdim: bool,
    mask: impl Into<Mask<'a>>,
) -> Tensor {
    var(x, dims, correction, keepdim, mask).sqrt()
}

/// Running sums along `dim` of the elements that count (`torch.masked.cumsum`).
///
/// ```
/// use torchrs::{Tensor, masked};
/// let y = masked::cumsum(&Tensor::from([1i64, 2, 3]), 0, &Tensor::from([true, false, true]));
/// assert_eq!(y.to_vec::<i64>(), [1, 1, 4]);
/// ```
///
/// # Panics
/// As [`sum`].
#[track_caller]
pub fn cumsum<'a>(x: &Tensor, dim: i64, mask: impl Into<Mask<'a>>) -> Tensor {
    mask.into().applied("masked.cumsum", x, 0).cumsum(dim)
}

/// Running products along `dim` of the elements that count (`torch.masked.cumprod`).
///
/// ```
/// use torchrs::{Tensor, masked};
/// let y = masked::cumprod(&Tensor::from([2i64, 5, 3]), 0, &Tensor::from([true, false, true]));
/// assert_eq!(y.to_vec::<i64>(), [2, 2, 6]);
/// ```
///
/// # Panics
/// As [`sum`].
#[track_caller]
pub fn cumprod<'a>(x: &Tensor, dim: i64, mask: impl Into<Mask<'a>>) -> Tensor {
    mask.into().applied("masked.cumprod", x, 1).cumprod(dim)
}

/// The softmax along `dim` of the elements that count, 0 for the others (`torch.masked.softmax`).
///
/// ```
/// use torchrs::{Tensor, masked};
/// let y = masked::softmax(&Tensor::from([1f32, 9., 1.]), 0, &Tensor::from([true, false, true]));
/// assert_eq!(y.to_vec::<f32>(), [0.5, 0.0, 0.5]);
/// ```
///
/// # Panics
/// As [`amax`].
#[track_caller]
pub fn softmax<'a>(x: &Tensor, dim: i64, mask: impl Into<Mask<'a>>) -> Tensor {
    let op = "masked.softmax";
    mask.into().applied(op, x, end(op, x.dtype(), false)).softmax(dim)
}

/// The logarithm of [`softmax`] (`torch.masked.log_softmax`).
///
/// ```
/// use torchrs::{Tensor, masked};
/// let y = masked::log_softmax(&Tensor::from([1f32, 9.]), 0, &Tensor::from([true, false]));
/// assert_eq!(y.to_vec::<f32>(), [0.0, f32::NEG_INFINITY]);
/// ```
///
/// # Panics
/// As [`amax`].
#[track_caller]
pub fn log_softmax<'a>(x: &Tensor, dim: i64, mask: impl Into<Mask<'a>>) -> Tensor {
    let op = "masked.log_softmax";
    mask.into().applied(op, x, end(op, x.dtype(), false)).log_softmax(dim)
}

/// [`softmax`] of the elements' negatives (`torch.masked.softmin`).
///
/// ```
/// use torchrs::{Tensor, masked};
/// let y = masked::softmin(&Tensor::from([1f32, -9., 1.]), 0, &Tensor::from([true, false, true]));
/// assert_eq!(y.to_vec::<f32>(), [0.5, 0.0, 0.5]);
/// ```
///
/// # Panics
/// As [`amax`].
#[track_caller]
pub fn softmin<'a>(x: &Tensor, dim: i64, mask: impl Into<Mask<'a>>) -> Tensor {
    let op = "masked.softmin";
    mask.into().applied(op, x, end(op, x.dtype(), true)).neg().softmax(dim)
}

/// The logarithm of the sum of the powers of e of the elements that count (`torch.masked.logsumexp`), in the input's
/// type.
///
/// ```
/// use torchrs::{Tensor, masked};
/// let y = masked::logsumexp(&Tensor::from([1f64, 9.]), &[0], false, &Tensor::from([true, false]));
/// assert_eq!(y.item(), 1.0);
/// ```
///
/// # Panics
/// As [`amax`].
#[track_caller]
pub fn logsumexp<'a>(x: &Tensor, dims: &[i64], keepdim: bool, mask: impl Into<Mask<'a>>) -> Tensor {
    let op = "masked.logsumexp";
    let kept = mask.into().applied(op, x, end(op, x.dtype(), false));
    kept.logsumexp(dims, keepdim).to_dtype(x.dtype())
}

/// [`Tensor::logaddexp`] of elements that count; the others are minus infinity (`torch.masked.logaddexp`).
///
/// ```
/// use torchrs::{Tensor, masked};
/// let (x, y) = (Tensor::from([1f64, 2.]), Tensor::from([9f64, 9.]));
/// let kept = Tensor::from([false, false]);
/// assert_eq!(masked::logaddexp(&x, &y, None, &kept).to_vec::<f64>(), [1.0, 2.0]);
/// ```
///
/// # Panics
/// As [`amax`].
#[track_caller]
pub fn logaddexp<'a>(
    x: &Tensor,
    other: &Tensor,
    mask: impl Into<Mask<'a>>,
    other_mask: impl Into<Mask<'a>>,
) -> Tensor {
    let op = "masked.logaddexp";
    let a = mask.into().applied(op, x, end(op, x.dtype(), false));
    let b = other_mask.into().applied(op, other, end(op, other.dtype(), false));
    a.logaddexp(&b).to_dtype(x.dtype())
}

/// The elements that count over their p-norm along `dim`, which is taken for `eps` at least; 0 for the others
/// (`torch.masked.normalize`, where `eps` is 1e-12 if nothing is said).
///
/// ```
/// use torchrs::{Tensor, masked};
/// let y = masked::normalize(&Tensor::from([3f64, 9., 4.]), 2.0, 0, 1e-12, &Tensor::from([true, false, true]));
/// assert_eq!(y.to_vec::<f64>(), [0.6, 0.0, 0.8]);
/// ```
///
/// # Panics
/// As [`norm`].
#[track_caller]
pub fn normalize<'a>(
    x: &Tensor,
    ord: f64,
    dim: i64,
    eps: f64,
    mask: impl Into<Mask<'a>>,
) -> Tensor {
    let mask = mask.into();
    let length = norm(x, ord, &[dim], true, mask);
    mask.applied("masked.normalize", x, 0)
        / length.maximum(&Tensor::full([], eps, (length.dtype(), length.device())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;

    #[test]
    fn what_a_mask_leaves_out_has_no_say_and_no_gradient() {
        let mask = Tensor::from([[true, false, true], [false, false, true]]);
        let x = Tensor::from([[1f64, f64::NAN, 3.], [f64::INFINITY, 7., 2.]]).requires_grad_(true);
        type Masked = fn(&Tensor, &Tensor) -> Tensor;
        let both: [(&str, Masked, [f64; 2]); 6] = [
            ("sum", |x, m| sum(x, &[1], false, m), [4.0, 2.0]),
            ("prod", |x, m| prod(x, &[1], false, m), [3.0, 2.0]),
            ("mean", |x, m| mean(x, &[1], false, m), [2.0, 2.0]),
            ("amax", |x, m| amax(x, &[1], false, m), [3.0, 2.0]),
            ("amin", |x, m| amin(x, &[1], false, m), [1.0, 2.0]),
            ("var", |x, m| var(x, &[1], 0.0, false, m), [1.0, 0.0]),
        ];
        for (name, f, expected) in both {
            let y = f(&x, &mask);
            assert_eq!(y.to_vec::<f64>(), expected, "{name}");
            y.sum().backward();
            let grad = x.grad().unwrap().to_vec::<f64>();
            assert!([grad[1], grad[3], grad[4]].iter().all(|g| *g == 0.0), "{name}: {grad:?}");
            x.set_grad(None);
        }
    }

    #[test]
    fn what_reduces_nothing_is_the_start_or_not_a_number() {
        let (x, none) = (Tensor::from([1f64, 2.]), Tensor::from([false]));
        assert_eq!(sum(&x, &[], false, &none).item(), 0.0);
        assert_eq!(prod(&x, &[], true, &none).to_vec::<f64>(), [1.0]);
        assert_eq!(amax(&x, &[], false, &none).item(), f64::NEG_INFINITY);
        assert_eq!(amin(&Tensor::from([1i8]), &[], false, &none).item(), 127.0);
        assert!(mean(&x, &[], false, &none).item().is_nan());
        assert!(median(&x, 0, false, &none).item().is_nan());
        assert!(catch(|| median(&Tensor::from([1i64]), 0, false, &none)).is_err());
        // More than f32 tells apart.
        assert_eq!(median(&Tensor::from([16_777_217i64]), 0, false, None).item(), 16_777_217.0);
    }

    #[test]
    fn norms_of_negative_order_leave_out_what_a_mask_does() {
        let (x, mask) = (Tensor::from([2f64, 9., 2.]), Tensor::from([true, false, true]));
        for (ord, expected) in [(-1.0, 1.0), (f64::NEG_INFINITY, 2.0)] {
            assert_eq!(norm(&x, ord, &[], false, &mask).item(), expected);
        }
    }

    #[test]
    fn masks_that_do_not_fit_are_refused() {
        let x = Tensor::zeros([2, 3], Dtype::F32);
        for shape in [&[2][..], &[1, 2, 3], &[3, 3]] {
            let mask = Tensor::ones(shape, Dtype::Bool);
            let refused = catch(|| sum(&x, &[], false, &mask)).unwrap_err().to_string();
            assert!(refused.contains("mask"), "{refused}");
        }
        assert!(catch(|| amax(&Tensor::from([true]), &[], false, None)).is_err());
        assert!(catch(|| mean(&Tensor::from([1i64]), &[], false, None)).is_err());
    }
}
