//! Tensors on simulated GPUs, against the same on the CPU. Every test runs in a process of its own.

#[macro_use]
#[path = "cuda_device/support.rs"]
#[allow(dead_code, reason = "shared with the tests of the device layer")]
mod support;

#[path = "cuda_tensors/basics.rs"]
mod basics;
#[path = "cuda_tensors/rows.rs"]
mod rows;
#[path = "cuda_tensors/products.rs"]
mod products;
#[path = "cuda_tensors/conv.rs"]
mod conv;
#[path = "cuda_tensors/attention.rs"]
mod attention;
