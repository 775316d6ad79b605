//! Every operation, defined once: pointwise rows in tables, everything else one file each.

mod provisional;
pub mod views;
