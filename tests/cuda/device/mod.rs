//! The device layer on simulated GPUs. Every test runs in a process of its own, with the variables
//! that it needs, because CUDA is set up once per process and does not recover from a fault.
//!
//! With `TORCHRS_TEST_REAL_GPU=1` the tests run on the machine's own GPUs instead, but for those that
//! need a fault or a small memory.

mod devices;
mod faults;
mod graphs;
mod kernels;
mod memory;
mod peers;
mod processes;
mod streams;
