//! Hugging Face's folders: `model.safetensors`, or several files of a size that can be handled beside
//! `model.safetensors.index.json`, whose `weight_map` says which file holds which tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use serde::Deserialize;
use serde_json::json;

use super::open_safetensors;
use crate::checkpoint::TensorMap;
use crate::checkpoint::distributed::fetch::Files;
use crate::checkpoint::distributed::index::{Entry, Index, all_there, file_of};
use crate::checkpoint::folder::replace;
use crate::checkpoint::raw::{error_of, room_for_json};
use crate::checkpoint::replacing::{
    Temporary, followed, is_temporary_of, no_name, remove_leftovers, split, sync_folder, write_file,
};
use crate::checkpoint::safetensors::{Written, check_writable, write_tensors};
use crate::error::{Context, Error, Result};
use crate::profiler::Phase;
use crate::tensor::Tensor;

/// Of a folder of several files.
pub(super) const INDEX: &str = "model.safetensors.index.json";
/// Of one that is all.
pub(super) const SINGLE: &str = "model.safetensors";

#[derive(Deserialize)]
struct Document {
    weight_map: BTreeMap<String, String>,
}

/// Whether this is such a folder.
pub(super) fn is_one(folder: &Path) -> bool {
    folder.join(INDEX).is_file() || folder.join(SINGLE).is_file()
}

/// The tensors of such a folder.
///
/// # Errors
/// [`Error::File`] that names the index, and the file or tensor that does not agree with it.
pub(super) fn open(folder: &Path) -> Result<Index> {
    let path = folder.join(INDEX);
    let (has_index, has_single) = (path.is_file(), folder.join(SINGLE).is_file());
    if !has_index {
        let tensors = open_safetensors(&folder.join(SINGLE))?;
        return Ok(Index { path: folder.to_owned(), tensors, ..Default::default() });
    }
    let bytes = fs::read(&path).context(|| format!("open {}", path.display()))?;
    room_for_json(bytes.len()).map_err(|why| error_of(&path, why))?;
    let wrong = |what: String| Error::file(&path, what);
    let Document { weight_map } = serde_json::from_slice(&bytes)
        .map_err(|e| wrong(format!("is no index of safetensors files: {e}")))?;
    let names: BTreeSet<&String> = weight_map.values().collect();
    if has_single && !names.iter().any(|name| *name == SINGLE) {
        return Err(wrong(format!(
            "is there, and so is {SINGLE}, which it does not name: one of them is left over; remove it"
        )));
    }
    all_there(folder, &path, names.iter().map(|name| name.as_str()))?;
    let mut tensors: BTreeMap<String, Entry> = BTreeMap::new();
    for name in names {
        for (tensor, entry) in open_safetensors(&file_of(folder, &path, name)?)? {
            match weight_map.get(&tensor) {
                Some(of) if of == name => _ = tensors.insert(tensor, entry),
                Some(of) => {
                    return Err(wrong(format!(
                        "says that tensor `{tensor}` is in {of}, but {name} has one of that name"
                    )));
                }
                None => {
                    return Err(wrong(format!(
                        "does not name tensor `{tensor}`, which {name} has"
                    )));
                }
            }
        }
    }
    match weight_map.iter().find(|(tensor, _)| !tensors.contains_key(*tensor)) {
        Some((tensor, name)) => Err(wrong(format!(
            "says that tensor `{tensor}` is in {name}, which has none of that name"
        ))),
        None => Ok(Index { path: folder.to_owned(), tensors, ..Default::default() }),
    }
}

/// Options of [`save_sharded`].
///
/// ```
/// use torchrs::checkpoint::SaveShardedOptions;
/// assert_eq!(SaveShardedOptions::default().max_shard_size, 5_000_000_000);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveShardedOptions {
    /// Most bytes of tensors in one file. A larger tensor has a file of its own.
    pub max_shard_size: u64,
}

impl Default for SaveShardedOptions {
    fn default() -> Self {
        SaveShardedOptions { max_shard_size: 5_000_000_000 }
    }
}

/// Writes tensors as Hugging Face's tools do (`save_torch_state_dict`, `save_pretrained`): in files
/// `model-00001-of-00003.safetensors` of at most a size each, and `model.safetensors.index.json`, which says where
/// each is; or in one `model.safetensors` where that suffices. Tensors that share memory are written each in full.
///
/// The folder appears whole or not at all. One that holds such files already, and nothing else, is replaced.
///
/// ```
/// use torchrs::{Tensor, checkpoint::{SaveShardedOptions, TensorMap, load_sharded, save_sharded}};
/// # let dir = tempfile::tempdir().unwrap();
/// # let folder = dir.path().join("llama");
/// let tensors = TensorMap::from([
///     ("a.weight".to_owned(), Tensor::from([1f32, 2.])),
///     ("b.weight".to_owned(), Tensor::from([3f32])),
/// ]);
/// save_sharded(&tensors, &folder, SaveShardedOptions { max_shard_size: 8 })?;
/// assert!(folder.join("model-00002-of-00002.safetensors").exists());
/// assert_eq!(load_sharded(&folder)?["b.weight"].to_vec::<f32>(), [3.0]);
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for a `max_shard_size` of 0, and a folder that holds something else, which would be lost; as
/// [`save_file`](crate::checkpoint::save_file).
pub fn save_sharded(
    tensors: &TensorMap,
    folder: impl AsRef<Path>,
    options: SaveShardedOptions,
) -> Result<()> {
    let listed: Vec<Written<'_>> = tensors
        .iter()
        .map(|(name, t)| Written { name, dtype: t.dtype(), shape: t.shape() })
        .collect();
    let folder = followed(folder.as_ref())?;
    check_replaceable(&folder)?;
    write(&listed, &folder, options.max_shard_size, &|name| Ok(tensors[name].clone()))
}

/// The same of tensors that `get` brings.
///
/// # Errors
/// As [`save_sharded`], save that nothing is said of what is replaced; those of `get`.
pub(in crate::checkpoint) fn write(
    tensors: &[Written<'_>],
    folder: &Path,
    max_shard_size: u64,
    get: &dyn Fn(&str) -> Result<Tensor>,
) -> Result<()> {
    let _phase = Phase::checkpoint();
    if max_shard_size == 0 {
        let what = "0; must be the bytes of tensors that one file may have";
        return Err(Error::argument("save_sharded", "max_shard_size", what));
    }
    let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
    check_writable("save_sharded", tensors, &metadata, folder)?;
    let (parent, name) = split(folder).ok_or_else(|| no_name("folder", folder))?;
    fs::create_dir_all(parent).context(|| format!("create {}", parent.display()))?;
    remove_leftovers(parent, |temporary| is_temporary_of(temporary, name));
    let temporary = Temporary::folder(parent, name)
        .context(|| format!("create a folder in {}", parent.display()))?;

    let shards = shards(tensors, max_shard_size);
    let mut weight_map = BTreeMap::new();
    for (place, shard) in shards.iter().enumerate() {
        let file = match shards.len() {
            1 => SINGLE.to_owned(),
            count => format!("model-{:05}-of-{count:05}.safetensors", place + 1),
        };
        write_tensors("save_sharded", shard, &metadata, &temporary.path.join(&file), get)?;
        weight_map.extend(shard.iter().map(|t| (t.name, file.clone())));
    }
    if shards.len() > 1 {
        let total_size: u64 = tensors.iter().map(nbytes).sum();
        let document =
            json!({ "metadata": { "total_size": total_size }, "weight_map": weight_map });
        let text = serde_json::to_string_pretty(&document).expect("JSON values are JSON") + "\n";
        let index = temporary.path.join(INDEX);
        write_file(&index, |file| {
            file.write_all(text.as_bytes()).context(|| format!("write {}", index.display()))
        })?;
    }
    replace(&temporary.path, folder)?;
    temporary.settle();
    sync_folder(parent)
}

fn nbytes(tensor: &Written<'_>) -> u64 {
    (tensor.shape.iter().product::<usize>() * tensor.dtype.size()) as u64
}

/// What goes into each file, as `huggingface_hub.split_torch_state_dict_into_shards` has it: each is filled in turn,
/// and what is larger than one has its own. There is always one.
fn shards<'a>(tensors: &[Written<'a>], most: u64) -> Vec<Vec<Written<'a>>> {
    let (mut full, mut filling, mut size) = (Vec::new(), Vec::new(), 0);
    for tensor in tensors {
        let bytes = nbytes(tensor);
        if bytes > most {
            full.push(vec![*tensor]);
            continue;
        }
        if size + bytes > most {
            full.push(std::mem::take(&mut filling));
            size = 0;
        }
        filling.push(*tensor);
        size += bytes;
    }
    if !filling.is_empty() || full.is_empty() {
        full.push(filling);
    }
    full
}

/// Refuses to replace a folder that holds more than such files.
fn check_replaceable(folder: &Path) -> Result<()> {
    let shown = folder.display();
    let wrong = |what: String| Err(Error::argument("save_sharded", "folder", what));
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) if e.kind() == ErrorKind::NotADirectory => {
            return wrong(format!("{shown} is there and no folder"));
        }
        Err(e) => return Err(Error::os(format!("open {shown}"), e)),
    };
    for entry in entries {
        let name = entry.context(|| format!("open {shown}"))?.file_name();
        let name = name.to_string_lossy();
        let is_ours = name == INDEX || name == SINGLE || is_shard(&name);
        if !is_ours {
            return wrong(format!("{shown} holds {name}, which would be lost; name a new folder"));
        }
    }
    Ok(())
}

fn is_shard(name: &str) -> bool {
    let middle = name.strip_prefix("model-").and_then(|rest| rest.strip_suffix(".safetensors"));
    let numbers = middle.and_then(|middle| middle.split_once("-of-"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    numbers.is_some_and(|(place, count)| is_number(place) && is_number(count))
}

/// Reads all tensors of a folder of [`save_sharded`], or of Hugging Face's. Checksums in its files are checked.
///
/// ```
/// use torchrs::{Tensor, checkpoint::{SaveShardedOptions, TensorMap, load_sharded, save_sharded}};
/// # let dir = tempfile::tempdir().unwrap();
/// # let folder = dir.path().join("llama");
/// let tensors = TensorMap::from([("weight".to_owned(), Tensor::from([1f32, 2.]))]);
/// save_sharded(&tensors, &folder, SaveShardedOptions::default())?;
/// assert_eq!(load_sharded(&folder)?["weight"].to_vec::<f32>(), [1.0, 2.0]);
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::File`] that names the file, and the tensor where it is one, that is missing, damaged, or where the index
/// does not say; [`Error::OutOfMemory`] for a tensor that memory does not suffice for.
pub fn load_sharded(folder: impl AsRef<Path>) -> Result<TensorMap> {
    let folder = folder.as_ref();
    if !is_one(folder) {
        fs::read_dir(folder).context(|| format!("open {}", folder.display()))?;
        let what = format!("has neither {INDEX} nor {SINGLE}");
        let what = match super::format_of(folder) {
            Ok(other) => {
                format!("{what}; its format is {}, which `Checkpoint::open` reads", other.name())
            }
            Err(_) => what,
        };
        return Err(Error::file(folder, what));
    }
    let (index, files) = (open(folder)?, Files::default());
    let tensor = |name: &String| Ok((name.clone(), index.read(name, &files)?));
    index.tensors.keys().map(tensor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Dtype;

    /// Sizes of what `huggingface_hub` puts into each file.
    #[test]
    fn files_are_filled_in_turn_and_what_is_too_large_has_its_own() {
        let of = |sizes: &[usize]| -> Vec<Vec<usize>> {
            let shapes: Vec<[usize; 1]> = sizes.iter().map(|&n| [n]).collect();
            let tensor = |shape| Written { name: "t", dtype: Dtype::U8, shape };
            let tensors: Vec<Written> = shapes.iter().map(|shape| tensor(&shape[..])).collect();
            let sizes = |shard: &Vec<Written>| shard.iter().map(|t| t.shape[0]).collect();
            shards(&tensors, 10).iter().map(sizes).collect()
        };
        assert_eq!(of(&[4, 6, 1]), [vec![4, 6], vec![1]]);
        assert_eq!(of(&[4, 11, 6, 1]), [vec![11], vec![4, 6], vec![1]]);
        assert_eq!(of(&[11, 12]), [vec![11], vec![12]]);
        assert_eq!(of(&[10]), [vec![10]]);
        assert_eq!(of(&[]), [Vec::<usize>::new()]);
    }
}
