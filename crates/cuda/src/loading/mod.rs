//! Finding and opening CUDA's libraries at run time: nothing of CUDA is needed to build or to start.
//!
//! It knows files and symbols; what a library's functions do is the business of those who ask for them.

pub(crate) mod dynamic;
pub mod kind;
pub mod library;
mod places;
pub(crate) mod version;
