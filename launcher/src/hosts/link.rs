//! This launcher's connection to the others, and the part of the job's store that is here.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use torchrs_error::Result;
use torchrs_job::store::{StoreServer, Uplink};
use torchrs_rendezvous::driver::{Command, Commander, Event, Rendezvous};

use crate::group::{News, Others};

/// The connection, and the store of the round that runs.
pub struct Link {
    rendezvous: Rendezvous,
    round: Cell<u64>,
    store: RefCell<Option<StoreServer>>,
    /// What came while workers ran and waits for their end.
    kept: RefCell<VecDeque<Event>>,
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
}

/// What is of this round.
fn of_round(round: u64, bytes: &[u8]) -> Option<Vec<u8>> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*number) == round).then(|| rest.to_vec())
}

impl Link {
    pub fn new(rendezvous: Rendezvous) -> Self {
        let (store, kept) = (RefCell::default(), RefCell::default());
        Link { rendezvous, round: Cell::new(u64::MAX), store, kept }
    }

    pub fn command(&self, command: Command) {
        self.rendezvous.command(command);
    }

    /// What to add to this host's CLOCK_MONOTONIC for the leader's, in nanoseconds.
    pub fn clock_offset(&self) -> i64 {
        self.rendezvous.clock_offset()
    }

    /// Makes the store of a round. `leads`: the job's keys are here. `of_host` are keys that only this host's workers
    /// see.
    pub fn open_store(&self, round: u64, leads: bool, of_host: &[(&str, &[u8])]) -> Result<()> {
        let line = Line { commander: self.rendezvous.commander(), round };
        let server = StoreServer::start_among_hosts(Box::new(line), leads)?;
        of_host.iter().for_each(|(key, value)| server.tell(key, value));
        self.round.set(round);
        *self.store.borrow_mut() = Some(server);
        Ok(())
    }

    /// The next event that is not the store's, of those that have come. What was kept is not among them.
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
                Event::Gone(host) => store.iter().for_each(|store| store.host_gone(host)),
                event => return Some(event),
            }
        }
        None
    }

    /// What came while workers ran, but for what concerned them.
    pub fn next_kept(&self) -> Option<Event> {
        self.kept.borrow_mut().pop_front()
    }
}

impl Others for Link {
    fn connect(&self) -> Result<OwnedFd> {
        self.store.borrow().as_ref().expect("a round has a store").connect()
    }

    fn rank_ended(&self, rank: usize, how: &str) {
        if let Some(store) = &*self.store.borrow() {
            store.rank_ended(rank, how);
        }
    }

    fn news(&self) -> Vec<News> {
        let mut news = Vec::new();
        while let Some(event) = self.next() {
            match event {
                Event::Stop { at_once, .. } => news.push(News::Stop(at_once)),
                Event::Say(text) => news.push(News::Say(text)),
                event => self.kept.borrow_mut().push_back(event),
            }
        }
        news
    }
}

/// Becomes readable when there is an event.
impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rendezvous.as_fd()
    }
}
