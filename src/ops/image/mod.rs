//! Images and volumes: other sizes, any points, channels to pixels, windows as columns.
//!
//! Knows nothing of files of images, which are `data`'s.

pub(in crate::ops) mod grid_sample;
pub(in crate::ops) mod interpolate;
pub(in crate::ops) mod shuffle;
pub(in crate::ops) mod unfold;

crate::ops::table::ops! {
    grid_sample { samples, kernels: [cuda::PROGRAM] }
    interpolate { samples }
    shuffle { samples }
    unfold { samples }
}
