//! Which tile is in which lane: runs of tiles side by side, of which several are brought into lanes together where they
//! are short, and the lanes of tiles that are not whole.

use std::ops::Range;

use super::lanes::{L, OUT};

/// Most tiles of a run.
pub const RUN: usize = 32;
/// Elements of a buffered row of a run, with what is read past its end.
pub const LINE: usize = OUT * (RUN + 2 * L);

/// Tiles side by side: `len` ones from column `column` of row `row` of a plane's tiles on.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The image of the plane.
    pub image: usize,
    /// The row of tiles.
    pub row: usize,
    /// The first tile's column.
    pub column: usize,
    /// How many tiles.
    pub len: usize,
    /// Where its transformed columns begin in a batch's buffered row.
    pub start: usize,
}

/// Runs whose tiles are brought into lanes together.
#[derive(Debug)]
pub struct Batch {
    /// The runs, each behind the one before.
    pub runs: Vec<Run>,
    /// Whether their tiles are short in height.
    pub is_short: bool,
    /// The tiles that are whole in width, and the short ones.
    pub tiles: [List; 2],
}

/// Some tiles of a batch.
#[derive(Debug)]
pub struct List {
    /// The first one's lane.
    pub lane: usize,
    /// How many they are.
    pub len: usize,
    /// Whether what lies in the lanes behind may have been written before.
    is_last: bool,
    /// Where each begins in a buffered row; the last one's place for the lanes past the end.
    pub places: [usize; RUN + L],
}

/// The lanes of a block's tiles. Those that are short in width are first, those that are short in height last: so all
/// that take part in a product follow one another.
#[derive(Debug)]
pub struct Lanes {
    /// All runs.
    pub batches: Vec<Batch>,
    /// The tiles that are whole in width, and those that are whole in height.
    whole: [Range<usize>; 2],
    count: usize,
}

/// Whether a dimension's last tile is short: it has two outputs at most.
pub fn is_short(size: usize) -> bool {
    matches!(size % OUT, 1 | 2)
}

impl Lanes {
    /// Lanes for the tiles `first..first + count` of a grid, counted through all images, with short ones if `shortens`.
    pub fn new(grid: [usize; 2], shortens: bool, first: usize, count: usize) -> Lanes {
        let tiles = grid.map(|n| n.div_ceil(OUT));
        let short = grid.map(|n| shortens && is_short(n));
        let mut runs: [Vec<Run>; 2] = Default::default();
        let mut at = first;
        while at < first + count {
            let (row, column) = (at / tiles[1] % tiles[0], at % tiles[1]);
            let len = (tiles[1] - column).min(first + count - at).min(RUN);
            let run = Run { image: at / tiles[1] / tiles[0], row, column, len, start: 0 };
            runs[(short[0] && row + 1 == tiles[0]) as usize].push(run);
            at += len;
        }
        let is_cut = |run: &Run| short[1] && run.column + run.len == tiles[1];
        let cut = |runs: &[Run]| runs.iter().filter(|run| is_cut(run)).count();
        let all = |runs: &[Run]| runs.iter().map(|run| run.len).sum::<usize>();
        let (tall, low) = (all(&runs[0]), cut(&runs[1]));
        let (narrow, end) = (cut(&runs[0]), count - low);
        let (mut batches, starts) = (Vec::new(), [[narrow, 0], [tall, end]]);
        for (height, runs) in runs.iter().enumerate() {
            let mut lanes = starts[height];
            let mut last = Batch::new(height == 1, lanes);
            for &run in runs {
                let lens = [run.len - is_cut(&run) as usize, is_cut(&run) as usize];
                if !last.takes(run, lens) {
                    batches.push(std::mem::replace(&mut last, Batch::new(height == 1, lanes)));
                    last.takes(run, lens);
                }
                lanes = [lanes[0] + lens[0], lanes[1] + lens[1]];
            }
            if !last.runs.is_empty() {
                batches.push(last);
            }
        }
        // Behind these are lanes that the same batches write.
        for (is_short, list) in [(false, 1), (true, 0)] {
            let of_that =
                |batch: &&mut Batch| batch.is_short == is_short && batch.tiles[list].len > 0;
            if let Some(last) = batches.iter_mut().rev().find(of_that) {
                last.tiles[list].is_last = true;
            }
        }
        Lanes { batches, whole: [narrow..end, 0..tall], count }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Those that have the products of points that short tiles have not: in height, in width.
    pub fn range(&self, [high, wide]: [bool; 2]) -> Range<usize> {
        let mut range = 0..self.count;
        for (only, whole) in [high, wide].into_iter().zip([&self.whole[1], &self.whole[0]]) {
            if only {
                range = range.start.max(whole.start)..range.end.min(whole.end);
            }
        }
        range.start..range.end.max(range.start)
    }
}

impl Batch {
    fn new(is_short: bool, lanes: [usize; 2]) -> Batch {
        let list = |lane| List { lane, len: 0, is_last: false, places: [0; RUN + L] };
        Batch { runs: Vec::new(), is_short, tiles: lanes.map(list) }
    }

    /// Takes a run with so many tiles for each list, if it is the first, or if it fits and saves a group of lanes.
    fn takes(&mut self, run: Run, lens: [usize; 2]) -> bool {
        // With the columns of the last tile that would be the next one's, in whole registers.
        let room = |run: &Run| (OUT * run.len + 2).next_multiple_of(L);
        let start = self.runs.last().map_or(0, |last| last.start + room(last));
        let groups = |lens: [usize; 2]| lens[0].div_ceil(L) + lens[1].div_ceil(L);
        let own = [0, 1].map(|l| self.tiles[l].len);
        let together = [own[0] + lens[0], own[1] + lens[1]];
        let fits = together[0].max(together[1]) <= RUN && start + room(&run) <= LINE;
        let gains = groups(together) < groups(own) + groups(lens);
        let is_first = self.runs.is_empty();
        if !(is_first || fits && gains) {
            return false;
        }
        for t in 0..run.len {
            self.tiles[(t >= lens[0]) as usize].push(start + OUT * t);
        }
        self.runs.push(Run { start, ..run });
        true
    }
}

impl List {
    fn push(&mut self, place: usize) {
        self.places[self.len..].fill(place);
        self.len += 1;
    }

    /// Where the tiles of the lanes from `t` on begin in the row at `row`, if they are `scale` times as wide as a batch
    /// has them.
    #[inline(always)]
    pub fn at(&self, row: *mut f32, t: usize, scale: usize) -> [*mut f32; L] {
        let mut at = [row; L];
        for l in 0..L {
            at[l] = row.wrapping_add(scale * self.places[t + l]);
        }
        at
    }

    /// Whether the group of lanes from `t` on is written in full, with what lies behind its last tile.
    #[inline(always)]
    pub fn fills(&self, t: usize) -> bool {
        !self.is_last || t + L <= self.len
    }
}

/// [`List::at`] of the whole tiles of a single run, which begin one behind the other.
#[inline(always)]
pub fn in_run(row: *mut f32, t: usize, scale: usize) -> [*mut f32; L] {
    let mut at = [row; L];
    for l in 0..L {
        at[l] = row.wrapping_add(scale * OUT * (t + l));
    }
    at
}

/// As many numbers behind each.
#[inline(always)]
pub fn behind(mut at: [*mut f32; L], distance: usize) -> [*mut f32; L] {
    for l in 0..L {
        at[l] = at[l].wrapping_add(distance);
    }
    at
}
