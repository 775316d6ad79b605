//! Grid points times gradient: the gradient of the filters.

use std::ops::Range;

use super::steps::Steps;
use super::{Sizes, Spread, WORTH_A_THREAD};
use crate::arch::isa;
use crate::convolution::field::Field;
use crate::products::micro::{Product, Tile};
use crate::products::pack::{pack_into, packed_len};
use crate::products::tiled::Tiled;
use crate::threads::parts::{Parts, with_scratch};
use crate::threads::{GRAIN, parallel_for, parallel_items};

/// For every source channel, tap and result channel, the sum over grid points of source times gradient: the
/// gradient of the filters, of as many batches of images as are brought one after the other.
pub struct FilterSums<'a> {
    field: &'a Field,
    plan: Plan,
    steps: Steps,
    /// Displacements of all steps.
    rows: Vec<usize>,
}

impl<'a> FilterSums<'a> {
    /// For batches of these sizes.
    pub fn new(sizes: Sizes, field: &'a Field) -> Self {
        let plan = Plan::new(sizes, field.taps.len());
        // Of a plane all steps are taken: the points of a block see more than those of a row.
        let steps = Steps::of_depths(field, sizes.inputs);
        let rows = steps.displacements(field, sizes.inputs);
        FilterSums { field, plan, steps, rows }
    }

    /// Elements of the sums.
    pub fn len(&self) -> usize {
        self.items() * self.piece()
    }

    /// Shares of the sums, each a thread's.
    fn items(&self) -> usize {
        self.plan.sizes.groups * self.plan.cuts * self.plan.parts
    }

    /// Elements of a share.
    fn piece(&self) -> usize {
        self.plan.depth * self.plan.sizes.outputs
    }

    /// Makes `sums` those of a batch, or adds these where it is not the first one. `source` holds the prepared
    /// planes, of which the images of a stack see those of the depth taps `depths`; `gradient` is
    /// `[batch, groups * outputs, grid]`, spread out as told.
    pub fn add<T: Tiled>(
        &self,
        (source, depths): (&[T], &[Range<usize>]),
        gradient: (&[T], Spread),
        first: bool,
        sums: &mut [T],
    ) {
        let FilterSums { field, plan, steps, rows } = self;
        let blocks = plan.blocks(field, depths);
        let (k, piece, items) = (rows.len(), self.piece(), self.items());
        let sizes = plan.sizes;
        let flops = 2 * k * sizes.outputs * sizes.points() * sizes.batch / (plan.cuts * plan.parts);
        let shared = Parts::new(&mut sums[..self.len()]);
        parallel_items(items, WORTH_A_THREAD.div_ceil(flops.max(1)), |item| {
            let (part, cut, g) =
                (item % plan.parts, item / plan.parts % plan.cuts, item / plan.parts / plan.cuts);
            let k0 = cut * plan.depth;
            // SAFETY: each item has its own piece.
            let sums = unsafe { shared.slice(item * piece..(item + 1) * piece) };
            let range = k0.min(k)..(k0 + plan.depth).min(k);
            let (from, to) =
                (blocks.len() * part / plan.parts, blocks.len() * (part + 1) / plan.parts);
            let cut = Cut { field, steps, rows, range };
            plan.sum(&cut, source, gradient, (g, &blocks[from..to]), first, sums);
        });
    }

    /// Brings the sums to `out`, `[groups * outputs, inputs * taps]`.
    pub fn bring<T: Tiled>(&self, sums: &[T], out: &mut [T]) {
        self.plan.bring(&self.steps, self.rows.len(), sums, out);
    }
}

/// Neighbouring points, and the depth taps through which they see the source.
struct Points {
    at: Range<usize>,
    depths: Range<usize>,
}

/// Some of the steps.
struct Cut<'a> {
    field: &'a Field,
    steps: &'a Steps,
    /// Displacements of all steps.
    rows: &'a [usize],
    range: Range<usize>,
}

/// Shares that a filter gradient has at least, if there are as many blocks. Not the number of threads:
/// the order of a sum must not depend on it.
const SHARES: usize = 16;

/// How a filter gradient is divided: the source's (channel, tap) pairs into `cuts` of `depth`, the
/// points into `parts`, which are added at the end.
struct Plan {
    sizes: Sizes,
    cuts: usize,
    depth: usize,
    parts: usize,
    /// Points per block.
    width: usize,
}

impl Plan {
    fn new(sizes: Sizes, taps: usize) -> Self {
        let k = sizes.inputs * taps;
        let mut cuts = k.div_ceil(256);
        if cuts > 1 {
            cuts = cuts.next_multiple_of(4).min(k);
        }
        let total = sizes.batch * sizes.points();
        let width = if sizes.outputs > 256 { 128 } else { 256 };
        let blocks = total.div_ceil(width);
        let parts = SHARES.div_ceil(sizes.groups * cuts).min(blocks).max(1);
        Plan { sizes, cuts, depth: k.div_ceil(cuts), parts, width }
    }

    /// The points in blocks, of images of a stack that see the same.
    fn blocks(&self, field: &Field, depths: &[Range<usize>]) -> Vec<Points> {
        let (batch, points) = (self.sizes.batch, self.sizes.points());
        let planes = vec![0..1; batch];
        let depths = if field.depths == 1 { &planes } else { depths };
        assert_eq!(depths.len(), batch, "each image sees some of the depth");
        let (mut blocks, mut start) = (Vec::new(), 0);
        for alike in depths.chunk_by(|a, b| a == b) {
            let end = start + alike.len() * points;
            blocks.extend((start..end).step_by(self.width).map(|first| Points {
                at: first..end.min(first + self.width),
                depths: alike[0].clone(),
            }));
            start = end;
        }
        blocks
    }

    /// The sums of one group over some points. Each is of a tile whose rows are source planes
    /// displaced by the cut's steps, read where they are, and whose columns are packed gradients.
    fn sum<T: Tiled>(
        &self,
        cut: &Cut,
        source: &[T],
        (gradient, spread): (&[T], Spread),
        (g, blocks): (usize, &[Points]),
        first: bool,
        sums: &mut [T],
    ) {
        let Sizes { groups, inputs, outputs, grid, .. } = self.sizes;
        let (tile, points): (Tile<T>, usize) = (T::tile(isa::current()), self.sizes.points());
        let Cut { field, steps, range, .. } = cut;
        let sees = |block: &Points| steps.of_piece(range, block.depths.clone());
        // Sums that the first block is no part of have to begin with 0.
        let whole = first && blocks.first().is_some_and(|block| sees(block) == *range);
        if first && !whole || range.is_empty() {
            sums.fill(T::ZERO);
        }
        let source = &source[g * inputs * field.channel..];
        let image = field.image(groups * inputs);
        let farthest = cut.rows[range.clone()].iter().copied().max().unwrap_or(0);
        let mut places = Vec::with_capacity(self.width);
        with_scratch(packed_len(tile, self.width, outputs), |packed: &mut [T]| {
            for (number, block) in blocks.iter().enumerate() {
                let seen = sees(block);
                if seen.is_empty() {
                    continue;
                }
                let (first, count) = (block.at.start, block.at.len());
                places.clear();
                let (mut q, mut last) = (first, 0);
                while q < first + count {
                    let (n, i, j) = (q / points, q % points / grid[1], q % grid[1]);
                    let (start, len) = (n * image + i * field.grid_row + j, grid[1] - j);
                    let end = start + len.min(first + count - q);
                    places.extend(start..end);
                    (q, last) = (q + len, last.max(end - 1));
                }
                let mut done = 0;
                while done < count {
                    let (n, r) = ((first + done) / points, (first + done) % points);
                    let len = (points - r).min(count - done);
                    let planes = &gradient[n * spread.image + g * outputs * spread.channel + r..];
                    let apart = spread.channel;
                    pack_into(len, outputs, planes, 1, apart, tile.columns, (done, count), packed);
                    done += len;
                }
                assert!(last + farthest < source.len(), "the field is too short");
                let rows = &cut.rows[seen.clone()];
                for f in (0..outputs).step_by(tile.columns) {
                    let at = (seen.start - range.start) * outputs + f;
                    // SAFETY: the farthest point of the farthest row is in the field, as just checked; a
                    // panel has `count` rows; the sums are `range.len() * outputs` numbers of this item's
                    // own.
                    unsafe {
                        (tile.run)(Product {
                            k: count,
                            a: source.as_ptr(),
                            a_rows: rows.as_ptr(),
                            columns: places.as_ptr(),
                            b: packed[f * count..].as_ptr(),
                            c: sums.as_mut_ptr().add(at),
                            c_row: outputs,
                            m: rows.len(),
                            n: tile.columns.min(outputs - f),
                            add: !whole || number > 0,
                            ..Product::default()
                        });
                    }
                }
            }
        });
    }

    /// Adds the parts' sums and brings them to their places in the gradient.
    fn bring<T: Tiled>(&self, steps: &Steps, k: usize, sums: &[T], out: &mut [T]) {
        /// Results that are brought together: a cache line of sums or two.
        const SIDE: usize = 16;
        /// Steps: some lines of each result, whose ends may lie in the same few sets of the cache.
        const DEEP: usize = 64;
        let outputs = self.sizes.outputs;
        let places: Vec<usize> = steps.places().collect();
        let piece = self.depth * outputs;
        let groups = outputs.div_ceil(SIDE);
        let out = Parts::new(out);
        let grain = GRAIN.div_ceil(k * self.parts * SIDE);
        parallel_for(self.sizes.groups * groups, grain, |range| {
            for item in range {
                let (g, first) = (item / groups, item % groups * SIDE);
                let count = SIDE.min(outputs - first);
                let lines = (g * outputs + first) * k;
                // SAFETY: groups of results are disjoint.
                let out = unsafe { out.slice(lines..lines + count * k) };
                for (cut, places) in places.chunks(self.depth).enumerate() {
                    let parts = &sums[(g * self.cuts + cut) * self.parts * piece + first..];
                    for (block, places) in places.chunks(DEEP).enumerate() {
                        let mut all = [[T::ZERO; SIDE]; DEEP];
                        for part in 0..self.parts {
                            let parts = &parts[part * piece + block * DEEP * outputs..];
                            for (p, all) in all.iter_mut().take(places.len()).enumerate() {
                                let line = &parts[p * outputs..][..count];
                                match line.first_chunk::<SIDE>() {
                                    Some(line) => (0..SIDE).for_each(|o| all[o] += line[o]),
                                    None => {
                                        all.iter_mut().zip(line).for_each(|(sum, x)| *sum += *x)
                                    }
                                }
                            }
                        }
                        for (o, out) in out.chunks_exact_mut(k).enumerate() {
                            for (all, &place) in all.iter().zip(places) {
                                out[place] = all[o];
                            }
                        }
                    }
                }
            }
        });
    }
}
