//! The settings of BERT.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{Error, Result, throw};
use crate::models::HiddenActivation;
use crate::models::encoder::{Labels, ProblemType, Sizes, numbered, read_labels};
use crate::models::pretrained::settings;

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
        let path = path.as_ref();
        let config: Self = settings::read(path, &fixed, &neutral, read_labels)?;
        match config.fault() {
            Some((what, why)) => Err(Error::file(path, format!("`{what}` is {why}"))),
            None => Ok(config),
        }
    }

    /// With classes of these names.
    #[must_use]
    pub fn with_labels<S: Into<String>>(mut self, labels: impl IntoIterator<Item = S>) -> Self {
        self.id2label = labels.into_iter().map(Into::into).enumerate().collect();
        self
    }

    /// With so many classes.
    #[must_use]
    pub fn with_num_labels(mut self, count: usize) -> Self {
        self.id2label = numbered(count);
        self
    }

    /// How many classes a classifier has.
    pub fn num_labels(&self) -> usize {
        self.id2label.len()
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
        let numbers: Labels = self.id2label.clone();
        let label2id: BTreeMap<String, usize> = numbers.into_iter().map(|(i, l)| (l, i)).collect();
        table.insert("label2id".into(), json!(label2id));
        Ok(table)
    }

    #[track_caller]
    pub(super) fn check(&self) {
        if let Some((what, why)) = self.fault() {
            throw(Error::argument("BertConfig", what, why))
        }
    }

    /// A setting that cannot be, and why.
    fn fault(&self) -> Option<(&'static str, String)> {
        for (what, size) in [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
            ("type_vocab_size", self.type_vocab_size),
        ] {
            if size == 0 {
                return Some((what, "0; must be positive".into()));
            }
        }
        if !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            let heads = self.num_attention_heads;
            let why = format!("{heads}: they cannot share a hidden_size of {}", self.hidden_size);
            return Some(("num_attention_heads", why));
        }
        for (what, p) in [
            ("hidden_dropout_prob", self.hidden_dropout_prob),
            ("attention_probs_dropout_prob", self.attention_probs_dropout_prob),
            ("classifier_dropout", self.classifier_dropout.unwrap_or(0.0)),
        ] {
            if !(0.0..=1.0).contains(&p) {
                return Some((what, format!("{p}; must be from 0 to 1")));
            }
        }
        let pad = self.pad_token_id?;
        (pad < 0 || pad as usize >= self.vocab_size)
            .then(|| ("pad_token_id", format!("{pad}; must be a token, below {}", self.vocab_size)))
    }
}
