//! What is done with a tile, whatever the stride.

use std::ops::Range;

use super::cut::{Cut, MOST, WIDEST};
use super::filters::{Pack, Unpack};
use super::lanes::{OUT, Sums};
use super::tiles::Lanes;

/// What is done with a tile.
pub trait Scheme {
    /// Points of a dimension, and so products.
    const N: usize;
    /// Operands of all products, for each channel.
    const OPERANDS: usize;
    /// Transformed numbers of a filter.
    const FILTERS: usize = Self::OPERANDS;
    /// Height and width of a tile's outputs.
    const SPAN: usize = OUT;
    /// Whether there are short tiles, of two outputs in height or width, see
    /// [`points::SHORT`](super::points::SHORT).
    const SHORTENS: bool;

    /// What a product is the sum of.
    fn operands(product: usize) -> Range<usize>;
    /// The first of a product's filters, one for each of its operands.
    fn filter(product: usize) -> usize {
        Self::operands(product).start
    }
    /// The lanes that have a product.
    fn takes(product: usize, lanes: &Lanes) -> Range<usize>;
    /// Transforms filters with the best instructions that the processor has.
    fn pack(pack: Pack);
    /// Transforms tiles.
    ///
    /// # Safety
    /// Nobody else uses the operands' places, which are writable as [`Cut`] says.
    unsafe fn spread(cut: Cut);
    /// Transforms the first `N` products of a dimension back, to the first `SPAN` numbers.
    ///
    /// # Safety
    /// The processor has the registers' instructions.
    unsafe fn outputs<V: Sums>(m: [V; MOST]) -> [V; WIDEST];

    /// How many products there are.
    const PRODUCTS: usize = Self::N * Self::N;

    /// How many there are of all.
    const COUNTS: Counts =
        Counts { filters: Self::FILTERS, operands: Self::OPERANDS, products: Self::PRODUCTS };
}

/// Transformed numbers of a filter, of a tile and source channel, and of a tile and result channel.
pub struct Counts {
    pub filters: usize,
    pub operands: usize,
    pub products: usize,
}

/// A scheme whose filters have their gradients by the transposed computation.
pub trait Transposed: Scheme {
    /// Transforms tiles of the results' gradient, to one operand for each product.
    ///
    /// # Safety
    /// As `spread`.
    unsafe fn spread_gradient(cut: Cut);
    /// Transforms sums of products to gradients of filters.
    fn unpack(sums: Unpack);
}
