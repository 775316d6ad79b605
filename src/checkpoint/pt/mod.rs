//! Files of `torch.save`: state dicts and what lies around them, without Python and without running
//! anything that a file says. A file is a pickle, a program for a small stack machine
//! (`unpickle.rs`), of which only the instructions that build data are known; of the Python objects
//! it may name, those that a list allows. Storages lie beside it in a zip archive (`zipped.rs`) or,
//! in files of before 2020, behind it (`legacy.rs`).

mod call;
mod globals;
pub(super) mod item;
mod legacy;
mod memory;
pub(super) mod metadata;
mod numpy;
mod optimizer;
mod pickle;
mod raw;
mod storages;
pub(super) mod streamed;
mod tree;
mod unpickle;
mod value;
mod zipped;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{Context, Result};

pub use raw::PtRaw;
pub use value::{PtObject, PtValue};

/// Deepest nesting of lists and dicts.
const MAX_DEPTH: usize = 100;

/// Reads a file that `torch.save` wrote (`torch.load` with `weights_only=True`): a state dict, an
/// optimizer's, or any nesting of dicts, lists, numbers, text and tensors. Tensors that shared memory
/// share it again; those that PyTorch kept as the conjugate or negative of others become tensors of their
/// own. Scalars and arrays of NumPy are plain values. An object of any other class becomes a [`PtObject`],
/// and nothing of it is run.
///
/// ```
/// use torchrs::{Tensor, checkpoint::{PtValue, load_pt, save_pt}};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.pt");
/// let entry = |name: &str, value| (PtValue::Str(name.into()), value);
/// let tensor = PtValue::Tensor(Tensor::from([1f32, 2.]));
/// save_pt(&PtValue::Dict(vec![entry("w", tensor), entry("epoch", PtValue::Int(3))]), &path)?;
/// let saved = load_pt(&path)?;
/// assert!(matches!(saved.get("epoch"), Some(PtValue::Int(3))));
/// assert!(matches!(saved.get("w"), Some(PtValue::Tensor(w)) if w.to_vec::<f32>() == [1.0, 2.0]));
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::File`](crate::Error::File) for a file that is damaged;
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory) for a tensor that memory does not suffice for;
/// [`Error::Os`](crate::Error::Os) when it cannot be opened.
pub fn load_pt(path: impl AsRef<Path>) -> Result<PtValue> {
    let path = path.as_ref();
    if is_zip(path)? { zipped::load(path) } else { legacy::load(path) }
}

/// Whether a file is of the format since PyTorch 1.6.
pub(super) fn is_zip(path: &Path) -> Result<bool> {
    let mut file = File::open(path).context(|| format!("open {}", path.display()))?;
    let mut magic = [0; 4];
    Ok(file.read_exact(&mut magic).is_ok() && &magic == b"PK\x03\x04")
}

/// Writes a value so that `torch.load` reads it, also with `weights_only=True` (`torch.save`), and
/// syncs it to disk. Tensors of one dtype that share memory are written once. A file that was there is
/// replaced by the finished one, or stays when that cannot be written.
///
/// ```
/// use torchrs::checkpoint::{PtValue, load_pt, save_pt};
/// use torchrs::nn::{self, Module};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("model.pt");
/// let model = nn::Linear::new(3, 2);
/// save_pt(&PtValue::from(&model.state_dict()), &path)?;
/// let saved = load_pt(&path)?;
/// model.load_state_dict(&saved.tensors()?, true)?;
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Os`](crate::Error::Os) when the file cannot be written;
/// [`Error::Argument`](crate::Error::Argument) for a [`PtObject`], a dict with a list or dict as key, and
/// nesting of more than 100; the device's error when a tensor cannot be brought to the host.
pub fn save_pt(value: &PtValue, path: impl AsRef<Path>) -> Result<()> {
    zipped::save(value, path.as_ref())
}
