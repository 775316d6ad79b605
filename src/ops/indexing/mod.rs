//! Elements and slices by index, by mask or by search, and what is put back at such places.
//!
//! Indices are data here; ranges and steps are `shape::views`. Knows nothing of the ops that compute.

mod by_number;
pub(in crate::ops) mod by_tensors;
pub(in crate::ops) mod cuda;
pub(in crate::ops) mod embedding;
pub(in crate::ops) mod embedding_bag;
pub(in crate::ops) mod gather;
pub(in crate::ops) mod index_select;
pub(in crate::ops) mod masked;
pub(in crate::ops) mod reduction;
pub(in crate::ops) mod scatter_reduce;
pub(in crate::ops) mod search;

crate::ops::table::ops! {
    by_tensors { samples }
    cuda { kernels: [PROGRAM] }
    embedding { samples }
    embedding_bag { samples, kernels: [cuda::PROGRAM] }
    gather { samples }
    index_select { samples }
    masked { samples, kernels: [cuda::PROGRAM] }
    scatter_reduce { samples }
    search { kernels: [cuda::PROGRAM] }
}
