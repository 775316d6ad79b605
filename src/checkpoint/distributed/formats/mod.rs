//! Which format a checkpoint has, and the index of any.

pub(crate) mod dcp;
pub(crate) mod huggingface;
pub(crate) mod new;
pub(crate) mod values;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use super::index::{Checksum, Entry, Index, Location, Piece};
use super::own::{self, INDEX};
use super::region::Region;
use crate::checkpoint::folder::{STATE, read_state};
use crate::checkpoint::pt::{self, load_pt};
use crate::checkpoint::safetensors::{checksums, known_dtype, read_header};
use crate::error::{Context, Error, Result};

/// The formats of checkpoints.
///
/// ```
/// use torchrs::checkpoint::CheckpointFormat;
/// assert_eq!(CheckpointFormat::HuggingFace.name(), "huggingface");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointFormat {
    /// Of [`distributed::save`](crate::checkpoint::distributed::save): a safetensors file of each rank, and `index.json`.
    Sharded,
    /// A folder of a [`Checkpoint`](crate::checkpoint::Checkpoint).
    Folder,
    /// Hugging Face's folder of safetensors files.
    HuggingFace,
    /// A folder of PyTorch's `torch.distributed.checkpoint`.
    Dcp,
    /// A safetensors file.
    Safetensors,
    /// A file of `torch.save`.
    Pt,
}

impl CheckpointFormat {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Sharded, Self::Folder, Self::HuggingFace, Self::Dcp, Self::Safetensors, Self::Pt];

    /// The name that `torchrs ckpt` has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sharded => "sharded",
            Self::Folder => "folder",
            Self::HuggingFace => "huggingface",
            Self::Dcp => "dcp",
            Self::Safetensors => "safetensors",
            Self::Pt => "pt",
        }
    }
}

/// Which format the checkpoint at `path` has.
///
/// # Errors
/// [`Error::File`] for what has none of them; [`Error::Os`] for what cannot be read.
pub(crate) fn format_of(path: &Path) -> Result<CheckpointFormat> {
    let metadata = fs::metadata(path).context(|| format!("open {}", path.display()))?;
    if metadata.is_dir() {
        let known = [
            (path.join(INDEX).exists(), CheckpointFormat::Sharded),
            (path.join(STATE).exists(), CheckpointFormat::Folder),
            (path.join(dcp::METADATA).exists(), CheckpointFormat::Dcp),
            (huggingface::is_one(path), CheckpointFormat::HuggingFace),
        ];
        let found = known.iter().find(|(is_one, _)| *is_one).map(|(_, format)| *format);
        return found.ok_or_else(|| {
            let names =
                [INDEX, STATE, dcp::METADATA, huggingface::INDEX, huggingface::SINGLE].join(", ");
            let inside = match inside(path) {
                Some(name) => format!("; there is one inside: {}", path.join(name).display()),
                None => String::new(),
            };
            Error::file(path, format!("is no checkpoint: it has none of {names}{inside}"))
        });
    }
    match pt::is_zip(path)?
        || path.extension().is_some_and(|e| e == "pt" || e == "pth" || e == "bin")
    {
        true => Ok(CheckpointFormat::Pt),
        false => Ok(CheckpointFormat::Safetensors),
    }
}

/// The last of the folders in this one that are checkpoints: it may be that of a run.
fn inside(path: &Path) -> Option<String> {
    let is_one = |path: &Path| [INDEX, STATE].iter().any(|file| path.join(file).exists());
    let entries = fs::read_dir(path).ok()?.flatten().filter(|entry| is_one(&entry.path()));
    entries.filter_map(|entry| entry.file_name().into_string().ok()).max()
}

/// What the checkpoint at `path` holds, whatever its format. No tensor is read, save those of a file of `torch.save`.
///
/// # Errors
/// [`Error::File`] for what is no checkpoint, or damaged.
pub(crate) fn open(path: &Path) -> Result<Index> {
    open_as(path, format_of(path)?)
}

/// The same of a format that is known.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_as(path: &Path, format: CheckpointFormat) -> Result<Index> {
    let index = match format {
        CheckpointFormat::Sharded => own::open(path)?,
        CheckpointFormat::Folder => open_folder(path)?,
        CheckpointFormat::HuggingFace => huggingface::open(path)?,
        CheckpointFormat::Dcp => dcp::open(path)?,
        CheckpointFormat::Pt => open_pt(path)?,
        CheckpointFormat::Safetensors => {
            let tensors = open_safetensors(path)?;
            Index { path: path.to_owned(), tensors, ..Default::default() }
        }
    };
    index.check()?;
    Ok(index)
}

/// A file of `torch.save`, which is read.
fn open_pt(path: &Path) -> Result<Index> {
    values::flattened(path, load_pt(path)?)
}

/// A folder with a file for each group of tensors.
fn open_folder(path: &Path) -> Result<Index> {
    let (groups, values) = read_state(path)?;
    let mut tensors = BTreeMap::new();
    for group in &groups {
        for (name, entry) in open_safetensors(&path.join(format!("{group}.safetensors")))? {
            let name = format!("{group}.{name}");
            if tensors.insert(name.clone(), entry).is_some() {
                return Err(Error::file(path, format!("has `{name}` in two groups")));
            }
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
    match sums.iter().flatten().find(|(name, _)| !tensors.contains_key(*name)) {
        None => Ok(tensors),
        Some((name, _)) => {
            let what = format!("tensor `{name}` is missing: the header is damaged");
            Err(Error::file(path, what))
        }
    }
}
