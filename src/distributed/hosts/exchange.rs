//! Collectives as exchanges of gifts: each host's members lay what they give on its board, the leader exchanges the
//! boards with the other hosts, and every member takes what it needs. What is long passes in chunks, for which the
//! board has two halves in turn: while some still take from one, others fill the other.

use super::HostsBackend;
use super::engine::Region;
use super::needs::{Board, Needs};
use crate::distributed::Deadline;
use crate::distributed::collective::{Collective, Owner, Pace};
use crate::distributed::shm::{Gift, Turn, chunk_len, take};
use crate::error::Result;

/// At most this is on half a board, unless more than thousands of pieces are.
const HALF: usize = 8 << 20;
/// Pieces begin at multiples of this, so that elements are aligned.
const GRAIN: usize = 64;

pub(super) fn run(
    group: &HostsBackend,
    collective: &Collective,
    gift: Gift,
    deadline: &Deadline,
    pace: Pace,
) -> Result<()> {
    let (layout, signature) = (&group.layout, &collective.signature);
    let own = collective.send.filter(|_| gift.mine);
    let is_inline = gift.nbytes() <= group.local.slot_bytes();
    let first = [None, own.filter(|_| is_inline && gift.len > 0)];
    let mut turn = group.enter_turn(signature, first, deadline, pace)?;
    let needs = Needs::of(signature, layout);
    // The same on all hosts.
    let chunk = chunk_len(HALF / needs.most_pieces().max(1), gift.size);
    let stride = |count: usize| (count * gift.size).next_multiple_of(GRAIN);
    let half = needs.board(stride(chunk.min(gift.len))).total;
    let memory = group.board(&mut turn, 2 * half)?;
    let owner = Owner::Shared(memory.clone());
    for k in 0..gift.len.div_ceil(chunk).max(1) {
        let range = k * chunk..((k + 1) * chunk).min(gift.len);
        let board = needs.board(stride(range.len()));
        // SAFETY: a board has two halves.
        let at = unsafe { memory.as_ptr().add((k & 1) * half) };
        let lay = |member: usize, from: *const u8| {
            for [part, place] in board.places_of(member, layout, gift.parts) {
                let from = from.wrapping_add(gift.offset(part, range.start));
                // SAFETY: `from` is a whole gift, and a piece's place is inside the half. Who lays it has that to
                // itself: its last readers were two chunks ago or in the call before, and all have met since.
                unsafe {
                    from.copy_to_nonoverlapping(at.add(place), range.len() * gift.size);
                }
            }
        };
        if !is_inline {
            own.iter().for_each(|own| lay(layout.member, own.ptr.cast_const()));
            turn.barrier()?;
        }
        if layout.is_leader() {
            if is_inline && gift.len > 0 {
                (0..layout.own().len()).for_each(|member| lay(member, turn.slot(member)));
            }
            // SAFETY: between two barriers the half is the leader's alone.
            let bytes = unsafe { std::slice::from_raw_parts_mut(at, board.total) };
            between_hosts(group, &turn, k, &board, Region { bytes, owner: &owner })?;
        }
        turn.barrier()?;
        if gift.len == 0 {
            break;
        }
        let view = |rank: usize, part: usize| {
            let part = if gift.parts == 1 { 0 } else { layout.find(part)[1] };
            at.wrapping_add(board.piece(layout.find(rank), part)).cast_const()
        };
        let seat = [group.rank, group.ranks.len()];
        // SAFETY: the pieces that this rank needs are on the board, each with all elements of the range; they stay
        // until the next chunk but one, or the next call.
        unsafe { take(collective, gift, seat, range, &view) };
    }
    turn.complete();
    Ok(())
}

/// Brings what came from other hosts onto this one's board, and theirs to them.
fn between_hosts(
    group: &HostsBackend,
    turn: &Turn<'_>,
    exchange: usize,
    board: &Board<'_>,
    Region { bytes, owner }: Region<'_>,
) -> Result<()> {
    let came: Vec<usize> = board.came.iter().map(|[_, len]| *len).collect();
    if board.goes.is_empty() {
        return group.on_rail(turn, exchange, |engine, call| {
            engine.all_gather(call, Region { bytes, owner }, &came)
        });
    }
    let own = group.layout.place;
    let without_own = |mut lengths: Vec<usize>| {
        lengths[own] = 0;
        lengths
    };
    let came = without_own(came);
    let goes = without_own(board.goes.iter().map(|[_, len]| *len).collect());
    // What comes is first, then what stays here, then what goes.
    let (receive, rest) = bytes.split_at_mut(came.iter().sum());
    let send = &rest[board.came[own][1]..];
    group.on_rail(turn, exchange, |engine, call| {
        engine.all_to_all(call, send, &goes, Region { bytes: receive, owner }, &came)
    })
}
