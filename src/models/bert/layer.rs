//! One layer of BERT: attention and a feed-forward layer, each with a norm behind its shortcut.

use super::BertConfig;
use crate::error::Result;
use crate::models::encoder::{EncoderIntermediate, EncoderSelfAttention, linear};
use crate::nn::{Dropout, Forward, LayerNorm, Linear, Module};
use crate::onnx::{Graph, Seen, Value};
use crate::ops::AttentionOptions;
use crate::tensor::Tensor;

pub(super) fn norm(config: &BertConfig) -> LayerNorm {
    LayerNorm::new(config.hidden_size).eps(config.layer_norm_eps)
}

/// A linear layer, and the norm of what it gives with a shortcut (`BertSelfOutput`, `BertOutput`).
#[derive(Module)]
pub struct BertOutput {
    /// The layer.
    pub dense: Linear,
    /// Behind the shortcut.
    #[module(rename = "LayerNorm")]
    pub layer_norm: LayerNorm,
    /// On what the layer gives.
    pub dropout: Dropout,
}

impl BertOutput {
    #[track_caller]
    fn new(config: &BertConfig, inputs: usize) -> Self {
        BertOutput {
            dense: linear(config.initializer_range, inputs, config.hidden_size, true),
            layer_norm: norm(config),
            dropout: Dropout::new(config.hidden_dropout_prob),
        }
    }

    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, x: &Tensor, shortcut: &Tensor) -> Tensor {
        let x = self.dropout.forward(&self.dense.forward(x));
        self.layer_norm.forward_add(shortcut, &x).1
    }

    fn onnx(&self, graph: &mut Graph, x: &Value, shortcut: &Value) -> Result<Value> {
        let x = self.dense.onnx(graph, x)?;
        let sum = graph.binary("Add", shortcut, &x)?;
        self.layer_norm.onnx(graph, &sum)
    }
}

/// Attention with its shortcut and norm (`BertAttention`).
#[derive(Module)]
pub struct BertAttention {
    /// The attention.
    #[module(rename = "self")]
    pub self_attention: EncoderSelfAttention,
    /// Of the heads' results.
    pub output: BertOutput,
}

/// `BertLayer`.
#[derive(Module)]
pub struct BertLayer {
    /// The attention.
    pub attention: BertAttention,
    /// To the inner width.
    pub intermediate: EncoderIntermediate,
    /// Back.
    pub output: BertOutput,
}

impl BertLayer {
    #[track_caller]
    pub(super) fn new(config: &BertConfig) -> Self {
        let sizes = config.sizes();
        BertLayer {
            attention: BertAttention {
                self_attention: EncoderSelfAttention::new(&sizes),
                output: BertOutput::new(config, sizes.width),
            },
            intermediate: EncoderIntermediate::new(&sizes),
            output: BertOutput::new(config, sizes.inner),
        }
    }

    #[track_caller]
    #[crate::nn::forward]
    pub(super) fn forward(&self, x: &Tensor, attention: &AttentionOptions) -> Tensor {
        let heads = self.attention.self_attention.forward(x, attention);
        let x = self.attention.output.forward(&heads, x);
        self.output.forward(&self.intermediate.forward(&x), &x)
    }

    pub(super) fn onnx(&self, graph: &mut Graph, x: &Value, seen: Seen) -> Result<Value> {
        let heads = self.attention.self_attention.onnx(graph, x, seen)?;
        let x = self.attention.output.onnx(graph, &heads, x)?;
        let inner = self.intermediate.onnx(graph, &x)?;
        self.output.onnx(graph, &inner, &x)
    }
}

/// The layers one behind the other (`BertEncoder`).
#[derive(Module)]
pub struct BertEncoder {
    /// The layers.
    pub layer: Vec<BertLayer>,
}
