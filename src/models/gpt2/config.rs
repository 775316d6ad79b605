//! The settings of GPT-2.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{Error, Result, throw};
use crate::models::HiddenActivation;
use crate::models::pretrained::settings;

/// The settings of a GPT-2 (`transformers.GPT2Config`), by Hugging Face's names. [`from_file`](Self::from_file) reads a
/// `config.json` and refuses what it does not know; serde reads parts of one, and ignores other keys.
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
    pub activation_function: HiddenActivation,
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
            activation_function: HiddenActivation::GeluNew,
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

    /// Reads a `config.json`. Keys that change nothing of what is computed are ignored.
    ///
    /// # Errors
    /// [`Error::File`] that names the key or value that is not known here, such as another `model_type`; [`Error::Os`]
    /// where it cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let fixed = [
            ("model_type", vec![json!("gpt2")]),
            ("add_cross_attention", vec![json!(false)]),
            ("is_encoder_decoder", vec![json!(false)]),
            ("pruned_heads", vec![json!({})]),
        ];
        // Of other heads; what attention is computed in, where that is half a type; the older name of `n_positions`.
        let neutral = [
            "id2label",
            "n_ctx",
            "num_labels",
            "predict_special_tokens",
            "problem_type",
            "reorder_and_upcast_attn",
            "summary_activation",
            "summary_first_dropout",
            "summary_proj_to_labels",
            "summary_type",
            "summary_use_proj",
        ];
        settings::read(path.as_ref(), &fixed, &neutral, |_| Ok(()), Self::fault)
    }

    pub(super) fn table(&self) -> Result<settings::Table> {
        let mut table = settings::table_of(self)?;
        table.insert("model_type".into(), json!("gpt2"));
        Ok(table)
    }

    #[track_caller]
    pub(super) fn check(&self) {
        if let Some((what, why)) = self.fault() {
            throw(Error::argument("GPT2Config", what, why))
        }
    }

    /// A setting that cannot be, and why.
    fn fault(&self) -> Option<settings::Fault> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("n_positions", self.n_positions),
            ("n_embd", self.n_embd),
            ("n_head", self.n_head),
        ];
        let of_heads = || {
            let why = format!("{} heads cannot share a width of {}", self.n_head, self.n_embd);
            (!self.n_embd.is_multiple_of(self.n_head)).then_some(("n_head", why))
        };
        let chances = [
            ("resid_pdrop", self.resid_pdrop),
            ("embd_pdrop", self.embd_pdrop),
            ("attn_pdrop", self.attn_pdrop),
        ];
        settings::zero(&sizes).or_else(of_heads).or_else(|| settings::no_probability(&chances))
    }
}
