//! What autograd keeps of a row's call, and the gradients and tangents that it makes of it: each the loop
//! of the row's own derivative, or recorded ops where the derivative is to be differentiated again.

use smallvec::SmallVec;

use super::apply::{alike, run, run_alike, same_shape};
use super::operands::{allocate, compute_of, tensor};
use super::row::{Gradient, Row, Source};
use super::symbolic::{Arena, Symbol};
use crate::autograd::{
    BackwardCtx, BackwardFn, Grads, SavedTensor, Saver, backward_fn, will_record,
};
use crate::tensor::{Dtype, Operand, Scalar, Tensor};

/// What backward needs of a call but for its values.
struct Call {
    row: &'static Row,
    params: SmallVec<[Scalar; 1]>,
    /// Which inputs are tensors, and so among the node's inputs, a bit each.
    tensors: u32,
    /// Which names of the row's `grad` list have a value, a bit each: those that a wanted gradient uses, but
    /// for the gradient itself.
    values: u32,
}

enum Value {
    Saved(SavedTensor),
    Number(Scalar),
}

/// True when a gradient that is wanted uses input `k`'s value.
pub(super) fn uses_input(row: &Row, inputs: &[Operand<'_>], k: usize) -> bool {
    let uses = used(row, inputs);
    (0..row.saved.len()).any(|i| uses >> i & 1 != 0 && row.saved[i] == Source::Input(k))
}

/// The names that wanted gradients use, a bit each.
fn used(row: &Row, inputs: &[Operand<'_>]) -> u32 {
    let mut uses = 0;
    for g in row.gradients {
        if tensor(&inputs[g.input]).is_some_and(|t| t.requires_grad()) {
            uses |= g.uses;
        }
    }
    uses
}

/// The backward of a call, in as little memory as it needs: it is made for each.
pub(super) fn backward(
    row: &'static Row,
    inputs: &[Operand<'_>],
    params: &[Scalar],
    saver: &Saver<'_>,
) -> BackwardFn {
    let mut values = used(row, inputs);
    for (i, source) in row.saved.iter().enumerate() {
        if *source == Source::GradOutput {
            values &= !(1 << i);
        }
    }
    let mut tensors = 0;
    for (k, input) in inputs.iter().enumerate() {
        tensors |= (tensor(input).is_some() as u32) << k;
    }
    let call = Call { row, params: SmallVec::from_slice(params), tensors, values };
    let mut kept = (0..row.saved.len()).filter(|i| values >> i & 1 != 0).map(|i| {
        let input = match row.saved[i] {
            Source::GradOutput => unreachable!("is not kept"),
            Source::Output => return Value::Saved(saver.save_output(0)),
            Source::Input(k) => inputs[k],
        };
        match input {
            Operand::Scalar(number) => Value::Number(number),
            Operand::Tensor(t) => Value::Saved(saver.save(t)),
        }
    });
    let mut next = || kept.next().expect("one for each bit");
    // Written where they stay.
    match values.count_ones() {
        0 => call.with([]),
        1 => call.with([next()]),
        2 => call.with([next(), next()]),
        _ => call.with(kept.collect::<Box<[Value]>>()),
    }
}

impl Call {
    /// The backward that keeps these values.
    #[inline(always)]
    fn with(self, values: impl AsRef<[Value]> + Send + Sync + 'static) -> BackwardFn {
        backward_fn(|| move |ctx: &BackwardCtx<'_>| self.backward(values.as_ref(), ctx))
    }

    /// The place of input `k` among the node's inputs, if it is a tensor.
    fn edge(&self, k: usize) -> Option<usize> {
        let before = self.tensors & ((1 << k) - 1);
        (self.tensors >> k & 1 != 0).then(|| before.count_ones() as usize)
    }

    fn backward(&self, kept: &[Value], ctx: &BackwardCtx<'_>) -> Grads {
        let grad = ctx.grad(0);
        let mut saved: SmallVec<[Option<Tensor>; 3]> = SmallVec::new();
        for value in kept {
            saved.push(match value {
                Value::Saved(saved) => Some(ctx.get(saved)),
                Value::Number(_) => None,
            });
        }
        let mut known = kept.iter().zip(&saved[..]);
        let mut values: SmallVec<[Option<Operand<'_>>; 3]> = SmallVec::new();
        for i in 0..self.row.saved.len() {
            let value = if self.values >> i & 1 != 0 { known.next() } else { None };
            values.push(match value {
                Some((_, Some(t))) => Some(Operand::Tensor(t)),
                Some((Value::Number(s), None)) => Some(Operand::Scalar(*s)),
                _ => None,
            });
        }
        let mut grads: Grads = SmallVec::new();
        grads.resize_with(self.tensors.count_ones() as usize, || None);
        for gradient in self.row.gradients {
            let Some(edge) = self.edge(gradient.input) else { continue };
            if !ctx.needs(edge) {
                continue;
            }
            grads[edge] = Some(if gradient.passes_through {
                grad.clone()
            } else if ctx.create_graph() || gradient.stepwise && grad.dtype() == Dtype::F16 {
                symbolic(gradient, &grad, &values, &self.params)
            } else {
                // What broadcasting makes a sum of is not rounded to a half type before it is summed.
                let stretched = ctx.node.0.edges[edge]
                    .as_ref()
                    .is_some_and(|e| e.node.0.outputs[e.output].0[..] != *grad.shape());
                let dtype = if stretched { grad.dtype().compute() } else { grad.dtype() };
                fused(self.row, gradient, &grad, &values, &self.params, dtype)
            });
        }
        grads
    }
}

/// The result's tangent, the sum of each derivative times its input's tangent. `tangents` are those of the
/// inputs that are tensors.
pub(super) fn tangent(
    row: &'static Row,
    inputs: &[Operand<'_>],
    params: &[Scalar],
    tangents: &[Option<Tensor>],
    output: &Tensor,
) -> Option<Tensor> {
    let value = |source: &Source| match *source {
        Source::GradOutput => None,
        Source::Output => Some(Operand::Tensor(output)),
        Source::Input(k) => Some(inputs[k]),
    };
    let values: SmallVec<[Option<Operand<'_>>; 4]> = row.saved.iter().map(value).collect();
    let known = inputs.iter().filter_map(tensor).chain([output]);
    let all: SmallVec<[&Tensor; 8]> = known.chain(tangents.iter().flatten()).collect();
    let recorded = will_record(&all);
    let mut sum: Option<Tensor> = None;
    for gradient in row.gradients {
        let place = inputs[..gradient.input].iter().filter_map(tensor).count();
        // A number has no tangent, and no place.
        let known = tensor(&inputs[gradient.input]).and_then(|_| tangents[place].as_ref());
        let Some(t) = known else { continue };
        let t = t.to_dtype(output.dtype()).expand(output.shape());
        let part = if gradient.passes_through {
            t
        } else if recorded {
            symbolic(gradient, &t, &values, params)
        } else {
            fused(row, gradient, &t, &values, params, output.dtype())
        };
        sum = Some(match sum {
            Some(sum) => sum + part,
            None => part,
        });
    }
    sum
}

/// A gradient as one loop, from the gradient of the result to that of an input in the result's shape; the
/// engine reduces it to the input's own, and converts it to the input's type. `values` are those of the
/// names in the row's `grad` list; `None` is the gradient, or one that the formula does not use.
fn fused(
    row: &'static Row,
    gradient: &'static Gradient,
    grad: &Tensor,
    values: &[Option<Operand<'_>>],
    params: &[Scalar],
    dtype: Dtype,
) -> Tensor {
    let mut inputs: SmallVec<[Operand<'_>; 4]> = SmallVec::new();
    for value in values {
        inputs.push(value.unwrap_or(Operand::Tensor(grad)));
    }
    let output = allocate(grad.shape(), dtype, &inputs);
    if let Some(like) = alike(&inputs)
        && same_shape(like.shape(), grad.shape())
        && like.dtype() == dtype
        && dtype.is_floating_point()
    {
        // SAFETY: the output is new.
        unsafe { run_alike(&gradient.kernel, &output, &inputs, params) };
        return output;
    }
    let compute = compute_of(grad.dtype());
    // SAFETY: the output is new, and the op's inputs broadcast to its result's shape.
    unsafe { run(&gradient.kernel, row.kind, compute, &[&output], &inputs, params) };
    output
}

/// The same of recorded tensor ops.
fn symbolic(
    gradient: &Gradient,
    grad: &Tensor,
    values: &[Option<Operand<'_>>],
    params: &[Scalar],
) -> Tensor {
    let arena = Arena::new(grad);
    let value = |v: &Option<Operand<'_>>| match v {
        Some(Operand::Tensor(t)) => arena.symbol((*t).clone()),
        Some(Operand::Scalar(s)) => Symbol::Number(s.to_f64()),
        None => arena.symbol(grad.clone()),
    };
    let inputs: SmallVec<[Symbol<'_>; 4]> = values.iter().map(value).collect();
    let params: SmallVec<[Symbol<'_>; 4]> =
        params.iter().map(|p| Symbol::Number(p.to_f64())).collect();
    (gradient.symbolic)(&inputs, &params).into_tensor(grad.shape(), (grad.dtype(), grad.device()))
}
