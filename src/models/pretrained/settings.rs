//! `config.json`, key by key: what is a setting, what changes nothing, and what cannot be.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{Context, Error, Result};

pub(in crate::models) type Table = Map<String, Value>;

/// A setting that cannot be, and why.
pub(in crate::models) type Fault = (&'static str, String);

/// The first size that is 0.
pub(in crate::models) fn zero(sizes: &[(&'static str, usize)]) -> Option<Fault> {
    let &(what, _) = sizes.iter().find(|(_, size)| *size == 0)?;
    Some((what, "0; must be positive".into()))
}

/// The first number that is no probability.
pub(in crate::models) fn no_probability(numbers: &[(&'static str, f64)]) -> Option<Fault> {
    let &(what, p) = numbers.iter().find(|(_, p)| !(0.0..=1.0).contains(p))?;
    Some((what, format!("{p}; must be from 0 to 1")))
}

/// Keys of any `config.json` that change nothing of what is computed: names of tokens, of types and programs.
const NEUTRAL: &[&str] = &[
    "architectures",
    "auto_map",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "dtype",
    "eos_token_id",
    "finetuning_task",
    "gradient_checkpointing",
    "is_llama_config",
    "label2id",
    "max_length",
    "model_max_length",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "pad_token_id",
    // How products are cut into parts: rounding.
    "pretraining_tp",
    "return_dict",
    "sep_token_id",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "unk_token_id",
    "use_cache",
];

/// What a `config.json` of one kind of model may say.
pub(in crate::models) struct Known<'a> {
    /// Names of settings.
    pub fields: &'a [&'a str],
    /// Keys that say in words what is always so here, with the values that they may have, the usual one first.
    pub fixed: &'a [(&'a str, Vec<Value>)],
    /// Further keys that change nothing.
    pub neutral: &'a [&'a str],
}

impl Known<'_> {
    /// Refuses what would change the numbers and is not known, and leaves settings alone in the table.
    ///
    /// # Errors
    /// In words, with the key.
    pub(in crate::models) fn sift(&self, table: &mut Table) -> std::result::Result<(), String> {
        // Null says that there is none of it.
        table.retain(|_, value| !value.is_null());
        for (key, value) in &*table {
            if let Some((_, allowed)) = self.fixed.iter().find(|(name, _)| name == key) {
                if !allowed.contains(value) {
                    let model = match self.fixed.first() {
                        Some(("model_type", kinds)) => format!("this is {}", kinds[0]),
                        _ => "this is a model".to_owned(),
                    };
                    return Err(format!("`{key}` is {value}; {model} with {}", allowed[0]));
                }
                continue;
            }
            let name = key.as_str();
            let is_known =
                [self.fields, NEUTRAL, self.neutral].iter().any(|list| list.contains(&name))
                    || super::generation::is_setting(name);
            if !is_known && !key.starts_with('_') {
                return Err(format!(
                    "`{key}` is not known, and what it says would be left out; take it away if it changes nothing of \
                     what the model computes"
                ));
            }
        }
        table.retain(|key, _| self.fields.contains(&key.as_str()));
        Ok(())
    }
}

/// What a file of JSON holds.
///
/// # Errors
/// [`Error::File`] for what is no such JSON; [`Error::Os`] where it cannot be read.
pub(in crate::models) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| Error::file(path, e.to_string()))
}

/// The settings of a file. Those that it has not are the default ones.
///
/// # Errors
/// [`Error::File`] that names the key or value that is not known, or the setting that cannot be; [`Error::Os`] where it
/// cannot be read.
pub(in crate::models) fn read<T: DeserializeOwned + Serialize + Default>(
    path: &Path,
    fixed: &[(&str, Vec<Value>)],
    neutral: &[&str],
    adapt: impl FnOnce(&mut Table) -> std::result::Result<(), String>,
    fault: impl FnOnce(&T) -> Option<Fault>,
) -> Result<T> {
    let wrong = |why: String| Error::file(path, why);
    let mut table: Table = read_json(path)?;
    adapt(&mut table).map_err(wrong)?;
    let defaults = table_of(&T::default())?;
    let fields: Vec<&str> = defaults.keys().map(String::as_str).collect();
    let nulls: Vec<String> =
        table.iter().filter(|(_, v)| v.is_null()).map(|(key, _)| key.clone()).collect();
    Known { fields: &fields, fixed, neutral }.sift(&mut table).map_err(wrong)?;
    let reads = |key: &str, value: &Value| {
        let alone: Table = [(key.to_owned(), value.clone())].into_iter().collect();
        serde_json::from_value::<T>(Value::Object(alone)).map(drop)
    };
    // Null says that there is none, where a setting can be none; elsewhere that it is the default.
    for key in nulls.into_iter().filter(|key| fields.contains(&key.as_str())) {
        if reads(&key, &Value::Null).is_ok() {
            table.insert(key, Value::Null);
        }
    }
    for (key, value) in &table {
        reads(key, value).map_err(|why| wrong(format!("`{key}` is {value}: {why}")))?;
    }
    let config: T =
        serde_json::from_value(Value::Object(table)).map_err(|e| wrong(e.to_string()))?;
    match fault(&config) {
        Some((what, why)) => Err(wrong(format!("`{what}` is {why}"))),
        None => Ok(config),
    }
}

/// Settings as a table.
///
/// # Errors
/// [`Error::Argument`] for what cannot be JSON.
pub(in crate::models) fn table_of(settings: &impl Serialize) -> Result<Table> {
    match serde_json::to_value(settings) {
        Ok(Value::Object(table)) => Ok(table),
        Ok(other) => Err(Error::argument("config", "settings", format!("are {other}, no table"))),
        Err(e) => Err(Error::argument("config", "settings", format!("cannot be JSON: {e}"))),
    }
}
