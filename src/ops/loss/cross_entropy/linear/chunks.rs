//! A visit of all chunks: losses of the rows and, if asked for, the gradients of input, weight and bias.

use super::super::{Batch, cuda, fused_backward, lse_and_losses};
use super::OP;
use crate::ops::gpu::{self, Gpu};
use crate::ops::products::matmul::place::{Start, product_into};
use crate::tensor::{Dtype, Tensor};

/// The operands, of one type: `x` `[n, in]`, `w` `[classes, in]` and `b` `[classes]`, dense but for `w`. None has a history.
pub(super) struct Call<'a> {
    pub(super) x: &'a Tensor,
    pub(super) w: &'a Tensor,
    pub(super) b: Option<&'a Tensor>,
    pub(super) how: &'a How,
    /// For which of the three a gradient is wanted.
    pub(super) wanted: [bool; 3],
}

/// All but the operands.
pub(super) struct How {
    /// A dense list of i64.
    pub(super) target: Tensor,
    /// Of the classes, in the type that is computed in.
    pub(super) weight: Option<Tensor>,
    pub(super) ignore_index: i64,
    pub(super) smoothing: f64,
    /// Of a chunk.
    pub(super) rows: usize,
}

impl How {
    /// These scores with all classes, or those of a chunk.
    pub(super) fn batch(&self, x: Tensor, target: &Tensor) -> Batch {
        let (target, weight) = (target.clone(), self.weight.clone());
        Batch { x, target, weight, ignore_index: self.ignore_index }
    }
}

/// What the losses' sum is divided by.
#[derive(Clone)]
pub(super) enum Total {
    /// On the host.
    Number(f64),
    /// On the GPU.
    Tensor(Tensor),
}

/// The gradient of `x` in its type, those of `w` and `b` in the one that is computed in.
pub(super) type Grads = [Option<Tensor>; 3];

/// Of all rows, in the type that is computed in.
pub(super) struct Losses {
    pub(super) losses: Tensor,
    /// What each counts, on a GPU.
    pub(super) weights: Option<Tensor>,
}

/// What a chunk's gradients are made for.
#[derive(Clone, Copy)]
pub(super) enum Upstream<'a> {
    /// No gradients.
    None,
    /// 1 for each loss, divided by this.
    One(Option<&'a Total>),
    /// One for each row, in the type that is computed in.
    Rows(&'a Tensor),
}

/// Where the results of all rows are put together.
struct Results {
    losses: Losses,
    grads: Grads,
}

impl Call<'_> {
    fn results(&self, upstream: Upstream<'_>) -> Results {
        let (n, wide) = (self.x.shape()[0], (self.x.dtype().compute(), self.x.device()));
        let list = || Tensor::empty([n], wide);
        let is_wanted = |i: usize| self.wanted[i] && !matches!(upstream, Upstream::None);
        let on_gpu = self.x.device().kernels().is_some();
        Results {
            losses: Losses { losses: list(), weights: on_gpu.then(list) },
            grads: [
                is_wanted(0).then(|| self.x.empty_like()),
                is_wanted(1).then(|| Tensor::empty(self.w.shape(), wide)),
                is_wanted(2).then(|| Tensor::zeros([self.w.shape()[0]], wide)),
            ],
        }
    }

    /// A matrix for the scores of a chunk. On a GPU rows begin at sixteen bytes, for wide reads, also by the products.
    fn room(&self) -> Tensor {
        let (classes, rows) = (self.w.shape()[0], self.how.rows.min(self.x.shape()[0]));
        let pack = if self.x.device().kernels().is_some() { 16 / self.x.dtype().size() } else { 1 };
        let all = Tensor::empty(
            [rows, classes.next_multiple_of(pack)],
            (self.x.dtype(), self.x.device()),
        );
        all.narrow(1, 0, classes)
    }

    /// The scores of these rows, in `room`.
    fn scores(&self, room: &Tensor, x: &Tensor, target: Tensor) -> Batch {
        let scores = room.narrow(0, 0, x.shape()[0]);
        product_into(&scores, x, &self.w.t(), self.b.map_or(Start::Nothing, Start::Row));
        self.how.batch(scores, &target)
    }

    /// Visits all chunks.
    #[track_caller]
    pub(super) fn visit(&self, upstream: Upstream<'_>) -> (Losses, Grads) {
        let out = self.results(upstream);
        let (n, gpu) = (self.x.shape()[0], gpu::of(OP, &[self.x]));
        let room = self.room();
        for first in (0..n).step_by(self.how.rows) {
            let count = self.how.rows.min(n - first);
            let part = |t: &Tensor| t.narrow(0, first, count);
            let x = part(self.x);
            let batch = self.scores(&room, &x, part(&self.how.target));
            let losses = part(&out.losses.losses);
            let d = match gpu {
                Some(gpu) => {
                    let weights = out.losses.weights.as_ref().map(part);
                    self.on_gpu(gpu, &batch, upstream, [Some(losses), weights], first)
                }
                None => self.on_host(&batch, upstream, &losses, first),
            };
            let Some(d) = d else { continue };
            if let Some(dx) = &out.grads[0] {
                product_into(&part(dx), &d, self.w, Start::Nothing);
            }
            if let Some(dw) = &out.grads[1] {
                let start = if first == 0 { Start::Nothing } else { Start::Itself };
                product_into(dw, &d.t(), &x, start);
            }
            if let Some(db) = &out.grads[2] {
                db.add_(&d.sum_as(&[0], false, db.dtype()));
            }
        }
        (out.losses, out.grads)
    }

    /// The losses of a chunk's rows, and the gradient of its scores, if that is asked for.
    #[track_caller]
    fn on_gpu(
        &self,
        gpu: Gpu,
        batch: &Batch,
        upstream: Upstream<'_>,
        lists: [Option<Tensor>; 2],
        first: usize,
    ) -> Option<Tensor> {
        let [Some(losses), Some(weights)] = lists else { unreachable!("both are there on a GPU") };
        match upstream {
            Upstream::One(total) => {
                let total = match total {
                    Some(Total::Tensor(total)) => Some(total),
                    _ => None,
                };
                cuda::step(gpu, batch, self.how.smoothing, [&losses, &weights], total, first);
                Some(batch.x.clone())
            }
            Upstream::None | Upstream::Rows(_) => {
                // This kernel takes dense rows.
                let batch = self.how.batch(batch.x.contiguous(), &batch.target);
                let lse = losses.empty_like();
                let lists = [lse, losses, weights];
                cuda::forward_into(gpu, OP, &batch, self.how.smoothing, &lists, first);
                let Upstream::Rows(g) = upstream else { return None };
                let g = g.narrow(0, first, batch.x.shape()[0]);
                Some(cuda::backward(gpu, &batch, &lists[0], &g, None, self.how.smoothing))
            }
        }
    }

    #[track_caller]
    fn on_host(
        &self,
        batch: &Batch,
        upstream: Upstream<'_>,
        losses: &Tensor,
        first: usize,
    ) -> Option<Tensor> {
        let lse = losses.empty_like();
        lse_and_losses(batch, self.how.smoothing, [&lse, losses]);
        let g = match upstream {
            Upstream::None => return None,
            Upstream::One(total) => {
                let over = match total {
                    Some(Total::Number(total)) => *total,
                    _ => 1.0,
                };
                // What counts for nothing gets 0 without it.
                let g = if over == 0.0 { 0.0 } else { 1.0 / over };
                Tensor::full([], g, (losses.dtype(), losses.device()))
            }
            Upstream::Rows(g) => g.narrow(0, first, batch.x.shape()[0]),
        };
        Some(fused_backward(batch, &lse, &g, self.how.smoothing))
    }

    /// The sum of the rows' weights, where losses are to be divided by it before they are known; on a GPU nothing waits
    /// for it.
    pub(super) fn total_before(&self) -> Option<Total> {
        // What is divided by a large number may be too small for f16.
        if self.x.dtype() == Dtype::F16 {
            return None;
        }
        if self.x.device().kernels().is_none() {
            return Some(Total::Number(self.total_weight()));
        }
        let counted =
            || self.how.target.ne(self.how.ignore_index).to_dtype(self.x.dtype().compute());
        self.how.weight.is_none().then(|| Total::Tensor(counted().sum()))
    }

    /// The sum of the rows' weights, on the host.
    pub(super) fn total_weight(&self) -> f64 {
        self.how.batch(self.x.clone(), &self.how.target).total_weight()
    }
}
