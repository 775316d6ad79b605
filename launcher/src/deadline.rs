//! From a deadline to the time-out of a wait.

use std::time::{Duration, Instant};

use nix::poll::PollTimeout;

/// For poll and epoll: the time until `deadline` (for ever without one) in whole milliseconds,
/// rounded up, so that waking means the time has come.
pub fn poll_timeout(deadline: Option<Instant>) -> PollTimeout {
    let Some(deadline) = deadline else { return PollTimeout::NONE };
    let left: Duration = deadline.saturating_duration_since(Instant::now());
    let millis = left.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
}
