//! The weights of a folder, of whatever kind its files are; or those that are given.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use crate::checkpoint::CheckpointFiles;
use crate::error::{Context, Error, Result};
use crate::nn::NamedTensors;
use crate::tensor::{Dtype, Tensor};

pub(super) const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Files of `torch.save`, as they were published before safetensors.
const OLD_SINGLE: &str = "pytorch_model.bin";
const OLD_INDEX: &str = "pytorch_model.bin.index.json";

/// Where the weights come from.
pub(super) enum Weights<'a> {
    Given(&'a dyn NamedTensors),
    /// A checkpoint, or several that are one together.
    Files(Vec<CheckpointFiles>),
}

/// What is known of a tensor before it is read.
pub(super) struct Stored {
    pub name: String,
    pub shape: Vec<usize>,
    pub dtype: Dtype,
}

#[derive(Deserialize)]
struct Document {
    weight_map: BTreeMap<String, String>,
}

impl Weights<'_> {
    /// The weights of a folder. Safetensors come before files of `torch.save`, which need memory for all of them.
    ///
    /// # Errors
    /// [`Error::File`] for a folder that has none, or whose files are damaged.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let has = |name: &str| folder.join(name).is_file();
        if !has(SINGLE) && !has(INDEX) {
            if has(OLD_SINGLE) {
                let files = CheckpointFiles::open(folder.join(OLD_SINGLE))?;
                return Ok(Weights::Files(vec![files]));
            }
            if has(OLD_INDEX) {
                return open_old(folder).map(Weights::Files);
            }
        }
        Ok(Weights::Files(vec![CheckpointFiles::open(folder)?]))
    }

    /// What there is.
    pub(super) fn stored(&self) -> Vec<Stored> {
        let stored = |name: &str, shape: &[usize], dtype| {
            let (name, shape) = (name.to_owned(), shape.to_vec());
            Stored { name, shape, dtype }
        };
        match self {
            Weights::Given(tensors) => {
                let tensor = |name: &str| {
                    let tensor = tensors.tensor(name)?;
                    Some(stored(name, tensor.shape(), tensor.dtype()))
                };
                tensors.names().into_iter().filter_map(tensor).collect()
            }
            Weights::Files(files) => {
                let all = files.iter().flat_map(CheckpointFiles::tensors);
                all.map(|t| stored(t.name, t.shape, t.dtype)).collect()
            }
        }
    }

    /// One of the tensors.
    ///
    /// # Errors
    /// [`Error::File`] where it is damaged.
    pub(super) fn tensor(&self, name: &str) -> Result<Tensor> {
        let missing = || Error::argument("load_pretrained", "weights", format!("has no `{name}`"));
        match self {
            Weights::Given(tensors) => tensors.tensor(name).cloned().ok_or_else(missing),
            Weights::Files(files) => {
                let has = |files: &&CheckpointFiles| files.tensors().any(|t| t.name == name);
                files.iter().find(has).ok_or_else(missing)?.tensor(name)
            }
        }
    }
}

/// Files of `torch.save` that an index names.
fn open_old(folder: &Path) -> Result<Vec<CheckpointFiles>> {
    let path = folder.join(OLD_INDEX);
    let text = std::fs::read_to_string(&path).context(|| format!("read {}", path.display()))?;
    let Document { weight_map } = serde_json::from_str(&text)
        .map_err(|e| Error::file(&path, format!("is no index of weights: {e}")))?;
    let names: BTreeSet<&String> = weight_map.values().collect();
    let mut all = Vec::new();
    for name in names {
        if name.contains('/') || name == ".." {
            let what = format!("names the file `{name}`, which is none of its folder");
            return Err(Error::file(&path, what));
        }
        all.push(CheckpointFiles::open(folder.join(name))?);
    }
    let has = |name: &str| all.iter().any(|files| files.tensors().any(|t| t.name == name));
    match weight_map.iter().find(|(name, _)| !has(name)) {
        None => Ok(all),
        Some((name, file)) => {
            let what =
                format!("says that tensor `{name}` is in {file}, which has none of that name");
            Err(Error::file(&path, what))
        }
    }
}

/// Refuses a folder whose weights lie in several files: what is written beside them would not be read.
pub(super) fn check_free(folder: &Path) -> Result<()> {
    let path = folder.join(INDEX);
    if path.exists() {
        let what = format!(
            "is there, and {SINGLE} beside it would not be read; remove it and its files, or name another folder"
        );
        return Err(Error::file(path, what));
    }
    Ok(())
}
