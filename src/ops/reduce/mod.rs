//! Reductions: an op folds the elements along some dimensions into one. `x.sum()` is over all
//! dimensions, `x.sum_dim(&[0, -1], keepdim)` over some; an empty list also means all. With
//! `keepdim` the reduced dimensions stay, with size 1. Running results (`scan`), orders (`sort`), different
//! elements (`distinct`) and histograms (`statistics`) are here too.
//!
//! Types as PyTorch: sums and products of integers and bools are i64; half types are added up in f32
//! and rounded once. The order of additions depends on shape and strides only, so results are the
//! same for any number of threads (`cpu::folds::fold`).

mod any_all;
pub(in crate::ops) mod as_dtype;
pub(super) mod cuda;
mod dims;
pub(in crate::ops) mod distinct;
mod extremes;
pub(in crate::ops) mod gradient;
pub(in crate::ops) mod histogram;
mod logsumexp;
mod mean;
mod norm;
mod prod;
pub(in crate::ops) mod scan;
pub(in crate::ops) mod sort;
pub(in crate::ops) mod statistics;
mod sum;
mod variance;

pub(super) use extremes::select_backward;

crate::ops::table::ops! {
    cuda { kernels: [REDUCTIONS] }
    extremes { samples }
    gradient { samples }
    histogram { samples }
    any_all { samples }
    logsumexp { samples }
    mean { samples }
    norm { samples }
    prod { samples }
    scan { samples, kernels: [cuda::SCANS] }
    sort { samples, kernels: [cuda::order::FIRST, cuda::order::SORT, cuda::rank::RANK, cuda::select::SELECT] }
    sum { samples }
    variance { samples }
}
