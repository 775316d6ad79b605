//! 3x3 convolutions at stride 1 by Winograd's minimal filtering F(4x4, 3x3): a tile of 4x4 outputs
//! takes 36 products per pair of channels instead of 144. Tiles and filters are transformed (see
//! [`points`] for the transforms and their accuracy), each of the 36 products is a matrix product over
//! the channels, and its results are transformed back. All three products of a convolution are done
//! so; the gradient of the filters is the transposed computation, summed over the tiles.
//!
//! f32 only.

mod few;
mod filters;
mod lanes;
mod points;
mod spread;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::conv::{Sizes, Target};
use super::float::Float;
use super::isa;
use super::micro::{Product, Tile, multiply};
use super::pack::{pack, packed_len};
use super::parts::{Parts, Shared, with_scratch};
use super::threads::{get_num_threads, parallel_for};
use super::vectorize::vectorize;
use filters::{Pack, TAPS, Unpack, pack_filters};
use lanes::{L, OUT};
use points::N;
use spread::{Collect, Gradients, Inputs, Run, Spread, runs};

pub use filters::Filters;

/// Products of a tile.
const PRODUCTS: usize = N * N;
/// Longest sum of a register tile: its right operand stays in the first-level cache.
const DEPTH: usize = 256;
/// Tiles of a block of the filters' gradient, whose sums are taken one after the other.
const BLOCK: usize = 128;

/// A 3x3 correlation at stride 1.
#[derive(Clone, Copy, Debug)]
pub struct Winograd {
    /// Batch, channels, and the grid: height and width of the result.
    pub sizes: Sizes,
    /// Height and width of the source planes.
    pub source: [usize; 2],
    /// Source row and column of the first result's first tap.
    pub origin: [isize; 2],
}

/// The least length from `len` on of an odd number of cache lines: what is so far apart for each of the
/// products has its own sets of a cache.
fn apart(len: usize) -> usize {
    const LINE: usize = 64 / size_of::<f32>();
    (len.div_ceil(LINE) | 1) * LINE
}

fn tile() -> Tile<f32> {
    f32::tile(isa::current())
}

impl Winograd {
    fn tiles(&self) -> [usize; 2] {
        self.sizes.grid.map(|n| n.div_ceil(OUT))
    }

    fn total(&self) -> usize {
        self.tiles()[0] * self.tiles()[1] * self.sizes.batch
    }

    /// Whether [`correlate`](Self::correlate) takes less time than summing directly.
    pub fn pays(&self) -> bool {
        // To memory and back takes its time whatever a register holds.
        let memory = if self.is_few() { 1.0 } else { tile().columns as f64 / 16.0 };
        self.beats_direct(FILTER * memory)
    }

    /// Whether [`correlate_filters`](Self::correlate_filters) takes less time than summing directly.
    pub fn pays_for_filters(&self) -> bool {
        self.beats_direct(FILTER)
    }

    /// Whether this takes less than a direct sum when a filter's transform takes as long as `filter`
    /// multiplications in a register tile; the weights are measured.
    fn beats_direct(&self, filter: f64) -> bool {
        let Sizes { inputs, outputs, grid, batch, .. } = self.sizes;
        let (c, k, tiles) = (inputs as f64, outputs as f64, self.total() as f64);
        let direct = (TAPS * batch * grid[0] * grid[1]) as f64 * c * k;
        let products = PRODUCTS as f64 * tiles * c * k;
        products + TILE * tiles * (c + k) + filter * c * k < direct
    }

    /// Elements of scratch that [`correlate`](Self::correlate) takes.
    pub fn scratch_len(&self) -> usize {
        if self.is_few() { self.tiles_len() } else { self.filters_len() }
    }

    /// Result channel by result channel the sum over source channels and taps of source times filter,
    /// plus `bias` (one number per result channel of all groups). `source` holds the planes
    /// `[batch, groups * inputs]`. Gives whether all results are finite; infinities and NaNs are not as a
    /// direct sum would have them.
    pub fn correlate(
        &self,
        source: &[f32],
        filters: Filters,
        bias: Option<&[f32]>,
        target: Target,
        scratch: &mut [f32],
        out: &mut [f32],
    ) -> bool {
        let Sizes { batch, groups, inputs, outputs, grid } = self.sizes;
        let reach = target.first
            + (batch - 1) * target.image
            + (groups * outputs - 1) * target.channel
            + (grid[0] - 1) * target.row
            + grid[1];
        assert!(target.column == 1 && reach <= out.len(), "the target is outside the output");
        assert!(source.len() >= batch * groups * inputs * self.source[0] * self.source[1]);
        let out = out[target.first..].as_mut_ptr();
        if self.is_few() {
            return self.correlate_few(source, filters, bias, target, scratch, out);
        }
        self.transform_filters(filters, scratch);
        self.correlate_blocks(source, scratch, bias, target, out)
    }

    /// Elements of the transformed filters of all groups.
    fn filters_len(&self) -> usize {
        let Sizes { groups, inputs, outputs, .. } = self.sizes;
        groups * PRODUCTS * apart(outputs.next_multiple_of(tile().rows) * inputs)
    }

    /// Transforms all filters.
    fn transform_filters(&self, filters: Filters, out: &mut [f32]) {
        let Sizes { groups, inputs, outputs, .. } = self.sizes;
        let rows = tile().rows;
        let panels = outputs.div_ceil(rows);
        let stride = apart(panels * rows * inputs);
        assert_eq!(out.len(), groups * PRODUCTS * stride);
        let shared = Shared::new(out.as_mut_ptr());
        parallel_for(groups * panels, 2000 / inputs.max(1) + 1, |range| {
            for item in range {
                let (g, panel) = (item / panels, item % panels);
                let at = g * PRODUCTS * stride + panel * rows * inputs;
                pack_filters(Pack {
                    filters,
                    start: g * filters.group,
                    first: panel * rows,
                    outputs,
                    inputs,
                    rows,
                    // SAFETY: inside `out`, whose length is asserted; panels are disjoint.
                    out: unsafe { shared.get().add(at) },
                    stride,
                });
            }
        });
    }

    /// [`Winograd::correlate`] in blocks of tiles, with all filters transformed. The target has been
    /// checked.
    fn correlate_blocks(
        &self,
        source: &[f32],
        filters: &[f32],
        bias: Option<&[f32]>,
        target: Target,
        out: *mut f32,
    ) -> bool {
        let Sizes { groups, outputs, .. } = self.sizes;
        let wide = self.block();
        let blocks = self.total().div_ceil(wide);
        let out = Shared::new(out);
        let finite = AtomicBool::new(true);
        parallel_for(groups * blocks, 1, |range| {
            for item in range {
                let (g, block) = (item / blocks, item % blocks);
                let first = block * wide;
                let count = wide.min(self.total() - first);
                let job = Block {
                    all: self,
                    runs: &runs(self.tiles(), first, count),
                    count,
                    stride: wide + 2 * L,
                    group: g,
                };
                let first = g * outputs * target.channel;
                let bias = bias.map(|b| &b[g * outputs..(g + 1) * outputs]);
                // SAFETY: the caller has checked the target; blocks and groups are disjoint parts of it.
                let all =
                    unsafe { job.correlate(source, filters, bias, target, out.get().add(first)) };
                if !all {
                    finite.store(false, Relaxed);
                }
            }
        });
        finite.into_inner()
    }

    /// Elements of scratch that [`correlate_filters`](Self::correlate_filters) takes.
    pub fn filter_sums_len(&self) -> usize {
        let Sizes { inputs, outputs, .. } = self.sizes;
        let (left, right) = (outputs * self.stride(), inputs * self.stride());
        PRODUCTS * (apart(inputs * outputs) + apart(left) + apart(right)) + 4 * L
    }

    /// Distance between channels in the operands of the filters' gradient.
    fn stride(&self) -> usize {
        BLOCK.min(self.total().next_multiple_of(L)) + 2 * L
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
        let Sizes { groups, inputs, outputs, .. } = self.sizes;
        let (total, stride, tile) = (self.total(), self.stride(), tile());
        let (left, right) = (apart(outputs * stride), apart(inputs * stride));
        let size = apart(inputs * outputs);
        let (sums, operands) = scratch.split_at_mut(PRODUCTS * size + L);
        for g in 0..groups {
            for first in (0..total).step_by(BLOCK) {
                let count = BLOCK.min(total - first);
                let block = Block {
                    all: self,
                    runs: &runs(self.tiles(), first, count),
                    count,
                    stride,
                    group: g,
                };
                block.spread_both(source, gradient, operands);
                let (grads, columns) = operands.split_at(PRODUCTS * left + L);
                let sums = Parts::new(sums);
                parallel_for(PRODUCTS, 1, |range| {
                    with_scratch(packed_len(tile, count, inputs), |packed: &mut [f32]| {
                        for p in range {
                            let columns = &columns[p * right..][..right];
                            pack(count, inputs, columns, 1, stride, tile.columns, packed);
                            // SAFETY: each product has sums of its own; the operands hold `count`
                            // tiles of each channel.
                            unsafe {
                                let sums = sums.slice(p * size..(p + 1) * size);
                                let a = (grads[p * left..].as_ptr(), stride, 1);
                                let (b, c) = (packed.as_ptr(), (sums.as_mut_ptr(), inputs));
                                multiply(tile, (outputs, inputs, count), a, b, c, first > 0);
                            }
                        }
                    });
                });
            }
            let out =
                Parts::new(&mut out[g * outputs * inputs * TAPS..][..outputs * inputs * TAPS]);
            parallel_for(outputs, 2000 / inputs.max(1) + 1, |range| {
                for o in range {
                    // SAFETY: each result channel has gradients of its own.
                    let out = unsafe { out.slice(o * inputs * TAPS..(o + 1) * inputs * TAPS) };
                    vectorize(Unpack { sums: &sums[o * inputs..], stride: size, out });
                }
            });
        }
    }

    /// Tiles of a block: as many as make the operands fill the second-level cache, but no fewer than
    /// make up for reading all filters once more.
    fn block(&self) -> usize {
        let channels = self.sizes.inputs + self.sizes.outputs;
        let fit = (CACHE / (PRODUCTS * channels * size_of::<f32>())) / 16 * 16;
        let share = self.total().div_ceil(get_num_threads()).next_multiple_of(16);
        fit.max(LEAST).min(share).max(16)
    }
}

/// Multiplications that transforming a tile of a channel is worth.
const TILE: f64 = 1200.0;
/// As many of a filter.
const FILTER: f64 = 1200.0;
/// Bytes of a block's operands.
const CACHE: usize = 600 << 10;
/// Fewest tiles of a block.
const LEAST: usize = 64;

/// Some tiles of one group.
struct Block<'a> {
    all: &'a Winograd,
    runs: &'a [Run],
    count: usize,
    /// Distance between channels in the operands: not a power of two, whose rows would share few sets
    /// of the first-level cache.
    stride: usize,
    group: usize,
}

impl Block<'_> {
    /// # Safety
    /// The target, from `out` on, is writable, and nobody else uses this block's part of it.
    unsafe fn correlate(
        &self,
        source: &[f32],
        filters: &[f32],
        bias: Option<&[f32]>,
        target: Target,
        out: *mut f32,
    ) -> bool {
        let Sizes { inputs, outputs, groups, grid, .. } = self.all.sizes;
        let tile = tile();
        let panels = outputs.div_ceil(tile.rows);
        let operand = apart(panels * tile.rows * inputs);
        let filters = &filters[self.group * PRODUCTS * operand..][..PRODUCTS * operand];
        // One behind another: product, channel, tile.
        let (left, right) = (apart(inputs * self.stride), apart(outputs * self.stride));
        let slack = 2 * L;
        with_scratch(PRODUCTS * (left + right) + 2 * slack, |scratch: &mut [f32]| {
            let (columns, products) = scratch.split_at_mut(PRODUCTS * left + slack);
            for c in 0..inputs {
                self.spread::<Inputs>(
                    source,
                    self.all.source,
                    self.all.origin,
                    groups * inputs,
                    self.group * inputs + c,
                    columns[c * self.stride..].as_mut_ptr(),
                    left,
                );
            }
            let rows: Vec<usize> = (0..DEPTH.min(inputs)).map(|c| c * self.stride).collect();
            let depth = inputs.div_ceil(inputs.div_ceil(DEPTH));
            for p in 0..PRODUCTS {
                for c0 in (0..inputs).step_by(depth) {
                    let deep = depth.min(inputs - c0);
                    // Filters pass by once; the tiles' operand stays in the second-level cache.
                    for panel in 0..panels {
                        let o = panel * tile.rows;
                        let a = &filters[p * operand + (o * inputs) + c0 * tile.rows..];
                        for t in (0..self.count).step_by(tile.columns) {
                            let product = Product {
                                k: deep,
                                a: a.as_ptr(),
                                a_column: tile.rows,
                                b: columns[p * left + c0 * self.stride + t..].as_ptr(),
                                rows: rows.as_ptr(),
                                c: products[p * right + o * self.stride + t..].as_mut_ptr(),
                                c_row: self.stride,
                                m: tile.rows.min(outputs - o),
                                n: tile.columns,
                                add: c0 > 0,
                                ..Product::default()
                            };
                            // SAFETY: `deep` columns and rows are there; the last tiles of rows go
                            // into the slack between channels.
                            unsafe { (tile.run)(product) };
                        }
                    }
                }
            }
            let mut finite = true;
            for o in 0..outputs {
                finite &= vectorize(Collect {
                    products: &products[o * self.stride..],
                    stride: right,
                    runs: self.runs,
                    size: grid,
                    bias: bias.map_or(0.0, |b| b[o]),
                    // SAFETY: a channel of the target.
                    out: unsafe { out.add(o * target.channel) },
                    image: target.image,
                    row: target.row,
                });
            }
            finite
        })
    }

    /// The operands of the filters' gradient: product, result channel, tile, then product, source
    /// channel, tile.
    fn spread_both(&self, source: &[f32], gradient: &[f32], operands: &mut [f32]) {
        let Winograd { sizes, source: size, origin } = *self.all;
        let Sizes { inputs, outputs, groups, grid, .. } = sizes;
        let (left, right) = (apart(outputs * self.stride), apart(inputs * self.stride));
        let (grads, columns) = operands.split_at_mut(PRODUCTS * left + L);
        let shared = Shared::new((grads.as_mut_ptr(), columns.as_mut_ptr()));
        let g = self.group;
        parallel_for(inputs + outputs, 4000 / self.count + 1, |range| {
            for i in range {
                let (grads, columns) = shared.get();
                // SAFETY: channels write numbers of their own; what goes past the end of a channel's
                // lanes stays in the slack before the next one's.
                unsafe {
                    if i < outputs {
                        let to = grads.add(i * self.stride);
                        let channel = g * outputs + i;
                        self.spread::<Gradients>(
                            gradient,
                            grid,
                            [0; 2],
                            groups * outputs,
                            channel,
                            to,
                            left,
                        );
                    } else {
                        let to = columns.add((i - outputs) * self.stride);
                        let channel = g * inputs + i - outputs;
                        self.spread::<Inputs>(
                            source,
                            size,
                            origin,
                            groups * inputs,
                            channel,
                            to,
                            right,
                        );
                    }
                }
            }
        });
    }

    #[allow(clippy::too_many_arguments, reason = "where a channel is and where it goes")]
    fn spread<S: spread::Side>(
        &self,
        planes: &[f32],
        size: [usize; 2],
        origin: [isize; 2],
        channels: usize,
        channel: usize,
        out: *mut f32,
        stride: usize,
    ) {
        let plane = size[0] * size[1];
        vectorize(Spread::<S> {
            planes: &planes[channel * plane..],
            image: channels * plane,
            size,
            origin,
            runs: self.runs,
            out,
            stride,
            side: PhantomData,
        });
    }
}
