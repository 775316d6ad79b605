//! Minimal filtering of 3x3 convolutions at stride 2. In each dimension a filter's first and last tap read every
//! other number of the source from the first on, its middle tap those between. Both are correlations at stride 1
//! of a phase of the source, the former with two taps, the latter with one, and both are taken by the same
//! F(4, 2): the sums of all phases meet before they are transformed back. A single tap needs no product at
//! infinity, so that four outputs take 5 + 4 products instead of 12, and a tile of 4x4 outputs 81 instead of 144.
//!
//! Cook and Toom's construction as in [`points`](super::points), at +-1/2, +-3/2 and infinity: B and A are exact
//! in f32, and the error is at most twice that of a direct sum.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::cut::{Cut, MOST, WIDEST};
use super::filters::{Pack, TAPS, Unpack};
use super::lanes::{L, OUT, Shuffles, Sums, by_lanes};
use super::points::at_points;
use super::scheme::{Scheme, Transposed};
use super::spread::{Side, Spread};
use super::tiles::{LINE, Lanes, List, behind, in_run};
use crate::arch::prefetch::prefetch_later;
use crate::arch::vectorize::vectorize;

const A: f32 = 0.5;
const B: f32 = 1.5;
const A2: f32 = A * A;
const B2: f32 = B * B;
/// What the rows of G for a and b are divided by; for -a and -b it is the opposite.
const FA: f64 = 2.0 * 0.5 * (0.25 - 2.25);
const FB: f64 = 2.0 * 1.5 * (2.25 - 0.25);

/// Points, of which the last is infinity.
pub const N: usize = 5;
/// Points but infinity.
const FINITE: usize = N - 1;
/// Operands of a tile and channel.
pub const OPERANDS: usize = (N + FINITE) * (N + FINITE);
/// Rows and columns of the source that a tile reads.
const SIDE: usize = 2 * OUT + 1;

/// Phases of a dimension at a point.
pub const fn phases(point: usize) -> usize {
    if point < FINITE { 2 } else { 1 }
}

/// The first operand of product `(i, j)`.
const fn first(i: usize, j: usize) -> usize {
    2 * i * (N + FINITE) + phases(i) * 2 * j
}

/// The operand of a phase of rows and one of columns.
pub const fn operand((i, rows): (usize, usize), (j, columns): (usize, usize)) -> usize {
    first(i, j) + rows * phases(j) + columns
}

/// Stride 2.
pub struct Phases;

impl Scheme for Phases {
    const N: usize = N;
    const OPERANDS: usize = OPERANDS;
    const SHORTENS: bool = false;

    fn operands(product: usize) -> Range<usize> {
        let (i, j) = (product / N, product % N);
        first(i, j)..first(i, j) + phases(i) * phases(j)
    }
    fn takes(_: usize, lanes: &Lanes) -> Range<usize> {
        lanes.range([false; 2])
    }
    fn pack(pack: Pack) {
        vectorize(PackPhases(pack));
    }
    unsafe fn spread(cut: Cut) {
        vectorize(SpreadPhases(cut));
    }
    #[inline(always)]
    unsafe fn outputs<V: Sums>(m: [V; MOST]) -> [V; WIDEST] {
        // SAFETY: `Vector`'s *Instructions*; registers only.
        unsafe {
            let [m0, m1, m2, m3, m4, ..] = m;
            let (sum_a, difference_a) = (m0.add(m1), m0.minus(m1));
            let (sum_b, difference_b) = (m2.add(m3), m2.minus(m3));
            [
                sum_a.add(sum_b),
                difference_a.times(A).plus(B, difference_b),
                sum_a.times(A2).plus(B2, sum_b),
                m4.plus(A2 * A, difference_a).plus(B2 * B, difference_b),
                m4,
                m4,
                m4,
                m4,
            ]
        }
    }
}

impl Transposed for Phases {
    unsafe fn spread_gradient(cut: Cut) {
        vectorize(Spread { cut, side: PhantomData::<Gradients> });
    }
    fn unpack(sums: Unpack) {
        vectorize(UnpackPhases(sums));
    }
}

/// B^T d at the finite points.
///
/// # Safety
/// [`Vector`](crate::numbers::vector::Vector)'s *Instructions*, as for all functions here.
#[inline(always)]
pub unsafe fn finite<V: Sums>([d0, d1, d2, d3]: [V; FINITE]) -> [V; FINITE] {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe {
        let (odd_a, even_a) = (d3.plus(-B2, d1), d2.plus(-B2, d0));
        let (odd_b, even_b) = (d3.plus(-A2, d1), d2.plus(-A2, d0));
        [
            odd_a.plus(A, even_a),
            odd_a.plus(-A, even_a),
            odd_b.plus(B, even_b),
            odd_b.plus(-B, even_b),
        ]
    }
}

/// B^T d at infinity.
///
/// # Safety
/// As [`finite`].
#[inline(always)]
pub unsafe fn infinite<V: Sums>([d0, d2, d4]: [V; 3]) -> V {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe { d4.plus(-(A2 + B2), d2).plus(A2 * B2, d0) }
}

/// G g of the first and the last tap.
///
/// # Safety
/// As [`finite`].
#[inline(always)]
pub unsafe fn outer<V: Sums>(g0: V, g2: V) -> [V; N] {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe {
        let [a, minus_a, b, minus_b] = middle(g0);
        [
            a.plus((0.5 / FA) as f32, g2),
            minus_a.plus((0.5 / FA) as f32, g2),
            b.plus((1.5 / FB) as f32, g2),
            minus_b.plus((1.5 / FB) as f32, g2),
            g2,
        ]
    }
}

/// G g of the middle tap.
///
/// # Safety
/// As [`finite`].
#[inline(always)]
unsafe fn middle<V: Sums>(g: V) -> [V; FINITE] {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe {
        let (a, b) = ((1.0 / FA) as f32, (1.0 / FB) as f32);
        [g.times(a), g.times(-a), g.times(b), g.times(-b)]
    }
}

/// Tiles of the results' gradient: A y.
struct Gradients;

impl Side for Gradients {
    const ROWS: usize = OUT;
    const POINTS: usize = N;
    #[inline(always)]
    unsafe fn apply<V: Sums>([y0, y1, y2, y3, ..]: [V; 6]) -> [V; MOST] {
        // SAFETY: `Vector`'s *Instructions*, which `apply` asks for.
        let [a, minus_a, b, minus_b] = unsafe { at_points([A, B], [y0, y1, y2, y3]) };
        [a, minus_a, b, minus_b, y3, y3, y3, y3, y3]
    }
}

/// G^T u of the first and the last tap: the transpose of [`outer`].
///
/// # Safety
/// As [`finite`].
#[inline(always)]
unsafe fn outer_gradients<V: Sums>(u: [V; N]) -> [V; 2] {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe {
        let [u0, u1, u2, u3, u4] = u;
        let (a, b) = (u0.add(u1), u2.add(u3));
        let last = u4.plus((0.5 / FA) as f32, a).plus((1.5 / FB) as f32, b);
        [middle_gradient([u0, u1, u2, u3]), last]
    }
}

/// G^T u of the middle tap: the transpose of [`middle`].
///
/// # Safety
/// As [`finite`].
#[inline(always)]
unsafe fn middle_gradient<V: Sums>([u0, u1, u2, u3]: [V; FINITE]) -> V {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe { u0.minus(u1).times((1.0 / FA) as f32).plus((1.0 / FB) as f32, u2.minus(u3)) }
}

/// [`Unpack`] for the products of phases.
struct UnpackPhases<'a>(Unpack<'a>);

by_lanes!(UnpackPhases unpack);

impl UnpackPhases<'_> {
    /// # Safety
    /// `Vector`'s *Instructions*.
    #[inline(always)]
    unsafe fn unpack<V: Shuffles>(self) {
        let UnpackPhases(mut all) = self;
        for c in all.pieces(OPERANDS) {
            let sums = all.sums[c..].as_ptr();
            // SAFETY: `Vector`'s *Instructions*; a piece's sums are there, as `pieces` has checked.
            unsafe {
                let mut even = [[V::splat(0.0); N]; 3];
                let mut odd = [[V::splat(0.0); FINITE]; 3];
                for j in 0..N {
                    let rows = row_gradients::<V>(sums, all.stride, (j, 0));
                    for r in 0..3 {
                        even[r][j] = rows[r];
                    }
                }
                for j in 0..FINITE {
                    let rows = row_gradients::<V>(sums, all.stride, (j, 1));
                    for r in 0..3 {
                        odd[r][j] = rows[r];
                    }
                }
                let mut taps = [V::splat(0.0); TAPS];
                for r in 0..3 {
                    let [first, last] = outer_gradients(even[r]);
                    taps[3 * r] = first;
                    taps[3 * r + 1] = middle_gradient(odd[r]);
                    taps[3 * r + 2] = last;
                }
                all.store(c, taps);
            }
        }
    }
}

/// Gradients of the filters' three rows at a point of a phase of columns; sums of an operand are `stride` apart from the
/// next one's.
///
/// # Safety
/// As [`finite`], and all operands have sums.
#[inline(always)]
unsafe fn row_gradients<V: Sums>(sums: *const f32, stride: usize, j: (usize, usize)) -> [V; 3] {
    // SAFETY: `Vector`'s *Instructions*; each operand has a register of sums by this function's
    // contract.
    unsafe {
        let mut even = [V::splat(0.0); N];
        let mut odd = [V::splat(0.0); FINITE];
        for i in 0..N {
            even[i] = V::load(sums.add(operand((i, 0), j) * stride));
        }
        for i in 0..FINITE {
            odd[i] = V::load(sums.add(operand((i, 1), j) * stride));
        }
        let [first, last] = outer_gradients(even);
        [first, middle_gradient(odd), last]
    }
}

/// [`Pack`] for the products of phases.
struct PackPhases<'a>(Pack<'a>);

by_lanes!(PackPhases pack);

impl PackPhases<'_> {
    /// # Safety
    /// `Vector`'s *Instructions*, and the *Pack invariant*.
    #[inline(always)]
    unsafe fn pack<V: Shuffles>(self) {
        for c in 0..self.0.inputs {
            let taps = self.0.taps(c);
            // SAFETY: `Vector`'s *Instructions*; `taps` gives `L` numbers each, and the *Pack
            // invariant* holds for what `store` writes.
            unsafe {
                let g = |t: usize| V::load(taps[t].as_ptr());
                // Filters' rows, of the outer columns and of the middle one.
                let mut even = [[V::splat(0.0); N]; 3];
                let mut odd = [[V::splat(0.0); FINITE]; 3];
                for i in 0..3 {
                    even[i] = outer(g(3 * i), g(3 * i + 2));
                    odd[i] = middle(g(3 * i + 1));
                }
                for j in 0..N {
                    self.store((0, j, 0), &outer(even[0][j], even[2][j]), c);
                    self.store((1, j, 0), &middle(even[1][j]), c);
                }
                for j in 0..FINITE {
                    self.store((0, j, 1), &outer(odd[0][j], odd[2][j]), c);
                    self.store((1, j, 1), &middle(odd[1][j]), c);
                }
            }
        }
    }

    /// Column c of operands, one for each point of the rows.
    ///
    /// # Safety
    /// As [`PackPhases::pack`].
    #[inline(always)]
    unsafe fn store<V: Shuffles>(
        &self,
        (rows, j, columns): (usize, usize, usize),
        numbers: &[V],
        c: usize,
    ) {
        for i in 0..numbers.len() {
            let (first, count) = (first(i, j), phases(i) * phases(j));
            let local = operand((i, rows), (j, columns)) - first;
            // SAFETY: `Vector`'s *Instructions*; the *Pack invariant*, for an operand of this
            // scheme.
            unsafe { self.0.store((first, count, local), c, numbers[i]) };
        }
    }
}

/// [`Cut`]'s tiles, which overlap by a row and a column, to the operands of phases.
struct SpreadPhases<'a>(Cut<'a>);

by_lanes!(SpreadPhases spread);

impl SpreadPhases<'_> {
    /// # Safety
    /// `Vector`'s *Instructions*, and the *Cut invariant*.
    #[inline(always)]
    unsafe fn spread<V: Shuffles>(self) {
        // The rows' points, first those of even rows, each of even and then of odd columns.
        let mut points = MaybeUninit::<[[[f32; LINE]; 2]; N + FINITE]>::uninit();
        let points = points.as_mut_ptr().cast::<f32>();
        let line = |point: usize, columns: usize| points.wrapping_add((2 * point + columns) * LINE);
        for batch in &self.0.lanes.batches {
            for run in &batch.runs {
                let width = 2 * OUT * run.len + 1;
                let (rows, inside) = self.0.rows::<SIDE>(run, 2 * OUT, (SIDE, width));
                // SAFETY: as for this function: rows have those inside; a batch has room for the half of them.
                unsafe {
                    for x in (0..width.div_ceil(2)).step_by(L) {
                        let masks = [V::mask(inside, 2 * x), V::mask(inside, 2 * x + L)];
                        let mut d = [[V::splat(0.0); SIDE]; 2];
                        for i in 0..SIDE {
                            let row = rows[i].wrapping_add(2 * x);
                            let low = V::load_inside(row, masks[0]);
                            let high = V::load_inside(row.wrapping_add(L), masks[1]);
                            let [even, odd] = V::split([low, high]);
                            (d[0][i], d[1][i]) = (even, odd);
                        }
                        for columns in 0..2 {
                            let d = d[columns];
                            let even = finite([d[0], d[2], d[4], d[6]]);
                            let odd = finite([d[1], d[3], d[5], d[7]]);
                            let at = run.start + x;
                            for i in 0..FINITE {
                                even[i].store(line(i, columns).add(at));
                                odd[i].store(line(N + i, columns).add(at));
                            }
                            infinite([d[0], d[4], d[8]]).store(line(FINITE, columns).add(at));
                        }
                    }
                }
            }
            let tiles = &batch.tiles[0];
            // SAFETY: as for this function; the tiles are in the rows.
            unsafe {
                if batch.runs.len() == 1 {
                    self.bring::<V>(tiles, points, |row, t| in_run(row, t, 1));
                } else {
                    self.bring::<V>(tiles, points, |row, t| tiles.at(row, t, 1));
                }
            }
        }
    }

    /// Brings tiles into lanes, and transforms their rows; `at` is [`List::at`].
    ///
    /// # Safety
    /// As [`SpreadPhases::spread`], and the tiles are there.
    #[inline(always)]
    unsafe fn bring<V: Shuffles>(
        &self,
        tiles: &List,
        points: *mut f32,
        at: impl Fn(*mut f32, usize) -> [*mut f32; L],
    ) {
        for t in (0..tiles.len).step_by(L) {
            for point in 0..N + FINITE {
                let i = if point < N { (point, 0) } else { (point - N, 1) };
                // SAFETY: the tiles are there by this function's contract; the *Cut invariant*
                // gives the results their places.
                unsafe {
                    let to = |j| self.0.out.add(operand(i, j) * self.0.stride + tiles.lane + t);
                    let even = at(points.wrapping_add(2 * point * LINE), t);
                    let e = V::deinterleave(even);
                    // A tile's last even column is the next one's first.
                    let [e4, ..] = V::deinterleave(behind(even, OUT));
                    // So many places are not foreseen: the next channel's come near.
                    let columns = finite(e);
                    for j in 0..FINITE {
                        columns[j].store(to((j, 0)));
                        prefetch_later(to((j, 0)).wrapping_add(self.0.next));
                    }
                    infinite([e[0], e[2], e4]).store(to((FINITE, 0)));
                    prefetch_later(to((FINITE, 0)).wrapping_add(self.0.next));
                    let columns = finite(V::deinterleave(behind(even, LINE)));
                    for j in 0..FINITE {
                        columns[j].store(to((j, 1)));
                        prefetch_later(to((j, 1)).wrapping_add(self.0.next));
                    }
                }
            }
        }
    }
}
