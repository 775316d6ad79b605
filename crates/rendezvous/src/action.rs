//! What a leader wants done.

use std::sync::Arc;

use crate::ending::Ending;
use crate::lock::Tie;
use crate::protocol::{Round, ToMember};

/// A connection of a host to the leader; the leader's own host has one, too.
pub type Connection = u64;

/// What the leader wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send a message.
    Send(Connection, ToMember),
    /// After what was sent to it before.
    Close(Connection),
    /// What a host asks of the job's store.
    Ask(Connection, u64, Vec<u8>),
    /// Too few of the last round's hosts came: they may gather elsewhere, or did, in this round. Nothing of this leader
    /// counts from now on.
    Resign(Option<Arc<Round>>),
    /// Take this tie for this host, unless another has: [`Leader::tie_taken`](crate::leader::Leader::tie_taken) is told.
    TakeTie(Tie),
    /// How the workers of a host are, in the words of its launcher.
    Status(Vec<u8>),
    /// For the user's eyes.
    Say(String),
    /// A round has ended and another follows: the reports, for a notice.
    Restarting(Ending),
    /// The job has ended: what to say, and with which code, is for `finish`.
    Ended(Ending),
}
