//! A large all-reduce, chunk after chunk: on each host, members combine one slice each of what all of them have; each
//! rail combines its slice between the hosts; and on each host all take all slices. Every byte crosses the network
//! as often as if each host were one rank, over all rails at once.
//!
//! Buffers in memory that all members of a host map are combined where they are. Others pass over the board, which
//! hosts need not do alike: chunks and slices are the same.

use super::HostsBackend;
use super::engine::{Reduction, Region};
use crate::distributed::Deadline;
use crate::distributed::collective::{Collective, Owner, Pace, ReduceOp};
use crate::distributed::shm::{Gift, chunk_len, divide, reduce, slice_of};
use crate::error::Result;

/// The most that passes at once.
const CHUNK: usize = 4 << 20;
/// Below this one rail is as fast as several: what costs is to wake who waits.
const ONE_RAIL: usize = 128 << 10;

pub(super) fn run(
    group: &HostsBackend,
    collective: &Collective,
    gift: Gift,
    deadline: &Deadline,
    pace: Pace,
) -> Result<()> {
    let (Some(own), Some(result)) = (collective.send, collective.recv) else { return Ok(()) };
    let (layout, dtype, size) = (&group.layout, collective.signature.dtype, gift.size);
    let (me, members) = (layout.member, layout.own().len());
    let rails = if gift.nbytes() < ONE_RAIL { 1 } else { layout.rails() };
    let op = collective.signature.op.unwrap_or(ReduceOp::Sum);
    // A mean is a sum until its end.
    let summed = if op == ReduceOp::Avg { ReduceOp::Sum } else { op };
    let in_place = Some(own).filter(|own| own.ptr == result.ptr && collective.owner.is_some());
    let mut turn = group.enter_turn(&collective.signature, [in_place, None], deadline, pace)?;
    let alone = in_place.filter(|_| members == 1).map(|own| vec![own.ptr]);
    let places = alone.or_else(|| turn.places().map(<[_]>::to_vec));
    // MPI cuts buffers itself, where no board is between it and them.
    let are_alone = layout.hosts.iter().all(|members| members.len() == 1);
    let whole = group.world.mpi.is_some() && are_alone;
    let chunk = if whole { gift.len } else { chunk_len(CHUNK, size).min(gift.len) };
    // A slab of the board has a chunk of one member.
    let slab = (chunk * size).next_multiple_of(64);
    let board = match &places {
        Some(_) => None,
        None => Some(group.board(&mut turn, 2 * members * slab)?),
    };
    let reduction = Reduction { op: summed, dtype };
    let owner = board.clone().map(Owner::Shared).or_else(|| collective.owner.clone());
    for k in 0..gift.len.div_ceil(chunk) {
        let start = k * chunk;
        let count = chunk.min(gift.len - start);
        let slice = |rail| slice_of(count, rail, rails);
        // Where an element of the chunk is, of what a member has or has combined.
        let at = |member: usize, element: usize| match (&places, &board) {
            (Some(places), _) => places[member].wrapping_add((start + element) * size),
            (None, Some(board)) => {
                let half = (k & 1) * members * slab;
                board.as_ptr().wrapping_add(half + member * slab + element * size)
            }
            (None, None) => unreachable!("buffers are shared, or there is a board"),
        };
        let private = |element: usize| own.ptr.wrapping_add((start + element) * size);
        if board.is_some() {
            for slice in (0..rails).filter(|&rail| rail != me).map(slice) {
                let (from, to) = (private(slice.start), at(me, slice.start));
                // SAFETY: inside the buffer and this member's slab, whose last readers were two chunks ago or in
                // the call before; all have met since.
                unsafe { from.copy_to_nonoverlapping(to, slice.len() * size) };
            }
            turn.barrier()?;
        }
        if me < rails {
            let slice = slice(me);
            let source = |member: usize| match member == me {
                true => private(slice.start).cast_const(),
                false => at(member, slice.start).cast_const(),
            };
            let sources: Vec<*const u8> = (0..members).map(source).collect();
            let to = at(me, slice.start);
            // SAFETY: all have met since the others wrote their part of this slice, and nobody else touches it
            // before they meet again. The destination is one of the sources, or on this member's slab.
            unsafe { reduce(summed, dtype, &sources, &[to], slice.len()) };
            if me == 0 || !slice.is_empty() {
                // SAFETY: the slice is this member's, as above.
                let bytes = unsafe { std::slice::from_raw_parts_mut(to, slice.len() * size) };
                let owner = owner.as_ref().expect("buffers in place have one, and so has a board");
                group.on_rail(&turn, k, |engine, call| {
                    engine.all_reduce(call, Region { bytes, owner }, reduction)
                })?;
            }
            if op == ReduceOp::Avg {
                // SAFETY: as above.
                unsafe { divide(dtype, to, group.ranks.len(), slice.len()) };
            }
            for member in (0..members).filter(|&member| member != me && places.is_some()) {
                let there = at(member, slice.start);
                // SAFETY: the same slice of another member's buffer, which it leaves to this one.
                unsafe { to.cast_const().copy_to_nonoverlapping(there, slice.len() * size) };
            }
        }
        if board.is_some() {
            turn.barrier()?;
            for (rail, slice) in (0..rails).map(|rail| (rail, slice(rail))) {
                let to = result.ptr.wrapping_add((start + slice.start) * size);
                // SAFETY: written before the barrier, and not again before all have met.
                unsafe {
                    at(rail, slice.start)
                        .cast_const()
                        .copy_to_nonoverlapping(to, slice.len() * size);
                }
            }
        }
    }
    if board.is_none() {
        turn.barrier()?;
    }
    turn.complete();
    Ok(())
}
