//! Loops over elements.

mod copy;
mod dense;
mod format;
mod reversed;
mod streaming;
mod tile;
