//! One block of GPT-2: causal attention and a feed-forward layer.

use super::super::HiddenActivation;
use super::super::decoder::KeyValueCache;
use super::GPT2Config;
use crate::error::{Error, Result, throw};
use crate::nn::calls::is_logged;
use crate::nn::{Dropout, Forward, LayerNorm, Module, Parameter, init::normal_};
use crate::onnx::{Dim, Graph, Value};
use crate::ops::{Activation, AttentionOptions, Layer, fused_feed_forward};
use crate::tensor::{Dtype, Tensor};

/// A linear layer whose weight is the other way round (`transformers.pytorch_utils.Conv1D`).
#[derive(Module)]
#[module(extra_repr = Self::settings)]
pub struct Conv1D {
    /// `[in_features, out_features]`.
    pub weight: Parameter,
    /// `[out_features]`.
    pub bias: Parameter,
}

impl Conv1D {
    /// The weight starts normal with deviation `std`, the bias at 0. The number of outputs comes
    /// first, as in the original.
    #[track_caller]
    pub fn new(nf: usize, nx: usize, std: f64) -> Self {
        let weight = Parameter::new(Tensor::empty([nx, nf], Dtype::F32));
        normal_(&weight, 0.0, std);
        Conv1D { weight, bias: Parameter::new(Tensor::zeros([nf], Dtype::F32)) }
    }

    fn layer(&self) -> Layer<'_> {
        Layer { weight: &self.weight, bias: Some(&self.bias), is_turned: true }
    }

    fn settings(&self) -> String {
        format!("nf={}, nx={}", self.weight.size(1), self.weight.size(0))
    }
}

impl Forward for Conv1D {
    /// # Panics
    /// Throws [`Error::Shape`] unless the input is `[.., in_features]`.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        let features = self.weight.size(0);
        if input.dim() == 0 || input.size(-1) != features {
            let message = format!("input is {:?}; must be [.., {features}]", input.shape());
            throw(Error::shape("Conv1D", message));
        }
        let mut shape = input.shape().to_vec();
        *shape.last_mut().expect("at least one dimension") = self.weight.size(1);
        let rows = input.reshape([-1, features as i64]);
        self.bias.addmm(&rows, &self.weight, 1.0, 1.0).reshape_to(&shape)
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        let weight = graph.constant(&self.weight);
        let y = graph.matmul(input, &weight)?;
        graph.plus(&y, Some(&self.bias))
    }
}

/// Deviation of the initial weights of layers that add to a shortcut: the more of them, the smaller.
fn residual_std(config: &GPT2Config) -> f64 {
    config.initializer_range / (2.0 * config.n_layer as f64).sqrt()
}

/// Attention of several heads to this token and those before it (`GPT2Attention`).
#[derive(Module)]
pub struct GPT2Attention {
    /// To queries, keys and values side by side.
    pub c_attn: Conv1D,
    /// Of the heads' results.
    pub c_proj: Conv1D,
    /// On the shares of attention.
    pub attn_dropout: Dropout,
    /// On the result.
    pub resid_dropout: Dropout,
    n_head: usize,
    scale: f64,
    layer: usize,
}

impl GPT2Attention {
    #[track_caller]
    fn new(config: &GPT2Config, layer: usize) -> Self {
        let width = config.n_embd;
        let mut scale = 1.0;
        if config.scale_attn_weights {
            scale /= ((width / config.n_head) as f64).sqrt();
        }
        if config.scale_attn_by_inverse_layer_idx {
            scale /= (layer + 1) as f64;
        }
        GPT2Attention {
            c_attn: Conv1D::new(3 * width, width, config.initializer_range),
            c_proj: Conv1D::new(width, width, residual_std(config)),
            attn_dropout: Dropout::new(config.attn_pdrop),
            resid_dropout: Dropout::new(config.resid_pdrop),
            n_head: config.n_head,
            scale,
            layer,
        }
    }

    /// `x` is `[batch, length, width]`; keys and values of the tokens before are in the cache.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(
        &self,
        x: &Tensor,
        attention: &AttentionOptions,
        cache: Option<&mut KeyValueCache>,
    ) -> Tensor {
        let (batch, length, width) = (x.size(0) as i64, x.size(1) as i64, x.size(2) as i64);
        let heads = self.n_head as i64;
        let qkv = self.c_attn.forward(x).view([batch, length, 3, heads, width / heads]);
        let part = |i: i64| qkv.select(2, i).transpose(1, 2);
        let (q, mut k, mut v) = (part(0), part(1), part(2));
        if let Some(cache) = cache {
            (k, v) = cache.extend(self.layer, k, v);
        }
        let dropout = &self.attn_dropout;
        let options = AttentionOptions {
            dropout_p: if dropout.is_training() { dropout.p() } else { 0.0 },
            scale: Some(self.scale),
            ..attention.clone()
        };
        let out = q.scaled_dot_product_attention_with(&k, &v, &options);
        let out = out.transpose(1, 2).reshape([batch, length, width]);
        self.resid_dropout.forward(&self.c_proj.forward(&out))
    }

    fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
        let qkv = self.c_attn.onnx(graph, x)?;
        let parts = graph.split(&qkv, 3, -1)?;
        let mut heads = Vec::with_capacity(3);
        for part in &parts {
            let [batch, length, width] = part.shape() else { unreachable!("as the input") };
            let Dim::Fixed(width) = *width else { unreachable!("of a product with a weight") };
            let shape = vec![
                batch.clone(),
                length.clone(),
                self.n_head.into(),
                (width / self.n_head).into(),
            ];
            let part = graph.reshape(part, shape)?;
            heads.push(graph.transpose(&part, &[0, 2, 1, 3])?);
        }
        let out = graph.attention([&heads[0], &heads[1], &heads[2]], self.scale, true)?;
        let out = graph.transpose(&out, &[0, 2, 1, 3])?;
        let out = graph.flatten(&out, 2, 3)?;
        self.c_proj.onnx(graph, &out)
    }
}

/// Two linear layers with a function between them (`GPT2MLP`).
#[derive(Module)]
pub struct GPT2MLP {
    /// To the inner width.
    pub c_fc: Conv1D,
    /// Back.
    pub c_proj: Conv1D,
    /// On the result.
    pub dropout: Dropout,
    act: HiddenActivation,
}

impl GPT2MLP {
    #[track_caller]
    fn new(config: &GPT2Config) -> Self {
        let (width, inner) = (config.n_embd, config.n_inner.unwrap_or(4 * config.n_embd));
        GPT2MLP {
            c_fc: Conv1D::new(inner, width, config.initializer_range),
            c_proj: Conv1D::new(width, inner, residual_std(config)),
            dropout: Dropout::new(config.resid_pdrop),
            act: config.activation_function,
        }
    }
}

impl Forward for GPT2MLP {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, x: &Tensor) -> Tensor {
        let activation: Activation = self.act.into();
        let fused = match is_logged() {
            true => None,
            false => fused_feed_forward(x, self.c_fc.layer(), activation, self.c_proj.layer()),
        };
        let out =
            fused.unwrap_or_else(|| self.c_proj.forward(&activation.apply(&self.c_fc.forward(x))));
        self.dropout.forward(&out)
    }

    fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
        let x = self.c_fc.onnx(graph, x)?;
        let x = self.act.onnx(graph, &x)?;
        self.c_proj.onnx(graph, &x)
    }
}

/// Attention and a feed-forward layer, each beside a shortcut and behind a norm (`GPT2Block`).
#[derive(Module)]
pub struct GPT2Block {
    /// Before the attention.
    pub ln_1: LayerNorm,
    /// The attention.
    pub attn: GPT2Attention,
    /// Before the feed-forward layer.
    pub ln_2: LayerNorm,
    /// The feed-forward layer.
    pub mlp: GPT2MLP,
}

impl GPT2Block {
    #[track_caller]
    pub(super) fn new(config: &GPT2Config, layer: usize) -> Self {
        let norm = || LayerNorm::new(config.n_embd).eps(config.layer_norm_epsilon);
        GPT2Block {
            ln_1: norm(),
            attn: GPT2Attention::new(config, layer),
            ln_2: norm(),
            mlp: GPT2MLP::new(config),
        }
    }

    /// The block's results are the sum of what it gives, and its input that of `x` and `added`: the next norm adds them.
    #[track_caller]
    pub(super) fn forward(
        &self,
        (x, added): (Tensor, Option<Tensor>),
        attention: &AttentionOptions,
        cache: Option<&mut KeyValueCache>,
    ) -> (Tensor, Option<Tensor>) {
        let (x, y) = match added {
            Some(added) => self.ln_1.forward_add_for_linear(&x, &added),
            None => {
                let y = self.ln_1.forward_for_linear(&x);
                (x, y)
            }
        };
        let y = self.attn.forward(&y, attention, cache);
        let (x, y) = self.ln_2.forward_add_for_linear(&x, &y);
        (x, Some(self.mlp.forward(&y)))
    }

    pub(super) fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
        let y = self.ln_1.onnx(graph, x)?;
        let y = self.attn.onnx(graph, &y)?;
        let x = graph.binary("Add", x, &y)?;
        let y = self.ln_2.onnx(graph, &x)?;
        let y = self.mlp.onnx(graph, &y)?;
        graph.binary("Add", &x, &y)
    }
}
