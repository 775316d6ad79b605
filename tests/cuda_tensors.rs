//! Tensors on simulated GPUs, against the same on the CPU. Every test runs in a process of its own.

#[macro_use]
#[path = "cuda_device/support.rs"]
#[allow(dead_code, reason = "shared with the tests of the device layer")]
mod support;

#[path = "cuda_tensors/basics.rs"]
mod basics;
#[path = "cuda_tensors/classes.rs"]
mod classes;
#[path = "cuda_tensors/folds.rs"]
mod folds;
#[path = "cuda_tensors/near.rs"]
mod near;
#[path = "cuda_tensors/norms.rs"]
mod norms;
#[path = "cuda_tensors/rows.rs"]
mod rows;
#[path = "cuda_tensors/scans.rs"]
mod scans;
#[path = "cuda_tensors/sorts.rs"]
mod sorts;
