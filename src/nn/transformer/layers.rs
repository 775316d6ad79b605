//! One encoder or decoder layer.

use super::attention::{AttentionWeights, MultiheadAttention, MultiheadAttentionOptions};
use crate::error::Result;
use crate::nn::{Dropout, Forward, LayerNorm, Linear, Module};
use crate::onnx::{Graph, Value};
use crate::ops::Activation;
use crate::tensor::Tensor;

/// The function between the two linear layers of the feed-forward part.
///
/// ```
/// use torchrs::nn::{Module, TransformerActivation::*, TransformerEncoderLayer, TransformerOptions};
/// use torchrs::{Dtype, Tensor};
/// let options = |activation| TransformerOptions { activation, dropout: 0.0, ..Default::default() };
/// let [relu, gelu] = [Relu, Gelu].map(|a| TransformerEncoderLayer::new(8, 2, options(a)));
/// gelu.load_state_dict(&relu.state_dict(), true).unwrap();
/// let x = Tensor::randn([5, 1, 8], Dtype::F32);
/// assert!(!relu.forward(&x, None, None).equal(&gelu.forward(&x, None, None)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransformerActivation {
    /// max(x, 0).
    #[default]
    Relu,
    /// See [`Tensor::gelu`].
    Gelu,
}

/// Options of transformer layers.
///
/// ```
/// use torchrs::nn::{TransformerEncoderLayer, TransformerOptions};
/// let options = TransformerOptions { dim_feedforward: 32, bias: false, ..Default::default() };
/// let layer = TransformerEncoderLayer::new(8, 2, options);
/// assert_eq!(layer.linear1.weight.shape(), &[32, 8]);
/// assert!(layer.norm1.bias.is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransformerOptions {
    /// Width between the two linear layers of the feed-forward part.
    pub dim_feedforward: usize,
    /// Dropout behind each part and on attention weights, in training.
    pub dropout: f64,
    /// The function of the feed-forward part.
    pub activation: TransformerActivation,
    /// Added to variances.
    pub layer_norm_eps: f64,
    /// `[batch, length, width]`, not `[length, batch, width]`.
    pub batch_first: bool,
    /// Normalises before each part, not after it.
    pub norm_first: bool,
    /// Biases of linear layers and norms.
    pub bias: bool,
}

impl Default for TransformerOptions {
    fn default() -> Self {
        TransformerOptions {
            dim_feedforward: 2048,
            dropout: 0.1,
            activation: TransformerActivation::Relu,
            layer_norm_eps: 1e-5,
            batch_first: false,
            norm_first: false,
            bias: true,
        }
    }
}

impl TransformerOptions {
    fn linear(&self, inputs: usize, outputs: usize) -> Linear {
        if self.bias { Linear::new(inputs, outputs) } else { Linear::no_bias(inputs, outputs) }
    }

    pub(super) fn norm(&self, width: usize) -> LayerNorm {
        let norm = LayerNorm::new(width).eps(self.layer_norm_eps);
        if self.bias { norm } else { norm.no_bias() }
    }

    #[track_caller]
    fn attention(&self, d_model: usize, nhead: usize) -> MultiheadAttention {
        let options = MultiheadAttentionOptions {
            dropout: self.dropout,
            bias: self.bias,
            batch_first: self.batch_first,
            ..Default::default()
        };
        MultiheadAttention::new(d_model, nhead, options)
    }

    /// The feed-forward part of a layer.
    #[track_caller]
    fn feed_forward(
        &self,
        x: &Tensor,
        first: &Linear,
        dropout: &Dropout,
        second: &Linear,
    ) -> Tensor {
        let activation = match self.activation {
            TransformerActivation::Relu => Activation::Relu,
            TransformerActivation::Gelu => Activation::Gelu,
        };
        if !dropout.is_training() || dropout.p() == 0.0 {
            return first.feed_forward(x, activation, second);
        }
        let active = activation.apply(&first.forward(x));
        second.forward(&dropout.forward(&active))
    }

    fn onnx_feed_forward(
        &self,
        graph: &mut Graph,
        x: &Value,
        [first, second]: [&Linear; 2],
    ) -> Result<Value> {
        let x = first.onnx(graph, x)?;
        let x = match self.activation {
            TransformerActivation::Relu => graph.unary("Relu", &x),
            TransformerActivation::Gelu => graph.gelu(&x, false),
        };
        second.onnx(graph, &x)
    }

    /// A part of a layer with its residual connection and norm.
    fn onnx_part(
        &self,
        graph: &mut Graph,
        x: &Value,
        norm: &LayerNorm,
        part: impl FnOnce(&mut Graph, &Value) -> Result<Value>,
    ) -> Result<Value> {
        if self.norm_first {
            let y = norm.onnx(graph, x)?;
            let y = part(graph, &y)?;
            return graph.binary("Add", x, &y);
        }
        let y = part(graph, x)?;
        let sum = graph.binary("Add", x, &y)?;
        norm.onnx(graph, &sum)
    }
}

/// Self-attention and a feed-forward part, each with a residual connection
/// (`torch.nn.TransformerEncoderLayer`).
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::{Module, TransformerEncoderLayer, generate_square_subsequent_mask}};
/// let layer = TransformerEncoderLayer::new(8, 2, Default::default());
/// layer.eval();
/// // With a causal mask, what comes later does not change what was before.
/// let (x, mask) = (Tensor::randn([5, 1, 8], Dtype::F32), generate_square_subsequent_mask(5));
/// let whole = layer.forward(&x, Some(&mask), None);
/// let first = layer.forward(&x.narrow(0, 0, 1), None, None);
/// assert!((whole.narrow(0, 0, 1) - first).abs().max().item() < 1e-5);
/// ```
#[derive(Module, Clone)]
pub struct TransformerEncoderLayer {
    /// Attention over the sequence itself.
    pub self_attn: MultiheadAttention,
    /// First half of the feed-forward part.
    pub linear1: Linear,
    dropout: Dropout,
    /// Second half.
    pub linear2: Linear,
    /// Of the attention.
    pub norm1: LayerNorm,
    /// Of the feed-forward part.
    pub norm2: LayerNorm,
    dropout1: Dropout,
    dropout2: Dropout,
    #[module(skip)]
    options: TransformerOptions,
}

impl TransformerEncoderLayer {
    /// ```
    /// use torchrs::nn::TransformerEncoderLayer;
    /// let layer = TransformerEncoderLayer::new(8, 2, Default::default());
    /// assert_eq!(layer.linear1.weight.shape(), &[2048, 8]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`](crate::Error::Argument) when `d_model` is not a multiple of `nhead`.
    #[track_caller]
    pub fn new(d_model: usize, nhead: usize, options: TransformerOptions) -> Self {
        TransformerEncoderLayer {
            self_attn: options.attention(d_model, nhead),
            linear1: options.linear(d_model, options.dim_feedforward),
            linear2: options.linear(options.dim_feedforward, d_model),
            norm1: options.norm(d_model),
            norm2: options.norm(d_model),
            dropout: Dropout::new(options.dropout),
            dropout1: Dropout::new(options.dropout),
            dropout2: Dropout::new(options.dropout),
            options,
        }
    }

    /// The layer's output, shaped like `src`; masks as in [`MultiheadAttention::forward`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Module, TransformerEncoderLayer}};
    /// let layer = TransformerEncoderLayer::new(8, 2, Default::default());
    /// layer.eval();
    /// let x = Tensor::randn([2, 1, 8], Dtype::F32);
    /// // The second element is padding: the first sees itself alone.
    /// let y = layer.forward(&x, None, Some(&Tensor::from([[false, true]]))).narrow(0, 0, 1);
    /// assert!((layer.forward(&x.narrow(0, 0, 1), None, None) - y).abs().max().item() < 1e-5);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`](crate::Error::Shape) for shapes that do not fit.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(
        &self,
        src: &Tensor,
        src_mask: Option<&Tensor>,
        src_key_padding_mask: Option<&Tensor>,
    ) -> Tensor {
        let attend = |x: &Tensor| {
            let none = AttentionWeights::None;
            let (out, _) = self.self_attn.forward(x, x, x, src_key_padding_mask, src_mask, none);
            self.dropout1.forward(&out)
        };
        let feed = |x: &Tensor| {
            let (first, second) = (&self.linear1, &self.linear2);
            let out = self.options.feed_forward(x, first, &self.dropout, second);
            self.dropout2.forward(&out)
        };
        if self.options.norm_first {
            let (x, y) = self.norm2.forward_add(src, &attend(&self.norm1.forward(src)));
            x + feed(&y)
        } else {
            let (_, x) = self.norm1.forward_add(src, &attend(src));
            self.norm2.forward_add(&x, &feed(&x)).1
        }
    }

    /// What [`forward`](Self::forward) computes in evaluation, as part of a graph of [ONNX](crate::onnx); masks as in
    /// [`MultiheadAttention::onnx`].
    ///
    /// # Errors
    /// As that.
    pub fn onnx(
        &self,
        graph: &mut Graph,
        src: &Value,
        src_mask: Option<&Value>,
        src_key_padding_mask: Option<&Value>,
    ) -> Result<Value> {
        let options = self.options;
        let x = options.onnx_part(graph, src, &self.norm1, |graph, x| {
            self.self_attn.onnx(graph, [x; 3], src_key_padding_mask, src_mask)
        })?;
        options.onnx_part(graph, &x, &self.norm2, |graph, x| {
            options.onnx_feed_forward(graph, x, [&self.linear1, &self.linear2])
        })
    }

    pub(super) fn batch_first(&self) -> bool {
        self.self_attn.batch_first()
    }
}

/// Self-attention, attention to an encoder's output, and a feed-forward part
/// (`torch.nn.TransformerDecoderLayer`).
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::TransformerDecoderLayer};
/// let layer = TransformerDecoderLayer::new(8, 2, Default::default());
/// let (target, memory) = (Tensor::ones([5, 3, 8], Dtype::F32), Tensor::ones([7, 3, 8], Dtype::F32));
/// assert_eq!(layer.forward(&target, &memory, (None, None), (None, None)).shape(), &[5, 3, 8]);
/// ```
#[derive(Module, Clone)]
pub struct TransformerDecoderLayer {
    /// Attention over the sequence itself.
    pub self_attn: MultiheadAttention,
    /// Attention to the encoder's output.
    pub multihead_attn: MultiheadAttention,
    /// First half of the feed-forward part.
    pub linear1: Linear,
    dropout: Dropout,
    /// Second half.
    pub linear2: Linear,
    /// Of the self-attention.
    pub norm1: LayerNorm,
    /// Of the attention to the encoder's output.
    pub norm2: LayerNorm,
    /// Of the feed-forward part.
    pub norm3: LayerNorm,
    dropout1: Dropout,
    dropout2: Dropout,
    dropout3: Dropout,
    #[module(skip)]
    options: TransformerOptions,
}

impl TransformerDecoderLayer {
    /// ```
    /// use torchrs::{catch, nn::TransformerDecoderLayer};
    /// let layer = TransformerDecoderLayer::new(8, 2, Default::default());
    /// assert_eq!(layer.multihead_attn.in_proj_weight.unwrap().shape(), &[24, 8]);
    /// assert!(catch(|| TransformerDecoderLayer::new(8, 3, Default::default())).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`](crate::Error::Argument) when `d_model` is not a multiple of `nhead`.
    #[track_caller]
    pub fn new(d_model: usize, nhead: usize, options: TransformerOptions) -> Self {
        TransformerDecoderLayer {
            self_attn: options.attention(d_model, nhead),
            multihead_attn: options.attention(d_model, nhead),
            linear1: options.linear(d_model, options.dim_feedforward),
            linear2: options.linear(options.dim_feedforward, d_model),
            norm1: options.norm(d_model),
            norm2: options.norm(d_model),
            norm3: options.norm(d_model),
            dropout: Dropout::new(options.dropout),
            dropout1: Dropout::new(options.dropout),
            dropout2: Dropout::new(options.dropout),
            dropout3: Dropout::new(options.dropout),
            options,
        }
    }

    /// The layer's output, shaped like `tgt`, with attention to `memory`, an encoder's output. The
    /// `(mask, key_padding_mask)` pairs are as in [`MultiheadAttention::forward`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Module, TransformerDecoderLayer}};
    /// let layer = TransformerDecoderLayer::new(8, 2, Default::default());
    /// layer.eval();
    /// let (target, memory) = (Tensor::ones([2, 1, 8], Dtype::F32), Tensor::randn([2, 1, 8], Dtype::F32));
    /// // The second element of the memory is padding.
    /// let padding = Tensor::from([[false, true]]);
    /// let y = layer.forward(&target, &memory, (None, None), (None, Some(&padding)));
    /// let alone = layer.forward(&target, &memory.narrow(0, 0, 1), (None, None), (None, None));
    /// assert!((y - alone).abs().max().item() < 1e-5);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`](crate::Error::Shape) for shapes that do not fit.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(
        &self,
        tgt: &Tensor,
        memory: &Tensor,
        (tgt_mask, tgt_key_padding_mask): (Option<&Tensor>, Option<&Tensor>),
        (memory_mask, memory_key_padding_mask): (Option<&Tensor>, Option<&Tensor>),
    ) -> Tensor {
        let none = AttentionWeights::None;
        let own = |x: &Tensor| {
            let (out, _) = self.self_attn.forward(x, x, x, tgt_key_padding_mask, tgt_mask, none);
            self.dropout1.forward(&out)
        };
        let cross = |x: &Tensor| {
            let padding = memory_key_padding_mask;
            let (out, _) =
                self.multihead_attn.forward(x, memory, memory, padding, memory_mask, none);
            self.dropout2.forward(&out)
        };
        let feed = |x: &Tensor| {
            let (first, second) = (&self.linear1, &self.linear2);
            let out = self.options.feed_forward(x, first, &self.dropout, second);
            self.dropout3.forward(&out)
        };
        if self.options.norm_first {
            let (x, y) = self.norm2.forward_add(tgt, &own(&self.norm1.forward(tgt)));
            let (x, y) = self.norm3.forward_add(&x, &cross(&y));
            x + feed(&y)
        } else {
            let (_, x) = self.norm1.forward_add(tgt, &own(tgt));
            let (_, x) = self.norm2.forward_add(&x, &cross(&x));
            self.norm3.forward_add(&x, &feed(&x)).1
        }
    }

    /// What [`forward`](Self::forward) computes in evaluation, as part of a graph of [ONNX](crate::onnx); masks as in
    /// [`MultiheadAttention::onnx`].
    ///
    /// # Errors
    /// As that.
    pub fn onnx(
        &self,
        graph: &mut Graph,
        tgt: &Value,
        memory: &Value,
        (tgt_mask, tgt_key_padding_mask): (Option<&Value>, Option<&Value>),
        (memory_mask, memory_key_padding_mask): (Option<&Value>, Option<&Value>),
    ) -> Result<Value> {
        let options = self.options;
        let x = options.onnx_part(graph, tgt, &self.norm1, |graph, x| {
            self.self_attn.onnx(graph, [x; 3], tgt_key_padding_mask, tgt_mask)
        })?;
        let x = options.onnx_part(graph, &x, &self.norm2, |graph, x| {
            let qkv = [x, memory, memory];
            self.multihead_attn.onnx(graph, qkv, memory_key_padding_mask, memory_mask)
        })?;
        options.onnx_part(graph, &x, &self.norm3, |graph, x| {
            options.onnx_feed_forward(graph, x, [&self.linear1, &self.linear2])
        })
    }
}
