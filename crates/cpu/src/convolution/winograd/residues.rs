//! Minimal filtering of the data gradient of 3x3 convolutions at stride 2 with one row and column of padding. Every other
//! number of a dimension of the result, from the first on, is the middle tap times one of the source; those between are
//! sums of two, a correlation at stride 1 with the last and the first tap, which F(4, 2) at the points of
//! [`phases`](super::phases) takes. Eight outputs take 5 + 4 products, where the four of the middle tap need no
//! transform and share its filter, and a tile of 8x8 outputs 81 instead of 144.

use std::marker::PhantomData;
use std::ops::Range;

use super::cut::{Cut, MOST, WIDEST};
use super::filters::Pack;
use super::lanes::{OUT, Shuffles, Sums, by_lanes};
use super::phases::{self, Phases, finite, infinite, outer};
use super::scheme::Scheme;
use super::spread::{Side, Spread};
use super::tiles::Lanes;
use crate::arch::vectorize::vectorize;

/// Products of a dimension that are sums at points.
const POINTS: usize = phases::N;
/// Products of a dimension.
const N: usize = POINTS + OUT;
/// Filters of a dimension: at points, and the middle tap.
const FILTERS: usize = POINTS + 1;

/// A stride of one half.
pub struct Residues;

impl Scheme for Residues {
    const N: usize = N;
    const OPERANDS: usize = N * N;
    const FILTERS: usize = FILTERS * FILTERS;
    const SPAN: usize = 2 * OUT;
    const SHORTENS: bool = false;

    fn operands(product: usize) -> Range<usize> {
        product..product + 1
    }
    fn filter(product: usize) -> usize {
        let [i, j] = [product / N, product % N].map(|line| line.min(POINTS));
        i * FILTERS + j
    }
    fn takes(_: usize, lanes: &Lanes) -> Range<usize> {
        lanes.range([false; 2])
    }
    fn pack(pack: Pack) {
        vectorize(PackResidues(pack));
    }
    unsafe fn spread(cut: Cut) {
        vectorize(Spread { cut, side: PhantomData::<Gradients> });
    }
    #[inline(always)]
    unsafe fn outputs<V: Sums>(m: [V; MOST]) -> [V; WIDEST] {
        // SAFETY: `Vector`'s *Instructions*; registers only.
        unsafe {
            let [y0, y1, y2, y3, ..] = Phases::outputs(m);
            [m[5], y0, m[6], y1, m[7], y2, m[8], y3]
        }
    }
}

/// Tiles of what the convolution wrote: those numbers at the points, and as they are.
struct Gradients;

impl Side for Gradients {
    const ROWS: usize = OUT + 1;
    const POINTS: usize = N;
    #[inline(always)]
    unsafe fn apply<V: Sums>([d0, d1, d2, d3, d4, _]: [V; 6]) -> [V; MOST] {
        // SAFETY: `Vector`'s *Instructions*, which `apply` asks for.
        unsafe {
            let [p0, p1, p2, p3] = finite([d0, d1, d2, d3]);
            [p0, p1, p2, p3, infinite([d0, d2, d4]), d0, d1, d2, d3]
        }
    }
}

/// [`Pack`] for the products of residues.
struct PackResidues<'a>(Pack<'a>);

by_lanes!(PackResidues pack);

impl PackResidues<'_> {
    /// # Safety
    /// `Vector`'s *Instructions*, and the *Pack invariant*.
    #[inline(always)]
    unsafe fn pack<V: Shuffles>(self) {
        for c in 0..self.0.inputs {
            let taps = self.0.taps(c);
            // SAFETY: `Vector`'s *Instructions*; `taps` gives `L` numbers each, and the *Pack
            // invariant* holds for what `store` writes.
            unsafe {
                let mut columns = [[V::splat(0.0); FILTERS]; 3];
                for j in 0..3 {
                    let g = [j, 3 + j, 6 + j].map(|t| V::load(taps[t].as_ptr()));
                    columns[j] = filters(g);
                }
                for i in 0..FILTERS {
                    let row = filters([columns[0][i], columns[1][i], columns[2][i]]);
                    for j in 0..FILTERS {
                        self.0.store((i * FILTERS + j, 1, 0), c, row[j]);
                    }
                }
            }
        }
    }
}

/// A dimension's filters.
///
/// # Safety
/// `Vector`'s *Instructions*.
#[inline(always)]
unsafe fn filters<V: Sums>([g0, g1, g2]: [V; 3]) -> [V; FILTERS] {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe {
        let [p0, p1, p2, p3, p4] = outer(g2, g0);
        [p0, p1, p2, p3, p4, g1]
    }
}
