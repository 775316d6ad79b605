//! One block of Llama: attention whose queries share keys, and a gated feed-forward layer.

use super::LlamaConfig;
use crate::error::Result;
use crate::models::decoder::KeyValueCache;
use crate::nn::{Dropout, Forward, Linear, Module, RMSNorm, init::normal_};
use crate::onnx::{Graph, Value};
use crate::ops::AttentionOptions;
use crate::tensor::Tensor;

/// A layer whose weight starts normal, and its bias at 0.
#[track_caller]
pub(super) fn linear(config: &LlamaConfig, inputs: usize, outputs: usize, bias: bool) -> Linear {
    let layer = if bias { Linear::new(inputs, outputs) } else { Linear::no_bias(inputs, outputs) };
    normal_(&layer.weight, 0.0, config.initializer_range);
    if let Some(bias) = &layer.bias {
        crate::autograd::no_grad(|| _ = bias.fill_(0.0));
    }
    layer
}

/// What the blocks of a forward have in common.
#[derive(Clone)]
pub(super) struct Shared {
    pub attention: AttentionOptions,
    pub cos: Tensor,
    pub sin: Tensor,
}

/// Attention of several heads to this token and those before it (`LlamaAttention`).
#[derive(Module, Clone)]
pub struct LlamaAttention {
    /// To the queries of all heads.
    pub q_proj: Linear,
    /// To the keys of the heads of keys.
    pub k_proj: Linear,
    /// To the values of as many.
    pub v_proj: Linear,
    /// Of the heads' results.
    pub o_proj: Linear,
    /// On the shares of attention.
    pub attn_dropout: Dropout,
    head_dim: usize,
    layer: usize,
}

impl LlamaAttention {
    #[track_caller]
    fn new(config: &LlamaConfig, layer: usize) -> Self {
        let (width, head_dim) = (config.hidden_size, config.head_dim());
        let queries = config.num_attention_heads * head_dim;
        let keys = config.num_key_value_heads() * head_dim;
        let linear = |inputs, outputs| linear(config, inputs, outputs, config.attention_bias);
        LlamaAttention {
            q_proj: linear(width, queries),
            k_proj: linear(width, keys),
            v_proj: linear(width, keys),
            o_proj: linear(queries, width),
            attn_dropout: Dropout::new(config.attention_dropout),
            head_dim,
            layer,
        }
    }

    /// `x` is `[batch, length, width]`; keys and values of the tokens before are in the cache.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, x: &Tensor, shared: &Shared, cache: Option<&mut KeyValueCache>) -> Tensor {
        let heads = |t: Tensor| t.unflatten(-1, &[-1, self.head_dim as i64]);
        let turned = |t: Tensor| heads(t).rotary_embedding(&shared.cos, &shared.sin);
        let [q, k, v] = Linear::forward_each([&self.q_proj, &self.k_proj, &self.v_proj], x);
        let q = turned(q).transpose(1, 2);
        let mut k = turned(k).transpose(1, 2);
        let mut v = heads(v).transpose(1, 2);
        if let Some(cache) = cache {
            (k, v) = cache.extend(self.layer, k, v);
        }
        let dropout = &self.attn_dropout;
        let options = AttentionOptions {
            dropout_p: if dropout.is_training() { dropout.p() } else { 0.0 },
            enable_gqa: true,
            ..shared.attention.clone()
        };
        let out = q.scaled_dot_product_attention_with(&k, &v, &options);
        self.o_proj.forward(&out.transpose(1, 2).flatten(-2, -1))
    }

    fn onnx(
        &self,
        graph: &mut Graph,
        x: &Value,
        places: &Value,
        tables: [&Tensor; 2],
    ) -> Result<Value> {
        let mut parts = Vec::with_capacity(3);
        for (i, layer) in [&self.q_proj, &self.k_proj, &self.v_proj].into_iter().enumerate() {
            let t = layer.onnx(graph, x)?;
            let [batch, length, _] = t.shape() else { unreachable!("as the input") };
            let heads = layer.out_features() / self.head_dim;
            let shape = vec![batch.clone(), length.clone(), heads.into(), self.head_dim.into()];
            let mut t = graph.reshape(&t, shape)?;
            if i < 2 {
                t = graph.rotary(&t, places, tables)?;
            }
            parts.push(graph.transpose(&t, &[0, 2, 1, 3])?);
        }
        let scale = 1.0 / (self.head_dim as f64).sqrt();
        let out = graph.attention([&parts[0], &parts[1], &parts[2]], scale, true)?;
        let out = graph.transpose(&out, &[0, 2, 1, 3])?;
        let out = graph.flatten(&out, 2, 3)?;
        self.o_proj.onnx(graph, &out)
    }
}

/// Two linear layers, one times a gate made by a third (`LlamaMLP`).
#[derive(Module, Clone)]
pub struct LlamaMLP {
    /// To the gate.
    pub gate_proj: Linear,
    /// To the inner width.
    pub up_proj: Linear,
    /// Back.
    pub down_proj: Linear,
}

impl LlamaMLP {
    #[track_caller]
    fn new(config: &LlamaConfig) -> Self {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let linear = |inputs, outputs| linear(config, inputs, outputs, config.mlp_bias);
        LlamaMLP {
            gate_proj: linear(width, inner),
            up_proj: linear(width, inner),
            down_proj: linear(inner, width),
        }
    }
}

impl Forward for LlamaMLP {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, x: &Tensor) -> Tensor {
        let gate = self.gate_proj.forward(x);
        self.down_proj.forward(&gate.swiglu(&self.up_proj.forward(x)))
    }

    fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
        let gate = self.gate_proj.onnx(graph, x)?;
        let gate = graph.silu(&gate)?;
        let up = self.up_proj.onnx(graph, x)?;
        let product = graph.binary("Mul", &gate, &up)?;
        self.down_proj.onnx(graph, &product)
    }
}

/// Attention and a feed-forward layer, each beside a shortcut and behind a norm (`LlamaDecoderLayer`).
#[derive(Module, Clone)]
pub struct LlamaDecoderLayer {
    /// The attention.
    pub self_attn: LlamaAttention,
    /// The feed-forward layer.
    pub mlp: LlamaMLP,
    /// Before the attention.
    pub input_layernorm: RMSNorm,
    /// Before the feed-forward layer.
    pub post_attention_layernorm: RMSNorm,
}

impl LlamaDecoderLayer {
    #[track_caller]
    pub(super) fn new(config: &LlamaConfig, layer: usize) -> Self {
        LlamaDecoderLayer {
            self_attn: LlamaAttention::new(config, layer),
            mlp: LlamaMLP::new(config),
            input_layernorm: norm(config),
            post_attention_layernorm: norm(config),
        }
    }

    #[track_caller]
    #[crate::nn::forward]
    pub(super) fn forward(
        &self,
        x: &Tensor,
        shared: &Shared,
        cache: Option<&mut KeyValueCache>,
    ) -> Tensor {
        let y = self.self_attn.forward(&self.input_layernorm.forward_for_linear(x), shared, cache);
        let (x, y) = self.post_attention_layernorm.forward_add_for_linear(x, &y);
        x + self.mlp.forward(&y)
    }

    pub(super) fn onnx(
        &self,
        graph: &mut Graph,
        x: &Value,
        places: &Value,
        tables: [&Tensor; 2],
    ) -> Result<Value> {
        let y = self.input_layernorm.onnx(graph, x)?;
        let y = self.self_attn.onnx(graph, &y, places, tables)?;
        let x = graph.binary("Add", x, &y)?;
        let y = self.post_attention_layernorm.onnx(graph, &x)?;
        let y = self.mlp.onnx(graph, &y)?;
        graph.binary("Add", &x, &y)
    }
}

pub(super) fn norm(config: &LlamaConfig) -> RMSNorm {
    RMSNorm::new(config.hidden_size).eps(config.rms_norm_eps)
}
