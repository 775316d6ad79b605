//! The timeline of a shutdown: which step comes next, and when. One grace time counts from the
//! first sign that the job has to end, whether that was a signal or a worker's failure.

use std::time::{Duration, Instant};

use crate::tree::KILL_PATIENCE;

/// After a failure the peers first get this long to notice by themselves, say what they were
/// waiting on and end. They notice within 100 ms, but an unoptimised program takes most of a
/// second to find the names for its backtrace.
const CONSEQUENCES: Duration = Duration::from_secs(2);
/// What processes that workers left behind get after a success, before they are killed.
const LEFTOVERS: Duration = Duration::from_secs(1);

/// How far a shutdown has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A worker failed; its peers are left alone until `until`.
    Waiting { until: Instant, kill_at: Instant },
    /// The workers have been asked to end.
    Asked { kill_at: Instant },
    /// Everything has been killed.
    Killed { give_up_at: Instant },
    /// Something survives SIGKILL: there is nothing more to do.
    GivenUp,
}

impl Stop {
    /// After a worker's failure.
    pub fn after_failure(now: Instant, grace: Duration) -> Stop {
        Stop::Waiting { until: now + CONSEQUENCES.min(grace / 4), kill_at: now + grace }
    }

    /// After a signal was forwarded to the workers. A shutdown under way keeps its time.
    pub fn after_signal(before: Option<Stop>, now: Instant, grace: Duration) -> Stop {
        match before {
            None => Stop::Asked { kill_at: now + grace },
            Some(Stop::Waiting { kill_at, .. }) => Stop::Asked { kill_at },
            Some(later) => later,
        }
    }

    /// After all workers have ended and left processes behind, which have been asked to end.
    pub fn with_leftovers(before: Option<Stop>, now: Instant, grace: Duration) -> Stop {
        match before {
            None => Stop::Asked { kill_at: now + LEFTOVERS.min(grace) },
            some => Stop::after_signal(some, now, grace),
        }
    }

    pub fn killed(now: Instant) -> Stop {
        Stop::Killed { give_up_at: now + KILL_PATIENCE }
    }

    /// When the next step is due.
    pub fn deadline(self) -> Option<Instant> {
        match self {
            Stop::Waiting { until, .. } => Some(until),
            Stop::Asked { kill_at } => Some(kill_at),
            Stop::Killed { give_up_at } => Some(give_up_at),
            Stop::GivenUp => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grace_time_counts_from_the_first_sign() {
        let (start, grace) = (Instant::now(), Duration::from_secs(2));
        let failed = Stop::after_failure(start, grace);
        assert_eq!(failed.deadline(), Some(start + Duration::from_millis(500)));
        let later = start + Duration::from_secs(1);
        let asked = Stop::after_signal(Some(failed), later, grace);
        assert_eq!(asked, Stop::Asked { kill_at: start + grace });
        assert_eq!(Stop::after_signal(None, later, grace).deadline(), Some(later + grace));
        assert_eq!(Stop::after_failure(start, Duration::ZERO).deadline(), Some(start));
    }
}
