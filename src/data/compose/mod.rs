//! Datasets made of tensors and of other datasets, as `torch.utils.data` has them.

mod concat;
mod stack;
mod subset;
mod tensors;
mod transformed;

pub use concat::{ConcatDataset, DatasetList};
pub use stack::{DatasetTuple, StackDataset};
pub use subset::{Lengths, Subset, random_split};
pub use tensors::{TensorDataset, TensorTuple};
pub use transformed::TransformDataset;
