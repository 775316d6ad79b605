//! What holds in this repository and no compiler checks: which folder may import which, heads of files,
//! reachability of public items, tables of ops, rows of the page of faults, links and paths in the documentation.
//!
//! It reads text only, so it runs in under a second and builds nothing of the library. Each rule is a module
//! with a function from a [`Tree`] to its [`Fault`]s, and has a test with a small tree in which it must find one.

pub mod docs;
pub mod floors;
pub mod generated;
pub mod heads;
pub mod lexer;
pub mod ops;
pub mod packages;
pub mod reach;
pub mod rows;
pub mod seeds;
pub mod source;
mod tree;

pub use tree::{Fault, Tree};
