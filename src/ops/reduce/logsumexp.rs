//! `y = log sum_i e^{x_i}`, with the largest element taken out so that nothing overflows:
//! `y = m + log sum_i e^{x_i - m}`. `dx_i = g e^{x_i - y}`.

use std::marker::PhantomData;

use smallvec::smallvec;

use super::cuda::{Finish, reduce};
use super::dims::{Dims, finish};
use crate::amp::cast_op;
use crate::autograd::record;
use crate::cpu::{
    folds::extreme::Extreme, folds::extreme::Ordered, folds::fold::Fold, numbers::widen::Real,
};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::gpu;
use crate::tensor::{Dtype, Element, Tensor, dispatch};

/// `sum_i e^{x_i - shift}` with a shift per output.
struct ShiftedExpSum<'a, T> {
    shifts: &'a [T],
}

impl<T: Real> Fold for ShiftedExpSum<'_, T> {
    type In = T;
    type Acc = T;
    type Param = T;
    #[inline(always)]
    fn identity(&self) -> T {
        T::ZERO
    }
    #[inline(always)]
    fn param(&self, output: usize) -> T {
        self.shifts[output]
    }
    #[inline(always)]
    fn map<const FMA: bool>(&self, x: T, shift: T) -> T {
        (x - shift).exp::<FMA>()
    }
    #[inline(always)]
    fn combine(&self, a: T, b: T) -> T {
        a + b
    }
}

/// The result for f32 or f64 input, not recorded.
fn logsumexp_of<T: Real + Element + Ordered>(x: &Tensor, dims: &Dims) -> Tensor {
    let shifts = dims.fold(&Extreme::<T, true>(PhantomData), x);
    // An infinite maximum is not subtracted: inf - inf is NaN.
    finish::<T>(&shifts, |m| if m.magnitude() == T::HIGHEST { T::ZERO } else { m });
    // SAFETY: contiguous, of type T and not written from here on.
    let shifts = unsafe { shifts.as_slice::<T>() };
    let out = dims.fold(&ShiftedExpSum { shifts }, x);
    // SAFETY: fresh, contiguous and of type T.
    for (y, &shift) in unsafe { out.as_mut_slice::<T>() }.iter_mut().zip(shifts) {
        *y = y.log::<false>() + shift;
    }
    out
}

impl Tensor {
    /// `log(sum(exp(x)))` along `dims`, or over all elements if the list is empty, without overflow
    /// (`torch.logsumexp`). Integers are converted to f32.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f64.ln(), 3f64.ln()], [1000., 1000.]]);
    /// let expected = Tensor::from([4f64.ln(), 1000.0 + 2f64.ln()]);
    /// assert!(x.logsumexp(&[1], false).allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// Throws when a dimension is out of range or named twice.
    #[track_caller]
    pub fn logsumexp(&self, dims: &[i64], keepdim: bool) -> Tensor {
        cast_op!("logsumexp", [x = self] => x.logsumexp(dims, keepdim));
        let dtype = if self.dtype().is_floating_point() { self.dtype() } else { Dtype::F32 };
        let dims = Dims::new("logsumexp", self, dims, keepdim);
        let out = match gpu::of("logsumexp", &[self]) {
            Some(gpu) => {
                let x = self.detach().to_dtype(dtype);
                reduce(gpu, "LogSumExp", &x, &dims, dtype, Finish::Nothing)
            }
            None => {
                let wide = self.detach().to_dtype(dtype.compute());
                dispatch!(compute wide.dtype(), "logsumexp", T => logsumexp_of::<T>(&wide, &dims))
                    .to_dtype(dtype)
            }
        };
        record("logsumexp", &[self], out, |saver| {
            let (x, y) = (saver.save(self), saver.save_output(0));
            move |ctx| {
                let x = ctx.get(&x);
                let restore = |t: &Tensor| dims.restore(t, x.shape());
                smallvec![Some(restore(&ctx.grad(0)) * (&x - restore(&ctx.get(&y))).exp())]
            }
        })
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    let x = || vec![values([3, 4, 5], 2)];
    vec![
        OpSample::new("logsumexp(dim=1)", x(), |x| x[0].logsumexp(&[1], false)),
        OpSample::new("logsumexp(dim=[0, 2], keepdim)", x(), |x| x[0].logsumexp(&[0, 2], true)),
        OpSample::new("logsumexp, all", x(), |x| x[0].logsumexp(&[], false)),
        OpSample::new("logsumexp, 0-dim", [values([], 1)], |x| x[0].logsumexp(&[0], false)),
        OpSample::new("logsumexp, i64", [Tensor::from([1i64, 2, 3])], |x| {
            x[0].logsumexp(&[0], false)
        }),
    ]
}
