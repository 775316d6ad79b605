//! Matrix products.

mod gemm;
mod micro;
mod pack;
