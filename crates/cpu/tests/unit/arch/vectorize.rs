//! A loop gives the same at every level that is there.

#[cfg(target_arch = "x86_64")]
use torchrs_cpu::arch::isa::{Isa, available};
#[cfg(target_arch = "x86_64")]
use torchrs_cpu::arch::vectorize::avx2;
use torchrs_cpu::arch::vectorize::{Kernel, vectorize};
use torchrs_cpu::numbers::math::single;

struct Dot<'a>(&'a [f32], &'a [f32]);

impl Kernel for Dot<'_> {
    type Output = f32;
    const WIDE: bool = true;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> f32 {
        self.0.iter().zip(self.1).fold(0.0, |s, (&a, &b)| single::fma::<FMA>(a, b, s))
    }
}

#[test]
fn every_level_that_is_there_gives_the_result() {
    let (a, b) = ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]);
    assert_eq!(vectorize(Dot(&a, &b)), 32.0);
    assert_eq!(Dot(&a, &b).run::<false>(), 32.0);
    #[cfg(target_arch = "x86_64")]
    if available() >= Isa::Avx2 {
        // SAFETY: just checked.
        assert_eq!(unsafe { avx2(Dot(&a, &b)) }, 32.0);
    }
}
