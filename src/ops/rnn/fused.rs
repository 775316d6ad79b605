//! A recurrent layer as one op.
//!
//! Forward keeps the gates of all steps, and for an LSTM all c. Backward gives the gradients of the sums
//! inside the gates, G, step by step; all others are products over all steps at once:
//!
//! ```text
//! dx = G W_ih    dW_ih = G^T x    dW_hh = G^T (h before each step)    db = column sums of G
//! ```
//!
//! where a GRU has for W_hh and its bias a G of its own. Half types are computed in f32, h and c too; [`cuda`] has
//! what GPUs do.

use smallvec::SmallVec;

use super::Cell;
use super::composed;
use super::cuda::{self, Gradients};
use super::direction::{Direction, Recurrent};
use crate::autograd::{
    self, BackwardCtx, Grads, enable_grad, is_grad_enabled, no_grad, record_many,
};
use crate::cpu::recurrent::{self, Kept, Known, Panels, Recurrence, packed_len};
use crate::ops::{
    compute_type::narrow, compute_type::widen, gpu, gpu::Gpu, products::bias_sums::column_sums,
};
use crate::profiler::flops;
use crate::tensor::{Dtype, Tensor, dispatch};

/// [`Direction::run`] for operands that [`Direction::fits`].
#[track_caller]
pub(super) fn run(layer: &Direction, x: &Tensor, first: &[Tensor]) -> (Tensor, Vec<Tensor>) {
    let plan = Plan::new(layer);
    let inputs: SmallVec<[&Tensor; 8]> = [x, layer.weight_ih, layer.recurrent.weight_hh]
        .into_iter()
        .chain(first)
        .chain(layer.bias_ih)
        .chain(layer.recurrent.bias_hh)
        .collect();
    let Forward { out: wide, last, gates, inner } = no_grad(|| plan.forward(&inputs));
    let mut outputs = vec![narrow(wide.clone(), x.dtype())];
    outputs.extend(last.into_iter().map(|h| narrow(h, x.dtype())));
    record_many(plan.name(), &inputs, &outputs, |saver| {
        let inputs: Vec<_> = inputs.iter().map(|t| saver.save(t)).collect();
        let kept: Vec<_> = [gates, inner].into_iter().flatten().map(|t| saver.save(&t)).collect();
        // What is not rounded is what the steps have seen.
        let rounded = wide.dtype() != outputs[0].dtype();
        let out = if rounded { saver.save(&wide) } else { saver.save_output(0) };
        move |ctx| {
            if ctx.create_graph() {
                return plan.composed(ctx, inputs.iter().map(|t| ctx.get(t)).collect());
            }
            // The biases' values do not matter.
            let operands: Vec<Tensor> =
                inputs[..3 + plan.cell.states()].iter().map(|t| ctx.get(t)).collect();
            let kept: Vec<Tensor> = kept.iter().map(|t| ctx.get(t)).collect();
            plan.backward(ctx, &operands, &kept, &ctx.get(&out))
        }
    });
    let out = outputs.remove(0);
    (out, outputs)
}

/// What forward and backward agree on. Their operands are x, W_ih, W_hh, h, for an LSTM c, and the biases
/// that there are.
struct Plan {
    cell: Cell,
    hidden: usize,
    sizes: Vec<usize>,
    backwards: bool,
    bias_ih: bool,
    bias_hh: bool,
}

/// In the type that is computed in.
struct Forward {
    out: Tensor,
    last: Vec<Tensor>,
    /// Of the gated kinds; the others have all in `out`.
    gates: Option<Tensor>,
    inner: Option<Tensor>,
}

impl Plan {
    fn new(layer: &Direction) -> Self {
        Plan {
            cell: layer.cell,
            hidden: layer.recurrent.weight_hh.size(1),
            sizes: layer.sizes.to_vec(),
            backwards: layer.backwards,
            bias_ih: layer.bias_ih.is_some(),
            bias_hh: layer.recurrent.bias_hh.is_some(),
        }
    }

    fn name(&self) -> &'static str {
        match self.cell {
            Cell::Tanh => "rnn_tanh",
            Cell::Relu => "rnn_relu",
            Cell::Gru => "gru",
            Cell::Lstm => "lstm",
        }
    }

    fn recurrence(&self) -> Recurrence<'_> {
        let Plan { cell, hidden, ref sizes, backwards, .. } = *self;
        Recurrence { cell, hidden, sizes, backwards }
    }

    /// b_ih and b_hh among the operands.
    fn biases<'a>(&self, operands: &'a [Tensor]) -> [Option<&'a Tensor>; 2] {
        let mut there = operands[3 + self.cell.states()..].iter();
        [self.bias_ih, self.bias_hh].map(|b| if b { there.next() } else { None })
    }

    /// The biases of the gates, added up, and the one that a GRU multiplies.
    fn bias(&self, operands: &[Tensor], dtype: Dtype) -> Tensor {
        let (n, width) = (self.hidden, self.cell.gates() * self.hidden);
        let [by_input, by_state] = self
            .biases(operands)
            .map(|b| b.map_or_else(|| Tensor::zeros([width], dtype.on_host()), Clone::clone));
        if self.cell != Cell::Gru {
            return by_input + by_state;
        }
        let both = by_input.narrow(0, 0, 2 * n) + by_state.narrow(0, 0, 2 * n);
        Tensor::cat(&[&both, &by_input.narrow(0, 2 * n, n), &by_state.narrow(0, 2 * n, n)], 0)
    }

    /// Operations of the products with the recurrent weights, of all steps, forward or backward.
    fn step_flops(&self, rows: usize) -> u64 {
        2 * (rows * self.cell.gates() * self.hidden * self.hidden) as u64
    }

    fn forward(&self, inputs: &[&Tensor]) -> Forward {
        if let Some(gpu) = gpu::of(self.name(), inputs) {
            return self.forward_on(gpu, inputs);
        }
        let operands: Vec<Tensor> = inputs.iter().map(|t| widen(t)).collect();
        let (x, weight_ih, weight_hh) = (&operands[0], &operands[1], &operands[2]);
        let states = &operands[3..3 + self.cell.states()];
        let (dtype, rows, n) = (x.dtype(), x.size(0), self.hidden);
        let bias = self.bias(&operands, dtype);
        let gates = x.matmul(&weight_ih.t());
        let inner =
            Tensor::empty([if self.cell.gates() > 1 { rows } else { 0 }, n], dtype.on_host());
        let out = Tensor::empty([rows, n], dtype.on_host());
        let recurrence = self.recurrence();
        flops(self.name(), || self.step_flops(rows));
        dispatch!(compute dtype, self.name(), T => {
            let packed = Tensor::empty([packed_len::<T>(self.cell.gates(), n, n)], dtype.on_host());
            // SAFETY: contiguous tensors of this type; those that are written are new.
            let (weights, packed) = unsafe { (weight_hh.as_slice::<T>(), packed.as_mut_slice::<T>()) };
            let weights = Panels::columns(self.cell.gates(), n, n, weights, packed);
            // SAFETY: contiguous tensors of this type, which nobody writes.
            let (bias, first) = unsafe { (bias.as_slice::<T>(), slices::<T>(states)) };
            // SAFETY: contiguous new tensors of this type.
            let kept = unsafe {
                Kept { gates: gates.as_mut_slice(), inner: inner.as_mut_slice(), out: out.as_mut_slice() }
            };
            recurrence.forward(&weights, bias, first, kept);
        });
        let ends: Vec<i64> = recurrence.last_rows().into_iter().map(|row| row as i64).collect();
        let ends = Tensor::from_slice(&ends, [ends.len()]);
        let all = [&out, &inner];
        let last = all[..states.len()].iter().map(|t| t.index_select(0, &ends)).collect();
        let gated = self.cell.gates() > 1;
        Forward { last, gates: gated.then_some(gates), inner: gated.then_some(inner), out }
    }

    fn forward_on(&self, gpu: Gpu, inputs: &[&Tensor]) -> Forward {
        let operands: Vec<Tensor> = inputs.iter().map(|t| t.detach()).collect();
        let gates = operands[0].matmul(&operands[1].t());
        let first = &operands[3..3 + self.cell.states()];
        let biases = self.biases(&operands);
        let recurrence = self.recurrence();
        let kept = cuda::forward(gpu, &recurrence, gates, &operands[2], biases, first);
        let gated = self.cell.gates() > 1;
        Forward {
            out: kept.out,
            last: kept.last,
            gates: gated.then_some(kept.gates),
            inner: kept.inner,
        }
    }

    fn backward(
        &self,
        ctx: &BackwardCtx,
        operands: &[Tensor],
        kept: &[Tensor],
        out: &Tensor,
    ) -> Grads {
        if let Some(gpu) = gpu::of(self.name(), &[out]) {
            let (gradient, states) = (ctx.grad(0), self.cell.states());
            let known = cuda::Known {
                weight_hh: &operands[2],
                first: &operands[3..],
                gates: kept.first(),
                inner: kept.get(1),
                out,
                gradient: &gradient,
            };
            let last: Vec<Tensor> = (1..=states).map(|i| ctx.grad(i)).collect();
            let found = cuda::backward(gpu, &self.recurrence(), known, &last);
            return self.products(ctx, operands, found);
        }
        let wide: Vec<Tensor> = operands.iter().map(widen).collect();
        let (x, weight_hh, first) = (&wide[0], &wide[2], &wide[3..]);
        let (compute, rows, n) = (x.dtype(), x.size(0), self.hidden);
        let width = self.cell.gates() * n;
        let dout = widen(&ctx.grad(0));
        let dstates: Vec<Tensor> =
            (1..=first.len()).map(|i| widen(&ctx.grad(i)).clone_contiguous()).collect();
        let by_input = Tensor::empty([rows, width], compute.on_host());
        let apart = self.cell == Cell::Gru;
        let by_state = Tensor::empty([if apart { rows } else { 0 }, width], compute.on_host());
        let before = Tensor::empty([rows, n], compute.on_host());
        let (recurrence, gated) = (self.recurrence(), !kept.is_empty());
        flops(self.name(), || self.step_flops(rows));
        dispatch!(compute compute, self.name(), T => {
            let packed = Tensor::empty([packed_len::<T>(1, width, n)], compute.on_host());
            // SAFETY: contiguous tensors of this type; those that are written are new.
            let (weights, packed) = unsafe { (weight_hh.as_slice::<T>(), packed.as_mut_slice::<T>()) };
            let weights = Panels::rows(width, n, weights, packed);
            // SAFETY: contiguous tensors of this type, which nobody writes.
            let known = unsafe {
                Known {
                    gates: if gated { kept[0].as_slice() } else { &[] },
                    inner: if gated { kept[1].as_slice() } else { &[] },
                    out: out.as_slice(),
                    first: slices::<T>(first),
                    dout: dout.as_slice(),
                }
            };
            recurrence.states_before(known.first[0], known.out, {
                // SAFETY: a contiguous new tensor of this type.
                unsafe { before.as_mut_slice::<T>() }
            });
            // SAFETY: contiguous new tensors of this type.
            let to = unsafe {
                recurrent::Gradients {
                    by_input: by_input.as_mut_slice(),
                    by_state: by_state.as_mut_slice(),
                    states: [
                        dstates[0].as_mut_slice(),
                        dstates.get(1).map_or(&mut [], |c| c.as_mut_slice()),
                    ],
                }
            };
            recurrence.backward(&weights, known, to);
        });
        let by_state = apart.then_some(by_state);
        self.products(ctx, &wide, Gradients { by_input, by_state, before, states: dstates })
    }

    /// The gradients of the operands, of which each is a product over all steps.
    fn products(&self, ctx: &BackwardCtx, operands: &[Tensor], found: Gradients) -> Grads {
        let dtype = ctx.grad(0).dtype();
        let Gradients { by_input, by_state, before, states } = found;
        let of_state = by_state.as_ref().unwrap_or(&by_input);
        let mut grads = Grads::new();
        let mut give = |i: usize, gradient: &dyn Fn() -> Tensor| {
            grads.push(ctx.needs(i).then(|| narrow(gradient(), dtype)));
        };
        give(0, &|| by_input.matmul(&operands[1]));
        give(1, &|| by_input.t().matmul(&operands[0]));
        give(2, &|| of_state.t().matmul(&before));
        for (i, d) in states.iter().enumerate() {
            give(3 + i, &|| d.clone());
        }
        let sums = [(self.bias_ih, &by_input), (self.bias_hh, of_state)];
        for (i, (_, g)) in sums.into_iter().filter(|(there, _)| *there).enumerate() {
            give(3 + states.len() + i, &|| column_sums(g));
        }
        grads
    }

    /// The gradients from recorded ops: those of the layer composed of such.
    fn composed(&self, ctx: &BackwardCtx, inputs: Vec<Tensor>) -> Grads {
        let create_graph = is_grad_enabled();
        // Each input apart from the others' histories.
        let inputs: Vec<Tensor> = enable_grad(|| inputs.iter().map(|t| t.view_as(t)).collect());
        let states = &inputs[3..3 + self.cell.states()];
        let [bias_ih, bias_hh] = self.biases(&inputs);
        let recurrent = Recurrent { weight_hh: &inputs[2], bias_hh, weight_hr: None };
        let layer = Direction {
            cell: self.cell,
            weight_ih: &inputs[1],
            bias_ih,
            recurrent,
            sizes: &self.sizes,
            backwards: self.backwards,
        };
        let (out, last) = enable_grad(|| composed::run(&layer, &inputs[0], states));
        let outputs: Vec<(Tensor, Tensor)> = [out]
            .into_iter()
            .chain(last)
            .enumerate()
            .filter_map(|(i, t)| ctx.grad_opt(i).map(|g| (t, g)))
            .collect();
        let (roots, by): (Vec<&Tensor>, Vec<Option<&Tensor>>) =
            outputs.iter().map(|(t, g)| (t, Some(g))).unzip();
        let wanted: Vec<usize> = (0..inputs.len()).filter(|&i| ctx.needs(i)).collect();
        let of: Vec<&Tensor> = wanted.iter().map(|&i| &inputs[i]).collect();
        let found = autograd::grad(
            &roots,
            &of,
            &by,
            if create_graph { autograd::GraphMode::Create } else { autograd::GraphMode::Free },
        );
        let mut grads = Grads::from_elem(None, inputs.len());
        for (i, g) in wanted.into_iter().zip(found) {
            grads[i] = g;
        }
        grads
    }
}

/// The states as h and c; nothing for a c that is not there.
///
/// # Safety
/// They are contiguous tensors of this type that nobody writes.
unsafe fn slices<T: crate::tensor::Element>(states: &[Tensor]) -> [&[T]; 2] {
    // SAFETY: this function's contract: contiguous tensors of this type that nobody writes.
    unsafe { [states[0].as_slice(), states.get(1).map_or(&[], |c| c.as_slice())] }
}
