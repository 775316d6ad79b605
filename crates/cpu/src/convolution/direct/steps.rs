//! The order in which the products of a sum are added, so that those with the border of the source, which are 0, follow
//! one another and can be left out.

use std::ops::Range;

use super::Sizes;
use crate::convolution::field::Field;
use crate::small_pieces::least;

/// The taps through which some points see the source: from the first depth tap of a volume (else there is one) to
/// before the second, and of the filter's rows. Small, since each panel has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    depths: [u16; 2],
    lines: [u16; 2],
}

impl Seen {
    /// Through these depth taps and rows.
    pub fn new(depths: &Range<usize>, lines: &Range<usize>) -> Seen {
        let ends = |range: &Range<usize>| {
            let small = |n: usize| u16::try_from(n).expect("a filter of at most 65535 rows");
            [small(range.start), small(range.end)]
        };
        Seen { depths: ends(depths), lines: ends(lines) }
    }

    /// What the points of both see, and the taps in between.
    pub fn or(self, other: Seen) -> Seen {
        let hull = |a: [u16; 2], b: [u16; 2]| [a[0].min(b[0]), a[1].max(b[1])];
        Seen { depths: hull(self.depths, other.depths), lines: hull(self.lines, other.lines) }
    }

    fn depths(&self) -> Range<usize> {
        self.depths[0] as usize..self.depths[1] as usize
    }

    fn lines(&self) -> Range<usize> {
        self.lines[0] as usize..self.lines[1] as usize
    }
}

/// The steps of a sum: for each block of source channels, each depth tap and row of the filter (a "line" of
/// taps), each of the block's channels, the taps of the line. Where there is little to leave out all is one line.
#[derive(Clone, Debug)]
pub struct Steps {
    channels: usize,
    /// Channels of a block, all but the last.
    block: usize,
    depths: usize,
    /// Lines of a depth tap.
    lines: usize,
    /// Taps of a line.
    taps: usize,
    /// Most steps of a piece.
    deepest: usize,
}

/// Steps that are taken together.
pub struct Piece {
    /// Which they are.
    pub steps: Range<usize>,
    /// The first step of its block, and how many a line of that has.
    start: usize,
    line: usize,
}

/// Steps that rows of the grid miss on the average for which it is worth asking each which they are.
const STEPS: usize = 8;
/// Points that miss a step on the average for which it is worth bringing a filter's numbers into another order.
const POINTS: usize = 32;

impl Steps {
    /// Steps through the source channels of these sizes, whose blocks have at most `together` steps if that can be,
    /// to be taken in pieces of at most `deepest`.
    pub fn new(field: &Field, sizes: Sizes, together: usize, deepest: usize) -> Steps {
        let Sizes { batch: images, inputs: channels, grid: [_, width], .. } = sizes;
        let (depths, lines, all) = (field.depths, field.lines, field.taps.len());
        let missed: usize = field.sees.iter().map(|seen| lines - seen.len()).sum();
        let (steps, points) = (channels * all * missed / lines, width * images * missed / lines);
        let few = steps < least(STEPS, 1) * field.sees.len() || points < least(POINTS, 1);
        if depths == 1 && few {
            return Steps::plain(channels * all, deepest);
        }
        let blocks = channels.div_ceil((together / all).max(1));
        let block = channels.div_ceil(blocks);
        Steps { channels, block, depths, lines, taps: all / (depths * lines), deepest }
    }

    /// Steps by depth taps alone.
    pub fn of_depths(field: &Field, channels: usize) -> Steps {
        let (depths, all) = (field.depths, channels * field.taps.len());
        if depths == 1 {
            return Steps::plain(all, all);
        }
        let taps = field.taps.len() / depths;
        Steps { channels, block: channels, depths, lines: 1, taps, deepest: all }
    }

    /// So many steps in the filters' order.
    fn plain(taps: usize, deepest: usize) -> Steps {
        Steps { channels: 1, block: 1, depths: 1, lines: 1, taps, deepest }
    }

    /// Those steps of a piece of [`Steps::of_depths`] that points see.
    pub fn of_piece(&self, piece: &Range<usize>, depths: Range<usize>) -> Range<usize> {
        let of_depth = self.channels * self.taps;
        let clamped = |at: usize| at.clamp(piece.start, piece.end);
        clamped(depths.start * of_depth)..clamped(depths.end * of_depth)
    }

    /// True where steps are in the filters' order, channel after channel, and all are taken.
    pub fn is_plain(&self) -> bool {
        self.depths * self.lines == 1
    }

    /// Where the filters have the steps of each line and channel.
    fn starts(&self) -> impl Iterator<Item = usize> + '_ {
        let lines = self.depths * self.lines;
        (0..self.channels).step_by(self.block).flat_map(move |first| {
            let end = self.channels.min(first + self.block);
            let line = move |l: usize| (first..end).map(move |c| (c * lines + l) * self.taps);
            (0..lines).flat_map(line)
        })
    }

    /// Numbers that follow one another both here and in the filters.
    pub fn line(&self) -> usize {
        self.taps
    }

    /// The lines that the filters have in a range, which begins and ends with lines of channels: which they are of
    /// all, and where the filters have them.
    pub fn lines_of(&self, range: Range<usize>) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.starts().enumerate().filter(move |(_, from)| range.contains(from))
    }

    /// Where the filters have each step.
    pub fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.starts().flat_map(move |start| start..start + self.taps)
    }

    /// Where the source of each step is.
    pub fn displacements(&self, field: &Field, channels: usize) -> Vec<usize> {
        let (taps, mut all) = (&field.taps, Vec::with_capacity(channels * field.taps.len()));
        let mut add = |c: usize, taps: &[usize]| {
            all.extend(taps.iter().map(|tap| c * field.channel + tap));
        };
        if self.is_plain() {
            (0..channels).for_each(|c| add(c, taps));
        } else {
            for start in self.starts() {
                let (c, first) = (start / taps.len(), start % taps.len());
                add(c, &taps[first..first + self.taps]);
            }
        }
        all
    }

    /// Channels of a block.
    fn of_block(&self, block: usize) -> usize {
        self.block.min(self.channels - block * self.block)
    }

    /// The pieces in which the steps are taken, none of which belongs to two blocks, of whole lines where these are
    /// no longer.
    pub fn pieces(&self) -> Vec<Piece> {
        let (mut pieces, mut first) = (Vec::new(), 0);
        let lines = self.depths * self.lines;
        for block in 0..self.channels.div_ceil(self.block) {
            let (start, line) = (first, self.of_block(block) * self.taps);
            let (count, unit) = if line > self.deepest { (lines, 1) } else { (1, line) };
            let len = lines * line / count;
            let (units, most) = (len / unit, self.deepest / unit);
            let depth = units.div_ceil(units.div_ceil(most)) * unit;
            for _ in 0..count {
                let end = first + len;
                let piece = |from: usize| Piece { steps: from..end.min(from + depth), start, line };
                pieces.extend((first..end).step_by(depth).map(piece));
                first = end;
            }
        }
        pieces
    }

    /// The first step that points see.
    pub fn first(&self, seen: Seen) -> usize {
        let line = self.of_block(0) * self.taps;
        if self.is_plain() {
            0
        } else {
            (seen.depths().start * self.lines + seen.lines().start) * line
        }
    }

    /// Those steps of a piece that points see.
    #[inline(always)]
    pub fn seen(&self, piece: &Piece, seen: Seen) -> impl Iterator<Item = Range<usize>> + use<> {
        let Piece { steps: Range { start: from, end: to }, start, line } = *piece;
        let (lines, depths, some) = (self.lines, seen.depths(), seen.lines());
        // As many ranges as depth taps; one, where these see all lines.
        let (count, first, len) = match some.len() {
            _ if self.is_plain() => (1, from, to - from),
            all if all == lines => {
                (1, start + depths.start * lines * line, depths.len() * lines * line)
            }
            _ => {
                let first = start + (depths.start * lines + some.start) * line;
                (depths.len(), first, some.len() * line)
            }
        };
        let range = move |depth: usize| {
            let at = first + depth * lines * line;
            at.max(from)..(at + len).min(to)
        };
        (0..count).map(range).filter(|range| !range.is_empty())
    }
}
