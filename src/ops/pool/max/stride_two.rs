//! Maxima, without their places, of rows of windows at a stride of 2 that read neighbouring columns. Lines are read
//! one after the other ([`is_far`](crate::cpu::arch::cache::is_far)).

use super::lanes::Lanes;

/// A row of windows.
pub struct Row<'a, T> {
    pub x: &'a [T],
    /// Where the lines that it reads start in `x`, at least one, and how wide they are.
    pub lines: &'a [usize],
    pub width: usize,
    /// Columns of padding before a line, and of a window.
    pub left: usize,
    pub kernel: usize,
    /// Whether lines come from memory.
    pub far: bool,
}

impl<T> Row<'_, T> {
    /// Writes the maxima, which fill a register, as do lines; `columns` has the padding around what is its own.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    #[inline(always)]
    pub unsafe fn maxima<V: Lanes<Number = T>>(&self, columns: &mut [T], y: &mut [T]) {
        let &Row { x, lines, width, left, kernel, far } = self;
        let line = |k: usize| &x[lines[k]..][..width];
        let best = &mut columns[left..][..width];
        // SAFETY: `Vector`'s *Instructions*; lines and maxima fill a register, by this function's
        // contract.
        unsafe {
            if (kernel, left, lines.len()) == (2, 0, 2) && 2 * y.len() <= width {
                if !far {
                    return squares::<V>(line(0), line(1), y);
                }
                copy::<V>(line(0), best);
                return squares::<V>(best, line(1), y);
            }
            copy::<V>(line(0), best);
            for k in 1..lines.len() {
                raise::<V>(line(k), best);
            }
            match kernel {
                2 => windows::<V>(columns, 2, y),
                3 => windows::<V>(columns, 3, y),
                _ => windows::<V>(columns, kernel, y),
            }
        }
    }
}

/// Copies a line, which fills a register.
///
/// # Safety
/// `Vector`'s *Instructions*.
#[inline(always)]
pub(crate) unsafe fn copy<V: Lanes>(line: &[V::Number], to: &mut [V::Number]) {
    assert!(line.len() >= V::LANES && line.len() == to.len());
    for c in (0..line.len()).step_by(V::LANES) {
        // The last register may overlap the one before.
        let c = c.min(line.len() - V::LANES);
        // SAFETY: both have a register's numbers at `c`, by the check above; `Vector`'s *Instructions*.
        unsafe { V::load(line.as_ptr().add(c)).store(to.as_mut_ptr().add(c)) };
    }
}

/// Raises `best` to the numbers of a line, which fills a register, where those are larger.
///
/// # Safety
/// `Vector`'s *Instructions*.
#[inline(always)]
unsafe fn raise<V: Lanes>(line: &[V::Number], best: &mut [V::Number]) {
    assert!(line.len() >= V::LANES && line.len() == best.len());
    for c in (0..line.len()).step_by(V::LANES) {
        let c = c.min(line.len() - V::LANES);
        // SAFETY: as for `copy`.
        unsafe {
            let (v, to) = (V::load(line.as_ptr().add(c)), best.as_mut_ptr().add(c));
            V::load(to).largest(v, v).store(to);
        }
    }
}

/// Writes the largest of each window's `kernel` columns; the windows fill a register.
///
/// # Safety
/// `Vector`'s *Instructions*.
#[inline(always)]
unsafe fn windows<V: Lanes>(columns: &[V::Number], kernel: usize, y: &mut [V::Number]) {
    let count = y.len();
    assert!(count >= V::LANES && columns.len() >= 2 * count + kernel);
    for j in (0..count).step_by(V::LANES) {
        let j = j.min(count - V::LANES);
        // SAFETY: a window's columns and the next one are there for each `j` below `count`, by the check above; `Vector`'s
        // *Instructions*.
        unsafe {
            let at = |c: usize| V::load(columns.as_ptr().add(2 * j + c));
            let [mut top, mut odd] = V::split(at(0), at(V::LANES));
            for t in (2..kernel).step_by(2) {
                let [even, next] = V::split(at(t), at(t + V::LANES));
                top = top.largest(odd, even);
                odd = if t + 1 < kernel { next } else { even };
            }
            if kernel > 1 {
                top = top.largest(odd, odd);
            }
            top.reordered().store(y.as_mut_ptr().add(j));
        }
    }
}

/// The largest of two by two numbers each; the windows fill a register.
///
/// # Safety
/// `Vector`'s *Instructions*.
#[inline(always)]
unsafe fn squares<V: Lanes>(upper: &[V::Number], lower: &[V::Number], y: &mut [V::Number]) {
    let count = y.len();
    assert!(count >= V::LANES && upper.len() >= 2 * count && lower.len() >= 2 * count);
    for j in (0..count).step_by(V::LANES) {
        let j = j.min(count - V::LANES);
        // SAFETY: `j` and the next places of a register are below `count`, for which all have just been checked;
        // `Vector`'s *Instructions*.
        unsafe {
            let larger = |c: usize| {
                let (a, b) = (V::load(upper.as_ptr().add(c)), V::load(lower.as_ptr().add(c)));
                a.largest(b, b)
            };
            let [even, odd] = V::split(larger(2 * j), larger(2 * j + V::LANES));
            even.largest(odd, odd).reordered().store(y.as_mut_ptr().add(j));
        }
    }
}
