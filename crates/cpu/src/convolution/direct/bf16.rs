//! [`Correlation`](super::Correlation) of bf16 numbers in pairs, see [`pairs`](crate::products::pairs): pairs of
//! source channels, of which the planes are prepared. Points are gathered in packed panels, one at a time, past
//! which all filters go, but for taps that see the border only ([`zones`](super::zones)).

use std::ops::Range;

use half::bf16;

use super::zones::{Zone, zones};
use super::{Sizes, Target, WORTH_A_THREAD};
use crate::convolution::field::{Field, Window, runs};
use crate::numbers::widen::Widen;
use crate::products::micro::{Product, heights};
use crate::products::pack::pack;
use crate::products::pairs::{
    self, Gather, HalfPanels, Kernels, ROWS, Scatter, interleave_channels, interleave_lines,
};
use crate::products::run::Run;
use crate::threads::parts::{Parts, Shared, with_scratch};
use crate::threads::{GRAIN, parallel_for};

/// Most steps of a gathered panel, which take 128 bytes each and stay in the first-level cache.
const DEPTH: usize = 256;
/// Sums of the panels that are computed together where they have several parts: they stay in the second-level
/// cache beside the filters.
const SUMS: usize = 64 << 10;
/// Result channels that fill a tile.
const FILLED: usize = 8;

/// For every grid point and result channel, the sum over source channels and taps of source times filter.
pub struct HalfCorrelation<'a> {
    sizes: Sizes,
    field: &'a Field,
    kernels: Kernels,
    parts: Vec<Part>,
}

/// A zone's panels, all of as many steps.
struct Part {
    zone: Zone,
    panels: usize,
    /// The field's displacement of each step.
    rows: Vec<usize>,
    /// Steps that are taken together: where they begin in the packed filters, and which of `rows` they are.
    pieces: Vec<(usize, Range<usize>)>,
}

/// Filters where they are: that of group g, result channel o and source channel c has tap t at
/// `data[g * group + o * output + c * input + taps[t]]`.
#[derive(Clone, Copy)]
pub struct HalfFilters<'a> {
    /// All numbers.
    pub data: &'a [bf16],
    /// Distance between groups.
    pub group: usize,
    /// Distance between result channels.
    pub output: usize,
    /// Distance between source channels.
    pub input: usize,
    /// The field's taps.
    pub taps: &'a [usize],
}

impl<'a> HalfCorrelation<'a> {
    /// Whether this processor has the instructions and such sizes gain by them.
    pub fn pays(sizes: Sizes) -> bool {
        sizes.inputs > 1 && sizes.outputs >= FILLED && pairs::kernels().is_some()
    }

    /// For these sizes and the field of this window, where that is there.
    pub fn new(sizes: Sizes, window: &Window, field: &'a Field) -> Option<Self> {
        let kernels = pairs::kernels()?;
        let mut all = HalfCorrelation { sizes, field, kernels, parts: Vec::new() };
        let zones = zones(window, |zone| all.cost(zone));
        all.parts = zones.into_iter().map(|zone| all.part(zone)).collect();
        Some(all)
    }

    /// About how many cycles a zone takes.
    fn cost(&self, zone: &Zone) -> f64 {
        let [height, width] = zone.grid;
        let half = self.kernels.tile.columns / 2;
        let halves = (self.sizes.batch * height * width).div_ceil(half) as f64;
        let (outputs, runs) = (self.sizes.outputs as f64, half.div_ceil(width) as f64);
        let steps = (zone.taps.len() * self.pairs()) as f64;
        // Each step is a product with every filter, and gathers runs, one after the other; sums go to runs, and
        // through the cache between pieces.
        let pieces = self.pieces(zone).len() as f64;
        halves * (steps * (outputs + 2.0 * runs) + outputs * (2.0 * runs + 2.0 * pieces))
    }

    /// How a zone's steps are taken: runs of its taps, not too long.
    fn pieces(&self, zone: &Zone) -> Vec<(usize, Range<usize>)> {
        let (pairs, mut pieces, mut at) = (self.pairs(), Vec::new(), 0);
        for run in zone.taps.chunk_by(|a, b| a + 1 == *b) {
            let (first, len) = (run[0] * pairs, run.len() * pairs);
            let depth = len.div_ceil(len.div_ceil(DEPTH));
            for k in (0..len).step_by(depth) {
                pieces.push((first + k, at + k..at + len.min(k + depth)));
            }
            at += len;
        }
        pieces
    }

    fn part(&self, zone: Zone) -> Part {
        let points = self.sizes.batch * zone.grid[0] * zone.grid[1];
        let tap = |&t: &usize| {
            let plane = |pair: usize| pair * self.field.channel + self.field.taps[t];
            (0..self.pairs()).map(plane).collect::<Vec<usize>>()
        };
        Part {
            panels: points.div_ceil(self.kernels.tile.columns),
            rows: zone.taps.iter().flat_map(tap).collect(),
            pieces: self.pieces(&zone),
            zone,
        }
    }

    /// Pairs of source channels of a group.
    fn pairs(&self) -> usize {
        self.sizes.inputs.div_ceil(2)
    }

    /// Steps of the packed filters: for each tap, all pairs.
    fn depth(&self) -> usize {
        self.pairs() * self.field.taps.len()
    }

    /// Elements of a group's packed filters.
    fn group_len(&self) -> usize {
        let rows = self.kernels.tile.rows;
        self.sizes.outputs.div_ceil(rows) * rows * self.depth()
    }

    /// Pairs of the packed filters of all groups.
    pub fn filters_len(&self) -> usize {
        self.sizes.groups * self.group_len()
    }

    /// Packs filters for the tiles.
    ///
    /// # Panics
    /// When `out` is not of [`HalfCorrelation::filters_len`], or the filters' data too short.
    pub fn pack_filters(&self, filters: HalfFilters, out: &mut [f32]) {
        let (rows, k, outputs) = (self.kernels.tile.rows, self.depth(), self.sizes.outputs);
        assert_eq!(out.len(), self.filters_len());
        let tiles: Vec<(usize, usize)> = heights(outputs, rows)
            .scan(0, |first, count| {
                *first += count;
                Some((*first - count, count))
            })
            .collect();
        let parts = Parts::new(out);
        parallel_for(self.sizes.groups * tiles.len(), GRAIN.div_ceil(rows * k), |range| {
            for item in range {
                let (g, (first, count)) = (item / tiles.len(), tiles[item % tiles.len()]);
                // SAFETY: tiles are disjoint.
                let out = unsafe { parts.slice(item * rows * k..(item + 1) * rows * k) };
                let data = &filters.data[g * filters.group + first * filters.output..];
                self.pack_tile(data, count, filters, out);
            }
        });
    }

    /// The `count` filters of a tile, of which `data` begins with the first.
    fn pack_tile(&self, data: &[bf16], count: usize, filters: HalfFilters, out: &mut [f32]) {
        let HalfFilters { output, input, taps, .. } = filters;
        let (width, inputs, k) = (self.kernels.tile.rows, self.sizes.inputs, self.depth());
        let farthest = taps.iter().copied().max().unwrap_or(0);
        assert!((count - 1) * output + (inputs - 1) * input + farthest < data.len());
        assert!(width * k <= out.len());
        if let &[tap] = taps {
            let panel = HalfPanels {
                k: inputs,
                source: data[tap..].as_ptr(),
                row: input as isize,
                column: output as isize,
                count,
                width,
                out: out.as_mut_ptr(),
                distance: 0,
            };
            // SAFETY: all of the filters is in the data, as just checked, and the panel in `out`.
            return unsafe { pairs::pack(panel) };
        }
        with_scratch(count * k + pairs::SLACK + width * k, |lines: &mut [f32]| {
            let (lines, panel) = lines.split_at_mut(count * k + pairs::SLACK);
            for i in 0..count {
                let data = &data[i * output..];
                interleave_channels(data, (inputs, input), taps, &mut lines[i * k..]);
            }
            pack(k, count, lines, 1, k, width, panel);
            tap_by_tap::<ROWS>(panel, taps.len(), out);
        });
    }

    /// Pairs of the prepared planes.
    pub fn source_len(&self) -> usize {
        self.sizes.batch * self.sizes.groups * self.pairs() * self.field.plane
    }

    /// Prepares the planes `[batch, groups * inputs]`.
    ///
    /// # Panics
    /// When there are too few, or `out` is not of [`HalfCorrelation::source_len`].
    pub fn prepare(&self, source: &[bf16], [h, w]: [usize; 2], out: &mut [f32]) {
        let (inputs, pairs, plane) = (self.sizes.inputs, self.pairs(), self.field.plane);
        assert_eq!(out.len(), self.source_len());
        let parts = Parts::new(out);
        let planes = self.sizes.batch * self.sizes.groups * pairs;
        parallel_for(planes, GRAIN.div_ceil(plane), |range| {
            with_scratch(h * w, |scratch: &mut [f32]| {
                for p in range {
                    // SAFETY: planes are disjoint.
                    let out = unsafe { parts.slice(p * plane..(p + 1) * plane) };
                    let first = p / pairs * inputs + 2 * (p % pairs);
                    let even = &source[first * h * w..][..h * w];
                    let odd = 2 * (p % pairs) + 1 < inputs;
                    let odd = odd.then(|| &source[(first + 1) * h * w..][..h * w]);
                    if self.field.direct {
                        interleave_lines(even, odd, out);
                    } else {
                        interleave_lines(even, odd, scratch);
                        self.field.fill_plane(scratch, [h, w], out);
                    }
                }
            });
        });
    }

    /// The sums, plus `bias` (one number per result channel of all groups), rounded.
    ///
    /// # Panics
    /// When prepared planes, filters or bias are not of their lengths, or the target is outside the output.
    pub fn run(
        &self,
        source: &[f32],
        filters: &[f32],
        bias: Option<&[bf16]>,
        target: Target,
        out: &mut [bf16],
    ) {
        let Sizes { groups, outputs, .. } = self.sizes;
        assert!(target.last(self.sizes) < out.len(), "the target is outside the output");
        assert!(source.len() == self.source_len() && filters.len() == self.filters_len());
        assert!(bias.is_none_or(|bias| bias.len() == groups * outputs));
        let points = self.kernels.tile.columns;
        // Threads share the steps, of which panels have more or fewer.
        let steps: usize = self.parts.iter().map(|part| part.panels * part.rows.len()).sum();
        let out = Shared::new(out.as_mut_ptr());
        let grain = WORTH_A_THREAD.div_ceil(2 * outputs * points);
        parallel_for(groups * steps, grain, |range| {
            let mut first = 0;
            for g in 0..groups {
                let group = Group {
                    all: self,
                    source: &source[g * self.pairs() * self.field.plane..],
                    filters: &filters[g * self.group_len()..(g + 1) * self.group_len()],
                    bias: bias.map(|bias| &bias[g * outputs..(g + 1) * outputs]),
                    target: Target { first: target.first + g * outputs * target.channel, ..target },
                };
                for part in &self.parts {
                    // The panels that begin in the range.
                    let panel = |at: usize| {
                        at.saturating_sub(first).div_ceil(part.rows.len()).min(part.panels)
                    };
                    // SAFETY: the target lies inside the output (asserted above), and panels, zones and groups are
                    // disjoint parts of it.
                    unsafe { group.run(part, panel(range.start)..panel(range.end), out.get()) };
                    first += part.panels * part.rows.len();
                }
            }
        });
    }
}

/// Brings a panel's steps, which are pair by pair, to their places tap by tap.
fn tap_by_tap<const WIDTH: usize>(panel: &[f32], taps: usize, out: &mut [f32]) {
    let (from, to) = (panel.as_chunks::<WIDTH>().0, out.as_chunks_mut::<WIDTH>().0);
    for (tap, to) in to.chunks_exact_mut(from.len() / taps).enumerate() {
        for (to, from) in to.iter_mut().zip(from[tap..].iter().step_by(taps)) {
            *to = *from;
        }
    }
}

/// One group's points.
struct Group<'a> {
    all: &'a HalfCorrelation<'a>,
    source: &'a [f32],
    filters: &'a [f32],
    bias: Option<&'a [bf16]>,
    target: Target,
}

impl Group<'_> {
    /// Some panels of a zone.
    ///
    /// # Safety
    /// The target lies inside `out`, and nobody else uses the panels' part of it.
    unsafe fn run(&self, part: &Part, panels: Range<usize>, out: *mut bf16) {
        if panels.is_empty() {
            return;
        }
        let (tile, k) = (self.all.kernels.tile, self.all.depth());
        let Sizes { outputs, batch, .. } = self.all.sizes;
        let Zone { origin, grid, .. } = part.zone;
        let each = outputs * tile.columns;
        let together = if part.pieces.len() == 1 { 1 } else { (SUMS / each).clamp(1, 8) };
        let depth = part.pieces.iter().map(|(_, rows)| rows.len()).max().unwrap_or(0);
        let image = self.all.sizes.groups * self.all.pairs() * self.all.field.plane;
        let source = &self.source[origin[0] * self.all.field.grid_row + origin[1]..];
        let mut spans = Vec::with_capacity(tile.columns);
        with_scratch(depth * tile.columns + together * each, |scratch: &mut [f32]| {
            let (panel, sums) = scratch.split_at_mut(depth * tile.columns);
            for p0 in panels.clone().step_by(together) {
                for (piece, (first, rows)) in part.pieces.iter().enumerate() {
                    for p in p0..(p0 + together).min(panels.end) {
                        let at = p * tile.columns;
                        let count = tile.columns.min(batch * grid[0] * grid[1] - at);
                        runs(self.all.field, grid, image, at, count, &mut spans);
                        let sums = sums[(p - p0) * each..][..each].as_mut_ptr();
                        let gathered = Gather {
                            source: source.as_ptr(),
                            rows: &part.rows[rows.clone()],
                            runs: &spans,
                            out: panel.as_mut_ptr(),
                        };
                        let product = Product {
                            k: rows.len(),
                            a: self.filters[first * tile.rows..].as_ptr(),
                            a_column: tile.rows,
                            a_tile: tile.rows * k,
                            b: panel.as_ptr(),
                            c: sums,
                            c_row: tile.columns,
                            m: outputs,
                            n: count.next_multiple_of(tile.columns / 2),
                            add: piece > 0,
                            ..Product::default()
                        };
                        // SAFETY: runs displaced by the field's taps are in the prepared planes; panel and
                        // sums have room.
                        unsafe {
                            (self.all.kernels.gather)(gathered);
                            (tile.run)(product);
                            if piece + 1 == part.pieces.len() {
                                self.store(&part.zone, sums, at, count, &mut spans, out);
                            }
                        }
                    }
                }
            }
        });
    }

    /// Brings sums of `count` points of a zone from `first` on to their places.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn store(
        &self,
        zone: &Zone,
        sums: *const f32,
        first: usize,
        count: usize,
        spans: &mut Vec<Run>,
        out: *mut bf16,
    ) {
        let (sizes, t, wide) = (self.all.sizes, self.target, self.all.kernels.tile.columns);
        let ([height, width], [top, left]) = (zone.grid, zone.origin);
        spans.clear();
        let mut at = first;
        while at < first + count {
            let (n, i, j) = (at / (height * width), at / width % height, at % width);
            let len = (width - j).min(first + count - at);
            let source = t.first + n * t.image + (top + i) * t.row + (left + j) * t.column;
            match spans.last_mut() {
                Some(last) if t.column == 1 && last.source + last.len == source => last.len += len,
                _ => spans.push(Run { source, column: at - first, len }),
            }
            at += len;
        }
        let bias = self.bias.map_or(std::ptr::null(), <[bf16]>::as_ptr);
        if t.column == 1 {
            let (from, rows, row) = (sums, sizes.outputs, t.channel);
            // SAFETY: this function's contract; the sums are there.
            unsafe {
                (self.all.kernels.scatter)(Scatter { from, rows, bias, to: out, row, runs: spans })
            };
            return;
        }
        for c in 0..sizes.outputs {
            let start = self.bias.map_or(0.0, |bias| bias[c].widen());
            for run in spans.iter() {
                for j in 0..run.len {
                    // SAFETY: the sums have this number, and the run's point lies in the output by
                    // `run`'s contract.
                    unsafe {
                        let sum = *sums.add(c * wide + run.column + j) + start;
                        let to = out.add(run.source + c * t.channel + j * t.column);
                        to.write(bf16::narrow(sum));
                    }
                }
            }
        }
    }
}
