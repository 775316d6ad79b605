//! Recurrent layers from recorded ops, a step at a time. The product of all elements with the input weights
//! is one.

use super::Cell;
use super::direction::{Direction, Recurrent};
use crate::tensor::Tensor;

/// One step: the next state. `gates` is the input's part, `[batch, gates * hidden]`; `state` is h, for an
/// LSTM h and c.
#[track_caller]
pub(crate) fn step(
    cell: Cell,
    weights: &Recurrent,
    gates: &Tensor,
    state: &[Tensor],
) -> Vec<Tensor> {
    let h = &state[0];
    let from_h = h.linear(weights.weight_hh, weights.bias_hh);
    match cell {
        Cell::Tanh => vec![(gates + &from_h).tanh()],
        Cell::Relu => vec![(gates + &from_h).relu()],
        Cell::Gru => {
            let (x, r) = (gates.chunk(3, 1), from_h.chunk(3, 1));
            let reset = (&x[0] + &r[0]).sigmoid();
            let update = (&x[1] + &r[1]).sigmoid();
            let new = (&x[2] + &reset * &r[2]).tanh();
            // (1 - z) n + z h
            vec![&new + &update * (h - &new)]
        }
        Cell::Lstm => {
            let gates = (gates + &from_h).chunk(4, 1);
            let (input, forget) = (gates[0].sigmoid(), gates[1].sigmoid());
            let (new, output) = (gates[2].tanh(), gates[3].sigmoid());
            let c = &forget * &state[1] + &input * &new;
            let h = &output * c.tanh();
            vec![weights.weight_hr.map_or(h.clone(), |w| h.linear(w, None)), c]
        }
    }
}

/// [`Direction::run`].
#[track_caller]
pub(super) fn run(layer: &Direction, x: &Tensor, first: &[Tensor]) -> (Tensor, Vec<Tensor>) {
    let Direction { cell, sizes, backwards, .. } = *layer;
    let gates = x.linear(layer.weight_ih, layer.bias_ih).split_sizes(sizes, 0);
    let narrow = |state: &[Tensor], from: usize, to: usize| -> Vec<Tensor> {
        state.iter().map(|h| h.narrow(0, from, to - from)).collect()
    };
    let join = |a: Vec<Tensor>, b: Vec<Tensor>| -> Vec<Tensor> {
        a.into_iter().zip(b).map(|(a, b)| Tensor::cat(&[a, b], 0)).collect()
    };
    let mut outputs = Vec::with_capacity(gates.len());
    // Sequences that have ended, the shortest first.
    let mut ended: Vec<Vec<Tensor>> = Vec::new();
    let rows = |state: &[Tensor]| state[0].size(0);
    let mut state = match backwards {
        true => narrow(first, 0, sizes.last().copied().unwrap_or(0)),
        false => first.to_vec(),
    };
    for t in 0..gates.len() {
        let gates = &gates[if backwards { gates.len() - 1 - t } else { t }];
        let n = gates.size(0);
        if n < rows(&state) {
            ended.push(narrow(&state, n, rows(&state)));
            state = narrow(&state, 0, n);
        } else if n > rows(&state) {
            let more = narrow(first, rows(&state), n);
            state = join(state, more);
        }
        state = step(cell, &layer.recurrent, gates, &state);
        outputs.push(state[0].clone());
    }
    if backwards {
        outputs.reverse();
    }
    let last = ended.into_iter().rev().fold(state, join);
    if outputs.is_empty() {
        return (Tensor::zeros([0, first[0].size(1)], (x.dtype(), x.device())), last);
    }
    (Tensor::cat(&outputs, 0), last)
}
