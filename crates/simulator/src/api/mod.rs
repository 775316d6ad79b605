//! The exported symbols, a folder for each library.

// C's functions take what pointers they are given, and their callers in C cannot see the word `unsafe`.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

pub mod cublaslt;
pub mod cudnn;
pub mod driver;
pub mod nccl;
pub mod nvrtc;
