//! Lower and upper triangles of matrices (the last two dimensions); zero elsewhere. The gradient is
//! the same triangle of the gradient.

pub(in crate::ops) mod cuda;

use smallvec::smallvec;

use crate::autograd::record;
use crate::cpu::{
    folds::fold::Shared, folds::fold::SharedMut, threads::GRAIN, threads::parallel_for,
};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::gpu;
use crate::profiler;
use crate::tensor::Tensor;

/// A copy that keeps columns up to (or, for the upper triangle, from) `row + diagonal`.
#[track_caller]
fn triangle<const LOWER: bool>(op: &'static str, x: &Tensor, diagonal: i64) -> Tensor {
    let &[.., rows, columns] = x.shape() else {
        throw(Error::shape(op, format!("takes matrices, got shape {:?}", x.shape())))
    };
    let _span = profiler::op(op);
    let dense = x.detach().contiguous();
    if let Some(gpu) = gpu::of(op, &[x]) {
        return cuda::triangle(gpu, &dense, diagonal, LOWER);
    }
    let out = dense.empty_like();
    if out.numel() == 0 {
        return out;
    }
    let size = x.dtype().size();
    let (from, to) = (Shared(dense.data_ptr()), SharedMut(out.data_ptr()));
    parallel_for(x.numel() / columns, GRAIN / columns, |range| {
        for r in range {
            let border = (r % rows) as i64 + diagonal + if LOWER { 1 } else { 0 };
            let border = border.clamp(0, columns as i64) as usize;
            let kept = if LOWER { 0..border } else { border..columns };
            let at = r * columns;
            // SAFETY: row `r` of two dense tensors; all types have zero as zero bytes.
            unsafe {
                to.at(at * size).write_bytes(0, columns * size);
                let first = (at + kept.start) * size;
                to.at(first).copy_from_nonoverlapping(from.at(first), kept.len() * size);
            }
        }
    });
    out
}

impl Tensor {
    /// The lower triangle up to `diagonal` (0 is the main one, above is positive), else zeros
    /// (`torch.tril`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.tril(0).to_vec::<i64>(), [1, 0, 3, 4]);
    /// assert_eq!(x.tril(-1).to_vec::<i64>(), [0, 0, 3, 0]);
    /// ```
    ///
    /// # Panics
    /// Throws for fewer than two dimensions.
    #[track_caller]
    pub fn tril(&self, diagonal: i64) -> Tensor {
        let out = triangle::<true>("tril", self, diagonal);
        record("tril", &[self], out, |_| move |ctx| smallvec![Some(ctx.grad(0).tril(diagonal))])
    }

    /// The upper triangle from `diagonal` on (0 is the main one, above is positive), else zeros
    /// (`torch.triu`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.triu(0).to_vec::<i64>(), [1, 2, 0, 4]);
    /// assert_eq!(x.triu(1).to_vec::<i64>(), [0, 2, 0, 0]);
    /// ```
    ///
    /// # Panics
    /// Throws for fewer than two dimensions.
    #[track_caller]
    pub fn triu(&self, diagonal: i64) -> Tensor {
        let out = triangle::<false>("triu", self, diagonal);
        record("triu", &[self], out, |_| move |ctx| smallvec![Some(ctx.grad(0).triu(diagonal))])
    }

    /// In-place form of [`tril`](Self::tril) (`torch.Tensor.tril_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.tril_(0).to_vec::<i64>(), [1, 0, 3, 4]);
    /// ```
    #[track_caller]
    pub fn tril_(&self, diagonal: i64) -> &Tensor {
        self.copy_(&self.tril(diagonal))
    }

    /// In-place form of [`triu`](Self::triu) (`torch.Tensor.triu_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.triu_(0).to_vec::<i64>(), [1, 2, 0, 4]);
    /// ```
    #[track_caller]
    pub fn triu_(&self, diagonal: i64) -> &Tensor {
        self.copy_(&self.triu(diagonal))
    }
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let x = || vec![values([2, 3, 4], 1)];
    vec![
        OpSample::new("tril", x(), |x| x[0].tril(0)),
        OpSample::new("tril(-1)", x(), |x| x[0].tril(-1)),
        OpSample::new("tril(9)", x(), |x| x[0].tril(9)),
        OpSample::new("triu", x(), |x| x[0].triu(0)),
        OpSample::new("triu(2)", x(), |x| x[0].triu(2)),
        OpSample::new("triu(-9), empty", [values([0, 3], 1)], |x| x[0].triu(-9)),
    ]
}
