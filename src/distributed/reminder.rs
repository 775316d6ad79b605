//! Warnings of long waits. A wait may last minutes before its deadline passes; until then the rank that
//! waits says on standard error who waits, for whom, and where: after 30 s, and then after twice as long
//! as the time before.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The environment variable that says after how many seconds a wait is first told of; 0 for never.
const WARN_AFTER: &str = "TORCHRS_WARN_AFTER_S";
/// Unless it is set.
const DEFAULT: Duration = Duration::from_secs(30);

/// When one wait is to be told of next. It looks at the clock only when it is asked.
#[derive(Debug)]
pub(super) struct Reminder {
    start: Cell<Option<Instant>>,
    /// After how long; `None` for never.
    due: Cell<Option<Duration>>,
}

impl Reminder {
    /// Of a wait that begins when [`limit`](Self::limit) is first called.
    #[inline]
    pub(super) fn new() -> Self {
        Reminder { start: Cell::new(None), due: Cell::new(first()) }
    }

    fn start(&self) -> Instant {
        self.start.get().unwrap_or_else(|| {
            let now = Instant::now();
            self.start.set(Some(now));
            now
        })
    }

    /// How long to wait before the next look, at most `longest`.
    pub(super) fn limit(&self, longest: Duration) -> Duration {
        match self.due.get() {
            None => longest,
            Some(due) => longest.min(due.saturating_sub(self.start().elapsed())),
        }
    }

    /// How long it has waited, if that is to be told now.
    pub(super) fn is_due(&self) -> Option<Duration> {
        let due = self.due.get()?;
        let waited = self.start().elapsed();
        if waited < due {
            return None;
        }
        // From now on, so that a thread that slept says nothing twice.
        self.due.set(Some(waited * 2));
        Some(waited)
    }

    /// Says it, if it is time to: `what` is asked only then.
    pub(super) fn remind(&self, what: impl FnOnce() -> String) {
        if let Some(waited) = self.is_due() {
            say(waited, &what());
        }
    }
}

/// A line on standard error.
pub(super) fn say(waited: Duration, what: &str) {
    crate::multiprocessing::report::say(&format!("torchrs: waiting for {waited:.0?}: {what}"));
}

/// After how long a wait is first told of.
fn first() -> Option<Duration> {
    static FIRST: OnceLock<Option<Duration>> = OnceLock::new();
    *FIRST.get_or_init(|| read(std::env::var(WARN_AFTER).ok()).unwrap_or(Some(DEFAULT)))
}

/// # Errors
/// [`Error::Config`] where the variable is not a number of seconds.
pub(super) fn check_environment() -> Result<()> {
    read(std::env::var(WARN_AFTER).ok()).map(drop)
}

fn read(variable: Option<String>) -> Result<Option<Duration>> {
    let Some(text) = variable.filter(|text| !text.trim().is_empty()) else {
        return Ok(Some(DEFAULT));
    };
    let seconds = text.trim().parse().ok().filter(|&seconds: &f64| seconds >= 0.0);
    match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(after) => Ok(Some(after).filter(|after| !after.is_zero())),
        None => {
            let what = format!("is `{text}`: must be a number of seconds, or 0 for no warnings");
            Err(Error::config(WARN_AFTER, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_read_in_seconds() {
        assert_eq!(read(None).unwrap(), Some(DEFAULT));
        assert_eq!(read(Some("0.5".into())).unwrap(), Some(Duration::from_millis(500)));
        assert_eq!(read(Some("0".into())).unwrap(), None);
        for wrong in ["soon", "-1", "nan", "inf"] {
            let error = read(Some(wrong.into())).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{WARN_AFTER}: is `{wrong}`")), "{error}");
        }
    }

    #[test]
    fn a_wait_is_told_of_at_growing_intervals() {
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds));
        let reminder = Reminder { start: Cell::new(ago(1)), due: Cell::new(Some(DEFAULT)) };
        assert!(reminder.is_due().is_none());
        assert!(reminder.limit(Duration::from_secs(600)) <= DEFAULT);
        assert_eq!(reminder.limit(Duration::from_secs(1)), Duration::from_secs(1));
        reminder.start.set(ago(31));
        assert!(reminder.is_due().is_some() && reminder.is_due().is_none());
        reminder.start.set(ago(60));
        assert!(reminder.is_due().is_none());
        reminder.start.set(ago(70));
        assert!(reminder.is_due().is_some());
    }
}
