//! Llama (Touvron et al., 2023; "The Llama 3 Herd of Models", 2024), as in `transformers.models.llama`.

mod block;
mod config;
mod rotary;

pub use block::{LlamaAttention, LlamaDecoderLayer, LlamaMLP};
pub use config::{LlamaConfig, RopeScaling};

use self::block::Shared;
use self::rotary::Rotary;
use super::decoder::{
    self, ActivationCheckpointing, DecoderInputs, GenerateOptions, KeyValueCache, NextToken,
};
use super::pretrained::{Names, Published, settings};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::nn::{Embedding, Forward, Linear, Module, RMSNorm, init::normal_};
use crate::onnx::{Graph, Value};
use crate::tensor::{Dtype, Tensor};

/// The model's name in errors.
const NAME: &str = "Llama";

/// Llama without the layer that guesses the next token (`LlamaModel`).
#[derive(Module)]
pub struct LlamaModel {
    /// Of tokens, `[vocab_size, hidden_size]`.
    pub embed_tokens: Embedding,
    /// The blocks.
    pub layers: Vec<LlamaDecoderLayer>,
    /// Behind the blocks.
    pub norm: RMSNorm,
    #[module(skip)]
    rotary: Rotary,
    #[module(skip)]
    checkpointing: ActivationCheckpointing,
    #[module(skip)]
    config: LlamaConfig,
}

impl LlamaModel {
    /// Weights start normal with deviation `initializer_range`, those of norms at 1, biases at 0.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for sizes that cannot be.
    #[track_caller]
    pub fn new(config: LlamaConfig) -> Self {
        config.check();
        let embed_tokens = Embedding::new(config.vocab_size, config.hidden_size);
        normal_(&embed_tokens.weight, 0.0, config.initializer_range);
        let block = |layer| LlamaDecoderLayer::new(&config, layer);
        LlamaModel {
            embed_tokens,
            layers: (0..config.num_hidden_layers).map(block).collect(),
            norm: block::norm(&config),
            rotary: Rotary::new(config.frequencies()),
            checkpointing: ActivationCheckpointing::None,
            config,
        }
    }

    /// What blocks keep for backward, from the next forward on.
    pub fn set_activation_checkpointing(&mut self, how: ActivationCheckpointing) {
        self.checkpointing = how;
    }

    /// The last features, `[batch, length, hidden_size]`, of tokens `[batch, length]`.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for inputs of other shapes, and [`Error::Argument`] for more tokens than
    /// the model has positions.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward_with(&self, input_ids: &Tensor, mut inputs: DecoderInputs) -> Tensor {
        let (past, length) = decoder::lengths(NAME, input_ids, &inputs, self.config.longest());
        let mut x = self.embed_tokens.forward(input_ids);
        let attention = decoder::attention(NAME, past, length, inputs.attention_mask, &x);
        let [cos, sin] = match inputs.position_ids {
            Some(places) => {
                decoder::check_positions(NAME, places, input_ids);
                self.rotary.of(places, &x)
            }
            None => self.rotary.from(past, length, &x),
        };
        let shared = Shared { attention, cos, sin };
        for block in &self.layers {
            x = match inputs.cache.as_deref_mut() {
                Some(cache) => block.forward(&x, &shared, Some(cache)),
                None => {
                    let (block, shared) = (block.clone(), shared.clone());
                    self.checkpointing.run(move |x| block.forward(x, &shared, None), &x)
                }
            };
        }
        self.norm.forward(&x)
    }
}

impl Forward for LlamaModel {
    /// [`LlamaModel::forward_with`] without further inputs.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input_ids: &Tensor) -> Tensor {
        self.forward_with(input_ids, DecoderInputs::default())
    }

    fn onnx(&self, graph: &mut Graph, input_ids: &Value) -> Result<Value> {
        decoder::check_onnx(NAME, input_ids)?;
        let places = graph.positions(input_ids, 1);
        let mut x = self.embed_tokens.onnx(graph, input_ids)?;
        let longest = Tensor::arange(0i64, self.config.longest().0 as i64, 1i64, Dtype::I64);
        let tables = self.rotary.of(&longest, &self.embed_tokens.weight).map(|t| t.squeeze_dim(1));
        for block in &self.layers {
            x = block.onnx(graph, &x, &places, [&tables[0], &tables[1]])?;
        }
        self.norm.onnx(graph, &x)
    }
}

/// Llama with the layer that guesses the next token (`LlamaForCausalLM`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::models::{GenerateOptions, LlamaConfig, LlamaForCausalLM};
/// use torchrs::nn::{Forward, Module};
/// let sizes = LlamaConfig { vocab_size: 50, hidden_size: 8, intermediate_size: 16, ..Default::default() };
/// let heads = LlamaConfig { num_attention_heads: 4, num_key_value_heads: Some(2), ..sizes };
/// let model = LlamaForCausalLM::new(LlamaConfig { num_hidden_layers: 2, ..heads });
/// let tokens = Tensor::from([[3i64, 14, 15]]);
/// assert_eq!(model.forward(&tokens).shape(), &[1, 3, 50]);
/// model.eval();
/// let options = GenerateOptions { max_new_tokens: 4, ..Default::default() };
/// assert_eq!(model.generate(&tokens, options).shape(), &[1, 7]);
/// ```
#[derive(Module)]
pub struct LlamaForCausalLM {
    /// All but the last layer.
    pub model: LlamaModel,
    /// To the logits; its weight is that of `embed_tokens`, if the two are tied.
    pub lm_head: Linear,
}

impl LlamaForCausalLM {
    /// As [`LlamaModel::new`].
    ///
    /// # Panics
    /// As that.
    #[track_caller]
    pub fn new(config: LlamaConfig) -> Self {
        let model = LlamaModel::new(config);
        let config = &model.config;
        let lm_head = match config.tie_word_embeddings {
            true => Linear::from_parameters(model.embed_tokens.weight.clone(), None),
            false => block::linear(config, config.hidden_size, config.vocab_size, false),
        };
        LlamaForCausalLM { model, lm_head }
    }

    /// The settings.
    pub fn config(&self) -> &LlamaConfig {
        &self.model.config
    }

    /// The logits of each next token, `[batch, length, vocab_size]`; as
    /// [`LlamaModel::forward_with`] otherwise.
    ///
    /// # Panics
    /// As that.
    #[track_caller]
    #[crate::nn::forward]
    pub fn forward_with(&self, input_ids: &Tensor, inputs: DecoderInputs) -> Tensor {
        self.lm_head.forward(&self.model.forward_with(input_ids, inputs))
    }

    /// The mean cross-entropy of each token's guess of the next one (`model(input_ids,
    /// labels=labels).loss`). `labels` are usually `input_ids`; those of -100 do not count. Not all logits are in
    /// memory at once where they are many: [`Linear::cross_entropy`].
    ///
    /// # Panics
    /// As [`LlamaModel::forward_with`]; throws [`Error::Shape`] for labels of another shape and for
    /// less than two tokens.
    #[track_caller]
    #[crate::nn::forward]
    pub fn loss(&self, input_ids: &Tensor, labels: &Tensor) -> Tensor {
        let features = || self.model.forward_with(input_ids, DecoderInputs::default());
        let tokens = [input_ids, labels];
        decoder::next_token_loss("LlamaForCausalLM::loss", &self.lm_head, tokens, features)
    }

    /// The mean cross-entropy of each token's guess against its own target, which is the next token already: as
    /// [`loss`](Self::loss) otherwise, also of a single token.
    ///
    /// # Panics
    /// As that.
    #[track_caller]
    #[crate::nn::forward]
    pub fn token_loss(&self, input_ids: &Tensor, targets: &Tensor) -> Tensor {
        let features = || self.model.forward_with(input_ids, DecoderInputs::default());
        let tokens = [input_ids, targets];
        decoder::token_loss("LlamaForCausalLM::token_loss", &self.lm_head, tokens, features)
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

impl Forward for LlamaForCausalLM {
    /// [`LlamaForCausalLM::forward_with`] without further inputs.
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input_ids: &Tensor) -> Tensor {
        self.forward_with(input_ids, DecoderInputs::default())
    }

    fn onnx(&self, graph: &mut Graph, input_ids: &Value) -> Result<Value> {
        let x = self.model.onnx(graph, input_ids)?;
        self.lm_head.onnx(graph, &x)
    }
}

impl NextToken for LlamaForCausalLM {
    fn longest(&self) -> (usize, &'static str) {
        self.config().longest()
    }

    #[track_caller]
    fn next_logits(&self, tokens: &Tensor, cache: Option<&mut KeyValueCache>) -> Tensor {
        let inputs = DecoderInputs { cache, ..Default::default() };
        self.lm_head.forward(&self.model.forward_with(tokens, inputs).select(1, -1))
    }
}

/// What files of other heads have beside the model.
const OTHERS: &[&str] = &["lm_head.", "score.", "qa_outputs."];

impl Published for LlamaModel {
    const NAMES: Names =
        Names { base: "model.", heads: &[], spare: &[], others: OTHERS, renamed: &[] };

    fn config_table(&self) -> Result<settings::Table> {
        settings::table_of(&self.config)
    }
}

impl Published for LlamaForCausalLM {
    const NAMES: Names =
        Names { base: "model.", heads: &["lm_head."], spare: &[], others: OTHERS, renamed: &[] };

    fn config_table(&self) -> Result<settings::Table> {
        settings::table_of(self.config())
    }

    fn tied(&self) -> &'static [(&'static str, &'static str)] {
        match self.config().tie_word_embeddings {
            true => &[("lm_head.weight", "model.embed_tokens.weight")],
            false => &[],
        }
    }
}
