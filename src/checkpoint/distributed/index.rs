//! What a checkpoint holds and where its bytes lie, whatever the format of its files.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::region::Region;
use crate::checkpoint::raw::bytes_within;
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

/// All tensors of a checkpoint, in pieces, and its values.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The folder or file that it was read from.
    pub path: PathBuf,
    /// How many ranks wrote it, where it says so.
    pub world_size: Option<usize>,
    /// Names that tensors' names begin with, a point behind them: those of a training state's parts.
    pub groups: Vec<String>,
    pub tensors: BTreeMap<String, Entry>,
    pub values: BTreeMap<String, Value>,
}

/// A tensor of a checkpoint.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    /// They lie in the tensor, do not overlap, and have all of its elements.
    pub pieces: Vec<Piece>,
}

/// A box of a tensor, whose elements lie one after the other in row-major order.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub region: Region,
    pub at: Location,
}

/// Where a piece's bytes are.
#[derive(Debug, Clone)]
pub(crate) enum Location {
    /// In a file, from a byte on.
    File { path: PathBuf, start: u64, checksum: Option<Checksum> },
    /// In an item of PyTorch's, an archive that begins at a byte of a file and has so many: looked for when it is read.
    Item { path: PathBuf, start: u64, length: u64 },
    /// In memory already.
    Memory(Tensor),
}

/// A CRC-32 that a piece's bytes must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Checksum {
    pub crc32: u32,
    /// Whether dtype and shape come before the bytes, as in our own files.
    pub has_type: bool,
}

impl Entry {
    /// Of a tensor that is in memory.
    pub fn held(tensor: &Tensor) -> Entry {
        let shape = tensor.shape().to_vec();
        let at = Location::Memory(tensor.clone());
        let pieces = vec![Piece { region: Region::whole(&shape), at }];
        Entry { dtype: tensor.dtype(), shape, pieces }
    }
}

impl Index {
    /// The tensor of this name.
    ///
    /// # Errors
    /// [`Error::File`] when there is none.
    pub fn entry(&self, name: &str) -> Result<&Entry> {
        self.tensors.get(name).ok_or_else(|| {
            let near = near(name, self.tensors.keys());
            Error::file(&self.path, format!("has no tensor `{name}`{near}"))
        })
    }

    /// The tensors of a group, which may end in a point: their names here, and those in the group. `argument` of `op` has
    /// named it.
    ///
    /// # Errors
    /// [`Error::Argument`] when there are none, or one would have no name.
    pub fn names_in(&self, op: &str, argument: &str, group: &str) -> Result<Vec<(String, String)>> {
        let prefix = prefix_of(group);
        let named = |name: &String| Some((name.clone(), name.strip_prefix(&prefix)?.to_owned()));
        let names: Vec<(String, String)> = self.tensors.keys().filter_map(named).collect();
        let what = if let Some((name, _)) = names.iter().find(|(_, own)| own.is_empty()) {
            format!("{prefix:?} is all of the name of tensor `{name}`")
        } else if names.is_empty() {
            let there = match &self.groups[..] {
                [] => format!("{:?}", self.tensors.keys().take(3).collect::<Vec<_>>()),
                groups => format!("the groups {groups:?}"),
            };
            format!("no tensor's name begins with `{prefix}`; there are {there}")
        } else {
            return Ok(names);
        };
        Err(Error::argument(op, argument, what))
    }

    /// What tells checkpoints apart, wherever they lie: values, and what is known of tensors without reading them.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (name, value) in &self.values {
            (name, value.to_string()).hash(&mut hasher);
        }
        for (name, entry) in &self.tensors {
            (name, entry.dtype, &entry.shape).hash(&mut hasher);
            for Piece { region, at } in &entry.pieces {
                region.hash(&mut hasher);
                match at {
                    Location::File { start, checksum, .. } => (start, checksum).hash(&mut hasher),
                    Location::Item { start, length, .. } => (start, length).hash(&mut hasher),
                    Location::Memory(_) => {}
                }
            }
        }
        hasher.finish()
    }

    /// Makes sure that the pieces of every tensor are all of it, each element once.
    ///
    /// # Errors
    /// [`Error::File`] that names the tensor and what is wrong with its pieces.
    pub fn check(&self) -> Result<()> {
        for (name, entry) in &self.tensors {
            let some: Vec<usize> = entry.shape.iter().map(|&n| n.max(1)).collect();
            if bytes_within(&some, entry.dtype.size(), isize::MAX as u64).is_none() {
                let what =
                    format!("tensor `{name}` has shape {:?}, more than memory can", entry.shape);
                return Err(Error::file(&self.path, what));
            }
            let regions: Vec<&Region> = entry.pieces.iter().map(|piece| &piece.region).collect();
            if let Err(why) = tile(&entry.shape, &regions) {
                return Err(Error::file(&self.path, format!("tensor `{name}` {why}")));
            }
        }
        Ok(())
    }
}

/// What the names of a group's tensors begin with.
pub(super) fn prefix_of(group: &str) -> String {
    match group.is_empty() || group.ends_with('.') {
        true => group.to_owned(),
        false => format!("{group}."),
    }
}

/// Says which of many names is meant, for a message.
fn near<'a>(name: &str, names: impl Iterator<Item = &'a String>) -> String {
    let last = name.rsplit('.').next().unwrap_or(name);
    let mut alike: Vec<&String> = names.filter(|other| other.ends_with(last)).collect();
    alike.truncate(3);
    match alike.is_empty() {
        true => String::new(),
        false => format!("; there are {alike:?}"),
    }
}

/// Makes sure that boxes have every element of a shape once. Empty ones do not matter.
///
/// # Errors
/// What is wrong, to be said of the tensor.
pub(super) fn tile(shape: &[usize], regions: &[&Region]) -> Result<(), String> {
    let shown = |region: &Region| {
        let range =
            |d: usize| format!("{}..{}", region.offsets[d], region.offsets[d] + region.shape[d]);
        format!("[{}]", (0..region.shape.len()).map(range).collect::<Vec<_>>().join(", "))
    };
    if let Some(outside) = regions.iter().find(|region| !region.is_within(shape)) {
        return Err(format!(
            "has shape {shape:?}, but a piece of shape {:?} at {:?}",
            outside.shape, outside.offsets
        ));
    }
    let mut filled: Vec<&Region> =
        regions.iter().copied().filter(|region| region.numel() > 0).collect();
    // Along the dimension that has the most cuts only few boxes are beside each other.
    let cuts = |d: &usize| {
        let mut offsets: Vec<usize> = filled.iter().map(|region| region.offsets[*d]).collect();
        offsets.sort_unstable();
        offsets.dedup();
        offsets.len()
    };
    if let Some(dim) = (0..shape.len()).max_by_key(cuts) {
        filled.sort_by_key(|region| region.offsets[dim]);
        for (place, region) in filled.iter().enumerate() {
            let end = region.offsets[dim] + region.shape[dim];
            let beside = filled[place + 1..].iter().take_while(|other| other.offsets[dim] < end);
            if let Some(common) = beside.filter_map(|other| region.intersect(other)).next() {
                return Err(format!("has {} in two pieces", shown(&common)));
            }
        }
    } else if filled.len() > 1 {
        return Err(format!("is a scalar, but has {} pieces", filled.len()));
    }
    let (all, there) = (
        shape.iter().product::<usize>(),
        filled.iter().map(|region| region.numel()).sum::<usize>(),
    );
    match all == there {
        true => Ok(()),
        false => Err(format!(
            "has shape {shape:?}, {all} elements, of which {} are in no piece",
            all - there
        )),
    }
}

/// A file of a folder that an index names: one in it, and no other.
///
/// # Errors
/// [`Error::File`] for a name that leads out of the folder.
pub(crate) fn file_of(folder: &Path, index: &Path, name: &str) -> Result<PathBuf> {
    let is_plain = !name.is_empty()
        && Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    match is_plain {
        true => Ok(folder.join(name)),
        false => {
            Err(Error::file(index, format!("names the file `{name}`, which is none of its folder")))
        }
    }
}

/// Makes sure that all files of a folder that an index names are there.
///
/// # Errors
/// [`Error::File`] that names all that are not, or leads out of the folder.
pub(crate) fn all_there<'a>(
    folder: &Path,
    index: &Path,
    names: impl Iterator<Item = &'a str>,
) -> Result<()> {
    let mut missing = Vec::new();
    for name in names {
        if !file_of(folder, index, name)?.is_file() {
            missing.push(name);
        }
    }
    match missing.is_empty() {
        true => Ok(()),
        false => {
            let what = format!("names {}, not there in its folder", missing.join(", "));
            Err(Error::file(index, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(offsets: &[usize], shape: &[usize]) -> Region {
        Region { offsets: offsets.to_vec(), shape: shape.to_vec() }
    }

    #[test]
    fn pieces_have_every_element_once() {
        let check = |shape: &[usize], regions: &[Region]| {
            tile(shape, &regions.iter().collect::<Vec<_>>()).err().unwrap_or_default()
        };
        let halves = [region(&[0, 0], &[2, 4]), region(&[2, 0], &[1, 4])];
        assert_eq!(check(&[3, 4], &halves), "");
        assert_eq!(check(&[3, 4], &[&halves[..], &[region(&[3, 0], &[0, 4])]].concat()), "");
        let missing = check(&[4, 4], &halves);
        assert!(missing.contains("16 elements, of which 4 are in no piece"), "{missing}");
        let twice = check(&[3, 4], &[region(&[0, 0], &[2, 4]), region(&[1, 2], &[2, 2])]);
        assert!(twice.contains("has [1..2, 2..4] in two pieces"), "{twice}");
        assert!(check(&[3, 4], &[region(&[0, 0], &[4, 4])]).contains("a piece of shape [4, 4]"));
        assert!(check(&[3, 4], &[region(&[0], &[3])]).contains("shape"));
        assert_eq!(check(&[], &[Region::whole(&[])]), "");
        assert!(check(&[], &[Region::whole(&[]), Region::whole(&[])]).contains("scalar"));
        assert_eq!(check(&[0, 3], &[]), "");
        let columns: Vec<Region> = (0..6).map(|i| region(&[0, i], &[5, 1])).collect();
        assert_eq!(check(&[5, 6], &columns), "");
    }

    #[test]
    fn files_are_those_of_the_folder() {
        let of = |name| file_of(Path::new("/run"), Path::new("/run/index.json"), name);
        assert_eq!(of("rank-0.safetensors").unwrap(), Path::new("/run/rank-0.safetensors"));
        for name in ["../other", "/etc/passwd", "", "."] {
            assert!(of(name).unwrap_err().to_string().contains("none of its folder"), "{name}");
        }
    }
}
