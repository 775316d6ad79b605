//! The compiler of kernels, and the code that it made before.

pub(crate) mod disk_cache;
pub(crate) mod fingerprint;
pub mod needs;
pub(crate) mod nvrtc;
