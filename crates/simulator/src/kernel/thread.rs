//! A thread of a block, as the machine and its reports see it.

use super::collective::Offer;

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// It has not begun.
    #[default]
    New,
    /// It runs, or could.
    Running,
    /// It waits at a barrier of the block.
    Barrier,
    /// It waits for lanes of its warp.
    Warp,
    /// It has ended.
    Done,
}

/// A thread of the block.
#[derive(Debug, Clone, Copy, Default)]
pub struct Thread {
    /// What it does.
    pub state: State,
    /// The fiber on which it stands.
    pub fiber: usize,
    /// The lanes for which it waits.
    pub mask: u32,
    /// The warp's operation, or the barrier's kind.
    pub operation: u32,
    /// The source's line where it waits.
    pub line: u32,
    /// What it brings to the warp's operation, and what it takes from it.
    pub offer: Offer,
    pub result: u64,
}
