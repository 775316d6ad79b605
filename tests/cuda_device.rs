//! The device layer on simulated GPUs. Every test runs in a process of its own, with the variables
//! that it needs, because CUDA is set up once per process and does not recover from a fault.
//!
//! With `TORCHRS_TEST_REAL_GPU=1` the tests run on the machine's own GPUs instead, but for those that
//! need a fault or a small memory.

#[macro_use]
#[path = "cuda_device/support.rs"]
mod support;

#[path = "cuda_device/devices.rs"]
mod devices;
#[path = "cuda_device/faults.rs"]
mod faults;
#[path = "cuda_device/graphs.rs"]
mod graphs;
#[path = "cuda_device/kernels.rs"]
mod kernels;
#[path = "cuda_device/memory.rs"]
mod memory;
#[path = "cuda_device/peers.rs"]
mod peers;
#[path = "cuda_device/processes.rs"]
mod processes;
#[path = "cuda_device/streams.rs"]
mod streams;
