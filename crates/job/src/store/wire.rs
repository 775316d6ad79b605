//! The store's messages and their bytes. A message travels in one or more packets of a
//! `SOCK_SEQPACKET` socket, which keeps packet boundaries and carries file descriptors beside the
//! bytes. Nothing here does I/O, so that hostile input can be tried on it directly.

use serde::{Deserialize, Serialize};

/// Largest message, all packets together: 64 MiB.
pub const MAX_MESSAGE: usize = 64 << 20;
/// Largest packet, its flag byte included. Well below Linux's default socket buffer (208 KiB).
pub const MAX_PACKET: usize = 48 << 10;
/// Largest number of descriptors that travel with one message (the kernel's limit is 253).
pub const MAX_FDS: usize = 64;

const LAST: u8 = 0;
const MORE: u8 = 1;

/// What a client asks. Every request but `Cancel` is answered exactly once, under its id.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub enum Request<'a> {
    Set {
        key: &'a str,
        value: &'a [u8],
    },
    /// The descriptors travel beside the message; `count` says how many.
    SetFds {
        key: &'a str,
        count: u32,
    },
    /// Answered once the key exists, with its value.
    Get {
        key: &'a str,
    },
    /// Answered once the key exists, with its descriptors.
    GetFds {
        key: &'a str,
    },
    TryGet {
        key: &'a str,
    },
    /// Answered once all keys exist.
    Wait {
        keys: Vec<&'a str>,
    },
    Add {
        key: &'a str,
        amount: i64,
    },
    CompareSet {
        key: &'a str,
        expected: Option<&'a [u8]>,
        desired: &'a [u8],
    },
    Delete {
        key: &'a str,
    },
    /// Forget the request `id` of this connection, whose deadline has passed. Not answered.
    Cancel {
        id: u64,
    },
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    Done,
    Value(#[serde(with = "bytes")] Vec<u8>),
    Missing,
    Number(i64),
    Deleted(bool),
    /// The descriptors travel beside the message.
    Fds,
    Refused(String),
}

/// A request or reply with the number that ties them together.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Numbered<T> {
    pub id: u64,
    pub body: T,
}

/// `Vec<u8>` as one run of bytes rather than a sequence of numbers.
mod bytes {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        <&[u8]>::deserialize(from).map(<[u8]>::to_vec)
    }
}

/// A peer that does not speak this protocol. Its connection is dropped, nobody else is harmed.
#[derive(Debug, PartialEq)]
pub struct Violation(pub &'static str);

pub fn encode<T: Serialize>(id: u64, body: &T) -> Vec<u8> {
    postcard::to_allocvec(&Numbered { id, body }).expect("messages have no unserialisable part")
}

pub fn decode<'a, T: Deserialize<'a>>(message: &'a [u8]) -> Result<Numbered<T>, Violation> {
    match postcard::take_from_bytes(message) {
        Ok((numbered, [])) => Ok(numbered),
        Ok(_) => Err(Violation("bytes after the end of a message")),
        Err(_) => Err(Violation("not a message")),
    }
}

/// The packets that make up `message`.
pub fn packets(message: &[u8]) -> Vec<Vec<u8>> {
    let mut chunks = message.chunks(MAX_PACKET - 1).peekable();
    let mut packets = Vec::with_capacity(1);
    while let Some(chunk) = chunks.next() {
        let mut packet = Vec::with_capacity(chunk.len() + 1);
        packet.push(if chunks.peek().is_some() { MORE } else { LAST });
        packet.extend_from_slice(chunk);
        packets.push(packet);
    }
    packets
}

/// Puts the packets of one connection back together.
#[derive(Debug, Default)]
pub struct Assembler {
    partial: Vec<u8>,
}

impl Assembler {
    /// Takes the next packet; gives the message that it completes, if it does.
    pub fn push(&mut self, packet: &[u8]) -> Result<Option<Vec<u8>>, Violation> {
        let Some((&flag, payload)) = packet.split_first() else {
            return Err(Violation("an empty packet"));
        };
        if self.partial.len() + payload.len() > MAX_MESSAGE {
            return Err(Violation("a message above 64 MiB"));
        }
        self.partial.extend_from_slice(payload);
        match flag {
            LAST => Ok(Some(std::mem::take(&mut self.partial))),
            MORE => Ok(None),
            _ => Err(Violation("an unknown packet flag")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reassemble(packets: &[Vec<u8>]) -> Vec<u8> {
        let mut assembler = Assembler::default();
        let (last, first) = packets.split_last().unwrap();
        for packet in first {
            assert_eq!(assembler.push(packet), Ok(None));
        }
        assembler.push(last).unwrap().expect("the last packet completes the message")
    }

    #[test]
    fn a_long_value_survives_in_packets_below_the_limit() {
        let value: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        let message = encode(7, &Request::Set { key: "weights", value: &value });
        let packets = packets(&message);
        assert!(packets.len() > 1 && packets.iter().all(|p| p.len() <= MAX_PACKET));
        let back = reassemble(&packets);
        let request: Numbered<Request> = decode(&back).unwrap();
        assert_eq!(
            request,
            Numbered { id: 7, body: Request::Set { key: "weights", value: &value } }
        );
    }

    #[test]
    fn what_follows_a_message_is_a_violation() {
        let mut message = encode(1, &Request::Get { key: "k" });
        message.push(0);
        assert!(decode::<Request>(&message).is_err());
        assert!(decode::<Request>(b"GET / HTTP/1.1\r\n\r\n").is_err());
    }

    #[test]
    fn a_message_that_never_ends_is_cut_off() {
        let mut assembler = Assembler::default();
        let packet = [&[MORE][..], &[0; MAX_PACKET - 1]].concat();
        let verdict = (0..).map(|_| assembler.push(&packet)).find_map(Result::err);
        assert_eq!(verdict, Some(Violation("a message above 64 MiB")));
    }

    proptest! {
        #[test]
        fn garbage_is_refused_or_decoded_but_never_panics(
            packet in prop::collection::vec(any::<u8>(), 0..300)
        ) {
            let mut assembler = Assembler::default();
            if let Ok(Some(message)) = assembler.push(&packet) {
                let _ = decode::<Request>(&message);
                let _ = decode::<Reply>(&message);
            }
        }

        /// Of real messages of each kind, so that every part of them is reached.
        #[test]
        fn a_message_that_was_changed_is_another_or_none(
            which in any::<prop::sample::Index>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            end in any::<prop::sample::Index>(),
        ) {
            let requests = [
                Request::Set { key: "key", value: &[7; 40] },
                Request::SetFds { key: "key", count: 3 },
                Request::Get { key: "key" },
                Request::GetFds { key: "key" },
                Request::TryGet { key: "key" },
                Request::Wait { keys: vec!["a", "b", "c"] },
                Request::Add { key: "key", amount: -5 },
                Request::CompareSet { key: "key", expected: Some(b"a"), desired: b"b" },
                Request::Delete { key: "key" },
                Request::Cancel { id: 300 },
            ];
            let replies = [
                Reply::Done, Reply::Value(vec![7; 40]), Reply::Missing, Reply::Number(-5),
                Reply::Deleted(true), Reply::Fds, Reply::Refused("why".into()),
            ];
            let requests = requests.iter().map(|request| encode(300, request));
            let all: Vec<_> = requests.chain(replies.iter().map(|reply| encode(300, reply))).collect();
            let mut bytes = which.get(&all).clone();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes.truncate(end.index(bytes.len() + 1));
            // A list's length is taken at its word up to 1 MiB; strings and values lie in the message.
            if let Ok(Numbered { body: Request::Wait { keys }, .. }) = decode::<Request>(&bytes) {
                prop_assert!(keys.len() <= bytes.len());
            }
            if let Ok(Numbered { body: Reply::Value(value), .. }) = decode::<Reply>(&bytes) {
                prop_assert!(value.len() <= bytes.len());
            }
        }

        #[test]
        fn every_reply_comes_back_as_it_was(
            id: u64, value in prop::collection::vec(any::<u8>(), 0..100), number: i64, text: String
        ) {
            for reply in [
                Reply::Value(value), Reply::Number(number), Reply::Refused(text),
                Reply::Done, Reply::Missing, Reply::Fds, Reply::Deleted(number > 0),
            ] {
                let back: Numbered<Reply> = decode(&encode(id, &reply)).map(|n: Numbered<Reply>| n).unwrap();
                prop_assert_eq!(back, Numbered { id, body: reply });
            }
        }
    }
}
