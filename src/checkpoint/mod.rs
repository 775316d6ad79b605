//! Saving and loading of training state: tensors as safetensors files, everything else as JSON.
//!
//! [`save_file`] and [`load_file`] are plain safetensors, readable by other frameworks; each tensor
//! carries a checksum, so a damaged file is an error and never a wrong number. A [`Checkpoint`]
//! is a folder of such files beside one `state.json`, which appears whole or not at all; a
//! [`CheckpointDir`] keeps a run's checkpoints by step and finds the latest.

mod folder;
mod safetensors;

pub use folder::{Checkpoint, CheckpointDir};
pub use safetensors::{load_file, save_file};

/// Named tensors in name order (`state_dict`).
pub type TensorMap = std::collections::BTreeMap<String, crate::Tensor>;
