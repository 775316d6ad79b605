//! The gradient of the filters: the transposed computation, summed over the tiles.

use super::correlation::{Block, FILTER, LEAST_FILTERS, Stride, Winograd, apart, tile};
use super::dense::Dense;
use super::filters::{TAPS, Unpack};
use super::lanes::L;
use super::phases::Phases;
use super::scheme::{Counts, Transposed};
use super::tiles::Lanes;
use crate::convolution::direct::Sizes;
use crate::products::micro::multiply;
use crate::products::pack::{pack, packed_len};
use crate::threads::parts::{Parts, Shared, with_scratch};
use crate::threads::{parallel_for, parallel_items};

/// Tiles of a block of the filters' gradient, whose sums are taken one after the other.
const BLOCK: usize = 128;

impl Winograd {
    /// Whether [`correlate_filters`](Self::correlate_filters) takes less time than summing directly.
    pub fn pays_for_filters(&self) -> bool {
        let (minimal, direct) = self.costs(FILTER);
        self.stride != Stride::Half && minimal < direct
    }

    /// Elements of scratch that [`correlate_filters`](Self::correlate_filters) takes.
    pub fn filter_sums_len(&self) -> usize {
        let Sizes { inputs, outputs, .. } = self.sizes;
        let Counts { operands, products, .. } = self.stride.counts();
        let (left, right) = (outputs * self.distance(), inputs * self.distance());
        products * apart(left) + operands * (apart(inputs * outputs) + apart(right)) + 4 * L
    }

    /// Tiles of a block, of which all but the last have as many.
    fn together(&self) -> usize {
        self.total().div_ceil(self.total().div_ceil(BLOCK)).next_multiple_of(L)
    }

    /// Distance between channels in the operands of the filters' gradient.
    fn distance(&self) -> usize {
        self.together() + 2 * L
    }

    /// For every source channel, tap and result channel, the sum over the grid of source times
    /// `gradient` (`[batch, groups * outputs, grid]`): the gradient of the filters, written to `out` as
    /// `[groups * outputs, inputs, 9]`.
    pub fn correlate_filters(
        &self,
        source: &[f32],
        gradient: &[f32],
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        match self.stride {
            Stride::One => self.correlate_filters_by::<Dense>(source, gradient, scratch, out),
            Stride::Two => self.correlate_filters_by::<Phases>(source, gradient, scratch, out),
            Stride::Half => unreachable!("a stride of one half is a data gradient's"),
        }
    }

    fn correlate_filters_by<S: Transposed>(
        &self,
        source: &[f32],
        gradient: &[f32],
        scratch: &mut [f32],
        out: &mut [f32],
    ) {
        let Sizes { groups, inputs, outputs, grid, .. } = self.sizes;
        let (total, stride, tile) = (self.total(), self.distance(), tile());
        let (left, right) = (apart(outputs * stride), apart(inputs * stride));
        let size = apart(inputs * outputs);
        let (sums, operands) = scratch.split_at_mut(S::OPERANDS * size + L);
        // The product that has each operand.
        let product = |p| S::operands(p).map(move |_| p);
        let product: Vec<usize> = (0..S::PRODUCTS).flat_map(product).collect();
        for g in 0..groups {
            for first in (0..total).step_by(self.together()) {
                let count = self.together().min(total - first);
                let lanes = &Lanes::new(grid, S::SHORTENS, first, count);
                let block = Block { all: self, lanes, stride, group: g };
                block.spread_both::<S>(source, gradient, operands);
                let (grads, columns) = operands.split_at(S::PRODUCTS * left + L);
                let sums = Parts::new(sums);
                parallel_items(S::OPERANDS, 1, |i| {
                    // SAFETY: each operand has sums of its own.
                    let sums = unsafe { sums.slice(i * size..(i + 1) * size) };
                    let p = product[i];
                    let takes = S::takes(p, lanes);
                    if takes.is_empty() {
                        if first == 0 {
                            sums.fill(0.0);
                        }
                        return;
                    }
                    let (k, columns) = (takes.len(), &columns[i * right + takes.start..]);
                    with_scratch(packed_len(tile, count, inputs), |packed: &mut [f32]| {
                        pack(k, inputs, columns, 1, stride, tile.columns, packed);
                        let a = (grads[p * left + takes.start..].as_ptr(), stride, 1);
                        let (b, c) = (packed.as_ptr(), (sums.as_mut_ptr(), inputs));
                        // SAFETY: the operands hold `k` tiles of each channel from there on.
                        unsafe { multiply(tile, (outputs, inputs, k), a, b, c, first > 0) };
                    });
                });
            }
            let out =
                Parts::new(&mut out[g * outputs * inputs * TAPS..][..outputs * inputs * TAPS]);
            parallel_for(outputs, LEAST_FILTERS / inputs.max(1) + 1, |range| {
                for o in range {
                    // SAFETY: each result channel has gradients of its own.
                    let out = unsafe { out.slice(o * inputs * TAPS..(o + 1) * inputs * TAPS) };
                    S::unpack(Unpack { sums: &sums[o * inputs..], stride: size, out });
                }
            });
        }
    }
}

impl Block<'_> {
    /// The operands of the filters' gradient: product, result channel, tile, then product, source
    /// channel, tile.
    fn spread_both<S: Transposed>(&self, source: &[f32], gradient: &[f32], operands: &mut [f32]) {
        let Winograd { sizes, source: size, origin, .. } = *self.all;
        let Sizes { inputs, outputs, groups, grid, .. } = sizes;
        let (left, right) = (apart(outputs * self.stride), apart(inputs * self.stride));
        let (grads, columns) = operands.split_at_mut(S::PRODUCTS * left + L);
        let shared = Shared::new((grads.as_mut_ptr(), columns.as_mut_ptr()));
        let g = self.group;
        parallel_for(inputs + outputs, 4000 / self.lanes.len() + 1, |range| {
            for i in range {
                let (grads, columns) = shared.get();
                // SAFETY: channels write numbers of their own; what goes past the end of a channel's
                // lanes stays in the slack before the next one's.
                unsafe {
                    if i < outputs {
                        let to = grads.add(i * self.stride);
                        let place = (groups * outputs, g * outputs + i);
                        let cut = self.cut(gradient, grid, [0; 2], place, to, left);
                        S::spread_gradient(cut);
                    } else {
                        let to = columns.add((i - outputs) * self.stride);
                        let place = (groups * inputs, g * inputs + i - outputs);
                        let cut = self.cut(source, size, origin, place, to, right);
                        S::spread(cut);
                    }
                }
            }
        });
    }
}
