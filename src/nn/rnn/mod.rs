//! Recurrent networks (`torch/nn/modules/rnn.py`): cells, and layers of them over sequences, padded
//! or packed. What a direction of a layer computes is in `ops::rnn`.

mod cell;
mod layers;
mod packed;

pub use cell::{GRUCell, LSTMCell, RNNCell};
pub use layers::{GRU, LSTM, RNN, RNNOptions};
pub use packed::{
    PackPaddedSequenceOptions, PackedSequence, PadPackedSequenceOptions, PadSequenceOptions,
    pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence, unpack_sequence,
    unpad_sequence,
};

use crate::ops::rnn::Cell;

/// What a simple recurrent layer does to its sum (`nonlinearity`).
///
/// ```
/// use torchrs::{Tensor, nn::{Module, RNN, RNNNonlinearity, init}};
/// let rnn = RNN::with_nonlinearity(1, 1, RNNNonlinearity::Relu, Default::default());
/// rnn.parameters().iter().for_each(|p| init::ones_(p));
/// assert_eq!(rnn.forward(&Tensor::from([[5f32]]), None).0.item(), 7.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RNNNonlinearity {
    /// Hyperbolic tangent.
    #[default]
    Tanh,
    /// max(x, 0).
    Relu,
}

impl RNNNonlinearity {
    fn cell(self) -> Cell {
        match self {
            RNNNonlinearity::Tanh => Cell::Tanh,
            RNNNonlinearity::Relu => Cell::Relu,
        }
    }
}
