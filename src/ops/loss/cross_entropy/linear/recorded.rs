//! The loss in chunks, and its backward.

use smallvec::{SmallVec, smallvec};

use super::super::batch::{check_is_classes, check_targets, check_weight, divisor};
use super::super::{Reduction, composed_backward, cuda};
use super::chunks::{Call, Grads as Made, How, Losses, Total, Upstream};
use super::{LinearCrossEntropyOptions, OP};
use crate::autograd::{BackwardCtx, Grads, is_grad_enabled, no_grad, record};
use crate::error::{Error, throw};
use crate::ops::{gpu, gradients};
use crate::profiler;
use crate::tensor::{Dtype, Tensor};

/// A layer's parameters, which get gradients, and what is computed with, of the input's type.
pub(super) struct Layer<'a> {
    pub(super) weight: &'a Tensor,
    pub(super) bias: Option<&'a Tensor>,
    pub(super) used: (Tensor, Option<Tensor>),
}

/// The loss as `result`, of so many rows at a time.
#[track_caller]
pub(super) fn in_chunks(
    input: &Tensor,
    layer: Layer<'_>,
    target: &Tensor,
    options: &LinearCrossEntropyOptions,
    rows: usize,
    result: Dtype,
) -> Tensor {
    let _span = profiler::op(OP);
    let Layer { weight, bias, used: (w, b) } = &layer;
    let how = checked(input, &layer, target, options, rows);
    let x = rows_of(input);
    let (w, b) = (w.untracked(), b.as_ref().map(|b| b.untracked().contiguous()));
    let wanted = [Some(input), Some(*weight), *bias].map(|t| t.is_some_and(Tensor::requires_grad));
    let call = Call { x: &x, w: &w, b: b.as_ref(), how: &how, wanted };
    let is_one = options.reduction != Reduction::None;
    let is_mean = options.reduction == Reduction::Mean;
    let first = no_grad(|| is_mean.then(|| call.total_before()).flatten());
    let upstream = match is_one && is_grad_enabled() && wanted.contains(&true) {
        true => Upstream::One(first.as_ref()),
        false => Upstream::None,
    };
    let (losses, grads) = no_grad(|| call.visit(upstream));
    let (loss, total) = no_grad(|| reduced(&call, losses, options.reduction, target, result));
    let inputs: SmallVec<[&Tensor; 3]> =
        [Some(input), Some(*weight), *bias].into_iter().flatten().collect();
    // The gradients are the closure's alone: no hooks of saved tensors keep them.
    record(OP, &inputs, loss, |saver| {
        let saved = [Some(input), Some(*weight), *bias].map(|t| t.map(|t| saver.save(t)));
        let shape = input.layout().shape.clone();
        let types = [Some(input), Some(*weight), *bias].map(|t| t.map(Tensor::dtype));
        let left = if first.is_some() { None } else { total.clone() };
        move |ctx| {
            let g = ctx.grad(0);
            if is_one && !ctx.create_graph() {
                return finished(scaled(ctx, &grads, &g, left.as_ref()), types, &shape);
            }
            let operands = saved.each_ref().map(|t| t.as_ref().map(|t| ctx.get(t)));
            if ctx.create_graph() {
                let g = match &total {
                    Some(Total::Number(total)) if *total != 0.0 => g / *total,
                    Some(Total::Tensor(total)) => &g / divisor(total).to_dtype(g.dtype()),
                    _ => g,
                };
                return composed(ctx, &how, &operands, &g, result);
            }
            finished(no_grad(|| again(ctx, &how, wanted, &operands, &g)), types, &shape)
        }
    })
}

/// A list of samples as a dense matrix, without a history.
fn rows_of(input: &Tensor) -> Tensor {
    let features = input.shape()[input.dim() - 1];
    let rows = input.shape()[..input.dim() - 1].iter().product();
    no_grad(|| input.untracked().contiguous().reshape_to(&[rows, features]))
}

/// All but the operands, after a look at all.
#[track_caller]
fn checked(
    input: &Tensor,
    layer: &Layer<'_>,
    target: &Tensor,
    options: &LinearCrossEntropyOptions,
    rows: usize,
) -> How {
    let (w, b) = &layer.used;
    let all = [Some(input), Some(w), b.as_ref(), Some(target), options.weight.as_ref()];
    let all: SmallVec<[&Tensor; 5]> = all.into_iter().flatten().collect();
    let gpu = gpu::of(OP, &all);
    let other = [Some(w), b.as_ref()].into_iter().flatten().find(|t| t.dtype() != input.dtype());
    if let Some(other) = other {
        let (layer, input) = (other.dtype(), input.dtype());
        let message =
            format!("the layer holds {layer} and the input {input}; convert with `.to_dtype`");
        throw(Error::dtype(OP, message))
    }
    let samples = &input.shape()[..input.dim() - 1];
    if target.shape() != samples {
        let (x, w, target) = (input.shape(), w.shape(), target.shape());
        throw(Error::shape(
            OP,
            format!(
                "input {x:?}, linear_weight {w:?} and target {target:?} do not fit: the target must be {samples:?}"
            ),
        ))
    }
    check_is_classes(OP, target);
    let classes = w.shape()[0];
    let target = no_grad(|| target.untracked().to_dtype(Dtype::I64).contiguous().reshape([-1]));
    let ignore_index = options.ignore_index.unwrap_or(-100);
    // On a GPU the kernels look.
    if gpu.is_none() {
        check_targets(OP, &target, classes, ignore_index);
    }
    let weight = options.weight.as_ref();
    let weight = weight.map(|weight| check_weight(OP, weight, classes, input.dtype()));
    How { target, weight, ignore_index, smoothing: options.label_smoothing, rows }
}

/// The loss as `result`, and what its sum was divided by.
#[track_caller]
fn reduced(
    call: &Call,
    Losses { losses, weights }: Losses,
    reduction: Reduction,
    target: &Tensor,
    result: Dtype,
) -> (Tensor, Option<Total>) {
    match (reduction, weights) {
        (Reduction::None, _) => (losses.reshape_to(target.shape()).to_dtype(result), None),
        (Reduction::Sum, _) => (losses.sum().to_dtype(result), None),
        (Reduction::Mean, Some(weights)) => {
            let gpu = gpu::of(OP, &[&losses]).expect("only a GPU has given weights");
            let [mean, total] = cuda::average(gpu, &losses, &weights, result);
            (mean, Some(Total::Tensor(total)))
        }
        (Reduction::Mean, None) => {
            let total = call.total_weight();
            ((losses.sum() / total).to_dtype(result), Some(Total::Number(total)))
        }
    }
}

/// What forward has made, times the loss's gradient over what is left of the mean's divisor. Where the graph is not kept
/// this is its only use, and nothing is copied.
#[track_caller]
fn scaled(ctx: &BackwardCtx<'_>, grads: &Made, g: &Tensor, left: Option<&Total>) -> Made {
    no_grad(|| {
        let own = |grad: &Tensor| match ctx.keeps_graph() {
            true => grad.clone_contiguous(),
            false => grad.clone(),
        };
        let made = [0, 1, 2].map(|i| grads[i].as_ref().filter(|_| ctx.needs(i)).map(own));
        let list: Vec<Tensor> = made.iter().flatten().cloned().collect();
        match gpu::of(OP, &[g]) {
            Some(gpu) => {
                let over = match left {
                    Some(Total::Tensor(total)) => Some(total),
                    _ => None,
                };
                gradients::scale_by(gpu, &list, g, over);
            }
            None => {
                let factor = match left {
                    Some(Total::Number(total)) if *total == 0.0 => 0.0,
                    Some(Total::Number(total)) => g.item() / total,
                    _ => g.item(),
                };
                if factor != 1.0 {
                    list.iter().for_each(|grad| _ = grad.mul_(factor));
                }
            }
        }
        made
    })
}

/// The chunks once more, now that the gradients of all rows' losses are known.
#[track_caller]
fn again(
    ctx: &BackwardCtx<'_>,
    how: &How,
    wanted: [bool; 3],
    operands: &[Option<Tensor>; 3],
    g: &Tensor,
) -> Made {
    let [Some(x), Some(w), b] = operands else { unreachable!("only a bias may lack") };
    let own = x.dtype();
    let (x, w) = (rows_of(x), w.untracked().to_dtype(own));
    let b = b.as_ref().map(|b| b.untracked().to_dtype(own).contiguous());
    let wanted = [0, 1, 2].map(|i| wanted[i] && ctx.needs(i));
    let g = g.to_dtype(own.compute()).reshape([-1]).contiguous();
    Call { x: &x, w: &w, b: b.as_ref(), how, wanted }.visit(Upstream::Rows(&g)).1
}

/// The gradients in terms of recorded ops, of all scores.
#[track_caller]
fn composed(
    ctx: &BackwardCtx<'_>,
    how: &How,
    operands: &[Option<Tensor>; 3],
    g: &Tensor,
    result: Dtype,
) -> Grads {
    let [Some(x), Some(w), b] = operands else { unreachable!("only a bias may lack") };
    let (own, rows) = (x.dtype(), how.target.numel());
    let (used, added) = (w.to_dtype(own), b.as_ref().map(|b| b.to_dtype(own)));
    let flat = x.reshape_to(&[rows, x.shape()[x.dim() - 1]]);
    let g = if g.dim() == 0 { g.clone() } else { g.reshape_to(&[rows]) };
    let batch = how.batch(flat.linear(&used, added.as_ref()), &how.target);
    let d = batch.in_type(result, |batch| composed_backward(batch, &g, how.smoothing));
    let dx = ctx.needs(0).then(|| d.mm(&used).reshape_to(x.shape()));
    let dw = ctx.needs(1).then(|| d.t().mm(&flat).to_dtype(w.dtype()));
    let mut all: Grads = smallvec![dx, dw];
    if let Some(b) = b {
        all.push(ctx.needs(2).then(|| d.sum_dim(&[0], false).to_dtype(b.dtype())));
    }
    all
}

/// The gradients in the types of what they are of, the input's in its shape; none of a bias that there is not.
fn finished(made: Made, types: [Option<Dtype>; 3], shape: &[usize]) -> Grads {
    let [dx, dw, db] = made;
    let made = [dx.map(|dx| dx.reshape_to(shape)), dw, db];
    let pairs = made.into_iter().zip(types);
    let types = pairs.filter_map(|(grad, dtype)| dtype.map(|dtype| (grad, dtype)));
    types.map(|(grad, dtype)| grad.map(|grad| no_grad(|| grad.to_dtype(dtype)))).collect()
}
