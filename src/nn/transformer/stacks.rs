//! Stacks of layers, and the whole transformer.

use super::layers::{TransformerDecoderLayer, TransformerEncoderLayer, TransformerOptions};
use crate::error::{Error, Result, throw};
use crate::nn::{Forward, LayerNorm, Module, init};
use crate::onnx::{Graph, Value};
use crate::tensor::Tensor;

/// Encoder layers one after the other (`torch.nn.TransformerEncoder`).
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::{TransformerEncoder, TransformerEncoderLayer}};
/// let layers = (0..2).map(|_| TransformerEncoderLayer::new(8, 2, Default::default())).collect();
/// let encoder = TransformerEncoder::new(layers, None);
/// assert_eq!(encoder.forward(&Tensor::ones([5, 3, 8], Dtype::F32), None, None).shape(), &[5, 3, 8]);
/// ```
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
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Module, TransformerEncoder, TransformerEncoderLayer}};
    /// let layer = TransformerEncoderLayer::new(8, 2, Default::default());
    /// let encoder = TransformerEncoder::new(vec![layer.clone(), layer.clone()], None);
    /// encoder.eval();
    /// layer.eval();
    /// let x = Tensor::ones([5, 3, 8], Dtype::F32);
    /// let twice = layer.forward(&layer.forward(&x, None, None), None, None);
    /// assert!(encoder.forward(&x, None, None).equal(&twice));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for shapes that do not fit.
    #[track_caller]
    #[crate::nn::forward]
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

    /// What [`forward`](Self::forward) computes in evaluation, as part of a graph of [ONNX](crate::onnx); masks as in
    /// [`MultiheadAttention::onnx`](super::MultiheadAttention::onnx).
    ///
    /// ```
    /// use torchrs::{Dtype, nn::{TransformerEncoder, TransformerEncoderLayer}, onnx::Graph};
    /// let layers = (0..2).map(|_| TransformerEncoderLayer::new(8, 2, Default::default())).collect();
    /// let (encoder, mut graph) = (TransformerEncoder::new(layers, None), Graph::new());
    /// let x = graph.input("x", Dtype::F32, ["length".into(), "batch".into(), 8.into()]);
    /// let padding = graph.input("padding", Dtype::Bool, ["batch".into(), "length".into()]);
    /// assert_eq!(encoder.onnx(&mut graph, &x, None, Some(&padding))?.shape(), x.shape());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As that.
    pub fn onnx(
        &self,
        graph: &mut Graph,
        src: &Value,
        mask: Option<&Value>,
        src_key_padding_mask: Option<&Value>,
    ) -> Result<Value> {
        let step = |x: Value, layer: &TransformerEncoderLayer| {
            layer.onnx(graph, &x, mask, src_key_padding_mask)
        };
        let out = self.layers.iter().try_fold(src.clone(), step)?;
        match &self.norm {
            Some(norm) => norm.onnx(graph, &out),
            None => Ok(out),
        }
    }
}

/// Decoder layers one after the other (`torch.nn.TransformerDecoder`).
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::{TransformerDecoder, TransformerDecoderLayer}};
/// let layers = (0..2).map(|_| TransformerDecoderLayer::new(8, 2, Default::default())).collect();
/// let decoder = TransformerDecoder::new(layers, None);
/// let (target, memory) = (Tensor::ones([5, 3, 8], Dtype::F32), Tensor::ones([7, 3, 8], Dtype::F32));
/// assert_eq!(decoder.forward(&target, &memory, (None, None), (None, None)).shape(), &[5, 3, 8]);
/// ```
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
    /// ```
    /// use torchrs::nn::{Module, TransformerDecoder, TransformerDecoderLayer};
    /// use torchrs::{Dtype, Tensor, nn::generate_square_subsequent_mask};
    /// let layer = TransformerDecoderLayer::new(8, 2, Default::default());
    /// let decoder = TransformerDecoder::new(vec![layer], None);
    /// decoder.eval();
    /// let (x, memory) = (Tensor::randn([4, 1, 8], Dtype::F32), Tensor::ones([7, 1, 8], Dtype::F32));
    /// // With a causal mask, what comes later does not change what was before.
    /// let mask = generate_square_subsequent_mask(4);
    /// let whole = decoder.forward(&x, &memory, (Some(&mask), None), (None, None)).narrow(0, 0, 1);
    /// let first = decoder.forward(&x.narrow(0, 0, 1), &memory, (None, None), (None, None));
    /// assert!((whole - first).abs().max().item() < 1e-5);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for shapes that do not fit.
    #[track_caller]
    #[crate::nn::forward]
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

    /// What [`forward`](Self::forward) computes in evaluation, as part of a graph of [ONNX](crate::onnx); masks as in
    /// [`MultiheadAttention::onnx`](super::MultiheadAttention::onnx).
    ///
    /// # Errors
    /// As that.
    pub fn onnx(
        &self,
        graph: &mut Graph,
        tgt: &Value,
        memory: &Value,
        tgt_masks: (Option<&Value>, Option<&Value>),
        memory_masks: (Option<&Value>, Option<&Value>),
    ) -> Result<Value> {
        let step = |x: Value, layer: &TransformerDecoderLayer| {
            layer.onnx(graph, &x, memory, tgt_masks, memory_masks)
        };
        let out = self.layers.iter().try_fold(tgt.clone(), step)?;
        match &self.norm {
            Some(norm) => norm.onnx(graph, &out),
            None => Ok(out),
        }
    }
}

/// Masks of a [`Transformer`], as in
/// [`MultiheadAttention::forward`](super::MultiheadAttention::forward).
///
/// ```
/// use torchrs::nn::{Transformer, TransformerMasks, TransformerOptions, generate_square_subsequent_mask};
/// use torchrs::{Dtype, Tensor};
/// let options = TransformerOptions { dim_feedforward: 16, ..Default::default() };
/// let model = Transformer::new(8, 2, 1, 1, options);
/// let (source, target) = (Tensor::ones([7, 3, 8], Dtype::F32), Tensor::ones([5, 3, 8], Dtype::F32));
/// let tgt_mask = Some(generate_square_subsequent_mask(5));
/// let masks = TransformerMasks { tgt_mask, ..Default::default() };
/// assert_eq!(model.forward(&source, &target, &masks).shape(), &[5, 3, 8]);
/// ```
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
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::Transformer};
/// let model = Transformer::new(8, 2, 1, 2, Default::default());
/// let (source, target) = (Tensor::ones([7, 3, 8], Dtype::F32), Tensor::ones([5, 3, 8], Dtype::F32));
/// assert_eq!(model.forward(&source, &target, &Default::default()).shape(), &[5, 3, 8]);
/// ```
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
    /// ```
    /// use torchrs::nn::Transformer;
    /// let model = Transformer::new(8, 2, 1, 3, Default::default());
    /// assert_eq!((model.encoder.layers.len(), model.decoder.layers.len()), (1, 3));
    /// ```
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
    /// ```
    /// use torchrs::{Dtype, Tensor, catch, nn::{Transformer, TransformerOptions}};
    /// let options = TransformerOptions { batch_first: true, ..Default::default() };
    /// let model = Transformer::new(8, 2, 1, 1, options);
    /// let (source, target) = (Tensor::ones([3, 7, 8], Dtype::F32), Tensor::ones([3, 5, 8], Dtype::F32));
    /// assert_eq!(model.forward(&source, &target, &Default::default()).shape(), &[3, 5, 8]);
    /// let fewer = target.narrow(0, 0, 2);
    /// assert!(catch(|| model.forward(&source, &fewer, &Default::default())).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for shapes that do not fit.
    #[track_caller]
    #[crate::nn::forward]
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
