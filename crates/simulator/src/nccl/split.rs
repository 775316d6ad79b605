//! Splitting a communicator: the hosts of all ranks tell each other their colours, keys and an id each;
//! those of a colour join by the id of their first or, on several machines, by where they listen.

use super::board::NOTE;
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
    let place = parent.place()?;
    // Those on several machines know where all listen, and need no id.
    let id = if place.mesh().is_some() { UniqueId([0; 128]) } else { id::make()? };
    let mine = Wish { color, key, id };
    let met = place.tell_all(&mine.encode());
    let (number, notes) = match met {
        Ok(told) => told,
        Err(stop) => {
            let outcome = parent.stopped(stop);
            if let Some(child) = child {
                child.fail(outcome, "the split of its parent failed");
            }
            return Err(outcome);
        }
    };
    let wishes: Vec<Wish> = notes.iter().map(Wish::decode).collect();
    let mut members: Vec<(i32, usize)> = (0..place.world)
        .filter(|rank| wishes[*rank].color == color)
        .map(|rank| (wishes[rank].key, rank))
        .collect();
    members.sort_unstable();
    let leader = members[0].1;
    if leader != place.rank || color == NO_COLOR {
        id::forget(&mine.id);
    }
    let Some(child) = child else { return Ok(()) };
    let own = members.iter().position(|(_, rank)| *rank == place.rank);
    let own = own.ok_or(Outcome::INTERNAL_ERROR)?;
    match place.mesh() {
        Some(mesh) => {
            let ranks: Vec<usize> = members.iter().map(|(_, rank)| *rank).collect();
            child.join_part(mesh, (number, color), &ranks, own)
        }
        None => child.join(&wishes[leader].id, own, members.len()),
    }
}
