//! One loop, compiled for the instruction sets. A kernel is written once as plain Rust over slices;
//! [`vectorize`] runs the copy that was compiled for the processor's level.

use crate::arch::isa::{self, Isa};

/// A loop with its operands. `run` and everything it calls must be `#[inline(always)]` (or small
/// closures), else the called part stays at the baseline's instructions.
pub trait Kernel {
    /// What the loop gives.
    type Output;
    /// Whether AVX-512 is worth a copy of its own: not where loads and stores are all that counts,
    /// which AVX2 does as fast beyond the first cache.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no such levels there"))]
    const WIDE: bool;
    /// The loop. `FMA` says whether `mul_add` is an instruction.
    fn run<const FMA: bool>(self) -> Self::Output;
}

/// Runs the kernel with the best instructions that the processor has.
#[inline]
pub fn vectorize<K: Kernel>(kernel: K) -> K::Output {
    match isa::current() {
        Isa::Baseline => kernel.run::<{ isa::BASELINE_FMA }>(),
        // SAFETY: `current` is never above what the processor has.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 if K::WIDE => unsafe { avx512(kernel) },
        // SAFETY: as above, and each level has what the lower ones have.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Avx2 => unsafe { avx2(kernel) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => kernel.run::<{ isa::BASELINE_FMA }>(),
    }
}

/// Runs the kernel with AVX2.
///
/// # Safety
/// The processor has [`Isa::Avx2`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<true>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512vl,avx512dq,avx512bw")]
fn avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<true>()
}
