//! How a connection or a call ends when it does not end well.

use std::fmt::Write;
use std::net::SocketAddr;

use torchrs_rendezvous::proof::Refusal;

/// Why a call on links failed. After one, the links are of no more use: each later call fails in the same way.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A place has closed its connections, or its process has ended.
    #[error("place {place} is gone: {how}")]
    PeerGone {
        /// Which place.
        place: usize,
        /// What was seen, and by whom.
        how: String,
    },
    /// The deadline passed.
    #[error("timed out after {seconds:.1} s, waiting for {}", places(waiting))]
    TimedOut {
        /// The places that had not sent, or had not taken, all that was theirs.
        waiting: Vec<usize>,
        /// How long was waited.
        seconds: f64,
    },
    /// The caller's watch said so.
    #[error("stopped: {0}")]
    Stopped(String),
    /// A place is in another call, or in the same one with another length.
    #[error(
        "place {place} is in another call: number {number}, {length} bytes, fingerprint {theirs:02x?}"
    )]
    Mismatch {
        /// Which place.
        place: usize,
        /// The number of its call.
        number: u64,
        /// How many bytes it sent or would have sent here; 0 where only its fingerprint is known.
        length: u64,
        /// The fingerprint of its call.
        theirs: Vec<u8>,
    },
    /// No address of a place leads to it.
    #[error("no connection to place {place}: {}", attempts(tried))]
    Unreachable {
        /// Which place.
        place: usize,
        /// Its addresses, in the order in which they were tried, and what came of the last try.
        tried: Vec<(SocketAddr, Refusal)>,
    },
    /// Two places have different options.
    #[error("{0}")]
    Options(String),
    /// What carries the data in the place of these connections has failed, in its own words.
    #[error("{0}")]
    Carrier(String),
}

fn places(places: &[usize]) -> String {
    let word = if places.len() == 1 { "place " } else { "places " };
    let mut text = word.to_owned();
    for (i, place) in places.iter().enumerate() {
        let _ = write!(text, "{}{place}", if i == 0 { "" } else { ", " });
    }
    text
}

fn attempts(tried: &[(SocketAddr, Refusal)]) -> String {
    if tried.is_empty() {
        return "the deadline had passed before the first attempt".to_owned();
    }
    let lines: Vec<String> = tried.iter().map(|(at, why)| format!("{at}: {why}")).collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_places_and_addresses() {
        let error = Failure::TimedOut { waiting: vec![1, 3], seconds: 2.0 };
        assert_eq!(error.to_string(), "timed out after 2.0 s, waiting for places 1, 3");
        let tried = vec![
            ("10.0.0.1:5".parse().unwrap(), Refusal::Refused),
            ("[::1]:7".parse().unwrap(), Refusal::TimedOut(1.0)),
        ];
        let text = Failure::Unreachable { place: 2, tried }.to_string();
        assert!(
            text.starts_with("no connection to place 2: 10.0.0.1:5: refused: no process listens"),
            "{text}"
        );
        assert!(text.contains("[::1]:7: no answer within 1.0 s"), "{text}");
    }
}
