//! NCCL's functions.

pub mod collectives;
pub mod communicators;

pub use crate::nccl::id::UniqueId;
pub use crate::nccl::outcome::Outcome;
