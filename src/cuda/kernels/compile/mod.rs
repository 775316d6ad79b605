//! The compiler of kernels, and the code that it made before.

pub(crate) mod disk_cache;
pub(crate) mod fingerprint;
pub(crate) mod needs;
pub(crate) mod nvrtc;
