//! The hosts of a check, met as those of a job do: the same rendezvous, with a gathering in place of the workers' store.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use torchrs_rendezvous::driver::{Command, Config, Event, Rendezvous};
use torchrs_rendezvous::protocol::{HostId, Round, Verdict, Why};

/// How long the answer to a sign of life takes at most, by which hosts' clocks are compared.
const CLOCK_WITHIN: Duration = Duration::from_secs(1);

/// What a host brings to a gathering.
#[derive(Debug, Serialize, Deserialize)]
struct Brought {
    phase: u64,
    place: usize,
    bytes: Vec<u8>,
}

/// Who has brought what, and waits for the answer.
type Waiting = BTreeMap<usize, (u64, u64, Vec<u8>)>;

/// The hosts that have met.
pub struct Meeting {
    rendezvous: Rendezvous,
    round: Arc<Round>,
    /// This host's place among them.
    pub place: usize,
    /// Whether this host says how it went.
    pub leads: bool,
    phase: u64,
    waiting: BTreeMap<u64, Waiting>,
    until: Instant,
}

impl Meeting {
    /// Meets the others. `say` is told what is of interest meanwhile.
    ///
    /// # Errors
    /// Why the hosts have not met.
    pub fn join(config: Config, until: Instant, say: &dyn Fn(String)) -> Result<Self, String> {
        let rendezvous = Rendezvous::start(config).map_err(|error| error.to_string())?;
        loop {
            match next(&rendezvous, until, "the other hosts")? {
                Event::Start { round, group_rank, leads, .. } => {
                    let waiting = BTreeMap::new();
                    let meeting = Meeting {
                        rendezvous,
                        round,
                        place: group_rank,
                        leads,
                        phase: 0,
                        waiting,
                        until,
                    };
                    meeting.wait_for_clock();
                    return Ok(meeting);
                }
                Event::Say(text) => say(text),
                Event::Ended(ending) => {
                    let why = ending.hindrance.unwrap_or_else(|| "too few hosts came".into());
                    rendezvous.command(Command::Finish(2, why.clone()));
                    // The others are told before this end closes.
                    while !matches!(next(&rendezvous, until, "the end")?, Event::Over(..)) {}
                    return Err(why);
                }
                Event::Over(_, why) | Event::Fail(why) => return Err(why),
                _ => {}
            }
        }
    }

    pub fn hosts(&self) -> usize {
        self.round.hosts.len()
    }

    /// The addresses by which the others may reach this host, the likeliest first.
    pub fn own_addresses(&self) -> Vec<IpAddr> {
        self.round.hosts[self.place].addresses.iter().map(|address| address.ip()).collect()
    }

    /// What to add to this host's CLOCK_MONOTONIC for the leader's, in nanoseconds.
    pub fn clock_offset(&self) -> i64 {
        self.rendezvous.clock_offset()
    }

    fn wait_for_clock(&self) {
        let until = Instant::now() + CLOCK_WITHIN;
        while !self.leads && self.clock_offset() == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Brings `own`, and waits until all hosts have brought theirs: what each has, by place.
    ///
    /// # Errors
    /// Which host was lost, or that the time is over.
    pub fn gather<T: Serialize + DeserializeOwned>(&mut self, own: &T) -> Result<Vec<T>, String> {
        self.phase += 1;
        let bytes = serde_json::to_vec(own).expect("plain data");
        let brought = Brought { phase: self.phase, place: self.place, bytes };
        let request = serde_json::to_vec(&brought).expect("plain data");
        self.rendezvous.command(Command::Ask(self.phase, request));
        loop {
            match next(&self.rendezvous, self.until, "what the other hosts find")? {
                Event::Ask(connection, number, request) => self.take(connection, number, &request),
                Event::Answer(number, reply) if number == self.phase => {
                    let read = || -> Option<Vec<T>> {
                        let all: Vec<Vec<u8>> = serde_json::from_slice(&reply).ok()?;
                        all.iter().map(|bytes| serde_json::from_slice(bytes).ok()).collect()
                    };
                    return read().ok_or_else(|| "a host says what no torchrs check says".into());
                }
                Event::Stop { why, .. } => return Err(self.in_words(&why)),
                Event::Over(_, why) | Event::Fail(why) => return Err(why),
                _ => {}
            }
        }
    }

    /// On the leader: what a host has brought. Once all have, all are answered.
    fn take(&mut self, connection: u64, number: u64, request: &[u8]) {
        let Ok(Brought { phase, place, bytes }) = serde_json::from_slice(request) else { return };
        let waiting = self.waiting.entry(phase).or_default();
        waiting.insert(place, (connection, number, bytes));
        if waiting.len() < self.round.hosts.len() {
            return;
        }
        let waiting = self.waiting.remove(&phase).unwrap_or_default();
        let all: Vec<&Vec<u8>> = waiting.values().map(|(_, _, bytes)| bytes).collect();
        let reply = serde_json::to_vec(&all).expect("plain data");
        for (connection, number, _) in waiting.values() {
            self.rendezvous.command(Command::Reply(*connection, *number, reply.clone()));
        }
    }

    fn in_words(&self, why: &Why) -> String {
        let name = |id: &HostId| {
            let host = self.round.hosts.iter().find(|host| host.id == *id);
            host.map_or_else(|| "a host".to_owned(), |host| host.name.clone())
        };
        match why {
            Why::Lost(id) => format!(
                "{} was lost during the check: its process ended, or the way to it was cut",
                name(id)
            ),
            Why::Failed(id) | Why::Left(id) => format!("{} has left the check", name(id)),
            Why::CutOff => "the other hosts cannot be reached any more".to_owned(),
            Why::Joined | Why::Over => "the check was ended by another host".to_owned(),
        }
    }

    /// Parts: all hosts end with the leader's exit code, which is the answer.
    ///
    /// # Errors
    /// Which host was lost before the end.
    pub fn part(self, code: i32) -> Result<i32, String> {
        self.rendezvous.command(Command::WorkersEnded(Verdict::Success, Vec::new()));
        loop {
            match next(&self.rendezvous, self.until, "the other hosts' end")? {
                Event::Ended(_) => self.rendezvous.command(Command::Finish(code, String::new())),
                Event::Over(code, _) => return Ok(code),
                Event::Fail(why) => return Err(why),
                _ => {}
            }
        }
    }
}

fn next(rendezvous: &Rendezvous, until: Instant, what: &str) -> Result<Event, String> {
    let left = until.saturating_duration_since(Instant::now());
    rendezvous.next_within(left).ok_or_else(|| format!("the time is over, waiting for {what}"))
}
