//! Copies and zeros past the cache, for results that are too large to stay in it: an ordinary store first
//! reads the line that it will overwrite, which costs half of the memory's bandwidth.

use std::mem::MaybeUninit;

use super::cache::{LINE, is_beyond, is_like_zen4};
use super::parts::Shared;
use super::threads::{get_num_threads, parallel_for};

/// Whether results of so many bytes, which loops make of tensors as large, are better written past the caches. On
/// Zen 4, unlike Zen 3, ordinary stores take as long there, or a quarter less.
pub fn is_for_results(bytes: usize) -> bool {
    is_beyond(bytes) && !is_like_zen4()
}

/// Whether a copy whose source or result leaves the caches is better written past them. Two threads of Zen 4 write
/// past the caches at the rate of one (27 GB/s), and by ordinary stores at up to twice that; one is faster past them.
pub fn is_for_copies() -> bool {
    !is_like_zen4() || get_num_threads() == 1
}

/// Copies `len` bytes from `from` to `to`, which do not overlap. After the last of some copies it takes
/// [`finish`].
///
/// # Safety
/// `from` is valid for reads of `len` bytes and `to` for writes; the two ranges do not overlap.
pub unsafe fn copy_streaming(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's promises; the ranges are inside of `len`.
    unsafe {
        by_lines(
            to,
            len,
            |at, len| to.add(at).copy_from_nonoverlapping(from.add(at), len),
            |at| copy_line_streaming(to.add(at), from.add(at)),
        );
    }
}

/// Calls `line` with where each cache line of `len` bytes begins, from the first 16-byte boundary of `to` on, as long
/// as 64 bytes are left, and `rest` with where what is before and after them begins and how long it is.
#[inline(always)]
fn by_lines(to: *mut u8, len: usize, rest: impl Fn(usize, usize), line: impl Fn(usize)) {
    let head = to.align_offset(16).min(len);
    let lines = (len - head) / LINE;
    rest(0, head);
    for i in 0..lines {
        line(head + i * LINE);
    }
    let done = head + lines * LINE;
    rest(done, len - done);
}

/// Copies a cache line as [`copy_streaming`] does, by stores that nothing orders but [`finish`].
///
/// # Safety
/// As [`copy_streaming`], of 64 bytes, and `to` is a multiple of 16.
#[inline(always)]
pub unsafe fn copy_line_streaming(to: *mut u8, from: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promises; SSE2 is part of x86-64.
    unsafe {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128 as load, _mm_stream_si128 as stream};
        let (to, from) = (to.cast::<__m128i>(), from.cast::<__m128i>());
        // By hand: an array's `map` is not always inlined.
        let (a, b, c, d) = (load(from), load(from.add(1)), load(from.add(2)), load(from.add(3)));
        stream(to, a);
        stream(to.add(1), b);
        stream(to.add(2), c);
        stream(to.add(3), d);
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promises.
    unsafe {
        to.copy_from_nonoverlapping(from, LINE);
    }
}

/// Copies the numbers of a cache line in the other order, as [`copy_line_streaming`] does.
///
/// # Safety
/// As [`copy_line_streaming`]; 16 bytes are some whole numbers.
#[inline(always)]
pub unsafe fn reverse_line_streaming<T: Copy>(to: *mut T, from: *const T) {
    let quarter = 16 / size_of::<T>();
    let mut i = 0;
    while i < 4 {
        // SAFETY: the caller's promises; SSE2 is part of x86-64. All of a quarter is written before it is read.
        unsafe {
            let (to, from) = (to.add((3 - i) * quarter), from.add(i * quarter));
            let mut reversed = MaybeUninit::<u128>::uninit();
            let mut k = 0;
            while k < quarter {
                reversed.as_mut_ptr().cast::<T>().add(k).write(from.add(quarter - 1 - k).read());
                k += 1;
            }
            let reversed = reversed.assume_init();
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::x86_64::{__m128i, _mm_stream_si128};
                _mm_stream_si128(to.cast(), std::mem::transmute::<u128, __m128i>(reversed));
            }
            #[cfg(not(target_arch = "x86_64"))]
            to.cast::<u128>().write_unaligned(reversed);
        }
        i += 1;
    }
}

/// Has what was copied be seen by other threads as what ordinary stores wrote is: nothing else orders these, not
/// even a release store.
#[inline(always)]
pub fn finish() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Bytes of a part that is worth a thread of its own.
const PART: usize = 256 << 10;

/// Sets `len` bytes to 0, large ones on all threads. If these, or all that is written `together` with them, are more
/// than the caches hold, it is past them: a third of the time that ordinary stores take, but what is soon read again
/// has to come from memory.
///
/// # Safety
/// `to` is valid for writes of `len` bytes, which nobody else uses.
pub unsafe fn zero(to: *mut u8, len: usize, together: usize) {
    if !is_beyond(len.max(together)) {
        // SAFETY: the caller's promise, of a part.
        return in_parts(to, len, |to, len| unsafe { to.write_bytes(0, len) });
    }
    let zeros = [0u8; LINE];
    in_parts(to, len, |to, len| {
        // SAFETY: as above; the ranges are inside of `len`.
        unsafe {
            by_lines(
                to,
                len,
                |at, len| to.add(at).write_bytes(0, len),
                |at| copy_line_streaming(to.add(at), zeros.as_ptr()),
            );
        }
        finish();
    });
}

/// Calls `each` with where the parts of `len` bytes begin and how long they are, on all threads.
fn in_parts(to: *mut u8, len: usize, each: impl Fn(*mut u8, usize) + Sync) {
    if len <= PART {
        return each(to, len);
    }
    // As large as can be: a long stretch is what the C library's loop works for.
    let part = len.div_ceil(get_num_threads()).max(PART).next_multiple_of(LINE);
    let to = Shared::new(to);
    parallel_for(len.div_ceil(part), 1, |parts| {
        for i in parts {
            let first = i * part;
            each(to.get().wrapping_add(first), part.min(len - first));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_written_to_every_byte_and_no_other() {
        for len in [0, 1, 63, 64, 100, PART, PART + 1, 3 * PART + 77, (32 << 20) + 5] {
            for together in [0, 1 << 30] {
                let mut bytes = vec![0xAA; len + 2];
                // SAFETY: inside the vector.
                unsafe { zero(bytes[1..].as_mut_ptr(), len, together) };
                assert!(bytes[0] == 0xAA && bytes[len + 1] == 0xAA, "{len}");
                assert!(bytes[1..=len].iter().all(|&b| b == 0), "{len}");
            }
        }
    }

    #[test]
    fn copies_every_byte_and_no_other_whatever_the_alignment() {
        let source: Vec<u8> = (0..500u32).map(|i| (i * 7 % 251) as u8).collect();
        for start in 0..20 {
            for len in [0, 1, 15, 16, 63, 64, 65, 127, 128, 300, 460] {
                let mut target = [0xAAu8; 500];
                let from = &source[start / 3..][..len];
                // SAFETY: both ranges are inside their arrays, which are distinct.
                unsafe { copy_streaming(target[start..].as_mut_ptr(), from.as_ptr(), len) };
                finish();
                assert_eq!(&target[start..start + len], from, "{start} {len}");
                let outside = target[..start].iter().chain(&target[start + len..]);
                assert!(outside.copied().all(|b| b == 0xAA), "{start} {len}");
            }
        }
    }
}
