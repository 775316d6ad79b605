//! Stacks of layers, and the whole transformer.

use super::layers::{TransformerDecoderLayer, TransformerEncoderLayer, TransformerOptions};
use crate::Tensor;
use crate::error::{Error, throw};
use crate::nn::{Forward, LayerNorm, Module, init};

/// Encoder layers one after the other (`torch.nn.TransformerEncoder`).
#[derive(Module, Clone)]
pub struct TransformerEncoder {
    /// The layers.
    pub layers: Vec<TransformerEncoderLayer>,
    /// Of the last layer's output.
    pub norm: Option<LayerNorm>,
}

impl TransformerEncoder {
    /// Layers that are made one by one, so each has its own initial weights.
    pub fn new(layers: Vec<TransformerEncoderLayer>, norm: Option<LayerNorm>) -> Self {
        TransformerEncoder { layers, norm }
    }

    /// The output, shaped like `src`.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for shapes that do not fit.
    #[track_caller]
    pub fn forward(
        &self,
        src: &Tensor,
        mask: Option<&Tensor>,
        src_key_padding_mask: Option<&Tensor>,
    ) -> Tensor {
        let step = |x: Tensor, layer: &TransformerEncoderLayer| {
            layer.forward(&x, mask, src_key_padding_mask)
        };
        let out = self.layers.iter().fold(src.clone(), step);
        self.norm.as_ref().map_or(out.clone(), |norm| norm.forward(&out))
    }
}

/// Decoder layers one after the other (`torch.nn.TransformerDecoder`).
#[derive(Module, Clone)]
pub struct TransformerDecoder {
    /// The layers.
    pub layers: Vec<TransformerDecoderLayer>,
    /// Of the last layer's output.
    pub norm: Option<LayerNorm>,
}

impl TransformerDecoder {
    /// Layers that are made one by one, so each has its own initial weights.
    pub fn new(layers: Vec<TransformerDecoderLayer>, norm: Option<LayerNorm>) -> Self {
        TransformerDecoder { layers, norm }
    }

    /// The output, shaped like `tgt`; arguments as in [`TransformerDecoderLayer::forward`].
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for shapes that do not fit.
    #[track_caller]
    pub fn forward(
        &self,
        tgt: &Tensor,
        memory: &Tensor,
        tgt_masks: (Option<&Tensor>, Option<&Tensor>),
        memory_masks: (Option<&Tensor>, Option<&Tensor>),
    ) -> Tensor {
        let step = |x: Tensor, layer: &TransformerDecoderLayer| {
            layer.forward(&x, memory, tgt_masks, memory_masks)
        };
        let out = self.layers.iter().fold(tgt.clone(), step);
        self.norm.as_ref().map_or(out.clone(), |norm| norm.forward(&out))
    }
}

/// Masks of a [`Transformer`], as in
/// [`MultiheadAttention::forward`](super::MultiheadAttention::forward).
#[derive(Clone, Debug, Default)]
pub struct TransformerMasks {
    /// Of the encoder's attention.
    pub src_mask: Option<Tensor>,
    /// Of the decoder's attention to itself.
    pub tgt_mask: Option<Tensor>,
    /// Of the decoder's attention to the encoder's output.
    pub memory_mask: Option<Tensor>,
    /// Padding of the source.
    pub src_key_padding_mask: Option<Tensor>,
    /// Padding of the target.
    pub tgt_key_padding_mask: Option<Tensor>,
    /// Padding of the encoder's output.
    pub memory_key_padding_mask: Option<Tensor>,
}

/// An encoder and a decoder that attends to it (`torch.nn.Transformer`).
#[derive(Module, Clone)]
pub struct Transformer {
    /// Reads the source.
    pub encoder: TransformerEncoder,
    /// Writes the target.
    pub decoder: TransformerDecoder,
}

impl Transformer {
    /// All matrices start by Xavier's rule.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `d_model` is not a multiple of `nhead`.
    #[track_caller]
    pub fn new(
        d_model: usize,
        nhead: usize,
        num_encoder_layers: usize,
        num_decoder_layers: usize,
        options: TransformerOptions,
    ) -> Self {
        let encoder = |_| TransformerEncoderLayer::new(d_model, nhead, options);
        let decoder = |_| TransformerDecoderLayer::new(d_model, nhead, options);
        let norm = || Some(options.norm(d_model));
        let model = Transformer {
            encoder: TransformerEncoder::new(
                (0..num_encoder_layers).map(encoder).collect(),
                norm(),
            ),
            decoder: TransformerDecoder::new(
                (0..num_decoder_layers).map(decoder).collect(),
                norm(),
            ),
        };
        for matrix in model.parameters().iter().filter(|p| p.dim() > 1) {
            init::xavier_uniform_(matrix, 1.0);
        }
        model
    }

    /// The decoder's output for target `tgt`, shaped like it, given source `src`.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for shapes that do not fit.
    #[track_caller]
    pub fn forward(&self, src: &Tensor, tgt: &Tensor, masks: &TransformerMasks) -> Tensor {
        let batch = |t: &Tensor| {
            let first = self.encoder.layers.first().is_some_and(|layer| layer.batch_first());
            t.size(if first { 0 } else { 1 })
        };
        if src.dim() != tgt.dim() || (src.dim() == 3 && batch(src) != batch(tgt)) {
            let message = format!(
                "source and target must have the same batch size, got {:?} and {:?}",
                src.shape(),
                tgt.shape()
            );
            throw(Error::shape("Transformer", message));
        }
        let memory =
            self.encoder.forward(src, masks.src_mask.as_ref(), masks.src_key_padding_mask.as_ref());
        self.decoder.forward(
            tgt,
            &memory,
            (masks.tgt_mask.as_ref(), masks.tgt_key_padding_mask.as_ref()),
            (masks.memory_mask.as_ref(), masks.memory_key_padding_mask.as_ref()),
        )
    }
}
