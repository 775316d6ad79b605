//! The sizes of one call, and of what is done together.

/// Channels that are done together: two registers of f32.
pub(crate) const GROUP: usize = 16;

/// The sizes of one call.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub batch: usize,
    pub channels: usize,
    /// Numbers of a channel.
    pub volume: usize,
    /// Points of an image.
    pub points: usize,
}
