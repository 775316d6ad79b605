//! This launcher's connection to the others, as workers are told of it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use torchrs_error::Result;
use torchrs_rendezvous::driver::{Command, Event};
use torchrs_rendezvous::host_store::HostStore;
use torchrs_rendezvous::protocol::Why;

use crate::group::{News, Others};
use crate::status::Status;

/// The connection, and the store of the round that runs.
pub struct Link {
    pub host: HostStore,
    /// What came while workers ran and waits for their end.
    kept: RefCell<VecDeque<Event>>,
    /// What is told of other hosts' workers.
    status: Arc<Status>,
}

impl Link {
    pub fn new(host: HostStore, status: Arc<Status>) -> Self {
        Link { host, kept: RefCell::default(), status }
    }

    /// The next event that is not the store's; those that came while workers ran are the first, but for what
    /// concerned them.
    pub fn next(&self) -> Option<Event> {
        let kept = self.kept.borrow_mut().pop_front();
        match kept.or_else(|| self.host.next())? {
            Event::Status(text) => {
                self.status.heard(&text);
                self.next()
            }
            event => Some(event),
        }
    }
}

impl Others for Link {
    fn connect(&self) -> Result<OwnedFd> {
        self.host.connect()
    }

    fn rank_ended(&self, rank: usize, how: &str) {
        self.host.rank_ended(rank, how);
    }

    fn failing(&self) {
        self.host.command(Command::WorkersFailing);
    }

    fn news(&self) -> Vec<News> {
        let mut news = Vec::new();
        while let Some(event) = self.host.next() {
            match event {
                // Its workers notice by themselves, and say so better than this launcher's signal.
                Event::Stop { at_once: false, why: Why::Failed(_) } => news.push(News::Failed),
                Event::Stop { at_once, .. } => news.push(News::Stop(at_once)),
                Event::Say(text) => news.push(News::Say(text)),
                Event::Status(text) => self.status.heard(&text),
                event => self.kept.borrow_mut().push_back(event),
            }
        }
        news
    }
}

/// Becomes readable when there is an event.
impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.host.as_fd()
    }
}
