//! Plans for Fourier transforms of f32 and f64.

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use realfft::RealFftPlanner;
pub use realfft::{ComplexToReal, RealToComplex};
use rustfft::FftPlanner;
pub use rustfft::{Fft, FftDirection, FftNum};

/// f32 and f64, with plans that are kept for the next transform of their length.
///
/// ```
/// use torchrs_numeric::fft::{FftDirection, Real};
/// let plan = f64::complex(4, FftDirection::Forward);
/// assert_eq!(plan.len(), 4);
/// ```
pub trait Real: FftNum {
    /// Of `n` complex numbers, in place, without a factor.
    fn complex(n: usize, direction: FftDirection) -> Arc<dyn Fft<Self>>;

    /// Of `n` real numbers to the first `n / 2 + 1` coefficients.
    ///
    /// ```
    /// use torchrs_numeric::fft::Real;
    /// assert_eq!(f32::forward(8).complex_len(), 5);
    /// ```
    fn forward(n: usize) -> Arc<dyn RealToComplex<Self>>;

    /// Of the first `n / 2 + 1` coefficients to `n` real numbers, without a factor.
    fn backward(n: usize) -> Arc<dyn ComplexToReal<Self>>;
}

macro_rules! real {
    ($($t:ty: $complex:ident $real:ident;)*) => {$(
        static $complex: LazyLock<Mutex<FftPlanner<$t>>> =
            LazyLock::new(|| Mutex::new(FftPlanner::new()));
        static $real: LazyLock<Mutex<RealFftPlanner<$t>>> =
            LazyLock::new(|| Mutex::new(RealFftPlanner::new()));

        impl Real for $t {
            #[inline(never)]
            fn complex(n: usize, direction: FftDirection) -> Arc<dyn Fft<$t>> {
                $complex.lock().plan_fft(n, direction)
            }
            #[inline(never)]
            fn forward(n: usize) -> Arc<dyn RealToComplex<$t>> {
                $real.lock().plan_fft_forward(n)
            }
            #[inline(never)]
            fn backward(n: usize) -> Arc<dyn ComplexToReal<$t>> {
                $real.lock().plan_fft_inverse(n)
            }
        }
    )*};
}
real! {
    f32: COMPLEX_F32 REAL_F32;
    f64: COMPLEX_F64 REAL_F64;
}
