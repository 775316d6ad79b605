//! Attention of halves by cuDNN, where it is found and computes such. Operands are read where they lie, also if the heads
//! come after the lengths; results lie like them.

use smallvec::{SmallVec, smallvec};

use super::joint;
use super::plan::Plan;
use crate::autograd::Grads;
use crate::backends;
use crate::cpu::attention::Band;
use crate::cuda::cudnn::{self, ALIGNMENT, Attention, Kind, View};
use crate::error::throw;
use crate::ops::gpu::Gpu;
use crate::storage::{Device, Storage};
use crate::tensor::{Dtype, Layout, Shape, Strides, Tensor};

/// What forward and backward have in common.
pub(super) struct Call<'a> {
    gpu: Gpu,
    plan: &'a Plan,
    kind: Kind,
    /// Where the batch dimensions that are heads start.
    heads: usize,
    /// Of each operand, itself and how it lies: queries, keys, values.
    operands: [Seen; 3],
}

/// A tensor of a call.
type Seen = (Tensor, View);

impl<'a> Call<'a> {
    /// A call, if cuDNN is to be asked.
    pub(super) fn new(
        gpu: Gpu,
        plan: &'a Plan,
        qkv: [&Tensor; 3],
        mask: Option<&Tensor>,
    ) -> Option<Call<'a>> {
        let kind = match qkv[0].dtype() {
            Dtype::F16 => Kind::F16,
            Dtype::BF16 => Kind::BF16,
            _ => return None,
        };
        let allowed = backends::cuda::cudnn_sdp_enabled() && backends::cudnn::enabled();
        let takes_band = plan.is_whole_or_causal();
        if mask.is_some()
            || !takes_band
            || !plan.fits_cudnn()
            || !allowed
            || gpu.is_nowhere()
            || !cudnn::is_available()
        {
            return None;
        }
        let heads = heads(&plan.batch, qkv)?;
        let operands = qkv.map(|t| seen(t, heads, plan.batch.len()));
        Some(Call { gpu, plan, kind, heads, operands })
    }

    fn seen(&self, t: &Tensor) -> Seen {
        seen(t, self.heads, self.plan.batch.len())
    }

    /// A new tensor of this shape that lies in the order of another, and is not seen otherwise.
    fn like(&self, t: &Tensor, shape: &[usize]) -> Seen {
        let new = ordered_like(t, shape, self.gpu.device());
        self.seen(&new)
    }

    #[track_caller]
    fn run(&self, backward: bool, [q, k, v, y]: [[View; 2]; 4], tensors: &[&Tensor]) -> Option<()> {
        let a = self.plan.attention;
        let problem = Attention {
            kind: self.kind,
            backward,
            causal: a.band == Band::CAUSAL,
            deterministic: backward && backends::cudnn::deterministic(),
            q,
            k,
            v,
            y,
        };
        let at: SmallVec<[*mut u8; 9]> = tensors.iter().map(|t| t.device_ptr()).collect();
        // SAFETY: tensors on this GPU that lie as `seen` says, the logarithms f32 and dense; results are new. What is
        // freed meanwhile is used again on the same stream only.
        let done = unsafe { cudnn::attention(&problem, a.scale as f32, &at, self.gpu.stream()) };
        done.unwrap_or_else(|error| throw(error)).then_some(())
    }

    /// Y; the logarithms of the sums go to a dense tensor. None where cuDNN does not compute such.
    #[track_caller]
    pub(super) fn forward(&self, logsum: &Tensor) -> Option<Tensor> {
        let a = self.plan.attention;
        let [q, k, v] = &self.operands;
        let y = self.like(&q.0, &self.plan.with_batch([a.queries, a.width]));
        let lies = [q, k, v, &y].map(|t| [t.1; 2]);
        self.run(false, lies, &[&q.0, &k.0, &v.0, &y.0, logsum])?;
        Some(y.0)
    }

    /// The gradients of queries, keys and values. None where cuDNN does not compute such.
    #[track_caller]
    pub(super) fn backward(&self, y: &Tensor, logsum: &Tensor, dy: &Tensor) -> Option<Grads> {
        let [q, k, v] = &self.operands;
        let (y, dy) = (self.seen(y), self.seen(dy));
        let joint = joint::new_like([&q.0, &k.0, &v.0]);
        let [dq, dk, dv] = match &joint {
            Some(parts) => parts.each_ref().map(|part| self.seen(part)),
            None => [q, k, v].map(|t| self.like(&t.0, t.0.shape())),
        };
        let lies = [[q.1, dq.1], [k.1, dk.1], [v.1, dv.1], [y.1, dy.1]];
        let tensors = [&q.0, &k.0, &v.0, &y.0, logsum, &dy.0, &dq.0, &dk.0, &dv.0];
        self.run(true, lies, &tensors)?;
        Some(smallvec![Some(dq.0), Some(dk.0), Some(dv.0), None])
    }
}

/// Where the batch dimensions start that are heads, the others being items: all three have the same but for the last
/// ones, of which keys and values may have one for several of the queries'. None if other dimensions broadcast.
fn heads(batch: &[usize], qkv: [&Tensor; 3]) -> Option<usize> {
    let n = batch.len();
    let sizes = qkv.map(|t| padded(t, n).0);
    let all = |d: usize| sizes.iter().all(|size| size[d] == batch[d]);
    let shares = |d: usize| sizes[0][d] == batch[d] && sizes[1][d] == 1 && sizes[2][d] == 1;
    let shared = (0..n).rev().take_while(|&d| shares(d) && !all(d)).count();
    (0..n - shared).all(all).then(|| (n - shared).saturating_sub(1))
}

/// Sizes and strides with so many batch dimensions.
fn padded(t: &Tensor, batch: usize) -> (Shape, Strides) {
    let missing = (batch + 2).saturating_sub(t.dim());
    let mut sizes: Shape = SmallVec::from_elem(1, missing);
    sizes.extend(t.shape().iter().copied());
    let mut strides: Strides = SmallVec::from_elem(0, missing);
    strides.extend(t.strides().iter().copied());
    (sizes, strides)
}

/// A tensor as cuDNN sees it, if it can, or else a contiguous copy.
fn seen(t: &Tensor, heads: usize, batch: usize) -> Seen {
    let t = t.detach();
    if let Some(lie) = lie(&t, heads, batch) {
        return (t, lie);
    }
    let t = t.clone_contiguous().detach();
    let lie = lie(&t, heads, batch).expect("contiguous tensors can be seen");
    (t, lie)
}

/// Neighbouring dimensions as one: its size and stride.
fn joined(sizes: &[usize], strides: &[isize]) -> Option<(i64, i64)> {
    let (mut count, mut step) = (1, 0);
    for (&size, &stride) in sizes.iter().zip(strides).rev().filter(|(size, _)| **size != 1) {
        match count {
            1 => step = stride as i64,
            _ if stride as i64 == step * count => {}
            _ => return None,
        }
        count *= size as i64;
    }
    Some((count, step))
}

/// How a tensor lies with batch, heads, length and features.
fn lie(t: &Tensor, heads: usize, batch: usize) -> Option<View> {
    let (sizes, strides) = padded(t, batch);
    let parts = [0..heads, heads..batch, batch..batch + 1, batch + 1..batch + 2];
    let mut lie = View::default();
    for (d, part) in parts.into_iter().enumerate() {
        (lie.sizes[d], lie.strides[d]) = joined(&sizes[part.clone()], &strides[part])?;
    }
    let each = ALIGNMENT / t.dtype().size() as i64;
    let steps =
        (0..3).all(|d| lie.sizes[d] == 1 || (lie.strides[d] > 0 && lie.strides[d] % each == 0));
    let aligned = (t.device_ptr() as usize).is_multiple_of(ALIGNMENT as usize);
    if lie.strides[3] != 1 || !steps || !aligned {
        return None;
    }
    // cuDNN goes by the strides of dimensions of size 1 too.
    for d in (0..3).rev().filter(|&d| lie.sizes[d] == 1).collect::<SmallVec<[usize; 3]>>() {
        lie.strides[d] = lie.strides[d + 1] * lie.sizes[d + 1];
    }
    Some(lie)
}

/// A new dense tensor whose dimensions lie in the order of another's, the last one innermost.
fn ordered_like(t: &Tensor, shape: &[usize], device: Device) -> Tensor {
    let n = shape.len();
    if t.dim() != n || t.is_contiguous() {
        return Tensor::uninitialised_on(shape, t.dtype(), device);
    }
    let mut order: SmallVec<[usize; 5]> = (0..n - 1).collect();
    order.sort_by_key(|&d| {
        std::cmp::Reverse(if t.shape()[d] == 1 { isize::MAX } else { t.strides()[d] })
    });
    let mut layout = Layout::contiguous(shape);
    let mut step = shape[n - 1] as isize;
    for d in order.into_iter().rev() {
        layout.strides[d] = step;
        step *= shape[d] as isize;
    }
    let bytes = shape.iter().product::<usize>() * t.dtype().size();
    Tensor::from_parts(Storage::on(device, bytes), layout, t.dtype())
}
