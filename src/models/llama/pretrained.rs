//! Weights as they are published: a folder with `config.json` and `model.safetensors`, or with several such files and
//! `model.safetensors.index.json`, which says what is where.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{LlamaConfig, LlamaForCausalLM};
use crate::autograd::no_grad;
use crate::checkpoint::{CheckpointFiles, TensorMap, save_file};
use crate::error::{Context, Error, Result};
use crate::nn::{Module, NamedTensors, StateDict, init::skip_init};
use crate::tensor::Tensor;

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const HEAD: &str = "lm_head.weight";
const TABLE: &str = "model.embed_tokens.weight";

impl LlamaForCausalLM {
    /// The model of a folder as Hugging Face's `save_pretrained` writes it: [`config.json`](LlamaConfig::from_file), and
    /// the weights as [`load_folder`](Self::load_folder) finds them. Parameters are f32.
    ///
    /// # Errors
    /// As those two.
    ///
    /// ```
    /// use torchrs::models::{LlamaConfig, LlamaForCausalLM};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path();
    /// let sizes = LlamaConfig { vocab_size: 50, hidden_size: 8, intermediate_size: 16, ..Default::default() };
    /// let config = LlamaConfig { num_hidden_layers: 1, num_attention_heads: 2, ..sizes };
    /// let model = LlamaForCausalLM::new(config);
    /// model.save_pretrained(folder)?;
    /// let again = LlamaForCausalLM::from_pretrained(folder)?;
    /// assert!(again.lm_head.weight.equal(&model.lm_head.weight));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn from_pretrained(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let config = LlamaConfig::from_file(folder.join(CONFIG))?;
        let model = skip_init(|| Self::new(config));
        model.load_folder(folder)?;
        Ok(model)
    }

    /// Copies the weights of a folder, tensor by tensor: `model.safetensors`, or those that `model.safetensors.index.json`
    /// names. Of a sharded model all ranks call it.
    ///
    /// # Errors
    /// [`Error::File`] that names the folder where it has not the model's weights, and no more; as
    /// [`CheckpointFiles::open`] and [`CheckpointFiles::tensor`] for files that are missing or damaged.
    pub fn load_folder(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        let files = CheckpointFiles::open(folder)?;
        let mut loading = Loading::new(self);
        for stored in files.tensors() {
            let tensor = [(stored.name.to_owned(), files.tensor(stored.name)?)];
            loading.add(&TensorMap::from(tensor)).map_err(|why| Error::file(folder, why))?;
        }
        loading.finish().map_err(|why| Error::file(folder, why))
    }

    /// Copies weights as they are published: with the names of this model or of [`LlamaModel`](super::LlamaModel)
    /// (without `model.`), with or without `lm_head.weight` where it is tied, with or without the frequencies that old
    /// versions stored (`rotary_emb.inv_freq`). All else must be there, and nothing more.
    ///
    /// # Errors
    /// [`Error::Argument`] that names what is missing, too much, or of another shape.
    pub fn load_pretrained(&self, weights: &dyn NamedTensors) -> Result<()> {
        let mut loading = Loading::new(self);
        let done = loading.add(weights).and_then(|()| loading.finish());
        done.map_err(|why| Error::argument("load_pretrained", "weights", why))
    }

    /// Writes `config.json` and `model.safetensors` into a folder, which is made if it is not there. A head that is tied
    /// is left out, as its tensor is there. Of a sharded model see [`save_weights`](Self::save_weights).
    ///
    /// # Errors
    /// [`Error::Os`] where they cannot be written; as [`save_file`]; [`Error::Argument`] for a sharded model, which one
    /// rank cannot read.
    pub fn save_pretrained(&self, folder: impl AsRef<Path>) -> Result<()> {
        if self.parameters().iter().any(Tensor::is_sharded) {
            let what = "is sharded: all ranks copy the tensors of its `state_dict()`, and one gives them to `save_weights`";
            return Err(Error::argument("save_pretrained", "self", what));
        }
        self.save_weights(TensorMap::from(self.state_dict()), folder)
    }

    /// [`save_pretrained`](Self::save_pretrained) of weights that are given: copies of a sharded model's.
    ///
    /// # Errors
    /// [`Error::Os`] where they cannot be written; as [`save_file`].
    pub fn save_weights(&self, mut weights: TensorMap, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        std::fs::create_dir_all(folder).context(|| format!("make {}", folder.display()))?;
        let config = serde_json::to_string_pretty(self.config()).map_err(|e| {
            Error::argument("save_pretrained", "config", format!("cannot be JSON: {e}"))
        })?;
        let path = folder.join(CONFIG);
        std::fs::write(&path, config + "\n").context(|| format!("write {}", path.display()))?;
        if self.config().tie_word_embeddings {
            weights.remove(HEAD);
        }
        // Without it other programs do not read the file.
        let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
        save_file(&weights, &metadata, folder.join(WEIGHTS))
    }
}

/// A model that gets its weights in parts.
struct Loading<'a> {
    model: &'a LlamaForCausalLM,
    loaded: BTreeSet<String>,
    /// Of a model whose head is tied: what came for it beside the table.
    head: Option<Tensor>,
}

impl<'a> Loading<'a> {
    fn new(model: &'a LlamaForCausalLM) -> Self {
        Loading { model, loaded: BTreeSet::new(), head: None }
    }

    fn add(&mut self, weights: &dyn NamedTensors) -> std::result::Result<(), String> {
        let mut state = StateDict::new();
        for name in weights.names() {
            if name.ends_with(".rotary_emb.inv_freq") {
                continue;
            }
            let Some(tensor) = weights.tensor(name) else { continue };
            let own = match name == HEAD || name.starts_with("model.") {
                true => name.to_owned(),
                false => format!("model.{name}"),
            };
            if !self.loaded.insert(own.clone()) {
                return Err(format!("has `{own}`, which is there already"));
            }
            if own == HEAD && self.model.config().tie_word_embeddings {
                self.head = Some(tensor.clone());
            } else {
                state.insert(own, tensor.clone());
            }
        }
        let report = self.model.load_state_dict(&state, false).map_err(|e| e.to_string())?;
        match &report.unexpected_keys[..] {
            [] => Ok(()),
            names => Err(format!("has `{}`, which the model has not", names.join("`, `"))),
        }
    }

    fn finish(mut self) -> std::result::Result<(), String> {
        if self.model.config().tie_word_embeddings {
            let known = self.loaded.contains(TABLE);
            let table = &self.model.lm_head.weight;
            match self
                .head
                .take()
                .map(|head| head.to_dtype(table.dtype()).to_device(table.device()))
            {
                Some(head) if head.shape() != table.shape() => {
                    return Err(format!(
                        "`{HEAD}` is {:?}; must be {:?}",
                        head.shape(),
                        table.shape()
                    ));
                }
                Some(head) if known && !no_grad(|| head.equal(table)) => {
                    return Err(format!(
                        "`{HEAD}` differs from `{TABLE}`, but tie_word_embeddings says that they are one; set it to \
                         false"
                    ));
                }
                Some(head) if !known => no_grad(|| _ = table.copy_(&head)),
                _ => {}
            }
            if known || self.loaded.contains(HEAD) {
                self.loaded.extend([TABLE.to_owned(), HEAD.to_owned()]);
            }
        }
        let state = self.model.state_dict();
        let missing: Vec<&str> = state.keys().filter(|key| !self.loaded.contains(*key)).collect();
        match missing.len() {
            0 => Ok(()),
            _ => Err(format!("has no `{}`", missing.join("`, `"))),
        }
    }
}
