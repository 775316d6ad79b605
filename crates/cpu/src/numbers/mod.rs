//! Numbers: the types that kernels compute in, registers of them, elementary functions, random bits.
//!
//! Knows nothing of threads and loops over memory; of the processor its level only.

pub mod float;
#[cfg(target_arch = "x86_64")]
pub mod halves;
pub mod lane;
pub mod math;
pub mod philox;
pub mod vector;
pub mod widen;
