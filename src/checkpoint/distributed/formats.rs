//! Which format a checkpoint has, and the index of any.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use super::index::{Checksum, Entry, Index, Location, Piece};
use super::own::{self, INDEX};
use super::region::Region;
use crate::checkpoint::folder::{STATE, read_state};
use crate::checkpoint::safetensors::{checksums, known_dtype, read_header};
use crate::error::{Context, Error, Result};

/// Finds out what the checkpoint at `path` holds: a folder with `index.json`, one of a
/// [`Checkpoint`](crate::checkpoint::Checkpoint), or a safetensors file.
///
/// # Errors
/// [`Error::File`] for what is none of these, or damaged.
pub(crate) fn open(path: &Path) -> Result<Index> {
    if path.join(INDEX).exists() {
        return own::open(path);
    }
    if path.join(STATE).exists() {
        return open_folder(path);
    }
    if path.is_file() {
        let tensors = open_safetensors(path)?;
        return Ok(Index { path: path.to_owned(), tensors, ..Default::default() });
    }
    match std::fs::metadata(path) {
        Err(error) => Err(Error::os(format!("open {}", path.display()), error)),
        Ok(_) => Err(Error::file(
            path,
            format!("is no checkpoint: there is neither {INDEX} nor {STATE} in it"),
        )),
    }
}

/// A folder with a file for each group of tensors.
fn open_folder(path: &Path) -> Result<Index> {
    let (groups, values) = read_state(path)?;
    let mut tensors = BTreeMap::new();
    for group in &groups {
        for (name, entry) in open_safetensors(&path.join(format!("{group}.safetensors")))? {
            tensors.insert(format!("{group}.{name}"), entry);
        }
    }
    Ok(Index { path: path.to_owned(), world_size: None, groups, tensors, values })
}

/// The tensors of a safetensors file.
///
/// # Errors
/// As `load_file`, save that no tensor is read.
pub(super) fn open_safetensors(path: &Path) -> Result<BTreeMap<String, Entry>> {
    let file = File::open(path).context(|| format!("open {}", path.display()))?;
    let length = file.metadata().context(|| format!("open {}", path.display()))?.len();
    let (start, header) = read_header(path, &file, length)?;
    let sums = checksums(path, &header)?;
    let mut tensors = BTreeMap::new();
    for name in header.offset_keys() {
        let info = header.info(&name).expect("one of its own names");
        let dtype = known_dtype(path, &name, info.dtype)?;
        let checksum = match &sums {
            None => None,
            Some(sums) => match sums.get(&name) {
                Some(&crc32) => Some(Checksum { crc32, has_type: true }),
                None => {
                    let what = format!("tensor `{name}` has no checksum: the header is damaged");
                    return Err(Error::file(path, what));
                }
            },
        };
        let start = start + info.data_offsets.0 as u64;
        let at = Location::File { path: path.to_owned(), start, checksum };
        let pieces = vec![Piece { region: Region::whole(&info.shape), at }];
        tensors.insert(name, Entry { dtype, shape: info.shape.clone(), pieces });
    }
    Ok(tensors)
}
