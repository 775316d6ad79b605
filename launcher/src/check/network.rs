//! The ways between hosts, as workers use them: connections that prove the job's token, in turns, so that no pair
//! disturbs another.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use torchrs_job::deadline::Deadline;
use torchrs_links::{Addresses, Call, Failure, Links, Listener, Options, Receive, Send};

/// How long a pair has to connect, and then to measure.
const CONNECT_WITHIN: Duration = Duration::from_secs(6);
const MEASURE_WITHIN: Duration = Duration::from_secs(10);
const ROUND_TRIPS: usize = 50;
/// Bytes of one message, and how long messages are sent.
const CHUNK: usize = 256 << 10;
const SEND_FOR: Duration = Duration::from_millis(150);
/// The most messages: 1 GiB.
const MOST_CHUNKS: u64 = 4096;

/// Who meets whom in which turn: each host each other once, and each has one partner at a time. `None`: it has none.
pub fn partner(hosts: usize, turn: usize, place: usize) -> Option<usize> {
    // The circle method: the last stays, the others go round. With an odd number the last is nobody.
    let even = hosts + hosts % 2;
    let round = even - 1;
    let partner = match place == even - 1 {
        true => (0..round).find(|&other| (2 * other) % round == turn % round)?,
        false => {
            let other = (turn + round - place % round) % round;
            if other == place { even - 1 } else { other }
        }
    };
    (partner < hosts).then_some(partner)
}

/// Turns until all have met.
pub fn turns(hosts: usize) -> usize {
    hosts + hosts % 2 - 1
}

/// What a host has measured of what comes to it from another.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Measured {
    pub round_trip_us: f64,
    pub megabytes_per_s: f64,
    /// The ends of the connection.
    pub own: IpAddr,
    pub other: IpAddr,
}

/// Measures with a partner. Both call it at the same time; of both, `is_first` is true on one.
///
/// # Errors
/// Why there is no connection, or none that carries bytes.
pub fn measure(
    listener: &Listener,
    pair: [&Addresses; 2],
    name: &str,
    is_first: bool,
) -> Result<Measured, String> {
    let place = usize::from(!is_first);
    let members = pair.map(Clone::clone);
    let deadline = Deadline::after(CONNECT_WITHIN);
    let links =
        Links::connect(listener, name, &members, place, &Options::default(), &deadline, &|| None);
    let mut links = links.map_err(|failure| in_words(&failure))?;
    let mut way = Way {
        links: &mut links,
        other: 1 - place,
        number: 0,
        deadline: Deadline::after(MEASURE_WITHIN),
    };
    let (round_trip_us, megabytes_per_s) =
        way.measure(is_first).map_err(|failure| in_words(&failure))?;
    let ends = links.ends(1 - place).map_err(|error| error.to_string())?;
    let [own, other] = ends.map(|end| end.ip());
    Ok(Measured { round_trip_us, megabytes_per_s, own, other })
}

fn in_words(failure: &Failure) -> String {
    match failure {
        Failure::Unreachable { tried, .. } => {
            let tried: Vec<String> =
                tried.iter().map(|(address, refusal)| format!("{address}: {refusal}")).collect();
            tried.join("; ")
        }
        Failure::TimedOut { seconds, .. } => {
            format!("nothing came for {seconds:.0} s")
        }
        other => other.to_string(),
    }
}

struct Way<'a> {
    links: &'a mut Links,
    other: usize,
    number: u64,
    deadline: Deadline,
}

impl Way<'_> {
    /// Sends and receives what is not empty.
    fn exchange(&mut self, send: &[u8], receive: &mut [u8]) -> Result<(), Failure> {
        self.number += 1;
        let call = Call {
            number: self.number,
            fingerprint: b"check",
            deadline: self.deadline,
            watch: &|| None,
        };
        let (to, from) = (self.other, self.other);
        let sends = [Send { to, bytes: send }];
        let mut receives = [Receive { from, bytes: receive }];
        let sends = if send.is_empty() { &sends[..0] } else { &sends[..] };
        let some = usize::from(!receives[0].bytes.is_empty());
        self.links.exchange(&call, sends, &mut receives[..some])
    }

    /// Microseconds there and back, and 10^6 bytes per second that come.
    fn measure(&mut self, is_first: bool) -> Result<(f64, f64), Failure> {
        let mut times = Vec::new();
        for _ in 0..ROUND_TRIPS {
            let (start, mut byte) = (Instant::now(), [0]);
            if is_first {
                self.exchange(&[1], &mut [])?;
                self.exchange(&[], &mut byte)?;
            } else {
                self.exchange(&[], &mut byte)?;
                self.exchange(&[1], &mut [])?;
            }
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        let round_trip_us = times[times.len() / 2];
        // One direction after the other.
        let mut megabytes_per_s = 0.0;
        for sends in [is_first, !is_first] {
            match sends {
                true => self.send()?,
                false => megabytes_per_s = self.receive()?,
            }
        }
        Ok((round_trip_us, megabytes_per_s))
    }

    /// One message to learn how long it takes; then as many as the receiver says.
    fn send(&mut self) -> Result<(), Failure> {
        let (chunk, mut count) = (vec![1; CHUNK], [0; 8]);
        self.exchange(&chunk, &mut [])?;
        self.exchange(&[], &mut count)?;
        for _ in 0..u64::from_le_bytes(count).min(MOST_CHUNKS) {
            self.exchange(&chunk, &mut [])?;
        }
        Ok(())
    }

    /// 10^6 bytes per second.
    fn receive(&mut self) -> Result<f64, Failure> {
        let mut chunk = vec![0; CHUNK];
        let start = Instant::now();
        self.exchange(&[], &mut chunk)?;
        let each = start.elapsed().as_secs_f64().max(1e-6);
        let count = ((SEND_FOR.as_secs_f64() / each) as u64).clamp(2, MOST_CHUNKS);
        self.exchange(&count.to_le_bytes(), &mut [])?;
        let start = Instant::now();
        for _ in 0..count {
            self.exchange(&[], &mut chunk)?;
        }
        Ok((count as usize * CHUNK) as f64 / start.elapsed().as_secs_f64() / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_pair_meets_once_and_nobody_has_two_partners() {
        for hosts in 2..12 {
            let mut met = BTreeSet::new();
            for turn in 0..turns(hosts) {
                for place in 0..hosts {
                    let Some(other) = partner(hosts, turn, place) else { continue };
                    assert_ne!(place, other);
                    assert_eq!(
                        partner(hosts, turn, other),
                        Some(place),
                        "{hosts} hosts, turn {turn}"
                    );
                    if place < other {
                        assert!(met.insert((place, other)), "{place} and {other} meet twice");
                    }
                }
            }
            assert_eq!(met.len(), hosts * (hosts - 1) / 2, "{hosts} hosts");
        }
    }

    #[test]
    fn a_pair_on_the_loopback_is_measured() {
        let listen = || Listener::bind(&["127.0.0.1:0".parse().unwrap()], &[], [7; 32]).unwrap();
        let (a, b) = (listen(), listen());
        let other = b.addresses().clone();
        let (mine, theirs) = (a.addresses().clone(), b.addresses().clone());
        let thread = std::thread::spawn(move || measure(&b, [&mine, &theirs], "p", false).unwrap());
        let here = measure(&a, [a.addresses(), &other], "p", true).unwrap();
        for one in [here, thread.join().unwrap()] {
            assert!(one.megabytes_per_s > 1.0 && one.round_trip_us > 0.0, "{one:?}");
            assert!(one.own.is_loopback() && one.own == one.other, "{one:?}");
        }
    }
}
