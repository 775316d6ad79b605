//! A large all-reduce by messages. Each place sums one slice of all places' data, chunk after chunk, and gives the
//! others each sum as soon as it has it: what comes, what is summed and what goes are under way at once. Every place
//! adds in the order of places, so the bits are those of one host.

use std::collections::VecDeque;
use std::sync::Arc;

use torchrs_job::deadline::Deadline;
use torchrs_mpi::{Communicator, Failure, Pauses, Polling, Request, Watch};

use super::Lent;
use crate::distributed::collective::Owner;
use crate::distributed::hosts::engine::Reduction;
use crate::storage::SharedMemory;

/// Of data on its way to who sums it, and of sums on their way back.
const DATA: u16 = 65;
const SUM: u16 = 66;

/// The most bytes that come to a place for slices that are one chunk. Between two hosts 4 MiB took a tenth less time
/// uncut, and 100 MiB a tenth less in chunks.
const UNCUT: usize = 2 << 20;
/// The most bytes of a chunk, and the least, of many places.
const CHUNK: usize = 512 << 10;
const LEAST: usize = 64 << 10;
/// Chunks of a slice that are under way at once.
const WINDOW: usize = 4;
/// Where others' data comes to.
pub(super) const SLOTS: usize = 8 << 20;
/// Slices and chunks begin at multiples of this, so that elements are aligned.
const GRAIN: usize = 64;

/// How data is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    len: usize,
    slice: usize,
    chunk: usize,
}

impl Cut {
    fn new(len: usize, places: usize) -> Self {
        let slice = len.div_ceil(places).next_multiple_of(GRAIN);
        let others = (places - 1).max(1);
        let room = SLOTS / (WINDOW * others);
        let chunk = match slice * others <= UNCUT {
            true => slice,
            false => room.clamp(LEAST, CHUNK) / GRAIN * GRAIN,
        };
        Cut { len, slice, chunk }
    }

    /// Where chunk `k` of a place's slice begins, and its bytes; `None` after the last.
    fn chunk(self, place: usize, k: usize) -> Option<(usize, usize)> {
        let end = ((place + 1) * self.slice).min(self.len);
        let start = place * self.slice + k * self.chunk;
        (start < end && k * self.chunk < self.slice).then(|| (start, self.chunk.min(end - start)))
    }

    fn chunks(self, place: usize) -> usize {
        let end = ((place + 1) * self.slice).min(self.len);
        end.saturating_sub(place * self.slice).div_ceil(self.chunk)
    }
}

/// What goes to another place and comes from it.
struct Peer {
    place: usize,
    /// Data of its slice, and how many chunks have been begun.
    sent: VecDeque<Request<Lent>>,
    begun: usize,
    /// Sums of its slice, and how many have come.
    coming: VecDeque<Request<Lent>>,
    came: usize,
    /// Sums of the own slice.
    given: VecDeque<Request<Lent>>,
}

/// An all-reduce that is under way.
pub(super) struct Slices<'a> {
    group: &'a Communicator,
    at: *mut u8,
    owner: &'a Owner,
    reduction: Reduction,
    cut: Cut,
    peers: Vec<Peer>,
    /// The others' data of the own slice: of each chunk from `summed` on, in the order of `peers`.
    data: VecDeque<Vec<Request<Lent>>>,
    summed: usize,
    slots: Arc<SharedMemory>,
    slots_owner: Owner,
}

impl<'a> Slices<'a> {
    /// Begins it. `data` is `len` bytes of whole elements at `at`, which the call has alone until it ends.
    pub fn begin(
        group: &'a Communicator,
        (at, len, owner): (*mut u8, usize, &'a Owner),
        reduction: Reduction,
        slots: Arc<SharedMemory>,
    ) -> Result<Self, Failure> {
        let (own, places) = (group.rank(), group.size());
        let peer = |i| Peer {
            place: (own + i) % places,
            sent: VecDeque::new(),
            begun: 0,
            coming: VecDeque::new(),
            came: 0,
            given: VecDeque::new(),
        };
        let mut slices = Slices {
            group,
            at,
            owner,
            reduction,
            cut: Cut::new(len, places),
            peers: (1..places).map(peer).collect(),
            data: VecDeque::new(),
            summed: 0,
            slots_owner: Owner::Shared(slots.clone()),
            slots,
        };
        slices.expect()?;
        slices.send()?;
        Ok(slices)
    }

    /// Where a peer's data of chunk `k` comes to.
    fn slot(&self, k: usize, peer: usize) -> *mut u8 {
        let number = (k % WINDOW) * self.peers.len() + peer;
        self.slots.as_ptr().wrapping_add(number * self.cut.chunk)
    }

    fn lent(&self, (start, len): (usize, usize)) -> Lent {
        Lent { at: self.at.wrapping_add(start), len, _owner: self.owner.clone() }
    }

    /// Receives more data of the own slice, as far as there is room.
    fn expect(&mut self) -> Result<(), Failure> {
        while self.data.len() < WINDOW {
            let k = self.summed + self.data.len();
            let Some((_, len)) = self.cut.chunk(self.group.rank(), k) else { break };
            let mut requests = Vec::with_capacity(self.peers.len());
            for (i, peer) in self.peers.iter().enumerate() {
                let slot = Lent { at: self.slot(k, i), len, _owner: self.slots_owner.clone() };
                requests.push(self.group.receive(slot, peer.place, DATA)?);
            }
            self.data.push_back(requests);
        }
        Ok(())
    }

    /// Sends more data of the others' slices.
    fn send(&mut self) -> Result<(), Failure> {
        for i in 0..self.peers.len() {
            while self.peers[i].sent.len() < WINDOW {
                let Peer { place, begun, .. } = self.peers[i];
                let Some(part) = self.cut.chunk(place, begun) else { break };
                let request = self.group.send(self.lent(part), place, DATA)?;
                self.peers[i].sent.push_back(request);
                self.peers[i].begun += 1;
            }
        }
        Ok(())
    }

    /// Takes what has ended and begins what can be. Whether something has ended.
    fn advance(&mut self) -> Result<bool, Failure> {
        let mut moved = false;
        for i in 0..self.peers.len() {
            while ended(&mut self.peers[i].sent)? {
                moved = true;
                // Its sum goes where the data was, which MPI has now read.
                let Peer { place, begun, ref sent, .. } = self.peers[i];
                let part = self.cut.chunk(place, begun - sent.len() - 1);
                let part = part.expect("a chunk that was sent");
                let request = self.group.receive(self.lent(part), place, SUM)?;
                self.peers[i].coming.push_back(request);
            }
            while ended(&mut self.peers[i].coming)? {
                moved = true;
                self.peers[i].came += 1;
            }
            while ended(&mut self.peers[i].given)? {
                moved = true;
            }
        }
        if moved {
            self.send()?;
        }
        while self.has_chunk()? {
            moved = true;
            self.sum()?;
        }
        Ok(moved)
    }

    /// Whether all others' data of the next chunk has come.
    fn has_chunk(&mut self) -> Result<bool, Failure> {
        let Some(requests) = self.data.front_mut() else { return Ok(false) };
        for request in requests {
            if !request.test()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sums the next chunk and gives it to the others.
    fn sum(&mut self) -> Result<(), Failure> {
        let (own, k) = (self.group.rank(), self.summed);
        let (start, len) = self.cut.chunk(own, k).expect("a chunk that has come");
        let into = self.at.wrapping_add(start);
        let mut sources = vec![into.cast_const(); self.group.size()];
        for (i, peer) in self.peers.iter().enumerate() {
            sources[peer.place] = self.slot(k, i).cast_const();
        }
        self.data.pop_front();
        // SAFETY: a part of the call's memory that goes nowhere before, and slots that MPI has done with; all begin at
        // multiples of `GRAIN` from where memory begins, and have `len` bytes of whole elements.
        unsafe { self.reduction.into_place(&sources, into, len) };
        self.summed += 1;
        for i in 0..self.peers.len() {
            let request = self.group.send(self.lent((start, len)), self.peers[i].place, SUM)?;
            self.peers[i].given.push_back(request);
        }
        self.expect()
    }

    fn is_done(&self) -> bool {
        let peer = |peer: &Peer| peer.given.is_empty() && peer.came == self.cut.chunks(peer.place);
        self.summed == self.cut.chunks(self.group.rank()) && self.peers.iter().all(peer)
    }

    /// Waits until it has ended.
    pub fn run(&mut self, deadline: &Deadline, watch: &mut Watch<'_>) -> Result<(), Failure> {
        let mut pauses = Pauses::new(Polling::default(), self.cut.len);
        while !self.is_done() {
            match self.advance()? {
                true => pauses.restart(),
                false => pauses.pause(|| "a large all_reduce".to_owned(), deadline, watch)?,
            }
        }
        Ok(())
    }

    /// The places that have not done their part.
    pub fn late(&mut self) -> Vec<usize> {
        let mut late: Vec<usize> = (self.peers.iter())
            .filter(|peer| peer.came < self.cut.chunks(peer.place))
            .map(|peer| peer.place)
            .collect();
        for (peer, request) in self.peers.iter().zip(self.data.front_mut().into_iter().flatten()) {
            // One that fails has not come either.
            if !request.test().unwrap_or(false) && !late.contains(&peer.place) {
                late.push(peer.place);
            }
        }
        late.sort_unstable();
        late
    }
}

/// Takes the oldest away, if it has ended.
fn ended(requests: &mut VecDeque<Request<Lent>>) -> Result<bool, Failure> {
    let Some(request) = requests.front_mut() else { return Ok(false) };
    let ended = request.test()?;
    if ended {
        requests.pop_front();
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks cover the data once, and fit into their slots.
    #[test]
    fn data_is_cut_into_chunks_that_cover_it_once() {
        for places in 2..=16 {
            for len in [1 << 20, (1 << 20) + 8, 100 << 20, places * GRAIN, 8, (3 << 20) - 24] {
                let cut = Cut::new(len, places);
                let chunks = cut.chunks(0).min(WINDOW);
                assert!(chunks * (places - 1) * cut.chunk <= SLOTS && cut.chunk > 0);
                let mut at = 0;
                for place in 0..places {
                    for k in 0..cut.chunks(place) {
                        let (start, count) = cut.chunk(place, k).unwrap();
                        assert_eq!(start, at, "{len} bytes, {places} places");
                        assert!(start.is_multiple_of(GRAIN) && (1..=cut.chunk).contains(&count));
                        at += count;
                    }
                    assert_eq!(cut.chunk(place, cut.chunks(place)), None);
                }
                assert_eq!(at, len, "{places} places");
            }
        }
    }
}
