//! A 3x3 correlation in blocks of tiles, and what it costs.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::cut::Cut;
use super::dense::{Dense, PRODUCTS};
use super::filters::{Filters, Pack, TAPS};
use super::lanes::{L, OUT};
use super::phases::Phases;
use super::residues::Residues;
use super::scheme::{Counts, Scheme};
use super::spread::Collect;
use super::tiles::{Lanes, is_short};
use crate::arch::cache::LINE;
use crate::arch::isa;
use crate::arch::vectorize::vectorize;
use crate::convolution::direct::{Sizes, Target};
use crate::products::micro::{Product, Tile};
use crate::products::tiled::Tiled;
use crate::threads::parts::{Shared, with_scratch};
use crate::threads::{get_num_threads, parallel_for, parallel_items};

/// Longest sum of a register tile: its right operand stays in the first-level cache.
pub const DEPTH: usize = 256;

/// A 3x3 correlation.
#[derive(Clone, Copy, Debug)]
pub struct Winograd {
    /// Batch, channels, and the grid: height and width of the result.
    pub sizes: Sizes,
    /// Height and width of the source planes.
    pub source: [usize; 2],
    /// Source row and column of the first result's first tap.
    pub origin: [isize; 2],
    /// Rows and columns of the source between neighbouring results.
    pub stride: Stride,
}

/// Strides for which there is a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// 1.
    One,
    /// 2.
    Two,
    /// Of the data gradient at stride 2 with one row and column of padding: every other row and column of the source
    /// would be zeros. The filters' taps are in the order of the convolution's.
    Half,
}

impl Stride {
    pub(super) fn counts(self) -> Counts {
        match self {
            Stride::One => Dense::COUNTS,
            Stride::Two => Phases::COUNTS,
            Stride::Half => Residues::COUNTS,
        }
    }

    /// Height and width of a tile's outputs.
    pub(super) fn span(self) -> usize {
        match self {
            Stride::One => Dense::SPAN,
            Stride::Two => Phases::SPAN,
            Stride::Half => Residues::SPAN,
        }
    }
}

/// The least length from `len` on of an odd number of cache lines: what is so far apart for each of the
/// products has its own sets of a cache.
pub(super) fn apart(len: usize) -> usize {
    let line = LINE / size_of::<f32>();
    (len.div_ceil(line) | 1) * line
}

pub(super) fn tile() -> Tile<f32> {
    f32::tile(isa::current())
}

impl Winograd {
    pub(super) fn tiles(&self) -> [usize; 2] {
        self.sizes.grid.map(|n| n.div_ceil(self.stride.span()))
    }

    pub(super) fn total(&self) -> usize {
        self.tiles()[0] * self.tiles()[1] * self.sizes.batch
    }

    /// Whether [`correlate`](Self::correlate) takes less time than summing directly.
    pub fn pays(&self) -> bool {
        // To memory and back takes its time whatever a register holds.
        let memory = if self.is_few() { 1.0 } else { tile().columns as f64 / 16.0 };
        let (minimal, direct) = self.costs(FILTER * memory);
        minimal < direct
    }

    /// Whether it takes less time than summing pairs of bf16 directly (see [`pairs`](crate::products::pairs)). Where a
    /// processor multiplies whole registers, it takes as long: what is not multiplied is more of it.
    pub fn pays_beside_pairs(&self) -> bool {
        // Many filters go to memory and back, where others may be too: at 512 x 512 filters for eight images of 7x7 pairs
        // are as fast. With 256 x 256 for 14x14 f32 takes 6.4 ms, beside another program at memory's limit 7.4 to 8,
        // and pairs 8.0 and 8.1 to 8.6.
        let (minimal, direct) = self.costs(2.5 * FILTER);
        isa::multiplies_in_halves() && minimal < direct / PAIRS
    }

    /// How long this takes and how long a direct sum, in multiplications in a register tile, when the transform of a
    /// filter for [`Dense`] takes as long as `filter` of them; the weights are measured.
    pub(super) fn costs(&self, filter: f64) -> (f64, f64) {
        let Sizes { inputs, outputs, grid, batch, .. } = self.sizes;
        let (c, k, tiles) = (inputs as f64, outputs as f64, self.total() as f64);
        let all = (TAPS * batch * grid[0] * grid[1]) as f64 * c * k;
        let direct = if self.stride == Stride::Half { all / 4.0 } else { all };
        let Counts { filters, operands, products } = self.stride.counts();
        let multiplied = operands.max(products) as f64 * tiles * c * k;
        // Transforms are as long as what they write or read.
        let [filters, operands, products] =
            [filters, operands, products].map(|n| n as f64 / PRODUCTS as f64);
        let tile = if self.stride == Stride::One { TILE } else { TILE_OF_PHASES };
        let transformed = tile * tiles * (operands * c + products * k);
        ((multiplied + transformed) * self.share() + filter * filters * c * k, direct)
    }

    /// The share of the products that are taken: of a short tile two in three, in each dimension.
    pub(super) fn share(&self) -> f64 {
        let tiles = self.tiles();
        let share = |d: usize| {
            let short = self.stride == Stride::One && is_short(self.sizes.grid[d]);
            if short { 1.0 - 1.0 / (3 * tiles[d]) as f64 } else { 1.0 }
        };
        share(0) * share(1)
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
        match self.stride {
            Stride::One => self.correlate_by::<Dense>(source, filters, bias, target, scratch, out),
            Stride::Two => self.correlate_by::<Phases>(source, filters, bias, target, scratch, out),
            Stride::Half => {
                self.correlate_by::<Residues>(source, filters, bias, target, scratch, out)
            }
        }
    }

    /// Channels of the source whose products are summed before the next ones are transformed. At stride 2, where operands
    /// are several times the products, as many as leave both of a block's tiles in the second-level cache. It is the
    /// order of the sums, and so no matter of how many threads there are.
    pub(super) fn chunk(&self) -> usize {
        let Sizes { inputs, outputs, .. } = self.sizes;
        let Counts { operands, products, .. } = self.stride.counts();
        if self.stride != Stride::Two {
            return inputs;
        }
        let lanes = self.most() * size_of::<f32>();
        let fit = CACHE.saturating_sub(products * outputs * lanes) / (operands * lanes);
        inputs.div_ceil(inputs.div_ceil(fit.max(LEAST_CHANNELS)))
    }

    /// Distance between the transformed filters of a chunk's operands.
    pub(super) fn filter_stride(&self) -> usize {
        apart(self.sizes.outputs.next_multiple_of(tile().rows) * self.chunk())
    }

    /// Elements of the transformed filters of all groups.
    pub(super) fn filters_len(&self) -> usize {
        let Sizes { groups, inputs, .. } = self.sizes;
        groups * inputs.div_ceil(self.chunk()) * self.stride.counts().filters * self.filter_stride()
    }

    /// Transforms all filters.
    fn transform_filters<S: Scheme>(&self, filters: Filters, out: &mut [f32]) {
        let Sizes { groups, inputs, outputs, .. } = self.sizes;
        let rows = tile().rows;
        let panels = outputs.div_ceil(rows);
        let (chunk, stride) = (self.chunk(), self.filter_stride());
        assert_eq!(out.len(), self.filters_len());
        let shared = Shared::new(out.as_mut_ptr());
        parallel_for(groups * panels, LEAST_FILTERS / (rows * inputs).max(1) + 1, |range| {
            for item in range {
                let (g, panel) = (item / panels, item % panels);
                for (i, c) in (0..inputs).step_by(chunk).enumerate() {
                    let before = (g * inputs.div_ceil(chunk) + i) * S::FILTERS * stride;
                    S::pack(Pack {
                        filters,
                        start: g * filters.group + c * filters.input,
                        first: panel * rows,
                        outputs,
                        inputs: chunk.min(inputs - c),
                        rows,
                        panel,
                        // SAFETY: inside `out`, whose length is asserted; panels are disjoint.
                        out: unsafe { shared.get().add(before) },
                        stride,
                    });
                }
            }
        });
    }

    /// [`Winograd::correlate`] in blocks of tiles, with all filters transformed first, into `scratch`. The target has
    /// been checked.
    fn correlate_by<S: Scheme>(
        &self,
        source: &[f32],
        filters: Filters,
        bias: Option<&[f32]>,
        target: Target,
        scratch: &mut [f32],
        out: *mut f32,
    ) -> bool {
        self.transform_filters::<S>(filters, scratch);
        let (filters, Sizes { groups, outputs, grid, .. }) = (&*scratch, self.sizes);
        // Runs of tiles go by what of the source they begin with.
        let starts = grid.map(|n| n.div_ceil(S::SPAN / OUT));
        let wide = self.block();
        // A small rest, for which all filters would be read once more, is the last block's.
        let blocks = ((self.total() + wide / 2) / wide).max(1);
        let most = self.total() - (blocks - 1) * wide;
        let stride = wide.max(most.next_multiple_of(2 * L)) + 2 * L;
        let out = Shared::new(out);
        let finite = AtomicBool::new(true);
        parallel_items(groups * blocks, 1, |item| {
            let (g, block) = (item / blocks, item % blocks);
            let first = block * wide;
            let count = if block + 1 == blocks { most } else { wide };
            let job = Block {
                all: self,
                lanes: &Lanes::new(starts, S::SHORTENS, first, count),
                stride,
                group: g,
            };
            let first = g * outputs * target.channel;
            let bias = bias.map(|b| &b[g * outputs..(g + 1) * outputs]);
            // SAFETY: the caller has checked the target; blocks and groups are disjoint parts of it.
            let all =
                unsafe { job.correlate::<S>(source, filters, bias, target, out.get().add(first)) };
            if !all {
                finite.store(false, Relaxed);
            }
        });
        finite.into_inner()
    }

    /// Tiles of a block: so many that each thread has as many blocks.
    pub(super) fn block(&self) -> usize {
        let (total, threads) = (self.total(), get_num_threads());
        let blocks = total.div_ceil(self.most()).next_multiple_of(threads);
        total.div_ceil(blocks).next_multiple_of(16)
    }

    /// Most tiles of a block: as many as make the operands fill the second-level cache, but no fewer than make up for
    /// reading all filters once more.
    pub(super) fn most(&self) -> usize {
        let Counts { operands, products, .. } = self.stride.counts();
        let numbers = operands * self.sizes.inputs + products * self.sizes.outputs;
        let fit = (CACHE / (numbers * size_of::<f32>())) / 16 * 16;
        // At stride 2 what the filters are read for is in the second-level cache, at a half several products share them.
        let least = if self.stride == Stride::One { LEAST } else { LEAST / 2 };
        fit.max(least)
    }
}

/// Multiplications that transforming a tile of a channel is worth.
pub(super) const TILE: f64 = 1200.0;
/// The same at stride 2, for as many operands or products as stride 1 has.
pub(super) const TILE_OF_PHASES: f64 = 700.0;
/// Multiplications that transforming a filter is worth, for as many operands.
pub(super) const FILTER: f64 = 1200.0;
/// Filters, or gradients of filters, that are worth sharing out.
pub(super) const LEAST_FILTERS: usize = 1000;
/// How many times as fast as f32's multiplications those of pairs of bf16 are, of which each is two: measured in
/// convolutions.
pub(super) const PAIRS: f64 = 1.75;
/// Bytes of a block's operands.
pub(super) const CACHE: usize = 750 << 10;
/// Fewest tiles of a block.
pub(super) const LEAST: usize = 64;
/// Fewest channels of a chunk.
pub(super) const LEAST_CHANNELS: usize = 32;

/// Some tiles of one group.
pub(super) struct Block<'a> {
    pub(super) all: &'a Winograd,
    pub(super) lanes: &'a Lanes,
    /// Distance between channels in the operands: not a power of two, whose rows would share few sets
    /// of the first-level cache.
    pub(super) stride: usize,
    pub(super) group: usize,
}

impl Block<'_> {
    /// # Safety
    /// The target, from `out` on, is writable, and nobody else uses this block's part of it.
    unsafe fn correlate<S: Scheme>(
        &self,
        source: &[f32],
        filters: &[f32],
        bias: Option<&[f32]>,
        target: Target,
        out: *mut f32,
    ) -> bool {
        let Sizes { inputs, outputs, groups, grid, .. } = self.all.sizes;
        let (chunk, operand) = (self.all.chunk(), self.all.filter_stride());
        let chunks = inputs.div_ceil(chunk);
        let filters = &filters[self.group * chunks * S::FILTERS * operand..];
        // One behind another: operand or product, channel, tile.
        let [left, right] = self.strides();
        let slack = 2 * L;
        let len = S::OPERANDS * left + S::PRODUCTS * right + 2 * slack;
        with_scratch(len, |scratch: &mut [f32]| {
            let (columns, products) = scratch.split_at_mut(S::OPERANDS * left + slack);
            for (i, start) in (0..inputs).step_by(chunk).enumerate() {
                let some = chunk.min(inputs - start);
                for c in 0..some {
                    let place = (groups * inputs, self.group * inputs + start + c);
                    let to = columns[c * self.stride..].as_mut_ptr();
                    let cut = self.cut(source, self.all.source, self.all.origin, place, to, left);
                    // SAFETY: of channel c there are `stride` numbers for each operand.
                    unsafe { S::spread(cut) };
                }
                let filters = &filters[i * S::FILTERS * operand..];
                self.multiply::<S>(filters, columns, products, some, start > 0);
            }
            let mut finite = true;
            for o in 0..outputs {
                finite &= vectorize(Collect::<S> {
                    products: &products[o * self.stride..],
                    stride: right,
                    lanes: self.lanes,
                    size: grid,
                    bias: bias.map_or(0.0, |b| b[o]),
                    // SAFETY: a channel of the target.
                    out: unsafe { out.add(o * target.channel) },
                    image: target.image,
                    row: target.row,
                    scheme: PhantomData,
                });
            }
            finite
        })
    }

    /// All products of `inputs` channels' operands and filters, or `add`s them.
    pub(super) fn multiply<S: Scheme>(
        &self,
        filters: &[f32],
        columns: &[f32],
        products: &mut [f32],
        inputs: usize,
        add: bool,
    ) {
        let (tile, outputs) = (tile(), self.all.sizes.outputs);
        let operand = self.all.filter_stride();
        let [left, right] = self.strides();
        let longest = (0..S::PRODUCTS).map(|p| S::operands(p).len()).max().unwrap_or(0);
        let place = |c: usize| c / inputs * left + c % inputs * self.stride;
        let rows: Vec<usize> = (0..longest * inputs).map(place).collect();
        for p in 0..S::PRODUCTS {
            let operands = S::operands(p);
            let all = operands.len() * inputs;
            let depth = all.div_ceil(all.div_ceil(DEPTH));
            let takes = S::takes(p, self.lanes);
            for c0 in (0..all).step_by(depth) {
                let deep = depth.min(all - c0);
                // Filters pass by once; the tiles' operand stays in the second-level cache.
                for o in (0..outputs).step_by(tile.rows) {
                    let a = &filters[S::filter(p) * operand + o * all + c0 * tile.rows..];
                    for t in takes.clone().step_by(tile.columns) {
                        let lanes = (takes.end - t).next_multiple_of(2 * L);
                        let product = Product {
                            k: deep,
                            a: a.as_ptr(),
                            a_column: tile.rows,
                            b: columns[operands.start * left + t..].as_ptr(),
                            rows: rows[c0..].as_ptr(),
                            c: products[p * right + o * self.stride + t..].as_mut_ptr(),
                            c_row: self.stride,
                            m: tile.rows.min(outputs - o),
                            n: tile.columns.min(lanes),
                            add: add || c0 > 0,
                            ..Product::default()
                        };
                        // SAFETY: `deep` columns and rows are there; the last tiles of rows go
                        // into the slack between channels.
                        unsafe { (tile.run)(product) };
                    }
                }
            }
        }
    }

    /// Distances between operands and between products, of which there are those of all channels one behind another.
    pub(super) fn strides(&self) -> [usize; 2] {
        [self.all.chunk(), self.all.sizes.outputs].map(|channels| apart(channels * self.stride))
    }

    /// This block's part of one of all images' `channels` planes.
    pub(super) fn cut<'a>(
        &'a self,
        planes: &'a [f32],
        size: [usize; 2],
        origin: [isize; 2],
        (channels, channel): (usize, usize),
        out: *mut f32,
        stride: usize,
    ) -> Cut<'a> {
        let plane = size[0] * size[1];
        let (planes, image) = (&planes[channel * plane..], channels * plane);
        Cut { planes, image, size, origin, lanes: self.lanes, out, stride, next: self.stride }
    }
}
