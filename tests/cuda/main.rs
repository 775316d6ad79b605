//! The GPU's side, on simulated GPUs: the device layer, tensors, process groups; kernels and plans for real
//! compilers and libraries, where those are there.

#[macro_use]
mod support;

mod counts;
mod cudnn_plans;
mod device;
mod distributed;
mod gpu_check_script;
mod kernels_compile;
mod tensors;
mod warm;
