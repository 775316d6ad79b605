//! The decoder of GNMT.

use super::{
    BahdanauAttention, BahdanauAttentionOptions, GNMTOptions, INIT_WEIGHT, embedder, lstm,
};
use crate::error::{Error, Result, throw};
use crate::nn::{Embedding, Forward, LSTM, Linear, Module, Training, init::uniform_};
use crate::onnx::{Graph, Value};
use crate::tensor::Tensor;

/// An LSTM layer whose outputs are the queries of an attention to the encoded source
/// (`RecurrentAttention`).
#[derive(Module)]
pub struct RecurrentAttention {
    /// The layer.
    pub rnn: LSTM,
    /// The attention, normalised.
    pub attn: BahdanauAttention,
}

/// To the logits of the words (`Classifier`).
#[derive(Module)]
pub struct Classifier {
    /// The layer.
    pub classifier: Linear,
}

/// What [`ResidualRecurrentDecoder::forward`] gives.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// Of each next word, `[time, batch, vocab_size]`.
    pub logits: Tensor,
    /// Shares of attention, `[time, batch, source time]`.
    pub scores: Tensor,
    /// The last (h, c) of each layer, `[1, batch, hidden]`: where decoding goes on.
    pub state: Vec<(Tensor, Tensor)>,
}

/// [`Decoded`] in a graph of ONNX.
#[derive(Clone, Debug)]
pub struct DecodedValues {
    /// Of each next word, `[time, batch, vocab_size]`.
    pub logits: Value,
    /// Shares of attention, `[time, batch, source time]`.
    pub scores: Value,
    /// The last (h, c) of each layer, `[1, batch, hidden]`: where decoding goes on.
    pub state: Vec<(Value, Value)>,
}

/// LSTM layers, the first with attention, the others reading what it attends to beside the output of
/// the layer before; from the third on with shortcuts (`ResidualRecurrentDecoder`).
#[derive(Module)]
pub struct ResidualRecurrentDecoder {
    /// The first layer.
    pub att_rnn: RecurrentAttention,
    /// The other layers.
    pub rnn_layers: Vec<LSTM>,
    /// The table of words.
    pub embedder: Embedding,
    /// To the logits.
    pub classifier: Classifier,
    dropout: f64,
    training: Training,
}

impl ResidualRecurrentDecoder {
    #[track_caller]
    pub(super) fn new(options: &GNMTOptions) -> Self {
        let &GNMTOptions { hidden_size: hidden, batch_first, num_layers, .. } = options;
        let classifier = Linear::new(hidden, options.vocab_size);
        for parameter in classifier.parameters() {
            uniform_(&parameter, -INIT_WEIGHT, INIT_WEIGHT);
        }
        let layer = |_| lstm(2 * hidden, hidden, false, batch_first);
        ResidualRecurrentDecoder {
            att_rnn: RecurrentAttention {
                rnn: lstm(hidden, hidden, false, batch_first),
                attn: BahdanauAttention::new(
                    hidden,
                    hidden,
                    hidden,
                    BahdanauAttentionOptions { normalize: true, batch_first },
                ),
            },
            rnn_layers: (1..num_layers).map(layer).collect(),
            embedder: embedder(options),
            classifier: Classifier { classifier },
            dropout: options.dropout,
            training: Training::default(),
        }
    }

    /// From the words so far, `[time, batch]`, the encoded source, `[source time, batch, hidden]`, and
    /// its lengths (batch before time in all of them with `batch_first`). `state` is that of an
    /// earlier call, of whose words these are the continuation.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for inputs that do not fit, [`Error::Argument`] for a state of another
    /// number of layers.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(
        &self,
        inputs: &Tensor,
        context: &Tensor,
        lengths: &[usize],
        state: Option<&[(Tensor, Tensor)]>,
    ) -> Decoded {
        let layers = 1 + self.rnn_layers.len();
        if let Some(state) = state
            && state.len() != layers
        {
            let message = format!("has {} layers, the decoder has {layers}", state.len());
            throw(Error::argument("ResidualRecurrentDecoder", "state", message));
        }
        let first = |i: usize| state.map(|state| (&state[i].0, &state[i].1));
        let drop = |x: &Tensor| x.dropout(self.dropout, self.training.get());

        let x = drop(&self.embedder.forward(inputs));
        let (mut x, last) = self.att_rnn.rnn.forward(&x, first(0));
        let (attended, scores) = self.att_rnn.attn.forward(&x, context, lengths);
        let mut state = vec![last];
        for (i, layer) in self.rnn_layers.iter().enumerate() {
            let beside = drop(&Tensor::cat(&[&x, &attended], 2));
            let (out, last) = layer.forward(&beside, first(i + 1));
            x = if i == 0 { out } else { out + &x };
            state.push(last);
        }
        Decoded { logits: self.classifier.classifier.forward(&x), scores, state }
    }

    /// [`forward`](Self::forward) as part of a graph of [ONNX](crate::onnx); lengths are `[batch]` of i64.
    ///
    /// # Errors
    /// As the nodes, for shapes that do not fit, and [`Error::Argument`] for a state of another number of layers.
    pub fn onnx(
        &self,
        graph: &mut Graph,
        inputs: &Value,
        context: &Value,
        lengths: &Value,
        state: Option<&[(Value, Value)]>,
    ) -> Result<DecodedValues> {
        let layers = 1 + self.rnn_layers.len();
        if let Some(state) = state
            && state.len() != layers
        {
            let message = format!("has {} layers, the decoder has {layers}", state.len());
            return Err(Error::argument("onnx ResidualRecurrentDecoder", "state", message));
        }
        let first = |i: usize| state.map(|state| (&state[i].0, &state[i].1));
        let x = self.embedder.onnx(graph, inputs)?;
        let (mut x, last) = self.att_rnn.rnn.onnx(graph, &x, None, first(0))?;
        let (attended, scores) = self.att_rnn.attn.onnx(graph, &x, context, lengths)?;
        let mut state = vec![last];
        for (i, layer) in self.rnn_layers.iter().enumerate() {
            let beside = graph.concat(&[&x, &attended], 2)?;
            let (out, last) = layer.onnx(graph, &beside, None, first(i + 1))?;
            x = if i == 0 { out } else { graph.binary("Add", &out, &x)? };
            state.push(last);
        }
        Ok(DecodedValues { logits: self.classifier.classifier.onnx(graph, &x)?, scores, state })
    }
}
