//! Neighbouring steps brought together.

use half::bf16;

/// A pair, as an f32.
#[inline(always)]
pub fn pair(even: bf16, odd: bf16) -> f32 {
    f32::from_bits(even.to_bits() as u32 | (odd.to_bits() as u32) << 16)
}

/// # Safety
/// N numbers can be read from both lines, and N pairs written.
#[inline(always)]
pub unsafe fn interleave<const N: usize>(even: *const bf16, odd: *const bf16, to: *mut f32) {
    // SAFETY: this function's contract: `N` numbers in both lines, and room for `N` pairs.
    unsafe {
        let even = even.cast::<[u16; N]>().read_unaligned();
        let odd = odd.cast::<[u16; N]>().read_unaligned();
        let mut pairs = [0u32; N];
        for j in 0..N {
            pairs[j] = even[j] as u32 | (odd[j] as u32) << 16;
        }
        to.cast::<[u32; N]>().write_unaligned(pairs);
    }
}
