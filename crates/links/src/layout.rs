//! Where the bytes of a message are in memory, and which of them travel on which stream.

use std::ops::Range;

/// Which of the buffers of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buffer {
    /// One that is only read.
    Input(usize),
    /// One that is also written.
    Memory(usize),
}

/// The bytes of a message: ranges of buffers, one after the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layout {
    segments: Vec<(Buffer, Range<usize>)>,
    /// Where in the message each segment ends.
    ends: Vec<usize>,
}

impl Layout {
    pub fn new(segments: impl IntoIterator<Item = (Buffer, Range<usize>)>) -> Self {
        let segments: Vec<_> =
            segments.into_iter().filter(|(_, range)| !range.is_empty()).collect();
        let mut end = 0;
        let ends = segments.iter().map(|(_, range)| {
            end += range.len();
            end
        });
        Layout { ends: ends.collect(), segments }
    }

    pub fn total(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    pub fn segments(self) -> Vec<(Buffer, Range<usize>)> {
        self.segments
    }

    /// Where the byte at `position` of the message is, with those of the same segment that follow it.
    ///
    /// # Panics
    /// When the message is no longer than that.
    pub fn at(&self, position: usize) -> (Buffer, Range<usize>) {
        let at = self.ends.partition_point(|&end| end <= position);
        let (buffer, range) = &self.segments[at];
        (*buffer, range.end - (self.ends[at] - position)..range.end)
    }
}

/// How a message is dealt out to the streams of a pair: in blocks, in turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deal {
    block: usize,
    streams: usize,
}

impl Deal {
    /// For a message of `total` bytes. A short one takes the first stream only.
    pub fn new(total: usize, streams: usize, block: usize) -> Self {
        let streams = streams.min(total.div_ceil(block)).max(1);
        // One stream has one block, so that nothing ends at its borders.
        Deal { block: if streams == 1 { total.max(1) } else { block }, streams }
    }

    pub fn streams(&self) -> usize {
        self.streams
    }

    /// How many of a message's bytes travel on a stream.
    pub fn share(&self, total: usize, stream: usize) -> usize {
        let round = self.block * self.streams;
        let rest = total % round;
        total / round * self.block + rest.saturating_sub(stream * self.block).min(self.block)
    }

    /// Which byte of the message comes after the first `moved` bytes of a stream, and how many go on from there
    /// without a break.
    pub fn position(&self, stream: usize, moved: usize) -> (usize, usize) {
        let (blocks, within) = (moved / self.block, moved % self.block);
        ((blocks * self.streams + stream) * self.block + within, self.block - within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_round_and_cover_the_message() {
        for (total, streams) in [(0, 3), (1, 3), (64, 2), (65, 2), (1000, 1), (1000, 3), (192, 3)] {
            let deal = Deal::new(total, streams, 64);
            let mut seen = vec![0; total];
            for stream in 0..deal.streams() {
                let share = deal.share(total, stream);
                let mut moved = 0;
                while moved < share {
                    let (position, run) = deal.position(stream, moved);
                    let run = run.min(share - moved);
                    seen[position..position + run].iter_mut().for_each(|n| *n += 1);
                    moved += run;
                }
            }
            assert!(seen.iter().all(|&n| n == 1), "{total} bytes on {streams} streams: {seen:?}");
        }
    }

    #[test]
    fn a_layout_skips_what_is_empty() {
        let (a, b) = (Buffer::Input(0), Buffer::Memory(1));
        let layout = Layout::new([(a, 5..5), (a, 2..4), (b, 0..0), (b, 7..10)]);
        assert_eq!(layout.total(), 5);
        assert_eq!(layout.at(0), (a, 2..4));
        assert_eq!(layout.at(1), (a, 3..4));
        assert_eq!(layout.at(2), (b, 7..10));
        assert_eq!(layout.at(4), (b, 9..10));
    }
}
