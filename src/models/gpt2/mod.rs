//! GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019), as in
//! `transformers.models.gpt2`.

mod block;
mod config;

pub use block::{Conv1D, GPT2Attention, GPT2Block, GPT2MLP};
pub use config::GPT2Config;

use super::decoder::{self, DecoderInputs, GenerateOptions, KeyValueCache, NextToken};
use super::pretrained::{Names, Published, settings::Table};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nn::{Dropout, Embedding, Forward, LayerNorm, Linear, Module, init::normal_};
use crate::onnx::{Graph, Value};
use crate::tensor::Tensor;

/// The model's name in errors.
const NAME: &str = "GPT2";

/// GPT-2 without the layer that guesses the next token (`GPT2Model`).
#[derive(Module)]
pub struct GPT2Model {
    /// Of tokens, `[vocab_size, n_embd]`.
    pub wte: Embedding,
    /// Of positions, `[n_positions, n_embd]`.
    pub wpe: Embedding,
    /// On their sum.
    pub drop: Dropout,
    /// The blocks.
    pub h: Vec<GPT2Block>,
    /// Behind the blocks.
    pub ln_f: LayerNorm,
    config: GPT2Config,
}

impl GPT2Model {
    /// Weights start normal with deviation `initializer_range`, those of layers that add to a shortcut
    /// smaller by the root of their number; biases at 0.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for sizes that cannot be.
    #[track_caller]
    pub fn new(config: GPT2Config) -> Self {
        config.check();
        let table = |rows| {
            let table = Embedding::new(rows, config.n_embd);
            normal_(&table.weight, 0.0, config.initializer_range);
            table
        };
        GPT2Model {
            wte: table(config.vocab_size),
            wpe: table(config.n_positions),
            drop: Dropout::new(config.embd_pdrop),
            h: (0..config.n_layer).map(|layer| GPT2Block::new(&config, layer)).collect(),
            ln_f: LayerNorm::new(config.n_embd).eps(config.layer_norm_epsilon),
            config,
        }
    }

    /// The last features, `[batch, length, n_embd]`, of tokens `[batch, length]`.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for inputs of other shapes, and [`Error::Argument`] for more tokens than
    /// the model has positions.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward_with(&self, input_ids: &Tensor, mut inputs: DecoderInputs) -> Tensor {
        let (past, length) = decoder::lengths(NAME, input_ids, &inputs, self.config.longest());
        let positions = match inputs.position_ids {
            Some(positions) => positions.clone(),
            None => decoder::positions(past, length, input_ids),
        };
        let x = self.wte.forward(input_ids) + self.wpe.forward(&positions);
        let attention = decoder::attention(NAME, past, length, inputs.attention_mask, &x);
        let mut x = (self.drop.forward(&x), None);
        for block in &self.h {
            x = block.forward(x, &attention, inputs.cache.as_deref_mut());
        }
        match x {
            (x, Some(added)) => self.ln_f.forward_add(&x, &added).1,
            (x, None) => self.ln_f.forward(&x),
        }
    }
}

impl Forward for GPT2Model {
    /// [`GPT2Model::forward_with`] without further inputs.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input_ids: &Tensor) -> Tensor {
        self.forward_with(input_ids, DecoderInputs::default())
    }

    fn onnx(&self, graph: &mut Graph, input_ids: &Value) -> Result<Value> {
        decoder::check_onnx("GPT2Model", input_ids)?;
        let places = graph.positions(input_ids, 1);
        let [tokens, places] = [self.wte.onnx(graph, input_ids)?, self.wpe.onnx(graph, &places)?];
        let x = graph.binary("Add", &tokens, &places)?;
        let x = self.h.iter().try_fold(x, |x, block| block.onnx(graph, &x))?;
        self.ln_f.onnx(graph, &x)
    }
}

/// GPT-2 with the layer that guesses the next token (`GPT2LMHeadModel`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::models::{GPT2Config, GPT2LMHeadModel, GenerateOptions};
/// use torchrs::nn::{Forward, Module};
/// let sizes = GPT2Config { vocab_size: 50, n_positions: 16, n_embd: 8, ..Default::default() };
/// let model = GPT2LMHeadModel::new(GPT2Config { n_layer: 2, n_head: 2, ..sizes });
/// let tokens = Tensor::from([[3i64, 14, 15]]);
/// assert_eq!(model.forward(&tokens).shape(), &[1, 3, 50]);
/// model.eval();
/// let options = GenerateOptions { max_new_tokens: 4, ..Default::default() };
/// assert_eq!(model.generate(&tokens, options).shape(), &[1, 7]);
/// ```
#[derive(Module)]
pub struct GPT2LMHeadModel {
    /// All but the last layer.
    pub transformer: GPT2Model,
    /// To the logits; its weight is that of `wte`, if the two are tied.
    pub lm_head: Linear,
}

impl GPT2LMHeadModel {
    /// As [`GPT2Model::new`].
    ///
    /// # Panics
    /// As that.
    #[track_caller]
    pub fn new(config: GPT2Config) -> Self {
        let transformer = GPT2Model::new(config);
        let lm_head = match config.tie_word_embeddings {
            true => Linear::from_parameters(transformer.wte.weight.clone(), None),
            false => {
                let layer = Linear::no_bias(config.n_embd, config.vocab_size);
                normal_(&layer.weight, 0.0, config.initializer_range);
                layer
            }
        };
        GPT2LMHeadModel { transformer, lm_head }
    }

    /// The settings.
    pub fn config(&self) -> &GPT2Config {
        &self.transformer.config
    }

    /// The logits of each next token, `[batch, length, vocab_size]`; as
    /// [`GPT2Model::forward_with`] otherwise.
    ///
    /// # Panics
    /// As that.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward_with(&self, input_ids: &Tensor, inputs: DecoderInputs) -> Tensor {
        self.logits(&self.transformer.forward_with(input_ids, inputs))
    }

    #[track_caller]
    fn logits(&self, hidden: &Tensor) -> Tensor {
        self.lm_head.forward(hidden)
    }

    /// The mean cross-entropy of each token's guess of the next one (`model(input_ids,
    /// labels=labels).loss`). `labels` are usually `input_ids`; those of -100 do not count. Not all logits are in
    /// memory at once where they are many: [`Linear::cross_entropy`].
    ///
    /// # Panics
    /// As [`GPT2Model::forward_with`]; throws [`Error::Shape`] for labels of another shape and for
    /// less than two tokens.
    #[track_caller]
    #[crate::nn::forward]
    pub fn loss(&self, input_ids: &Tensor, labels: &Tensor) -> Tensor {
        let features = || self.transformer.forward_with(input_ids, DecoderInputs::default());
        let tokens = [input_ids, labels];
        decoder::next_token_loss("GPT2LMHeadModel::loss", &self.lm_head, tokens, features)
    }

    /// The mean cross-entropy of each token's guess against its own target, which is the next token already: as
    /// [`loss`](Self::loss) otherwise, also of a single token.
    ///
    /// # Panics
    /// As that.
    #[track_caller]
    #[crate::nn::forward]
    pub fn token_loss(&self, input_ids: &Tensor, targets: &Tensor) -> Tensor {
        let features = || self.transformer.forward_with(input_ids, DecoderInputs::default());
        let tokens = [input_ids, targets];
        decoder::token_loss("GPT2LMHeadModel::token_loss", &self.lm_head, tokens, features)
    }

    /// `input_ids`, `[batch, length]`, with what the model makes of them, `[batch, length + new]`.
    /// All sequences of the batch have the same length. Runs without gradients; call
    /// [`eval`](crate::nn::Module::eval) before it. Draws from the default random generator.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for an input of other dimensions or without tokens, and
    /// [`Error::Argument`] when the sequences get longer than the model's positions, or the
    /// temperature is not positive.
    #[track_caller]
    pub fn generate(&self, input_ids: &Tensor, options: GenerateOptions) -> Tensor {
        decoder::generate(self, input_ids, &options)
    }
}

impl Forward for GPT2LMHeadModel {
    /// [`GPT2LMHeadModel::forward_with`] without further inputs.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input_ids: &Tensor) -> Tensor {
        self.forward_with(input_ids, DecoderInputs::default())
    }

    fn onnx(&self, graph: &mut Graph, input_ids: &Value) -> Result<Value> {
        let x = self.transformer.onnx(graph, input_ids)?;
        self.lm_head.onnx(graph, &x)
    }
}

impl NextToken for GPT2LMHeadModel {
    fn longest(&self) -> (usize, &'static str) {
        self.config().longest()
    }

    #[track_caller]
    fn next_logits(&self, tokens: &Tensor, cache: Option<&mut KeyValueCache>) -> Tensor {
        let inputs = DecoderInputs { cache, ..Default::default() };
        self.logits(&self.transformer.forward_with(tokens, inputs).select(1, -1))
    }
}

impl Published for GPT2Model {
    const NAMES: Names = Names {
        base: "transformer.",
        heads: &[],
        spare: &[],
        others: &["lm_head.", "multiple_choice_head.", "score.", "classifier.", "qa_outputs."],
        renamed: &[],
    };

    fn config_table(&self) -> Result<Table> {
        self.config.table()
    }
}

impl Published for GPT2LMHeadModel {
    const NAMES: Names = Names {
        base: "transformer.",
        heads: &["lm_head."],
        spare: &[],
        others: &["multiple_choice_head.", "score.", "classifier.", "qa_outputs."],
        renamed: &[],
    };

    fn config_table(&self) -> Result<Table> {
        self.config().table()
    }

    fn tied(&self) -> &'static [(&'static str, &'static str)] {
        match self.config().tie_word_embeddings {
            true => &[("lm_head.weight", "transformer.wte.weight")],
            false => &[],
        }
    }
}
