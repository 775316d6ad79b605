//! Points that follow one another.

/// A straight run of grid points: from `source` on in the field, to column `column` of a block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run {
    /// Offset in the prepared planes of the first point, for tap and channel 0.
    pub source: usize,
    /// First column in the block.
    pub column: usize,
    /// Points.
    pub len: usize,
}
