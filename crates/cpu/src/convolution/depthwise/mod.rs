//! Convolutions whose groups have one input channel each (depthwise): too little arithmetic for
//! matrix tiles, so each plane is done directly. The usual windows, 3x3 and 5x5 at stride 1 and 2, have
//! kernels of their own in f32, which read the planes in place; all others go the `general` way.

mod convolution;
mod dispatch;
mod filters;
mod general;
mod job;
mod lanes;
mod planes;
mod rolling;
mod rolling_filters;
mod rolling_spread;
mod spread;
mod square;

pub use convolution::{correlate_plane_filters, correlate_planes, spread_planes};
pub use job::Planes;
