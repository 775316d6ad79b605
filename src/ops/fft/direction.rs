//! There and back.

/// Which sign the exponent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Minus: `fft`.
    Forward,
    /// Plus: `ifft`.
    Backward,
}

impl Direction {
    pub(super) fn other(self) -> Direction {
        match self {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        }
    }
}
