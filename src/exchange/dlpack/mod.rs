//! [DLPack](https://dmlc.github.io/dlpack/latest/), the way in which array libraries lend each other memory within a
//! process (`torch.utils.dlpack`): structures of C, version 1.1 and, for older libraries, those without a version.
//!
//! [`Tensor::to_dlpack`] lends a tensor's memory, [`Tensor::from_dlpack`] takes what another library lends. Both sides
//! see each other's writes; the memory lives until the last of them is done with it. Gradients do not pass.
//!
//! ```
//! use torchrs::{Tensor, exchange::dlpack::{ConsumerStream, DlTensor}};
//! let x = Tensor::from([[1f32, 2.], [3., 4.]]);
//! // What a library of C gets, and gives back when it is done.
//! let raw = x.t().to_dlpack(ConsumerStream::Default)?.into_raw();
//! // SAFETY: the pointer is a tensor of DLPack that nobody else has.
//! let y = Tensor::from_dlpack(unsafe { DlTensor::from_raw(raw) }?)?;
//! assert!(y.data_ptr() == x.data_ptr() && y.strides() == [1, 2]);
//! y.fill_(5.0);
//! assert_eq!(x.to_vec::<f32>(), [5.0; 4]);
//! # Ok::<(), torchrs::Error>(())
//! ```
//!
//! # Memory that may not be written
//! A read-only tensor is lent with the flag for it, which only structures with a version have; some libraries take no
//! notice of it (PyTorch 2.15). What goes to one that is not known to heed it should be a clone:
//! [`is_read_only`](crate::storage::Storage::is_read_only) tells.
//!
//! # GPUs
//! The consumer names its stream, which waits for the work that this thread's current stream has been given. Memory
//! that comes from elsewhere has to be ready for this thread's current stream, and its owner is told that it is free
//! when all work here that uses it is done.

mod abi;
mod export;
mod import;
#[cfg(test)]
mod tests;

pub use abi::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};
pub use export::ConsumerStream;
pub use import::DlTensor;

#[cfg(doc)]
use crate::tensor::Tensor;
