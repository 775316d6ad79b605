//! How the data of a collective moves. Three ways, chosen alike on all ranks:
//!
//! - *Inline*: a small message is written to this rank's slot of the control block before the one
//!   barrier; afterwards every rank reads the slots and computes what it needs by itself.
//! - *In place*: all buffers lie in one segment of the group's arena. Barrier, work, barrier. In an
//!   all-reduce rank r combines slice r of all buffers and writes the result to all of them: every
//!   byte is read once and written once per rank, the least there can be.
//! - *Staged*: private buffers pass through staging memory in chunks, two slots in turn, so that
//!   while one chunk is read the next is written.
//!
//! Most collectives are the same exchange: some ranks give a buffer of one or N parts, and every
//! rank takes what it needs from the parts of others ([`Gift`], [`take`]). Only a large
//! all-reduce is a thing of its own. All three ways combine elements in rank order, so they agree
//! to the last bit.

use std::ops::Range;

use smallvec::SmallVec;

use super::arena::{Segment, Slot};
use super::backend::{Progress, ShmBackend};
use super::control::Place;
use super::gift::{Gift, take};
use super::meeting::Call;
use super::reduce::reduce;
use crate::distributed::collective::{Collective, Kind, Pace, RawBuffer, ReduceOp};
use crate::distributed::in_place::Read;
use crate::distributed::{Deadline, Dtype};
use crate::error::{Error, Result};

/// Slices of an all-reduce begin at multiples of this, so that no two ranks write to one cache
/// line, whatever the dtype.
const SLICE_ALIGN: usize = 128;

impl ShmBackend {
    /// This rank and the number of ranks.
    fn seat(&self) -> [usize; 2] {
        [self.rank, self.ranks.len()]
    }

    /// Runs `collective` as the next one of this group.
    pub(super) fn run_collective(
        &self,
        progress: &mut Progress,
        collective: &Collective,
        deadline: &Deadline,
        pace: Pace,
    ) -> Result<()> {
        let gift = Gift::of(collective, self.rank, self.ranks.len());
        let call = Call { signature: &collective.signature, deadline, pace };
        if let Some(read) = &collective.read {
            self.run_read(progress, collective, read, &call)?;
        } else if gift.nbytes() <= self.control.inline_bytes() {
            self.run_inline(progress, collective, gift, &call)?;
        } else {
            self.run_large(progress, collective, gift, &call)?;
        }
        self.control.complete(self.rank, progress.sequence);
        Ok(())
    }

    fn run_inline(
        &self,
        progress: &mut Progress,
        collective: &Collective,
        gift: Gift,
        call: &Call,
    ) -> Result<()> {
        let mine = self.enter(progress, &collective.signature, Place::PRIVATE)?;
        let sequence = progress.sequence;
        let own = collective.send.map(|b| b.ptr.cast_const());
        if let Some(own) = own.filter(|_| gift.mine && gift.len > 0) {
            // SAFETY: the slot has room (checked above) and is this rank's to write: its last
            // readers were in the collective before the previous one, which all have left.
            unsafe {
                own.copy_to_nonoverlapping(self.control.slot(self.rank, sequence), gift.nbytes())
            };
        }
        self.barrier(progress, call)?;
        self.compare(progress, mine)?;
        if gift.len == 0 {
            return Ok(());
        }
        let view = |rank: usize, part: usize| match own {
            Some(own) if rank == self.rank => own.wrapping_add(gift.offset(part, 0)),
            _ => self.control.slot(rank, sequence).wrapping_add(gift.offset(part, 0)).cast_const(),
        };
        // SAFETY: all givers have filled their slots (barrier), which stay as they are until all
        // have arrived at the next collective; the range is all of a part.
        unsafe { take(collective, gift, self.seat(), 0..gift.len, &view) };
        Ok(())
    }

    /// Has `read` look at what all ranks give where it is. Nobody waits for its end; see
    /// [`wait_until_read`](Self::wait_until_read).
    fn run_read(
        &self,
        progress: &mut Progress,
        collective: &Collective,
        read: &Read,
        call: &Call,
    ) -> Result<()> {
        let located = collective.send.and_then(|b| self.arena.locate(b.ptr, b.nbytes()));
        let place = located.as_ref().map_or(Place::PRIVATE, |(_, place)| *place);
        let mine = self.enter(progress, &collective.signature, place)?;
        self.barrier(progress, call)?;
        self.compare(progress, mine)?;
        let Some((segment, _)) = located.filter(|(s, _)| self.all_in(s, progress)) else {
            let what = format!("{}: what is read in place is not shared", call.signature);
            return self.abort_unless_ok(Err(Error::Other(what)));
        };
        let views: SmallVec<[*const u8; 8]> =
            self.places(&segment, progress).map(<*mut u8>::cast_const).collect();
        read.run(progress.sequence, &views);
        Ok(())
    }

    /// Where every rank's buffer is.
    fn places(&self, segment: &Segment, progress: &Progress) -> impl Iterator<Item = *mut u8> {
        let sequence = progress.sequence;
        (0..self.ranks.len()).map(move |rank| {
            let offset = self.control.place(rank, sequence).offset();
            segment.slab_of(rank).wrapping_add(offset)
        })
    }

    fn run_large(
        &self,
        progress: &mut Progress,
        collective: &Collective,
        gift: Gift,
        call: &Call,
    ) -> Result<()> {
        let own = if gift.mine { collective.send } else { collective.recv };
        let located = own.and_then(|b| self.arena.locate(b.ptr, b.nbytes()));
        let place = located.as_ref().map_or(Place::PRIVATE, |(_, place)| *place);
        let mine = self.enter(progress, &collective.signature, place)?;
        self.barrier(progress, call)?;
        self.compare(progress, mine)?;
        let all_reduce = collective.signature.kind == Kind::AllReduce;
        if let Some((segment, _)) = located.filter(|(s, _)| self.all_in(s, progress)) {
            let places: SmallVec<[*mut u8; 8]> = self.places(&segment, progress).collect();
            if all_reduce {
                // SAFETY: each rank's buffer of `gift.len` elements is at its place, and all ranks
                // are in this collective (barrier).
                unsafe { self.reduce_own_slice(collective, gift, &places) };
            } else {
                let view = |rank: usize, part| {
                    places[rank].wrapping_add(gift.offset(part, 0)).cast_const()
                };
                // SAFETY: the givers' buffers are at their places and stay as they are until the
                // barrier below; the range is all of a part.
                unsafe { take(collective, gift, self.seat(), 0..gift.len, &view) };
            }
            return self.barrier(progress, call);
        }
        if all_reduce {
            self.all_reduce_staged(progress, collective, gift, call)
        } else {
            self.exchange_staged(progress, collective, gift, call)
        }
    }

    /// Whether every rank's buffer is in `segment`. All ranks come to the same conclusion, since
    /// all look at the same published places.
    fn all_in(&self, segment: &Segment, progress: &Progress) -> bool {
        (0..self.ranks.len())
            .all(|rank| self.control.place(rank, progress.sequence).segment() == segment.id())
    }

    /// This rank's share of an all-reduce of buffers that lie at `places`.
    ///
    /// # Safety
    /// Every place is a buffer of `gift.len` elements, which no other rank touches in this rank's
    /// slice.
    unsafe fn reduce_own_slice(&self, collective: &Collective, gift: Gift, places: &[*mut u8]) {
        let slice = slice_of(gift.len, self.rank, self.ranks.len());
        let at = |&place: &*mut u8| place.wrapping_add(gift.offset(0, slice.start));
        let to: SmallVec<[*mut u8; 8]> = places.iter().map(at).collect();
        let from: SmallVec<[*const u8; 8]> = to.iter().map(|p| p.cast_const()).collect();
        let op = collective.signature.op.unwrap_or(ReduceOp::Sum);
        let dtype = collective.signature.dtype;
        // SAFETY: the slice is inside the buffers; each destination is one of the sources.
        unsafe { reduce(op, dtype, &from, &to, slice.len()) };
    }

    /// Gives chunk after chunk of each part, and takes from the others one chunk behind.
    fn exchange_staged(
        &self,
        progress: &mut Progress,
        collective: &Collective,
        gift: Gift,
        call: &Call,
    ) -> Result<()> {
        let chunk = chunk_len(self.staging.chunk() / gift.parts, gift.size);
        let chunks = gift.len.div_ceil(chunk);
        let range = |k: usize| k * chunk..((k + 1) * chunk).min(gift.len);
        let own = collective.send.filter(|_| gift.mine);
        for k in 0..=chunks {
            if let Some(own) = own.filter(|_| k < chunks) {
                let (slot, range) = (self.staging.slot(self.rank, Slot::In, k), range(k));
                // With N parts the one of this rank itself is not read by others.
                for part in (0..gift.parts).filter(|&p| gift.parts == 1 || p != self.rank) {
                    let from = own.ptr.wrapping_add(gift.offset(part, range.start)).cast_const();
                    let to = slot.wrapping_add(part * chunk * gift.size);
                    // SAFETY: inside the buffer and the slot; the slot's last readers were two
                    // turns ago, and a barrier has passed since.
                    unsafe { from.copy_to_nonoverlapping(to, range.len() * gift.size) };
                }
            }
            if k > 0 {
                let range = range(k - 1);
                let view = |rank: usize, part: usize| match own {
                    Some(own) if rank == self.rank => {
                        own.ptr.wrapping_add(gift.offset(part, range.start)).cast_const()
                    }
                    _ => {
                        let slot = self.staging.slot(rank, Slot::In, k - 1);
                        slot.wrapping_add(part * chunk * gift.size).cast_const()
                    }
                };
                // SAFETY: the givers filled these slots before the last barrier and write to them
                // only after the next one.
                unsafe { take(collective, gift, self.seat(), range.clone(), &view) };
            }
            self.barrier(progress, call)?;
        }
        Ok(())
    }

    /// Three steps per chunk, each one turn behind the other: give the others their slices of the
    /// chunk, combine this rank's slice, collect the slices that the others have combined.
    fn all_reduce_staged(
        &self,
        progress: &mut Progress,
        collective: &Collective,
        gift: Gift,
        call: &Call,
    ) -> Result<()> {
        let (Some(own), Some(result)) = (collective.send, collective.recv) else { return Ok(()) };
        let (me, world) = (self.rank, self.ranks.len());
        let chunk = chunk_len(self.staging.chunk(), gift.size);
        let chunks = gift.len.div_ceil(chunk);
        let at = |b: RawBuffer, element: usize| b.ptr.wrapping_add(element * gift.size);
        // Where chunk `k` begins, and the slice of `rank` relative to that.
        let slice = |k: usize, rank| {
            let start = k * chunk;
            (start, slice_of(chunk.min(gift.len - start), rank, world))
        };
        let job = Job { op: collective.signature.op, dtype: collective.signature.dtype };
        for k in 0..chunks + 2 {
            if k < chunks {
                let slot = self.staging.slot(me, Slot::In, k);
                for rank in (0..world).filter(|&r| r != me) {
                    let (start, slice) = slice(k, rank);
                    let from = at(own, start + slice.start).cast_const();
                    let to = slot.wrapping_add(slice.start * gift.size);
                    // SAFETY: inside the buffer and the slot; the slot's last readers were two
                    // turns ago, and a barrier has passed since.
                    unsafe { from.copy_to_nonoverlapping(to, slice.len() * gift.size) };
                }
            }
            if let Some(k) = k.checked_sub(1).filter(|&k| k < chunks) {
                let (start, slice) = slice(k, me);
                let sources: SmallVec<[*const u8; 8]> = (0..world)
                    .map(|rank| match rank == me {
                        true => at(own, start + slice.start).cast_const(),
                        false => {
                            let slot = self.staging.slot(rank, Slot::In, k);
                            slot.wrapping_add(slice.start * gift.size).cast_const()
                        }
                    })
                    .collect();
                let out = self.staging.slot(me, Slot::Out, k);
                let to = [at(result, start + slice.start), out];
                // SAFETY: the others filled their slots before the last barrier; the slice is
                // inside the chunk; this rank's own source may be the destination.
                unsafe { job.run(&sources, &to, slice.len()) };
            }
            if let Some(k) = k.checked_sub(2) {
                for rank in (0..world).filter(|&r| r != me) {
                    let (start, slice) = slice(k, rank);
                    let from = self.staging.slot(rank, Slot::Out, k).cast_const();
                    let to = at(result, start + slice.start);
                    // SAFETY: filled before the last barrier, written again after the next; the
                    // slice is inside the buffer.
                    unsafe { from.copy_to_nonoverlapping(to, slice.len() * gift.size) };
                }
            }
            self.barrier(progress, call)?;
        }
        Ok(())
    }
}

struct Job {
    op: Option<ReduceOp>,
    dtype: Dtype,
}

impl Job {
    /// # Safety
    /// As [`reduce`].
    unsafe fn run(&self, sources: &[*const u8], destinations: &[*mut u8], len: usize) {
        let op = self.op.unwrap_or(ReduceOp::Sum);
        // SAFETY: the contract of `reduce`, which this function has too.
        unsafe { reduce(op, self.dtype, sources, destinations, len) };
    }
}

/// Elements per chunk of at most `nbytes`, a multiple of [`SLICE_ALIGN`].
pub(in crate::distributed) fn chunk_len(nbytes: usize, size: usize) -> usize {
    (nbytes / size / SLICE_ALIGN * SLICE_ALIGN).max(SLICE_ALIGN)
}

/// The elements of `len` that fall to `rank`: in order, almost equal, beginning at multiples of
/// [`SLICE_ALIGN`].
pub(in crate::distributed) fn slice_of(len: usize, rank: usize, world: usize) -> Range<usize> {
    let share = len.div_ceil(world).next_multiple_of(SLICE_ALIGN);
    (rank * share).min(len)..((rank + 1) * share).min(len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn slices_cover_everything_once_in_order(len in 0usize..100_000, world in 1usize..17) {
            let mut end = 0;
            for rank in 0..world {
                let slice = slice_of(len, rank, world);
                prop_assert_eq!(slice.start, end);
                prop_assert!(slice.start.is_multiple_of(SLICE_ALIGN) || slice.start == len);
                end = slice.end;
            }
            prop_assert_eq!(end, len);
        }
    }
}
