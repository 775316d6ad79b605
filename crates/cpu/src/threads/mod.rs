//! The threads of a process: a pool that a loop is shared out to, and the parts that each thread has.
//!
//! Knows nothing of what the loops do.

mod parallel;
pub mod parts;
mod pool;

pub use parallel::*;
