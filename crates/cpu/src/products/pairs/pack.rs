//! Packing of matrices of bf16 into panels of pairs.

use half::bf16;

use super::interleave::{interleave, pair};
use crate::arch::isa;
use crate::arch::prefetch::prefetch;
use crate::arch::vectorize::{Kernel, vectorize};
use crate::products::panels::Panels;
use crate::products::tiled::Tiled;

/// Some columns of a matrix of k rows of bf16, whose pairs of rows are to be packed one after the other into
/// panels of `width` columns.
#[derive(Clone, Copy)]
pub struct HalfPanels {
    /// Rows; a missing last one is 0.
    pub k: usize,
    /// Element (p, j) is at `source + p * row + j * column`.
    pub source: *const bf16,
    /// Distance between the matrix's rows.
    pub row: isize,
    /// Distance between its columns.
    pub column: isize,
    /// Columns that are packed.
    pub count: usize,
    /// Columns of a panel: 8 or 32. Those that the last one lacks are set to 0.
    pub width: usize,
    /// Where the first panel's pairs go.
    pub out: *mut f32,
    /// Distance between panels.
    pub distance: usize,
}

/// Whether a matrix whose columns follow one another at `source`, `row` apart, is one of pairs as it lies.
#[inline]
pub fn are_pairs(source: *const bf16, row: isize) -> bool {
    row % 2 == 0 && source.cast::<f32>().is_aligned()
}

/// Packs panels.
///
/// # Safety
/// The source is readable wherever `k`, `count` and the distances lead, and `out` takes the panels, which
/// nobody else uses.
pub unsafe fn pack(all: HalfPanels) {
    // SAFETY: the *Panel invariant*, in all three.
    unsafe {
        if all.row == 1 && are_pairs(all.source, all.column) {
            let whole = Panels {
                k: all.k / 2,
                source: all.source.cast::<f32>(),
                row: 1,
                column: all.column / 2,
                count: all.count,
                readable: all.count,
                width: all.width,
                out: all.out,
                distance: all.distance,
            };
            f32::packer(isa::current())(whole);
            single_pairs(all, all.k / 2);
        } else if all.column == 1 {
            vectorize(DenseRows(all));
        } else {
            single_pairs(all, 0);
        }
    }
}

/// The pairs of rows from `first` on, pair by pair.
///
/// # Safety
/// As [`pack`].
unsafe fn single_pairs(all: HalfPanels, first: usize) {
    let HalfPanels { k, source, row, column, count, width, out, distance } = all;
    for p in first..k.div_ceil(2) {
        for j in 0..count.next_multiple_of(width) {
            let number = |p: usize| {
                let inside = p < k && j < count;
                // SAFETY: an element of the source.
                let at = || unsafe { *source.offset(p as isize * row + j as isize * column) };
                if inside { at() } else { bf16::ZERO }
            };
            // SAFETY: an element of a panel.
            unsafe {
                let to = out.add(j / width * distance + p * width + j % width);
                to.write(pair(number(2 * p), number(2 * p + 1)));
            }
        }
    }
}

/// [`pack`] of a matrix whose columns follow one another.
struct DenseRows(HalfPanels);

impl Kernel for DenseRows {
    type Output = ();
    const WIDE: bool = true;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let HalfPanels { k, source, row, count, width, out, distance, .. } = self.0;
        /// Panels that are packed together: their parts of a row follow one another.
        const GROUP: usize = 4;
        /// Rows that are asked for ahead of their use.
        const AHEAD: isize = 8;
        let (mut first, panels) = (0, count / width);
        while first < panels {
            let group = (panels - first).min(GROUP);
            for p in 0..k / 2 {
                // SAFETY: whole panels, of two rows that the source has.
                unsafe {
                    let mut even = source.offset(2 * p as isize * row).add(first * width);
                    let mut odd = even.wrapping_offset(row);
                    let mut to = out.add(first * distance + p * width);
                    for _ in 0..group {
                        prefetch(even.wrapping_offset(AHEAD * row));
                        prefetch(odd.wrapping_offset(AHEAD * row));
                        if width == 32 {
                            interleave::<32>(even, odd, to);
                        } else {
                            interleave::<8>(even, odd, to);
                        }
                        (even, odd) = (even.wrapping_add(width), odd.wrapping_add(width));
                        to = to.wrapping_add(distance);
                    }
                }
            }
            first += group;
        }
        // SAFETY: what is left: the last panel, and the last row.
        unsafe {
            let rest = HalfPanels {
                source: source.add(panels * width),
                count: count - panels * width,
                out: out.wrapping_add(panels * distance),
                ..self.0
            };
            single_pairs(rest, 0);
            if k % 2 == 1 {
                single_pairs(HalfPanels { count: panels * width, ..self.0 }, k / 2);
            }
        }
    }
}
