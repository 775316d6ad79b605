//! Panels that register tiles read straight on, and the loops that pack them, one for each level of
//! instructions.

use crate::numbers::widen::Real;

use crate::arch::cache::LINE;
use crate::arch::prefetch::prefetch;
use crate::numbers::float::Float;
use crate::numbers::vector::{Plain, Square};

/// Some columns of a matrix of k rows, to be packed row after row into panels of `width` columns.
#[derive(Clone, Copy)]
pub struct Panels<T> {
    /// Rows.
    pub k: usize,
    /// Element (p, j) is at `source + p * row + j * column`.
    pub source: *const T,
    /// Distance between the matrix's rows.
    pub row: isize,
    /// Distance between its columns.
    pub column: isize,
    /// Columns that are packed.
    pub count: usize,
    /// Columns that may be read, at least `count`.
    pub readable: usize,
    /// Columns of a panel; those that the last one lacks are set to 0.
    pub width: usize,
    /// Where the first panel's `k * width` numbers go.
    pub out: *mut T,
    /// Distance between panels.
    pub distance: usize,
}

/// Panels that are packed together.
const GROUP: usize = 16;
/// Rows that are asked for ahead of their use: they are often a page apart, which the processor does not
/// foresee.
const AHEAD: isize = 8;

/// Packs panels with one level of instructions.
pub type Packer<T> = unsafe fn(Panels<T>);

/// # Safety
/// *Panel invariant*: the source is readable wherever `k`, `readable` and the distances lead, `out` takes the panels, which
/// nobody else uses, `width` is more than half of the vector's lanes, and the processor has the vector's
/// instruction set; as for the functions below.
#[inline(always)]
unsafe fn panels<V: Square>(all: Panels<V::Number>) {
    let Panels { k, source, row, column, count, readable, width, out, distance } = all;
    let mut first = 0;
    // SAFETY: by the *Panel invariant*: every address is an element of the source or of a panel.
    unsafe {
        // The cache lines of a row's panels follow one another.
        macro_rules! groups {
            ($registers:expr) => {
                while count - first >= width {
                    let group = ((count - first) / width).min(GROUP);
                    for p in 0..k {
                        let mut from = source.offset(p as isize * row).add(first);
                        let mut to = out.add(first / width * distance + p * width);
                        for _ in 0..group {
                            for i in 0..$registers {
                                let at = i * V::LANES;
                                if at * size_of::<V::Number>() % LINE == 0 {
                                    prefetch(from.wrapping_offset(AHEAD * row + at as isize));
                                }
                                V::load(from.add(at)).store(to.add(at));
                            }
                            (from, to) = (from.add(width), to.wrapping_add(distance));
                        }
                    }
                    first += group * width;
                }
            };
        }
        match (column, width / V::LANES) {
            (1, 2) if width == 2 * V::LANES => groups!(2),
            (1, 4) if width == 4 * V::LANES => groups!(4),
            _ => {}
        }
        while first < count {
            panel::<V>(Panels {
                source: source.offset(first as isize * column),
                count: width.min(count - first),
                readable: readable - first,
                out: out.add(first / width * distance),
                ..all
            });
            first += width;
        }
    }
}

/// One panel, of at most `width` columns.
///
/// # Safety
/// As [`panels`].
#[inline(always)]
unsafe fn panel<V: Square>(panel: Panels<V::Number>) {
    let Panels { k, source, row, column, count, readable, width, out, .. } = panel;
    if k == 0 {
        return;
    }
    // SAFETY: every address is an element of the source or of the panel: registers that go past the end
    // of a row of the panel write what the next row overwrites, and the last row is written one by one.
    unsafe {
        if column == 1 && count == width && readable >= width.next_multiple_of(V::LANES) {
            for p in 0..k - 1 {
                let from = source.offset(p as isize * row);
                for j in (0..width).step_by(V::LANES) {
                    V::load(from.add(j)).store(out.add(p * width + j));
                }
            }
            rows(panel, k - 1);
        } else if row == 1 {
            let whole = k / V::LANES * V::LANES;
            // From the right: what goes past the end of a row is overwritten by the left part of the
            // next.
            for j in (0..width).step_by(V::LANES).rev() {
                let from = source.offset(j as isize * column);
                let lines = count.saturating_sub(j).min(V::LANES);
                let mut p = 0;
                // All but the last square, which has nothing behind it to write over. A panel of the left
                // operand has six lines.
                macro_rules! squares {
                    ($lines:expr) => {
                        while p + V::LANES < whole {
                            let square = V::transpose(load(from.add(p), column, $lines));
                            for t in 0..V::LANES {
                                square[t].store(out.add((p + t) * width + j));
                            }
                            p += V::LANES;
                        }
                    };
                }
                match lines {
                    8 if V::LANES == 8 => squares!(8),
                    6 => squares!(6),
                    0 => squares!(0),
                    lines => squares!(lines),
                }
                while p < whole {
                    let square = V::transpose(load(from.add(p), column, lines));
                    for t in 0..V::LANES {
                        let mut line = [V::Number::ZERO; 8];
                        square[t].store(line.as_mut_ptr());
                        for i in 0..V::LANES.min(width - j) {
                            *out.add((p + t) * width + j + i) = line[i];
                        }
                    }
                    p += V::LANES;
                }
            }
            rows(panel, whole);
        } else {
            rows(panel, 0);
        }
    }
}

/// The first registers of `count` lines, 0 for those that are missing.
///
/// # Safety
/// As [`panels`].
#[inline(always)]
unsafe fn load<V: Square>(from: *const V::Number, distance: isize, count: usize) -> [V; 8] {
    // SAFETY: the *Panel invariant*; a missing line is not read.
    unsafe {
        let mut out = [V::splat(V::Number::ZERO); 8];
        for t in 0..V::LANES {
            if t < count {
                out[t] = V::load(from.offset(t as isize * distance));
            }
        }
        out
    }
}

/// The rows from `first` on, number by number.
///
/// # Safety
/// As [`panels`].
#[inline(always)]
unsafe fn rows<T: Float>(panel: Panels<T>, first: usize) {
    let Panels { k, source, row, column, count, width, out, .. } = panel;
    for p in first..k {
        for j in 0..width {
            // SAFETY: the *Panel invariant*; a missing column is not read.
            unsafe {
                *out.add(p * width + j) = if j < count {
                    *source.offset(p as isize * row + j as isize * column)
                } else {
                    T::ZERO
                };
            }
        }
    }
}

/// # Safety
/// As [`panels`].
#[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "has a packer of its own"))]
pub unsafe fn plain<T: Float>(p: Panels<T>) {
    // SAFETY: the *Panel invariant*; `Plain` needs no instructions.
    unsafe { panels::<Plain<T>>(p) }
}

/// # Safety
/// As [`panels`], and the processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
pub unsafe fn avx2<V: Square>(p: Panels<V::Number>) {
    // SAFETY: the *Panel invariant*; AVX2 is there by this function's contract.
    unsafe { panels::<V>(p) }
}

/// # Safety
/// As [`panels`].
#[cfg(target_arch = "aarch64")]
pub unsafe fn neon<V: Square>(p: Panels<V::Number>) {
    // SAFETY: the *Panel invariant*; NEON is always there.
    unsafe { panels::<V>(p) }
}
