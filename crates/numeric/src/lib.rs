//! The Fourier transforms under torchrs, by `rustfft` and `realfft`, behind functions that are not generic.
//! Their generic code is compiled where it is used and takes as long as a tenth of torchrs; here that
//! happens beside the rest of it, and not again when something else changes.

pub mod fft;
