//! The beginning of a connection: both sides prove that they have the job's key, and agree what the connection is.
//!
//! The Noise channel of the launchers does the proof; each connection has fresh random keys of its own, so that what
//! was recorded on one is of no use on another. Inside it the side that connects says which process it wants, for
//! which group, from which place to which, and which stream of the pair this is.

use std::time::Duration;

use torchrs_rendezvous::proof::Refusal;

/// Whoever does not prove itself for so long is dropped.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
/// The longest name of a group, in bytes.
pub(crate) const MAX_GROUP: usize = 200;
const PURPOSE: &[u8; 8] = b"links/1\0";

/// What a connection is for. The side that connects says it; what is said is authentic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The listener that is meant.
    pub listener: [u8; 16],
    pub from: u32,
    pub to: u32,
    pub stream: u16,
    /// Of the pair: both sides have to have the same.
    pub streams: u16,
    /// Of the group: the same.
    pub places: u32,
    pub encrypted: bool,
    pub group: Vec<u8>,
}

impl Hello {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = PURPOSE.to_vec();
        bytes.extend_from_slice(&self.listener);
        bytes.extend_from_slice(&self.from.to_le_bytes());
        bytes.extend_from_slice(&self.to.to_le_bytes());
        bytes.extend_from_slice(&self.places.to_le_bytes());
        bytes.extend_from_slice(&self.stream.to_le_bytes());
        bytes.extend_from_slice(&self.streams.to_le_bytes());
        bytes.push(u8::from(self.encrypted));
        bytes.extend_from_slice(&self.group);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (fixed, group) = bytes.split_first_chunk::<41>()?;
        let number = |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().expect("4 bytes"));
        let short = |at: usize| u16::from_le_bytes(fixed[at..at + 2].try_into().expect("2 bytes"));
        (fixed[..8] == *PURPOSE && fixed[40] < 2 && group.len() <= MAX_GROUP).then(|| Hello {
            listener: fixed[8..24].try_into().expect("16 bytes"),
            from: number(24),
            to: number(28),
            places: number(32),
            stream: short(36),
            streams: short(38),
            encrypted: fixed[40] == 1,
            group: group.to_vec(),
        })
    }
}

/// The answer to a [`Hello`], one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Welcome = 0,
    WrongProcess = 1,
    Busy = 2,
}

impl Answer {
    /// On the side that connects: what came.
    pub fn understand(answer: &[u8]) -> Result<(), Refusal> {
        match answer {
            [0] => Ok(()),
            [1] => Err(Refusal::WrongProcess),
            [2] => Err(Refusal::Busy),
            _ => Err(Refusal::Other("it answers what no release of torchrs does".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_survives_the_way() {
        let hello = Hello {
            listener: [3; 16],
            from: 1 << 20,
            to: 7,
            stream: 2,
            streams: 4,
            places: 1 << 21,
            encrypted: true,
            group: b"world".to_vec(),
        };
        let bytes = hello.encode();
        assert_eq!(Hello::decode(&bytes), Some(hello));
        for end in 0..41 {
            assert_eq!(Hello::decode(&bytes[..end]), None);
        }
        assert_eq!(Hello::decode(&[&bytes[..], &[0; MAX_GROUP]].concat()), None);
        assert_eq!(Hello::decode(&[&b"links/2\0"[..], &bytes[8..]].concat()), None);
    }
}
