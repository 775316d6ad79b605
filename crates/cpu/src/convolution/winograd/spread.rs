//! Tiles of planes to products' operands, and products to planes: the two-dimensional transforms,
//! over runs of tiles side by side. Columns are transformed first, on rows as they lie in memory; then
//! rows, whose tiles are brought into lanes: those of several runs where these are short.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::cut::{Cut, MOST, WIDEST};
use super::lanes::{L, OUT, Shuffles, Sums};
use super::points::{self, N, SHORT};
use super::scheme::Scheme;
use super::tiles::{LINE, Lanes, List, behind, in_run};
use crate::arch::vectorize::Kernel;
use crate::numbers::vector::{Plain, Vector, with_registers};

/// Some of them.
type Lines<const COUNT: usize> = [[f32; LINE]; COUNT];

/// Writes the first `count` numbers.
///
/// # Safety
/// [`Vector`]'s *Instructions*; `count`, at most [`L`], numbers can be written there, and nobody else uses them.
#[inline(always)]
unsafe fn store_head<V: Vector<Number = f32>>(numbers: V, to: *mut f32, count: usize) {
    let mut all = [0.0; L];
    // SAFETY: `Vector`'s *Instructions*; `all` has the register's `L` numbers, and `to` has `count`
    // by this function's contract.
    unsafe {
        numbers.store(all.as_mut_ptr());
        for l in 0..count {
            *to.add(l) = all[l];
        }
    }
}

/// What of a plane a tile has: all six rows and columns that its outputs read, or its four outputs; a short tile has two
/// less.
pub trait Side {
    /// Rows and columns of a tile.
    const ROWS: usize;
    /// Points of a dimension.
    const POINTS: usize;
    /// One dimension's transform, of the first `ROWS` of `d` to the first `POINTS` numbers.
    ///
    /// # Safety
    /// [`Vector`]'s *Instructions*.
    unsafe fn apply<V: Sums>(d: [V; 6]) -> [V; MOST];
    /// The same of a short tile, at [`SHORT`] points, in a scheme that has them.
    ///
    /// # Safety
    /// As `apply`.
    unsafe fn apply_short<V: Sums>(_: [V; 6]) -> [V; 4] {
        unreachable!("the scheme has no short tiles")
    }
}

/// Tiles of what a convolution reads.
pub struct Inputs;
impl Side for Inputs {
    const ROWS: usize = 6;
    const POINTS: usize = N;
    #[inline(always)]
    unsafe fn apply<V: Sums>(d: [V; 6]) -> [V; MOST] {
        // SAFETY: `Vector`'s *Instructions*, which `apply` asks for.
        let [p0, p1, p2, p3, p4, p5] = unsafe { points::inputs(d) };
        [p0, p1, p2, p3, p4, p5, p5, p5, p5]
    }
    #[inline(always)]
    unsafe fn apply_short<V: Sums>(d: [V; 6]) -> [V; 4] {
        // SAFETY: `Vector`'s *Instructions*, which `apply_short` asks for.
        unsafe { points::short_inputs([d[0], d[1], d[2], d[3]]) }
    }
}

/// Tiles of the gradient of what it writes.
pub struct Gradients;
impl Side for Gradients {
    const ROWS: usize = 4;
    const POINTS: usize = N;
    #[inline(always)]
    unsafe fn apply<V: Sums>(d: [V; 6]) -> [V; MOST] {
        // SAFETY: `Vector`'s *Instructions*, which `apply` asks for.
        let [p0, p1, p2, p3, p4, p5] = unsafe { points::gradients([d[0], d[1], d[2], d[3]]) };
        [p0, p1, p2, p3, p4, p5, p5, p5, p5]
    }
    #[inline(always)]
    unsafe fn apply_short<V: Sums>(d: [V; 6]) -> [V; 4] {
        // SAFETY: `Vector`'s *Instructions*, which `apply_short` asks for.
        unsafe { points::short_gradients([d[0], d[1]]) }
    }
}

/// Spreads tiles: of P points in a dimension, product (i, j)'s operand is the `P i + j`th.
pub struct Spread<'a, S> {
    pub cut: Cut<'a>,
    pub side: PhantomData<S>,
}

impl<S: Side> Kernel for Spread<'_, S> {
    type Output = ();
    const WIDE: bool = true;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        // SAFETY: with FMA there is AVX2, which gives `Vector`'s *Instructions*; the *Cut invariant*.
        with_registers!(FMA, V = Plain<f32, L> => unsafe { self.spread::<V>() })
    }
}

impl<S: Side> Spread<'_, S> {
    /// # Safety
    /// [`Vector`]'s *Instructions*, and the *Cut invariant*.
    #[inline(always)]
    unsafe fn spread<V: Shuffles>(self) {
        let mut columns = MaybeUninit::<Lines<MOST>>::uninit();
        let columns = columns.as_mut_ptr().cast::<f32>();
        for batch in &self.cut.lanes.batches {
            let (height, points) = if batch.is_short {
                (S::ROWS - 2, &SHORT[..])
            } else {
                (S::ROWS, &[0, 1, 2, 3, 4, 5, 6, 7, 8][..S::POINTS])
            };
            for run in &batch.runs {
                let width = OUT * run.len + S::ROWS - OUT;
                let (rows, inside) = self.cut.rows::<6>(run, OUT, (height, width));
                // SAFETY: as for this function; rows have those inside, and a batch has room for `width` numbers, to the
                // next multiple of L.
                unsafe {
                    for x in (0..width).step_by(L) {
                        let mask = V::mask(inside, x);
                        let to = columns.add(run.start + x);
                        if batch.is_short {
                            let products = S::apply_short(column::<V>(&rows, S::ROWS - 2, x, mask));
                            for i in 0..SHORT.len() {
                                products[i].store(to.add(i * LINE));
                            }
                        } else {
                            let products = S::apply(column::<V>(&rows, S::ROWS, x, mask));
                            for i in 0..S::POINTS {
                                products[i].store(to.add(i * LINE));
                            }
                        }
                    }
                }
            }
            let [whole, short] = &batch.tiles;
            // SAFETY: as for this function; the tiles are in the rows.
            unsafe {
                if batch.runs.len() == 1 {
                    self.bring::<V, false>(whole, points, columns, |row, t| in_run(row, t, 1));
                } else {
                    self.bring::<V, false>(whole, points, columns, |row, t| whole.at(row, t, 1));
                }
                self.bring::<V, true>(short, points, columns, |row, t| short.at(row, t, 1));
            }
        }
    }

    /// Brings tiles into lanes, and transforms their rows; `at` is [`List::at`], and `points` those of the columns.
    ///
    /// # Safety
    /// As [`Spread::spread`], and the tiles are there.
    #[inline(always)]
    unsafe fn bring<V: Shuffles, const IS_SHORT: bool>(
        &self,
        tiles: &List,
        points: &[usize],
        columns: *mut f32,
        at: impl Fn(*mut f32, usize) -> [*mut f32; L],
    ) {
        for (line, i) in points.iter().enumerate() {
            let first = self.cut.out.wrapping_add(i * S::POINTS * self.cut.stride + tiles.lane);
            for t in (0..tiles.len).step_by(L) {
                let places = at(columns.wrapping_add(line * LINE), t);
                // SAFETY: the tiles are there by this function's contract; the *Cut invariant*
                // gives the results their places.
                unsafe {
                    let [d0, d1, d2, d3] = V::deinterleave(places);
                    let products = if IS_SHORT {
                        let [p0, p1, p2, p3] = S::apply_short([d0, d1, d2, d3, d0, d0]);
                        [p0, p1, p2, p3, p3, p3, p3, p3, p3]
                    } else {
                        // A tile's last two columns are the next one's first.
                        let [d4, d5, ..] = if S::ROWS > OUT {
                            V::deinterleave(behind(places, OUT))
                        } else {
                            [d0; OUT]
                        };
                        S::apply([d0, d1, d2, d3, d4, d5])
                    };
                    let count = if IS_SHORT { SHORT.len() } else { S::POINTS };
                    let to = |j: usize| {
                        let point = if IS_SHORT { SHORT[j] } else { j };
                        first.add(point * self.cut.stride + t)
                    };
                    if tiles.fills(t) {
                        for j in 0..count {
                            products[j].store(to(j));
                        }
                    } else {
                        for j in 0..count {
                            store_head(products[j], to(j), tiles.len - t);
                        }
                    }
                }
            }
        }
    }
}

/// The numbers in a mask's lanes of the first `count` rows from x on, and zeros.
///
/// # Safety
/// [`Vector`]'s *Instructions*, and those numbers are there.
#[inline(always)]
unsafe fn column<V: Shuffles>(
    rows: &[*const f32; 6],
    count: usize,
    x: usize,
    mask: V::Mask,
) -> [V; 6] {
    // SAFETY: `Vector`'s *Instructions*; the numbers in the mask's lanes are there by this
    // function's contract.
    unsafe {
        let mut column = [V::splat(0.0); 6];
        for i in 0..count {
            column[i] = V::load_inside(rows[i].wrapping_add(x), mask);
        }
        column
    }
}

/// Products to the outputs of one channel; whether all of these are finite.
///
/// *Collect invariant*, kept by whoever makes one: `out` is writable at the rows that the lanes' tiles have inside `size`,
/// and nobody else uses these while it runs.
pub struct Collect<'a, S> {
    /// Product i of lane t is at `i * stride + t`.
    pub products: &'a [f32],
    pub stride: usize,
    pub lanes: &'a Lanes,
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
        // SAFETY: with FMA there is AVX2, which gives `Vector`'s *Instructions*; the *Collect invariant*.
        with_registers!(FMA, V = Plain<f32, L> => unsafe { self.collect::<V>() })
    }
}

impl<S: Scheme> Collect<'_, S> {
    /// How many times as wide as a batch has them the tiles are.
    const SCALE: usize = S::SPAN / OUT;

    /// # Safety
    /// [`Vector`]'s *Instructions*, and the *Collect invariant*.
    #[inline(always)]
    unsafe fn collect<V: Shuffles>(self) -> bool {
        let mut lines = MaybeUninit::<[Lines<2>; WIDEST]>::uninit();
        let lines = lines.as_mut_ptr().cast::<f32>();
        assert!((S::N * S::N - 1) * self.stride + self.lanes.len() + L <= self.products.len());
        let mut finite = true;
        for batch in &self.lanes.batches {
            // There are short tiles in schemes only that have their points.
            let [whole, short] = &batch.tiles;
            // SAFETY: the products are there by the assertion; a batch fits into the buffer.
            unsafe {
                if batch.is_short {
                    self.bring::<V, true, false>(whole, |t| whole.at(lines, t, Self::SCALE));
                    self.bring::<V, true, true>(short, |t| short.at(lines, t, Self::SCALE));
                } else if batch.runs.len() == 1 {
                    self.bring::<V, false, false>(whole, |t| in_run(lines, t, Self::SCALE));
                    self.bring::<V, false, true>(short, |t| short.at(lines, t, Self::SCALE));
                } else {
                    self.bring::<V, false, false>(whole, |t| whole.at(lines, t, Self::SCALE));
                    self.bring::<V, false, true>(short, |t| short.at(lines, t, Self::SCALE));
                }
            }
            for run in &batch.runs {
                let width = (S::SPAN * run.len).min(self.size[1] - S::SPAN * run.column);
                let height = S::SPAN.min(self.size[0] - S::SPAN * run.row);
                for r in 0..height {
                    let row = S::SPAN * run.row + r;
                    let at = run.image * self.image + row * self.row + S::SPAN * run.column;
                    let line = lines.wrapping_add(Self::SCALE * (r * LINE + run.start));
                    // SAFETY: a line's first `width` numbers were written; the rows lie in the
                    // output by the *Collect invariant*.
                    // of whoever made this.
                    finite &= unsafe { bring(line, self.out.add(at), width) };
                }
            }
        }
        finite
    }

    /// Transforms tiles, short in height or not, and in width or not, to where they begin in a line, which `at` tells.
    ///
    /// # Safety
    /// As [`Collect::collect`]; the products are there.
    #[inline(always)]
    unsafe fn bring<V: Shuffles, const LOW: bool, const NARROW: bool>(
        &self,
        tiles: &List,
        at: impl Fn(usize) -> [*mut f32; L],
    ) {
        for t in (0..tiles.len).step_by(L) {
            let from = self.products.as_ptr().wrapping_add(tiles.lane + t);
            let at = at(t);
            // SAFETY: the products are there by this function's contract; `at` gives places of the
            // buffered lines, which are this thread's own.
            unsafe {
                let bias = V::splat(self.bias);
                let zero = V::splat(0.0);
                let mut half = [[zero; WIDEST]; MOST];
                let height = if LOW { SHORT.len() } else { S::N };
                for k in 0..height {
                    let i = if LOW { SHORT[k] } else { k };
                    let product = |j: usize| V::load(from.add((i * S::N + j) * self.stride));
                    half[k] = if NARROW {
                        let mut m = [zero; SHORT.len()];
                        for j in 0..SHORT.len() {
                            m[j] = product(SHORT[j]);
                        }
                        let [y0, y1] = points::short_outputs(m);
                        [y0, y1, zero, zero, zero, zero, zero, zero]
                    } else {
                        let mut m = [zero; MOST];
                        for j in 0..S::N {
                            m[j] = product(j);
                        }
                        S::outputs(m)
                    };
                }
                let mut y = [[zero; WIDEST]; WIDEST];
                for c in 0..if NARROW { 2 } else { S::SPAN } {
                    let column = if LOW {
                        let [y0, y1] =
                            points::short_outputs([half[0][c], half[1][c], half[2][c], half[3][c]]);
                        [y0, y1, zero, zero, zero, zero, zero, zero]
                    } else {
                        let mut m = [zero; MOST];
                        for i in 0..S::N {
                            m[i] = half[i][c];
                        }
                        S::outputs(m)
                    };
                    for r in 0..S::SPAN {
                        y[r][c] = column[r].add(bias);
                    }
                }
                for r in 0..if LOW { 2 } else { S::SPAN } {
                    let at = behind(at, Self::SCALE * r * LINE);
                    let [y0, y1, y2, y3, y4, y5, y6, y7] = y[r];
                    if S::SPAN > OUT {
                        V::interleave([y4, y5, y6, y7], behind(at, OUT));
                    }
                    V::interleave([y0, y1, y2, y3], at);
                }
            }
        }
    }
}

/// Copies a line; whether all of its numbers are finite.
///
/// # Safety
/// Both are there, and nobody else uses the copy.
#[inline(always)]
unsafe fn bring(from: *const f32, to: *mut f32, width: usize) -> bool {
    // SAFETY: this function's contract: `width` numbers lie at both, and a case's piece is not
    // longer than they are.
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
    let mut most = [0; PIECE];
    let mut x = 0;
    while x < width {
        let at = x.min(width - PIECE);
        // SAFETY: this function's contract: `at + PIECE` is at most `width`.
        let piece = unsafe { from.add(at).cast::<[f32; PIECE]>().read() };
        for l in 0..PIECE {
            most[l] = (piece[l].to_bits() & NOT_FINITE).max(most[l]);
        }
        // SAFETY: this function's contract: `at + PIECE` is at most `width`, and nobody else uses
        // the copy.
        unsafe { to.add(at).cast::<[f32; PIECE]>().write(piece) };
        x += PIECE;
    }
    most.iter().all(|&exponent| exponent < NOT_FINITE)
}
