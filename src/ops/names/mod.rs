//! Further names that PyTorch has for methods, and what is asked of a tensor without reading its elements.
//! Code that is carried over finds what it calls; each name says which method it is.
//!
//! ```
//! use torchrs::Tensor;
//! let x = Tensor::from([-1f32, 2.]);
//! assert!(x.absolute().equal(&x.abs()) && x.greater(0.0).equal(&x.gt(0.0)));
//! ```

mod facts;
mod limits;
mod synonyms;

pub use limits::{Finfo, Iinfo};
