//! What hosts tell each other of their members when a job begins. Each host's first rank writes its host's card; that
//! of the first host reads all of them, looks whether they fit, and writes them as one. So the job's store has a few
//! messages per host, and not one per pair of them.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::engine::Offered;
use super::failure::published;
use super::rail::GRACE;
use crate::distributed::reminder::Reminder;
use crate::distributed::shm::{Identity, ShmBackend, check_started, wait_for_key};
use crate::distributed::{Deadline, Store, WorkerEnv};
use crate::error::{Error, Result};

/// How often a wait looks whether the others of its host are still there.
const LOOK: Duration = Duration::from_millis(100);
/// How often, at least, a long wait asks the job's store. A wait of 1,250 hosts must not keep it busy.
const SELDOM: Duration = Duration::from_secs(1);
/// How long the store may take to say whether somebody has failed.
const TOLD: Duration = Duration::from_millis(50);

/// What a host says of its members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Card {
    pub name: String,
    /// Of the machine: several hosts may be on one.
    pub machine: String,
    /// What its ranks are built from.
    identity: String,
    pub first_rank: usize,
    pub members: Vec<MemberCard>,
}

/// What a member says of itself: its process, where it listens, what it can use, and whether it encrypts.
pub(super) type MemberCard = (i32, Vec<u8>, Offered, bool);

/// Tells machines, and starts of one, from others.
pub(super) fn machine() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// The cards of all hosts. `own` is this member's.
pub(super) fn meet(
    env: &WorkerEnv,
    store: &Store,
    local: &ShmBackend,
    own: MemberCard,
    prefix: &str,
    deadline: &Deadline,
) -> Result<Vec<Card>> {
    let meeting = Meeting { env, store, local, prefix, deadline };
    let (all, member) = (format!("@host/{prefix}/cards"), |i| format!("@host/{prefix}/member/{i}"));
    store.set(&member(env.local_rank), &encode(&own)?)?;
    if env.local_rank != 0 {
        // Its host's first says better what is missing.
        let patient = Deadline::after(deadline.remaining() + 2 * GRACE);
        wait_for_key(store, &all, &patient, LOOK, || meeting.look_around())?;
        return decode(&store.get(&all, patient)?);
    }
    let mut members = Vec::new();
    for i in 0..env.local_world_size {
        wait_for_key(store, &member(i), deadline, LOOK, || meeting.look_around())?;
        members.push(decode(&store.get(&member(i), *deadline)?)?);
    }
    meeting.show(members)?;
    let cards = match env.rank {
        0 => meeting.gather()?,
        _ => meeting.receive()?,
    };
    store.set(&all, &encode(&cards)?)?;
    Ok(cards)
}

/// The meeting of all hosts, as the first rank of one sees it.
struct Meeting<'a> {
    env: &'a WorkerEnv,
    store: &'a Store,
    local: &'a ShmBackend,
    prefix: &'a str,
    deadline: &'a Deadline,
}

impl Meeting<'_> {
    fn key_of_host(&self, number: usize) -> String {
        format!("{}/host/{number}", self.prefix)
    }

    fn key_of_all(&self) -> String {
        format!("{}/cards", self.prefix)
    }

    /// Whether all is well on this host.
    fn look_around(&self) -> Result<()> {
        let doing = format!("rank {} waits for other hosts", self.env.rank);
        self.local.failure(&doing).map_or(Ok(()), Err)
    }

    /// Whether all is well on the others.
    fn ask_around(&self) -> Result<()> {
        let failed = format!("{}/failed", self.prefix);
        let record = published(self.store, &failed, TOLD);
        record.map_or(Ok(()), |record| Err(Error::Aborted(record.reason)))
    }

    /// Writes this host's card.
    fn show(&self, members: Vec<MemberCard>) -> Result<()> {
        let env = self.env;
        let name = nix::unistd::gethostname().map_or_else(
            |_| format!("number {}", env.group_rank),
            |name| name.to_string_lossy().into_owned(),
        );
        let (first_rank, identity) = (env.rank - env.local_rank, Identity::own().encode());
        let card = Card { name: name.clone(), machine: machine(), identity, first_rank, members };
        let card = encode(&card)?;
        let there = self.store.compare_set(&self.key_of_host(env.group_rank), None, &card)?;
        if there.as_ref() == Some(&card) {
            return Ok(());
        }
        let other: Option<Card> = there.and_then(|there| decode(&there).ok());
        let other = other.map_or_else(String::new, |card| format!(" ({})", card.name));
        let what = format!(
            "is {} on this host ({name}), and another host{other} of this job has that number already",
            env.group_rank
        );
        Err(Error::config("GROUP_RANK", what))
    }

    /// On the first host: reads all cards, and writes them as one.
    fn gather(&self) -> Result<Vec<Card>> {
        let (store, world) = (self.store, self.env.world_size);
        let mut cards: Vec<Card> = Vec::new();
        let mut next = 0;
        let reminder = Reminder::new();
        let mut is_warned = false;
        while next < world {
            let number = cards.len();
            let key = self.key_of_host(number);
            let look = || {
                self.look_around()?;
                self.ask_around()?;
                // Nobody is left on its host who could say so, where it has no other ranks.
                check_started(store, next, || {
                    format!("rank {} waits for other hosts", self.env.rank)
                })?;
                reminder.remind(|| {
                    format!(
                        "rank {} is in the rendezvous of {world} ranks on several hosts; not there: {}",
                        self.env.rank,
                        missing(number, next)
                    )
                });
                Ok(())
            };
            wait_for_key(store, &key, self.deadline, LOOK, look)
                .map_err(|error| self.timed_out(error, number, next))?;
            let card: Card = decode(&store.get(&key, *self.deadline)?)?;
            if card.first_rank != next || card.members.is_empty() {
                let what = format!(
                    "of host {number} ({}) is {}, and should be {next}: ranks count on from host to host, in the order \
                     of GROUP_RANK",
                    card.name, card.first_rank
                );
                return Err(Error::config("RANK", what));
            }
            let theirs = Identity::decode(Some(card.identity.as_bytes()));
            let warning = Identity::own().check(self.env.rank, card.first_rank, &theirs)?;
            if let Some(warning) = warning.filter(|_| !is_warned) {
                is_warned = true;
                crate::multiprocessing::report::say(&format!("torchrs: warning: {warning}"));
            }
            next += card.members.len();
            cards.push(card);
        }
        store.set(&self.key_of_all(), &encode(&cards)?)?;
        Ok(cards)
    }

    /// On the others: reads what the first has written.
    fn receive(&self) -> Result<Vec<Card>> {
        let key = self.key_of_all();
        // The first host says better what is missing.
        let patient = Deadline::after(self.deadline.remaining() + GRACE);
        let began = Instant::now();
        let reminder = Reminder::new();
        loop {
            let pause = (began.elapsed() / 4).clamp(LOOK, SELDOM);
            match self.store.wait(&[&key], patient.remaining().min(pause)) {
                Ok(()) => return decode(&self.store.get(&key, patient)?),
                Err(Error::Timeout { .. }) if !patient.has_passed() => {
                    self.look_around()?;
                    self.ask_around()?;
                }
                Err(error @ Error::Timeout { .. }) => {
                    let (number, next) = self.first_missing();
                    return Err(self.timed_out(error, number, next));
                }
                Err(error) => return Err(error),
            }
            // The first host tells of all others.
            reminder.remind(|| {
                let (rank, world) = (self.env.rank, self.env.world_size);
                format!("rank {rank} is in the rendezvous of {world} ranks on several hosts")
            });
        }
    }

    /// The first host whose card is not there, and its first rank.
    fn first_missing(&self) -> (usize, usize) {
        let mut next = 0;
        for number in 0.. {
            let card = self.store.try_get(&self.key_of_host(number)).ok().flatten();
            let Some(card) = card.and_then(|bytes| decode::<Card>(&bytes).ok()) else {
                return (number, next);
            };
            next += card.members.len();
            if next >= self.env.world_size {
                break;
            }
        }
        (0, 0)
    }

    fn timed_out(&self, error: Error, number: usize, next: usize) -> Error {
        let Error::Timeout { seconds, .. } = error else { return error };
        let message = format!(
            "rendezvous of {} ranks on several hosts: {} is not there",
            self.env.world_size,
            missing(number, next)
        );
        Error::Timeout { seconds, message }
    }
}

fn missing(number: usize, first_rank: usize) -> String {
    format!("host {number}, whose first rank is {first_rank}")
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_allocvec(value).map_err(|why| Error::Store(format!("a host's card: {why}")))
}

fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|why| {
        let what = format!("{} bytes that are no host's card of this release: {why}", bytes.len());
        Error::Store(what)
    })
}
