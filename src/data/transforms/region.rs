//! A rectangle of an image.

/// The rows from `top` on and the columns from `left` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Region {
    pub top: usize,
    pub left: usize,
    pub height: usize,
    pub width: usize,
}

#[cfg(feature = "image")]
impl Region {
    /// All of an image.
    pub fn whole((height, width): (usize, usize)) -> Self {
        Region { top: 0, left: 0, height, width }
    }
}
