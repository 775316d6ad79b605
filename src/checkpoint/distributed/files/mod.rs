//! A checkpoint of any format as its files are: what is in it, whether it is whole, how two differ, and others made of it.
//! No more than one tensor is in memory at a time, where formats allow that.

mod convert;
mod diff;
mod verify;

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

pub use self::convert::{ConvertOptions, Converted};
pub use self::diff::{Difference, KindDifference, ValueDifference};
pub use self::verify::Verified;
use super::fetch::Files;
use super::formats::{CheckpointFormat, format_of, open_as};
use super::index::{Entry, Index};
use super::load::value;
use crate::checkpoint::pt::is_zip;
use crate::error::Result;
use crate::tensor::{Dtype, Tensor};

/// A checkpoint of any format, of which tensors are read when they are asked for: a folder of
/// [`distributed::save`](crate::checkpoint::distributed::save), of a [`Checkpoint`](crate::checkpoint::Checkpoint), of
/// Hugging Face or of PyTorch's `torch.distributed.checkpoint`, a safetensors file or one of `torch.save`. A file of
/// `torch.save` is read as a whole. The command `torchrs ckpt` shows and converts such files.
///
/// ```
/// use torchrs::{Tensor, checkpoint::{CheckpointFiles, CheckpointFormat, TensorMap, save_file}};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.safetensors");
/// let tensors = TensorMap::from([("weight".to_owned(), Tensor::from([1f32, 2.]))]);
/// save_file(&tensors, &Default::default(), &path)?;
/// let files = CheckpointFiles::open(&path)?;
/// assert_eq!(files.format(), CheckpointFormat::Safetensors);
/// let stored = files.tensors().next().unwrap();
/// assert_eq!((stored.name, stored.shape, stored.nbytes), ("weight", &[2][..], 8));
/// assert_eq!(files.tensor("weight")?.to_vec::<f32>(), [1.0, 2.0]);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug)]
pub struct CheckpointFiles {
    index: Index,
    files: Files,
    format: CheckpointFormat,
    /// It was read as a whole from an archive, which has a checksum of everything.
    is_archive: bool,
}

/// A tensor of [`CheckpointFiles`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredTensor<'a> {
    /// Its name, after that of its group and a point where it has one.
    pub name: &'a str,
    /// Its dtype.
    pub dtype: Dtype,
    /// Its sizes.
    pub shape: &'a [usize],
    /// In how many pieces it lies.
    pub pieces: usize,
    /// Bytes of its elements.
    pub nbytes: u64,
}

impl<'a> StoredTensor<'a> {
    fn new(name: &'a str, entry: &'a Entry) -> Self {
        let nbytes = (entry.shape.iter().product::<usize>() * entry.dtype.size()) as u64;
        let (dtype, shape, pieces) = (entry.dtype, &entry.shape[..], entry.pieces.len());
        StoredTensor { name, dtype, shape, pieces, nbytes }
    }

    /// How many elements it has.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }
}

impl CheckpointFiles {
    /// Reads what there is.
    ///
    /// ```
    /// use torchrs::checkpoint::CheckpointFiles;
    /// # let folder = tempfile::tempdir().unwrap();
    /// let why = CheckpointFiles::open(folder.path()).unwrap_err().to_string();
    /// assert!(why.contains("is no checkpoint: it has none of index.json"), "{why}");
    /// ```
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) for what is no checkpoint, damaged, or has files that are missing;
    /// [`Error::Os`](crate::Error::Os) for what cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let format = format_of(path)?;
        let is_archive = format == CheckpointFormat::Pt && is_zip(path)?;
        let (index, files) = (open_as(path, format)?, Files::default());
        Ok(CheckpointFiles { index, files, format, is_archive })
    }

    /// The tensors of a group alone, by their names in it, without values: what [`convert`](Self::convert) makes of it
    /// with `only`.
    ///
    /// ```
    /// use torchrs::checkpoint::{Checkpoint, CheckpointFiles, TensorMap};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("step-10");
    /// let model = TensorMap::from([("weight".into(), torchrs::Tensor::from([1f32, 2.]))]);
    /// Checkpoint::new().with_tensors("model", model).with_value("step", &10)?.save(&path)?;
    /// let files = CheckpointFiles::open(&path)?.only("model")?;
    /// assert_eq!(files.tensor("weight")?.to_vec::<f32>(), [1.0, 2.0]);
    /// assert!(files.only("modle").is_err());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) when no tensor's name begins with the group's.
    pub fn only(mut self, group: &str) -> Result<Self> {
        let names = self.index.names_in("CheckpointFiles::only", "group", group)?;
        let mut tensors = std::mem::take(&mut self.index.tensors);
        self.index.tensors = names
            .into_iter()
            .filter_map(|(full, own)| Some((own, tensors.remove(&full)?)))
            .collect();
        self.index.values.clear();
        self.index.groups.clear();
        Ok(self)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.index.path
    }

    /// Its format.
    pub fn format(&self) -> CheckpointFormat {
        self.format
    }

    /// How many ranks wrote it, where it says so.
    pub fn world_size(&self) -> Option<usize> {
        self.index.world_size
    }

    /// The names that tensors' names begin with, a point behind them: those of a training state's parts.
    pub fn groups(&self) -> &[String] {
        &self.index.groups
    }

    /// What tensors it has, by name.
    pub fn tensors(&self) -> impl Iterator<Item = StoredTensor<'_>> {
        self.index.tensors.iter().map(|(name, entry)| StoredTensor::new(name, entry))
    }

    /// The names of its values.
    pub fn value_names(&self) -> impl Iterator<Item = &str> {
        self.index.values.keys().map(String::as_str)
    }

    /// A value.
    ///
    /// ```
    /// use torchrs::checkpoint::{Checkpoint, CheckpointFiles};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("checkpoint");
    /// Checkpoint::new().with_value("epoch", &3)?.save(&path)?;
    /// assert_eq!(CheckpointFiles::open(&path)?.value::<u32>("epoch")?, 3);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when it is not there or of another type.
    pub fn value<T: DeserializeOwned>(&self, name: &str) -> Result<T> {
        value(&self.index.path, &self.index.values, name)
    }

    /// Reads a tensor.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) when it is not there, cut off or damaged;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        self.index.read(name, &self.files)
    }

    /// Whether a path is this checkpoint or lies in it.
    fn contains(&self, path: &Path) -> bool {
        let absolute = |path: &Path| -> Option<PathBuf> {
            std::path::absolute(path).ok().map(|path| path.components().collect())
        };
        match (absolute(&self.index.path), absolute(path)) {
            (Some(own), Some(path)) => path.starts_with(own),
            _ => false,
        }
    }
}
