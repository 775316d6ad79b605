//! NVIDIA's libraries on raw addresses: matrix products, convolutions and attention, collectives.
//!
//! They take the place of kernels or of processes' own collectives where they are installed; who asks decides
//! when. They know nothing of one another.

pub mod cublaslt;
pub mod cudnn;
pub mod nccl;
