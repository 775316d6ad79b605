//! The scheme of stride 1.

use std::marker::PhantomData;
use std::ops::Range;

use super::cut::{Cut, MOST, WIDEST};
use super::filters::{Pack, Unpack, pack_filters};
use super::lanes::Sums;
use super::points::{self, N};
use super::scheme::{Scheme, Transposed};
use super::spread::{Gradients, Inputs, Spread};
use super::tiles::Lanes;
use crate::arch::vectorize::vectorize;

/// Products of a tile at stride 1, each of one operand.
pub const PRODUCTS: usize = N * N;
/// Stride 1.
pub struct Dense;

impl Scheme for Dense {
    const N: usize = points::N;
    const OPERANDS: usize = PRODUCTS;
    const SHORTENS: bool = true;

    fn operands(product: usize) -> Range<usize> {
        product..product + 1
    }
    fn takes(product: usize, lanes: &Lanes) -> Range<usize> {
        lanes.range([product / N, product % N].map(|point| !points::SHORT.contains(&point)))
    }
    fn pack(pack: Pack) {
        pack_filters(pack);
    }
    unsafe fn spread(cut: Cut) {
        vectorize(Spread { cut, side: PhantomData::<Inputs> });
    }
    #[inline(always)]
    unsafe fn outputs<V: Sums>(m: [V; MOST]) -> [V; WIDEST] {
        let [m0, m1, m2, m3, m4, m5, ..] = m;
        // SAFETY: `Vector`'s *Instructions*, which `outputs` asks for.
        let [y0, y1, y2, y3] = unsafe { points::outputs([m0, m1, m2, m3, m4, m5]) };
        [y0, y1, y2, y3, y3, y3, y3, y3]
    }
}

impl Transposed for Dense {
    unsafe fn spread_gradient(cut: Cut) {
        vectorize(Spread { cut, side: PhantomData::<Gradients> });
    }
    fn unpack(sums: Unpack) {
        vectorize(sums);
    }
}
