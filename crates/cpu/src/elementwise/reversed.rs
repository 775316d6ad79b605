//! Rows that are copied in the other order.

use std::mem::MaybeUninit;

use crate::arch::cache::LINE;
use crate::arch::prefetch::prefetch;
use crate::arch::vectorize::Kernel;
use crate::elementwise::streaming::{ALIGNMENT, copy_line_streaming, finish};

/// Bytes ahead of what is read that are asked for.
const AHEAD: usize = 4096;

/// Neighbours in the other order.
pub struct Reversed<T> {
    /// The first place, where the last number goes.
    pub to: *mut T,
    /// The first number.
    pub from: *const T,
    /// How many.
    pub count: usize,
    /// Where the numbers go to.
    pub way: Way,
}

/// Ways of writing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// To the caches, which have the source.
    Near,
    /// To the caches; the row that likely follows the source is brought near meanwhile.
    Far,
    /// Past the caches.
    Past,
}

impl<T: Copy> Kernel for Reversed<T> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Reversed { to, from, count, way } = self;
        // SAFETY: who makes one promises `count` elements on both sides, apart from each other; the parts cover them.
        unsafe {
            match way {
                Way::Near => return reverse(to, from, count),
                Way::Far => return reverse_far(to, from, count),
                Way::Past => {}
            }
            // The places of whole lines of memory are in the middle, and filled from the last on: what is foreseen is
            // rising addresses that are read.
            let line = LINE / size_of::<T>();
            let head = to.align_offset(ALIGNMENT).min(count);
            let lines = (count - head) / line;
            let tail = count - head - lines * line;
            reverse(to.add(count - tail), from, tail);
            for i in 0..lines {
                let at = tail + i * line;
                prefetch(from.add(at).wrapping_byte_add(AHEAD));
                let reversed = reversed_line(from.add(at));
                copy_line_streaming::<FMA>(
                    to.add(count - at - line).cast(),
                    reversed.as_ptr().cast(),
                );
            }
            reverse(to, from.add(count - head), head);
            finish();
        }
    }
}

/// [`reverse`], and has the same places of the next row brought near.
///
/// # Safety
/// As [`reverse`].
#[inline(always)]
unsafe fn reverse_far<T: Copy>(to: *mut T, from: *const T, count: usize) {
    let line = LINE / size_of::<T>();
    let lines = count / line;
    for i in 0..lines {
        let at = from.wrapping_add(count - (i + 1) * line);
        prefetch(at.wrapping_add(count));
        // SAFETY: this function's contract, for a line's part of `count`.
        unsafe { to.add(i * line).cast::<Line>().write_unaligned(reversed_line(at)) };
    }
    // SAFETY: this function's contract, for what the lines have left of `count`.
    unsafe { reverse(to.add(lines * line), from, count - lines * line) };
}

/// A cache line's bytes.
type Line = MaybeUninit<[u128; LINE / size_of::<u128>()]>;

/// The numbers of a cache line's length in the other order: as an array of their own, for which whole registers are
/// put in order.
///
/// # Safety
/// 64 bytes from `from` on are valid; 16 bytes are some whole numbers.
#[inline(always)]
unsafe fn reversed_line<T: Copy>(from: *const T) -> Line {
    let mut reversed = Line::uninit();
    let (line, numbers) = (reversed.as_mut_ptr().cast::<T>(), LINE / size_of::<T>());
    let mut k = 0;
    while k < numbers {
        // SAFETY: this function's contract: `from` has a line's numbers, and so has `reversed`.
        unsafe { line.add(k).write(from.add(numbers - 1 - k).read()) };
        k += 1;
    }
    reversed
}

/// By ordinary stores.
///
/// # Safety
/// Both have `count` elements, apart from each other.
#[inline(always)]
unsafe fn reverse<T: Copy>(to: *mut T, from: *const T, count: usize) {
    // SAFETY: this function's contract: `count` elements on both sides, apart from each other.
    let (to, from) = unsafe {
        (std::slice::from_raw_parts_mut(to, count), std::slice::from_raw_parts(from, count))
    };
    for (to, from) in to.iter_mut().zip(from.iter().rev()) {
        *to = *from;
    }
}
