//! A host's part of the job's store: its own server, joined to those of the other hosts by the rendezvous. Whoever
//! stands for a host has one: its launcher, or what takes the launcher's place.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use torchrs_error::{Error, Result};
use torchrs_job::addresses;
use torchrs_job::store::{AWAITS_WELCOME, LEADER, LINKS_ADDRESSES, LINKS_KEY, StoreServer, Uplink};

use crate::driver::{Command, Commander, Config, Event, Rendezvous};
use crate::protocol::Round;
use crate::token::JobToken;

/// A host's end of a rendezvous, with the store of the round that runs.
#[derive(Debug)]
pub struct HostStore {
    rendezvous: Rendezvous,
    token: JobToken,
    job: String,
    round: Cell<u64>,
    store: RefCell<Option<StoreServer>>,
}

/// How the store's server reaches those of other hosts. Questions carry the number of their round: what is late is
/// of no more use.
struct Line {
    commander: Commander,
    round: u64,
}

impl Uplink for Line {
    fn ask(&self, number: u64, request: Vec<u8>) {
        let request = [&self.round.to_le_bytes()[..], &request].concat();
        self.commander.command(Command::Ask(number, request));
    }

    fn reply(&self, host: u64, number: u64, reply: Vec<u8>) {
        let reply = [&self.round.to_le_bytes()[..], &reply].concat();
        self.commander.command(Command::Reply(host, number, reply));
    }

    fn welcome(&self) {
        self.commander.command(Command::Welcome(self.round));
    }
}

/// What is of this round.
fn of_round(round: u64, bytes: &[u8]) -> Option<Vec<u8>> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*number) == round).then(|| rest.to_vec())
}

impl HostStore {
    /// Joins a job. What comes of it is an [`Event`].
    ///
    /// # Errors
    /// As [`Rendezvous::start`].
    pub fn join(config: Config) -> Result<Self> {
        let (token, job) = (config.token.clone(), config.settings.job.clone());
        let rendezvous = Rendezvous::start(config)?;
        let (round, store) = (Cell::new(u64::MAX), RefCell::default());
        Ok(HostStore { rendezvous, token, job, round, store })
    }

    /// Gives a command.
    pub fn command(&self, command: Command) {
        self.rendezvous.command(command);
    }

    /// Gives commands from other threads.
    pub fn commander(&self) -> Commander {
        self.rendezvous.commander()
    }

    /// What to add to this host's CLOCK_MONOTONIC for the leader's, in nanoseconds.
    pub fn clock_offset(&self) -> i64 {
        self.rendezvous.clock_offset()
    }

    /// Makes the store of a round, with what workers need to reach those of other hosts. `leads`: the job's keys are
    /// here.
    ///
    /// # Errors
    /// As [`StoreServer::start`].
    pub fn open(&self, round: &Round, group_rank: usize, leads: bool) -> Result<()> {
        let line = Line { commander: self.rendezvous.commander(), round: round.number };
        let server = StoreServer::start_among_hosts(Box::new(line), leads)?;
        // What workers of a round prove to those of other hosts that they belong to it.
        let purpose = format!("torchrs links\n{}\n{}", round.number, self.job);
        server.tell(LINKS_KEY, &self.token.key(&purpose));
        let own = round.hosts.get(group_rank).into_iter().flat_map(|host| &host.addresses);
        let own = addresses::write(own.map(SocketAddr::ip));
        server.tell(LINKS_ADDRESSES, own.as_bytes());
        let leader = round.hosts.iter().find(|host| host.id == round.leader);
        server.tell(LEADER, leader.map_or("", |host| &host.name).as_bytes());
        self.round.set(round.number);
        *self.store.borrow_mut() = Some(server);
        Ok(())
    }

    /// Ends the store of the round: its clients learn it at once.
    pub fn close(&self) {
        *self.store.borrow_mut() = None;
    }

    /// A worker's connection to the store of the round.
    ///
    /// # Errors
    /// [`Error::Store`] where no round runs; as [`StoreServer::connect`].
    pub fn connect(&self) -> Result<OwnedFd> {
        match &*self.store.borrow() {
            Some(store) => store.connect(),
            None => Err(Error::Store("no round of the job runs on this host".into())),
        }
    }

    /// Says in the store that a rank's process has ended, and how.
    pub fn rank_ended(&self, rank: usize, how: &str) {
        if let Some(store) = &*self.store.borrow() {
            store.rank_ended(rank, how);
        }
    }

    /// The next event that is not the store's, of those that have come.
    pub fn next(&self) -> Option<Event> {
        while let Some(event) = self.rendezvous.try_next() {
            let (store, round) = (self.store.borrow(), self.round.get());
            match event {
                Event::Ask(host, _, request) => {
                    if let (Some(store), Some(request)) = (&*store, of_round(round, &request)) {
                        store.asked(host, request);
                    }
                }
                Event::Answer(number, reply) => {
                    if let (Some(store), Some(reply)) = (&*store, of_round(round, &reply)) {
                        store.answered(number, reply);
                    }
                }
                Event::AwaitsWelcome(awaits) => {
                    let value = if awaits { b"1" } else { b"0" };
                    store.iter().for_each(|store| store.tell(AWAITS_WELCOME, value));
                }
                Event::Gone(host) => store.iter().for_each(|store| store.host_gone(host)),
                event => return Some(event),
            }
        }
        None
    }
}

/// Becomes readable when there is an event.
impl AsFd for HostStore {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rendezvous.as_fd()
    }
}
