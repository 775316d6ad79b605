//! A rank's place among the ranks: how it waits for its peers, and what ends the wait.

use super::board::{Board, Call, Lane, State};
use super::mailbox::Transfer;
use crate::ipc::handle::began;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a rank sleeps between two looks at its peers.
pub const LOOK: Duration = Duration::from_millis(2);
/// Every so many looks it asks whether their processes live.
const DEATHS: u32 = 16;

/// What ends a wait for peers.
#[derive(Debug)]
pub enum Stop {
    /// This rank has aborted.
    Aborted,
    /// A peer is gone.
    Peer(String),
    /// Ranks call different things.
    Mismatch(String),
}

/// A rank's place among the ranks.
#[derive(Debug)]
pub struct Seat {
    /// This rank.
    pub rank: usize,
    /// How many there are.
    pub world: usize,
    /// Where they meet.
    pub board: Board,
    /// Whether this rank has given up.
    pub aborted: Arc<AtomicBool>,
}

impl Seat {
    /// Waits until `ready` gives something. Ends when a rank aborts, or one of `peers` dies or leaves.
    pub fn wait<T>(
        &self,
        peers: &[usize],
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, Stop> {
        let mine = self.board.cell(self.rank);
        for look in 0.. {
            let bell = mine.bell();
            if let Some(value) = ready() {
                return Ok(value);
            }
            if self.aborted.load(Ordering::Acquire) {
                return Err(Stop::Aborted);
            }
            let gone = self.find_gone(peers, look % DEATHS == DEATHS - 1);
            if let Some(gone) = gone {
                // It may have done its part before it went.
                return ready().ok_or(Stop::Peer(gone));
            }
            mine.sleep(bell, LOOK);
        }
        Err(Stop::Aborted)
    }

    /// A peer that will not come, in words.
    fn find_gone(&self, peers: &[usize], ask_for_deaths: bool) -> Option<String> {
        (0..self.world).find_map(|rank| {
            let cell = self.board.cell(rank);
            let process = cell.process.load(Ordering::Acquire);
            let waited_for = peers.contains(&rank);
            match cell.state() {
                State::Aborted => Some(format!("rank {rank} has aborted the communicator")),
                State::Left if waited_for => {
                    Some(format!("rank {rank} has destroyed its communicator"))
                }
                State::Joined if waited_for && ask_for_deaths && process != 0 => {
                    let dead = began(process) != Some(cell.began.load(Ordering::Acquire));
                    dead.then(|| format!("rank {rank} (process {process}) has died"))
                }
                _ => None,
            }
        })
    }

    /// As [`wait`](Self::wait) for transfers; ends too when a peer has gone on to a collective, in
    /// which it waits for this rank.
    pub fn wait_while_open<T>(
        &self,
        peers: &[usize],
        transfers: &[Transfer],
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, Stop> {
        let step = self.board.cell(self.rank).step(Lane::Device);
        let ahead = |rank: &&usize| self.board.cell(**rank).step(Lane::Device) > step;
        let one_or_other = || {
            if let Some(value) = ready() {
                return Some(Ok(value));
            }
            let rank = peers.iter().find(ahead)?;
            // It may have done its part before it went on.
            Some(ready().ok_or_else(|| {
                let calls: Vec<String> = transfers.iter().map(|one| one.describe()).collect();
                Stop::Mismatch(format!(
                    "rank {} called {}, rank {rank} is in a collective that waits for rank {}",
                    self.rank,
                    calls.join(" and "),
                    self.rank
                ))
            }))
        };
        self.wait(peers, one_or_other)?
    }

    /// Says what this rank calls, waits until all ranks are there, then runs `compare`.
    pub fn meet(
        &self,
        lane: Lane,
        call: &Call,
        compare: impl FnOnce() -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mine = self.board.cell(self.rank);
        let step = mine.step(lane);
        mine.publish(lane, step, call);
        mine.make_step(lane);
        self.ring_all();
        let all: Vec<usize> = (0..self.world).collect();
        let there = |rank: &usize| self.board.cell(*rank).step(lane) > step;
        self.wait(&all, || all.iter().all(there).then_some(()))?;
        compare()
    }

    /// Wakes everybody.
    pub fn ring_all(&self) {
        (0..self.world).for_each(|rank| self.board.cell(rank).ring());
    }
}
