//! Attention from recorded ops: with dropout where no kernel drops weights, and the gradients that are differentiated
//! again or are of a mask.

use smallvec::smallvec;

use super::cuda;
use super::flash::Dropout;
use super::plan::{OP, Plan};
use crate::autograd::{Grads, no_grad};
use crate::cpu::attention::Band;
use crate::ops::{gpu, random};
use crate::profiler::flops;
use crate::tensor::{Dtype, Shape, Tensor};

/// 0 where `mask` holds, else minus infinity.
fn additive(mask: &Tensor, dtype: Dtype) -> Tensor {
    no_grad(|| {
        let zeros = Tensor::zeros(mask.shape(), (dtype, mask.device()));
        zeros.masked_fill(&mask.logical_not(), f64::NEG_INFINITY)
    })
}

/// A mask that is added: a bool one becomes such.
pub(super) fn added(mask: &Tensor, dtype: Dtype) -> Tensor {
    if mask.dtype() == Dtype::Bool { additive(mask, dtype) } else { mask.clone() }
}

impl Plan {
    /// S, from recorded ops; minus infinity where a query does not see a key.
    fn scores(&self, q: &Tensor, k: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let a = self.attention;
        let mut scores = q.matmul(&k.transpose(-1, -2)) * a.scale;
        if let Some(mask) = mask {
            scores += mask;
        }
        if a.band != Band::ALL {
            let all = Tensor::ones([a.queries, a.keys], (Dtype::Bool, q.device()));
            let seen = all.tril(a.band.high).triu(a.band.low);
            scores = scores + additive(&seen, q.dtype());
        }
        scores
    }

    /// Y where each element of P is dropped with probability `p`: by kernels that draw as they go, or else from recorded
    /// ops, for which P must be there.
    pub(super) fn dropped(&self, [q, k, v]: [&Tensor; 3], mask: Option<&Tensor>, p: f64) -> Tensor {
        let mask = mask.map(|m| added(m, q.dtype()));
        let mask = mask.as_ref();
        if let Some(gpu) = gpu::of(OP, &[q, k, v, mask.unwrap_or(q)]) {
            let qkv = [q, k, v];
            let done = no_grad(|| cuda::dropped(gpu, self, qkv, mask, p));
            if let Some((y, logsum, dropout)) = done {
                flops(OP, || self.flops(1, 1));
                return self.clone().recorded(qkv, mask, y, logsum, Some(dropout));
            }
            cuda::allow_products();
        }
        let scores = self.scores(q, k, mask);
        if mask.is_none() && self.is_whole_or_causal() {
            return scores.softmax(-1).dropout(p, true).matmul(v);
        }
        // A query that sees nothing gives 0, where softmax and its derivative are NaN.
        let blind = no_grad(|| scores.detach().amax(&[-1], true).eq(f64::NEG_INFINITY));
        let weights = scores.masked_fill(&blind, 0.0).softmax(-1).masked_fill(&blind, 0.0);
        weights.dropout(p, true).matmul(v)
    }

    /// The gradients, of the mask too, from recorded ops.
    pub(super) fn composed(
        &self,
        [q, k, v]: [&Tensor; 3],
        mask: Option<&Tensor>,
        logsum: &Tensor,
        dy: &Tensor,
        dropout: Option<Dropout>,
    ) -> Grads {
        let a = self.attention;
        let scores = self.scores(q, k, mask);
        // The saved logarithms only keep the exponentials in range; the sums are taken again, because
        // the graph must know that they depend on the scores. They are about 1, or 0 where a query
        // sees nothing: there 1 is added, which leaves its weights 0.
        let weights = (scores - logsum.to_dtype(q.dtype())).exp();
        let mut per_row = Shape::from_slice(weights.shape());
        *per_row.last_mut().expect("two dimensions") = 1;
        let sums = weights.sum_to(&per_row);
        let nothing = no_grad(|| sums.detach().eq(0.0).to_dtype(q.dtype()));
        let weights = weights / (sums + nothing);
        // What dropout multiplied the weights by.
        let factors = dropout.map(|dropout| {
            let ones = Tensor::ones(weights.shape(), (weights.dtype(), weights.device()));
            let gpu = gpu::of(OP, &[&ones]).expect("such dropout is of kernels");
            random::cuda::dropout(gpu, &ones, dropout.words, dropout.p).0
        });
        let dropped = |t: Tensor| match &factors {
            Some(factors) => t * factors,
            None => t,
        };
        let dv = dropped(weights.clone()).transpose(-1, -2).matmul(dy);
        let dweights = dropped(dy.matmul(&v.transpose(-1, -2)));
        let along = (&dweights * &weights).sum_to(&per_row);
        let dscores = &weights * (dweights - along);
        let dq = dscores.matmul(k) * a.scale;
        let dk = dscores.transpose(-1, -2).matmul(q) * a.scale;
        smallvec![Some(dq), Some(dk), Some(dv), mask.map(|_| dscores)]
    }
}
