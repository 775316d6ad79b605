//! Having memory brought in before it is read. Processors foresee rising addresses by themselves, but not
//! beyond a page, and not for many streams at once.

use crate::arch::cache::LINE;

/// Has the cache line with `at` brought in; any address will do.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    bring::<FIRST, T>(at);
}

/// Has the cache line with `at` brought into the second-level cache, where it pushes nothing out of the first
/// that is in use until then; any address will do.
#[inline(always)]
pub fn prefetch_later<T>(at: *const T) {
    bring::<SECOND, T>(at);
}

/// The first-level cache, as x86-64's instruction has it.
const FIRST: i32 = 3;
/// The second-level cache.
const SECOND: i32 = 2;

#[inline(always)]
fn bring<const LEVEL: i32, T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is harmless, and SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<LEVEL>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// What will be read of many rows, or planes, after the tiles at work, to be brought near beside them, a little
/// at a time: the processor does not foresee what is read from many places in turn.
pub struct Later<T> {
    /// The next line of a row, and how many are left of it and the rows behind it.
    line: *const T,
    left: usize,
    all: usize,
    /// Lines of a row, and from behind the last to the next row's first.
    lines: usize,
    jump: usize,
    /// Lines that are brought at a time.
    some: usize,
}

impl<T> Later<T> {
    /// Elements of a cache line.
    const LINE: usize = LINE / size_of::<T>();

    /// `each` elements from `first` on, and in each of the other rows, `distance` apart, in so many `turns`.
    pub fn new(
        first: *const T,
        each: usize,
        (rows, distance): (usize, usize),
        turns: usize,
    ) -> Self {
        let lines = each.div_ceil(Self::LINE);
        let jump = distance.wrapping_sub(lines * Self::LINE);
        let all = rows * lines;
        Later { line: first, left: lines, all, lines, jump, some: all.div_ceil(turns) }
    }

    /// Brings what one turn's part is.
    #[inline(always)]
    pub fn bring(&mut self) {
        let count = self.some.min(self.all);
        self.all -= count;
        for _ in 0..count {
            prefetch_later(self.line);
            self.line = self.line.wrapping_add(Self::LINE);
            self.left -= 1;
            if self.left == 0 {
                (self.left, self.line) = (self.lines, self.line.wrapping_add(self.jump));
            }
        }
    }
}
