//! Tensors on simulated GPUs, against the same on the CPU. Every test runs in a process of its own.

#[macro_use]
#[path = "cuda_device/support.rs"]
#[allow(dead_code, reason = "shared with the tests of the device layer")]
mod support;

#[path = "cuda_tensors/allocations.rs"]
mod allocations;
#[path = "cuda_tensors/attention.rs"]
mod attention;
#[path = "cuda_tensors/bags.rs"]
mod bags;
#[path = "cuda_tensors/basics.rs"]
mod basics;
#[path = "cuda_tensors/classes.rs"]
mod classes;
#[path = "cuda_tensors/compare.rs"]
mod compare;
#[path = "cuda_tensors/complex.rs"]
mod complex;
#[path = "cuda_tensors/conv.rs"]
mod conv;
#[path = "cuda_tensors/counts.rs"]
mod counts;
#[path = "cuda_tensors/fft.rs"]
mod fft;
#[path = "cuda_tensors/folds.rs"]
mod folds;
#[path = "cuda_tensors/graphs.rs"]
mod graphs;
#[path = "cuda_tensors/guards.rs"]
mod guards;
#[path = "cuda_tensors/indexing.rs"]
mod indexing;
#[path = "cuda_tensors/large.rs"]
mod large;
#[path = "cuda_tensors/linalg.rs"]
mod linalg;
#[path = "cuda_tensors/loader.rs"]
mod loader;
#[path = "cuda_tensors/masks.rs"]
mod masks;
#[path = "cuda_tensors/moves.rs"]
mod moves;
#[path = "cuda_tensors/near.rs"]
mod near;
#[path = "cuda_tensors/norms.rs"]
mod norms;
#[path = "cuda_tensors/optim.rs"]
mod optim;
#[path = "cuda_tensors/packed.rs"]
mod packed;
#[path = "cuda_tensors/pooling.rs"]
mod pooling;
#[path = "cuda_tensors/processes.rs"]
mod processes;
#[path = "cuda_tensors/products.rs"]
mod products;
#[path = "cuda_tensors/random.rs"]
mod random;
#[path = "cuda_tensors/refusals.rs"]
mod refusals;
#[path = "cuda_tensors/rnn.rs"]
mod rnn;
#[path = "cuda_tensors/rows.rs"]
mod rows;
#[path = "cuda_tensors/scans.rs"]
mod scans;
#[path = "cuda_tensors/sorts.rs"]
mod sorts;
#[path = "cuda_tensors/steps.rs"]
mod steps;
#[path = "cuda_tensors/streams.rs"]
mod streams;
