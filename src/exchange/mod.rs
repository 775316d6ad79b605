//! Tensors over memory of others, and their arrays over memory of ours, without a file or a copy.
//!
//! Knows nothing of `ops`, `nn` and `data`.
//!
//! | with | by |
//! | --- | --- |
//! | a `Vec`, an `Arc` of a slice, a static array | [`Foreign`], [`Tensor::from_foreign`] |
//! | memory of any other owner, by its address | [`Foreign::new`], which is unsafe |
//! | NumPy, PyTorch, JAX, CuPy and others | [`dlpack`]; from Python, the package `torchrs` |
//! | the crate `ndarray` | `From` and `TryFrom` with its arrays and views, and `NdView` (feature `ndarray`) |
//!
//! ```
//! use torchrs::{Tensor, exchange::Foreign};
//! let numbers = vec![1f32, 2., 3., 4.];
//! let address = numbers.as_ptr();
//! let x = Tensor::from_foreign(Foreign::of_vec(numbers, [2, 2])?);
//! assert_eq!(x.data_ptr().cast_const().cast(), address);
//! # Ok::<(), torchrs::Error>(())
//! ```

pub mod dlpack;
mod foreign;
#[cfg(feature = "ndarray")]
mod ndarray;

pub use foreign::Foreign;
#[cfg(feature = "ndarray")]
pub use ndarray::NdView;

#[cfg(doc)]
use crate::tensor::Tensor;
