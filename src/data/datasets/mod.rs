//! Ready-made datasets.

pub mod idx;
