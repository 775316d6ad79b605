//! [`Correlation`](super::Correlation) of bf16 numbers in pairs, see [`pairs`](crate::cpu::pairs): pairs of
//! source channels, of which the planes are prepared. Points are gathered in packed panels, one at a time, past
//! which all filters go.

use half::bf16;

use super::super::field::{Field, Run, runs};
use super::super::micro::{Product, heights};
use super::super::pack::pack;
use super::super::pairs::{
    self, Gather, HalfPanels, Kernels, Scatter, interleave_channels, interleave_lines,
};
use super::super::parts::{Parts, Shared, with_scratch};
use super::super::threads::{GRAIN, parallel_for};
use super::super::widen::Widen;
use super::{Sizes, Target, WORTH_A_THREAD, displacements};

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

    /// For these sizes, where that is there.
    pub fn new(sizes: Sizes, field: &'a Field) -> Option<Self> {
        pairs::kernels().map(|kernels| HalfCorrelation { sizes, field, kernels })
    }

    /// Pairs of source channels of a group.
    fn pairs(&self) -> usize {
        self.sizes.inputs.div_ceil(2)
    }

    /// Steps of a sum.
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
        with_scratch(count * k + pairs::SLACK, |lines: &mut [f32]| {
            for i in 0..count {
                let data = &data[i * output..];
                interleave_channels(data, (inputs, input), taps, &mut lines[i * k..]);
            }
            pack(k, count, lines, 1, k, width, out);
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
        let Sizes { batch, groups, outputs, grid, .. } = self.sizes;
        let channels = groups * outputs;
        let reach = target.first
            + (batch - 1) * target.image
            + (channels - 1) * target.channel
            + (grid[0] - 1) * target.row
            + (grid[1] - 1) * target.column;
        assert!(reach < out.len(), "the target is outside the output");
        assert!(source.len() == self.source_len() && filters.len() == self.filters_len());
        assert!(bias.is_none_or(|bias| bias.len() == channels));
        let rows = displacements(self.field, self.pairs());
        let points = self.kernels.tile.columns;
        let panels = (batch * self.sizes.points()).div_ceil(points);
        let out = Shared::new(out.as_mut_ptr());
        let flops = 2 * rows.len() * outputs * points;
        parallel_for(groups * panels, WORTH_A_THREAD.div_ceil(flops), |range| {
            let mut first = range.start;
            while first < range.end {
                let g = first / panels;
                let end = ((g + 1) * panels).min(range.end);
                let group = Group {
                    all: self,
                    rows: &rows,
                    source: &source[g * self.pairs() * self.field.plane..],
                    filters: &filters[g * self.group_len()..(g + 1) * self.group_len()],
                    bias: bias.map(|bias| &bias[g * outputs..(g + 1) * outputs]),
                    target: Target { first: target.first + g * outputs * target.channel, ..target },
                };
                // SAFETY: the target lies inside the output (asserted above), and panels and groups are
                // disjoint parts of it.
                unsafe { group.run(first - g * panels, end - g * panels, out.get()) };
                first = end;
            }
        });
    }
}

/// One group's points.
struct Group<'a> {
    all: &'a HalfCorrelation<'a>,
    rows: &'a [usize],
    source: &'a [f32],
    filters: &'a [f32],
    bias: Option<&'a [bf16]>,
    target: Target,
}

impl Group<'_> {
    /// Panels `first..end`.
    ///
    /// # Safety
    /// The target lies inside `out`, and nobody else uses the panels' part of it.
    unsafe fn run(&self, first: usize, end: usize, out: *mut bf16) {
        let (tile, k) = (self.all.kernels.tile, self.rows.len());
        let Sizes { outputs, batch, .. } = self.all.sizes;
        let depth = k.div_ceil(k.div_ceil(DEPTH));
        let each = outputs * tile.columns;
        let together = if depth == k { 1 } else { (SUMS / each).clamp(1, 8) };
        let panel_len = depth * tile.columns;
        let image = self.all.sizes.groups * self.all.pairs() * self.all.field.plane;
        let mut spans = Vec::with_capacity(tile.columns);
        with_scratch(panel_len + together * each, |scratch: &mut [f32]| {
            let (panel, sums) = scratch.split_at_mut(panel_len);
            for p0 in (first..end).step_by(together) {
                for k0 in (0..k).step_by(depth) {
                    let deep = depth.min(k - k0);
                    for p in p0..(p0 + together).min(end) {
                        let at = p * tile.columns;
                        let count = tile.columns.min(batch * self.all.sizes.points() - at);
                        runs(self.all.field, self.all.sizes.grid, image, at, count, &mut spans);
                        let sums = sums[(p - p0) * each..][..each].as_mut_ptr();
                        let gathered = Gather {
                            source: self.source.as_ptr(),
                            rows: &self.rows[k0..k0 + deep],
                            runs: &spans,
                            out: panel.as_mut_ptr(),
                        };
                        let product = Product {
                            k: deep,
                            a: self.filters[k0 * tile.rows..].as_ptr(),
                            a_column: tile.rows,
                            a_tile: tile.rows * k,
                            b: panel.as_ptr(),
                            c: sums,
                            c_row: tile.columns,
                            m: outputs,
                            n: count.next_multiple_of(tile.columns / 2),
                            add: k0 > 0,
                            ..Product::default()
                        };
                        // SAFETY: runs displaced by the field's taps are in the prepared planes; panel and
                        // sums have room.
                        unsafe {
                            (self.all.kernels.gather)(gathered);
                            (tile.run)(product);
                            if k0 + deep == k {
                                self.store(sums, at, count, &mut spans, out);
                            }
                        }
                    }
                }
            }
        });
    }

    /// Brings sums of `count` points from `first` on to their places.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn store(
        &self,
        sums: *const f32,
        first: usize,
        count: usize,
        spans: &mut Vec<Run>,
        out: *mut bf16,
    ) {
        let (sizes, t, wide) = (self.all.sizes, self.target, self.all.kernels.tile.columns);
        let (points, width) = (sizes.points(), sizes.grid[1]);
        spans.clear();
        let mut at = first;
        while at < first + count {
            let (n, i, j) = (at / points, at % points / width, at % width);
            let len = (width - j).min(first + count - at);
            let source = t.first + n * t.image + i * t.row + j * t.column;
            match spans.last_mut() {
                Some(last) if t.column == 1 && last.source + last.len == source => last.len += len,
                _ => spans.push(Run { source, column: at - first, len }),
            }
            at += len;
        }
        let bias = self.bias.map_or(std::ptr::null(), <[bf16]>::as_ptr);
        if t.column == 1 {
            let (from, rows, row) = (sums, sizes.outputs, t.channel);
            // SAFETY: the caller's promise; the sums are there.
            unsafe {
                (self.all.kernels.scatter)(Scatter { from, rows, bias, to: out, row, runs: spans })
            };
            return;
        }
        for c in 0..sizes.outputs {
            let start = self.bias.map_or(0.0, |bias| bias[c].widen());
            for run in spans.iter() {
                for j in 0..run.len {
                    // SAFETY: as above.
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
