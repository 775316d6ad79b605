//! What ViT makes of an image's patches, and its layers.

use super::{NAME, ViTConfig};
use crate::autograd::no_grad;
use crate::error::{Error, Result, throw};
use crate::models::encoder::{EncoderDense, EncoderIntermediate, EncoderSelfAttention};
use crate::nn::init::{TruncNormalOptions, normal_, trunc_normal_};
use crate::nn::{Conv2d, Dropout, Forward, LayerNorm, Module, Parameter};
use crate::onnx::{Dim, Graph, Seen, Value};
use crate::ops::AttentionOptions;
use crate::tensor::{Dtype, Tensor};

/// A vector for each patch (`ViTPatchEmbeddings`).
#[derive(Module)]
pub struct ViTPatchEmbeddings {
    /// A filter of a patch's size, moved from patch to patch.
    pub projection: Conv2d,
}

/// Vectors of patches behind one of the whole image, with their places (`ViTEmbeddings`).
#[derive(Module)]
pub struct ViTEmbeddings {
    /// Of the whole image, `[1, 1, hidden_size]`.
    pub cls_token: Parameter,
    /// Of places, `[1, patches + 1, hidden_size]`.
    pub position_embeddings: Parameter,
    /// Of patches.
    pub patch_embeddings: ViTPatchEmbeddings,
    /// On the sum.
    pub dropout: Dropout,
    #[module(skip)]
    image: [usize; 3],
}

impl ViTEmbeddings {
    #[track_caller]
    pub(super) fn new(config: &ViTConfig) -> Self {
        let (width, range) = (config.hidden_size, config.initializer_range);
        let table = |rows: usize| {
            let table = Parameter::new(Tensor::empty([1, rows, width], Dtype::F32));
            trunc_normal_(&table, TruncNormalOptions { std: range, ..Default::default() });
            table
        };
        let projection = Conv2d::new(config.num_channels, width, config.patch_size);
        let projection = projection.stride(config.patch_size);
        normal_(&projection.weight, 0.0, range);
        if let Some(bias) = &projection.bias {
            no_grad(|| _ = bias.fill_(0.0));
        }
        let [height, across] = config.image_size;
        ViTEmbeddings {
            cls_token: table(1),
            position_embeddings: table(config.num_patches() + 1),
            patch_embeddings: ViTPatchEmbeddings { projection },
            dropout: Dropout::new(config.hidden_dropout_prob),
            image: [config.num_channels, height, across],
        }
    }
}

impl Forward for ViTEmbeddings {
    /// `[batch, patches + 1, hidden_size]` of images `[batch, channels, height, width]`.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, pixel_values: &Tensor) -> Tensor {
        if pixel_values.dim() != 4 || pixel_values.shape()[1..] != self.image {
            let [channels, height, width] = self.image;
            let message = format!(
                "pixel_values is {:?}; must be [batch, {channels}, {height}, {width}]",
                pixel_values.shape()
            );
            throw(Error::shape(NAME, message));
        }
        let patches = self.patch_embeddings.projection.forward(pixel_values);
        let patches = patches.flatten(2, 3).transpose(1, 2);
        let (batch, width) = (patches.size(0), patches.size(2));
        let whole = self.cls_token.to_dtype(patches.dtype()).expand(&[batch, 1, width]);
        let x = Tensor::cat(&[whole, patches], 1);
        self.dropout.forward(&(x + self.position_embeddings.tensor()))
    }

    fn onnx(&self, graph: &mut Graph, pixel_values: &Value) -> Result<Value> {
        let image = self.image.map(Dim::Fixed);
        if pixel_values.dim() != 4 || pixel_values.shape()[1..] != image {
            let message =
                format!("pixel_values is {:?}; must be [batch, ..{image:?}]", pixel_values.shape());
            return Err(Error::shape(NAME, message));
        }
        let patches = self.patch_embeddings.projection.onnx(graph, pixel_values)?;
        let patches = graph.flatten(&patches, 2, 3)?;
        let patches = graph.transpose(&patches, &[0, 2, 1])?;
        let whole = graph.constant(&self.cls_token);
        let whole = graph.for_each(&whole, &patches)?;
        let x = graph.concat(&[&whole, &patches], 1)?;
        let places = graph.constant(&self.position_embeddings);
        graph.binary("Add", &x, &places)
    }
}

/// Attention and what takes its heads together (`ViTAttention`).
#[derive(Module)]
pub struct ViTAttention {
    /// The attention.
    pub attention: EncoderSelfAttention,
    /// Of the heads' results.
    pub output: EncoderDense,
}

/// Attention and a feed-forward layer, each beside a shortcut and behind a norm (`ViTLayer`).
#[derive(Module)]
pub struct ViTLayer {
    /// The attention.
    pub attention: ViTAttention,
    /// To the inner width.
    pub intermediate: EncoderIntermediate,
    /// Back.
    pub output: EncoderDense,
    /// Before the attention.
    pub layernorm_before: LayerNorm,
    /// Before the feed-forward layer.
    pub layernorm_after: LayerNorm,
}

pub(super) fn norm(config: &ViTConfig) -> LayerNorm {
    LayerNorm::new(config.hidden_size).eps(config.layer_norm_eps)
}

impl ViTLayer {
    #[track_caller]
    pub(super) fn new(config: &ViTConfig) -> Self {
        let sizes = config.sizes();
        let dense = |inputs| {
            EncoderDense::new(sizes.range, inputs, sizes.width, config.hidden_dropout_prob)
        };
        ViTLayer {
            attention: ViTAttention {
                attention: EncoderSelfAttention::new(&sizes),
                output: dense(sizes.width),
            },
            intermediate: EncoderIntermediate::new(&sizes),
            output: dense(sizes.inner),
            layernorm_before: norm(config),
            layernorm_after: norm(config),
        }
    }

    /// The layer's results are the sum of what it gives, and its input that of `x` and `added`: the next norm adds them.
    #[track_caller]
    pub(super) fn forward(&self, (x, added): (Tensor, Option<Tensor>)) -> (Tensor, Option<Tensor>) {
        let (x, y) = match added {
            Some(added) => self.layernorm_before.forward_add_for_linear(&x, &added),
            None => {
                let y = self.layernorm_before.forward_for_linear(&x);
                (x, y)
            }
        };
        let heads = self.attention.attention.forward(&y, &AttentionOptions::default());
        let y = self.attention.output.forward(&heads);
        let (x, y) = self.layernorm_after.forward_add_for_linear(&x, &y);
        (x, Some(self.output.forward(&self.intermediate.forward(&y))))
    }

    pub(super) fn onnx(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
        let y = self.layernorm_before.onnx(graph, x)?;
        let heads = self.attention.attention.onnx(graph, &y, Seen::All)?;
        let y = self.attention.output.onnx(graph, &heads)?;
        let x = graph.binary("Add", x, &y)?;
        let y = self.layernorm_after.onnx(graph, &x)?;
        let y = self.intermediate.onnx(graph, &y)?;
        let y = self.output.onnx(graph, &y)?;
        graph.binary("Add", &x, &y)
    }
}

/// The layers one behind the other (`ViTEncoder`).
#[derive(Module)]
pub struct ViTEncoder {
    /// The layers.
    pub layer: Vec<ViTLayer>,
}
