//! Sum: `y = sum_i x_i`; the gradient of every element is the sum's. And `sum_to_size`, the inverse
//! of broadcasting.

use std::marker::PhantomData;
use std::ops::Add;

use half::{bf16, f16};
use smallvec::smallvec;

use super::cuda::{Finish, reduce};
use super::dims::{Dims, simple_fold};
use crate::amp::cast_op;
use crate::autograd::record;
use crate::cpu::{folds::fold::Fold, numbers::widen::Real, numbers::widen::Widen};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, positive, values};
use crate::ops::{gpu, pointwise::complex::by_pairs};
use crate::tensor::{Dtype, Tensor};

/// Sum of floating-point elements in their wide type.
struct FloatSum<T>(PhantomData<T>);

impl<T: Widen<Wide: Real>> Fold for FloatSum<T> {
    type In = T;
    type Acc = T::Wide;
    type Param = ();
    #[inline(always)]
    fn identity(&self) -> T::Wide {
        T::Wide::ZERO
    }
    #[inline(always)]
    fn param(&self, _: usize) {}
    #[inline(always)]
    fn map<const FMA: bool>(&self, x: T, (): ()) -> T::Wide {
        x.widen()
    }
    #[inline(always)]
    fn map_some<const FMA: bool, const Q: usize>(&self, some: &[T; Q], (): ()) -> [T::Wide; Q] {
        T::widen_some::<FMA, Q>(some)
    }
    #[inline(always)]
    fn combine(&self, a: T::Wide, b: T::Wide) -> T::Wide {
        a.add(b)
    }
}

simple_fold! {
    IntegerSum<i64> -> i64, identity 0, map |x| x, combine |a, b| a.wrapping_add(b)
}

/// The sum in the wide type (f32 for half types, i64 for integers), not recorded.
pub(super) fn wide_sum(x: &Tensor, dims: &Dims) -> Tensor {
    match x.dtype() {
        Dtype::F64 => dims.fold(&FloatSum::<f64>(PhantomData), x),
        Dtype::F32 => dims.fold(&FloatSum::<f32>(PhantomData), x),
        Dtype::F16 => dims.fold(&FloatSum::<f16>(PhantomData), x),
        Dtype::BF16 => dims.fold(&FloatSum::<bf16>(PhantomData), x),
        _ => dims.fold(&IntegerSum, &x.detach().to_dtype(Dtype::I64)),
    }
}

/// The sum in the type of the result, not recorded.
#[track_caller]
fn sum_of(x: &Tensor, dims: &Dims) -> Tensor {
    let to = if x.dtype().is_floating_point() { x.dtype() } else { Dtype::I64 };
    if let Some(gpu) = gpu::of("sum", &[x]) {
        return reduce(gpu, "Sum", x, dims, to, Finish::Nothing);
    }
    wide_sum(x, dims).to_dtype(to)
}

impl Tensor {
    /// Sum of all elements (`torch.sum`): of the tensor's type; i64 for integers and bools.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[1f32, 2.], [3., 4.]]).sum().item(), 10.0);
    /// assert_eq!(Tensor::from([true, true]).sum().item_i64(), 2);
    /// ```
    #[track_caller]
    pub fn sum(&self) -> Tensor {
        self.sum_dim(&[], false)
    }

    /// Sums along `dims`, or all dimensions if the list is empty (`torch.sum(dim, keepdim)`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.sum_dim(&[0], false).to_vec::<i64>(), [4, 6]);
    /// assert_eq!(x.sum_dim(&[0], true).shape(), &[1, 2]);
    /// ```
    ///
    /// # Panics
    /// Throws when a dimension is out of range or named twice.
    #[track_caller]
    pub fn sum_dim(&self, dims: &[i64], keepdim: bool) -> Tensor {
        cast_op!("sum", [x = self] => x.sum_dim(dims, keepdim));
        let dims = Dims::new("sum", self, dims, keepdim);
        if self.dtype().is_complex() {
            let list = dims.reduced_list();
            // An empty list would mean all dimensions, that of the parts too.
            return match list.is_empty() {
                true => self.clone_contiguous(),
                false => by_pairs(self, |pairs| pairs.sum_dim(&list, keepdim)),
            };
        }
        let out = sum_of(self, &dims);
        let shape = self.layout().shape.clone();
        record("sum", &[self], out, |_| {
            move |ctx| smallvec![Some(dims.restore(&ctx.grad(0), &shape).expand(&shape))]
        })
    }

    /// Sums over what broadcasting from `shape` to this tensor's shape would stretch
    /// (`torch.Tensor.sum_to_size`). The result has memory of its own, also where nothing is summed.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// let column = x.sum_to_size(&[2, 1]);
    /// assert_eq!((column.shape(), column.to_vec::<i64>()), (&[2, 1][..], vec![3, 7]));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when `shape` does not broadcast to this tensor's.
    #[track_caller]
    pub fn sum_to_size(&self, shape: &[usize]) -> Tensor {
        let sum = self.sum_to(shape);
        if sum.storage().ptr_eq(self.storage()) { sum.clone_contiguous() } else { sum }
    }

    /// [`sum_to_size`](Self::sum_to_size) for gradients: this tensor or a view of it where nothing is summed.
    #[track_caller]
    pub(crate) fn sum_to(&self, shape: &[usize]) -> Tensor {
        let missing = self.dim().wrapping_sub(shape.len());
        let fits = shape.len() <= self.dim()
            && shape.iter().zip(&self.shape()[missing..]).all(|(&to, &from)| to == from || to == 1);
        if !fits {
            throw(Error::shape(
                "sum_to_size",
                format!("{shape:?} does not broadcast to the tensor's shape {:?}", self.shape()),
            ));
        }
        if shape == self.shape() {
            return self.clone();
        }
        let stretched =
            |d: &usize| *d < missing || shape[d - missing] == 1 && self.shape()[*d] != 1;
        let dims: smallvec::SmallVec<[i64; 5]> =
            (0..self.dim()).filter(stretched).map(|d| d as i64).collect();
        // An empty list would mean all dimensions; here every dimension is kept.
        let sum = if dims.is_empty() { self.clone() } else { self.sum_dim(&dims, true) };
        sum.reshape_to(shape)
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    let x = || vec![values([2, 3, 4], 1)];
    vec![
        OpSample::new("sum", x(), |x| x[0].sum()),
        OpSample::new("sum(dim=0)", x(), |x| x[0].sum_dim(&[0], false)),
        OpSample::new("sum(dim=[0, 2], keepdim)", x(), |x| x[0].sum_dim(&[0, 2], true)),
        OpSample::new("sum(dim=-1), long", [positive([3, 5000], 2)], |x| {
            x[0].sum_dim(&[-1], false)
        }),
        OpSample::new("sum(dim=0), long", [positive([5000, 9], 2)], |x| x[0].sum_dim(&[0], false)),
        OpSample::new("sum(dim=0), empty", [values([0, 3], 1)], |x| x[0].sum_dim(&[0], false)),
        OpSample::new("sum, 0-dim", [values([], 1)], |x| x[0].sum()),
        OpSample::new("sum, i32", [Tensor::from([[1i32, 2], [3, 4]])], |x| {
            x[0].sum_dim(&[1], false)
        }),
        OpSample::new("sum_to_size", x(), |x| x[0].sum_to_size(&[3, 1])),
        OpSample::new("sum_to_size, leading", x(), |x| x[0].sum_to_size(&[4])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Widening is exact, so that the sums of halves are those of the same numbers in f32, whatever widens them.
    #[test]
    fn halves_add_up_as_their_wide_numbers_do() {
        for n in (1..140).chain([512, 513, 2048, 5001]) {
            for to in [Dtype::F16, Dtype::BF16] {
                let x = values([5, n], n as u64).to_dtype(to);
                let dims = Dims::new("sum", &x, &[1], false);
                let (got, want) = (wide_sum(&x, &dims), wide_sum(&x.to_dtype(Dtype::F32), &dims));
                assert_eq!(got.to_vec::<f32>(), want.to_vec::<f32>(), "{n} of {to}");
            }
        }
    }
}
