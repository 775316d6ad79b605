//! Batch normalisation, the addition of a residual, and `relu` in one pass over the elements: on a GPU, where each pass
//! takes as long as its reads and writes.
//!
//! ```text
//! y = max(norm(x) + residual, 0)        dy counts where y is not 0; that is the residual's gradient, and the norm's
//! ```
//!
//! Where the result goes on in two ways, as into the next block and around it, backward adds both gradients in that
//! pass, too.
//!
//! Each step rounds as an op of its own does, so that results are the same bits. What backward keeps in place of y is
//! a mask, a sixteenth of its bytes. On the CPU, and for operands that promotion or broadcasting would bring together,
//! these are the ops themselves.

use smallvec::{SmallVec, smallvec};

use super::cuda::{self, Found, Gradients, Mask, Relu, Remaining};
use super::{Norm, Saved, composed};
use crate::autograd::{is_differentiated, record};
use crate::ops::{compute_type, gpu, gpu::Gpu};
use crate::tensor::Tensor;

impl Tensor {
    /// `nn::functional::batch_norm_relu`.
    #[track_caller]
    pub(crate) fn batch_norm_relu(&self, norm: &Norm<'_>, residual: Option<&Tensor>) -> Tensor {
        let Some(gpu) = one_pass(self, residual) else {
            let y = self.batch_norm_of(norm);
            return residual.map_or_else(|| y.relu(), |residual| (&y + residual).relu());
        };
        let sizes = norm.check(self);
        let ([weight, bias], options) = (norm.affine, norm.options);
        let inputs: SmallVec<[&Tensor; 4]> =
            [Some(self), weight, bias, residual].into_iter().flatten().collect();
        let relu = Relu { residual, masked: is_differentiated(&inputs) };
        let Found { y, stats, mask } = cuda::forward(gpu, self, norm, Some(relu));
        let Some(mask) = mask else { return y };
        let y = record("batch_norm_relu", &inputs, y, |saver| {
            let (x, stats) = (saver.save(self), saver.save(&stats));
            let bits = saver.save(&mask.bits);
            let (order, shift) = (mask.order, mask.shift);
            let weight = weight.map(|w| saver.save(w));
            let (with_bias, of_residual) = (bias.is_some(), residual.map(|_| inputs.len() - 1));
            move |ctx| {
                let (x, stats) = (ctx.get(&x), ctx.get(&stats));
                let weight = weight.as_ref().map(|w| ctx.get(w));
                let mask = Mask { order, shift, bits: ctx.get(&bits) };
                let saved = Saved { x, stats, weight, options, sizes };
                let Gradients { dx, dr, dw, db } = if ctx.create_graph() {
                    let dy = masked(gpu, &ctx.grad(0), &saved, &mask);
                    let [dx, dw, db] = composed(&dy, &saved);
                    Gradients { dx: Some(dx), dr: Some(dy), dw, db }
                } else {
                    let (dy, more) = ctx.terms();
                    let residual = of_residual.is_some();
                    let remaining = Remaining { mask: &mask, residual, more: more.as_ref() };
                    cuda::backward(gpu, &dy, &saved, Some(remaining), ctx.needs(0))
                };
                let mut grads: SmallVec<[Option<Tensor>; 3]> = smallvec![dx];
                if let Some(w) = &saved.weight {
                    grads.push(Some(compute_type::narrow(dw, w.dtype())));
                }
                if with_bias {
                    grads.push(Some(db));
                }
                if of_residual.is_some() {
                    grads.push(dr);
                }
                grads
            }
        });
        if residual.is_some() {
            y.take_two_gradients();
        }
        y
    }
}

/// The GPU that does all in one pass.
#[track_caller]
fn one_pass(x: &Tensor, residual: Option<&Tensor>) -> Option<Gpu> {
    let alike = |r: &Tensor| r.shape() == x.shape() && r.dtype() == x.dtype();
    let fits = x.dtype().is_floating_point() && x.numel() > 0 && residual.is_none_or(alike);
    let all: SmallVec<[&Tensor; 2]> = [Some(x), residual].into_iter().flatten().collect();
    let gpu = if fits { gpu::of("batch_norm_relu", &all) } else { None };
    gpu.filter(|gpu| !gpu.is_nowhere())
}

/// `dy` where the result is not 0, as recorded ops, for second derivatives.
fn masked(gpu: Gpu, dy: &Tensor, saved: &Saved, mask: &Mask) -> Tensor {
    let ones = dy.ones_like();
    let remaining = Remaining { mask, residual: true, more: None };
    let kept = cuda::backward(gpu, &ones, saved, Some(remaining), false).dr.expect("asked for");
    kept.ne(0.0).where_(dy, 0.0)
}
