//! Where a correlation's sums go.

use smallvec::SmallVec;

use super::Target;
use super::steps::Seen;
use crate::numbers::float::Float;

/// Where the points of a panel go, and what they see.
pub(super) struct Place {
    /// Its lanes that are points.
    pub runs: SmallVec<[Lanes; 4]>,
    /// It is one dense run from the first lane on.
    pub straight: bool,
    /// Lanes of the panel's registers.
    pub wide: usize,
    /// The taps through which some of the points see the source.
    pub seen: Seen,
}

/// Neighbouring lanes whose points follow one another in the output.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    pub lane: usize,
    pub at: usize,
    pub len: usize,
}

impl Place {
    pub fn new(wide: usize, seen: Seen) -> Self {
        Place { runs: SmallVec::new(), straight: false, wide, seen }
    }

    /// Adds `len` points of a grid row from (image, row, column) on.
    pub fn add(&mut self, t: Target, lane: usize, (n, i, j): (usize, usize, usize), len: usize) {
        let at = t.first + n * t.image + i * t.row + j * t.column;
        match self.runs.last_mut() {
            Some(last) if last.lane + last.len == lane && last.at + last.len * t.column == at => {
                last.len += len;
            }
            _ => self.runs.push(Lanes { lane, at, len }),
        }
    }

    pub fn finished(mut self, t: Target) -> Self {
        self.straight = t.column == 1 && self.runs.len() == 1 && self.runs[0].lane == 0;
        self
    }
}

/// Stores or adds a few numbers, `column` apart.
///
/// # Safety
/// They are the caller's to write.
#[inline(always)]
pub(super) unsafe fn bring<T: Float>(line: &[T], to: *mut T, column: usize, add: bool) {
    const PIECE: usize = 4;
    // SAFETY: this function's contract; pieces are inside the line.
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
