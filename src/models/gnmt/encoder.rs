//! The encoder of GNMT.

use super::{GNMTOptions, embedder, lstm};
use crate::error::Result;
use crate::nn::{
    Embedding, Forward, LSTM, Module, PackPaddedSequenceOptions, PadPackedSequenceOptions,
    Training, pack_padded_sequence, pad_packed_sequence,
};
use crate::onnx::{Graph, Value};
use crate::tensor::Tensor;

/// LSTM layers, the first of which reads in both directions; from the third on with shortcuts
/// (`ResidualRecurrentEncoder`).
#[derive(Module)]
pub struct ResidualRecurrentEncoder {
    /// The layers.
    pub rnn_layers: Vec<LSTM>,
    /// The table of words.
    pub embedder: Embedding,
    dropout: f64,
    batch_first: bool,
    training: Training,
}

impl ResidualRecurrentEncoder {
    #[track_caller]
    pub(super) fn new(options: &GNMTOptions) -> Self {
        let &GNMTOptions { hidden_size: hidden, batch_first, num_layers, .. } = options;
        let layer = |i: usize| match i {
            0 => lstm(hidden, hidden, true, batch_first),
            1 => lstm(2 * hidden, hidden, false, batch_first),
            _ => lstm(hidden, hidden, false, batch_first),
        };
        ResidualRecurrentEncoder {
            rnn_layers: (0..num_layers).map(layer).collect(),
            embedder: embedder(options),
            dropout: options.dropout,
            batch_first,
            training: Training::default(),
        }
    }

    /// The encoded words `[time, batch, hidden]`, where time is the longest length, from sentences
    /// `[time, batch]` and their lengths (batch before time in both with `batch_first`).
    ///
    /// # Panics
    /// Throws [`Error::Argument`](crate::Error::Argument) for lengths that are 0, too long, or not one
    /// per sentence.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(&self, inputs: &Tensor, lengths: &[usize]) -> Tensor {
        let drop = |x: &Tensor| x.dropout(self.dropout, self.training.get());
        let x = drop(&self.embedder.forward(inputs));
        let batch_first = self.batch_first;
        let unsorted = PackPaddedSequenceOptions { batch_first, enforce_sorted: false };
        let packed = pack_padded_sequence(&x, lengths, unsorted);
        let (packed, _) = self.rnn_layers[0].forward_packed(&packed, None);
        let (x, _) = pad_packed_sequence(
            &packed,
            PadPackedSequenceOptions { batch_first, ..Default::default() },
        );
        let (mut x, _) = self.rnn_layers[1].forward(&drop(&x), None);
        for layer in &self.rnn_layers[2..] {
            x = layer.forward(&drop(&x), None).0 + &x;
        }
        x
    }

    /// [`forward`](Self::forward) as part of a graph of [ONNX](crate::onnx); lengths are `[batch]` of i64. All of the time
    /// stays, also that behind the longest length.
    ///
    /// # Errors
    /// As the nodes, for shapes that do not fit.
    pub fn onnx(&self, graph: &mut Graph, inputs: &Value, lengths: &Value) -> Result<Value> {
        let x = self.embedder.onnx(graph, inputs)?;
        let (x, _) = self.rnn_layers[0].onnx(graph, &x, Some(lengths), None)?;
        let (mut x, _) = self.rnn_layers[1].onnx(graph, &x, None, None)?;
        for layer in &self.rnn_layers[2..] {
            let (y, _) = layer.onnx(graph, &x, None, None)?;
            x = graph.binary("Add", &y, &x)?;
        }
        Ok(x)
    }
}
