//! Tiles of planes to products' operands, and products to planes: the two-dimensional transforms,
//! over runs of tiles side by side. Columns are transformed first, on rows as they lie in memory; then
//! rows, whose tiles are brought into lanes: those of several runs where these are short.

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

/// Tiles side by side: `len` ones from column `column` of row `row` of a plane's tiles on.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub image: usize,
    pub row: usize,
    pub column: usize,
    pub len: usize,
    /// The batch's lane in which the first tile is.
    pub lane: usize,
    /// Where its transformed columns begin in a batch's buffered row.
    pub start: usize,
}

/// Runs whose tiles are brought into lanes together, from lane `first` on.
#[derive(Debug)]
pub struct Batch {
    pub runs: Vec<Run>,
    pub first: usize,
    /// How many tiles there are.
    pub len: usize,
    /// Where each tile begins in a buffered row; 0 for the lanes past the last one's end.
    tiles: [usize; RUN + L],
}

/// The tiles `first..first + count`, counted through all images; each has `size` rows and columns of them. Runs are
/// together where that saves groups of lanes.
pub fn batches(size: [usize; 2], first: usize, count: usize) -> Vec<Batch> {
    let mut out: Vec<Batch> = Vec::new();
    let (mut done, mut end) = (0, LINE);
    while done < count {
        let at = first + done;
        let column = at % size[1];
        let len = (size[1] - column).min(count - done).min(RUN);
        // With the columns of the last tile that would be the next one's, in whole registers.
        let room = (OUT * len + 2).next_multiple_of(L);
        let batch = match out.last_mut() {
            Some(last) if last.gains(len) && end + room <= LINE => last,
            _ => {
                end = 0;
                let (runs, tiles) = (Vec::new(), [0; RUN + L]);
                out.push(Batch { runs, first: done, len: 0, tiles });
                out.last_mut().expect("just pushed")
            }
        };
        let (row, image) = (at / size[1] % size[0], at / size[1] / size[0]);
        batch.runs.push(Run { image, row, column, len, lane: batch.len, start: end });
        for (t, tile) in batch.tiles[batch.len..][..len].iter_mut().enumerate() {
            *tile = end + OUT * t;
        }
        (batch.len, end, done) = (batch.len + len, end + room, done + len);
    }
    out
}

impl Batch {
    /// Whether `len` more tiles fit into what the last group of lanes has left, at least in part.
    fn gains(&self, len: usize) -> bool {
        let (together, groups) = (self.len + len, |len: usize| len.div_ceil(L));
        together <= RUN && groups(together) < groups(self.len) + groups(len)
    }

    /// Whether it is a single run, whose tiles begin one behind the other.
    #[inline(always)]
    pub fn is_run(&self) -> bool {
        self.runs.len() == 1
    }

    /// Where the tiles of the lanes from `t` on begin in the row at `row`.
    #[inline(always)]
    pub fn at(&self, row: *const f32, t: usize) -> [*const f32; L] {
        let mut at = [row; L];
        for l in 0..L {
            at[l] = row.wrapping_add(self.tiles[t + l]);
        }
        at
    }
}

/// [`Batch::at`] of a run.
#[inline(always)]
pub fn in_run(row: *const f32, t: usize) -> [*const f32; L] {
    let mut at = [row; L];
    for l in 0..L {
        at[l] = row.wrapping_add(OUT * (t + l));
    }
    at
}

/// As many numbers behind each.
#[inline(always)]
pub fn behind(mut at: [*const f32; L], distance: usize) -> [*const f32; L] {
    for l in 0..L {
        at[l] = at[l].wrapping_add(distance);
    }
    at
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

/// The tiles of one channel, and where they go: operand i of lane t to `out[i * stride + t]`, and up to [`L`] numbers
/// after a batch's last lane are overwritten.
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
    pub batches: &'a [Batch],
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
        for batch in self.cut.batches {
            for run in &batch.runs {
                let width = OUT * run.len + S::ROWS - OUT;
                // SAFETY: as for this function; rows have `width` numbers, to the next multiple of L, as `rows`
                // says, for which a batch has room.
                unsafe {
                    let rows: [_; 6] = self.cut.rows::<V, 6>(run, OUT, S::ROWS, (width, L), border);
                    for x in (0..width).step_by(L) {
                        let mut d = [V::splat(0.0); 6];
                        for i in 0..S::ROWS {
                            d[i] = V::load(rows[i].add(x));
                        }
                        let products = S::apply(d);
                        for i in 0..N {
                            products[i].store(columns.add(i * LINE + run.start + x));
                        }
                    }
                }
            }
            // SAFETY: as for this function; the tiles are in the rows.
            unsafe {
                if batch.is_run() {
                    self.bring::<V>(batch, columns, in_run);
                } else {
                    self.bring::<V>(batch, columns, |row, t| batch.at(row, t));
                }
            }
        }
    }

    /// Brings the tiles of a batch into lanes, and transforms their rows; `at` is [`Batch::at`].
    ///
    /// # Safety
    /// As [`Spread::spread`], and the tiles are there.
    #[inline(always)]
    unsafe fn bring<V: Lanes>(
        &self,
        batch: &Batch,
        columns: *const f32,
        at: impl Fn(*const f32, usize) -> [*const f32; L],
    ) {
        for i in 0..N {
            for t in (0..batch.len).step_by(L) {
                let tiles = at(columns.wrapping_add(i * LINE), t);
                // SAFETY: the caller's promise; the results have their place by the word of whoever made this.
                unsafe {
                    let [d0, d1, d2, d3] = V::deinterleave(tiles);
                    // A tile's last two columns are the next one's first.
                    let [d4, d5, ..] =
                        if S::ROWS > OUT { V::deinterleave(behind(tiles, OUT)) } else { [d0; OUT] };
                    let products = S::apply([d0, d1, d2, d3, d4, d5]);
                    let to = self.cut.out.add(i * N * self.cut.stride + batch.first + t);
                    for j in 0..N {
                        products[j].store(to.add(j * self.cut.stride));
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
    pub batches: &'a [Batch],
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
        let mut lines = MaybeUninit::<Lines<OUT>>::uninit();
        let lines = lines.as_mut_ptr().cast::<f32>();
        let last = self.batches.last().map_or(0, |batch| batch.first + batch.len);
        assert!((S::N * S::N - 1) * self.stride + last + L <= self.products.len());
        let mut finite = true;
        for batch in self.batches {
            // SAFETY: the products are there by the assertion; a batch fits into the buffer.
            unsafe {
                for t in (0..batch.len).step_by(L) {
                    let from = self.products.as_ptr().add(batch.first + t);
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
            for run in &batch.runs {
                let width = (OUT * run.len).min(self.size[1] - OUT * run.column);
                let height = OUT.min(self.size[0] - OUT * run.row);
                let line = lines.wrapping_add(OUT * run.lane);
                for r in 0..height {
                    let row = OUT * run.row + r;
                    let at = run.image * self.image + row * self.row + OUT * run.column;
                    // SAFETY: a line's first `width` numbers were written; the rows lie in the output, by the word
                    // of whoever made this.
                    finite &= unsafe { bring(line.add(r * LINE), self.out.add(at), width) };
                }
            }
        }
        finite
    }
}

/// Copies a line; whether all of its numbers are finite.
///
/// # Safety
/// Both are there, and nobody else uses the copy.
#[inline(always)]
unsafe fn bring(from: *const f32, to: *mut f32, width: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match width {
            L.. => bring_pieces::<L>(from, to, width),
            OUT..L => bring_pieces::<OUT>(from, to, width),
            _ => bring_pieces::<1>(from, to, width),
        }
    }
}

/// Pieces of a line, the last of which goes back to be whole.
///
/// # Safety
/// As [`bring`], and there is a piece.
#[inline(always)]
unsafe fn bring_pieces<const PIECE: usize>(from: *const f32, to: *mut f32, width: usize) -> bool {
    // All bits of the exponent.
    const NOT_FINITE: u32 = f32::INFINITY.to_bits();
    let mut bad = [false; PIECE];
    let mut x = 0;
    while x < width {
        let at = x.min(width - PIECE);
        // SAFETY: the caller's promise.
        let piece = unsafe { from.add(at).cast::<[f32; PIECE]>().read() };
        for l in 0..PIECE {
            bad[l] |= piece[l].to_bits() & NOT_FINITE == NOT_FINITE;
        }
        // SAFETY: as above.
        unsafe { to.add(at).cast::<[f32; PIECE]>().write(piece) };
        x += PIECE;
    }
    bad == [false; PIECE]
}
