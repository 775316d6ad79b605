//! What the ranks of a collective give to each other, and what each takes of it: the same in one host's memory and
//! between hosts. Knows nothing of how a gift comes to the one who takes it.

use std::ops::Range;

use smallvec::SmallVec;

use super::reduce::reduce;
use crate::distributed::collective::{Collective, Kind, ReduceOp};

/// What the ranks give to each other in a collective: `parts` parts of `len` elements.
#[derive(Debug, Clone, Copy)]
pub(in crate::distributed) struct Gift {
    pub parts: usize,
    pub len: usize,
    pub size: usize,
    /// Whether this rank gives. It then has a `send` buffer of `parts * len` elements.
    pub mine: bool,
}

impl Gift {
    pub(in crate::distributed) fn of(collective: &Collective, rank: usize, world: usize) -> Self {
        let signature = &collective.signature;
        let numel = if signature.kind == Kind::Barrier { 0 } else { signature.numel() };
        let (parts, len, mine) = match signature.kind {
            Kind::Broadcast => (1, numel, signature.root == Some(rank)),
            Kind::Send => (1, numel, rank == 0),
            Kind::ReduceScatter | Kind::AllToAll => (world, numel / world, true),
            Kind::Scatter => (world, numel, signature.root == Some(rank)),
            _ => (1, numel, true),
        };
        Gift { parts, len, size: signature.dtype.size(), mine }
    }

    pub(in crate::distributed) fn nbytes(&self) -> usize {
        self.parts * self.len * self.size
    }

    /// Where in a buffer of whole parts element `at` of `part` is, in bytes.
    pub(in crate::distributed) fn offset(&self, part: usize, at: usize) -> usize {
        (part * self.len + at) * self.size
    }
}

/// Takes what rank `rank` of `world` needs of elements `range` of each part. `view(rank, part)` is where
/// element `range.start` of a giver's part can be read.
///
/// # Safety
/// `range` lies within a part; `view` is readable for its length for every giver; this rank's
/// buffers are valid; what is read does not change meanwhile.
pub(in crate::distributed) unsafe fn take(
    collective: &Collective,
    gift: Gift,
    [rank, world]: [usize; 2],
    range: Range<usize>,
    view: &dyn Fn(usize, usize) -> *const u8,
) {
    let Some(to) = collective.recv else { return };
    let (dtype, count) = (collective.signature.dtype, range.len());
    let place = |part| to.ptr.wrapping_add(gift.offset(part, range.start));
    let copy = |from: *const u8, to: *mut u8| {
        if from != to.cast_const() {
            // SAFETY: both are valid for `count` elements, by this function's contract. In an
            // in-place call they may be one buffer.
            unsafe { from.copy_to(to, count * gift.size) };
        }
    };
    let combine = |part: usize| {
        let sources: SmallVec<[*const u8; 8]> = (0..world).map(|r| view(r, part)).collect();
        let op = collective.signature.op.unwrap_or(ReduceOp::Sum);
        // SAFETY: readable and writable for `count` elements, by this function's contract; the
        // destination is private, or this rank's own source.
        unsafe { reduce(op, dtype, &sources, &[place(0)], count) };
    };
    let is_root = collective.signature.root == Some(rank);
    let root = collective.signature.root.unwrap_or(0);
    match collective.signature.kind {
        Kind::AllReduce => combine(0),
        Kind::Reduce if is_root => combine(0),
        Kind::ReduceScatter => combine(rank),
        Kind::Broadcast | Kind::Send if !is_root => copy(view(root, 0), place(0)),
        Kind::Scatter => copy(view(root, rank), place(0)),
        Kind::AllGather => (0..world).for_each(|r| copy(view(r, 0), place(r))),
        Kind::Gather if is_root => (0..world).for_each(|r| copy(view(r, 0), place(r))),
        Kind::AllToAll => (0..world).for_each(|r| copy(view(r, rank), place(r))),
        _ => {}
    }
}
