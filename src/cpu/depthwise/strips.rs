//! Source planes times 3x3 filters at step 1: forward, and the data gradient. A plane is copied with the
//! border that its window reads, a few rows at a time; then strips of the grid, two registers wide, run
//! down the copy. A source row is read once per strip for the three grid rows that it belongs to, and the
//! filter and the sums stay in registers.

use super::lanes::Lanes;
use super::planes::SquarePlanes;
use super::square::Square;
use crate::cpu::vector::{Plain, with_registers};
use crate::cpu::vectorize::Kernel;

/// Most numbers of a copy, which stays in the first-level cache.
const COPY: usize = 1 << 9;

/// Planes of a window of 3x3 neighbours at step 1; only made by `SquarePlanes::run`, whose caller vouches
/// for the results.
pub struct Strips<'a>(pub SquarePlanes<'a>);

impl Kernel for Strips<'_> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        // SAFETY: `FMA` is only set where AVX2 is; the results are as `SquarePlanes::run` demands.
        unsafe { with_registers!(FMA, V = Plain<f32> => all::<V>(self.0)) }
    }
}

/// # Safety
/// As [`SquarePlanes::run`], and the processor has the instruction set.
#[inline(always)]
unsafe fn all<V: Lanes>(job: SquarePlanes) {
    let square = job.square;
    let ([h, w], [height, width]) = (square.source, square.grid);
    // SAFETY: the caller's promise.
    let mut copy = unsafe { Padded::new::<V>(square) };
    let blocks = width.div_ceil(V::LANES);
    for item in job.items {
        let (source, filter, start) = (job.operands)(item);
        assert!(source.len() == h * w && filter.len() == 9);
        let out = (job.result)(item);
        let mut i = 0;
        while i < height {
            let count = copy.grid_rows.min(height - i);
            // SAFETY: the source has the square's size; a strip's registers are in the grid's rows, or
            // begin there; the result is of the grid's size and this thread's own by the caller's word.
            unsafe {
                copy.fill::<V>(source, i);
                let filter = square.spread::<V, 3>(filter);
                let mut b = 0;
                while b < blocks {
                    let mut strip = Strip {
                        rows: copy.numbers.as_ptr(),
                        pitch: copy.pitch,
                        filter: &filter,
                        start: V::splat(start),
                        out: out.add(i * width),
                        size: [count, width],
                        // The next rows are written later.
                        room: (height - i) * width,
                        columns: [0; 2],
                    };
                    for k in 0..2 {
                        // The last one goes back over the one before to be whole.
                        strip.columns[k] = ((b + k) * V::LANES).min(width.saturating_sub(V::LANES));
                    }
                    if b + 1 < blocks {
                        strip.run::<2>();
                    } else {
                        strip.run::<1>();
                    }
                    b += 2;
                }
            }
            i += count;
        }
    }
}

/// Some rows of a source plane with its border.
struct Padded<'a, M> {
    square: &'a Square,
    numbers: Vec<f32>,
    /// Distance between rows.
    pitch: usize,
    /// Grid rows whose source rows there is room for.
    grid_rows: usize,
    /// Where a row's first number goes, which it is of its source row, and how many there are.
    to: usize,
    from: usize,
    columns: usize,
    /// The lanes of a row's last register.
    last: M,
}

impl<'a, M: Copy> Padded<'a, M> {
    /// # Safety
    /// The processor has the vector's instruction set.
    unsafe fn new<V: Lanes<Mask = M>>(square: &'a Square) -> Self {
        let [height, width] = square.grid;
        let reads = width.max(V::LANES) + 2;
        let origin = square.origin[1];
        let (to, from) = ((-origin).max(0) as usize, origin.max(0) as usize);
        let columns = square.source[1].saturating_sub(from).min(reads.saturating_sub(to));
        // The last register of a row is stored as a whole.
        let pitch = reads + V::LANES;
        let grid_rows = (COPY / pitch).saturating_sub(2).clamp(1, height);
        let rest = columns % V::LANES;
        // SAFETY: the caller's promise.
        let last = unsafe { V::mask(0..rest) };
        let numbers = vec![0.0; (grid_rows + 2) * pitch];
        Padded { square, numbers, pitch, grid_rows, to, from, columns, last }
    }

    /// Takes the source rows of grid rows from `first` on.
    ///
    /// # Safety
    /// `source` has the square's size; the processor has the vector's instruction set.
    #[inline(always)]
    unsafe fn fill<V: Lanes<Mask = M>>(&mut self, source: &[f32], first: usize) {
        let [h, w] = self.square.source;
        let rows = self.grid_rows.min(self.square.grid[0] - first) + 2;
        let whole = self.columns - self.columns % V::LANES;
        let mut r = 0;
        while r < rows {
            let y = (first + r) as isize + self.square.origin[0];
            // SAFETY: `columns` numbers of a source row, and of a row here, which has room for a register
            // more.
            unsafe {
                let to = self.numbers.as_mut_ptr().add(r * self.pitch + self.to);
                let mut j = 0;
                if y >= 0 && y < h as isize {
                    let from = source.as_ptr().add(y as usize * w + self.from);
                    while j < whole {
                        V::load(from.add(j)).store(to.add(j));
                        j += V::LANES;
                    }
                    if j < self.columns {
                        V::load_masked(from.add(j), self.last).store(to.add(j));
                    }
                } else {
                    while j < self.columns {
                        V::splat(0.0).store(to.add(j));
                        j += V::LANES;
                    }
                }
            }
            r += 1;
        }
    }
}

/// Neighbouring registers of the grid, from the top of a copy to its end.
struct Strip<'a, V> {
    /// The copy.
    rows: *const f32,
    pitch: usize,
    filter: &'a [[V; 3]; 3],
    start: V,
    out: *mut f32,
    /// Grid rows and columns.
    size: [usize; 2],
    /// Numbers that may be written from `out` on.
    room: usize,
    /// Where the registers begin.
    columns: [usize; 2],
}

impl<V: Lanes> Strip<'_, V> {
    /// The sums, of `B` registers.
    ///
    /// # Safety
    /// The copy has two rows more than the grid, each with two numbers more than the registers need; the
    /// result is this thread's own; the processor has the instruction set.
    #[inline(always)]
    unsafe fn run<const B: usize>(&self) {
        let [top, middle, bottom] = *self.filter;
        let ([height, width], columns) = (self.size, self.columns);
        // SAFETY: the caller's promise.
        unsafe {
            let mut row = self.rows;
            // Sums of the grid row above the source row in turn, and of its own.
            let (mut above, mut own) = ([self.start; B], [self.start; B]);
            for b in 0..B {
                above[b] = add(top, row.add(columns[b]), above[b]);
            }
            row = row.add(self.pitch);
            for b in 0..B {
                above[b] = add(middle, row.add(columns[b]), above[b]);
                own[b] = add(top, row.add(columns[b]), own[b]);
            }
            // Grid rows whose registers may be stored as a whole.
            let last = columns[B - 1] + V::LANES;
            let whole = ((self.room + width).saturating_sub(last) / width).min(height);
            let mut i = 0;
            while i < height {
                row = row.add(self.pitch);
                let mut done = above;
                for b in 0..B {
                    let x = row.add(columns[b]);
                    let x = [V::load(x), V::load(x.add(1)), V::load(x.add(2))];
                    done[b] = sum(bottom, x, above[b]);
                    above[b] = sum(middle, x, own[b]);
                    own[b] = sum(top, x, self.start);
                }
                let out = self.out.add(i * width);
                i += 1;
                // No branch while the source is in registers: they would have to be saved.
                for b in 0..B {
                    if i <= whole {
                        done[b].store(out.add(columns[b]));
                    } else {
                        done[b].store_first(out.add(columns[b]), width - columns[b]);
                    }
                }
            }
        }
    }
}

/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn sum<V: Lanes>(filter: [V; 3], x: [V; 3], start: V) -> V {
    // SAFETY: the caller's promise.
    unsafe { x[2].fma(filter[2], x[1].fma(filter[1], x[0].fma(filter[0], start))) }
}

/// # Safety
/// Two numbers more than a register can be read there; the processor has the instruction set.
#[inline(always)]
unsafe fn add<V: Lanes>(filter: [V; 3], x: *const f32, start: V) -> V {
    // SAFETY: the caller's promise.
    unsafe { sum(filter, [V::load(x), V::load(x.add(1)), V::load(x.add(2))], start) }
}
