//! The threads of a process: a pool that a loop is shared out to, and the parts that each thread has.
//!
//! Knows nothing of what the loops do.

mod handover;
mod parallel;
pub mod parts;
mod pool;

// From here `handover` takes its atomics, which `crates/interleavings` runs with others.
use std::sync::atomic;

pub use parallel::*;
