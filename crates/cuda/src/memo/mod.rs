//! Values that are made once and kept: by a maker that may fail, or by key, up to a bound.
//!
//! Plain data structures that know nothing of CUDA.

pub(crate) mod bounded;
pub(crate) mod once;
pub(crate) mod quick_hash;
