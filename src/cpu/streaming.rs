//! Copies past the cache, for results that are too large to stay in it: an ordinary store first
//! reads the line that it will overwrite, which costs half of the memory's bandwidth.

/// Copies `len` bytes from `from` to `to`, which do not overlap. Afterwards the bytes are visible to
/// other threads as those of ordinary stores are.
///
/// # Safety
/// `from` is valid for reads of `len` bytes and `to` for writes; the two ranges do not overlap.
pub unsafe fn copy_streaming(to: *mut u8, from: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promises; SSE2 is part of x86-64. Vectors are stored from the first
    // 16-byte boundary of `to` on, as long as 64 bytes are left.
    unsafe {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128 as stream};
        let head = to.align_offset(16).min(len);
        let lines = (len - head) / 64;
        to.copy_from_nonoverlapping(from, head);
        let mut source = from.add(head).cast::<__m128i>();
        let mut target = to.add(head).cast::<__m128i>();
        for _ in 0..lines {
            let line = [0, 1, 2, 3].map(|i| _mm_loadu_si128(source.add(i)));
            stream(target, line[0]);
            stream(target.add(1), line[1]);
            stream(target.add(2), line[2]);
            stream(target.add(3), line[3]);
            (source, target) = (source.add(4), target.add(4));
        }
        let done = head + lines * 64;
        to.add(done).copy_from_nonoverlapping(from.add(done), len - done);
        // Streaming stores are ordered by nothing else, not even by a release store.
        _mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promises.
    unsafe {
        to.copy_from_nonoverlapping(from, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_every_byte_and_no_other_whatever_the_alignment() {
        let source: Vec<u8> = (0..500u32).map(|i| (i * 7 % 251) as u8).collect();
        for start in 0..20 {
            for len in [0, 1, 15, 16, 63, 64, 65, 127, 128, 300, 460] {
                let mut target = [0xAAu8; 500];
                let from = &source[start / 3..][..len];
                // SAFETY: both ranges are inside their arrays, which are distinct.
                unsafe { copy_streaming(target[start..].as_mut_ptr(), from.as_ptr(), len) };
                assert_eq!(&target[start..start + len], from, "{start} {len}");
                let outside = target[..start].iter().chain(&target[start + len..]);
                assert!(outside.copied().all(|b| b == 0xAA), "{start} {len}");
            }
        }
    }
}
