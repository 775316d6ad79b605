//! Saving and loading of training state: tensors as safetensors files, everything else as JSON.
//!
//! [`save_file`] and [`load_file`] are plain safetensors, readable by other frameworks; each tensor
//! carries a checksum, so a damaged file is an error and never a wrong number. [`load_file_mapped`] maps a
//! file instead of reading it. A [`Checkpoint`]
//! is a folder of such files beside one `state.json`, which appears whole or not at all; a
//! [`CheckpointDir`] keeps a run's checkpoints by step and finds the latest.
//!
//! [`load_pt`] and [`save_pt`] exchange files with PyTorch, [`load_npy`] and [`load_npz`] and their
//! inverses with NumPy. Nothing that a file says is run, and a file that is damaged or hostile is an
//! error.

mod archive;
mod folder;
mod mapped;
mod npy;
mod pt;
mod raw;
mod safetensors;

pub use folder::{Checkpoint, CheckpointDir};
pub use mapped::load_file_mapped;
pub use npy::{load_npy, load_npz, save_npy, save_npz};
pub use pt::{PtValue, load_pt, save_pt};
pub use safetensors::{load_file, save_file};

/// Named tensors in name order (`state_dict`).
pub type TensorMap = std::collections::BTreeMap<String, crate::Tensor>;
