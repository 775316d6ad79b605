//! One rank's end of a group in shared memory: what its parts have in common, and how it fails.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::arena::{Arena, Staging};
use super::control::{AbortRecord, Cause, Control};
use super::watchdog::Peer;
use crate::distributed::Store;
use crate::error::{Error, Result};

/// Messages up to this size go through the control block, with one barrier; above, two barriers
/// cost less than reading everybody's message. Tuned with two ranks.
pub(super) fn inline_bytes(world: usize) -> usize {
    ((64 << 10) / world).max(1 << 10) / 64 * 64
}

/// Private buffers pass through staging memory in chunks of this size: few enough barriers, and a
/// chunk is still in a cache when the other ranks read it.
pub(super) const CHUNK_BYTES: usize = 512 << 10;

/// One rank's end of a group.
#[derive(Debug)]
pub(crate) struct ShmBackend {
    /// This rank in the group.
    pub(super) rank: usize,
    /// The members by their rank in the world: what messages call them.
    pub(super) ranks: Vec<usize>,
    pub(super) control: Arc<Control>,
    pub(super) staging: Staging,
    pub(super) arena: Arena,
    pub(super) peers: Vec<Peer>,
    /// For descriptors of shared buffers and sub-groups. A group of one needs none.
    pub(super) store: Option<Store>,
    /// What this group's keys in the store begin with.
    pub(super) prefix: String,
    /// Of a group for messages.
    pub(super) between: Option<Between>,
    /// How many ranks the job has on this machine, be they members or not, and the cores that they share: spinning for long may
    /// keep one of them from its core.
    pub(in super::super) everybody: usize,
    pub(super) cores: usize,
    pub(super) progress: Mutex<Progress>,
}

/// What a group for messages from one rank to another is a part of.
#[derive(Debug)]
pub(super) struct Between {
    pub(super) whole: Arc<ShmBackend>,
    pub(super) tag: u32,
}

/// `the messages from rank 2 to rank 5 with tag 0`.
pub(super) fn name_of([from, to]: [usize; 2], tag: u32) -> String {
    format!("the messages from rank {from} to rank {to} with tag {tag}")
}

/// How far this rank is. All ranks count alike.
#[derive(Debug)]
pub(super) struct Progress {
    /// Number of the collective that runs, or ran last. From 1.
    pub(super) sequence: u32,
    /// How many barriers this rank has arrived at.
    pub(super) steps: u32,
    /// How long to spin: adapts to how long peers let this rank wait.
    pub(super) spin: Duration,
    pub(super) subgroups: u32,
}

impl ShmBackend {
    /// Makes every rank's calls fail with `reason`.
    pub(crate) fn abort(&self, reason: &str) {
        let pid = std::process::id() as i32;
        let reason = reason.to_owned();
        self.fail(AbortRecord { cause: Cause::Failed, rank: self.rank, pid, reason });
    }

    pub(in crate::distributed) fn has_failed(&self) -> bool {
        let whole = self.between.as_ref().map(|between| &between.whole);
        self.control.is_aborted() || whole.is_some_and(|whole| whole.has_failed())
    }

    /// Ends the group and, of messages, the one that they are within. The first record stands; false when
    /// there was one.
    pub(in crate::distributed) fn fail(&self, record: AbortRecord) -> bool {
        let Some(Between { whole, .. }) = &self.between else { return self.control.abort(&record) };
        let place = |rank| whole.ranks.iter().position(|&other| other == rank).unwrap_or(0);
        let rank = match record.cause.is_of_job() {
            true => record.rank,
            false => place(self.ranks[record.rank]),
        };
        // Before the peer is woken, so that it finds the reason.
        let first = whole.fail(AbortRecord { rank, ..record.clone() });
        self.control.abort(&record);
        first
    }

    pub(super) fn abort_unless_ok<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            // If the group is aborted already that record stands.
            self.abort(&error.to_string());
        }
        result
    }
}

pub(super) fn only<T>(items: Vec<T>) -> Result<T> {
    let count = items.len();
    let mut items = items.into_iter();
    match (items.next(), count) {
        (Some(item), 1) => Ok(item),
        _ => Err(Error::Store(format!("{count} descriptors where one was expected"))),
    }
}
