//! `generation_config.json`: how a published model is meant to generate.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::settings::{Table, read_json, table_of};
use crate::error::{Context, Error, Result};
use crate::models::GenerateOptions;

/// The settings of a `generation_config.json` (`transformers.GenerationConfig`), by Hugging Face's names; `None` and empty
/// where the file has none. A key that would change what is generated, and is not known here, is an error that names it.
///
/// ```
/// use torchrs::models::GenerationConfig;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("generation_config.json");
/// let text = r#"{"do_sample": true, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [128001, 128009]}"#;
/// std::fs::write(&path, text).unwrap();
/// let config = GenerationConfig::from_file(&path)?;
/// assert_eq!((config.temperature, config.top_p), (Some(0.6), Some(0.9)));
/// assert_eq!(config.eos_token_id, [128001, 128009]);
/// std::fs::write(&path, r#"{"num_beams": 4}"#).unwrap();
/// assert!(GenerationConfig::from_file(&path).unwrap_err().to_string().contains("num_beams"));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GenerationConfig {
    /// Tokens of the prompt and new ones together, at most; where `max_new_tokens` is given, that counts.
    pub max_length: Option<usize>,
    /// Tokens to add at most.
    pub max_new_tokens: Option<usize>,
    /// Whether tokens are drawn at random.
    pub do_sample: Option<bool>,
    /// Divides the logits, if tokens are drawn.
    pub temperature: Option<f64>,
    /// Draws among this many of the likeliest tokens; 0: among all.
    pub top_k: Option<usize>,
    /// Draws among the likeliest tokens whose shares make up this sum.
    pub top_p: Option<f64>,
    /// Draws among tokens of at least this share of the likeliest one's.
    pub min_p: Option<f64>,
    /// Divides the scores of tokens that are there already, where they are positive, and multiplies them otherwise.
    pub repetition_penalty: Option<f64>,
    /// The tokens that end a sequence; the file has one or a list.
    #[serde(deserialize_with = "one_or_many")]
    pub eos_token_id: Vec<i64>,
    /// Fills up a sequence that has ended.
    pub pad_token_id: Option<i64>,
    /// The token that begins a sequence. A tokenizer puts it there.
    pub bos_token_id: Option<i64>,
    /// Whether keys and values of earlier tokens are kept.
    pub use_cache: Option<bool>,
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> std::result::Result<Vec<i64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Ids {
        One(i64),
        Many(Vec<i64>),
        None(()),
    }
    Ok(match Ids::deserialize(from)? {
        Ids::One(id) => vec![id],
        Ids::Many(ids) => ids,
        Ids::None(()) => Vec::new(),
    })
}

/// Keys that change nothing of the tokens.
const NEUTRAL: &[&str] = &[
    "_from_model_config",
    "cache_implementation",
    "decoder_start_token_id",
    "disable_compile",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "return_dict_in_generate",
    "transformers_version",
    "trust_remote_code",
];

/// Keys of what is not done here, with the values by which it is not asked for.
fn idle() -> Vec<(&'static str, Vec<Value>)> {
    let (no, none) = (json!(false), json!([]));
    let one = || vec![json!(1), json!(1.0)];
    let zero = || vec![json!(0), json!(0.0)];
    vec![
        ("num_beams", one()),
        ("num_beam_groups", one()),
        ("num_return_sequences", one()),
        ("penalty_alpha", zero()),
        // Seconds after which it ends.
        ("max_time", Vec::new()),
        ("min_length", zero()),
        ("min_new_tokens", zero()),
        ("typical_p", one()),
        ("top_h", one()),
        ("epsilon_cutoff", zero()),
        ("eta_cutoff", zero()),
        ("encoder_repetition_penalty", one()),
        ("length_penalty", one()),
        ("diversity_penalty", zero()),
        ("no_repeat_ngram_size", zero()),
        ("encoder_no_repeat_ngram_size", zero()),
        ("guidance_scale", one()),
        ("early_stopping", vec![no.clone()]),
        ("renormalize_logits", vec![no.clone()]),
        ("remove_invalid_values", vec![no.clone()]),
        ("token_healing", vec![no]),
        ("suppress_tokens", vec![none.clone()]),
        ("begin_suppress_tokens", vec![none.clone()]),
        ("bad_words_ids", vec![none.clone()]),
        ("stop_strings", vec![none]),
    ]
}

/// Whether a key says how to generate. A `config.json` may have it among the model's own.
pub(super) fn is_setting(key: &str) -> bool {
    table_of(&GenerationConfig::default()).is_ok_and(|fields| fields.contains_key(key))
        || idle().iter().any(|(name, _)| *name == key)
}

impl GenerationConfig {
    /// Reads a `generation_config.json`.
    ///
    /// # Errors
    /// [`Error::File`] that names the key or value that is not known here; [`Error::Os`] where it cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut table: Table = read_json(path)?;
        table.retain(|key, value| !value.is_null() && !NEUTRAL.contains(&key.as_str()));
        Self::from_table(table, path)
    }

    /// The settings of a folder's `generation_config.json`. Without one they are those of its `config.json`, where older
    /// folders have them among others; without that, the default ones.
    ///
    /// ```
    /// use torchrs::models::GenerationConfig;
    /// # let folder = tempfile::tempdir().unwrap();
    /// let text = r#"{"model_type": "gpt2", "n_embd": 16, "eos_token_id": [7, 8], "max_length": 9}"#;
    /// std::fs::write(folder.path().join("config.json"), text).unwrap();
    /// let config = GenerationConfig::from_pretrained(folder.path())?;
    /// assert_eq!((config.eos_token_id, config.max_length), (vec![7, 8], Some(9)));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    pub fn from_pretrained(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let path = folder.join("generation_config.json");
        if path.exists() {
            return Self::from_file(path);
        }
        std::fs::metadata(folder).context(|| format!("open {}", folder.display()))?;
        let path = folder.join("config.json");
        if !path.exists() {
            return Ok(Self::default());
        }
        let mut table: Table = read_json(&path)?;
        table.retain(|key, value| !value.is_null() && is_setting(key));
        Self::from_table(table, &path)
    }

    /// The settings of a table without nulls, of keys that say how to generate.
    fn from_table(mut table: Table, path: &Path) -> Result<Self> {
        let wrong = |why: String| Error::file(path, why);
        let fields = table_of(&Self::default())?;
        let idle = idle();
        for (key, value) in table.iter().filter(|(key, _)| !fields.contains_key(*key)) {
            match idle.iter().find(|(name, _)| name == key) {
                Some((_, allowed)) if allowed.contains(value) => {}
                _ => {
                    let what =
                        format!("`{key}` is {value}, which `generate` does not do; take it away");
                    return Err(wrong(what));
                }
            }
        }
        table.retain(|key, _| fields.contains_key(key));
        serde_json::from_value(Value::Object(table)).map_err(|e| wrong(e.to_string()))
    }

    /// Options of `generate` for a prompt of so many tokens. What the file does not say is as in
    /// [`GenerateOptions::default`].
    ///
    /// ```
    /// use torchrs::models::GenerationConfig;
    /// let config = GenerationConfig { max_length: Some(30), eos_token_id: vec![2, 3], ..Default::default() };
    /// let options = config.options(10)?;
    /// assert_eq!((options.max_new_tokens, options.eos_token_id), (20, vec![2, 3]));
    /// assert!(config.options(31).unwrap_err().to_string().contains("max_length"));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a prompt that is as long as `max_length`.
    pub fn options(&self, prompt_length: usize) -> Result<GenerateOptions> {
        let wrong =
            |what: &str, why: String| Err(Error::argument("GenerationConfig::options", what, why));
        let defaults = GenerateOptions::default();
        let max_new_tokens = match (self.max_new_tokens, self.max_length) {
            (Some(new), _) => new,
            (None, None) => defaults.max_new_tokens,
            (None, Some(all)) if all > prompt_length => all - prompt_length,
            (None, Some(all)) => {
                let why = format!(
                    "{all}, but the prompt has {prompt_length} tokens; set `max_new_tokens`"
                );
                return wrong("max_length", why);
            }
        };
        let do_sample = self.do_sample.unwrap_or(defaults.do_sample);
        // Settings of drawing that a file has beside `do_sample: false` do nothing there.
        fn drawn<T>(setting: Option<T>, do_sample: bool, idle: T) -> T {
            setting.filter(|_| do_sample).unwrap_or(idle)
        }
        Ok(GenerateOptions {
            max_new_tokens,
            do_sample,
            temperature: drawn(self.temperature, do_sample, defaults.temperature),
            top_k: drawn(self.top_k, do_sample, defaults.top_k),
            top_p: drawn(self.top_p, do_sample, defaults.top_p),
            min_p: drawn(self.min_p, do_sample, defaults.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(defaults.repetition_penalty),
            eos_token_id: self.eos_token_id.clone(),
            pad_token_id: self.pad_token_id,
            use_cache: self.use_cache.unwrap_or(defaults.use_cache),
        })
    }
}
