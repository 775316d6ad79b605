//! Recurrent networks (`torch/nn/modules/rnn.py`): cells, and layers of them over sequences, padded
//! or packed. All are compositions of recorded ops; the product of a whole sequence with the input
//! weights is one.

mod cell;
mod layers;
mod packed;

pub use cell::{GRUCell, LSTMCell, RNNCell};
pub use layers::{GRU, LSTM, RNN, RnnOptions};
pub use packed::{
    PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence,
    unpack_sequence, unpad_sequence,
};

use crate::Tensor;

/// What a simple recurrent layer does to its sum (`nonlinearity`).
///
/// ```
/// use torchrs::{Tensor, nn::{Module, RNN, RnnNonlinearity, init}};
/// let rnn = RNN::with_nonlinearity(1, 1, RnnNonlinearity::Relu, Default::default());
/// rnn.parameters().iter().for_each(|p| init::ones_(p));
/// assert_eq!(rnn.forward(&Tensor::from([[5f32]]), None).0.item(), 7.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RnnNonlinearity {
    /// Hyperbolic tangent.
    #[default]
    Tanh,
    /// max(x, 0).
    Relu,
}

/// The recurrence of a kind of cell. `gates` is the input's part, `[batch, GATES * hidden]`; `state` is
/// h, for an LSTM h and c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Simple(RnnNonlinearity),
    Lstm,
    Gru,
}

/// Weights of one direction of one layer that the recurrence reads.
struct Recurrent<'a> {
    weight_hh: &'a Tensor,
    bias_hh: Option<&'a Tensor>,
    /// Projects h (`proj_size`).
    weight_hr: Option<&'a Tensor>,
}

impl Kind {
    /// Rows of the weights, in units of the hidden size.
    fn gates(self) -> usize {
        match self {
            Kind::Simple(_) => 1,
            Kind::Gru => 3,
            Kind::Lstm => 4,
        }
    }

    /// One step: the next state.
    #[track_caller]
    fn step(self, weights: &Recurrent, gates: &Tensor, state: &[Tensor]) -> Vec<Tensor> {
        let h = &state[0];
        let from_h = h.linear(weights.weight_hh, weights.bias_hh);
        match self {
            Kind::Simple(RnnNonlinearity::Tanh) => vec![(gates + &from_h).tanh()],
            Kind::Simple(RnnNonlinearity::Relu) => vec![(gates + &from_h).relu()],
            Kind::Gru => {
                let (x, r) = (gates.chunk(3, 1), from_h.chunk(3, 1));
                let reset = (&x[0] + &r[0]).sigmoid();
                let update = (&x[1] + &r[1]).sigmoid();
                let new = (&x[2] + &reset * &r[2]).tanh();
                // (1 - z) n + z h
                vec![&new + &update * (h - &new)]
            }
            Kind::Lstm => {
                let gates = (gates + &from_h).chunk(4, 1);
                let (input, forget) = (gates[0].sigmoid(), gates[1].sigmoid());
                let (new, output) = (gates[2].tanh(), gates[3].sigmoid());
                let c = &forget * &state[1] + &input * &new;
                let h = &output * c.tanh();
                vec![weights.weight_hr.map_or(h.clone(), |w| h.linear(w, None)), c]
            }
        }
    }
}
