//! The Llama of `--model llama`: its settings, and what else the program asks of it.

use std::path::Path;

use torchrs::checkpoint::TensorMap;
use torchrs::distributed::DeviceMesh;
use torchrs::models::{ActivationCheckpointing, GenerateOptions, LlamaConfig, LlamaForCausalLM};
use torchrs::nn::parallel::FullyShardOptions;
use torchrs::nn::{Forward, Module};
use torchrs::train::transformer_flops;
use torchrs::{Error, Result, Tensor};

use crate::models::{Network, sample_bytes};
use crate::settings::{Checkpointing, Settings};
use crate::sharding::shard_each;

/// A small one, without `--config`.
fn small(vocabulary: usize, context: usize) -> LlamaConfig {
    LlamaConfig {
        vocab_size: vocabulary,
        hidden_size: 128,
        intermediate_size: 352,
        num_hidden_layers: 4,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        max_position_embeddings: context,
        rms_norm_eps: 1e-5,
        ..Default::default()
    }
}

/// The settings for so many different tokens.
pub fn config(settings: &Settings, vocabulary: usize) -> Result<LlamaConfig> {
    let context = settings.context_length;
    let Some(config) = settings.config.clone() else { return Ok(small(vocabulary, context)) };
    if config.vocab_size < vocabulary {
        let message = format!(
            "has a vocab_size of {}; the bytes of a text are {vocabulary} different tokens",
            config.vocab_size
        );
        return Err(Error::config("--config", message));
    }
    if config.max_position_embeddings < context {
        let message = format!(
            "{context} is more than the model's max_position_embeddings, {}",
            config.max_position_embeddings
        );
        return Err(Error::config("--context-length", message));
    }
    Ok(config)
}

pub fn build(settings: &Settings, vocabulary: usize) -> Result<LlamaForCausalLM> {
    let mut network = LlamaForCausalLM::new(config(settings, vocabulary)?);
    network.model.set_activation_checkpointing(match settings.activation_checkpointing {
        Checkpointing::None => ActivationCheckpointing::None,
        Checkpointing::Full => ActivationCheckpointing::Full,
        Checkpointing::Selective => ActivationCheckpointing::Selective,
    });
    Ok(network)
}

/// Operations of a training sample. A table of tokens that is not the head's too is read, not multiplied.
pub fn flops(config: &LlamaConfig, tokens: usize) -> f64 {
    let read = if config.tie_word_embeddings { 0 } else { config.vocab_size * config.hidden_size };
    let features = config.num_attention_heads * config.head_dim();
    transformer_flops(config.num_parameters() - read, config.num_hidden_layers, features, tokens)
}

impl Network for LlamaForCausalLM {
    fn logits(&self, x: &Tensor) -> Tensor {
        self.forward(x).flatten(0, 1)
    }

    fn loss(&self, x: &Tensor, y: &Tensor) -> Tensor {
        self.token_loss(x, y)
    }

    fn sample_text(&self, bytes: usize, context: usize) -> Option<String> {
        let generate = |prompt: &Tensor, options: GenerateOptions| self.generate(prompt, options);
        sample_bytes(self, bytes, context, generate)
    }

    fn shard_blocks(&mut self, mesh: &DeviceMesh, options: &FullyShardOptions) -> Result<()> {
        shard_each(&mut self.model.layers, mesh, options)
    }

    fn export(&self, folder: &Path, writes: bool) -> Result<()> {
        let mut weights = TensorMap::new();
        // All ranks read what is sharded; one keeps it.
        for (name, tensor) in self.state_dict().iter() {
            let copy = tensor.detach().clone_contiguous();
            if writes {
                weights.insert(name.to_owned(), copy.cpu());
            }
        }
        if writes { self.save_weights(weights, folder) } else { Ok(()) }
    }
}
