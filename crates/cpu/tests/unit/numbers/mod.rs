//! Number types and the functions of them.

#[cfg(target_arch = "x86_64")]
mod halves;
mod lane;
mod math;
mod philox;
mod widen;
