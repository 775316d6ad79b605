//! Products: of matrices (`matmul`, `linear`), by Einstein's notation, and those composed of them.
//!
//! Knows nothing of convolutions, attention and recurrent layers, which are made of its parts.

pub(in crate::ops) mod bias_sums;
pub(in crate::ops) mod composed;
pub(in crate::ops) mod einsum;
pub(in crate::ops) mod matmul;

crate::ops::table::ops! {
    composed { samples }
    einsum { samples }
    matmul { room }
}
