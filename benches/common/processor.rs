//! Processor time, which other programs on the same cores disturb less than the time on the wall.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// Seconds of processor time that this process has used, on all its threads.
pub fn seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("Linux has it");
    (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6
}
