//! What launchers tell each other.

use std::cmp::Ordering;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::settings::Settings;

/// A launcher, for as long as it runs: random, so that one that comes back is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostId(pub u64);

/// A host that wants to take part, or does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its launcher.
    pub id: HostId,
    /// What its system calls it.
    pub name: String,
    /// Where its launcher is reached, the likeliest first.
    pub addresses: Vec<SocketAddr>,
    /// Workers that it starts.
    pub nproc: u32,
    /// Its place, where the user gave one.
    pub node_rank: Option<u32>,
    /// The release, as a person reads it.
    pub version: String,
    /// What has to be equal on all hosts: of the release's layouts.
    pub fingerprint: u64,
}

/// Counts leaders. A message of an earlier term is out of date.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Term(pub u64);

/// Which hosts run together, from one start of the workers to their end. Of many hosts it is long: whoever has one
/// shares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Of its leader.
    pub term: Term,
    /// Counts the rounds of a job.
    pub number: u64,
    /// Who led the first round: tells this run of the job from others of the same name.
    pub begun_by: HostId,
    /// Ties before it that a lock has decided, in the folder of `--rdzv-lock`.
    pub ties: u32,
    /// Failures before it, on any host: TORCHELASTIC_RESTART_COUNT.
    pub restarts: u32,
    /// Who proposed it.
    pub leader: HostId,
    /// In the order of their group ranks.
    pub hosts: Vec<Host>,
    /// Hosts that wait for a place.
    pub spares: Vec<Host>,
}

impl Round {
    /// How far the job had come: of two rounds the later one.
    pub fn stamp(&self) -> (u64, Term) {
        (self.number, self.term)
    }

    /// The group rank of a host that takes part.
    pub fn group_rank(&self, id: HostId) -> Option<usize> {
        self.hosts.iter().position(|host| host.id == id)
    }

    /// The rank of the first worker of the host with this group rank.
    pub fn first_rank(&self, group_rank: usize) -> usize {
        self.hosts[..group_rank].iter().map(|host| host.nproc as usize).sum()
    }

    /// Which part of its hosts so many are.
    pub fn share(&self, there: usize) -> Share {
        match (2 * there).cmp(&self.hosts.len()) {
            Ordering::Greater => Share::Most,
            Ordering::Equal => Share::Half,
            Ordering::Less => Share::Fewer,
        }
    }

    /// Workers on all hosts.
    pub fn world_size(&self) -> usize {
        self.first_rank(self.hosts.len())
    }
}

/// A part of a round's hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// More than half: there is no other such part.
    Most,
    /// There may be another one.
    Half,
    /// Others may go on without these.
    Fewer,
}

/// How the workers of a host ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// All in peace.
    Success,
    /// One failed by itself, or could not be started.
    Failure,
    /// They were stopped because the round was.
    Stopped,
    /// The user sent their launcher this signal.
    Signal(i32),
}

/// Why a round ends before its workers do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// Workers of this host failed.
    Failed(HostId),
    /// This host was lost.
    Lost(HostId),
    /// Too few hosts are in reach: others may go on elsewhere.
    CutOff,
    /// A host left because its user asked it to.
    Left(HostId),
    /// Hosts came that are to take part.
    Joined,
    /// The job is over.
    Over,
}

/// To the leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToLeader {
    /// The first message: a host wants to take part.
    Join {
        /// What it was started with: the same on all hosts.
        settings: Settings,
        /// Itself.
        host: Host,
        /// The rounds that it accepted, of whichever leader.
        accepted: History,
        /// Whether workers of that round are still there.
        busy: bool,
    },
    /// It will start this round's workers when told to.
    Accept {
        /// Of the round.
        term: Term,
        /// Of the round.
        number: u64,
    },
    /// All its workers of this round have ended.
    Ended {
        /// Of the round.
        number: u64,
        /// How they ended.
        verdict: Verdict,
        /// What its launcher has to say of them.
        report: Vec<u8>,
    },
    /// It is there. What was long on its way proves no more than that its sender was there then.
    Alive {
        /// The host's clock, which comes back in the answer.
        sent_at: Duration,
        /// The leader's clock, as in its last answer.
        clock: Duration,
    },
    /// From another leader, to whoever sits where the job began: this round is the job's last.
    Claim {
        /// The job.
        job: String,
        /// Its last round.
        round: Arc<Round>,
    },
    /// What its workers ask of the job's store.
    Ask {
        /// Comes back with the answer.
        number: u64,
        /// What they ask.
        request: Vec<u8>,
    },
    /// A worker of this round has failed. The host's others end, and [`Ended`](Self::Ended) follows.
    Failing {
        /// Of the round.
        number: u64,
    },
    /// How its workers are, for whoever looks at the job. None of the leader's business.
    Status {
        /// What its launcher says.
        text: Vec<u8>,
    },
}

/// From the leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToMember {
    /// The first message, from whoever was called, the leader or not: who it is. An address may lead to several hosts.
    Here {
        /// Its launcher.
        id: HostId,
    },
    /// It cannot take part, for good.
    Refused {
        /// What the user has to change.
        why: String,
    },
    /// This host does not lead.
    NotLeader {
        /// The round that it takes part in, if it has a leader.
        round: Option<Arc<Round>>,
    },
    /// It waits.
    Waiting {
        /// Hosts that are there.
        present: u32,
        /// The fewest that a round needs.
        needed: u32,
        /// The round that runs without it.
        round: Option<Arc<Round>>,
    },
    /// A round to accept.
    Propose {
        /// The round.
        round: Arc<Round>,
    },
    /// All hosts of the round have accepted it: start the workers.
    Start {
        /// Of the round.
        number: u64,
    },
    /// End the workers of this round, and report.
    Stop {
        /// Of the round.
        number: u64,
        /// What ended it.
        why: Why,
        /// Others may go on without these workers: they are not asked.
        at_once: bool,
    },
    /// The answer to [`ToLeader::Alive`].
    Alive {
        /// What came with it.
        sent_at: Duration,
        /// The leader's clock.
        clock: Duration,
    },
    /// What the store answers.
    Answer {
        /// Of the question.
        number: u64,
        /// The answer.
        reply: Vec<u8>,
    },
    /// The job is over.
    Over {
        /// The job's.
        exit_code: i32,
        /// Its report.
        text: String,
    },
}
