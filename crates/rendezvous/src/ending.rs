//! How a round ended, for the report.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::protocol::{HostId, Round, Verdict, Why};

/// How a round ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// The round.
    pub round: Arc<Round>,
    /// What ended it, unless all workers ended in peace.
    pub why: Option<Why>,
    /// Why no other round follows, where one might have.
    pub hindrance: Option<String>,
    /// By group rank; nothing of a host that was lost.
    pub reports: Vec<Option<(Verdict, Vec<u8>)>>,
}

impl Ending {
    /// Of a round, with what its hosts reported.
    pub(crate) fn new(
        round: Arc<Round>,
        why: Option<Why>,
        hindrance: Option<String>,
        mut ended: BTreeMap<HostId, (Verdict, Vec<u8>)>,
    ) -> Self {
        let reports = round.hosts.iter().map(|host| ended.remove(&host.id)).collect();
        Ending { round, why, hindrance, reports }
    }
}
