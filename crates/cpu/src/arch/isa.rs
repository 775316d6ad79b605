//! Which vector instructions this processor has, found once at run time. Kernels are compiled for
//! two or three of the levels and picked by [`current`]; the baseline is always there, so one binary
//! runs everywhere.

#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use torchrs_error::{Error, throw};

/// A level of vector instructions. Each level has all that the lower ones have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Isa {
    /// What every processor of this architecture has: SSE2 on x86-64; NEON on aarch64, where there is
    /// nothing above it.
    Baseline,
    /// AVX2, FMA and F16C: 256-bit registers.
    Avx2,
    /// AVX-512 F, VL, DQ and BW: 512-bit registers.
    Avx512,
}

/// Whether fused multiply-add is an instruction at the baseline.
pub const BASELINE_FMA: bool = cfg!(target_arch = "aarch64");

/// Number of levels.
pub const COUNT: usize = 3;

const UNKNOWN: u8 = u8::MAX;
static CURRENT: AtomicU8 = AtomicU8::new(UNKNOWN);

impl Isa {
    /// All levels, lowest first.
    pub const ALL: [Isa; COUNT] = [Isa::Baseline, Isa::Avx2, Isa::Avx512];

    /// The name that `TORCHRS_ISA` takes.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Baseline => "baseline",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }
}

/// The level that kernels run at: the highest that the processor has, lowered by the environment
/// variable `TORCHRS_ISA` (`baseline`, `avx2`, `avx512`) if it is set.
///
/// # Panics
/// Throws [`Error::Config`] on the first call when the variable holds anything else.
#[inline]
pub fn current() -> Isa {
    match CURRENT.load(Relaxed) {
        0 => Isa::Baseline,
        1 => Isa::Avx2,
        2 => Isa::Avx512,
        _ => detect(),
    }
}

#[cold]
fn detect() -> Isa {
    let isa = match std::env::var("TORCHRS_ISA") {
        Ok(name) => parse(&name).unwrap_or_else(|e| throw(e)).min(available()),
        Err(_) => available(),
    };
    CURRENT.store(isa as u8, Relaxed);
    isa
}

/// The level of a name that `TORCHRS_ISA` takes.
///
/// # Errors
/// [`Error::Config`] for any other name.
pub fn parse(name: &str) -> Result<Isa, Error> {
    Isa::ALL.into_iter().find(|isa| isa.name() == name).ok_or_else(|| {
        Error::config(
            "TORCHRS_ISA",
            format!("`{name}` is not an instruction set; use baseline, avx2 or avx512"),
        )
    })
}

/// The highest level that the processor has.
pub fn available() -> Isa {
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw");
        match (avx2, avx512) {
            (true, true) => Isa::Avx512,
            (true, false) => Isa::Avx2,
            _ => Isa::Baseline,
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    Isa::Baseline
}

/// Whether products of bf16 run at twice the rate of f32's: whether there are AVX512-BF16's products of pairs,
/// at the full rate, and `TORCHRS_ISA` does not lower the level below them.
///
/// That is so on all of AMD's processors that have them. Intel's without AMX take half as many a cycle as of
/// f32's: to widen the operands is as fast there, and more exact, since the instruction takes subnormal numbers
/// for 0.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn multiplies_bf16() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    current() == Isa::Avx512 && *FOUND.get_or_init(multiplies_bf16_fast)
}

#[cfg(target_arch = "x86_64")]
fn multiplies_bf16_fast() -> bool {
    is_amd() && is_x86_feature_detected!("avx512bf16")
}

/// Whether registers of 512 bits are multiplied in two halves, one after the other, so that all else takes less
/// time beside it: so it is on AMD's Zen 4, the first to have them.
pub fn multiplies_in_halves() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        static FOUND: OnceLock<bool> = OnceLock::new();
        current() == Isa::Avx512 && *FOUND.get_or_init(is_zen_4)
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(target_arch = "x86_64")]
fn is_zen_4() -> bool {
    // Zen 3 and Zen 4 are family 25, of which only the latter has these registers.
    let version = std::arch::x86_64::__cpuid(1).eax;
    let family = (version >> 8 & 15) + (version >> 20 & 255);
    is_amd() && family == 25 && available() == Isa::Avx512
}

#[cfg(target_arch = "x86_64")]
fn is_amd() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0);
    // The name's three words.
    [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
}
