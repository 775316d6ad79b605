//! Square windows: those whose planes are read in place, a vector of grid points at a time.

use super::lanes::Lanes;
use crate::convolution::field::Window;

/// A window of 3x3 or 5x5 neighbouring taps at step 1 or 2.
#[derive(Clone, Debug)]
pub struct Square {
    /// Taps of a row or column.
    pub side: usize,
    /// Distance in the source between neighbours in the grid.
    pub step: usize,
    /// The source row and column of the first tap of the first grid point; negative in the border.
    pub origin: [isize; 2],
    /// Height and width of the source planes.
    pub source: [usize; 2],
    /// Height and width of the grid.
    pub grid: [usize; 2],
    /// Of the window's taps, the place in the square, counted row by row.
    order: Vec<usize>,
    /// Of the places, the tap.
    taps: [usize; 25],
}

impl Square {
    /// The square that a window is, if it is one.
    pub fn of(window: &Window) -> Option<Square> {
        let side = if window.taps.len() == 9 { 3 } else { 5 };
        let [step, columns] = window.step;
        if step != columns || !(1..=2).contains(&step) {
            return None;
        }
        let (origin, order) = window.square(side)?;
        let (source, grid) = (window.source, window.grid);
        let mut taps = [0; 25];
        for (tap, &place) in order.iter().enumerate() {
            taps[place] = tap;
        }
        Some(Square { side, step, origin, source, grid, order, taps })
    }

    /// Whether a grid row is longer than half a 512-bit register.
    pub fn wide(&self) -> bool {
        self.grid[1] > 8
    }

    /// A filter, given in the order of the window's taps, in all lanes of registers.
    ///
    /// # Safety
    /// The processor has the vector's instruction set.
    #[inline(always)]
    pub unsafe fn spread<V: Lanes, const K: usize>(&self, filter: &[f32]) -> [[V; K]; K] {
        assert!(filter.len() == K * K);
        // SAFETY: `Vector`'s *Instructions*; registers only.
        unsafe {
            let mut rows = [[V::splat(0.0); K]; K];
            for r in 0..K {
                for s in 0..K {
                    rows[r][s] = V::splat(filter[self.taps[r * K + s]]);
                }
            }
            rows
        }
    }

    /// The numbers of the square's places, row by row, in the order of the window's taps.
    pub fn gathered<'a>(&'a self, places: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
        self.order.iter().map(|&at| places[at])
    }

    /// The blocks of a grid row. Unless `disjoint`, the last one goes back over the one before it
    /// to be whole.
    ///
    /// # Safety
    /// The processor has the vector's instruction set.
    pub unsafe fn blocks<V: Lanes>(&self, disjoint: bool) -> Vec<Block<V::Mask>> {
        let (width, lanes) = (self.grid[1], V::LANES);
        let block = |at: usize| {
            let first = if disjoint { at } else { at.min(width.saturating_sub(lanes)) };
            let count = lanes.min(width - first);
            let mut edge = count < lanes;
            let masks = std::array::from_fn(|load| {
                let tap = if self.step == 1 { load } else { load / 2 * 2 };
                let skip = if self.step == 1 { 0 } else { load % 2 * lanes };
                let read = (first * self.step + tap + skip) as isize + self.origin[1];
                // Columns that no point of the block reads may hold infinities.
                let end = ((first + count) * self.step + tap) as isize + self.origin[1];
                let end = end.min(self.source[1] as isize);
                let part = |column: isize| (column - read).clamp(0, lanes as isize) as usize;
                let used = part(0)..part(end);
                edge |= load < self.loads() && used != (0..lanes);
                // SAFETY: `Vector`'s *Instructions*; `used` ends at most at `LANES`.
                unsafe { V::mask(used) }
            });
            // SAFETY: `Vector`'s *Instructions*; `count` is at most `LANES`.
            Block { first, count, lanes: unsafe { V::mask(0..count) }, edge, masks }
        };
        (0..width).step_by(lanes).map(block).collect()
    }

    /// How many registers are read for all taps of a row.
    fn loads(&self) -> usize {
        if self.step == 1 { self.side } else { self.side.next_multiple_of(2) }
    }
}

/// Neighbouring points of a grid row, as many as a register has lanes.
#[derive(Clone, Copy, Debug)]
pub struct Block<M> {
    /// The first one's column.
    pub first: usize,
    /// How many are in the grid.
    pub count: usize,
    /// The lanes of those.
    pub lanes: M,
    /// Some lanes of grid or source are outside.
    pub edge: bool,
    /// Of each load in [`taps`], the lanes that are in the plane.
    pub masks: [M; 6],
}

/// What the points of a block read of one source row: a register for each tap of a row of the square.
/// At step 2 the lanes are in the order of [`Lanes::split`].
///
/// # Safety
/// `row` is where the first tap of the first point is. Without masks all is there that they read, with
/// masks those lanes. The processor has the vector's instruction set.
#[inline(always)]
pub unsafe fn taps<V: Lanes, const K: usize, const STEP: usize, const EDGE: bool>(
    row: *const f32,
    masks: &[V::Mask; 6],
) -> [V; K] {
    // SAFETY: `Vector`'s *Instructions*; the numbers that are loaded are there by this function's
    // contract.
    unsafe {
        let load = |at: usize, mask: usize| {
            let from = row.wrapping_add(at);
            if EDGE { V::load_masked(from, &masks[mask]) } else { V::load(from) }
        };
        let mut out = [V::splat(0.0); K];
        let mut s = 0;
        while s < K {
            if STEP == 1 {
                out[s] = load(s, s);
                s += 1;
                continue;
            }
            let [even, odd] = V::split(load(s, s), load(s + V::LANES, s + 1));
            out[s] = even;
            if s + 1 < K {
                out[s + 1] = odd;
            }
            s += 2;
        }
        out
    }
}

/// The first `count` of a plane's rows from row `top` on; `zeros` for those that the plane does not have,
/// since to skip them would be a branch around each, which keeps the sums out of the registers.
#[inline(always)]
pub fn rows_from(
    plane: *const f32,
    [h, w]: [usize; 2],
    top: isize,
    zeros: &[f32],
    count: usize,
) -> Rows {
    let mut rows = [zeros.as_ptr(); 11];
    let mut t = 0;
    while t < count {
        let y = top + t as isize;
        if y >= 0 && y < h as isize {
            rows[t] = plane.wrapping_offset(y * w as isize);
        }
        t += 1;
    }
    rows
}

/// Row `y` of a plane, or `zeros` where the plane does not have it.
#[inline(always)]
pub fn row_from(plane: *const f32, [h, w]: [usize; 2], y: isize, zeros: *const f32) -> *const f32 {
    if (y as usize) < h { plane.wrapping_offset(y * w as isize) } else { zeros }
}

/// Source rows of a block of grid rows, at most those of 4 grid rows of a 5x5 window at step 2.
pub type Rows = [*const f32; 11];

/// Runs the body once for each of [`Rows`] below `end`. The number is a constant in each copy, so that sums indexed by it stay in registers.
macro_rules! unrolled {
    ($t:ident < $end:expr => $body:block) => {
        unrolled!(@ $t $end, $body, 0 1 2 3 4 5 6 7 8 9 10)
    };
    (@ $t:ident $end:expr, $body:block, $($n:literal)*) => {$(
        if $n < $end {
            let $t: usize = $n;
            $body
        }
    )*};
}
pub(super) use unrolled;
