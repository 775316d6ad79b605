//! Products of matrices and of more than two dimensions.
//!
//! Knows nothing of convolutions, attention and recurrent layers, which are made of its parts.

pub(in crate::ops) mod bias_sums;
pub(in crate::ops) mod composed;
pub(in crate::ops) mod einsum;
pub(in crate::ops) mod matmul;
pub(in crate::ops) mod sums;

crate::ops::table::ops! {
    composed { samples }
    einsum { samples }
    matmul { samples, kernels: [cuda::programs] }
}
