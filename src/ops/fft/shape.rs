//! Arguments of the transforms: lengths, dimensions, scales, types.

use smallvec::SmallVec;

use crate::error::{Error, throw};
use crate::tensor::{Dtype, Shape, Tensor, default_dtype, dtype::not_real, normalize_dim};

/// Where a transform of n numbers is divided by n (PyTorch's `norm`).
///
/// ```
/// use torchrs::{fft, Tensor};
/// use torchrs::fft::Norm;
/// let x = Tensor::from([3f64, 1.]);
/// let first = |norm| fft::fft(&x, None, -1, norm).real().i(0).item();
/// assert_eq!((first(Norm::Backward), first(Norm::Forward)), (4.0, 2.0));
/// assert!((first(Norm::Ortho) - 4.0 / 2f64.sqrt()).abs() < 1e-12);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Norm {
    /// In the inverse transforms: what PyTorch does unless told otherwise.
    #[default]
    Backward,
    /// In the forward transforms.
    Forward,
    /// By the square root of n in both: they keep the sum of squares.
    Ortho,
}

impl Norm {
    /// The factor of a transform of `n` numbers, `forward` or not.
    pub(super) fn scale(self, forward: bool, n: usize) -> f64 {
        match (self, forward) {
            (Norm::Ortho, _) => 1.0 / (n as f64).sqrt(),
            (Norm::Forward, true) | (Norm::Backward, false) => 1.0 / n as f64,
            _ => 1.0,
        }
    }

    /// That of a transform in the other direction with the same factor.
    pub(super) fn swapped(self) -> Norm {
        match self {
            Norm::Backward => Norm::Forward,
            Norm::Forward => Norm::Backward,
            Norm::Ortho => Norm::Ortho,
        }
    }
}

/// What is transformed: which dimensions, in the caller's order, and how many numbers in each.
pub(super) struct Axes {
    pub dims: SmallVec<[usize; 4]>,
    pub lengths: SmallVec<[usize; 4]>,
}

impl Axes {
    /// One dimension, cut or filled up to `n` numbers.
    #[track_caller]
    pub fn one(op: &str, x: &Tensor, n: Option<usize>, dim: i64) -> Axes {
        let dim = dimension(op, x, dim);
        let axes = Axes {
            dims: SmallVec::from_slice(&[dim]),
            lengths: SmallVec::from_slice(&[n.unwrap_or(x.shape()[dim])]),
        };
        axes.check(op);
        axes
    }

    /// The dimensions `dims`, else as many of the last ones as there are lengths, else all. A length
    /// of -1 is the dimension's own.
    #[track_caller]
    pub fn many(op: &str, x: &Tensor, s: Option<&[i64]>, dims: Option<&[i64]>) -> Axes {
        let count = x.dim();
        let dims: SmallVec<[usize; 4]> = match (dims, s) {
            (Some(dims), _) => dims.iter().map(|&d| dimension(op, x, d)).collect(),
            (None, Some(s)) if s.len() > count => throw(Error::argument(
                op,
                "s",
                format!("{s:?} has more lengths than shape {:?} dimensions", x.shape()),
            )),
            (None, Some(s)) => (count - s.len()..count).collect(),
            (None, None) => (0..count).collect(),
        };
        if let Some(i) = (1..dims.len()).find(|&i| dims[..i].contains(&dims[i])) {
            throw(Error::argument(op, "dim", format!("dimension {} appears twice", dims[i])));
        }
        if let Some(s) = s
            && s.len() != dims.len()
        {
            let count = dims.len();
            throw(Error::argument(op, "s", format!("{s:?} for {count} dimensions")));
        }
        let own = |i: usize| x.shape()[dims[i]];
        let length = |i: usize| match s.map(|s| s[i]) {
            None | Some(-1) => own(i),
            Some(n) => usize::try_from(n).unwrap_or(0),
        };
        let lengths = (0..dims.len()).map(length).collect();
        let axes = Axes { dims, lengths };
        axes.check(op);
        axes
    }

    /// [`many`](Self::many) for a transform to real numbers: the last length is that of the result,
    /// by default 2 (m - 1) for m coefficients. Gives it apart; the axes have n/2 + 1 in its place.
    #[track_caller]
    pub fn half(op: &str, x: &Tensor, s: Option<&[i64]>, dims: Option<&[i64]>) -> (Axes, usize) {
        let mut axes = Axes::many(op, x, s, dims);
        let Some(last) = axes.lengths.last_mut() else { at_least_one(op) };
        let given = s.and_then(|s| s.last()).is_some_and(|&n| n != -1);
        let n = if given { *last } else { 2 * (*last - 1) };
        *last = n / 2 + 1;
        if n == 0 {
            no_numbers(op, 0);
        }
        (axes, n)
    }

    #[track_caller]
    fn check(&self, op: &str) {
        if let Some(&n) = self.lengths.iter().find(|&&n| n == 0) {
            no_numbers(op, n);
        }
    }

    /// How many numbers one transform has.
    pub fn numbers(&self) -> usize {
        self.lengths.iter().product()
    }

    /// `x` with these lengths: cut, or filled up with zeros.
    pub fn fit(&self, x: &Tensor) -> Tensor {
        let each = self.dims.iter().zip(&self.lengths);
        each.fold(x.clone(), |x, (&d, &n)| resized(&x, d, n))
    }
}

#[cold]
#[track_caller]
fn no_numbers(op: &str, n: usize) -> ! {
    throw(Error::argument(op, "n", format!("{n}: at least one number is transformed")))
}

/// Throws the error of a transform of real numbers along no dimension.
#[cold]
#[track_caller]
pub(super) fn at_least_one(op: &str) -> ! {
    throw(Error::argument(op, "dim", "at least one dimension is transformed"))
}

#[track_caller]
fn dimension(op: &str, x: &Tensor, dim: i64) -> usize {
    if x.dim() == 0 {
        throw(Error::argument(op, "dim", format!("{dim}: a 0-dim tensor has no dimensions")));
    }
    normalize_dim(op, dim, x.dim())
}

/// The first `n` entries of dimension `dim`, with zeros behind where there are fewer.
pub(super) fn resized(x: &Tensor, dim: usize, n: usize) -> Tensor {
    let own = x.shape()[dim];
    if own >= n {
        return if own == n { x.clone() } else { x.narrow(dim as i64, 0, n) };
    }
    let mut shape: Shape = x.shape().into();
    shape[dim] = n - own;
    Tensor::cat(&[x, &Tensor::zeros(&shape, (x.dtype(), x.device()))], dim as i64)
}

/// `x` in the type that transforms compute in: integers become f32.
///
/// # Panics
/// Throws for the half types, as PyTorch does on the CPU.
#[track_caller]
pub(super) fn promoted(op: &str, x: &Tensor) -> Tensor {
    match x.dtype() {
        Dtype::F32 | Dtype::F64 | Dtype::C64 | Dtype::C128 => x.clone(),
        Dtype::F16 | Dtype::BF16 => throw(Error::dtype(
            op,
            format!("does not take {}; convert with `.to_dtype(F32)`", x.dtype()),
        )),
        _ => x.to_dtype(default_dtype()),
    }
}

/// [`promoted`], for a transform of real numbers.
#[track_caller]
pub(super) fn real_input(op: &str, x: &Tensor) -> Tensor {
    if x.is_complex() {
        not_real(op, x.dtype());
    }
    promoted(op, x)
}
