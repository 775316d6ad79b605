//! What depthwise products work on: sizes, planes, filters.

use std::ops::Range;

use super::square::Square;
use crate::threads::parts::Parts;

/// How many numbers ahead memory is brought in: more than the processor foresees, and less than the
/// first-level cache holds; of smaller planes what the next one has in the same place.
pub const AHEAD: usize = 2048;

/// Sizes of a depthwise product: `[batch, channels]` result planes, each from `inputs` planes.
#[derive(Clone, Copy, Debug)]
pub struct Planes {
    /// Images.
    pub batch: usize,
    /// Result planes of an image.
    pub channels: usize,
    /// Source planes of an image.
    pub sources: usize,
    /// Source planes that add up to a result plane: `inputs` ones from `first` on, where `first` is
    /// `channel * sources / channels`.
    pub inputs: usize,
}

impl Planes {
    /// The first source plane of a channel of an image.
    pub(super) fn first(&self, image: usize, channel: usize) -> usize {
        // Mostly each channel has its own, and a division would cost as much as a row of a plane.
        let source = if self.sources == self.channels {
            channel
        } else {
            channel * self.sources / self.channels
        };
        image * self.sources + source
    }
}

/// Items of so many products that are worth a thread.
pub(super) fn grain(products: usize) -> usize {
    (512 << 10) / products.max(1) + 1
}

/// Result planes of one thread.
///
/// *Planes invariant* of this and the next two, kept by whoever makes one: what `result` or `out` gives is writable for
/// each item, distinct, and nobody else uses it while the job runs.
pub struct SquarePlanes<'a> {
    /// The window.
    pub square: &'a Square,
    /// The result planes.
    pub items: Range<usize>,
    /// Of a result plane: its source plane, its filter, and the number that its sums start with.
    pub operands: &'a dyn Fn(usize) -> (&'a [f32], &'a [f32], f32),
    /// Of a result plane: its place, of the grid's size.
    pub result: &'a dyn Fn(usize) -> *mut f32,
}

/// Result planes of one thread, each from one plane of the gradient; see the *Planes invariant* of [`SquarePlanes`].
pub struct SpreadPlanes<'a> {
    /// The window of the forward pass: its source has the sizes of the results.
    pub square: &'a Square,
    /// The result planes.
    pub items: Range<usize>,
    /// Of a result plane: the gradient's plane, and the filter.
    pub operands: &'a dyn Fn(usize) -> (&'a [f32], &'a [f32]),
    /// Of a result plane: its place, of the source's size.
    pub result: &'a dyn Fn(usize) -> *mut f32,
}

/// Filters of one thread; see the *Planes invariant* of [`SquarePlanes`].
pub struct SquareFilters<'a> {
    /// The window.
    pub square: &'a Square,
    /// The channels.
    pub channels: Range<usize>,
    /// Images.
    pub batch: usize,
    /// Of an image and a channel: the source plane and the gradient's.
    pub operands: &'a (dyn Fn(usize, usize) -> (&'a [f32], &'a [f32]) + Sync),
    /// The filters of all channels.
    pub out: &'a Parts<f32>,
}
