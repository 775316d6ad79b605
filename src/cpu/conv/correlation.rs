//! Grid points times filter: forward, and the data gradient.

use std::ops::Range;

use smallvec::SmallVec;

use super::super::field::{Field, gather, runs};
use super::super::float::Float;
use super::super::isa;
use super::super::micro::{Product, Tile, heights};
use super::super::pack::pack;
use super::super::parts::{Shared, with_scratch};
use super::super::threads::{get_num_threads, parallel_for};
use super::{DEPTH, Sizes, Target, WORTH_A_THREAD, displacements};

/// Longest sum of a tile of points, whose panel of filters comes from the second-level cache in time: a longer
/// one than [`DEPTH`], since single numbers of many channels' planes are brought together in C.
const POINTS_DEPTH: usize = 576;

/// For every grid point and result channel, the sum over source channels and taps of source times filter:
/// how that is computed for certain sizes.
pub struct Correlation<'a, T> {
    sizes: Sizes,
    field: &'a Field,
    tile: Tile<T>,
    way: Way,
}

impl<'a, T: Float> Correlation<'a, T> {
    /// The best way for these sizes on this processor.
    pub fn new(sizes: Sizes, field: &'a Field) -> Self {
        let tile = T::tile(isa::current());
        Correlation { sizes, field, tile, way: Way::of(sizes, field, tile) }
    }

    /// True when points are read one by one: then nothing is read behind the last of a row.
    pub fn takes_points(&self) -> bool {
        matches!(self.way, Way::Points)
    }

    /// Products in a sum.
    fn depth(&self) -> usize {
        self.sizes.inputs * self.field.taps.len()
    }

    /// Filters that are packed together.
    fn together(&self) -> usize {
        if let Way::Points = self.way { self.tile.columns } else { self.tile.rows }
    }

    /// Elements of a group's packed filters.
    fn group_len(&self) -> usize {
        self.sizes.outputs.next_multiple_of(self.together()) * self.depth()
    }

    /// Elements of the packed filters of all groups.
    pub fn filters_len(&self) -> usize {
        self.sizes.groups * self.group_len()
    }

    /// Packs filters. `weight(g)` is the row-major `outputs x (inputs * taps)` matrix of group g.
    pub fn pack_filters<'w>(&self, weight: impl Fn(usize) -> &'w [T], out: &mut [T]) {
        let (k, outputs) = (self.depth(), self.sizes.outputs);
        for (g, out) in out.chunks_exact_mut(self.group_len().max(1)).enumerate() {
            pack(k, outputs, weight(g), 1, k, self.together(), out);
        }
    }

    /// The sums, plus `bias` (one number per result channel of all groups). `source` holds the prepared
    /// planes `[batch, groups * inputs]`, `filters` comes from [`Correlation::pack_filters`].
    pub fn run(
        &self,
        source: &[T],
        filters: &[T],
        bias: Option<&[T]>,
        target: Target,
        out: &mut [T],
    ) {
        let &Correlation { sizes, field, tile, way } = self;
        let k = self.depth();
        let (last_row, last_column) = (sizes.grid[0] - 1, sizes.grid[1] - 1);
        let reach = target.first
            + (sizes.batch - 1) * target.image
            + (sizes.groups * sizes.outputs - 1) * target.channel
            + last_row * target.row
            + last_column * target.column;
        assert!(reach < out.len(), "the target is outside the output");
        let rows = displacements(field, sizes.inputs);
        // Panels of `tile.columns` points, or grid rows.
        let panels = way.panels(sizes, tile.columns);
        let points = if let Way::Points = way { sizes.grid[1] } else { tile.columns };
        let width = (panels / (2 * get_num_threads())).clamp(1, (256 / points).max(1));
        let blocks = panels.div_ceil(width);
        let out = Shared::new(out.as_mut_ptr());
        let flops = 2 * k * sizes.outputs * points * width;
        parallel_for(blocks * sizes.groups, WORTH_A_THREAD.div_ceil(flops), |range| {
            for item in range {
                let (g, block) = (item / blocks, item % blocks);
                let (first, end) = (block * width, (block * width + width).min(panels));
                let job = Block {
                    sizes,
                    field,
                    tile,
                    rows: &rows,
                    source: &source[g * sizes.inputs * field.channel..],
                    filters: &filters[g * self.group_len()..(g + 1) * self.group_len()],
                    bias: bias.map(|b| &b[g * sizes.outputs..(g + 1) * sizes.outputs]),
                    target: Target {
                        first: target.first + g * sizes.outputs * target.channel,
                        ..target
                    },
                };
                // SAFETY: the target lies inside the output (asserted above), and blocks and groups
                // are disjoint parts of it.
                unsafe {
                    match way {
                        Way::Packed => job.run(first..end, out.get()),
                        Way::Lines(lines) => job.run_lines(lines, first..end, out.get()),
                        Way::Points => job.run_points(first..end, out.get()),
                    }
                }
            }
        });
    }
}

/// Where tiles read the points.
#[derive(Clone, Copy)]
enum Way {
    /// In packed panels that go on from row to row and image to image.
    Packed,
    /// In the field, where nothing is copied, but lanes that are no points are lost.
    Lines(Lines),
    /// In the field, one by one: they are the rows of a tile, whose columns are filters.
    Points,
}

/// Straight lines of the field that tiles follow.
#[derive(Clone, Copy)]
struct Lines {
    /// Lines of an image.
    count: usize,
    /// Places of a line: points of a grid row, or all those of an image with the gaps between its rows.
    len: usize,
    /// Distance in the field between grid rows.
    pitch: usize,
}

impl Way {
    /// The way that takes least time.
    fn of<T>(sizes: Sizes, field: &Field, tile: Tile<T>) -> Way {
        let ([height, width], pitch) = (sizes.grid, field.grid_row);
        let k = (sizes.inputs * field.taps.len()).min(DEPTH) as f64;
        // In multiply-adds of a register of a row: a tile of few waits for its sums.
        let column = |rows: usize, wide: f64| -> f64 {
            heights(rows, tile.rows).map(|rows| (rows as f64 * wide).max(8.0)).sum()
        };
        let filters = column(sizes.outputs, 2.0);
        // Measured: packing takes as long as 50 of them for each row of a panel, and to bring a tile's
        // points to their places as long as 20 steps of its sum.
        let pieces = 1.0 + 20.0 / k;
        let rows = Way::Lines(Lines { count: height, len: width, pitch });
        let whole = Way::Lines(Lines { count: 1, len: (height - 1) * pitch + width, pitch });
        let last = sizes.outputs % tile.columns;
        let panels = (sizes.outputs / tile.columns) as f64 * column(width, 2.0)
            + match last {
                0 => 0.0,
                _ if last <= tile.columns / 2 => column(width, 1.0),
                _ => column(width, 2.0),
            };
        let ways = [
            (Way::Packed, filters + 50.0),
            (Way::Points, panels * pieces),
            (rows, filters),
            (whole, filters * pieces),
        ];
        // The rows of many source planes would push each other out of the first-level cache.
        let near = sizes.inputs.min(DEPTH.div_ceil(field.taps.len())) <= 64;
        let cost = |&(way, each): &(Way, f64)| way.panels(sizes, tile.columns) as f64 * each;
        let ways = ways.iter().take(if near { 4 } else { 2 });
        ways.min_by(|a, b| cost(a).total_cmp(&cost(b))).map_or(Way::Packed, |best| best.0)
    }

    /// How many tiles wide a group's points are; grid rows for [`Way::Points`].
    fn panels(self, sizes: Sizes, columns: usize) -> usize {
        match self {
            Way::Packed => (sizes.batch * sizes.points()).div_ceil(columns),
            Way::Points => sizes.batch * sizes.grid[0],
            Way::Lines(lines) => sizes.batch * lines.count * lines.len.div_ceil(columns),
        }
    }
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
        let wide = self.tile.columns;
        let mut spans = Vec::with_capacity(wide);
        let places: Vec<Place> = panels.clone().map(|p| self.place(p * wide)).collect();
        let deepest = self.steps(DEPTH).map(|(_, deep)| deep).max().unwrap_or(0);
        let len = deepest * panels.len() * wide + Field::SLACK;
        with_scratch(len + self.tile.rows * wide, |scratch: &mut [T]| {
            let (block, spill) = scratch.split_at_mut(len);
            for (k0, deep) in self.steps(DEPTH) {
                for i in 0..places.len() {
                    let panel = &mut block[i * deep * wide..];
                    let first = (panels.start + i) * wide;
                    let count = wide.min(self.sizes.batch * self.sizes.points() - first);
                    if count < wide {
                        panel[..deep * wide].fill(T::ZERO);
                    }
                    runs(self.field, self.sizes.grid, self.image(), first, count, &mut spans);
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

    /// The block of panels `panels`, each of a line of the field.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn run_lines(&self, lines: Lines, panels: Range<usize>, out: *mut T) {
        let wide = self.tile.columns;
        let in_line = lines.len.div_ceil(wide);
        let (mut places, mut sources) = (Vec::new(), Vec::new());
        let farthest = self.rows.iter().copied().max().unwrap_or(0);
        for p in panels {
            let (n, i, j) =
                (p / in_line / lines.count, p / in_line % lines.count, p % in_line * wide);
            places.push(self.place_in_line(lines, n, i, j));
            let at = n * self.image() + i * lines.pitch + j;
            // All that tiles read: `wide` places of each row.
            let reach = at + farthest + wide;
            assert!(reach <= self.source.len(), "the field's slack is too short");
            sources.push(self.source[at..].as_ptr());
        }
        with_scratch(self.tile.rows * wide, |spill: &mut [T]| {
            for (k0, deep) in self.steps(DEPTH) {
                let rows = self.rows[k0..k0 + deep].as_ptr();
                for (f, p) in self.order(places.len(), deep) {
                    // SAFETY: the caller's promise; the rows are in the field, as just checked
                    // for the farthest.
                    unsafe { self.tile(k0, deep, f, (sources[p], rows), &places[p], spill, out) };
                }
            }
        });
    }

    /// The grid rows `rows`, counted through the images.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn run_points(&self, rows: Range<usize>, out: *mut T) {
        let (k, wide, t) = (self.rows.len(), self.tile.columns, self.target);
        let [height, width] = self.sizes.grid;
        let farthest = self.rows.iter().copied().max().unwrap_or(0);
        with_scratch(wide, |start: &mut [T]| {
            for (k0, deep) in self.steps(POINTS_DEPTH) {
                for f in (0..self.sizes.outputs).step_by(wide) {
                    let count = wide.min(self.sizes.outputs - f);
                    let bias = self.bias.filter(|_| k0 == 0).map(|bias| {
                        start[..count].copy_from_slice(&bias[f..f + count]);
                        start[count..].fill(T::ZERO);
                        start.as_ptr()
                    });
                    for row in rows.clone() {
                        let (n, i) = (row / height, row % height);
                        let at = n * self.image() + i * self.field.grid_row;
                        let to = t.first + n * t.image + i * t.row + f * t.channel;
                        assert!(
                            at + farthest + width <= self.source.len(),
                            "the field is too short"
                        );
                        // SAFETY: the points are in the field, as just checked for the farthest; the
                        // panel of filters has `deep` rows from k0 on; the rest is the caller's promise.
                        unsafe {
                            (self.tile.run)(Product {
                                k: deep,
                                a: self.source.as_ptr().add(at),
                                columns: self.rows[k0..].as_ptr(),
                                b: self.filters[f * k + k0 * wide..].as_ptr(),
                                c: out.add(to),
                                c_row: t.column,
                                c_column: t.channel,
                                m: width,
                                n: count,
                                add: k0 > 0,
                                start: bias.unwrap_or(std::ptr::null()),
                                ..Product::default()
                            });
                        }
                    }
                }
            }
        });
    }

    /// The sums' parts: where each begins, and how many products it has.
    fn steps(&self, deepest: usize) -> impl Iterator<Item = (usize, usize)> + use<T> {
        let k = self.rows.len();
        let depth = k.div_ceil(k.div_ceil(deepest)).max(1);
        (0..k).step_by(depth).map(move |k0| (k0, depth.min(k - k0)))
    }

    /// The distance between the prepared planes of images.
    fn image(&self) -> usize {
        self.field.image(self.sizes.groups * self.sizes.inputs)
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
        let straight = place.straight.then(|| place.runs[0]);
        let product = Product {
            k: deep,
            a: self.filters[f * rows * k + k0 * rows..].as_ptr(),
            a_column: rows,
            b: panel.0,
            rows: panel.1,
            c: match straight {
                // SAFETY: inside the output by the caller's word.
                Some(run) => unsafe { out.add(run.at + channel) },
                None => spill.as_mut_ptr(),
            },
            c_row: if straight.is_some() { self.target.channel } else { wide },
            m,
            n: straight.map_or(wide, |run| run.len),
            add: k0 > 0 && straight.is_some(),
            start,
            ..Product::default()
        };
        // SAFETY: `deep` rows on both sides; C is the output's or `rows * wide` of scratch.
        unsafe { (self.tile.run)(product) };
        if straight.is_some() {
            return;
        }
        for (i, line) in spill.chunks_exact(wide).take(m).enumerate() {
            for run in &place.runs {
                let line = &line[run.lane..run.lane + run.len];
                let at = run.at + channel + i * self.target.channel;
                // SAFETY: inside the output by the caller's word.
                unsafe { bring(line, out.add(at), self.target.column, k0 > 0) };
            }
        }
    }

    /// Where the points of a packed panel from `first` on go.
    fn place(&self, first: usize) -> Place {
        let (points, [_, width]) = (self.sizes.points(), self.sizes.grid);
        let end = (first + self.tile.columns).min(self.sizes.batch * points);
        let mut place = Place::default();
        let mut at = first;
        while at < end {
            let (n, i, j) = (at / points, at % points / width, at % width);
            let len = (width - j).min(end - at);
            place.add(self.target, at - first, (n, i, j), len);
            at += len;
        }
        place.finished(self.target)
    }

    /// Where the points of a panel from place j of line i of image n on go.
    fn place_in_line(&self, lines: Lines, n: usize, i: usize, j: usize) -> Place {
        let [_, width] = self.sizes.grid;
        let end = (j + self.tile.columns).min(lines.len);
        let mut place = Place::default();
        let mut at = j;
        while at < end {
            let (row, column) = (i + at / lines.pitch, at % lines.pitch);
            let next = (at - column + lines.pitch).min(end);
            if column < width {
                place.add(self.target, at - j, (n, row, column), (width - column).min(next - at));
            }
            at = next;
        }
        place.finished(self.target)
    }
}

/// Where the points of a panel go.
#[derive(Default)]
struct Place {
    /// Its lanes that are points.
    runs: SmallVec<[Lanes; 4]>,
    /// It is one dense run from the first lane on.
    straight: bool,
}

/// Neighbouring lanes whose points follow one another in the output.
#[derive(Clone, Copy)]
struct Lanes {
    lane: usize,
    at: usize,
    len: usize,
}

impl Place {
    /// Adds `len` points of a grid row from (image, row, column) on.
    fn add(&mut self, t: Target, lane: usize, (n, i, j): (usize, usize, usize), len: usize) {
        let at = t.first + n * t.image + i * t.row + j * t.column;
        match self.runs.last_mut() {
            Some(last) if last.lane + last.len == lane && last.at + last.len * t.column == at => {
                last.len += len;
            }
            _ => self.runs.push(Lanes { lane, at, len }),
        }
    }

    fn finished(mut self, t: Target) -> Self {
        self.straight = t.column == 1 && self.runs.len() == 1 && self.runs[0].lane == 0;
        self
    }
}

/// Stores or adds a few numbers, `column` apart.
///
/// # Safety
/// They are the caller's to write.
#[inline(always)]
unsafe fn bring<T: Float>(line: &[T], to: *mut T, column: usize, add: bool) {
    const PIECE: usize = 4;
    // SAFETY: the caller's promise; pieces are inside the line.
    unsafe {
        let mut j = 0;
        if column == 1 && !add {
            // A call of memcpy would take longer than this.
            while j + PIECE <= line.len() {
                let piece = line.as_ptr().add(j).cast::<[T; PIECE]>().read();
                to.add(j).cast::<[T; PIECE]>().write(piece);
                j += PIECE;
            }
        }
        while j < line.len() {
            let to = &mut *to.add(j * column);
            *to = if add { *to + line[j] } else { line[j] };
            j += 1;
        }
    }
}
