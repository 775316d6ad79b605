//! The data gradient at stride 2. Result row Y takes the filter rows r with `Y + padding - r` even, from
//! gradient row `(Y + padding - r) / 2`, and columns alike. So a pair of neighbouring rows and columns
//! needs N x N neighbouring numbers of the gradient, N = 2 or 3, and each of its four results its own
//! quarter of the filter. A block's even and odd columns are computed as registers and stored in turns.

use super::job::SpreadPlanes;
use super::lanes::{Job, Lanes};
use super::square::{Rows, Square, rows_from, unrolled};

/// Planes of a certain window and parity of the padding; only made by `SpreadPlanes::run`, whose caller
/// vouches for the results.
pub struct Sized<'a, const K: usize, const ODD: usize>(pub SpreadPlanes<'a>);

impl<const K: usize, const ODD: usize> Job for Sized<'_, K, ODD> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        // SAFETY: `Vector`'s *Instructions*, as `Job::run` has them; the *Planes invariant*.
        unsafe { all::<V, K, ODD>(self.0) }
    }
}

/// Neighbouring pairs of columns of a row, as many as a register has lanes.
pub struct Block<M> {
    /// The first pair.
    pub first: usize,
    /// Columns in the plane.
    pub count: usize,
    /// Some lanes of the loads are outside the gradient.
    pub edge: bool,
    /// The lanes of each load of a row that are in the gradient.
    pub masks: [M; 3],
}

/// The distance from pair to gradient of the first of the N loads: `ODD - (N - 1)`, plus what the padding
/// has of whole pairs.
#[inline(always)]
pub fn lead(origin: isize, side: usize) -> isize {
    let odd = origin.rem_euclid(2);
    (-origin - odd) / 2 + odd - (side as isize - 1) / 2
}

/// The blocks of a result row. The last one goes back over the one before it to be whole, where that
/// keeps the pairs.
///
/// # Safety
/// The processor has the vector's instruction set.
pub unsafe fn blocks<V: Lanes>(square: &Square) -> Vec<Block<V::Mask>> {
    let (width, lanes, loads) = (square.source[1], V::LANES, square.side.div_ceil(2));
    let block = |at: usize| {
        let first = at.min(width.saturating_sub(2 * lanes).div_ceil(2));
        let count = (2 * lanes).min(width - 2 * first);
        let mut edge = false;
        let masks = std::array::from_fn(|load| {
            let read = first as isize + lead(square.origin[1], square.side) + load as isize;
            let part = |column: isize| (column - read).clamp(0, lanes as isize) as usize;
            let used = part(0)..part(square.grid[1] as isize);
            edge |= load < loads && used != (0..lanes);
            // SAFETY: `Vector`'s *Instructions*, which `mask` asks for; `used` ends at most at
            // `LANES`.
            unsafe { V::mask(used) }
        });
        Block { first, count, edge, masks }
    };
    (0..width.div_ceil(2)).step_by(lanes).map(block).collect()
}

/// # Safety
/// As [`SpreadPlanes::run`], K and ODD are the square's, and the processor has the instruction set.
#[inline(always)]
unsafe fn all<V: Lanes, const K: usize, const ODD: usize>(job: SpreadPlanes) {
    let square = job.square;
    let ([h, _], [height, width]) = (square.source, square.grid);
    // SAFETY: `Vector`'s *Instructions*, which `blocks` asks for.
    let blocks = unsafe { blocks::<V>(square) };
    let zeros = vec![0f32; width];
    for item in job.items {
        let (gradient, filter) = (job.operands)(item);
        assert!(gradient.len() == height * width && filter.len() == K * K);
        // SAFETY: the blocks' masks keep to the gradient, whose length was just checked; the result is of
        // the source's size and this thread's own by the *Planes invariant*.
        unsafe {
            let plane = Plane::<V, K> {
                gradient: gradient.as_ptr(),
                square,
                filter: square.spread(filter),
                alone: blocks.len() == 1,
                out: (job.result)(item),
            };
            for pair in 0..h.div_ceil(2) {
                let top = pair as isize + lead(square.origin[0], K);
                let rows = rows_from(plane.gradient, square.grid, top, &zeros, K.div_ceil(2));
                for block in &blocks {
                    plane.block::<ODD>(pair, &rows, block);
                }
            }
        }
    }
}

struct Plane<'a, V, const K: usize> {
    gradient: *const f32,
    square: &'a Square,
    filter: [[V; K]; K],
    /// A row is one block.
    alone: bool,
    out: *mut f32,
}

impl<V: Lanes, const K: usize> Plane<'_, V, K> {
    /// A block of a pair of rows, which read `rows`.
    ///
    /// # Safety
    /// As `sums`; the result is this thread's own.
    #[inline(always)]
    unsafe fn block<const ODD: usize>(&self, pair: usize, rows: &Rows, block: &Block<V::Mask>) {
        let [h, w] = self.square.source;
        // SAFETY: the *Planes invariant*; the block's columns are in the row, and what whole registers
        // write past them is in rows of this plane that are written later: rows of one block are written
        // in order.
        unsafe {
            let sums = if block.edge {
                self.sums::<ODD, true>(rows, block)
            } else {
                self.sums::<ODD, false>(rows, block)
            };
            for (a, [even, odd]) in sums.into_iter().enumerate().take(h - 2 * pair) {
                let at = (2 * pair + a) * w + 2 * block.first;
                let to = self.out.add(at);
                let [low, high] = V::interleave(even, odd);
                let room = self.alone && at + 2 * V::LANES <= h * w;
                if block.count == 2 * V::LANES || room {
                    low.store(to);
                    high.store(to.add(V::LANES));
                } else {
                    let whole = block.count.min(V::LANES);
                    low.store_first(to, whole);
                    high.store_first(to.add(whole), block.count - whole);
                }
            }
        }
    }

    /// The results of both rows, in even and odd columns.
    ///
    /// # Safety
    /// The block and its masks are the square's, the gradient is a plane of its grid, and the processor has
    /// the instruction set.
    #[inline(always)]
    unsafe fn sums<const ODD: usize, const EDGE: bool>(
        &self,
        rows: &Rows,
        block: &Block<V::Mask>,
    ) -> [[V; 2]; 2] {
        let last = K.div_ceil(2) - 1;
        let column = block.first as isize + lead(self.square.origin[1], K);
        // SAFETY: `Vector`'s *Instructions*; registers only.
        let mut sums = unsafe { [[V::splat(0.0); 2]; 2] };
        unrolled!(u < last + 1 => {
            let row = rows[u].wrapping_offset(column);
            for v in 0..=last {
                let from = row.wrapping_add(v);
                // SAFETY: a row of the plane, or zeros, read where the block's masks say; `Vector`'s *Instructions*.
                unsafe {
                    let g = if EDGE { V::load_masked(from, &block.masks[v]) } else { V::load(from) };
                    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                        let (r, s) = (a + 2 * (last - u), b + 2 * (last - v));
                        if (ODD..K + ODD).contains(&r) && (ODD..K + ODD).contains(&s) {
                            let weight = self.filter[r - ODD][s - ODD];
                            sums[a][b] = g.fma(weight, sums[a][b]);
                        }
                    }
                }
            }
        });
        sums
    }
}
