//! Datasets, samplers and the `DataLoader` with its worker processes.

pub mod datasets;
pub mod samplers;
