//! The settings of Llama, as a `config.json` of Hugging Face's has them.

use std::f64::consts::TAU;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result, throw};
use crate::models::pretrained::settings::{self, Fault, Known, Table};

/// The settings of a Llama (`transformers.LlamaConfig`), by Hugging Face's names. Serde reads a `config.json`, which must
/// have the sizes. A key or value that would change what is computed, and is not known here, is an error that names it.
///
/// ```
/// use torchrs::models::LlamaConfig;
/// let text = r#"{"model_type": "llama", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 160,
///     "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}"#;
/// let config: LlamaConfig = serde_json::from_str(text).unwrap();
/// assert_eq!((config.head_dim(), config.num_parameters()), (16, 119_104));
/// let text = text.replace("llama", "mistral");
/// let error = serde_json::from_str::<LlamaConfig>(&text).unwrap_err().to_string();
/// assert!(error.contains("model_type") && error.contains("mistral"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct LlamaConfig {
    /// Number of different tokens.
    pub vocab_size: usize,
    /// Width of the layers.
    pub hidden_size: usize,
    /// Width within the feed-forward layers.
    pub intermediate_size: usize,
    /// Number of blocks.
    pub num_hidden_layers: usize,
    /// Heads of queries of each attention.
    pub num_attention_heads: usize,
    /// Heads of keys and values, each for several of queries; `None`: as many as of queries.
    pub num_key_value_heads: Option<usize>,
    /// Width of a head; `None`: they share `hidden_size`.
    pub head_dim: Option<usize>,
    /// The longest sequence.
    pub max_position_embeddings: usize,
    /// What norms add to the mean square.
    pub rms_norm_eps: f64,
    /// The base of the angles' wavelengths.
    pub rope_theta: f64,
    /// How wavelengths are stretched for longer sequences than the model began with.
    pub rope_scaling: Option<RopeScaling>,
    /// Whether the projections of attention have biases.
    pub attention_bias: bool,
    /// Whether the feed-forward layers have biases.
    pub mlp_bias: bool,
    /// Dropout on the shares of attention.
    pub attention_dropout: f64,
    /// Deviation of the initial weights.
    pub initializer_range: f64,
    /// Whether `lm_head` has the table of tokens as its weight.
    pub tie_word_embeddings: bool,
}

/// `rope_scaling` of a [`LlamaConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rope_type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum RopeScaling {
    /// Llama 3.1's: long wavelengths times `factor`, short ones as they are, and a smooth passage between.
    Llama3 {
        /// Of long wavelengths.
        factor: f64,
        /// Wavelengths above the original length over this are long.
        low_freq_factor: f64,
        /// Wavelengths below the original length over this are short.
        high_freq_factor: f64,
        /// The length that the model began with.
        original_max_position_embeddings: usize,
    },
}

impl RopeScaling {
    /// The frequency, in radians a token, that takes the place of one.
    fn scaled(self, frequency: f64) -> f64 {
        let RopeScaling::Llama3 {
            factor,
            low_freq_factor: low,
            high_freq_factor: high,
            original_max_position_embeddings: length,
        } = self;
        // Turns within the original length.
        let turns = length as f64 * frequency / TAU;
        let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        kept * frequency + (1.0 - kept) * frequency / factor
    }
}

impl Default for LlamaConfig {
    /// Hugging Face's defaults, which are the sizes of the first model of 7 billion parameters.
    fn default() -> Self {
        LlamaConfig {
            vocab_size: 32000,
            hidden_size: 4096,
            intermediate_size: 11008,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: None,
            head_dim: None,
            max_position_embeddings: 2048,
            rms_norm_eps: 1e-6,
            rope_theta: 10000.0,
            rope_scaling: None,
            attention_bias: false,
            mlp_bias: false,
            attention_dropout: 0.0,
            initializer_range: 0.02,
            tie_word_embeddings: false,
        }
    }
}

/// Keys that say in words what is always so here, with the value that they must have.
fn fixed() -> [(&'static str, Vec<Value>); 6] {
    [
        ("model_type", vec![json!("llama")]),
        ("hidden_act", vec![json!("silu"), json!("swish")]),
        ("partial_rotary_factor", vec![json!(1), json!(1.0)]),
        ("rope_interleaved", vec![json!(false)]),
        ("is_encoder_decoder", vec![json!(false)]),
        ("add_cross_attention", vec![json!(false)]),
    ]
}

/// The keys that are settings, but for those of rotary embeddings.
#[derive(Serialize, Deserialize)]
struct Fields {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    #[serde(default)]
    num_key_value_heads: Option<usize>,
    #[serde(default)]
    head_dim: Option<usize>,
    #[serde(default = "default_positions")]
    max_position_embeddings: usize,
    #[serde(default = "default_eps")]
    rms_norm_eps: f64,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    attention_dropout: f64,
    #[serde(default = "default_range")]
    initializer_range: f64,
    #[serde(default)]
    tie_word_embeddings: bool,
}

fn default_positions() -> usize {
    LlamaConfig::default().max_position_embeddings
}

fn default_eps() -> f64 {
    LlamaConfig::default().rms_norm_eps
}

fn default_range() -> f64 {
    LlamaConfig::default().initializer_range
}

/// The names of [`Fields`].
const FIELDS: &[&str] = &[
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
    "attention_bias",
    "mlp_bias",
    "attention_dropout",
    "initializer_range",
    "tie_word_embeddings",
];

impl TryFrom<Table> for LlamaConfig {
    type Error = String;

    fn try_from(mut table: Table) -> std::result::Result<Self, String> {
        // Null says that there is none of it.
        table.retain(|_, value| !value.is_null());
        let (rope_theta, rope_scaling) = rope(&mut table)?;
        // Of classifiers, which are none of these models.
        let neutral = &["id2label", "num_labels", "problem_type"];
        Known { fields: FIELDS, fixed: &fixed(), neutral }.sift(&mut table)?;
        let fields: Fields =
            serde_json::from_value(Value::Object(table)).map_err(|e| e.to_string())?;
        let config = LlamaConfig {
            vocab_size: fields.vocab_size,
            hidden_size: fields.hidden_size,
            intermediate_size: fields.intermediate_size,
            num_hidden_layers: fields.num_hidden_layers,
            num_attention_heads: fields.num_attention_heads,
            num_key_value_heads: fields.num_key_value_heads,
            head_dim: fields.head_dim,
            max_position_embeddings: fields.max_position_embeddings,
            rms_norm_eps: fields.rms_norm_eps,
            rope_theta,
            rope_scaling,
            attention_bias: fields.attention_bias,
            mlp_bias: fields.mlp_bias,
            attention_dropout: fields.attention_dropout,
            initializer_range: fields.initializer_range,
            tie_word_embeddings: fields.tie_word_embeddings,
        };
        match config.fault() {
            Some((what, why)) => Err(format!("`{what}` is {why}")),
            None => Ok(config),
        }
    }
}

/// The base and the scaling, taken out of the table: as `rope_theta` and `rope_scaling`, or both as `rope_parameters`.
fn rope(table: &mut Table) -> std::result::Result<(f64, Option<RopeScaling>), String> {
    let (parameters, scaling) = (table.remove("rope_parameters"), table.remove("rope_scaling"));
    let mut theta = table.remove("rope_theta");
    let (name, mut of) = match (parameters, scaling) {
        (Some(_), Some(_)) => {
            return Err("`rope_parameters` and `rope_scaling` are both given; one is enough".into());
        }
        (Some(Value::Object(mut of)), None) => {
            match (of.remove("rope_theta"), &theta) {
                (Some(inner), Some(outer)) if inner != *outer => {
                    return Err(format!(
                        "`rope_theta` is {outer}, and {inner} in `rope_parameters`"
                    ));
                }
                (Some(inner), _) => theta = Some(inner),
                (None, _) => {}
            }
            ("rope_parameters", of)
        }
        (None, Some(Value::Object(of))) => ("rope_scaling", of),
        (None, None) => ("rope_scaling", Table::new()),
        (Some(other), _) | (_, Some(other)) => {
            return Err(format!("`rope_scaling` is {other}; must be a table with `rope_type`"));
        }
    };
    let theta = match theta {
        None => LlamaConfig::default().rope_theta,
        Some(theta) => {
            theta.as_f64().ok_or_else(|| format!("`rope_theta` is {theta}; must be a number"))?
        }
    };
    of.retain(|_, value| !value.is_null());
    // Its older name, which files have beside the new one.
    if let Some(older) = of.remove("type") {
        of.entry("rope_type").or_insert(older);
    }
    let scaling = match of.get("rope_type").and_then(Value::as_str) {
        None if of.is_empty() => None,
        Some("default") if of.len() == 1 => None,
        Some("llama3") => {
            Some(serde_json::from_value(Value::Object(of)).map_err(|e| format!("`{name}`: {e}"))?)
        }
        _ => {
            let of = Value::Object(of);
            return Err(format!("`{name}` is {of}; known are the types default and llama3"));
        }
    };
    Ok((theta, scaling))
}

impl From<LlamaConfig> for Table {
    fn from(config: LlamaConfig) -> Self {
        let fields = Fields {
            vocab_size: config.vocab_size,
            hidden_size: config.hidden_size,
            intermediate_size: config.intermediate_size,
            num_hidden_layers: config.num_hidden_layers,
            num_attention_heads: config.num_attention_heads,
            num_key_value_heads: Some(config.num_key_value_heads()),
            head_dim: config.head_dim,
            max_position_embeddings: config.max_position_embeddings,
            rms_norm_eps: config.rms_norm_eps,
            attention_bias: config.attention_bias,
            mlp_bias: config.mlp_bias,
            attention_dropout: config.attention_dropout,
            initializer_range: config.initializer_range,
            tie_word_embeddings: config.tie_word_embeddings,
        };
        let mut table = match serde_json::to_value(fields) {
            Ok(Value::Object(table)) => table,
            other => unreachable!("numbers and truth values by name: {other:?}"),
        };
        table.retain(|_, value| !value.is_null());
        table.insert("model_type".into(), json!("llama"));
        table.insert("architectures".into(), json!(["LlamaForCausalLM"]));
        table.insert("hidden_act".into(), json!("silu"));
        table.insert("rope_theta".into(), json!(config.rope_theta));
        table.insert("rope_scaling".into(), json!(config.rope_scaling));
        table
    }
}

impl LlamaConfig {
    /// Llama 2 of 6.7 billion parameters.
    pub fn llama2_7b() -> Self {
        LlamaConfig { max_position_embeddings: 4096, rms_norm_eps: 1e-5, ..Self::default() }
    }

    /// Llama 3 of 8.0 billion parameters.
    pub fn llama3_8b() -> Self {
        LlamaConfig {
            vocab_size: 128_256,
            intermediate_size: 14336,
            num_key_value_heads: Some(8),
            max_position_embeddings: 8192,
            rms_norm_eps: 1e-5,
            rope_theta: 500_000.0,
            ..Self::default()
        }
    }

    /// Llama 3.1 of 8.0 billion parameters, for longer texts.
    pub fn llama3_1_8b() -> Self {
        LlamaConfig {
            max_position_embeddings: 131_072,
            rope_scaling: Some(Self::llama3_scaling(8.0)),
            ..Self::llama3_8b()
        }
    }

    /// Llama 3.2 of 1.2 billion parameters.
    pub fn llama3_2_1b() -> Self {
        LlamaConfig {
            hidden_size: 2048,
            intermediate_size: 8192,
            num_hidden_layers: 16,
            head_dim: Some(64),
            rope_scaling: Some(Self::llama3_scaling(32.0)),
            tie_word_embeddings: true,
            ..Self::llama3_1_8b()
        }
    }

    fn llama3_scaling(factor: f64) -> RopeScaling {
        RopeScaling::Llama3 {
            factor,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 8192,
        }
    }

    /// Reads a `config.json`.
    ///
    /// # Errors
    /// [`Error::File`] that names the key or value that is not known here; [`Error::Os`] where it cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        settings::read_json(path.as_ref())
    }

    /// The heads of keys and values.
    pub fn num_key_value_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// The width of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// The number of parameters of a [`LlamaForCausalLM`](super::LlamaForCausalLM); those that are tied count once.
    ///
    /// ```
    /// use torchrs::models::LlamaConfig;
    /// assert_eq!(LlamaConfig::llama3_2_1b().num_parameters(), 1_235_814_400);
    /// assert_eq!(LlamaConfig::llama3_8b().num_parameters(), 8_030_261_248);
    /// ```
    pub fn num_parameters(&self) -> usize {
        let (width, inner) = (self.hidden_size, self.intermediate_size);
        let queries = self.num_attention_heads * self.head_dim();
        let keys = self.num_key_value_heads() * self.head_dim();
        let bias = |has: bool, size: usize| if has { size } else { 0 };
        let attention =
            2 * width * (queries + keys) + bias(self.attention_bias, queries + 2 * keys + width);
        let mlp = 3 * width * inner + bias(self.mlp_bias, 2 * inner + width);
        let tables = if self.tie_word_embeddings { 1 } else { 2 };
        tables * self.vocab_size * width
            + self.num_hidden_layers * (attention + mlp + 2 * width)
            + width
    }

    /// Frequencies of the pairs of a head's features, in radians a token.
    pub(super) fn frequencies(&self) -> Vec<f64> {
        let width = self.head_dim();
        let frequency = |i| self.rope_theta.powf(-2.0 * i as f64 / width as f64);
        let scaled = |f| self.rope_scaling.map_or(f, |scaling| scaling.scaled(f));
        (0..width / 2).map(frequency).map(scaled).collect()
    }

    pub(super) fn longest(&self) -> (usize, &'static str) {
        (self.max_position_embeddings, "max_position_embeddings")
    }

    #[track_caller]
    pub(super) fn check(&self) {
        if let Some((what, why)) = self.fault() {
            throw(Error::argument("LlamaConfig", what, why))
        }
    }

    /// A setting that cannot be, and why.
    fn fault(&self) -> Option<Fault> {
        let (heads, keys) = (self.num_attention_heads, self.num_key_value_heads());
        let zero = settings::zero(&[
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_attention_heads", heads),
            ("num_key_value_heads", keys),
            ("max_position_embeddings", self.max_position_embeddings),
        ]);
        if zero.is_some() {
            return zero;
        }
        if self.head_dim.is_none() && !self.hidden_size.is_multiple_of(heads) {
            let why = format!("{heads}: they cannot share a hidden_size of {}", self.hidden_size);
            return Some(("num_attention_heads", why));
        }
        if !heads.is_multiple_of(keys) {
            let why = format!("{keys}: {heads} heads of queries cannot share them");
            return Some(("num_key_value_heads", why));
        }
        if self.head_dim() == 0 || !self.head_dim().is_multiple_of(2) {
            let why = format!("{}; must be even: features are turned in pairs", self.head_dim());
            return Some(("head_dim", why));
        }
        for (what, number) in [("rope_theta", self.rope_theta), ("rms_norm_eps", self.rms_norm_eps)]
        {
            if !(number.is_finite() && number > 0.0) {
                return Some((what, format!("{number}; must be above 0")));
            }
        }
        let wrong = settings::no_probability(&[("attention_dropout", self.attention_dropout)]);
        if wrong.is_some() {
            return wrong;
        }
        let RopeScaling::Llama3 {
            factor,
            low_freq_factor: low,
            high_freq_factor: high,
            original_max_position_embeddings: length,
        } = self.rope_scaling?;
        if !(factor >= 1.0 && low > 0.0 && high > low && length > 0) {
            let why = format!(
                "{:?}; the factor must be at least 1, high_freq_factor above low_freq_factor, and all positive",
                self.rope_scaling
            );
            return Some(("rope_scaling", why));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_stretches_long_wavelengths_only() {
        let config = LlamaConfig::llama3_1_8b();
        let plain = LlamaConfig { rope_scaling: None, ..config.clone() };
        let (scaled, plain) = (config.frequencies(), plain.frequencies());
        assert_eq!((scaled.len(), plain[0], scaled[0]), (64, 1.0, 1.0));
        for (scaled, plain) in scaled.iter().zip(&plain) {
            let wavelength = TAU / plain;
            // Llama's own formula (`apply_scaling` in `llama/model.py` of llama-models).
            let want = if wavelength < 8192.0 / 4.0 {
                *plain
            } else if wavelength > 8192.0 / 1.0 {
                plain / 8.0
            } else {
                let smooth = (8192.0 / wavelength - 1.0) / (4.0 - 1.0);
                (1.0 - smooth) * plain / 8.0 + smooth * plain
            };
            assert!((scaled - want).abs() <= 1e-12 * want, "{wavelength}: {scaled} {want}");
        }
        let passing = scaled.iter().zip(&plain).filter(|(s, p)| *s < p && **s > *p / 8.0);
        assert!(passing.count() > 0, "the passage is tested too");
    }
}
