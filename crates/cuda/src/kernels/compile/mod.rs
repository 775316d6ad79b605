//! The compiler of kernels, and the code that it made before.

mod at_exit;
pub(crate) mod code;
pub(crate) mod disk_cache;
pub mod figures;
pub(crate) mod fingerprint;
pub mod needs;
pub(crate) mod nvrtc;
mod turns;
