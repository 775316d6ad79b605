//! What a host says of its workers when they have ended, for the report of the whole job.

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use torchrs_rendezvous::protocol::Verdict;

use crate::failure::Failure;
use crate::group::Outcome;
use crate::worker::Ended;

/// Of one host.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct HostReport {
    pub workers: Vec<Ended>,
    pub output_complete: bool,
    /// Why its workers could not be started, and the exit code for that.
    pub failure: Option<(i32, String)>,
}

impl HostReport {
    /// Of workers that have ended. `offset`: from this host's clock to the leader's.
    pub fn of(outcome: Outcome, offset: i64) -> (Verdict, Self) {
        let verdict = match outcome.signal {
            Some(signal) => Verdict::Signal(signal as i32),
            None if outcome.workers.iter().all(|worker| worker.exit.success()) => Verdict::Success,
            None if outcome.stopped => Verdict::Stopped,
            None => Verdict::Failure,
        };
        let mut workers = outcome.workers;
        workers.iter_mut().for_each(|worker| worker.clock_offset = offset);
        let output_complete = outcome.output_complete;
        (verdict, HostReport { workers, output_complete, failure: None })
    }

    /// Of workers that could not be started.
    pub fn of_failure(failure: Failure) -> (Verdict, Self) {
        let failure = Some((failure.code, failure.message));
        (Verdict::Failure, HostReport { failure, output_complete: true, ..Default::default() })
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a report is plain data")
    }

    pub fn from_bytes(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }
}

/// The signal that ended a host's part, by its name.
pub fn signal_name(number: i32) -> String {
    Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |s| s.as_str().to_owned())
}
