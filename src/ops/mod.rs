//! Every operation, defined once: pointwise rows in tables, everything else one file each.

pub mod pointwise;
mod provisional;
#[doc(hidden)]
pub mod samples;
pub mod views;
