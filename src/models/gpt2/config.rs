//! The settings of GPT-2.

use serde::{Deserialize, Serialize};

use crate::error::{Error, throw};
use crate::ops::Activation;

/// The settings of a GPT-2 (`transformers.GPT2Config`), by Hugging Face's names, so that a
/// `config.json` can be read by serde; keys that are not here are ignored.
///
/// ```
/// use torchrs::models::GPT2Config;
/// let text = r#"{"model_type": "gpt2", "n_embd": 1024, "n_head": 16, "n_layer": 24}"#;
/// assert_eq!(serde_json::from_str::<GPT2Config>(text).unwrap(), GPT2Config::gpt2_medium());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GPT2Config {
    /// Number of different tokens.
    pub vocab_size: usize,
    /// The longest sequence.
    pub n_positions: usize,
    /// Width of the layers.
    pub n_embd: usize,
    /// Number of blocks.
    pub n_layer: usize,
    /// Heads of each attention; they share the width.
    pub n_head: usize,
    /// Width within the feed-forward layers; `None`: four times `n_embd`.
    pub n_inner: Option<usize>,
    /// The function within the feed-forward layers.
    pub activation_function: GPT2Activation,
    /// Dropout on what is added to the shortcuts.
    pub resid_pdrop: f64,
    /// Dropout on the embeddings.
    pub embd_pdrop: f64,
    /// Dropout on the shares of attention.
    pub attn_pdrop: f64,
    /// What norms add to the variance.
    pub layer_norm_epsilon: f64,
    /// Deviation of the initial weights.
    pub initializer_range: f64,
    /// Whether scores are divided by the root of the heads' width.
    pub scale_attn_weights: bool,
    /// Whether scores of the nth block are also divided by n.
    pub scale_attn_by_inverse_layer_idx: bool,
    /// Whether `lm_head` has the table of tokens as its weight.
    pub tie_word_embeddings: bool,
}

impl Default for GPT2Config {
    /// The smallest model.
    fn default() -> Self {
        GPT2Config {
            vocab_size: 50257,
            n_positions: 1024,
            n_embd: 768,
            n_layer: 12,
            n_head: 12,
            n_inner: None,
            activation_function: GPT2Activation::GeluNew,
            resid_pdrop: 0.1,
            embd_pdrop: 0.1,
            attn_pdrop: 0.1,
            layer_norm_epsilon: 1e-5,
            initializer_range: 0.02,
            scale_attn_weights: true,
            scale_attn_by_inverse_layer_idx: false,
            tie_word_embeddings: true,
        }
    }
}

impl GPT2Config {
    /// 124 million parameters.
    pub fn gpt2() -> Self {
        Self::default()
    }

    /// 355 million parameters.
    pub fn gpt2_medium() -> Self {
        GPT2Config { n_embd: 1024, n_layer: 24, n_head: 16, ..Self::default() }
    }

    /// 774 million parameters.
    pub fn gpt2_large() -> Self {
        GPT2Config { n_embd: 1280, n_layer: 36, n_head: 20, ..Self::default() }
    }

    /// 1.56 billion parameters.
    pub fn gpt2_xl() -> Self {
        GPT2Config { n_embd: 1600, n_layer: 48, n_head: 25, ..Self::default() }
    }

    /// Without any dropout.
    #[must_use]
    pub fn no_dropout(mut self) -> Self {
        (self.resid_pdrop, self.embd_pdrop, self.attn_pdrop) = (0.0, 0.0, 0.0);
        self
    }

    pub(super) fn longest(&self) -> (usize, &'static str) {
        (self.n_positions, "n_positions")
    }

    #[track_caller]
    pub(super) fn check(&self) {
        let bad = |what: &str, message: String| -> ! {
            throw(Error::argument("GPT2Config", what, message))
        };
        for (what, size) in [
            ("vocab_size", self.vocab_size),
            ("n_positions", self.n_positions),
            ("n_embd", self.n_embd),
            ("n_head", self.n_head),
        ] {
            if size == 0 {
                bad(what, "0; must be positive".into());
            }
        }
        if !self.n_embd.is_multiple_of(self.n_head) {
            bad("n_head", format!("{} heads cannot share a width of {}", self.n_head, self.n_embd));
        }
        for (what, p) in [
            ("resid_pdrop", self.resid_pdrop),
            ("embd_pdrop", self.embd_pdrop),
            ("attn_pdrop", self.attn_pdrop),
        ] {
            if !(0.0..=1.0).contains(&p) {
                bad(what, format!("{p}; must be from 0 to 1"));
            }
        }
    }
}

/// Functions within the feed-forward layers, by Hugging Face's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GPT2Activation {
    /// [`Tensor::gelu_tanh`](crate::Tensor::gelu_tanh).
    #[default]
    #[serde(alias = "gelu_pytorch_tanh")]
    GeluNew,
    /// [`Tensor::gelu`](crate::Tensor::gelu).
    Gelu,
    /// [`Tensor::relu`](crate::Tensor::relu).
    Relu,
    /// [`Tensor::silu`](crate::Tensor::silu).
    #[serde(alias = "swish")]
    Silu,
    /// [`Tensor::tanh`](crate::Tensor::tanh).
    Tanh,
}

impl From<GPT2Activation> for Activation {
    fn from(activation: GPT2Activation) -> Activation {
        match activation {
            GPT2Activation::GeluNew => Activation::GeluTanh,
            GPT2Activation::Gelu => Activation::Gelu,
            GPT2Activation::Relu => Activation::Relu,
            GPT2Activation::Silu => Activation::Silu,
            GPT2Activation::Tanh => Activation::Tanh,
        }
    }
}
