//! Folders as Hugging Face publishes them, `config.json` beside the weights, for all models that have such.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`names`] | which stored tensor is which of the model |
//! | [`weights`] | the files of a folder, of whatever kind |
//! | [`settings`] | `config.json`, key by key |
//! | [`generation`] | `generation_config.json` |
//!
//! A model says what is its own by [`Published`]; the methods that users call are written here once.

mod generation;
mod names;
pub(super) mod settings;
mod weights;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

pub use self::generation::GenerationConfig;
pub(super) use self::names::Names;
use self::weights::Weights;
use super::{
    BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel, GPT2Config,
    GPT2LMHeadModel, GPT2Model, LlamaConfig, LlamaForCausalLM, LlamaModel, ViTConfig,
    ViTForImageClassification, ViTModel,
};
use crate::checkpoint::{TensorMap, save_file};
use crate::error::{Context, Error, Result};
use crate::nn::{LoadReport, Module, NamedTensors, StateDict};
use crate::tensor::Tensor;

const CONFIG: &str = "config.json";

/// How a model is taken from a folder.
///
/// ```
/// use torchrs::models::{BertConfig, BertForMaskedLM, BertForSequenceClassification, PretrainedOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let sizes = BertConfig { vocab_size: 50, hidden_size: 8, intermediate_size: 16, ..Default::default() };
/// let config = BertConfig { num_hidden_layers: 1, num_attention_heads: 2, ..sizes };
/// // `pooler` and `classifier` are not in it.
/// BertForMaskedLM::new(config).save_pretrained(folder)?;
/// assert!(BertForSequenceClassification::from_pretrained(folder).is_err());
/// let config = BertConfig::from_file(folder.join("config.json"))?.with_num_labels(5);
/// let model = BertForSequenceClassification::new(config);
/// let report = model.load_folder_with(folder, PretrainedOptions { new_head: true })?;
/// assert_eq!(report.missing_keys.len(), 4);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PretrainedOptions {
    /// Whether the head keeps its initial values, whatever the folder holds for it: for another task than the folder's.
    pub new_head: bool,
}

/// What a model that is published in folders says of itself.
pub(super) trait Published: Module + Sized {
    /// The names of its tensors.
    const NAMES: Names;
    /// What `config.json` says of it.
    fn config_table(&self) -> Result<Map<String, Value>>;
    /// Names of one tensor: that which files leave out, and that under which they have it.
    fn tied(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

fn from_folder<M: Published, C>(
    folder: &Path,
    options: PretrainedOptions,
    read: impl FnOnce(PathBuf) -> Result<C>,
    build: impl FnOnce(C) -> M,
) -> Result<M> {
    let config = read(folder.join(CONFIG))?;
    let build = || crate::error::catch(|| build(config));
    // What keeps its initial values needs some.
    let model = if options.new_head { build()? } else { crate::nn::init::skip_init(build)? };
    load_folder(&model, folder, options)?;
    Ok(model)
}

fn load_folder<M: Published>(
    model: &M,
    folder: &Path,
    options: PretrainedOptions,
) -> Result<LoadReport> {
    let weights = Weights::open(folder)?;
    load(model, &weights, options, &|why| Error::file(folder, why))
}

/// Copies tensors one by one, once it is known that all fit.
fn load<M: Published>(
    model: &M,
    weights: &Weights<'_>,
    options: PretrainedOptions,
    wrong: &dyn Fn(String) -> Error,
) -> Result<LoadReport> {
    let plan = names::plan(model, &M::NAMES, model.tied(), &weights.stored(), options.new_head)
        .map_err(wrong)?;
    for same in &plan.same {
        let (one, other) = (weights.tensor(&same.stored)?, weights.tensor(&same.twin)?);
        let other = other.to_dtype(one.dtype()).to_device(one.device());
        if !crate::autograd::no_grad(|| one.equal(&other)) {
            return Err(wrong(format!(
                "`{}` differs from `{}`, but they are one tensor of the model; if the folder's model has two, set \
                 tie_word_embeddings to false",
                same.stored, same.twin
            )));
        }
    }
    for (stored, own) in &plan.copies {
        let state: StateDict = [(own.clone(), weights.tensor(stored)?)].into_iter().collect();
        model.load_state_dict(&state, false)?;
    }
    Ok(plan.report)
}

fn save_weights<M: Published>(model: &M, mut weights: TensorMap, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).context(|| format!("make {}", folder.display()))?;
    let mut table = model.config_table()?;
    table.insert("architectures".into(), vec![model.name()].into());
    let config = serde_json::to_string_pretty(&table).map_err(|e| {
        Error::argument("save_pretrained", "config", format!("cannot be JSON: {e}"))
    })?;
    let path = folder.join(CONFIG);
    for left_out in model.tied() {
        weights.remove(left_out.0);
    }
    weights::check_free(folder)?;
    // Without it other programs do not read the file.
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    save_file(&weights, &metadata, folder.join(weights::SINGLE))?;
    std::fs::write(&path, config + "\n").context(|| format!("write {}", path.display()))
}

fn save<M: Published>(model: &M, folder: &Path) -> Result<()> {
    if model.parameters().iter().any(Tensor::is_sharded) {
        let what = "is sharded: all ranks copy the tensors of its `state_dict()`, and one gives them to `save_weights`";
        return Err(Error::argument("save_pretrained", "self", what));
    }
    save_weights(model, TensorMap::from(model.state_dict()), folder)
}

/// The methods of each model.
macro_rules! published {
    ($($model:ident $config:ident;)*) => {$(
        impl $model {
            /// The model of a folder as Hugging Face's `save_pretrained` writes it, or as it is published: `config.json`,
            /// read by
            #[doc = concat!("[`", stringify!($config), "::from_file`],")]
            /// and the weights as [`load_folder`](Self::load_folder) finds them. Parameters are f32.
            ///
            /// # Errors
            /// As those two.
            pub fn from_pretrained(folder: impl AsRef<Path>) -> Result<Self> {
                Self::from_pretrained_with(folder, PretrainedOptions::default())
            }

            /// [`from_pretrained`](Self::from_pretrained) with options.
            ///
            /// # Errors
            /// As that.
            pub fn from_pretrained_with(
                folder: impl AsRef<Path>,
                options: PretrainedOptions,
            ) -> Result<Self> {
                from_folder(folder.as_ref(), options, $config::from_file, Self::new)
            }

            /// Copies the weights of a folder, tensor by tensor: `model.safetensors`, or those that
            /// `model.safetensors.index.json` names, or the older `pytorch_model.bin`, also in several files. Names are
            /// understood as in [`load_pretrained`](Self::load_pretrained). Of a sharded model all ranks call it.
            ///
            /// # Errors
            /// [`Error::File`] that names all that is missing, too much, or of another shape; nothing has been copied
            /// then. As [`CheckpointFiles::open`](crate::checkpoint::CheckpointFiles::open) and
            /// [`CheckpointFiles::tensor`](crate::checkpoint::CheckpointFiles::tensor) for files that are missing or
            /// damaged.
            pub fn load_folder(&self, folder: impl AsRef<Path>) -> Result<LoadReport> {
                load_folder(self, folder.as_ref(), PretrainedOptions::default())
            }

            /// [`load_folder`](Self::load_folder) with options; the report has what keeps its initial values as missing.
            ///
            /// # Errors
            /// As that.
            pub fn load_folder_with(
                &self,
                folder: impl AsRef<Path>,
                options: PretrainedOptions,
            ) -> Result<LoadReport> {
                load_folder(self, folder.as_ref(), options)
            }

            /// Copies weights as they are published: with the names of the model with or without its head, with or
            /// without a tensor that is tied to another, with or without the buffers that old versions stored
            /// (`attn.bias`, `attn.masked_bias`, `rotary_emb.inv_freq`, `embeddings.position_ids`,
            /// `embeddings.token_type_ids`), and with the prefixes of wrappers (`module.` of `DistributedDataParallel`,
            /// `_orig_mod.` of `torch.compile`). Other heads of the same family may be there; the report names them as
            /// unexpected. All else must be there, and nothing more.
            ///
            /// # Errors
            /// [`Error::Argument`] that names all that is missing, too much, or of another shape; nothing has been
            /// copied then.
            pub fn load_pretrained(&self, weights: &dyn NamedTensors) -> Result<LoadReport> {
                let wrong = |why| Error::argument("load_pretrained", "weights", why);
                load(self, &Weights::Given(weights), PretrainedOptions::default(), &wrong)
            }

            /// Writes `config.json` and `model.safetensors` into a folder, which is made if it is not there. A tensor
            /// that is tied to another is left out, as that is there. Of a sharded model see
            /// [`save_weights`](Self::save_weights).
            ///
            /// # Errors
            /// [`Error::Os`] where they cannot be written; as [`save_file`]; [`Error::File`] for a folder with weights
            /// in several files, which would stay beside; [`Error::Argument`] for a sharded model, which one rank
            /// cannot read.
            pub fn save_pretrained(&self, folder: impl AsRef<Path>) -> Result<()> {
                save(self, folder.as_ref())
            }

            /// [`save_pretrained`](Self::save_pretrained) of weights that are given: copies of a sharded model's.
            ///
            /// # Errors
            /// [`Error::Os`] where they cannot be written; as [`save_file`].
            pub fn save_weights(&self, weights: TensorMap, folder: impl AsRef<Path>) -> Result<()> {
                save_weights(self, weights, folder.as_ref())
            }
        }
    )*};
}

published! {
    GPT2Model GPT2Config;
    GPT2LMHeadModel GPT2Config;
    LlamaModel LlamaConfig;
    LlamaForCausalLM LlamaConfig;
    BertModel BertConfig;
    BertForMaskedLM BertConfig;
    BertForSequenceClassification BertConfig;
    ViTModel ViTConfig;
    ViTForImageClassification ViTConfig;
}
