//! Which register tile and which packing loop belong to a number type at a level of instructions.

use crate::arch::isa::Isa;
use crate::numbers::float::Float;
use crate::products::micro::{self, Tile};
use crate::products::panels::{self, Packer};

/// f32 or f64, with what matrix products need.
pub trait Tiled: Float {
    /// The register tile of matrix products at this level of instructions.
    fn tile(isa: Isa) -> Tile<Self>;
    /// Packs a panel for it.
    fn packer(isa: Isa) -> Packer<Self>;
}

macro_rules! tiled {
    ($t:ty, $narrow:ident, $wide:ident, $neon:ident) => {
        impl Tiled for $t {
            fn tile(isa: Isa) -> Tile<Self> {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => micro::avx512_tile::<std::arch::x86_64::$wide>(),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => micro::avx2_tile::<std::arch::x86_64::$narrow>(),
                    #[cfg(target_arch = "aarch64")]
                    _ => micro::neon_tile::<std::arch::aarch64::$neon>(),
                    #[cfg(not(target_arch = "aarch64"))]
                    _ => micro::plain_tile(),
                }
            }
            fn packer(isa: Isa) -> Packer<Self> {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 | Isa::Avx2 => panels::avx2::<std::arch::x86_64::$narrow>,
                    #[cfg(target_arch = "aarch64")]
                    _ => panels::neon::<std::arch::aarch64::$neon>,
                    #[cfg(not(target_arch = "aarch64"))]
                    _ => panels::plain::<$t>,
                }
            }
        }
    };
}
tiled!(f32, __m256, __m512, float32x4_t);
tiled!(f64, __m256d, __m512d, float64x2_t);
