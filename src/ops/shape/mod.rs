//! Tensors in other shapes: views, parts put together, padding, diagonals and triangles of matrices.
//!
//! Elements are moved, never computed. Knows nothing of the ops that compute.

pub(in crate::ops) mod around;
mod blocks;
pub(in crate::ops) mod cat;
pub(in crate::ops) mod diagonal;
pub(in crate::ops) mod pad;
pub(in crate::ops) mod stacks;
pub(in crate::ops) mod triangular;
pub mod views;

crate::ops::table::ops! {
    cat { samples, kernels: [cuda::PROGRAM] }
    diagonal { samples }
    pad { samples }
    triangular { samples, kernels: [cuda::PROGRAM] }
}
