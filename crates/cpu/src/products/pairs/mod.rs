//! Products of bf16 numbers in pairs, `sum + a0 b0 + a1 b1` with sums in f32: one instruction where
//! AVX512-BF16 is there, at the rate of f32's multiply-add, so twice its work.
//!
//! A pair is 32 bits that stand for two neighbouring steps of a sum, and is passed as an f32 whose value
//! means nothing: tiles, packing and fields then are those of f32, with half as many steps. The instruction
//! takes subnormal operands for 0 and gives 0 for subnormal sums, as it does for PyTorch.

#[cfg(target_arch = "x86_64")]
use crate::arch::isa;

mod interleave;
mod lines;
mod pack;
mod work;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use lines::{SLACK, interleave_channels, interleave_lines};
pub use pack::{HalfPanels, are_pairs, pack};
pub use work::{Finish, Gather, Kernels, ROWS, Round, Scatter};

/// The functions for pairs, where the processor has the instruction.
#[inline]
pub fn kernels() -> Option<Kernels> {
    #[cfg(target_arch = "x86_64")]
    return isa::multiplies_bf16().then(x86::kernels);
    #[cfg(not(target_arch = "x86_64"))]
    None
}
