//! The hosts that are connected to the leader. What is asked for at each message takes no look at all of them.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use crate::action::Connection;
use crate::protocol::{Host, HostId};

/// A host that has joined.
pub(super) struct Member {
    pub host: Host,
    pub connection: Connection,
    pub heard_at: Duration,
    /// When it was last told that this leader is there: for so long after that its workers may run.
    pub told_at: Duration,
    /// Counts those who joined: who came first takes part first.
    pub order: u64,
    /// Its workers of an earlier leader's round are still there.
    pub busy: bool,
}

/// All of them, by their launchers.
#[derive(Default)]
pub(super) struct Members {
    all: BTreeMap<HostId, Member>,
    by_connection: BTreeMap<Connection, HostId>,
    /// How many are busy.
    busy: usize,
}

impl Deref for Members {
    type Target = BTreeMap<HostId, Member>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Members {
    /// Adds one that is not there.
    pub fn insert(&mut self, member: Member) {
        let id = member.host.id;
        self.busy += usize::from(member.busy);
        self.by_connection.insert(member.connection, id);
        let before = self.all.insert(id, member);
        assert!(before.is_none(), "a host that is there is not added");
    }

    pub fn remove(&mut self, id: HostId) -> Option<Member> {
        let member = self.all.remove(&id)?;
        self.busy -= usize::from(member.busy);
        self.by_connection.remove(&member.connection);
        Some(member)
    }

    /// Whose connection this is.
    pub fn of_connection(&self, connection: Connection) -> Option<HostId> {
        self.by_connection.get(&connection).copied()
    }

    /// It was there at this time, and is told so now.
    pub fn heard(&mut self, id: HostId, at: Duration, now: Duration) {
        if let Some(member) = self.all.get_mut(&id) {
            member.heard_at = member.heard_at.max(at);
            member.told_at = now;
        }
    }

    /// It has no workers of an earlier round any more.
    pub fn is_ready(&mut self, id: HostId) {
        if let Some(member) = self.all.get_mut(&id) {
            self.busy -= usize::from(std::mem::take(&mut member.busy));
        }
    }

    /// Whether some still end workers of an earlier round.
    pub fn are_some_busy(&self) -> bool {
        self.busy > 0
    }
}
