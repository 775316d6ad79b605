//! Saving and loading of training state: tensors as safetensors files, everything else as JSON.
//!
//! Knows nothing of `data` and `models`.
//!
//! [`save_file`] and [`load_file`] are plain safetensors, readable by other frameworks; each tensor
//! carries a checksum, so a damaged file is an error and never a wrong number. [`load_file_mapped`] maps a
//! file instead of reading it. A [`Checkpoint`]
//! is a folder of such files beside one `state.json`, which appears whole or not at all; a
//! [`CheckpointDir`] keeps a run's checkpoints by step and finds the latest.
//!
//! [`load_pt`] and [`save_pt`] exchange files with PyTorch, [`load_npy`] and [`load_npz`] and their
//! inverses with NumPy. Nothing that a file says is run, and a file that is damaged or hostile is an
//! error, also one that unpacks to more than memory holds.
//!
//! [`load_sharded`] and [`save_sharded`] exchange folders with Hugging Face. [`CheckpointFiles`] is a checkpoint of any
//! format, also of PyTorch's `torch.distributed.checkpoint`: it is looked at, verified, compared and converted.
//!
//! Every file is written beside the one of its name, brought to disk, and renamed: a full disk or a kill
//! leaves what was there. That needs room for both, and a folder that can be written to.
//!
//! ```
//! use torchrs::{Tensor, checkpoint::{Checkpoint, CheckpointDir, TensorMap}};
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path();
//! let run = CheckpointDir::new(path, 3);
//! let model = TensorMap::from([("weight".into(), Tensor::from([1f32, 2.]))]);
//! run.save(10, &Checkpoint::new().with_tensors("model", model))?;
//! let (step, latest) = run.latest()?.expect("just saved");
//! let back = Checkpoint::load(&latest)?;
//! assert_eq!((step, back.tensors("model")?["weight"].to_vec::<f32>()), (10, vec![1., 2.]));
//! # Ok::<(), torchrs::Error>(())
//! ```

mod archive;
mod dir;
pub mod distributed;
mod folder;
mod header;
mod mapped;
mod npy;
mod onnx;
mod pt;
mod raw;
mod replacing;
mod safetensors;
pub(crate) mod words;

pub use dir::{Best, CheckpointDir};
pub use distributed::files::{
    CheckpointFiles, ConvertOptions, Converted, Difference, KindDifference, StoredTensor,
    ValueDifference, Verified,
};
pub use distributed::formats::CheckpointFormat;
pub use distributed::formats::huggingface::{SaveShardedOptions, load_sharded, save_sharded};
pub use folder::Checkpoint;
pub(crate) use folder::SCORE;
pub use mapped::load_file_mapped;
pub use npy::{load_npy, load_npz, save_npy, save_npz};
pub use onnx::{OnnxOptions, export_onnx, onnx_graph, save_onnx};
pub use pt::{PtObject, PtRaw, PtValue, load_pt, save_pt};
pub use safetensors::{load_file, save_file};

/// Named tensors in name order (`state_dict`).
///
/// ```
/// use torchrs::{Tensor, checkpoint::TensorMap};
/// let tensors = TensorMap::from([("b".into(), Tensor::scalar(1)), ("a".into(), Tensor::scalar(2))]);
/// assert_eq!(tensors.keys().collect::<Vec<_>>(), ["a", "b"]);
/// ```
pub type TensorMap = std::collections::BTreeMap<String, crate::tensor::Tensor>;
