//! CUDA without tensors: devices, streams, events, memory, kernels. It knows raw addresses and
//! sizes only; tensors and operations are built on it.
//!
//! An inside of torchrs, whose `torchrs::cuda` is its face for users: no promise is made of what is here.
//!
//! | room | what it is for | knows |
//! | --- | --- | --- |
//! | [`memo`] | values that are made once and kept | nothing of CUDA |
//! | [`loading`] | finding and opening CUDA's libraries | files and symbols |
//! | [`driver`] | the driver's functions and return codes | the rooms above |
//! | [`device`] | the devices, and a thread's current one | the rooms above |
//! | [`work`] | streams, events, captures: the order of work | the rooms above |
//! | [`memory`] | the caching allocator, pinned memory, copies, memory of other processes | the rooms above |
//! | [`graph`] | capture and replay of a stream's work | the rooms above |
//! | [`kernels`] | programs, their compiler, launches, loops on a GPU | the rooms above |
//! | [`libraries`] | cuBLASLt, cuDNN, NCCL | the rooms above but kernels |
//!
//! Knows nothing of `tensor`, `storage`, `ops`: only raw addresses, and what a loop is.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "what the library alone uses is read in its sources"
)]

pub mod device;
mod driver;
pub mod graph;
pub mod kernels;
pub mod libraries;
pub mod loading;
mod memo;
pub mod memory;
pub mod simulated_test;
pub mod work;

pub use driver::code::within;
