//! Rows that are copied in the other order.

use super::cache::LINE;
use super::prefetch::prefetch;
use super::streaming::{ALIGNMENT, finish, reverse_line_streaming};
use super::vectorize::Kernel;

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
    /// Whether they are written past the caches.
    pub streaming: bool,
}

impl<T: Copy> Kernel for Reversed<T> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Reversed { to, from, count, streaming } = self;
        // SAFETY: who makes one promises `count` elements on both sides, apart from each other; the parts cover them.
        unsafe {
            if !streaming {
                return reverse(to, from, count);
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
                reverse_line_streaming::<T, FMA>(to.add(count - at - line), from.add(at));
            }
            reverse(to, from.add(count - head), head);
            finish();
        }
    }
}

/// By ordinary stores.
///
/// # Safety
/// Both have `count` elements, apart from each other.
#[inline(always)]
unsafe fn reverse<T: Copy>(to: *mut T, from: *const T, count: usize) {
    // SAFETY: the caller's promise.
    let (to, from) = unsafe {
        (std::slice::from_raw_parts_mut(to, count), std::slice::from_raw_parts(from, count))
    };
    for (to, from) in to.iter_mut().zip(from.iter().rev()) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::vectorize::vectorize;

    fn all_lengths<T: Copy + PartialEq + std::fmt::Debug>(value: fn(usize) -> T) {
        for start in 0..20 {
            for count in (0..70).chain([300]) {
                for streaming in [false, true] {
                    let source: Vec<T> = (0..400).map(value).collect();
                    let mut target = [value(1000); 400];
                    let (to, from) = (target[start..].as_mut_ptr(), source[start / 3..].as_ptr());
                    vectorize(Reversed { to, from, count, streaming });
                    let want = (0..400usize).map(|i| match i.checked_sub(start) {
                        Some(i) if i < count => value(start / 3 + count - 1 - i),
                        _ => value(1000),
                    });
                    assert!(target.iter().copied().eq(want), "{start} {count} {streaming}");
                }
            }
        }
    }

    #[test]
    fn every_number_goes_to_its_place_and_no_other_is_written() {
        all_lengths::<u8>(|i| i as u8);
        all_lengths::<u16>(|i| i as u16);
        all_lengths::<u32>(|i| i as u32);
        all_lengths::<u64>(|i| i as u64);
        all_lengths::<[u64; 2]>(|i| [i as u64, 7]);
    }
}
