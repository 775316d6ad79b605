//! Folders of PyTorch's `torch.distributed.checkpoint`: `.metadata` says what pieces tensors have, `__<rank>_<n>.distcp`
//! has them, each as an archive of `torch.save`. Where the bytes of a piece are in its archive is looked for when it is
//! read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::super::fetch::Files;
use super::super::index::{Entry, Index, Location, Piece, all_there, file_of};
use super::super::region::Region;
use super::new::new_folder;
use super::values;
use crate::checkpoint::archive::Part;
use crate::checkpoint::pt::PtValue;
use crate::checkpoint::pt::item;
use crate::checkpoint::pt::metadata::{self, Chunk, Item, Key, Saved, SavedTensor};
use crate::checkpoint::raw::{error_of, room_for};
use crate::checkpoint::replacing::write_file;
use crate::error::{Context, Error, Result};
use crate::tensor::Tensor;

pub(super) const METADATA: &str = ".metadata";
/// The file that all items are written to.
const ITEMS: &str = "__0_0.distcp";

/// The index of such a folder. What is no tensor is read.
///
/// # Errors
/// [`Error::File`] for a folder that is damaged, names what is not known here or files that are not there.
pub(super) fn open(folder: &Path) -> Result<Index> {
    let path = folder.join(METADATA);
    let bytes = fs::read(&path).context(|| format!("open {}", path.display()))?;
    room_for(bytes.len()).map_err(|why| error_of(&path, why))?;
    let saved = metadata::read(&bytes).map_err(|what| error_of(&path, what))?;
    let parts = Parts::of(folder, &path, &saved)?;
    let mut index = Index { path: folder.to_owned(), ..Default::default() };
    index.groups = groups(&saved);
    for (name, tensor) in saved.tensors {
        let SavedTensor { dtype, shape, chunks } = tensor;
        let mut pieces = Vec::new();
        for Chunk { offsets, sizes, item } in chunks {
            let region = Region { offsets, shape: sizes };
            // The reader of the metadata has made sure that there is such a number for all of the tensor.
            let is_within = region.is_within(&shape);
            if is_within && (region.numel() * dtype.size()) as u64 > item.length {
                let what = format!(
                    "tensor `{name}` has a piece of shape {:?} in {} bytes of {}",
                    region.shape, item.length, item.file
                );
                return Err(Error::file(&path, what));
            }
            // Of a rank that has nothing of the tensor.
            if is_within && region.numel() == 0 {
                continue;
            }
            let Item { file, start, length } = item;
            pieces.push(Piece {
                region,
                at: Location::Item { path: folder.join(file), start, length },
            });
        }
        index.tensors.insert(name, Entry { dtype, shape, pieces });
    }
    for (name, item) in saved.values {
        let file = folder.join(&item.file);
        let part =
            Part { file: parts.files[&item.file].clone(), start: item.start, length: item.length };
        let value = item::value(&file, part).map_err(|error| match error {
            Error::File { path, message } => {
                Error::File { path, message: format!("value `{name}`: {message}") }
            }
            other => other,
        })?;
        index.values.insert(name, values::to_json(&value));
    }
    Ok(index)
}

/// First keys of tensors' paths that have more.
fn groups(saved: &Saved) -> Vec<String> {
    let first = |name: &String| match saved.paths.get(name).map(Vec::as_slice) {
        Some([Key::Name(first), _, ..]) => Some(first.clone()),
        _ => None,
    };
    let groups: BTreeSet<String> = saved.tensors.keys().filter_map(first).collect();
    groups.into_iter().collect()
}

/// The files of a folder, each item in one of them.
struct Parts {
    files: BTreeMap<String, Arc<File>>,
}

impl Parts {
    fn of(folder: &Path, metadata: &Path, saved: &Saved) -> Result<Self> {
        let chunks = saved.tensors.values().flat_map(|tensor| &tensor.chunks);
        let mut items: Vec<&Item> =
            chunks.map(|chunk| &chunk.item).chain(saved.values.values()).collect();
        items.sort_by_key(|item| (&item.file, item.start));
        let names: BTreeSet<&str> = items.iter().map(|item| item.file.as_str()).collect();
        all_there(folder, metadata, names.iter().copied())?;
        let mut files = BTreeMap::new();
        let mut lengths = BTreeMap::new();
        for name in names {
            let path = file_of(folder, metadata, name)?;
            let what = || format!("open {}", path.display());
            let file = File::open(&path).context(what)?;
            lengths.insert(name, file.metadata().context(what)?.len());
            files.insert(name.to_owned(), Arc::new(file));
        }
        for item in &items {
            let (length, end) = (lengths[item.file.as_str()], item.start.checked_add(item.length));
            if end.is_none_or(|end| end > length) {
                let what = format!(
                    "is cut off: it has {length} bytes, but {METADATA} says that {} lie from byte {} on",
                    item.length, item.start
                );
                return Err(Error::file(folder.join(&item.file), what));
            }
        }
        let overlap = |pair: &&[&Item]| {
            pair[0].file == pair[1].file && pair[0].start + pair[0].length > pair[1].start
        };
        match items.windows(2).find(overlap) {
            Some(pair) => Err(Error::file(
                metadata,
                format!("has two items at byte {} of {}", pair[1].start, pair[1].file),
            )),
            None => Ok(Parts { files }),
        }
    }
}

/// A checkpoint as such a folder, which `get` brings the tensors' pieces of.
pub(crate) struct Source<'a> {
    pub(crate) index: &'a Index,
    /// The names to write, and those they get.
    pub(crate) names: &'a [(String, String)],
    pub(crate) groups: &'a [String],
    pub(crate) values: &'a BTreeMap<String, Value>,
    pub(crate) files: &'a Files,
    /// What becomes of each piece.
    pub(crate) cast: &'a dyn Fn(Tensor) -> Result<Tensor>,
}

/// Writes a folder that `torch.distributed.checkpoint.load` reads, a tensor's piece at a time.
///
/// # Errors
/// Those of reading; [`Error::Argument`] where something is.
pub(crate) fn write(function: &str, source: &Source<'_>, out: &Path) -> Result<()> {
    new_folder(function, out, |folder| {
        let mut saved = Saved::default();
        let path = folder.join(ITEMS);
        write_file(&path, |file| {
            let mut out = Counted { out: file, count: 0 };
            for (name, new) in source.names {
                let entry = source.index.entry(name)?;
                let tensor = source.tensor(name, entry, &mut out, &path)?;
                saved.tensors.insert(new.clone(), tensor);
            }
            for (name, value) in source.values {
                let value = values::from_json(&source.index.path, name, value)?;
                saved.values.insert(name.clone(), out.item(&path, &value)?);
            }
            Ok(())
        })?;
        for name in saved.tensors.keys().chain(saved.values.keys()) {
            let (group, rest) = values::keys(source.groups, name);
            let keys = group.into_iter().chain([rest]);
            let path = keys.map(|key| Key::Name(key.to_owned())).collect();
            saved.paths.insert(name.clone(), path);
        }
        let bytes = metadata::written(&saved)?;
        let path = folder.join(METADATA);
        write_file(&path, |file| {
            file.write_all(&bytes).context(|| format!("write {}", path.display()))
        })
    })
}

impl Source<'_> {
    fn tensor(
        &self,
        name: &str,
        entry: &Entry,
        out: &mut Counted<'_>,
        path: &Path,
    ) -> Result<SavedTensor> {
        let whole = [Region::whole(&entry.shape)];
        let some = entry.pieces.iter().map(|piece| &piece.region).filter(|r| r.numel() > 0);
        let regions: Vec<&Region> = match entry.shape.contains(&0) {
            true => whole.iter().collect(),
            false => some.collect(),
        };
        let (mut chunks, mut dtype) = (Vec::new(), entry.dtype);
        for region in regions {
            let piece = self.index.read_region(name, entry, region, self.files)?;
            let piece = (self.cast)(piece)?;
            dtype = piece.dtype();
            let item = out.item(path, &PtValue::Tensor(piece))?;
            let Region { offsets, shape: sizes } = region.clone();
            chunks.push(Chunk { offsets, sizes, item });
        }
        Ok(SavedTensor { dtype, shape: entry.shape.clone(), chunks })
    }
}

/// What is written, counted.
struct Counted<'a> {
    out: &'a mut dyn Write,
    count: u64,
}

impl Counted<'_> {
    fn item(&mut self, path: &Path, value: &PtValue) -> Result<Item> {
        let start = self.count;
        item::write(value, path, &mut *self)?;
        Ok(Item { file: ITEMS.to_owned(), start, length: self.count - start })
    }
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.count += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
