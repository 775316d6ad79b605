//! The numeric libraries under torchrs, behind functions that are not generic: large matrix products
//! by `gemm-f32` and `gemm-f64`, Fourier transforms by `rustfft` and `realfft`. Their generic code is
//! compiled where it is used and takes as long as a fifth of torchrs; here that happens beside the
//! rest of it, and not again when something else changes.

pub mod fft;
pub mod gemm;
