//! Collectives as exchanges. All of them work in place, on the bytes of one buffer per place.
//!
//! In which order elements are combined is a matter of the call's size and the number of places alone, so results are
//! the same on all places, bit for bit, and from run to run:
//!
//! - *Direct*: a small message goes from everybody to everybody who needs it. The result is the fold over places 0, 1,
//!   ..., n-1.
//! - *Ring*: a large buffer is cut into n chunks at multiples of 64 bytes. Chunk c begins at place c and goes round:
//!   places c+1, c+2, ..., c-1 fold what comes into their own. Where all want the result it goes round once more. One
//!   message to the right and one from the left carry all of it: what has come goes on at once, so that combining,
//!   sending and receiving overlap. The buffer of an all-reduce goes round in pieces of n chunks of [`CHUNK`] bytes,
//!   and what is left in n chunks of its own: bytes are sent on, and overwritten, while they are in a cache.
//! - *Chain*: a large reduce to place r is folded from place r+1 on over r+2, ... to r. A large broadcast goes from r
//!   over r+1, ... to r-1.
//!
//! The function gets whole elements: each dtype's size has to divide 64, and each length be a multiple of it. What it
//! rounds, it rounds at each step.

use std::ops::Range;

use crate::exchange::Planner;
use crate::failure::Failure;
use crate::lane::{Fold, GRAIN};
use crate::layout::{Buffer, Layout};
use crate::links::{Call, Combine, Links};

/// The buffer of a collective.
const DATA: Buffer = Buffer::Memory(0);
/// From how many bytes on a broadcast goes along a chain, in which each place sends it once.
const CHAIN: usize = 1 << 20;
/// The chunks of a large all-reduce. What of two places lies between arrival and departure fits into a core's
/// second-level cache; a sender is ahead of the receiver by at most so much, which covers the latency of a network.
const CHUNK: usize = 512 << 10;

impl Links {
    /// Combines the buffers of all places: each then has the result.
    ///
    /// # Errors
    /// See [`Failure`]; the buffer may then hold anything. The same goes for all collectives.
    pub fn all_reduce(
        &mut self,
        call: &Call<'_>,
        data: &mut [u8],
        combine: &Combine<'_>,
    ) -> Result<(), Failure> {
        let n = self.places();
        if n > 1 && data.len() * (n - 1) <= self.direct {
            let wanted = vec![0..data.len(); n];
            return self.reduce_direct(call, data, &wanted, None, combine);
        }
        if n == 1 {
            return Ok(());
        }
        let whole = data.len() / (n * CHUNK);
        let round =
            |k: usize| (0..n).map(|c| (k * n + c) * CHUNK..(k * n + c + 1) * CHUNK).collect();
        let rounds: Vec<Vec<Range<usize>>> = (0..whole).map(round).collect();
        let start = whole * n * CHUNK;
        let of_rest = chunks(data.len() - start, n).into_iter();
        let rest = vec![of_rest.map(|range| start + range.start..start + range.end).collect()];
        let mut planner = Planner::new(self, call, 0);
        let is_some =
            |rounds: &&Vec<Vec<Range<usize>>>| rounds.iter().flatten().any(|c| !c.is_empty());
        for rounds in [rounds, rest].iter().filter(is_some) {
            // Step t sends chunk place - t and receives the one before, which is what step t + 1 sends.
            planner.ring(rounds, self.place, 2 * (n - 1), true);
        }
        let plan = planner.plan;
        self.run(call, plan, &[], &mut [data], Some(combine))
    }

    /// Combines the buffers of all places, which have a part for each: on return part `place` has the result, and the
    /// others may hold anything.
    pub fn reduce_scatter(
        &mut self,
        call: &Call<'_>,
        data: &mut [u8],
        lengths: &[usize],
        combine: &Combine<'_>,
    ) -> Result<(), Failure> {
        let n = self.places();
        let parts = self.parts(data.len(), lengths);
        if n > 1 && data.len() * (n - 1) <= self.direct * n {
            return self.reduce_direct(call, data, &parts, None, combine);
        }
        self.ring(call, data, parts, (self.place + n - 1) % n, Some(combine))
    }

    /// Gives the own part of `data` to all: on return each has all parts.
    pub fn all_gather(
        &mut self,
        call: &Call<'_>,
        data: &mut [u8],
        lengths: &[usize],
    ) -> Result<(), Failure> {
        let (n, own) = (self.places(), self.place);
        let parts = self.parts(data.len(), lengths);
        // What is long differs between places where lengths do; all have to decide alike.
        if data.len() > self.direct {
            return self.ring(call, data, parts, own, None);
        }
        let mut planner = Planner::new(self, call, 0);
        for other in (1..n).map(|i| (own + i) % n) {
            planner.send(other, Layout::new([(DATA, parts[own].clone())]), None);
            planner.receive(other, Layout::new([(DATA, parts[other].clone())]), Fold::NONE);
        }
        let plan = planner.plan;
        self.run(call, plan, &[], &mut [data], None)
    }

    /// Gives the buffer of `root` to all.
    pub fn broadcast(
        &mut self,
        call: &Call<'_>,
        data: &mut [u8],
        root: usize,
    ) -> Result<(), Failure> {
        let n = self.places();
        self.check_root(root);
        // Counted from the root.
        let own = (self.place + n - root) % n;
        let all = Layout::new([(DATA, 0..data.len())]);
        let mut planner = Planner::new(self, call, 0);
        let (parent, children): (_, Vec<usize>) = if data.len() > CHAIN {
            (own.checked_sub(1), Vec::from_iter((own + 1 < n).then_some(own + 1)))
        } else {
            // A tree: without its lowest bit a place is its parent.
            let lowest = if own == 0 { n.next_power_of_two() } else { 1 << own.trailing_zeros() };
            let bits = (0..lowest.trailing_zeros()).rev();
            let children = bits.map(|bit| own + (1 << bit)).filter(|&child| child < n);
            ((own != 0).then(|| own - lowest), children.collect())
        };
        if let Some(parent) = parent {
            planner.receive((parent + root) % n, all.clone(), Fold::NONE);
        }
        for child in children {
            planner.send((child + root) % n, all.clone(), parent.map(|_| (0, 0)));
        }
        let plan = planner.plan;
        self.run(call, plan, &[], &mut [data], None)
    }

    /// Combines the buffers of all places at `root`. Those of the others may then hold anything.
    pub fn reduce(
        &mut self,
        call: &Call<'_>,
        data: &mut [u8],
        root: usize,
        combine: &Combine<'_>,
    ) -> Result<(), Failure> {
        let n = self.places();
        self.check_root(root);
        if data.len() * (n - 1) <= self.direct {
            let wanted = vec![0..data.len(); n];
            return self.reduce_direct(call, data, &wanted, Some(root), combine);
        }
        let all = Layout::new([(DATA, 0..data.len())]);
        let mut planner = Planner::new(self, call, 0);
        let is_first = self.place == (root + 1) % n;
        if !is_first {
            planner.receive((self.place + n - 1) % n, all.clone(), Fold::ALL);
        }
        if self.place != root {
            planner.send((self.place + 1) % n, all, (!is_first).then_some((0, 0)));
        }
        let plan = planner.plan;
        self.run(call, plan, &[], &mut [data], Some(combine))
    }

    /// Brings the buffers `own` of all places to `root`, one after the other in `all`, which is empty elsewhere.
    /// `lengths` are those of all places.
    pub fn gather(
        &mut self,
        call: &Call<'_>,
        own: &[u8],
        all: &mut [u8],
        lengths: &[usize],
        root: usize,
    ) -> Result<(), Failure> {
        self.check_root(root);
        let total = if self.place == root { all.len() } else { lengths.iter().sum() };
        let parts = self.parts(total, lengths);
        let mut planner = Planner::new(self, call, 0);
        if self.place == root {
            all[parts[root].clone()].copy_from_slice(own);
            for other in (0..self.places()).filter(|&other| other != root) {
                planner.receive(other, Layout::new([(DATA, parts[other].clone())]), Fold::NONE);
            }
        } else {
            planner.send(root, Layout::new([(Buffer::Input(0), 0..own.len())]), None);
        }
        let plan = planner.plan;
        self.run(call, plan, &[own], &mut [all], None)
    }

    /// Brings the parts of `all`, which is empty elsewhere, from `root` to the buffers `own` of the places.
    pub fn scatter(
        &mut self,
        call: &Call<'_>,
        all: &[u8],
        own: &mut [u8],
        lengths: &[usize],
        root: usize,
    ) -> Result<(), Failure> {
        self.check_root(root);
        let total = if self.place == root { all.len() } else { lengths.iter().sum() };
        let parts = self.parts(total, lengths);
        let mut planner = Planner::new(self, call, 0);
        if self.place == root {
            own.copy_from_slice(&all[parts[root].clone()]);
            for other in (0..self.places()).filter(|&other| other != root) {
                planner.send(other, Layout::new([(Buffer::Input(0), parts[other].clone())]), None);
            }
        } else {
            planner.receive(root, Layout::new([(DATA, 0..own.len())]), Fold::NONE);
        }
        let plan = planner.plan;
        self.run(call, plan, &[all], &mut [own], None)
    }

    /// Gives part i of `send` to place i, and takes part i of `receive` from it.
    pub fn all_to_all(
        &mut self,
        call: &Call<'_>,
        send: &[u8],
        send_lengths: &[usize],
        receive: &mut [u8],
        receive_lengths: &[usize],
    ) -> Result<(), Failure> {
        let (n, own) = (self.places(), self.place);
        let from = self.parts(send.len(), send_lengths);
        let to = self.parts(receive.len(), receive_lengths);
        receive[to[own].clone()].copy_from_slice(&send[from[own].clone()]);
        let mut planner = Planner::new(self, call, 0);
        // Each begins with its right neighbour, so that not all send to one.
        for i in 1..n {
            let (right, left) = ((own + i) % n, (own + n - i) % n);
            planner.send(right, Layout::new([(Buffer::Input(0), from[right].clone())]), None);
            planner.receive(left, Layout::new([(DATA, to[left].clone())]), Fold::NONE);
        }
        let plan = planner.plan;
        self.run(call, plan, &[send], &mut [receive], None)
    }

    /// Waits until all places have called it: in steps of 1, 2, 4, ... places.
    pub fn barrier(&mut self, call: &Call<'_>) -> Result<(), Failure> {
        let (n, own) = (self.places(), self.place);
        let (mut reach, mut step) = (1, 0);
        while reach < n {
            let mut planner = Planner::new(self, call, step);
            planner.send((own + reach) % n, Layout::default(), None);
            planner.receive((own + n - reach) % n, Layout::default(), Fold::NONE);
            let plan = planner.plan;
            self.run(call, plan, &[], &mut [], None)?;
            (reach, step) = (2 * reach, step + 1);
        }
        Ok(())
    }

    /// Sends `bytes` to a place that calls [`receive`](Self::receive).
    pub fn send(&mut self, call: &Call<'_>, to: usize, bytes: &[u8]) -> Result<(), Failure> {
        self.exchange(call, &[crate::Send { to, bytes }], &mut [])
    }

    /// Receives what a place [sends](Self::send).
    pub fn receive(
        &mut self,
        call: &Call<'_>,
        from: usize,
        bytes: &mut [u8],
    ) -> Result<(), Failure> {
        self.exchange(call, &[], &mut [crate::Receive { from, bytes }])
    }

    /// One round of a ring; see [`Planner::ring`].
    fn ring(
        &mut self,
        call: &Call<'_>,
        data: &mut [u8],
        chunks: Vec<Range<usize>>,
        first: usize,
        combine: Option<&Combine<'_>>,
    ) -> Result<(), Failure> {
        let n = self.places();
        if n == 1 {
            return Ok(());
        }
        let mut planner = Planner::new(self, call, 0);
        planner.ring(&[chunks], first, n - 1, combine.is_some());
        let plan = planner.plan;
        self.run(call, plan, &[], &mut [data], combine)
    }

    /// Each place, or only `root`, gets its part of everybody's buffer (those of `wanted`), and folds them in the
    /// order of places.
    fn reduce_direct(
        &mut self,
        call: &Call<'_>,
        data: &mut [u8],
        wanted: &[Range<usize>],
        root: Option<usize>,
        combine: &Combine<'_>,
    ) -> Result<(), Failure> {
        let (n, own) = (self.places(), self.place);
        let mine = wanted[own].clone();
        let room = mine.len().next_multiple_of(GRAIN);
        let takes = |place: usize| root.is_none_or(|root| root == place);
        let mut planner = Planner::new(self, call, 0);
        for other in (1..n).map(|i| (own + i) % n) {
            if takes(other) {
                planner.send(other, Layout::new([(Buffer::Input(0), wanted[other].clone())]), None);
            }
            if takes(own) {
                let slot = other * room..other * room + mine.len();
                planner.receive(other, Layout::new([(Buffer::Memory(0), slot)]), Fold::NONE);
            }
        }
        let plan = planner.plan;
        let mut scratch = std::mem::take(&mut self.slots);
        let slots = scratch.get(n * room);
        let ended = self.run(call, plan, &[data], &mut [slots], None);
        if ended.is_ok() && !mine.is_empty() && takes(own) {
            let (first, rest) = scratch.get(n * room).split_at_mut(room);
            let first = &mut first[..mine.len()];
            let slot = |place: usize| &rest[(place - 1) * room..][..mine.len()];
            if own == 0 {
                (1..n).for_each(|place| combine(&mut data[mine.clone()], slot(place)));
            } else {
                for place in 1..n {
                    combine(first, if place == own { &data[mine.clone()] } else { slot(place) });
                }
                data[mine].copy_from_slice(first);
            }
        }
        self.slots = scratch;
        ended
    }

    fn check_root(&self, root: usize) {
        assert!(root < self.places(), "`root` {root}; expected 0 to {}", self.places() - 1);
    }

    /// Where in a buffer of `total` bytes each place's part is.
    fn parts(&self, total: usize, lengths: &[usize]) -> Vec<Range<usize>> {
        let n = self.places();
        assert_eq!(lengths.len(), n, "one length for each of {n} places");
        let mut end = 0;
        let ranges = lengths.iter().map(|length| {
            end += length;
            end - length..end
        });
        let ranges: Vec<_> = ranges.collect();
        assert_eq!(end, total, "lengths {lengths:?} of a buffer of {total} bytes");
        ranges
    }
}

impl Planner<'_> {
    /// In each round, `steps` times: sends a chunk to the right, beginning with `first`, and receives the one before it
    /// from the left, which is then the next to be sent. Where `is_folded`, the first n - 1 that come are folded. All
    /// rounds are one message: where there are several, all chunks have the same length.
    fn ring(&mut self, rounds: &[Vec<Range<usize>>], first: usize, steps: usize, is_folded: bool) {
        let (n, own) = (self.places(), self.place());
        let of_round = |chunks: &[Range<usize>], steps: Range<usize>| {
            let chunk = |t: usize| (DATA, chunks[(first + 2 * n - t) % n].clone());
            Layout::new(steps.map(chunk))
        };
        let layout = |steps: Range<usize>| {
            Layout::new(rounds.iter().flat_map(|chunks| of_round(chunks, steps.clone()).segments()))
        };
        let fold = Fold {
            period: of_round(&rounds[0], 1..steps + 1).total().max(1),
            folded: if is_folded { of_round(&rounds[0], 1..n).total() } else { 0 },
        };
        let incoming = self.receive((own + n - 1) % n, layout(1..steps + 1), fold);
        let lead = rounds[0][first].len();
        self.send((own + 1) % n, layout(0..steps), Some((incoming, lead)));
    }
}

/// `len` bytes in `n` chunks that begin at multiples of [`GRAIN`].
fn chunks(len: usize, n: usize) -> Vec<Range<usize>> {
    let each = len.div_ceil(n).next_multiple_of(GRAIN);
    (0..n).map(|i| (i * each).min(len)..((i + 1) * each).min(len)).collect()
}
