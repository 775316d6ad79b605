//! Maxima and means over windows.
//!
//! The windows themselves are in `windows`. Knows nothing of convolutions.

pub(in crate::ops) mod average;
pub(in crate::ops) mod composed;
pub(in crate::ops) mod cuda;
pub(in crate::ops) mod fractional;
mod integer;
pub(in crate::ops) mod max;

crate::ops::table::ops! {
    average { samples }
    cuda { kernels: [PROGRAM] }
    composed { samples }
    fractional { samples }
    max { samples }
}
