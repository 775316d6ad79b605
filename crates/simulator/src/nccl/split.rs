//! Splitting a communicator: the hosts of all ranks tell each other their colours, keys and an id each;
//! those of a colour join by the id of their first.

use super::board::{Lane, NOTE};
use super::communicator::Communicator;
use super::id::{self, UniqueId};
use super::outcome::{Outcome, Result};

/// The colour of ranks that get no new communicator.
pub const NO_COLOR: i32 = -1;

/// What a rank tells the others.
struct Wish {
    color: i32,
    key: i32,
    id: UniqueId,
}

impl Wish {
    fn encode(&self) -> [u8; NOTE] {
        let mut note = [0; NOTE];
        note[..4].copy_from_slice(&self.color.to_le_bytes());
        note[4..8].copy_from_slice(&self.key.to_le_bytes());
        note[8..136].copy_from_slice(&self.id.0);
        note
    }

    fn decode(note: &[u8; NOTE]) -> Wish {
        let number =
            |at: usize| i32::from_le_bytes([note[at], note[at + 1], note[at + 2], note[at + 3]]);
        let mut id = UniqueId([0; 128]);
        id.0.copy_from_slice(&note[8..136]);
        Wish { color: number(0), key: number(4), id }
    }
}

/// Takes part in a split of `parent`, and seats `child` if this rank has a colour.
pub fn split(parent: &Communicator, color: i32, key: i32, child: Option<&Communicator>) -> Result {
    let seat = parent.seat()?;
    let mine = Wish { color, key, id: id::make()? };
    let cell = seat.board.cell(seat.rank);
    let step = cell.step(Lane::Host);
    cell.write_note(step, &mine.encode());
    let met = seat.meet(Lane::Host, &[step, 0, 0, 0, 0, 0], || Ok(()));
    if let Err(stop) = met {
        let outcome = parent.stopped(stop);
        if let Some(child) = child {
            child.fail(outcome, "the split of its parent failed");
        }
        return Err(outcome);
    }
    let wishes: Vec<Wish> =
        (0..seat.world).map(|rank| Wish::decode(&seat.board.cell(rank).note(step))).collect();
    let mut members: Vec<(i32, usize)> = (0..seat.world)
        .filter(|rank| wishes[*rank].color == color)
        .map(|rank| (wishes[rank].key, rank))
        .collect();
    members.sort_unstable();
    let leader = members[0].1;
    if leader != seat.rank || color == NO_COLOR {
        id::forget(&mine.id);
    }
    let Some(child) = child else { return Ok(()) };
    let place = members.iter().position(|(_, rank)| *rank == seat.rank);
    let place = place.ok_or(Outcome::INTERNAL_ERROR)?;
    child.join(&wishes[leader].id, place, members.len())
}
