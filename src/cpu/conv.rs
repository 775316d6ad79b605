//! The products of a convolution over [`Field`]s: grid points times filter ([`correlate`]: forward,
//! and the data gradient), and grid points times gradient ([`correlate_filters`]: the weight
//! gradient). Both are matrix products with register tiles whose one operand is gathered block by
//! block into the cache ("im2col" that never exists as a whole).

use std::ops::Range;

use super::field::{Field, Run, gather, runs};
use super::float::Float;
use super::micro::{Product, Tile, multiply};
use super::pack::{pack, packed_len};
use super::parts::{Parts, Shared, with_scratch};
use super::threads::{get_num_threads, parallel_for};

/// Most rows of a gathered block: a panel of them stays in the first-level cache.
const DEPTH: usize = 320;
/// Floating-point operations that are worth a second thread.
const WORTH_A_THREAD: usize = 1_000_000;

/// Sizes of a correlation, per group.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Images.
    pub batch: usize,
    /// Groups.
    pub groups: usize,
    /// Source channels of a group.
    pub inputs: usize,
    /// Result channels of a group.
    pub outputs: usize,
    /// Height and width of the grid.
    pub grid: [usize; 2],
}

impl Sizes {
    fn points(&self) -> usize {
        self.grid[0] * self.grid[1]
    }
}

/// Where grid point (i, j) of result channel c of image n goes:
/// `first + n * image + c * channel + i * row + j * column`.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Offset of the first point.
    pub first: usize,
    /// Distance between images.
    pub image: usize,
    /// Distance between channels.
    pub channel: usize,
    /// Distance between grid rows.
    pub row: usize,
    /// Distance between grid columns.
    pub column: usize,
}

/// Elements of the filters of all groups, packed.
pub fn packed_filters_len<T: Float>(sizes: Sizes, taps: usize) -> usize {
    let rows = T::tile(super::isa::current()).rows;
    sizes.groups * sizes.outputs.next_multiple_of(rows) * sizes.inputs * taps
}

/// Packs filters for [`correlate`]. `weight(g)` is the row-major `outputs x (inputs * taps)` matrix of
/// group g.
pub fn pack_filters<'a, T: Float>(
    sizes: Sizes,
    taps: usize,
    weight: impl Fn(usize) -> &'a [T],
    out: &mut [T],
) {
    let (k, rows) = (sizes.inputs * taps, T::tile(super::isa::current()).rows);
    let group = sizes.outputs.next_multiple_of(rows) * k;
    for g in 0..sizes.groups {
        pack(k, sizes.outputs, weight(g), 1, k, rows, &mut out[g * group..(g + 1) * group]);
    }
}

fn displacements(field: &Field, channels: usize) -> Vec<usize> {
    (0..channels).flat_map(|c| field.taps.iter().map(move |t| c * field.plane + t)).collect()
}

/// For every grid point and result channel, the sum over source channels and taps of source times
/// filter, plus `bias` (one number per result channel of all groups). `source` holds the prepared
/// planes `[batch, groups * inputs]`, `filters` comes from [`pack_filters`].
pub fn correlate<T: Float>(
    sizes: Sizes,
    field: &Field,
    source: &[T],
    filters: &[T],
    bias: Option<&[T]>,
    target: Target,
    out: &mut [T],
) {
    let tile = T::tile(super::isa::current());
    let (points, k) = (sizes.points(), sizes.inputs * field.taps.len());
    let (total, threads) = (sizes.batch * points, get_num_threads());
    let direct = reads_rows(sizes, field.taps.len(), tile.columns);
    // Panels of points: `tile.columns` ones, counted through, or as many of one grid row.
    let in_row = sizes.grid[1].div_ceil(tile.columns);
    let panels =
        if direct { sizes.batch * sizes.grid[0] * in_row } else { total.div_ceil(tile.columns) };
    let (last_row, last_column) = (sizes.grid[0] - 1, sizes.grid[1] - 1);
    let reach = target.first
        + (sizes.batch - 1) * target.image
        + (sizes.groups * sizes.outputs - 1) * target.channel
        + last_row * target.row
        + last_column * target.column;
    assert!(reach < out.len(), "the target is outside the output");
    let rows = displacements(field, sizes.inputs);
    let width = (panels / (2 * threads)).clamp(1, 256 / tile.columns);
    let blocks = panels.div_ceil(width);
    let out = Shared::new(out.as_mut_ptr());
    let flops = 2 * k * sizes.outputs * tile.columns * width;
    parallel_for(blocks * sizes.groups, WORTH_A_THREAD.div_ceil(flops), |range| {
        for item in range {
            let (g, block) = (item / blocks, item % blocks);
            let (first, end) = (block * width, (block * width + width).min(panels));
            let group = sizes.outputs.next_multiple_of(tile.rows) * k;
            let job = Block {
                sizes,
                field,
                tile,
                rows: &rows,
                source: &source[g * sizes.inputs * field.plane..],
                filters: &filters[g * group..(g + 1) * group],
                bias: bias.map(|b| &b[g * sizes.outputs..]),
                target: Target {
                    first: target.first + g * sizes.outputs * target.channel,
                    ..target
                },
            };
            // SAFETY: the target lies inside the output (asserted above), and blocks and groups
            // are disjoint parts of it.
            unsafe {
                if direct {
                    job.run_rows(first..end, out.get())
                } else {
                    job.run(first..end, out.get())
                }
            }
        }
    });
}

/// Whether the tiles read the field where it is, one grid row at a time, rather than packed panels
/// that go on from row to row and image to image: the lanes past the end of a row are lost, but
/// nothing is copied, which counts when few filters share a panel. The rows of many source planes
/// would push each other out of the first-level cache.
fn reads_rows(sizes: Sizes, taps: usize, columns: usize) -> bool {
    let row = sizes.grid[1];
    let used = row as f64 / row.next_multiple_of(columns) as f64;
    let filters = sizes.outputs.div_ceil(8) as f64;
    let planes = sizes.inputs.min(DEPTH.div_ceil(taps));
    // Measured: packing a panel takes about as long as three quarters of one tile.
    planes <= 64 && 1.0 / used <= 1.0 + 0.75 / filters
}

/// A block of grid points of one group.
struct Block<'a, T> {
    sizes: Sizes,
    field: &'a Field,
    tile: Tile<T>,
    rows: &'a [usize],
    source: &'a [T],
    filters: &'a [T],
    bias: Option<&'a [T]>,
    target: Target,
}

impl<T: Float> Block<'_, T> {
    /// The block of packed panels `panels`.
    ///
    /// # Safety
    /// The target lies inside `out`, and nobody else uses the block's part of it.
    unsafe fn run(&self, panels: Range<usize>, out: *mut T) {
        let (k, wide) = (self.rows.len(), self.tile.columns);
        let depth = k.div_ceil(k.div_ceil(DEPTH)).max(1);
        let image = self.sizes.groups * self.sizes.inputs * self.field.plane;
        let mut spans = Vec::with_capacity(wide);
        let places: Vec<Place> = panels.clone().map(|p| self.place(p * wide)).collect();
        let len = depth * panels.len() * wide + Field::SLACK;
        with_scratch(len + self.tile.rows * wide, |scratch: &mut [T]| {
            let (block, spill) = scratch.split_at_mut(len);
            for k0 in (0..k).step_by(depth) {
                let deep = depth.min(k - k0);
                for (i, place) in places.iter().enumerate() {
                    let panel = &mut block[i * deep * wide..];
                    if place.count < wide {
                        panel[..deep * wide].fill(T::ZERO);
                    }
                    let first = (panels.start + i) * wide;
                    runs(self.field, self.sizes.grid, image, first, place.count, &mut spans);
                    gather(self.source, &self.rows[k0..k0 + deep], &spans, wide, panel);
                }
                for (f, p) in self.order(places.len(), deep) {
                    let panel =
                        (block[p * deep * wide..][..deep * wide].as_ptr(), std::ptr::null());
                    // SAFETY: the caller's promise; the panel has `deep` rows.
                    unsafe { self.tile(k0, deep, f, panel, &places[p], spill, out) };
                }
            }
        });
    }

    /// The block of panels `panels`, each of a grid row, read from the field.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn run_rows(&self, panels: Range<usize>, out: *mut T) {
        let (k, wide) = (self.rows.len(), self.tile.columns);
        let depth = k.div_ceil(k.div_ceil(DEPTH)).max(1);
        let image = self.sizes.groups * self.sizes.inputs * self.field.plane;
        let [height, width] = self.sizes.grid;
        let in_row = width.div_ceil(wide);
        let (mut places, mut sources) = (Vec::new(), Vec::new());
        let farthest = self.rows.iter().copied().max().unwrap_or(0);
        for p in panels {
            let (n, i, j) = (p / in_row / height, p / in_row % height, p % in_row * wide);
            let place = self.place_in_row(n, i, j, wide.min(width - j));
            places.push(place);
            let at = n * image + i * self.field.grid_row + j;
            // All that tiles read: whole rows of `wide` points.
            let reach = at + farthest + wide;
            assert!(reach <= self.source.len(), "the field's slack is too short");
            sources.push(self.source[at..].as_ptr());
        }
        with_scratch(self.tile.rows * wide, |spill: &mut [T]| {
            for k0 in (0..k).step_by(depth) {
                let deep = depth.min(k - k0);
                let rows = self.rows[k0..k0 + deep].as_ptr();
                for (f, p) in self.order(places.len(), deep) {
                    // SAFETY: the caller's promise; the rows are in the field, as just checked
                    // for the farthest.
                    unsafe { self.tile(k0, deep, f, (sources[p], rows), &places[p], spill, out) };
                }
            }
        });
    }

    /// The order of (filter panel, point panel): short filters stay in the first-level cache beside
    /// one panel of points; long ones pass by once.
    fn order(&self, panels: usize, deep: usize) -> impl Iterator<Item = (usize, usize)> {
        let small = self.sizes.outputs * deep * size_of::<T>() <= 96 << 10;
        let filters = self.sizes.outputs.div_ceil(self.tile.rows);
        let inner = if small { filters } else { panels };
        (0..panels * filters)
            .map(move |i| if small { (i % inner, i / inner) } else { (i / inner, i % inner) })
    }

    /// One tile of the product; `panel` is its right operand as in [`Product`].
    ///
    /// # Safety
    /// As `run`, and the panel has `deep` rows.
    #[allow(clippy::too_many_arguments, reason = "the indices of one tile")]
    unsafe fn tile(
        &self,
        k0: usize,
        deep: usize,
        f: usize,
        panel: (*const T, *const usize),
        place: &Place,
        spill: &mut [T],
        out: *mut T,
    ) {
        let (k, rows, wide) = (self.rows.len(), self.tile.rows, self.tile.columns);
        let m = rows.min(self.sizes.outputs - f * rows);
        let channel = f * rows * self.target.channel;
        let start = match self.bias {
            Some(bias) if k0 == 0 => bias[f * rows..f * rows + m].as_ptr(),
            _ => std::ptr::null(),
        };
        let straight = place.offsets.is_empty();
        let product = Product {
            k: deep,
            a: self.filters[f * rows * k + k0 * rows..].as_ptr(),
            a_row: 1,
            a_column: rows,
            a_tile: 0,
            b: panel.0,
            rows: panel.1,
            c: if straight {
                // SAFETY: inside the output by the caller's word.
                unsafe { out.add(place.first + channel) }
            } else {
                spill.as_mut_ptr()
            },
            c_row: if straight { self.target.channel } else { wide },
            c_column: 1,
            m,
            n: if straight { place.count } else { wide },
            add: k0 > 0 && straight,
            start,
        };
        // SAFETY: `deep` rows on both sides; C is the output's or `rows * wide` of scratch.
        unsafe { (self.tile.run)(product) };
        for (i, line) in spill.chunks_exact(wide).take(if straight { 0 } else { m }).enumerate() {
            for (&at, &sum) in place.offsets.iter().zip(line) {
                // SAFETY: inside the output by the caller's word.
                let c = unsafe { &mut *out.add(at + channel + i * self.target.channel) };
                *c = if k0 > 0 { *c + sum } else { sum };
            }
        }
    }

    /// Where the points of a panel from `first` on go.
    fn place(&self, first: usize) -> Place {
        let (points, t) = (self.sizes.points(), self.target);
        let [rows, columns] = self.sizes.grid;
        let count = self.tile.columns.min(self.sizes.batch * points - first);
        let at = |q: usize| {
            let (n, r) = (q / points, q % points);
            t.first + n * t.image + r / columns * t.row + r % columns * t.column
        };
        let dense = t.column == 1 && (t.row == columns || rows == 1);
        let one_image = first % points + count <= points;
        let offsets =
            if dense && one_image { vec![] } else { (first..first + count).map(at).collect() };
        Place { first: at(first), count, offsets }
    }

    /// Where `count` points of row i of image n from column j on go.
    fn place_in_row(&self, n: usize, i: usize, j: usize, count: usize) -> Place {
        let t = self.target;
        let first = t.first + n * t.image + i * t.row + j * t.column;
        let offsets =
            if t.column == 1 { vec![] } else { (0..count).map(|x| first + x * t.column).collect() };
        Place { first, count, offsets }
    }
}

struct Place {
    first: usize,
    count: usize,
    /// Of each point, where they do not follow one another.
    offsets: Vec<usize>,
}

/// For every source channel, tap and result channel, the sum over all grid points of source times
/// `gradient` (`[batch, groups * outputs, grid]`): the gradient of the filters, written to `out` as
/// `[groups * outputs, inputs * taps]`. `sums` is scratch of [`filter_sums_len`] elements.
pub fn correlate_filters<T: Float>(
    sizes: Sizes,
    field: &Field,
    source: &[T],
    gradient: &[T],
    sums: &mut [T],
    out: &mut [T],
) {
    let plan = FilterPlan::new(sizes, field.taps.len());
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
            plan.sum(
                field,
                &rows[k0.min(k)..(k0 + plan.depth).min(k)],
                source,
                gradient,
                (g, part),
                sums,
            );
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
                        let sum =
                            if plan.swapped { sums[o * deep + p] } else { sums[p * outputs + o] };
                        *out = if part == 0 { sum } else { *out + sum };
                    }
                }
            }
        }
    }
}

/// Elements of scratch that [`correlate_filters`] takes.
pub fn filter_sums_len(sizes: Sizes, taps: usize) -> usize {
    let plan = FilterPlan::new(sizes, taps);
    sizes.groups * plan.cuts * plan.parts * plan.depth * sizes.outputs
}

/// Shares that a filter gradient has at least, if there are as many blocks. Not the number of threads:
/// the order of a sum must not depend on it.
const SHARES: usize = 16;

/// How a filter gradient is divided: the source's (channel, tap) pairs into `cuts` of `depth`, the
/// points into `parts`, which are added at the end.
struct FilterPlan {
    sizes: Sizes,
    cuts: usize,
    depth: usize,
    parts: usize,
    /// Points per block.
    width: usize,
    /// The gradient is the left operand: it has more rows than the source.
    swapped: bool,
}

impl FilterPlan {
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
        FilterPlan {
            sizes,
            cuts,
            depth: k.div_ceil(cuts),
            parts,
            width,
            swapped: k < sizes.outputs,
        }
    }

    /// The sums of one group over one part of the points.
    fn sum<T: Float>(
        &self,
        field: &Field,
        rows: &[usize],
        source: &[T],
        gradient: &[T],
        (g, part): (usize, usize),
        sums: &mut [T],
    ) {
        let Sizes { batch, groups, inputs, outputs, grid } = self.sizes;
        let (tile, points) = (T::tile(super::isa::current()), self.sizes.points());
        let total = batch * points;
        let blocks = total.div_ceil(self.width);
        let (from, to) = (blocks * part / self.parts, blocks * (part + 1) / self.parts);
        let source = &source[g * inputs * field.plane..];
        let (k, width) = (rows.len(), self.width);
        let [left, right] = [k, outputs].map(|rows| rows * width + Field::SLACK);
        let packed = packed_len(tile, width, if self.swapped { k } else { outputs });
        let mut spans: Vec<Run> = Vec::new();
        with_scratch(left + right + packed, |scratch: &mut [T]| {
            let (columns, rest) = scratch.split_at_mut(left);
            let (grads, packed) = rest.split_at_mut(right);
            for block in from..to {
                let first = block * width;
                let count = width.min(total - first);
                runs(field, grid, groups * inputs * field.plane, first, count, &mut spans);
                gather(source, rows, &spans, width, columns);
                for o in 0..outputs {
                    let mut done = 0;
                    while done < count {
                        let (n, r) = ((first + done) / points, (first + done) % points);
                        let len = (points - r).min(count - done);
                        let plane = (n * groups + g) * outputs + o;
                        grads[o * width + done..][..len]
                            .copy_from_slice(&gradient[plane * points + r..][..len]);
                        done += len;
                    }
                }
                let (a, b, m, n) = if self.swapped {
                    (&*grads, &*columns, outputs, k)
                } else {
                    (&*columns, &*grads, k, outputs)
                };
                pack(count, n, b, 1, width, tile.columns, packed);
                // SAFETY: `a` has m rows of `count` numbers, `width` apart; b was just packed; the
                // sums are `m * n` numbers of this item's own.
                unsafe {
                    let (a, c) = ((a.as_ptr(), width, 1), (sums.as_mut_ptr(), n));
                    multiply(tile, (m, n, count), a, packed.as_ptr(), c, block > from);
                }
            }
        });
        if from == to {
            sums.fill(T::ZERO);
        }
    }
}
