//! Batch normalisation by the statistics of all ranks' rows, the computation of
//! [`nn::SyncBatchNorm`](crate::nn::SyncBatchNorm).
//!
//! With n numbers per channel over all ranks, xh = (x - mean) r, r = 1 / sqrt(var + eps):
//!
//! ```text
//! mean = all(sum x) / n        var = all(sum (x - mean)^2) / n        all = sum over the ranks
//! dx = w r (dy - all(sum dy) / n - xh all(sum dy xh) / n)
//! dw = sum of dy xh            db = sum of dy            over this rank's rows
//! ```
//!
//! Ranks may have different numbers of rows, or none. What is exchanged is a few numbers per channel,
//! in f64. All ranks get the same bits, as from any all-reduce.

use smallvec::smallvec;

use crate::autograd::{no_grad, record};
use crate::distributed::{Origin, ProcessGroup, ReduceOp};
use crate::error::throw;
use crate::tensor::{Dtype, Tensor};

/// Sum of `tensor` over the ranks of `group`, as a recorded op: the derivative of a sum over ranks is
/// the sum of their gradients.
#[track_caller]
fn rank_sum(tensor: &Tensor, group: &ProcessGroup) -> Tensor {
    let total = no_grad(|| tensor.clone_contiguous());
    let origin = Origin::named("SyncBatchNorm");
    if let Err(error) = origin.over(|| group.all_reduce(&total, ReduceOp::Sum)) {
        throw(error);
    }
    record("rank_sum", &[tensor], total, |_| {
        let group = group.clone();
        move |ctx| smallvec![Some(rank_sum(&ctx.grad(0), &group))]
    })
}

/// Statistics of the channels over all ranks, each `[C]`.
pub(crate) struct Moments {
    pub mean: Tensor,
    /// Over n, not n - 1.
    pub var: Tensor,
    /// n, a number of f64 on the input's device: nothing waits for it.
    pub count: Tensor,
}

/// Where the channels are, and who else has rows.
#[derive(Clone)]
struct Channels {
    /// All dimensions but 1.
    others: Vec<i64>,
    /// `[1, C, 1, ..]`.
    broadcast: Vec<i64>,
    group: ProcessGroup,
}

impl Channels {
    fn new(x: &Tensor, group: &ProcessGroup) -> Self {
        let others = (0..x.dim() as i64).filter(|d| *d != 1).collect();
        let mut broadcast = vec![1; x.dim()];
        broadcast[1] = -1;
        Channels { others, broadcast, group: group.clone() }
    }

    /// `[C]` so that it broadcasts to the input.
    fn wide(&self, t: &Tensor) -> Tensor {
        t.reshape(&self.broadcast[..])
    }

    /// Sums over this rank's rows, `[C]`.
    fn sum(&self, t: &Tensor) -> Tensor {
        t.sum_dim(&self.others, false)
    }

    #[track_caller]
    fn moments(&self, x: &Tensor) -> Moments {
        let own = x.numel() / x.size(1).max(1);
        let count = Tensor::full([1], own as f64, (Dtype::F64, x.device()));
        let sums = Tensor::cat(&[self.sum(x).to_dtype(Dtype::F64), count], 0);
        let sums = rank_sum(&sums, &self.group);
        let count = sums.select(0, -1);
        let mean = (sums.narrow(0, 0, x.size(1)) / &count).to_dtype(x.dtype());
        let squares = self.sum(&(x - self.wide(&mean)).square()).to_dtype(Dtype::F64);
        let var = (rank_sum(&squares, &self.group) / &count).to_dtype(x.dtype());
        Moments { mean, var, count }
    }
}

/// `x` (`[N, C, ..]`) normalised by the statistics of all ranks, times `weight` plus `bias`; and these
/// statistics. Collective: all ranks call it, and all run its backward.
///
/// # Panics
/// Throws what [`ProcessGroup::all_reduce`] gives when a rank does not take part.
#[track_caller]
pub(crate) fn sync_batch_norm(
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
    group: &ProcessGroup,
) -> (Tensor, Moments) {
    // Half types are computed in f32, as in the op for one rank.
    let dtype = x.dtype();
    let wide = if dtype == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
    let x = x.to_dtype(wide);
    let own = [weight, bias].map(|p| p.map(|p| p.to_dtype(wide)));
    let (weight, bias) = (own[0].as_ref(), own[1].as_ref());
    let channels = Channels::new(&x, group);
    let (y, moments) = no_grad(|| {
        let moments = channels.moments(&x);
        let (mean, var) = (Some(&moments.mean), Some(&moments.var));
        (x.batch_norm(mean, var, weight, bias, false, 0.0, eps), moments)
    });
    let Moments { mean, var, count } = &moments;
    let (mean, var, count) = (mean.clone(), var.clone(), count.clone());
    let (ones, zeros) = (mean.ones_like(), mean.zeros_like());
    let inputs = [&x, weight.unwrap_or(&ones), bias.unwrap_or(&zeros)];
    let affine = weight.is_some() || bias.is_some();
    let y = record("sync_batch_norm", &inputs, y, |saver| {
        let (x, w) = (saver.save(inputs[0]), saver.save(inputs[1]));
        move |ctx| {
            let (x, w, g) = (ctx.get(&x), ctx.get(&w), ctx.grad(0));
            // To be differentiated again, the statistics must be functions of x.
            let now = match ctx.create_graph() {
                true => channels.moments(&x),
                false => Moments { mean: mean.clone(), var: var.clone(), count: count.clone() },
            };
            let invstd = (now.var + eps).rsqrt();
            let normal = (&x - channels.wide(&now.mean)) * channels.wide(&invstd);
            let sums = [channels.sum(&g), channels.sum(&(&g * &normal))];
            let all = Tensor::cat(&sums, 0).to_dtype(Dtype::F64);
            let all =
                (rank_sum(&all, &channels.group) / &now.count).to_dtype(x.dtype()).chunk(2, 0);
            let inner = &g - channels.wide(&all[0]) - &normal * channels.wide(&all[1]);
            let dx = inner * channels.wide(&(invstd * &w));
            let [db, dw] = sums;
            let own = |d: Tensor| affine.then_some(d);
            smallvec![Some(dx), own(dw), own(db)]
        }
    });
    (y.to_dtype(dtype), moments)
}
