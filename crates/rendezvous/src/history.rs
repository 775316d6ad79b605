//! What a host knows of a job's rounds. Of two parts of a job that fell apart only one may go on, and each has to know
//! after which rounds: not only after the last that is known to have run, but after all that may have run elsewhere.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::protocol::{HostId, Round};

/// The last round that is known to have run, and later ones of which that is not known: proposed, or accepted by some.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    ran: Option<Arc<Round>>,
    /// In the order of their stamps. Of those that ask for the same hosts the last.
    open: Vec<Arc<Round>>,
}

impl History {
    /// The rounds, earliest first.
    pub fn rounds(&self) -> impl Iterator<Item = &Arc<Round>> {
        self.ran.iter().chain(&self.open)
    }

    /// The last of them.
    pub fn latest(&self) -> Option<&Arc<Round>> {
        self.open.last().or(self.ran.as_ref())
    }

    /// A round was proposed, and may run.
    pub fn proposed(&mut self, round: Arc<Round>) {
        self.open.retain(|other| !asks_for_the_same(other, &round));
        self.open.push(round);
        self.open.sort_by_key(|round| round.stamp());
    }

    /// A round runs: all its hosts have accepted it.
    pub fn ran(&mut self, round: Arc<Round>) {
        self.open.clear();
        self.ran = Some(round);
    }

    /// What another host knows.
    pub fn learn(&mut self, other: History) {
        let stamp = |round: &Option<Arc<Round>>| round.as_ref().map(|round| round.stamp());
        if stamp(&self.ran) < stamp(&other.ran) {
            self.ran = other.ran;
        }
        other.open.into_iter().for_each(|round| self.proposed(round));
        let ran = stamp(&self.ran);
        self.open.retain(|round| ran < Some(round.stamp()));
    }
}

/// Whether the same hosts may go on after one as after the other.
fn asks_for_the_same(a: &Round, b: &Round) -> bool {
    let hosts =
        |round: &Round| round.hosts.iter().map(|host| host.id).collect::<BTreeSet<HostId>>();
    (a.leader, a.ties) == (b.leader, b.ties) && hosts(a) == hosts(b)
}
