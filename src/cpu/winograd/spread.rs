//! Tiles of planes to products' operands, and products to planes: the two-dimensional transforms,
//! over runs of tiles side by side. Columns are transformed first, on rows as they lie in memory; then
//! rows, whose tiles are brought into lanes.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::Scheme;
use super::lanes::{L, Lanes, OUT};
use super::points::{self, N};
use crate::cpu::prefetch::prefetch_later;
use crate::cpu::vector::{Plain, with_registers};
use crate::cpu::vectorize::Kernel;

/// Most tiles of a run.
pub const RUN: usize = 32;
/// Elements of a buffered row of a run, with what is read past its end.
pub const LINE: usize = OUT * (RUN + 2 * L);
/// Some of them.
type Lines<const COUNT: usize> = [[f32; LINE]; COUNT];

/// Tiles side by side: `len` ones from column `column` of row `row` of a plane's tiles on. Their lanes
/// begin at `lane`.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub image: usize,
    pub row: usize,
    pub column: usize,
    pub len: usize,
    pub lane: usize,
}

/// The runs of tiles `first..first + count`, counted through all images; each has `tiles` rows and
/// columns of them.
pub fn runs(tiles: [usize; 2], first: usize, count: usize) -> Vec<Run> {
    let mut out = Vec::new();
    let mut lane = 0;
    while lane < count {
        let at = first + lane;
        let column = at % tiles[1];
        let len = (tiles[1] - column).min(count - lane).min(RUN);
        let (row, image) = (at / tiles[1] % tiles[0], at / tiles[1] / tiles[0]);
        out.push(Run { image, row, column, len, lane });
        lane += len;
    }
    out
}

/// Lanes that are written for runs, with those past the last one's end.
#[inline(always)]
fn lanes_of(runs: &[Run]) -> usize {
    runs.last().map_or(0, |r| r.lane + r.len.next_multiple_of(L))
}

/// What of a plane a tile has: all six rows and columns that its outputs read, or its four outputs.
pub trait Side {
    /// Rows and columns of a tile.
    const ROWS: usize;
    /// One dimension's transform, of the first `ROWS` of `d`.
    ///
    /// # Safety
    /// The processor has the lanes' instructions.
    unsafe fn apply<V: Lanes>(d: [V; 6]) -> [V; N];
}

/// Tiles of what a convolution reads.
pub struct Inputs;
impl Side for Inputs {
    const ROWS: usize = 6;
    #[inline(always)]
    unsafe fn apply<V: Lanes>(d: [V; 6]) -> [V; N] {
        // SAFETY: the caller's promise.
        unsafe { points::inputs(d) }
    }
}

/// Tiles of the gradient of what it writes.
pub struct Gradients;
impl Side for Gradients {
    const ROWS: usize = 4;
    #[inline(always)]
    unsafe fn apply<V: Lanes>(d: [V; 6]) -> [V; N] {
        // SAFETY: the caller's promise.
        unsafe { points::gradients([d[0], d[1], d[2], d[3]]) }
    }
}

/// The runs of one channel, and where they go: operand i of lane t to `out[i * stride + t]`, and up to [`L`] numbers
/// after a run's last lane are overwritten.
#[derive(Clone, Copy)]
pub struct Cut<'a> {
    /// The first image's plane, and all after it.
    pub planes: &'a [f32],
    /// Distance between images.
    pub image: usize,
    /// Height and width of a plane.
    pub size: [usize; 2],
    /// Row and column that the first tile begins with; outside are zeros.
    pub origin: [isize; 2],
    pub runs: &'a [Run],
    /// Written by nobody else: `stride` numbers for each operand, of which other channels are in between.
    pub out: *mut f32,
    pub stride: usize,
    /// Distance to the next channel's lanes.
    pub next: usize,
}

/// Spreads tiles: product (i, j)'s operand is the `6 i + j`th.
pub struct Spread<'a, S> {
    pub cut: Cut<'a>,
    pub side: PhantomData<S>,
}

impl<S: Side> Kernel for Spread<'_, S> {
    type Output = ();
    const WIDE: bool = true;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        // SAFETY: with FMA there is AVX2; the rest is the maker's promise.
        with_registers!(FMA, V = Plain<f32, L> => unsafe { self.spread::<V>() })
    }
}

impl<S: Side> Spread<'_, S> {
    /// # Safety
    /// The processor has the lanes' instructions, and `out` is as the field says.
    #[inline(always)]
    unsafe fn spread<V: Lanes>(self) {
        let mut border = MaybeUninit::<Lines<6>>::uninit();
        let mut columns = MaybeUninit::<Lines<N>>::uninit();
        let (border, columns) = (border.as_mut_ptr().cast(), columns.as_mut_ptr().cast::<f32>());
        for run in self.cut.runs {
            let width = OUT * run.len + S::ROWS - OUT;
            // SAFETY: as for this function.
            let rows: [_; 6] =
                unsafe { self.cut.rows::<V, 6>(run, OUT, S::ROWS, (width, L), border) };
            // SAFETY: rows have `width` numbers, to the next multiple of L, as `rows` says; runs fit
            // into the buffers with the groups of lanes that are read past their ends; the results
            // have their place by the word of whoever made this.
            unsafe {
                for x in (0..width).step_by(L) {
                    let mut d = [V::splat(0.0); 6];
                    for i in 0..S::ROWS {
                        d[i] = V::load(rows[i].add(x));
                    }
                    let products = S::apply(d);
                    for i in 0..N {
                        products[i].store(columns.add(i * LINE + x));
                    }
                }
                for i in 0..N {
                    for t in (0..run.len).step_by(L) {
                        let row = columns.add(i * LINE + OUT * t);
                        let [d0, d1, d2, d3] = V::deinterleave(row);
                        // A tile's last two columns are the next one's first.
                        let [d4, d5, ..] =
                            if S::ROWS > OUT { V::deinterleave(row.add(OUT)) } else { [d0; OUT] };
                        let products = S::apply([d0, d1, d2, d3, d4, d5]);
                        let to = self.cut.out.add(i * N * self.cut.stride + run.lane + t);
                        for j in 0..N {
                            products[j].store(to.add(j * self.cut.stride));
                        }
                    }
                }
            }
        }
    }
}

impl Cut<'_> {
    /// Where the first `count` rows of a run begin, whose tiles are `apart`: from there `width` numbers and those up
    /// to a multiple of `whole` can be read, in the plane, or in a line of `border` when a part of them is outside.
    ///
    /// # Safety
    /// The processor has the lanes' instructions, and `border` is writable: a line of `apart * (RUN + 2 L)` numbers for
    /// each row.
    #[inline(always)]
    pub unsafe fn rows<V: Lanes, const MOST: usize>(
        &self,
        run: &Run,
        apart: usize,
        count: usize,
        (width, whole): (usize, usize),
        border: *mut f32,
    ) -> [*const f32; MOST] {
        assert!(run.len <= RUN && count <= MOST);
        let (h, w) = (self.size[0] as isize, self.size[1] as isize);
        let x = (apart * run.column) as isize + self.origin[1];
        let read = width.next_multiple_of(whole);
        let mut rows = [std::ptr::null(); MOST];
        for i in 0..count {
            let y = (apart * run.row + i) as isize + self.origin[0];
            let line = border.wrapping_add(i * apart * (RUN + 2 * L));
            rows[i] = line;
            if y < 0 || y >= h {
                for k in (0..read).step_by(L) {
                    // SAFETY: a line is longer than `width` and L more.
                    unsafe { V::splat(0.0).store(line.add(k)) };
                }
                continue;
            }
            let plane = &self.planes[run.image * self.image + (y * w) as usize..];
            let first = x.clamp(0, w) as usize;
            // The next channel's row: a run's rows are too short to be foreseen.
            let next = plane.as_ptr().wrapping_add((h * w) as usize + first);
            for k in (0..width).step_by(2 * L) {
                prefetch_later(next.wrapping_add(k));
            }
            let inside = x >= 0 && x + width as isize <= w;
            if inside && x as usize + read <= plane.len() {
                rows[i] = plane[x as usize..].as_ptr();
                continue;
            }
            // Zeros, the plane's part, zeros; in whole groups, each of which overwrites what is too
            // much of the one before.
            let left = (-x).clamp(0, width as isize) as usize;
            let part = (width - left).min(w as usize - first);
            let (from, to) = (plane[first..].as_ptr(), line);
            let whole = part.next_multiple_of(L) <= plane.len() - first;
            // SAFETY: reads stay in the plane's slice; writes end at most L after what is read, and a line is
            // longer than that.
            unsafe {
                for k in (0..left).step_by(L) {
                    V::splat(0.0).store(to.add(k));
                }
                if whole {
                    for k in (0..part).step_by(L) {
                        V::load(from.add(k)).store(to.add(left + k));
                    }
                } else {
                    to.add(left).copy_from_nonoverlapping(from, part);
                }
                for k in (left + part..read).step_by(L) {
                    V::splat(0.0).store(to.add(k));
                }
            }
        }
        rows
    }
}

/// Products to the outputs of one channel; whether all of these are finite.
pub struct Collect<'a, S> {
    /// Product i of lane t is at `i * stride + t`.
    pub products: &'a [f32],
    pub stride: usize,
    pub runs: &'a [Run],
    /// Height and width of the channel's planes, which the last tiles may go beyond.
    pub size: [usize; 2],
    /// Added to all.
    pub bias: f32,
    /// The channel's plane of the first image.
    pub out: *mut f32,
    /// Distance between images.
    pub image: usize,
    /// Distance between rows.
    pub row: usize,
    pub scheme: PhantomData<S>,
}

impl<S: Scheme> Kernel for Collect<'_, S> {
    type Output = bool;
    const WIDE: bool = true;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> bool {
        // SAFETY: with FMA there is AVX2; the rest is the maker's promise.
        with_registers!(FMA, V = Plain<f32, L> => unsafe { self.collect::<V>() })
    }
}

impl<S: Scheme> Collect<'_, S> {
    /// # Safety
    /// The processor has the lanes' instructions, and `out` is as the field says.
    #[inline(always)]
    unsafe fn collect<V: Lanes>(self) -> bool {
        // All bits of the exponent.
        const NOT_FINITE: u32 = f32::INFINITY.to_bits();
        let mut finite = true;
        let mut lines = MaybeUninit::<Lines<OUT>>::uninit();
        let lines = lines.as_mut_ptr().cast::<f32>();
        assert!((S::N * S::N - 1) * self.stride + lanes_of(self.runs) <= self.products.len());
        for run in self.runs {
            assert!(run.len <= RUN);
            // SAFETY: the products are there by the assertion; a run fits into the buffer.
            unsafe {
                for t in (0..run.len).step_by(L) {
                    let from = self.products.as_ptr().add(run.lane + t);
                    let bias = V::splat(self.bias);
                    let mut half = [[V::splat(0.0); OUT]; N];
                    for i in 0..S::N {
                        let mut m = [V::splat(0.0); N];
                        for j in 0..S::N {
                            m[j] = V::load(from.add((i * S::N + j) * self.stride));
                        }
                        half[i] = S::outputs(m);
                    }
                    let mut y = [[V::splat(0.0); OUT]; OUT];
                    for c in 0..OUT {
                        let mut m = [V::splat(0.0); N];
                        for i in 0..S::N {
                            m[i] = half[i][c];
                        }
                        let column = S::outputs(m);
                        for r in 0..OUT {
                            y[r][c] = column[r].add(bias);
                        }
                    }
                    for r in 0..OUT {
                        V::interleave(y[r], lines.add(r * LINE + OUT * t));
                    }
                }
            }
            let width = (OUT * run.len).min(self.size[1] - OUT * run.column);
            let height = OUT.min(self.size[0] - OUT * run.row);
            for r in 0..height {
                let at = run.image * self.image + (OUT * run.row + r) * self.row + OUT * run.column;
                // SAFETY: the rows lie in the output, by the word of whoever made this.
                let out = unsafe { std::slice::from_raw_parts_mut(self.out.add(at), width) };
                // SAFETY: a line's first `width` numbers were written.
                let line = unsafe { std::slice::from_raw_parts(lines.add(r * LINE), width) };
                for x in 0..width {
                    out[x] = line[x];
                    finite &= line[x].to_bits() & NOT_FINITE != NOT_FINITE;
                }
            }
        }
        finite
    }
}
