//! Copies and zeros past the cache, for results that are too large to stay in it: an ordinary store first
//! reads the line that it will overwrite, which costs half of the memory's bandwidth.

use crate::arch::cache::{LINE, is_beyond, is_like_zen4};
use crate::arch::vectorize::{Kernel, vectorize};
use crate::threads::parts::Shared;
use crate::threads::{get_num_threads, parallel_for};

/// What the places of whole lines are a multiple of: the bytes of AVX's registers.
pub const ALIGNMENT: usize = 32;

/// Whether a copy of so many bytes that are far, or whose source is, is better written past the caches. What the
/// shared cache holds two threads of Zen 4 write by ordinary stores at up to twice the rate; one gains either way.
#[inline]
pub fn is_for_copies(bytes: usize) -> bool {
    !is_like_zen4() || get_num_threads() == 1 || is_beyond(bytes)
}

/// Copies `len` bytes from `from` to `to`, which do not overlap. After the last of some copies it takes
/// [`finish`].
///
/// # Safety
/// `from` is valid for reads of `len` bytes and `to` for writes; the two ranges do not overlap.
pub unsafe fn copy_streaming(to: *mut u8, from: *const u8, len: usize) {
    vectorize(Copying { to, from, len });
}

/// [`copy_streaming`] of bytes that it may be done for.
pub struct Copying {
    /// Where the bytes go.
    pub to: *mut u8,
    /// Where they are.
    pub from: *const u8,
    /// How many.
    pub len: usize,
}

impl Kernel for Copying {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Copying { to, from, len } = self;
        // SAFETY: who makes one keeps `copy_streaming`'s promises; the ranges are inside of `len`.
        unsafe {
            by_lines(
                to,
                len,
                |at, len| to.add(at).copy_from_nonoverlapping(from.add(at), len),
                |at| copy_line_streaming::<FMA>(to.add(at), from.add(at)),
            );
        }
    }
}

/// Calls `line` with where each cache line of `len` bytes begins, from the first place of `to` on that is a multiple
/// of [`ALIGNMENT`], as long as 64 bytes are left, and `rest` with where what is before and after them begins and how
/// long it is.
#[inline(always)]
fn by_lines(to: *mut u8, len: usize, rest: impl Fn(usize, usize), line: impl Fn(usize)) {
    let head = to.align_offset(ALIGNMENT).min(len);
    let lines = (len - head) / LINE;
    rest(0, head);
    for i in 0..lines {
        line(head + i * LINE);
    }
    let done = head + lines * LINE;
    rest(done, len - done);
}

/// Copies a cache line as [`copy_streaming`] does, by stores that nothing orders but [`finish`]. With AVX by its
/// registers, by which Zen 4 writes a quarter more.
///
/// # Safety
/// As [`copy_streaming`], of 64 bytes; `to` is a multiple of [`ALIGNMENT`], and the processor has AVX2 if `FMA`.
#[inline(always)]
pub unsafe fn copy_line_streaming<const FMA: bool>(to: *mut u8, from: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: this function's contract: 64 bytes on both sides, `to` aligned; SSE2 is part of x86-64.
    unsafe {
        use std::arch::x86_64::*;
        if FMA {
            let (to, from) = (to.cast::<__m256i>(), from.cast::<__m256i>());
            let (a, b) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
            _mm256_stream_si256(to, a);
            _mm256_stream_si256(to.add(1), b);
            return;
        }
        let (to, from) = (to.cast::<__m128i>(), from.cast::<__m128i>());
        // By hand: an array's `map` is not always inlined.
        let (a, b) = (_mm_loadu_si128(from), _mm_loadu_si128(from.add(1)));
        let (c, d) = (_mm_loadu_si128(from.add(2)), _mm_loadu_si128(from.add(3)));
        _mm_stream_si128(to, a);
        _mm_stream_si128(to.add(1), b);
        _mm_stream_si128(to.add(2), c);
        _mm_stream_si128(to.add(3), d);
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: this function's contract: 64 bytes on both sides.
    unsafe {
        to.copy_from_nonoverlapping(from, LINE);
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
pub const PART: usize = 256 << 10;

/// Sets `len` bytes to 0, large ones on all threads. If these, or all that is written `together` with them, are more
/// than the caches hold, it is past them: a third of the time that ordinary stores take, but what is soon read again
/// has to come from memory.
///
/// # Safety
/// `to` is valid for writes of `len` bytes, which nobody else uses.
pub unsafe fn zero(to: *mut u8, len: usize, together: usize) {
    if !is_beyond(len.max(together)) {
        // SAFETY: this function's contract, for a part of the bytes.
        return in_parts(to, len, |to, len| unsafe { to.write_bytes(0, len) });
    }
    in_parts(to, len, |to, len| {
        vectorize(Zeros { to, len });
        finish();
    });
}

/// Zeros past the caches, of bytes of which [`zero`]'s promises hold.
struct Zeros {
    to: *mut u8,
    len: usize,
}

impl Kernel for Zeros {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let (Zeros { to, len }, zeros) = (self, [0u8; LINE]);
        // SAFETY: who makes one may write the bytes; the ranges are inside of `len`.
        unsafe {
            by_lines(
                to,
                len,
                |at, len| to.add(at).write_bytes(0, len),
                |at| copy_line_streaming::<FMA>(to.add(at), zeros.as_ptr()),
            );
        }
    }
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
