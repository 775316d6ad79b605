//! What the processor is: levels of instructions, caches, and how one loop is compiled for all levels.
//!
//! Knows nothing of the other rooms.

pub mod cache;
pub mod isa;
pub mod prefetch;
pub mod vectorize;
