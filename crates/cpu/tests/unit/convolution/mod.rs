//! Convolutions of raw buffers.

mod depthwise;
mod direct;
mod winograd;
