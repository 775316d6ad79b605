//! Rotary position embedding (Su et al., "RoFormer", 2021), with the halves of a head's features as pairs, as Llama has it.
//!
//! ```text
//! y_i = x_i cos_i - x_{i+r} sin_i      y_{i+r} = x_{i+r} cos_i + x_i sin_i      for i < r;  y_i = x_i from 2r on
//! ```
//!
//! The gradient is the same turn back, by the negative sines. Half types are computed in f32. What is read may have any
//! strides between its rows, so that heads need no copy before.

pub(in crate::ops) mod cuda;

use smallvec::{SmallVec, smallvec};

use crate::autograd::{no_grad, record};
use crate::cpu::{
    arch::vectorize::Kernel, arch::vectorize::vectorize, folds::fold::Shared,
    folds::fold::SharedMut, folds::row::Float, threads::GRAIN, threads::parallel_for,
};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::{compute_type, gpu};
use crate::tensor::{Dtype, Element, Tensor, dispatch};

const OP: &str = "rotary_embedding";

/// Dimensions in front of the last, at most.
const DIMS: usize = 4;

impl Tensor {
    /// Turns pairs of features by angles, whose cosines and sines are given (`apply_rotary_pos_emb` of Hugging Face's
    /// Llama). Feature `i` and feature `i + r` are a pair, where `r` is the last size of `cos` and `sin`; features from
    /// `2 r` on stay. The other dimensions of `cos` and `sin` broadcast to those of the input: for heads
    /// `[batch, length, heads, width]` they are `[length, 1, width / 2]`.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f64, 0.], [0., 2.]]);
    /// let (cos, sin) = (Tensor::from([[1f64], [0.]]), Tensor::from([[0f64], [1.]]));
    /// // The first row stays; the second is turned by a right angle.
    /// assert_eq!(x.rotary_embedding(&cos, &sin).to_vec::<f64>(), [1., 0., -2., 0.]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when shapes do not fit, [`Error::Dtype`] unless the input is floating-point and `cos` and
    /// `sin` are of its type (of f32 for a half type), and [`Error::Autograd`] when these require a gradient: they are
    /// constants.
    #[track_caller]
    pub fn rotary_embedding(&self, cos: &Tensor, sin: &Tensor) -> Tensor {
        check(self, cos, sin);
        turned(self, cos, sin, false)
    }
}

#[track_caller]
fn check(x: &Tensor, cos: &Tensor, sin: &Tensor) {
    let pairs = cos.shape().last().copied().unwrap_or(0);
    let fits = |t: &Tensor| {
        let (Some((_, outer)), Some((&own, rows))) =
            (x.shape().split_last(), t.shape().split_last())
        else {
            return false;
        };
        let ends = outer.iter().rev().zip(rows.iter().rev()).all(|(&n, &m)| m == n || m == 1);
        own == pairs && rows.len() <= outer.len() && ends
    };
    if !fits(cos) || !fits(sin) || pairs == 0 || 2 * pairs > x.size(-1) {
        let message = format!(
            "the input is {:?}, cos {:?} and sin {:?}; the last two must be [.., r], with 2 r features of the input at \
             most, and otherwise broadcast to it",
            x.shape(),
            cos.shape(),
            sin.shape()
        );
        throw(Error::shape(OP, message));
    }
    let halves = matches!(x.dtype(), Dtype::F16 | Dtype::BF16);
    let right = |t: &Tensor| t.dtype() == x.dtype() || (halves && t.dtype() == Dtype::F32);
    if !x.dtype().is_floating_point() || !right(cos) || !right(sin) {
        let message = format!(
            "the input is {}, cos {} and sin {}; all must be of one floating-point type, and the latter may be f32 \
             beside a half type",
            x.dtype(),
            cos.dtype(),
            sin.dtype()
        );
        throw(Error::dtype(OP, message));
    }
    if let Some(name) = [("cos", cos), ("sin", sin)].iter().find(|t| t.1.requires_grad()) {
        let name = name.0;
        throw(Error::Autograd(format!(
            "{OP}: `{name}` requires a gradient, and is a constant; `detach()` it"
        )));
    }
}

/// The turn, or the one back.
#[track_caller]
fn turned(x: &Tensor, cos: &Tensor, sin: &Tensor, back: bool) -> Tensor {
    let out = no_grad(|| compute(&Rows::new(x, cos, sin), x.shape(), back));
    record(OP, &[x], out, |saver| {
        let (cos, sin) = (saver.save(cos), saver.save(sin));
        move |ctx| smallvec![Some(turned(&ctx.grad(0), &ctx.get(&cos), &ctx.get(&sin), !back))]
    })
}

/// Operands whose last dimension is dense, by rows.
struct Rows {
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    /// Of the dimensions in front of the last, from the right.
    sizes: [usize; DIMS],
    strides: [[usize; DIMS]; 3],
    count: usize,
    width: usize,
    pairs: usize,
}

impl Rows {
    fn new(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Self {
        let (width, pairs) = (x.size(-1), cos.size(-1));
        let mut outer: SmallVec<[usize; 6]> = SmallVec::from_slice(&x.shape()[..x.dim() - 1]);
        let mut x = x.untracked();
        let is_usable = |t: &Tensor| {
            let strides = t.strides();
            strides.last().is_none_or(|&s| s == 1) && strides.iter().all(|&s| s >= 0)
        };
        if !is_usable(&x) {
            x = x.contiguous();
        }
        let mut tables = [cos, sin].map(|t| {
            let wide = compute_type::dense(t, x.dtype().compute());
            wide.expand(&[&outer[..], &[pairs]].concat())
        });
        if outer.len() > DIMS {
            let count = outer.iter().product();
            x = x.contiguous().reshape_to(&[count, width]);
            tables = tables.map(|t| t.contiguous().reshape_to(&[count, pairs]));
            outer = smallvec![count];
        }
        let [cos, sin] = tables;
        let (mut sizes, mut strides) = ([1; DIMS], [[0; DIMS]; 3]);
        for (place, dim) in (0..outer.len()).rev().enumerate() {
            sizes[place] = outer[dim];
            for (of, t) in strides.iter_mut().zip([&x, &cos, &sin]) {
                of[place] = t.strides()[dim] as usize;
            }
        }
        Rows { x, cos, sin, sizes, strides, count: outer.iter().product(), width, pairs }
    }
}

#[track_caller]
fn compute(rows: &Rows, shape: &[usize], back: bool) -> Tensor {
    let (x, cos, sin) = (&rows.x, &rows.cos, &rows.sin);
    let out = Tensor::empty(shape, (x.dtype(), x.device()));
    if out.numel() == 0 {
        return out;
    }
    if let Some(gpu) = gpu::of(OP, &[x, cos, sin]) {
        cuda::turn(gpu, rows, &out, back);
        return out;
    }
    dispatch!(float x.dtype(), OP, T => {
        let to = SharedMut(out.data_ptr().cast::<T>());
        let from = Shared(x.data_ptr().cast::<T>().cast_const());
        let [cos, sin] = [cos, sin].map(|t| Shared(t.data_ptr().cast::<Wide<T>>().cast_const()));
        let grain = (GRAIN / rows.width).max(1);
        parallel_for(rows.count, grain, |range| {
            vectorize(Turn::<T> { rows, range, to, from, cos, sin, back });
        });
    });
    out
}

type Wide<T> = <T as crate::cpu::numbers::widen::Widen>::Wide;

/// Some of the rows.
struct Turn<'a, T: Float> {
    rows: &'a Rows,
    range: std::ops::Range<usize>,
    to: SharedMut<T>,
    from: Shared<T>,
    cos: Shared<T::Wide>,
    sin: Shared<T::Wide>,
    back: bool,
}

impl<T: Float + Element> Kernel for Turn<'_, T> {
    type Output = ();
    const WIDE: bool = size_of::<T>() == 4;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Rows { sizes, strides, width, pairs, .. } = *self.rows;
        for row in self.range {
            let (mut left, mut at) = (row, [0; 3]);
            for (dim, &size) in sizes.iter().enumerate() {
                let place = left % size;
                left /= size;
                for (at, strides) in at.iter_mut().zip(&strides) {
                    *at += place * strides[dim];
                }
            }
            // SAFETY: the row's places by the tensors' own strides; each row of `to` is one thread's.
            let (x, cos, sin, y) = unsafe {
                (
                    std::slice::from_raw_parts(self.from.at(at[0]), width),
                    std::slice::from_raw_parts(self.cos.at(at[1]), pairs),
                    std::slice::from_raw_parts(self.sin.at(at[2]), pairs),
                    self.to.slice(row * width..(row + 1) * width),
                )
            };
            let (first, rest) = x.split_at(pairs);
            let (second, rest) = rest.split_at(pairs);
            let (to_first, to_rest) = y.split_at_mut(pairs);
            let (to_second, to_rest) = to_rest.split_at_mut(pairs);
            for i in 0..pairs {
                let (a, b, c) = (first[i].widen(), second[i].widen(), cos[i]);
                let s = if self.back { -sin[i] } else { sin[i] };
                to_first[i] = T::narrow(a * c - b * s);
                to_second[i] = T::narrow(b * c + a * s);
            }
            to_rest.copy_from_slice(rest);
        }
    }
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let sample = |name: &str, shape: &[usize], table: &[usize]| {
        let angles = values(table, 2);
        OpSample::new(format!("{OP}({name})"), [values(shape, 1)], move |x| {
            let to = (x[0].dtype().compute(), x[0].device());
            let [cos, sin] = [angles.cos(), angles.sin()].map(|t| t.to_dtype(to.0).to_device(to.1));
            x[0].rotary_embedding(&cos, &sin)
        })
    };
    vec![
        sample("heads behind", &[2, 3, 2, 8], &[3, 1, 4]),
        sample("heads in front", &[2, 2, 3, 8], &[3, 4]),
        sample("of each sequence, some features stay", &[2, 3, 2, 9], &[2, 3, 1, 3]),
        sample("many dimensions", &[1, 2, 1, 2, 3, 2], &[2, 1, 1]),
        sample("none", &[0, 4], &[1, 2]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;

    #[test]
    fn what_does_not_fit_is_named() {
        let x = values([2, 3, 8], 1);
        let table = |shape: &[usize]| values(shape, 2);
        for (cos, sin) in [(&[3, 5][..], &[3, 5][..]), (&[2, 4], &[2, 4]), (&[3, 4], &[3, 2])] {
            let error = catch(|| x.rotary_embedding(&table(cos), &table(sin))).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&format!("{cos:?}")) && text.contains("[2, 3, 8]"), "{text}");
        }
        let half = table(&[3, 4]).to_dtype(Dtype::F32);
        let error = catch(|| x.rotary_embedding(&half, &half)).unwrap_err().to_string();
        assert!(error.contains("f64") && error.contains("cos f32"), "{error}");
        let learned = table(&[3, 4]).requires_grad_(true);
        let error = catch(|| x.rotary_embedding(&table(&[3, 4]), &learned)).unwrap_err();
        assert!(error.to_string().contains("`sin` requires a gradient"), "{error}");
    }

    #[test]
    fn wide_tables_serve_half_types() {
        let x = values([5, 6], 1).to_dtype(Dtype::BF16);
        let angles = values([5, 3], 2);
        let tables = |dtype| [angles.cos(), angles.sin()].map(|t| t.to_dtype(dtype));
        let [cos, sin] = tables(Dtype::F32);
        let y = x.rotary_embedding(&cos, &sin);
        let [cos, sin] = tables(Dtype::F64);
        let want = x.to_dtype(Dtype::F64).rotary_embedding(&cos, &sin).to_dtype(Dtype::BF16);
        assert_eq!(y.dtype(), Dtype::BF16);
        assert!(y.equal(&want), "{y} {want}");
    }
}
