//! Notes: what a place is about to do, told to all others without waiting for them. A call that moves its data another
//! way is compared so, while it goes on.

use std::io;

use crate::header::{Farewell, HEADER, Header, MAX_FINGERPRINT, Word};
use crate::links::{ENDED, Links};

/// Connections that carry notes and nothing else.
pub struct Notes {
    links: Links,
    /// The places that send no more.
    ended: Vec<bool>,
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
        let ended = (0..links.places()).map(|place| place == links.place()).collect();
        Notes { links, ended }
    }

    /// Posts notes to all other places: numbers and fingerprints. Waits for nothing: what the connections do not take
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
            words.extend_from_slice(&Word::Waiting(header).encode());
        }
        for place in (0..self.ended.len()).filter(|&place| !self.ended[place]) {
            // Who is gone is found by the next look.
            let _ = self.links.peers[place][0].queue(&words);
        }
    }

    /// Ends before its time, because this place cannot go on: the others are told `why`.
    pub fn give_up(&mut self, why: &str) {
        self.links.give_up(why);
    }

    /// Gives what has come, with its place, and sends what is left. Waits for nothing.
    pub fn take(&mut self, mut heard: impl FnMut(usize, Heard)) {
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
        let _ = wire.flush();
        let mut words = [0; HEADER];
        match wire.peek(&mut words) {
            Ok(0) => return Some(Heard::Gone(ENDED.to_owned())),
            Ok(HEADER) => {}
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                return Some(Heard::Gone(format!("its connection broke: {error}")));
            }
            Ok(_) | Err(_) => return None,
        }
        Some(match Word::decode(&words) {
            Some(Word::Waiting(Header { number, fingerprint, .. })) => {
                // Not more than was just seen.
                let _ = wire.receive(&mut words);
                Heard::Note { number, fingerprint }
            }
            Some(Word::Farewell(Farewell::Left)) => Heard::Left,
            Some(Word::Farewell(Farewell::Failed { text, .. })) => Heard::Gone(text),
            _ => Heard::Gone("it sent something else than notes".to_owned()),
        })
    }
}
