//! Grid points times filter: forward, and the data gradient.

use std::ops::Range;

use super::place::{Place, bring};
use super::steps::{Piece, Seen, Steps};
use super::way::{Lines, Way};
use super::{DEPTH, Sizes, Target, WORTH_A_THREAD};
use crate::arch::cache;
use crate::arch::isa;
use crate::arch::prefetch::Later;
use crate::convolution::field::{Field, gather, runs};
use crate::products::micro::{Product, SIDE, Tile, heights};
use crate::products::pack::pack;
use crate::products::tiled::Tiled;
use crate::threads::parts::{Parts, Shared, with_scratch};
use crate::threads::{GRAIN, get_num_threads, parallel_for, parallel_items};

/// Longest sum of a tile of points, whose panel of filters comes from the second-level cache in time: a longer
/// one than [`DEPTH`], since single numbers of many channels' planes are brought together in C.
const POINTS_DEPTH: usize = 1152;

/// Most tiles of filters that pass by a panel in one go.
const TILES: usize = 8;
/// Bytes of their numbers.
const FILTERS: usize = 96 << 10;
/// Bytes of source planes that are in the second-level cache by themselves.
const NEAR: usize = 512 << 10;

/// For every grid point and result channel, the sum over source channels and taps of source times filter:
/// how that is computed for certain sizes.
pub struct Correlation<'a, T> {
    sizes: Sizes,
    field: &'a Field,
    tile: Tile<T>,
    way: Way,
    steps: Steps,
    pieces: Vec<Piece>,
    /// Displacements of a sum's products, and the largest.
    rows: Vec<usize>,
    farthest: usize,
}

impl<'a, T: Tiled> Correlation<'a, T> {
    /// The best way for these sizes on this processor.
    pub fn new(sizes: Sizes, field: &'a Field) -> Self {
        let tile = T::tile(isa::current());
        let way = Way::of(sizes, field, tile);
        let (together, deepest) = match way {
            Way::Packed => (usize::MAX, DEPTH),
            Way::Points => (usize::MAX, POINTS_DEPTH),
            // Rows of few source planes at a time, which stay in the first-level cache.
            Way::Lines(_) => (DEPTH, DEPTH),
        };
        let steps = Steps::new(field, sizes, together, deepest);
        let (rows, pieces) = (steps.displacements(field, sizes.inputs), steps.pieces());
        let farthest = rows.iter().copied().max().unwrap_or(0);
        Correlation { sizes, field, tile, way, steps, pieces, rows, farthest }
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
    pub fn pack_filters<'w>(&self, weight: impl Fn(usize) -> &'w [T] + Sync, out: &mut [T])
    where
        T: 'w,
    {
        let (k, outputs, wide) = (self.depth(), self.sizes.outputs, self.together());
        let counts: Vec<usize> = match self.way {
            Way::Points => (0..outputs).step_by(wide).map(|f| wide.min(outputs - f)).collect(),
            _ => heights(outputs, wide).collect(),
        };
        let firsts: Vec<usize> = (counts.iter())
            .scan(0, |first, count| {
                *first += count;
                Some(*first - count)
            })
            .collect();
        // A thread has some channels of a panel where there are few panels.
        let (inputs, panels) = (self.sizes.inputs, self.sizes.groups * counts.len());
        let cuts = get_num_threads().div_ceil(panels).min(inputs);
        let taps = self.field.taps.len();
        let out = Parts::new(out);
        parallel_for(panels * cuts, GRAIN.div_ceil(wide * k / cuts), |range| {
            for item in range {
                let (item, cut) = (item / cuts, item % cuts);
                let (g, panel) = (item / counts.len(), item % counts.len());
                let range = inputs * cut / cuts * taps..inputs * (cut + 1) / cuts * taps;
                let filters = &weight(g)[firsts[panel] * k + range.start..];
                let packed = |range: Range<usize>| {
                    let at = item * k;
                    // SAFETY: panels are disjoint, and so are steps of one.
                    unsafe { out.slice((at + range.start) * wide..(at + range.end) * wide) }
                };
                if self.steps.is_plain() {
                    let len = range.len();
                    pack(len, counts[panel], filters, 1, k, wide, packed(range));
                    continue;
                }
                let (len, line) = (range.len(), self.steps.line());
                with_scratch(len * wide, |plain: &mut [T]| {
                    pack(len, counts[panel], filters, 1, k, wide, plain);
                    for (to, from) in self.steps.lines_of(range.clone()) {
                        let from = &plain[(from - range.start) * wide..][..line * wide];
                        packed(to * line..(to + 1) * line).copy_from_slice(from);
                    }
                });
            }
        });
    }

    /// The sums, plus `bias` (one number per result channel of all groups). `source` holds the prepared
    /// planes `[batch, groups * inputs]`, `filters` comes from [`Correlation::pack_filters`]; `depths` are the depth
    /// taps through which the images of a stack see the source, and not its border: one at least.
    pub fn run(
        &self,
        source: &[T],
        depths: &[Range<usize>],
        filters: &[T],
        bias: Option<&[T]>,
        target: Target,
        out: &mut [T],
    ) {
        let work = self.work((source, depths), filters, bias, target);
        // SAFETY: there is no other work.
        unsafe { run_together(&[work], out) }
    }

    /// What [`Correlation::run`] does, to be done by [`run_together`].
    pub fn work<'w>(
        &'w self,
        (source, depths): (&'w [T], &'w [Range<usize>]),
        filters: &'w [T],
        bias: Option<&'w [T]>,
        target: Target,
    ) -> Work<'w, T> {
        let &Correlation { sizes, field, tile, way, .. } = self;
        assert!(
            field.depths == 1 || depths.len() == sizes.batch,
            "each image sees some of the depth"
        );
        // Panels of points, or grid rows.
        let panels = way.panels(sizes, tile);
        let (points, most) = match way {
            Way::Points => {
                // The rows are read once for each panel of filters: they stay in the second-level cache.
                let row = sizes.inputs * field.grid_row * size_of::<T>();
                (sizes.grid[1], cache::second() / 2 / row.max(1))
            }
            _ => (tile.columns, usize::MAX),
        };
        let most = most.min(256 / points).max(1);
        let width = (panels / (2 * get_num_threads())).clamp(1, most);
        let blocks = panels.div_ceil(width);
        let flops = 2 * self.depth() * sizes.outputs * points * width;
        Work { of: self, source, depths, filters, bias, target, panels, width, blocks, flops }
    }
}

/// The work of a [`Correlation`], in blocks of points.
pub struct Work<'a, T> {
    of: &'a Correlation<'a, T>,
    source: &'a [T],
    depths: &'a [Range<usize>],
    filters: &'a [T],
    bias: Option<&'a [T]>,
    target: Target,
    /// Panels of points, of a block and of all.
    width: usize,
    panels: usize,
    /// Blocks of a group.
    blocks: usize,
    /// Floating-point operations of a block.
    flops: usize,
}

/// Does several works at once.
///
/// # Safety
/// Their targets are disjoint.
pub unsafe fn run_together<T: Tiled>(works: &[Work<T>], out: &mut [T]) {
    for work in works {
        let last = work.target.last(work.of.sizes);
        assert!(last < out.len(), "the target is outside the output");
    }
    let flops = works.iter().map(|work| work.flops).min().unwrap_or(0);
    // Block by block, since works may write points between each other's: a thread that does neighbouring items
    // finds its lines where it left them, and no other thread wants them.
    let most = works.iter().map(Work::len).max().unwrap_or(0);
    let items: Vec<(&Work<T>, usize)> = (0..most)
        .flat_map(|item| works.iter().map(move |work| (work, item)))
        .filter(|&(work, item)| item < work.len())
        .collect();
    let out = Shared::new(out.as_mut_ptr());
    parallel_items(items.len(), WORTH_A_THREAD.div_ceil(flops.max(1)), |i| {
        let (work, item) = items[i];
        // SAFETY: the target lies inside the output, as asserted, and other works' do not meet it.
        unsafe { work.run(item, out.get()) };
    });
}

impl<T: Tiled> Work<'_, T> {
    fn len(&self) -> usize {
        self.blocks * self.of.sizes.groups
    }

    /// Block `item` of those of all groups.
    ///
    /// # Safety
    /// The target lies inside `out`, and nobody else uses the block's part of it.
    unsafe fn run(&self, item: usize, out: *mut T) {
        let Correlation { sizes, field, tile, way, ref steps, ref pieces, ref rows, farthest } =
            *self.of;
        let (g, block) = (item / self.blocks, item % self.blocks);
        let first = block * self.width;
        let panels = first..self.panels.min(first + self.width);
        let group = self.of.group_len();
        let job = Block {
            sizes,
            field,
            tile,
            steps,
            pieces,
            depths: self.depths,
            rows,
            farthest,
            source: &self.source[g * sizes.inputs * field.channel..],
            filters: &self.filters[g * group..(g + 1) * group],
            bias: self.bias.map(|b| &b[g * sizes.outputs..(g + 1) * sizes.outputs]),
            target: Target {
                first: self.target.first + g * sizes.outputs * self.target.channel,
                ..self.target
            },
        };
        // SAFETY: this function's contract; blocks and groups are disjoint parts of the target.
        unsafe {
            match way {
                Way::Packed => job.run(panels, out),
                Way::Lines(lines) => job.run_lines(lines, panels, out),
                Way::Points => job.run_points(panels, out),
            }
        }
    }
}

/// Filters that follow one another.
#[derive(Clone, Copy)]
struct Filters {
    /// The first tile's number.
    tile: usize,
    first: usize,
    count: usize,
}

/// A block of grid points of one group.
struct Block<'a, T> {
    sizes: Sizes,
    field: &'a Field,
    tile: Tile<T>,
    steps: &'a Steps,
    pieces: &'a [Piece],
    /// The depth taps that each image sees, if it is one of a stack.
    depths: &'a [Range<usize>],
    /// Displacements of a sum's products, and the largest.
    rows: &'a [usize],
    farthest: usize,
    source: &'a [T],
    filters: &'a [T],
    bias: Option<&'a [T]>,
    target: Target,
}

impl<T: Tiled> Block<'_, T> {
    /// The block of packed panels `panels`.
    ///
    /// # Safety
    /// The target lies inside `out`, and nobody else uses the block's part of it.
    unsafe fn run(&self, panels: Range<usize>, out: *mut T) {
        let wide = self.tile.columns;
        let mut spans = Vec::with_capacity(wide);
        let places: Vec<Place> = panels.clone().map(|p| self.place(p * wide)).collect();
        let deepest = self.pieces.iter().map(|piece| piece.steps.len()).max().unwrap_or(0);
        let len = deepest * panels.len() * wide + Field::SLACK;
        with_scratch(len + self.most_filters() * wide, |scratch: &mut [T]| {
            let (block, spill) = scratch.split_at_mut(len);
            for piece in self.pieces {
                let deep = piece.steps.len();
                // The row of a panel that is a step's.
                let row = |p: usize, step: usize| (p * deep + step - piece.steps.start) * wide;
                for (i, place) in places.iter().enumerate() {
                    let first = (panels.start + i) * wide;
                    let count = wide.min(self.sizes.batch * self.sizes.points() - first);
                    runs(self.field, self.sizes.grid, self.image(), first, count, &mut spans);
                    for steps in self.steps.seen(piece, place.seen) {
                        let panel = &mut block[row(i, steps.start)..];
                        if count < wide {
                            panel[..steps.len() * wide].fill(T::ZERO);
                        }
                        gather(self.source, &self.rows[steps], &spans, wide, panel);
                    }
                }
                for filters in self.filters(deep) {
                    for (p, place) in places.iter().enumerate() {
                        for steps in self.steps.seen(piece, place.seen) {
                            let panel = &block[row(p, steps.start)..][..steps.len() * wide];
                            // SAFETY: this function's contract; the panel has a row for each step.
                            unsafe {
                                let panel = (panel.as_ptr(), std::ptr::null());
                                self.tiles(steps, filters, panel, place, spill, out);
                            }
                        }
                    }
                }
            }
        });
    }

    /// The block of panels `panels`, each of a line of the field.
    ///
    /// # Safety
    /// As `run`.
    unsafe fn run_lines(&self, lines: Lines, panels: Range<usize>, out: *mut T) {
        let far = size_of_val(self.source) > NEAR;
        let count = panels.len();
        let (mut places, mut sources) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut later = Vec::with_capacity(if far { count } else { 0 });
        let turns = self.pieces.iter().map(|piece| self.filters(piece.steps.len()).count()).sum();
        let (tap, columns) =
            (self.field.taps.iter().copied().max().unwrap_or(0), self.tile.columns);
        for p in panels.clone() {
            let (line, panel) = (p / lines.panels, p % lines.panels);
            let (n, i) = (line / lines.count, line % lines.count);
            let range = lines.panel(panel, columns);
            let at = n * self.image() + i * lines.pitch + range.start;
            if far {
                let next = match lines.count {
                    1 => (0, panel + panels.len()),
                    _ => (i + panels.len().div_ceil(lines.panels), panel),
                };
                let (news, each) = lines.news(next, tap, columns);
                let first = self.source.as_ptr().wrapping_add(n * self.image() + news);
                let planes = (self.sizes.inputs, self.field.channel);
                later.push(Later::new(first, each, planes, turns));
            }
            let place = self.place_in_line(lines, n, i, range);
            // All that tiles read: the panel's registers of each row.
            let reach = at + self.farthest + place.wide;
            assert!(reach <= self.source.len(), "the field's slack is too short");
            sources.push(self.source[at..].as_ptr());
            places.push(place);
        }
        with_scratch(self.most_filters() * self.tile.widest, |spill: &mut [T]| {
            for piece in self.pieces {
                for filters in self.filters(piece.steps.len()) {
                    for (p, place) in places.iter().enumerate() {
                        if far {
                            later[p].bring();
                        }
                        for steps in self.steps.seen(piece, place.seen) {
                            // SAFETY: this function's contract; the rows are in the field, as just checked
                            // for the farthest.
                            unsafe {
                                let panel = (sources[p], self.rows[steps.start..].as_ptr());
                                self.tiles(steps, filters, panel, place, spill, out);
                            }
                        }
                    }
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
        with_scratch(wide, |start: &mut [T]| {
            for piece in self.pieces {
                for f in (0..self.sizes.outputs).step_by(wide) {
                    let count = wide.min(self.sizes.outputs - f);
                    let bias = self.bias.map(|bias| {
                        start[..count].copy_from_slice(&bias[f..f + count]);
                        start[count..].fill(T::ZERO);
                        start.as_ptr()
                    });
                    for row in rows.clone() {
                        let (n, i) = (row / height, row % height);
                        let seen = self.seen(n, i);
                        let at = n * self.image() + i * self.field.grid_row;
                        let to = t.first + n * t.image + i * t.row + f * t.channel;
                        assert!(
                            at + self.farthest + width <= self.source.len(),
                            "the field is too short"
                        );
                        for steps in self.steps.seen(piece, seen) {
                            let first = steps.start == self.steps.first(seen);
                            // SAFETY: the points are in the field, as just checked for the farthest; the
                            // panel of filters has a row for each step; the target is this thread's.
                            unsafe {
                                (self.tile.run)(Product {
                                    k: steps.len(),
                                    a: self.source.as_ptr().add(at),
                                    columns: self.rows[steps.start..].as_ptr(),
                                    b: self.filters[f * k + steps.start * wide..].as_ptr(),
                                    c: out.add(to),
                                    c_row: t.column,
                                    c_column: t.channel,
                                    m: width,
                                    n: count,
                                    add: !first,
                                    start: bias.filter(|_| first).unwrap_or(std::ptr::null()),
                                    ..Product::default()
                                });
                            }
                        }
                    }
                }
            }
        });
    }

    /// What the points of a grid row of an image see, if it is asked.
    #[inline(always)]
    fn seen(&self, n: usize, i: usize) -> Seen {
        if self.steps.is_plain() {
            return Seen::default();
        }
        let depths = if self.field.depths == 1 { &(0..1) } else { &self.depths[n] };
        Seen::new(depths, &self.field.sees[i])
    }

    /// The distance between the prepared planes of images.
    fn image(&self) -> usize {
        self.field.image(self.sizes.groups * self.sizes.inputs)
    }

    /// Most filters that pass by a panel in one go.
    fn most_filters(&self) -> usize {
        (TILES * self.tile.rows).min(self.sizes.outputs)
    }

    /// The filters in groups that pass by a panel of points in one go, `deep` steps of each, which come from
    /// the second-level cache.
    fn filters(&self, deep: usize) -> impl Iterator<Item = Filters> + use<T> {
        let rows = self.tile.rows;
        let together = (FILTERS / (rows * deep * size_of::<T>())).clamp(1, TILES);
        let mut tiles = heights(self.sizes.outputs, rows);
        let mut next = Filters { tile: 0, first: 0, count: 0 };
        std::iter::from_fn(move || {
            let (group, height) =
                tiles.by_ref().take(together).fold((0, 0), |(t, m), h| (t + 1, m + h));
            let filters = Filters { count: height, ..next };
            next = Filters { tile: next.tile + group, first: next.first + height, count: 0 };
            (group > 0).then_some(filters)
        })
    }

    /// The tiles of some filters for some steps of one panel, which is their right operand as in [`Product`].
    ///
    /// # Safety
    /// As `run`, and the panel has a row for each step.
    unsafe fn tiles(
        &self,
        steps: Range<usize>,
        filters: Filters,
        panel: (*const T, *const usize),
        place: &Place,
        spill: &mut [T],
        out: *mut T,
    ) {
        let (k, rows, wide) = (self.rows.len(), self.tile.rows, place.wide);
        let Filters { tile, first, count } = filters;
        let channel = first * self.target.channel;
        let add = steps.start > self.steps.first(place.seen);
        let start = match self.bias {
            Some(bias) if !add => bias[first..first + count].as_ptr(),
            _ => std::ptr::null(),
        };
        let straight = place.straight.then(|| place.runs[0]);
        let product = Product {
            k: steps.len(),
            a: self.filters[tile * rows * k + steps.start * rows..].as_ptr(),
            a_column: rows,
            a_tile: rows * k,
            b: panel.0,
            rows: panel.1,
            c: match straight {
                // SAFETY: inside the output by this function's contract.
                Some(run) => unsafe { out.add(run.at + channel) },
                None => spill.as_mut_ptr(),
            },
            c_row: if straight.is_some() { self.target.channel } else { wide },
            m: count,
            n: straight.map_or(wide, |run| run.len),
            add: add && straight.is_some(),
            start,
            ..Product::default()
        };
        // SAFETY: a row for each step on both sides, and as many tiles as were packed, since consecutive `heights` are
        // those of their sum: in all together there is less than a tile's missing. C is the output's or
        // scratch for that many filters.
        unsafe { (self.tile.run)(product) };
        if straight.is_some() {
            return;
        }
        for (i, line) in spill.chunks_exact(wide).take(count).enumerate() {
            for run in &place.runs {
                let line = &line[run.lane..run.lane + run.len];
                let at = run.at + channel + i * self.target.channel;
                // SAFETY: inside the output by this function's contract.
                unsafe { bring(line, out.add(at), self.target.column, add) };
            }
        }
    }

    /// Where the points of a packed panel from `first` on go.
    fn place(&self, first: usize) -> Place {
        let (points, [_, width]) = (self.sizes.points(), self.sizes.grid);
        let end = (first + self.tile.columns).min(self.sizes.batch * points);
        let seen = self.seen(first / points, first % points / width);
        let mut place = Place::new(self.tile.columns, seen);
        let mut at = first;
        while at < end {
            let (n, i, j) = (at / points, at % points / width, at % width);
            let len = (width - j).min(end - at);
            place.add(self.target, at - first, (n, i, j), len);
            place.seen = place.seen.or(self.seen(n, i));
            at += len;
        }
        place.finished(self.target)
    }

    /// Where the points of the panel that is `range` of line i of image n go.
    fn place_in_line(&self, lines: Lines, n: usize, i: usize, range: Range<usize>) -> Place {
        let [_, width] = self.sizes.grid;
        let Range { start: j, end } = range;
        let lanes = self.tile.columns / SIDE;
        let seen = self.seen(n, i + j / lines.pitch);
        let mut place = Place::new(range.len().next_multiple_of(lanes), seen);
        let mut at = j;
        while at < end {
            let (row, column) = (i + at / lines.pitch, at % lines.pitch);
            let next = (at - column + lines.pitch).min(end);
            if column < width {
                place.add(self.target, at - j, (n, row, column), (width - column).min(next - at));
                place.seen = place.seen.or(self.seen(n, row));
            }
            at = next;
        }
        place.finished(self.target)
    }
}
