//! Convolutions: sums taken directly, by minimal filtering, and of planes by themselves.
//!
//! Knows nothing of strides and types of tensors: planes are dense f32 or f64, or pairs of bf16.

pub mod depthwise;
pub mod direct;
pub mod field;
pub mod winograd;
