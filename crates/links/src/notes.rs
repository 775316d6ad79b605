//! Notes: what a place is about to do, told to others without waiting for them. A call that moves its data another way
//! is compared so, while it goes on.
//!
//! Up to [`ALL`] places tell all others, so that each knows the last call of all. Of more each tells the next one: two
//! places that differ still have neighbours that do.

use std::io;

use crate::header::{Farewell, HEADER, Header, MAX_FINGERPRINT, Word};
use crate::links::{ENDED, Links};

/// The most places of which each tells all others.
const ALL: usize = 16;

/// Connections that carry notes and nothing else.
pub struct Notes {
    links: Links,
    /// Whom this place tells.
    to: Vec<usize>,
    /// The places from which nothing more comes.
    ended: Vec<bool>,
}

/// How far round the others each place tells.
fn reach(places: usize) -> usize {
    if places <= ALL { places - 1 } else { 1 }
}

/// What came from a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A note, in the order in which the place posted them.
    Note {
        /// The number of the call.
        number: u64,
        /// What it is.
        fingerprint: Vec<u8>,
    },
    /// The place has left in peace. It posts no more.
    Left,
    /// The place has failed, or its connection has ended without a word. It posts no more.
    Gone(String),
}

impl Notes {
    /// Takes over links that serve nothing else.
    pub fn new(links: Links) -> Self {
        let (own, places) = (links.place(), links.places());
        let mut ended = vec![true; places];
        (1..=reach(places)).for_each(|i| ended[(own + places - i) % places] = false);
        let to = (1..=reach(places)).map(|i| (own + i) % places).collect();
        Notes { links, to, ended }
    }

    /// Whether notes of `place` come here.
    pub fn hears(&self, place: usize) -> bool {
        let (own, places) = (self.links.place(), self.links.places());
        (1..=reach(places)).contains(&((own + places - place) % places))
    }

    /// Posts notes to the others: numbers and fingerprints. Waits for nothing: what the connections do not take
    /// now goes with a later call.
    ///
    /// # Panics
    /// When a fingerprint has more than [`MAX_FINGERPRINT`] bytes.
    pub fn post<'a>(&mut self, notes: impl IntoIterator<Item = (u64, &'a [u8])>) {
        let mut words = Vec::new();
        for (number, fingerprint) in notes {
            let given = fingerprint.len();
            assert!(given <= MAX_FINGERPRINT, "a note of {given} bytes; at most {MAX_FINGERPRINT}");
            let header = Header { number, step: 0, length: 0, fingerprint: fingerprint.to_vec() };
            words.extend_from_slice(&Word::Note(header).encode());
        }
        let peers = &mut self.links.peers;
        // One that is gone gets no more.
        self.to.retain(|&place| peers[place][0].queue(&words).is_ok());
    }

    /// Ends before its time, because this place cannot go on: the others are told `why`.
    pub fn give_up(&mut self, why: &str) {
        self.links.give_up(why);
    }

    /// Gives what has come, with its place, and sends what is left. Waits for nothing.
    pub fn take(&mut self, mut heard: impl FnMut(usize, Heard)) {
        let peers = &mut self.links.peers;
        self.to.retain(|&place| peers[place][0].flush().is_ok());
        for place in 0..self.ended.len() {
            while !self.ended[place] {
                let Some(one) = self.next(place) else { break };
                self.ended[place] = !matches!(one, Heard::Note { .. });
                heard(place, one);
            }
        }
    }

    fn next(&mut self, place: usize) -> Option<Heard> {
        let wire = &mut self.links.peers[place][0];
        let mut words = [0; HEADER];
        loop {
            match wire.peek(&mut words) {
                Ok(0) => return Some(Heard::Gone(ENDED.to_owned())),
                Ok(HEADER) => {}
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Some(Heard::Gone(format!("its connection broke: {error}")));
                }
                Ok(_) | Err(_) => return None,
            }
            let heard = match Word::decode(&words) {
                Some(Word::Note(Header { number, fingerprint, .. })) => {
                    Some(Heard::Note { number, fingerprint })
                }
                // Of a collective that the links served before: the place waited in it, and it is done.
                Some(Word::Waiting(_)) => None,
                Some(Word::Farewell(Farewell::Left)) => return Some(Heard::Left),
                Some(Word::Farewell(Farewell::Failed { text, .. })) => {
                    return Some(Heard::Gone(text));
                }
                _ => return Some(Heard::Gone("it sent something else than notes".to_owned())),
            };
            // Not more than was just seen.
            let _ = wire.receive(&mut words);
            if heard.is_some() {
                return heard;
            }
        }
    }
}
