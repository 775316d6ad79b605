//! Which rows of a parameter are whose, and where they lie. Pure arithmetic; the memory is made in `group`.

use std::ops::Range;

use crate::tensor::Dtype;

/// Parameters start at cache lines, so that two of them never share one.
const ALIGNMENT: usize = 64;

/// A parameter in chunks of dim 0, as `torch.chunk` cuts them: each has the size of the first, rounded up; later ones have
/// fewer rows, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunks {
    /// Rows of the whole.
    rows: usize,
    /// Rows of the first chunk.
    most: usize,
    /// Elements of a row.
    row: usize,
    /// Where the chunk begins in a rank's line of all parameters, in elements.
    pub start: usize,
    /// Where the whole begins among those of all parameters, in elements.
    pub whole_start: usize,
}

impl Chunks {
    /// The rows of `rank`.
    pub fn rows_of(&self, rank: usize) -> Range<usize> {
        let start = (rank * self.most).min(self.rows);
        start..(start + self.most).min(self.rows)
    }

    /// Elements of `rank`'s chunk.
    pub fn numel_of(&self, rank: usize) -> usize {
        self.rows_of(rank).len() * self.row
    }

    /// Where the chunk of `rank` begins in the whole, in elements.
    pub fn offset_of(&self, rank: usize) -> usize {
        self.rows_of(rank).start * self.row
    }

    /// Elements of the whole.
    pub fn numel(&self) -> usize {
        self.rows * self.row
    }

    /// Whether all of `world` chunks are of one size.
    pub fn is_even(&self, world: usize) -> bool {
        self.most * world == self.rows
    }
}

/// Parameters of one dtype that travel together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub chunks: Vec<Chunks>,
    /// Elements of each rank's line, the same on all, padding included.
    pub numel: usize,
    /// Elements of all wholes one behind the other, padding included.
    pub whole_numel: usize,
}

impl Line {
    /// Lays out parameters of these shapes, none of which is a scalar, over `world` ranks.
    pub fn new(shapes: &[&[usize]], world: usize, dtype: Dtype) -> Line {
        let unit = ALIGNMENT / dtype.size();
        let (mut numel, mut whole_numel) = (0, 0);
        let chunks = shapes.iter().map(|shape| {
            let (rows, row) = (shape[0], shape[1..].iter().product());
            let most = rows.div_ceil(world);
            let chunks = Chunks { rows, most, row, start: numel, whole_start: whole_numel };
            numel += (most * row).next_multiple_of(unit);
            whole_numel += (rows * row).next_multiple_of(unit);
            chunks
        });
        Line { chunks: chunks.collect(), numel, whole_numel }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_those_of_torch_chunk() {
        let rows = |rows: usize, world: usize| -> Vec<usize> {
            let line = Line::new(&[&[rows, 3]], world, Dtype::F32);
            (0..world).map(|rank| line.chunks[0].rows_of(rank).len()).collect()
        };
        assert_eq!(rows(8, 4), [2, 2, 2, 2]);
        assert_eq!(rows(7, 4), [2, 2, 2, 1]);
        assert_eq!(rows(5, 4), [2, 2, 1, 0]);
        assert_eq!(rows(1, 4), [1, 0, 0, 0]);
        assert_eq!(rows(0, 2), [0, 0]);
        assert_eq!(rows(16, 3), [6, 6, 4]);
    }

    #[test]
    fn every_element_is_in_one_chunk_and_none_overlap() {
        for world in 1..9 {
            let line = Line::new(&[&[17, 5], &[3], &[4, 2, 2]], world, Dtype::F64);
            let mut end = 0;
            for chunks in &line.chunks {
                assert!(chunks.start >= end && chunks.start % 8 == 0);
                end = chunks.start + chunks.numel_of(0);
                let parts: usize = (0..world).map(|rank| chunks.numel_of(rank)).sum();
                assert_eq!(parts, chunks.numel());
                for rank in 1..world {
                    let before = chunks.offset_of(rank - 1) + chunks.numel_of(rank - 1);
                    assert_eq!(chunks.offset_of(rank), before);
                }
            }
            assert!(line.numel >= end && line.whole_numel >= 85 + 3 + 16);
        }
        assert!(Line::new(&[&[8]], 4, Dtype::F32).chunks[0].is_even(4));
        assert!(!Line::new(&[&[7]], 4, Dtype::F32).chunks[0].is_even(4));
    }
}
