//! What the functions for pairs work on.

use half::bf16;

use crate::products::gemm::Matrix;
use crate::products::micro::Tile;
use crate::products::run::Run;

/// Rows of the tile.
pub const ROWS: usize = 8;

/// What there is where the instruction is.
#[derive(Clone, Copy)]
pub struct Kernels {
    /// The tile whose steps are of pairs: its operands are packed pairs, its results f32.
    pub tile: Tile<f32>,
    /// Rounds sums.
    pub round: unsafe fn(Round),
    /// Brings points together.
    pub gather: unsafe fn(Gather),
    /// Rounds sums and brings them to their points.
    pub scatter: unsafe fn(Scatter),
}

/// A panel of points, as wide as the tile, that is gathered from runs of pairs: lanes between them are 0.
///
/// *Gather invariant*, kept by whoever has one gathered: the runs displaced by each of `rows` are readable, and `out` takes
/// as many rows, which nobody else uses.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no such instruction there"))]
pub struct Gather<'a> {
    /// Where runs and displacements are counted from.
    pub source: *const f32,
    /// Displacement of each row.
    pub rows: &'a [usize],
    /// Straight runs of points, which do not overlap in the panel.
    pub runs: &'a [Run],
    /// Where the panel goes.
    pub out: *mut f32,
}

/// Rows of sums, as wide as the tile, that are rounded and scattered to runs of points: `source` says where one
/// begins in the output.
///
/// *Scatter invariant*, kept by whoever has one scattered: the sums and `bias`, unless null, are readable; all runs
/// displaced by whole rows are writable, and nobody else uses them.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no such instruction there"))]
pub struct Scatter<'a> {
    /// The sums.
    pub from: *const f32,
    /// How many rows there are.
    pub rows: usize,
    /// One number for each row, which is added, or null.
    pub bias: *const bf16,
    /// Where the runs are counted from.
    pub to: *mut bf16,
    /// Distance between rows there.
    pub row: usize,
    /// Straight runs of points.
    pub runs: &'a [Run],
}

/// `alpha sum + beta start` instead of a sum.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no such instruction there"))]
pub struct Finish {
    /// Factor of the sum.
    pub alpha: f32,
    /// Factor of what is added.
    pub beta: f32,
    /// What is added, if anything is: one number for each sum; a distance may be 0.
    pub start: Option<Matrix<*const bf16>>,
}

impl Finish {
    /// For the sums from (i, j) on.
    pub fn at(self, i: usize, j: usize) -> Self {
        Finish { start: self.start.map(|start| start.at(i, j)), ..self }
    }
}

/// Rows of sums, as wide as the tile at most, to be rounded to bf16.
///
/// *Round invariant*, kept by whoever has some rounded: whole registers of sums, and the start's numbers, are readable; the
/// places are writable, and nobody else uses these.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no such instruction there"))]
pub struct Round {
    /// Sums of row i are at `from + i * distance`.
    pub from: *const f32,
    /// Distance between their rows.
    pub distance: usize,
    /// Rows and columns.
    pub size: (usize, usize),
    /// Where they go, to columns that follow one another.
    pub to: Matrix<*mut bf16>,
    /// What becomes of them before.
    pub finish: Option<Finish>,
}
