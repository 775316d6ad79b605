//! What goes before the data of a call, from place to place: the call's number, its fingerprint, and data that is
//! short. Places with another call find each other out, all of them, also those that do not meet directly.
//!
//! Up to [`DIRECT`] places send their heads to all others. More go in steps of 1, 2, 4, ... places, and pass on what
//! they have heard of differences.

use torchrs_links::{Call, Failure, MAX_FINGERPRINT};
use torchrs_mpi::{Communicator, Request};

use super::wait::{Wait, started};

/// The most data in a head.
pub(super) const CAP: usize = 32 << 10;
/// The most places of which each sends to all others.
const DIRECT: usize = 16;
/// Number, length of the fingerprint, the fingerprint.
const CALL: usize = 8 + 1 + MAX_FINGERPRINT;
/// Length of the data, a place with another call or none, what it calls, the sender's call.
const HEAD: usize = 4 + 4 + 2 * CALL;
const NONE: u32 = u32::MAX;

/// Where in a call's memory what goes in a head is, and how long it is.
type Short = (*mut u8, usize);

/// What a place calls.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Called {
    number: u64,
    fingerprint: Vec<u8>,
}

/// A place with another call than this one's.
type Differing = (usize, Called);

impl Called {
    fn encode(&self, to: &mut Vec<u8>) {
        let end = to.len() + CALL;
        to.extend_from_slice(&self.number.to_le_bytes());
        to.push(self.fingerprint.len() as u8);
        to.extend_from_slice(&self.fingerprint);
        to.resize(end, 0);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (number, rest) = bytes.split_first_chunk::<8>()?;
        let (&len, rest) = rest.split_first()?;
        let fingerprint = rest.get(..usize::from(len))?.to_vec();
        Some(Called { number: u64::from_le_bytes(*number), fingerprint })
    }
}

/// A head as it came; its data is behind it.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    data: usize,
    differing: Option<Differing>,
    own: Called,
}

impl Head {
    fn encode(data: usize, differing: Option<&Differing>, own: &Called, to: &mut Vec<u8>) {
        let place = differing.map_or(NONE, |(place, _)| *place as u32);
        to.clear();
        to.extend_from_slice(&(data as u32).to_le_bytes());
        to.extend_from_slice(&place.to_le_bytes());
        differing.map_or(own, |(_, called)| called).encode(to);
        own.encode(to);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (data, rest) = bytes.split_first_chunk::<4>()?;
        let (place, rest) = rest.split_first_chunk::<4>()?;
        let (other, own) = (rest.get(..CALL)?, rest.get(CALL..2 * CALL)?);
        let place = u32::from_le_bytes(*place);
        let differing = match place {
            NONE => None,
            place => Some((place as usize, Called::decode(other)?)),
        };
        let data = u32::from_le_bytes(*data) as usize;
        Some(Head { data, differing, own: Called::decode(own)? })
    }
}

/// The heads of one rail's calls: to whom they go, and memory for them.
pub(super) struct Heads {
    /// How far right each step's heads go.
    steps: Vec<Vec<usize>>,
    are_direct: bool,
    outgoing: Vec<Vec<u8>>,
    incoming: Vec<Vec<u8>>,
}

impl Heads {
    pub fn new(places: usize) -> Self {
        let are_direct = places <= DIRECT;
        let reaches = (0..usize::BITS).map(|bit| 1 << bit).take_while(|&reach| reach < places);
        let steps = match are_direct {
            true => vec![(1..places).collect()],
            false => reaches.map(|reach| vec![reach]).collect(),
        };
        Heads { steps, are_direct, outgoing: Vec::new(), incoming: Vec::new() }
    }

    /// Whether a head comes from each other place, and so can bring data.
    pub fn are_direct(&self) -> bool {
        self.are_direct
    }

    /// Sends the first heads of a call; `data` is what goes with the one to a place.
    pub fn begin<'a>(
        &'a mut self,
        group: &'a Communicator,
        call: &Call<'_>,
        data: impl Fn(usize) -> Option<Short>,
    ) -> Result<Meeting<'a>, Failure> {
        let own = Called { number: call.number, fingerprint: call.fingerprint.to_vec() };
        let (sent, coming) = (Vec::new(), Vec::new());
        let mut met = Meeting { heads: self, group, own, differing: None, sent, coming };
        met.step(0, data)?;
        Ok(met)
    }
}

/// The heads of a call, on their way.
pub(super) struct Meeting<'a> {
    heads: &'a mut Heads,
    group: &'a Communicator,
    own: Called,
    differing: Option<Differing>,
    sent: Vec<(usize, Request<Vec<u8>>)>,
    coming: Vec<(usize, Request<Vec<u8>>)>,
}

impl Meeting<'_> {
    fn step(&mut self, step: usize, data: impl Fn(usize) -> Option<Short>) -> Result<(), Failure> {
        let (own, places, tag) = (self.group.rank(), self.group.size(), step as u16);
        let room = if self.heads.are_direct { HEAD + CAP } else { HEAD };
        for reach in &self.heads.steps[step] {
            let from = (own + places - reach) % places;
            let memory = self.heads.incoming.pop().unwrap_or_else(|| vec![0; room]);
            let request = self.group.receive_up_to(memory, from, tag);
            self.coming.push((from, started(request)?));
        }
        for reach in &self.heads.steps[step] {
            let to = (own + reach) % places;
            let mut memory = self.heads.outgoing.pop().unwrap_or_default();
            let data = data(to);
            let len = data.map_or(0, |(_, len)| len);
            Head::encode(len, self.differing.as_ref(), &self.own, &mut memory);
            if let Some((at, len)) = data {
                // SAFETY: a part of the call's memory, which this call has alone.
                memory.extend_from_slice(unsafe { std::slice::from_raw_parts(at, len) });
            }
            let request = self.group.send(memory, to, tag);
            self.sent.push((to, started(request)?));
        }
        Ok(())
    }

    /// Takes all heads and the data in them, for which `place_of` is: all places are in this call then.
    pub fn end(
        &mut self,
        wait: &mut Wait<'_>,
        place_of: impl Fn(usize) -> Option<Short>,
    ) -> Result<(), Failure> {
        for step in 0..self.heads.steps.len() {
            if step > 0 {
                self.step(step, |_| None)?;
            }
            let Self { heads, own, differing, coming, .. } = self;
            let mut garbled = None;
            wait.each(std::mem::take(coming), |from, bytes| {
                match Head::decode(&bytes) {
                    Some(head) if head.own != *own => {
                        differing.get_or_insert((from, head.own));
                    }
                    Some(Head { differing: Some(heard), .. }) => {
                        differing.get_or_insert(heard);
                    }
                    Some(head) if step == 0 => {
                        let place = place_of(from);
                        let data = bytes.get(HEAD..HEAD + head.data);
                        match (place, data) {
                            (None, Some([])) => {}
                            (Some((at, len)), Some(data)) if len == data.len() => {
                                // SAFETY: a part of the call's memory, which it has alone.
                                unsafe { data.as_ptr().copy_to_nonoverlapping(at, len) };
                            }
                            _ => {
                                let expected = place.map_or(0, |(_, len)| len);
                                garbled = Some((from, head.data, expected));
                            }
                        }
                    }
                    Some(_) => {}
                    None => garbled = Some((from, 0, 0)),
                }
                heads.incoming.push(bytes);
            })?;
            if let Some((from, came, expected)) = garbled {
                let what = format!("{came} bytes came from place {from} where {expected} should");
                return Err(Failure::Carrier(what));
            }
        }
        // Also where places differ: the others are to know.
        let outgoing = &mut self.heads.outgoing;
        wait.each(std::mem::take(&mut self.sent), |_, bytes| outgoing.push(bytes))?;
        match self.differing.take() {
            None => Ok(()),
            Some((place, Called { number, fingerprint: theirs })) => {
                Err(Failure::Mismatch { place, number, length: 0, theirs })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let called = |number: u64, len: usize| Called { number, fingerprint: vec![7; len] };
        let mut bytes = Vec::new();
        for (data, differing, own) in [
            (0, None, called(1, 0)),
            (5, None, called(u64::MAX, MAX_FINGERPRINT)),
            (CAP, Some((3, called(9, 20))), called(8, 4)),
        ] {
            Head::encode(data, differing.as_ref(), &own, &mut bytes);
            assert_eq!(bytes.len(), HEAD);
            assert_eq!(Head::decode(&bytes), Some(Head { data, differing, own }));
            assert_eq!(Head::decode(&bytes[..HEAD - 1]), None);
        }
    }

    /// Whoever differs is heard of by all, whichever way heads go.
    #[test]
    fn heads_reach_every_place() {
        for places in [2, 3, 4, 16, 17, 33, 100] {
            let heads = Heads::new(places);
            assert_eq!(heads.are_direct, places <= DIRECT);
            for origin in [0, places - 1] {
                let mut has_heard = vec![false; places];
                has_heard[origin] = true;
                for step in &heads.steps {
                    let before = has_heard.clone();
                    for (from, _) in before.iter().enumerate().filter(|(_, heard)| **heard) {
                        step.iter().for_each(|reach| has_heard[(from + reach) % places] = true);
                    }
                }
                assert!(has_heard.iter().all(|heard| *heard), "{places} places, from {origin}");
            }
        }
    }
}
