//! Grid points times gradient: the gradient of the filters.

use super::super::field::Field;
use super::super::float::Float;
use super::super::isa;
use super::super::micro::{Product, Tile};
use super::super::pack::{pack_into, packed_len};
use super::super::parts::{Parts, with_scratch};
use super::super::threads::parallel_for;
use super::{Sizes, Spread, WORTH_A_THREAD, displacements};

/// For every source channel, tap and result channel, the sum over all grid points of source times
/// `gradient` (`[batch, groups * outputs, grid]`, spread out as told): the gradient of the filters, written to
/// `out` as `[groups * outputs, inputs * taps]`. `source` holds the prepared planes; `sums` is scratch of
/// [`filter_sums_len`] elements.
pub fn correlate_filters<T: Float>(
    sizes: Sizes,
    field: &Field,
    source: &[T],
    gradient: (&[T], Spread),
    sums: &mut [T],
    out: &mut [T],
) {
    let plan = Plan::new(sizes, field.taps.len());
    let rows = displacements(field, sizes.inputs);
    let (k, outputs) = (rows.len(), sizes.outputs);
    let piece = plan.depth * outputs;
    let items = sizes.groups * plan.cuts * plan.parts;
    let flops = 2 * k * outputs * sizes.points() * sizes.batch / (plan.cuts * plan.parts);
    let shared = Parts::new(&mut sums[..items * piece]);
    parallel_for(items, WORTH_A_THREAD.div_ceil(flops.max(1)), |range| {
        for item in range {
            let (part, cut, g) =
                (item % plan.parts, item / plan.parts % plan.cuts, item / plan.parts / plan.cuts);
            let k0 = cut * plan.depth;
            // SAFETY: each item has its own piece.
            let sums = unsafe { shared.slice(item * piece..(item + 1) * piece) };
            let rows = &rows[k0.min(k)..(k0 + plan.depth).min(k)];
            plan.sum(field, rows, source, gradient, (g, part), sums);
        }
    });
    for g in 0..sizes.groups {
        for cut in 0..plan.cuts {
            let k0 = cut * plan.depth;
            let deep = plan.depth.min(k.saturating_sub(k0));
            let first = (g * plan.cuts + cut) * plan.parts;
            for part in 0..plan.parts {
                let sums = &sums[(first + part) * piece..][..deep * outputs];
                for o in 0..outputs {
                    let line = &mut out[(g * outputs + o) * k + k0..][..deep];
                    for (p, out) in line.iter_mut().enumerate() {
                        let sum = sums[p * outputs + o];
                        *out = if part == 0 { sum } else { *out + sum };
                    }
                }
            }
        }
    }
}

/// Elements of scratch that [`correlate_filters`] takes.
pub fn filter_sums_len(sizes: Sizes, taps: usize) -> usize {
    let plan = Plan::new(sizes, taps);
    sizes.groups * plan.cuts * plan.parts * plan.depth * sizes.outputs
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

    /// The sums of one group over one part of the points. Each is of a tile whose rows are source planes
    /// displaced by `rows`, read where they are, and whose columns are packed gradients.
    fn sum<T: Float>(
        &self,
        field: &Field,
        rows: &[usize],
        source: &[T],
        (gradient, spread): (&[T], Spread),
        (g, part): (usize, usize),
        sums: &mut [T],
    ) {
        let Sizes { batch, groups, inputs, outputs, grid } = self.sizes;
        let (tile, points): (Tile<T>, usize) = (T::tile(isa::current()), self.sizes.points());
        let total = batch * points;
        let blocks = total.div_ceil(self.width);
        let (from, to) = (blocks * part / self.parts, blocks * (part + 1) / self.parts);
        if from == to || rows.is_empty() {
            return sums.fill(T::ZERO);
        }
        let source = &source[g * inputs * field.channel..];
        let image = field.image(groups * inputs);
        let farthest = rows.iter().copied().max().unwrap_or(0);
        let mut places = Vec::with_capacity(self.width);
        with_scratch(packed_len(tile, self.width, outputs), |packed: &mut [T]| {
            for block in from..to {
                let first = block * self.width;
                let count = self.width.min(total - first);
                places.clear();
                let mut q = first;
                while q < first + count {
                    let (n, i, j) = (q / points, q % points / grid[1], q % grid[1]);
                    let (start, len) = (n * image + i * field.grid_row + j, grid[1] - j);
                    places.extend(start..start + len.min(first + count - q));
                    q += len;
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
                let last = places.iter().copied().max().unwrap_or(0);
                assert!(last + farthest < source.len(), "the field is too short");
                for f in (0..outputs).step_by(tile.columns) {
                    // SAFETY: the farthest point of the farthest row is in the field, as just checked; a
                    // panel has `count` rows; the sums are `rows.len() * outputs` numbers of this item's
                    // own.
                    unsafe {
                        (tile.run)(Product {
                            k: count,
                            a: source.as_ptr(),
                            a_rows: rows.as_ptr(),
                            columns: places.as_ptr(),
                            b: packed[f * count..].as_ptr(),
                            c: sums.as_mut_ptr().add(f),
                            c_row: outputs,
                            m: rows.len(),
                            n: tile.columns.min(outputs - f),
                            add: block > from,
                            ..Product::default()
                        });
                    }
                }
            }
        });
    }
}
