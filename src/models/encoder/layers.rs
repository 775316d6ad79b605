//! Layers of encoders.

use crate::autograd::no_grad;
use crate::error::{Error, Result, throw};
use crate::models::HiddenActivation;
use crate::models::pretrained::settings::Fault;
use crate::nn::{Dropout, Forward, Linear, Module, init::normal_};
use crate::onnx::{Graph, Seen, Value};
use crate::ops::AttentionOptions;
use crate::tensor::Tensor;

/// What the layers of an encoder have in common.
#[derive(Clone, Copy, Debug)]
pub(in crate::models) struct Sizes {
    pub width: usize,
    pub inner: usize,
    pub heads: usize,
    /// Whether queries, keys and values have biases.
    pub qkv_bias: bool,
    pub activation: HiddenActivation,
    pub attention_dropout: f64,
    /// Deviation of the initial weights.
    pub range: f64,
}

impl Sizes {
    /// Heads that cannot share the width.
    pub(in crate::models) fn fault(&self) -> Option<Fault> {
        let Sizes { width, heads, .. } = *self;
        let why = format!("{heads}: they cannot share a hidden_size of {width}");
        (!width.is_multiple_of(heads)).then_some(("num_attention_heads", why))
    }
}

/// A layer whose weight starts normal, and its bias at 0.
#[track_caller]
pub(in crate::models) fn linear(range: f64, inputs: usize, outputs: usize, bias: bool) -> Linear {
    let layer = if bias { Linear::new(inputs, outputs) } else { Linear::no_bias(inputs, outputs) };
    normal_(&layer.weight, 0.0, range);
    if let Some(bias) = &layer.bias {
        no_grad(|| _ = bias.fill_(0.0));
    }
    layer
}

/// Attention of several heads to all tokens (`BertSelfAttention`, `ViTSelfAttention`).
#[derive(Module)]
pub struct EncoderSelfAttention {
    /// To the queries of all heads.
    pub query: Linear,
    /// To their keys.
    pub key: Linear,
    /// To their values.
    pub value: Linear,
    /// On the shares of attention.
    pub dropout: Dropout,
    heads: usize,
}

impl EncoderSelfAttention {
    #[track_caller]
    pub(in crate::models) fn new(sizes: &Sizes) -> Self {
        let linear = || linear(sizes.range, sizes.width, sizes.width, sizes.qkv_bias);
        EncoderSelfAttention {
            query: linear(),
            key: linear(),
            value: linear(),
            dropout: Dropout::new(sizes.attention_dropout),
            heads: sizes.heads,
        }
    }

    /// The heads' results side by side, for `x` of `[batch, length, width]`.
    #[track_caller]
    #[crate::nn::forward]
    pub(in crate::models) fn forward(&self, x: &Tensor, attention: &AttentionOptions) -> Tensor {
        let heads = |layer: &Linear| {
            layer.forward(x).unflatten(-1, &[self.heads as i64, -1]).transpose(1, 2)
        };
        let (q, k, v) = (heads(&self.query), heads(&self.key), heads(&self.value));
        let options = AttentionOptions {
            dropout_p: if self.dropout.is_training() { self.dropout.p() } else { 0.0 },
            ..attention.clone()
        };
        q.scaled_dot_product_attention_with(&k, &v, &options).transpose(1, 2).flatten(-2, -1)
    }

    /// The same as nodes of ONNX.
    pub(in crate::models) fn onnx(
        &self,
        graph: &mut Graph,
        x: &Value,
        seen: Seen,
    ) -> Result<Value> {
        let mut heads = Vec::with_capacity(3);
        for layer in [&self.query, &self.key, &self.value] {
            let part = layer.onnx(graph, x)?;
            heads.push(graph.heads_apart(&part, self.heads)?);
        }
        let scale = ((self.query.out_features() / self.heads) as f64).sqrt().recip();
        let out = graph.attend([&heads[0], &heads[1], &heads[2]], scale, seen)?;
        graph.heads_together(&out)
    }
}

/// A linear layer and a function behind it (`BertIntermediate`, `ViTIntermediate`).
#[derive(Module)]
pub struct EncoderIntermediate {
    /// To the inner width.
    pub dense: Linear,
    act: HiddenActivation,
}

impl EncoderIntermediate {
    #[track_caller]
    pub(in crate::models) fn new(sizes: &Sizes) -> Self {
        EncoderIntermediate {
            dense: linear(sizes.range, sizes.width, sizes.inner, true),
            act: sizes.activation,
        }
    }
}

impl Forward for EncoderIntermediate {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.act.apply(&self.dense.forward(x))
    }

    fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
        let x = self.dense.onnx(graph, x)?;
        self.act.onnx(graph, &x)
    }
}

/// A linear layer with dropout behind it, whose result is added to a shortcut (`ViTSelfOutput`, `ViTOutput`).
#[derive(Module)]
pub struct EncoderDense {
    /// The layer.
    pub dense: Linear,
    /// On its result.
    pub dropout: Dropout,
}

impl EncoderDense {
    #[track_caller]
    pub(in crate::models) fn new(range: f64, inputs: usize, outputs: usize, dropout: f64) -> Self {
        EncoderDense { dense: linear(range, inputs, outputs, true), dropout: Dropout::new(dropout) }
    }
}

impl Forward for EncoderDense {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.dropout.forward(&self.dense.forward(x))
    }

    fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
        self.dense.onnx(graph, x)
    }
}

/// A linear layer on the first token's features, and a function behind it (`BertPooler`, `ViTPooler`).
#[derive(Module)]
pub struct EncoderPooler {
    /// The layer.
    pub dense: Linear,
    act: HiddenActivation,
}

impl EncoderPooler {
    #[track_caller]
    pub(in crate::models) fn new(
        range: f64,
        inputs: usize,
        outputs: usize,
        act: HiddenActivation,
    ) -> Self {
        EncoderPooler { dense: linear(range, inputs, outputs, true), act }
    }
}

/// What the pooler of `model` makes of features.
#[track_caller]
pub(in crate::models) fn pooled(
    model: &str,
    pooler: Option<&EncoderPooler>,
    features: &Tensor,
) -> Tensor {
    let Some(pooler) = pooler else {
        let what = format!("was made without a pooler; use `{model}::new`");
        throw(Error::argument(&format!("{model}::pooled"), "self", what))
    };
    pooler.forward(features)
}

/// [`pooled`] as nodes of ONNX.
pub(in crate::models) fn pooled_onnx(
    model: &str,
    pooler: Option<&EncoderPooler>,
    graph: &mut Graph,
    features: &Value,
) -> Result<Value> {
    let Some(pooler) = pooler else {
        let what = format!("was made without a pooler; use `{model}::new`");
        return Err(Error::argument(&format!("{model}::pooled_onnx"), "self", what));
    };
    pooler.onnx(graph, features)
}

impl Forward for EncoderPooler {
    /// `[batch, outputs]` of features `[batch, length, inputs]`.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, features: &Tensor) -> Tensor {
        self.act.apply(&self.dense.forward(&features.select(1, 0)))
    }

    fn onnx(&self, graph: &mut Graph, features: &Value) -> Result<Value> {
        let first = graph.select(features, 1, 0)?;
        let x = self.dense.onnx(graph, &first)?;
        self.act.onnx(graph, &x)
    }
}
