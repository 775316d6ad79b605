//! A rank's place among the ranks of a communicator: on one machine they meet in shared memory, on several they
//! have connections.

use super::board::{Lane, NOTE, State};
use super::collective::Collective;
use super::mailbox::Transfer;
use super::mesh::Mesh;
use super::seat::{Seat, Stop};

/// How often the hosts of all ranks have told each other something, and what they did this time.
pub type Told = (u64, Vec<[u8; NOTE]>);

/// A rank's place.
#[derive(Debug)]
pub struct Place {
    /// This rank.
    pub rank: usize,
    /// How many there are.
    pub world: usize,
    ranks: Ranks,
}

#[derive(Debug)]
enum Ranks {
    OnOneMachine(Seat),
    OnSeveral(Box<Mesh>),
}

impl From<Seat> for Place {
    fn from(seat: Seat) -> Place {
        Place { rank: seat.rank, world: seat.world, ranks: Ranks::OnOneMachine(seat) }
    }
}

impl From<Mesh> for Place {
    fn from(mesh: Mesh) -> Place {
        Place { rank: mesh.rank(), world: mesh.world(), ranks: Ranks::OnSeveral(Box::new(mesh)) }
    }
}

impl Place {
    /// Performs a collective, the `number`-th of this rank.
    pub fn collective(&self, call: &Collective, number: u64) -> Result<(), Stop> {
        match &self.ranks {
            Ranks::OnOneMachine(seat) => seat.collective(call, number),
            Ranks::OnSeveral(mesh) => mesh.collective(call, number),
        }
    }

    /// Performs transfers side by side.
    pub fn transfer(&self, transfers: &[Transfer]) -> Result<(), Stop> {
        match &self.ranks {
            Ranks::OnOneMachine(seat) => seat.transfer(transfers),
            Ranks::OnSeveral(mesh) => mesh.transfer(transfers),
        }
    }

    /// Tells the hosts of all ranks something: how often all have, and what they tell, by rank.
    pub fn tell_all(&self, note: &[u8; NOTE]) -> Result<Told, Stop> {
        let seat = match &self.ranks {
            Ranks::OnOneMachine(seat) => seat,
            Ranks::OnSeveral(mesh) => return mesh.tell_all(note),
        };
        let cell = seat.board.cell(seat.rank);
        let step = cell.step(Lane::Host);
        cell.write_note(step, note);
        seat.meet(Lane::Host, &[step, 0, 0, 0, 0, 0], || Ok(()))?;
        Ok((step, (0..self.world).map(|rank| seat.board.cell(rank).note(step)).collect()))
    }

    /// The connections, of ranks on several machines.
    pub fn mesh(&self) -> Option<&Mesh> {
        match &self.ranks {
            Ranks::OnOneMachine(_) => None,
            Ranks::OnSeveral(mesh) => Some(mesh),
        }
    }

    /// Says that this rank is done with the communicator.
    pub fn end(&self, state: State) {
        match &self.ranks {
            Ranks::OnOneMachine(seat) => {
                seat.board.cell(seat.rank).end(state);
                seat.ring_all();
            }
            Ranks::OnSeveral(mesh) => mesh.end(state),
        }
    }
}
