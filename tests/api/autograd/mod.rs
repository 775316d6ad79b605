//! Gradients: what is recorded, how backward runs over it, and the modes and hooks that change either.

mod basics;
mod checkpoint;
mod forward;
mod graphs;
mod hooks;
mod modes;
