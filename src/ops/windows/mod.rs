//! Windows along dimensions: tables of the positions that they read, and linear maps of one dimension.
//!
//! Pooling, padding, unfolding, interpolation and bags of embeddings are made of it. Knows none of them.

pub(in crate::ops) mod resample;
pub(in crate::ops) mod taps;

crate::ops::table::ops! {
    resample { kernels: [cuda::PROGRAM] }
}
