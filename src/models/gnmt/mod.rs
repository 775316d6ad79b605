//! GNMT v2, a translation model of LSTM layers with attention (Wu et al., "Google's Neural Machine
//! Translation System", 2016; attention as in Bahdanau et al. 2014). The model and its names are those
//! of `PyTorch/Translation/GNMT` in NVIDIA's DeepLearningExamples, which is also MLPerf's: the output
//! of the decoder's first layer is the query, and what it attends to goes into all further layers.

mod attention;
mod decoder;
mod encoder;

pub use attention::{BahdanauAttention, BahdanauAttentionOptions};
pub use decoder::{
    Classifier, Decoded, DecodedValues, RecurrentAttention, ResidualRecurrentDecoder,
};
pub use encoder::ResidualRecurrentEncoder;

use crate::autograd::no_grad;
use crate::error::{Error, Result, throw};
use crate::nn::{Embedding, LSTM, Module, RNNOptions, init::uniform_, init::zeros_};
use crate::onnx::{Graph, Value};
use crate::tensor::Tensor;

/// The token behind the end of a shorter sentence.
const PAD: i64 = 0;
/// The token before the first word.
const BOS: i64 = 2;
/// The token behind the last word.
const EOS: i64 = 3;
/// Weights start uniform between this and its negative.
const INIT_WEIGHT: f64 = 0.1;

/// Options of [`GNMT`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GNMTOptions {
    /// Number of different tokens, of both languages.
    pub vocab_size: usize,
    /// Width of all layers.
    pub hidden_size: usize,
    /// Layers of the encoder and of the decoder, each; at least 2.
    pub num_layers: usize,
    /// Dropout on the input of each layer.
    pub dropout: f64,
    /// Sentences are `[batch, time]`, not `[time, batch]`.
    pub batch_first: bool,
    /// Whether encoder and decoder have one table of words.
    pub share_embedding: bool,
}

impl GNMTOptions {
    /// With PyTorch's defaults: width 1024, 4 layers, dropout 0.2, time first, one table of words.
    pub fn new(vocab_size: usize) -> Self {
        GNMTOptions {
            vocab_size,
            hidden_size: 1024,
            num_layers: 4,
            dropout: 0.2,
            batch_first: false,
            share_embedding: true,
        }
    }
}

/// An encoder and a decoder (`GNMT`). Token 0 is padding, 2 begins and 3 ends a sentence.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::models::{GNMT, GNMTOptions};
/// let options = GNMTOptions { hidden_size: 8, num_layers: 2, ..GNMTOptions::new(20) };
/// let model = GNMT::new(options);
/// // Two sentences, of lengths 3 and 2, and the beginnings of their translations.
/// let source = Tensor::from([[5i64, 7], [6, 3], [3, 0]]);
/// let target = Tensor::from([[2i64, 2], [9, 8]]);
/// assert_eq!(model.forward(&source, &[3, 2], &target).shape(), &[2, 2, 20]);
/// ```
#[derive(Module)]
#[module(name = "GNMT")]
pub struct GNMT {
    /// Reads the source.
    pub encoder: ResidualRecurrentEncoder,
    /// Writes the target.
    pub decoder: ResidualRecurrentDecoder,
    #[module(skip)]
    batch_first: bool,
}

impl GNMT {
    /// Weights start uniform within 0.1.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for fewer than 2 layers or a vocabulary without the special tokens.
    #[track_caller]
    pub fn new(options: GNMTOptions) -> Self {
        if options.num_layers < 2 {
            let message = format!("{}; must be at least 2", options.num_layers);
            throw(Error::argument("Gnmt", "num_layers", message));
        }
        if options.vocab_size as i64 <= EOS {
            let message = format!("{}; tokens 0 to {EOS} are special", options.vocab_size);
            throw(Error::argument("Gnmt", "vocab_size", message));
        }
        let encoder = ResidualRecurrentEncoder::new(&options);
        let mut decoder = ResidualRecurrentDecoder::new(&options);
        if options.share_embedding {
            decoder.embedder.weight = encoder.embedder.weight.clone();
        }
        GNMT { encoder, decoder, batch_first: options.batch_first }
    }

    /// Logits of each next token, `[time, batch, vocab_size]` (`[batch, time, vocab_size]` with
    /// `batch_first`), from source sentences, their lengths without padding, and target sentences.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for inputs that do not fit, [`Error::Argument`] for lengths that do not.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward(&self, source: &Tensor, lengths: &[usize], target: &Tensor) -> Tensor {
        let context = self.encoder.forward(source, lengths);
        self.decoder.forward(target, &context, lengths, None).logits
    }

    /// [`forward`](Self::forward) as part of a graph of [ONNX](crate::onnx), with lengths `[batch]` of i64. To translate
    /// word by word, a graph of the [encoder](ResidualRecurrentEncoder::onnx) and one of the
    /// [decoder](ResidualRecurrentDecoder::onnx) with its state are needed.
    ///
    /// ```
    /// use torchrs::{Dtype, checkpoint::onnx_graph, models::{GNMT, GNMTOptions}};
    /// let model = GNMT::new(GNMTOptions { hidden_size: 8, num_layers: 2, ..GNMTOptions::new(20) });
    /// let mut graph = onnx_graph(&model)?;
    /// let source = graph.input("source", Dtype::I64, ["source time".into(), "batch".into()]);
    /// let lengths = graph.input("lengths", Dtype::I64, ["batch".into()]);
    /// let target = graph.input("target", Dtype::I64, ["target time".into(), "batch".into()]);
    /// let logits = model.onnx(&mut graph, &source, &lengths, &target)?;
    /// graph.output("logits", &logits);
    /// assert_eq!(logits.shape(), ["target time".into(), "batch".into(), 20.into()]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As the nodes, for shapes that do not fit.
    pub fn onnx(
        &self,
        graph: &mut Graph,
        source: &Value,
        lengths: &Value,
        target: &Value,
    ) -> Result<Value> {
        let context = self.encoder.onnx(graph, source, lengths)?;
        Ok(self.decoder.onnx(graph, target, &context, lengths, None)?.logits)
    }

    /// The likeliest translation, word by word, of each source sentence: its tokens up to the one that
    /// ends it, at most `max_len`. Runs without gradients; call [`eval`](Module::eval) before it.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    #[track_caller]
    pub fn translate(&self, source: &Tensor, lengths: &[usize], max_len: usize) -> Vec<Vec<i64>> {
        no_grad(|| {
            let context = self.encoder.forward(source, lengths);
            let mut words = vec![BOS; lengths.len()];
            let mut sentences = vec![Vec::new(); lengths.len()];
            let mut state = None;
            for _ in 0..max_len {
                let step = if self.batch_first { [words.len(), 1] } else { [1, words.len()] };
                let inputs = Tensor::from_slice(&words, step).to_device(source.device());
                let decoded = self.decoder.forward(&inputs, &context, lengths, state.as_deref());
                words = decoded.logits.argmax_dim(-1, false).reshape([-1]).to_vec();
                state = Some(decoded.state);
                for (sentence, &word) in sentences.iter_mut().zip(&words) {
                    if sentence.last() != Some(&EOS) {
                        sentence.push(word);
                    }
                }
                if sentences.iter().all(|sentence| sentence.last() == Some(&EOS)) {
                    break;
                }
            }
            sentences
        })
    }
}

/// One LSTM layer with this model's initial values: of the two biases one starts at 0.
#[track_caller]
fn lstm(inputs: usize, hidden: usize, bidirectional: bool, batch_first: bool) -> LSTM {
    let options = RNNOptions { bidirectional, batch_first, ..Default::default() };
    let layer = LSTM::new(inputs, hidden, options);
    for (name, parameter) in layer.named_parameters() {
        match name.starts_with("bias_hh") {
            true => zeros_(&parameter),
            false => uniform_(&parameter, -INIT_WEIGHT, INIT_WEIGHT),
        }
    }
    layer
}

/// A table of words. The row of the padding starts like the others, but is never trained.
fn embedder(options: &GNMTOptions) -> Embedding {
    let table = Embedding::new(options.vocab_size, options.hidden_size).padding_idx(PAD);
    uniform_(&table.weight, -INIT_WEIGHT, INIT_WEIGHT);
    table
}
