//! What is declared, by NVIDIA's headers and by torchrs.

pub mod constants;
pub mod headers;
pub mod ours;
pub mod types;
