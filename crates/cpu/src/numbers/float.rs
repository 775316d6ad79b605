//! The types that kernels compute in, f32 and f64, and `simd_fn!`, which compiles one plain Rust
//! loop for the instruction sets and picks at run time.

use std::any::TypeId;

use crate::numbers::math::{double, single};
use crate::numbers::widen::Real;

/// f32 or f64, with what inner loops need. `FMA` says whether `mul_add` is an instruction where the
/// code runs; where it is not it would be a library call.
pub trait Float: Real + Copy + Send + Sync + Default + 'static {
    /// `self * b + c`.
    fn fma<const FMA: bool>(self, b: Self, c: Self) -> Self;
    /// Hyperbolic tangent; vectorises.
    fn tanh<const FMA: bool>(self) -> Self;
}

macro_rules! float {
    ($t:ty, $math:ident) => {
        impl Float for $t {
            #[inline(always)]
            fn fma<const FMA: bool>(self, b: Self, c: Self) -> Self {
                if FMA { self.mul_add(b, c) } else { self * b + c }
            }
            #[inline(always)]
            fn tanh<const FMA: bool>(self) -> Self {
                $math::tanh::<FMA>(self)
            }
        }
    };
}
float!(f32, single);
float!(f64, double);

/// A slice as one of f32, if that is what it is.
pub fn single<T: Float>(numbers: &[T]) -> Option<&[f32]> {
    let same = TypeId::of::<T>() == TypeId::of::<f32>();
    // SAFETY: the same type under its other name.
    same.then(|| unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), numbers.len()) })
}

/// `single`, to write.
pub fn single_mut<T: Float>(numbers: &mut [T]) -> Option<&mut [f32]> {
    let same = TypeId::of::<T>() == TypeId::of::<f32>();
    // SAFETY: the same type under its other name.
    same.then(|| unsafe {
        std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len())
    })
}

/// Defines a function over a [`Float`] type that is compiled for each instruction set. The body is
/// generic over `T` and a `const FMA: bool`, and should be loops that vectorise.
#[doc(hidden)]
#[macro_export]
macro_rules! simd_fn {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident<$T:ident, $FMA:ident>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "inner loops take their shapes as plain numbers")]
        $vis fn $name<$T: $crate::numbers::float::Float>($($arg: $ty),*) $(-> $ret)? {
            #[allow(clippy::too_many_arguments, reason = "as above")]
            #[inline(always)]
            fn body<$T: $crate::numbers::float::Float, const $FMA: bool>($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            #[allow(clippy::too_many_arguments, reason = "as above")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$T: $crate::numbers::float::Float>($($arg: $ty),*) $(-> $ret)? {
                body::<$T, true>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[allow(clippy::too_many_arguments, reason = "as above")]
            #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
            fn avx512<$T: $crate::numbers::float::Float>($($arg: $ty),*) $(-> $ret)? {
                body::<$T, true>($($arg),*)
            }
            match $crate::arch::isa::current() {
                // AVX-512 has a copy of its own for f32 only, which is what speed is wanted for: copies cost
                // build time.
                // SAFETY: `current` never gives a level that the processor lacks.
                #[cfg(target_arch = "x86_64")]
                $crate::arch::isa::Isa::Avx512 if size_of::<$T>() == 4 => unsafe { avx512($($arg),*) },
                // SAFETY: as above, and each level has what the lower ones have.
                #[cfg(target_arch = "x86_64")]
                $crate::arch::isa::Isa::Avx512 | $crate::arch::isa::Isa::Avx2 => unsafe { avx2($($arg),*) },
                _ => body::<$T, { $crate::arch::isa::BASELINE_FMA }>($($arg),*),
            }
        }
    )*};
}
pub use simd_fn;
