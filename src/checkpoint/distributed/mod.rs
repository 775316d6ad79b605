//! Checkpoints that all ranks write and read together, each its own part.

mod fetch;
mod formats;
mod index;
mod own;
mod region;
