//! A matrix that is packed once, to be the right operand of many products with few rows.

use crate::arch::isa;
use crate::products::micro::{Product, Tile};
use crate::products::pack::{self, pack};
use crate::products::tiled::Tiled;
use crate::threads::parallel_for;
use crate::threads::parts::Parts;

/// Rows of a panel that are taken at a time: they, and as much of the left operand, stay in the
/// first-level cache.
const DEPTH: usize = 512;

/// Groups of `n` columns with `k` rows each, every group in panels of as many columns as a register tile
/// has.
pub struct Panels<'a, T> {
    tile: Tile<T>,
    k: usize,
    data: &'a [T],
}

/// Elements that `groups` groups of `n` columns with `k` rows take.
pub fn packed_len<T: Tiled>(groups: usize, k: usize, n: usize) -> usize {
    groups * pack::packed_len(T::tile(isa::current()), k, n)
}

impl<'a, T: Tiled> Panels<'a, T> {
    /// The transposes of `groups` matrices of n rows of k numbers, which follow one another.
    pub fn columns(groups: usize, k: usize, n: usize, source: &[T], out: &'a mut [T]) -> Self {
        let tile = T::tile(isa::current());
        let len = pack::packed_len(tile, k, n);
        let parts = Parts::new(out);
        parallel_for(groups, (64 << 10) / (k * n).max(1) + 1, |range| {
            for g in range {
                // SAFETY: each group is one thread's.
                let out = unsafe { parts.slice(g * len..(g + 1) * len) };
                pack(k, n, &source[g * n * k..(g + 1) * n * k], 1, k, tile.columns, out);
            }
        });
        Panels { tile, k, data: out }
    }

    /// A matrix of k rows of n numbers.
    pub fn rows(k: usize, n: usize, source: &[T], out: &'a mut [T]) -> Self {
        let tile = T::tile(isa::current());
        pack(k, n, source, n, 1, tile.columns, out);
        Panels { tile, k, data: out }
    }

    /// Columns of a panel.
    pub fn width(&self) -> usize {
        self.tile.columns
    }

    /// `C = A B`, or with `add` `C += A B`, for the first `count` columns of one panel. A and C are given by
    /// their first elements and the distances between their rows.
    ///
    /// # Safety
    /// A has `m` rows of k numbers, C `m` rows of `count`, and nobody else uses these of C.
    pub unsafe fn multiply(
        &self,
        panel: usize,
        m: usize,
        (a, a_row): (*const T, usize),
        (c, c_row): (*mut T, usize),
        count: usize,
        add: bool,
    ) {
        let len = self.k * self.tile.columns;
        let panel = &self.data[panel * len..(panel + 1) * len];
        for depth in (0..self.k).step_by(DEPTH) {
            // SAFETY: this function's contract; the panel has k rows.
            unsafe {
                (self.tile.run)(Product {
                    k: DEPTH.min(self.k - depth),
                    a: a.add(depth),
                    a_row,
                    a_column: 1,
                    b: panel[depth * self.tile.columns..].as_ptr(),
                    c,
                    c_row,
                    m,
                    n: count,
                    add: add || depth > 0,
                    ..Product::default()
                });
            }
        }
    }
}
