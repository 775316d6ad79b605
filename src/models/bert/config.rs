//! The settings of BERT.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{Error, Result, throw};
use crate::models::HiddenActivation;
use crate::models::encoder::{ProblemType, Sizes, label2id, numbered, read_labels};
use crate::models::pretrained::settings::{self, Fault};

/// The settings of a BERT (`transformers.BertConfig`), by Hugging Face's names.
///
/// ```
/// use torchrs::models::BertConfig;
/// let config = BertConfig { num_hidden_layers: 6, ..BertConfig::default() }.with_labels(["bad", "good"]);
/// assert_eq!((config.num_labels(), config.id2label[&1].as_str()), (2, "good"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BertConfig {
    /// Number of different tokens.
    pub vocab_size: usize,
    /// Width of the layers.
    pub hidden_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Heads of each attention; they share the width.
    pub num_attention_heads: usize,
    /// Width within the feed-forward layers.
    pub intermediate_size: usize,
    /// The function within the feed-forward layers.
    pub hidden_act: HiddenActivation,
    /// Dropout on embeddings and on what is added to the shortcuts.
    pub hidden_dropout_prob: f64,
    /// Dropout on the shares of attention.
    pub attention_probs_dropout_prob: f64,
    /// The longest sequence.
    pub max_position_embeddings: usize,
    /// Number of kinds of tokens (`token_type_ids`).
    pub type_vocab_size: usize,
    /// Deviation of the initial weights.
    pub initializer_range: f64,
    /// What norms add to the variance.
    pub layer_norm_eps: f64,
    /// The token whose vector starts at 0 and gets no gradient as an input.
    pub pad_token_id: Option<i64>,
    /// Dropout before a classifier; `None`: as `hidden_dropout_prob`.
    pub classifier_dropout: Option<f64>,
    /// Whether the head that guesses tokens has their table as its weight.
    pub tie_word_embeddings: bool,
    /// The names of a classifier's classes.
    pub id2label: BTreeMap<usize, String>,
    /// What a classifier's labels are; `None`: as the labels themselves tell.
    pub problem_type: Option<ProblemType>,
}

impl Default for BertConfig {
    /// The base model.
    fn default() -> Self {
        BertConfig {
            vocab_size: 30522,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            hidden_act: HiddenActivation::Gelu,
            hidden_dropout_prob: 0.1,
            attention_probs_dropout_prob: 0.1,
            max_position_embeddings: 512,
            type_vocab_size: 2,
            initializer_range: 0.02,
            layer_norm_eps: 1e-12,
            pad_token_id: Some(0),
            classifier_dropout: None,
            tie_word_embeddings: true,
            id2label: numbered(2),
            problem_type: None,
        }
    }
}

impl BertConfig {
    /// Reads a `config.json`. Keys that change nothing of what is computed are ignored.
    ///
    /// # Errors
    /// [`Error::File`] that names the key or value that is not known here, such as another `model_type`, relative
    /// positions, a decoder; [`Error::Os`] where it cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let fixed = [
            ("model_type", vec![json!("bert")]),
            ("position_embedding_type", vec![json!("absolute")]),
            ("is_decoder", vec![json!(false)]),
            ("is_encoder_decoder", vec![json!(false)]),
            ("add_cross_attention", vec![json!(false)]),
            ("pruned_heads", vec![json!({})]),
        ];
        // Of programs before `transformers`; nothing read them.
        let neutral = [
            "attention_type",
            "directionality",
            "pooler_fc_size",
            "pooler_num_attention_heads",
            "pooler_num_fc_layers",
            "pooler_size_per_head",
            "pooler_type",
        ];
        settings::read(path.as_ref(), &fixed, &neutral, read_labels, Self::fault)
    }

    /// Without any dropout.
    #[must_use]
    pub fn no_dropout(mut self) -> Self {
        (self.hidden_dropout_prob, self.attention_probs_dropout_prob) = (0.0, 0.0);
        self.classifier_dropout = None;
        self
    }

    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            width: self.hidden_size,
            inner: self.intermediate_size,
            heads: self.num_attention_heads,
            qkv_bias: true,
            activation: self.hidden_act,
            attention_dropout: self.attention_probs_dropout_prob,
            range: self.initializer_range,
        }
    }

    pub(super) fn table(&self) -> Result<settings::Table> {
        let mut table = settings::table_of(self)?;
        table.insert("model_type".into(), json!("bert"));
        table.insert("label2id".into(), label2id(&self.id2label));
        Ok(table)
    }

    #[track_caller]
    pub(super) fn check(&self) {
        if let Some((what, why)) = self.fault() {
            throw(Error::argument("BertConfig", what, why))
        }
    }

    /// A setting that cannot be, and why.
    fn fault(&self) -> Option<Fault> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
            ("type_vocab_size", self.type_vocab_size),
        ];
        let chances = [
            ("hidden_dropout_prob", self.hidden_dropout_prob),
            ("attention_probs_dropout_prob", self.attention_probs_dropout_prob),
            ("classifier_dropout", self.classifier_dropout.unwrap_or(0.0)),
        ];
        let of_pad = || {
            let pad =
                self.pad_token_id.filter(|&pad| pad < 0 || pad as usize >= self.vocab_size)?;
            Some(("pad_token_id", format!("{pad}; must be a token, below {}", self.vocab_size)))
        };
        settings::zero(&sizes)
            .or_else(|| self.sizes().fault())
            .or_else(|| settings::no_probability(&chances))
            .or_else(of_pad)
    }
}
