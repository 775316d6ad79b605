//! The products of a convolution over `Field`s: grid points times filter ([`Correlation`]: forward,
//! and the data gradient), and grid points times gradient ([`FilterSums`]: the weight
//! gradient). Both are matrix products with register tiles whose one operand is gathered block by
//! block into the cache ("im2col" that never exists as a whole).

mod bf16;
mod correlation;
mod filters;
mod place;
pub mod steps;
mod way;
pub mod zones;

pub use bf16::{HalfCorrelation, HalfFilters};
pub use correlation::{Correlation, Work, run_together};
pub use filters::FilterSums;

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

impl Target {
    /// The last place of all.
    fn last(&self, sizes: Sizes) -> usize {
        let Sizes { batch, groups, outputs, grid: [height, width], .. } = sizes;
        self.first
            + (batch - 1) * self.image
            + (groups * outputs - 1) * self.channel
            + (height - 1) * self.row
            + (width - 1) * self.column
    }
}

/// Where the planes of a gradient lie, each of which is dense.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// Distance between images.
    pub image: usize,
    /// Distance between channels.
    pub channel: usize,
}

impl Spread {
    /// Of planes that lie behind one another.
    pub fn dense(sizes: Sizes) -> Spread {
        let channel = sizes.points();
        Spread { image: sizes.groups * sizes.outputs * channel, channel }
    }
}
