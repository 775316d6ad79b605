//! A point in time by which a wait must end. Every wait of this module takes one: nothing here can
//! block for ever.

use std::time::{Duration, Instant};

use torchrs_error::Error;

/// A limit for a wait: when it started counting, and for how long.
///
/// A `Duration` converts into a deadline that counts from the conversion on, so both
/// `store.get("key", Duration::from_secs(5))` and a deadline shared by several calls work.
///
/// ```
/// use std::time::Duration;
/// use torchrs::distributed::{Deadline, Store, StoreServer};
/// let server = StoreServer::start()?;
/// let store = Store::connect_fd(server.connect()?)?;
/// let deadline = Deadline::after(Duration::from_millis(20));
/// assert!(store.get("a", deadline).is_err() && deadline.has_passed() && store.get("b", deadline).is_err());
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    start: Instant,
    limit: Duration,
}

impl Deadline {
    /// A deadline `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Deadline { start: Instant::now(), limit }
    }

    /// The time that is left; zero when it has passed.
    pub fn remaining(&self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed())
    }

    /// True when it has passed.
    pub fn has_passed(&self) -> bool {
        self.remaining().is_zero()
    }

    /// The whole span, from the start to the limit.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// The [`Error::Timeout`] of a wait on `what`.
    ///
    /// ```
    /// use std::time::Duration;
    /// let deadline = torchrs::distributed::Deadline::after(Duration::from_millis(1500));
    /// assert_eq!(deadline.error("no answer").to_string(), "timed out after 1.5 s: no answer");
    /// ```
    pub fn error(&self, what: impl Into<String>) -> Error {
        Error::Timeout { seconds: self.limit.as_secs_f64(), message: what.into() }
    }

    /// Milliseconds for `poll`, rounded up so that a wait does not spin through its last
    /// millisecond, and capped at `i32::MAX`.
    #[doc(hidden)]
    pub fn poll_millis(&self) -> i32 {
        let millis = self.remaining().as_nanos().div_ceil(1_000_000);
        millis.min(i32::MAX as u128) as i32
    }
}

impl From<Duration> for Deadline {
    fn from(limit: Duration) -> Self {
        Deadline::after(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passed_deadline_has_nothing_left_and_names_its_span() {
        let deadline = Deadline::after(Duration::ZERO);
        assert!(deadline.has_passed());
        assert_eq!(deadline.poll_millis(), 0);
        assert_eq!(deadline.error("rank 2").to_string(), "timed out after 0.0 s: rank 2");
    }

    #[test]
    fn the_last_fraction_of_a_millisecond_still_waits() {
        let deadline = Deadline::after(Duration::from_secs(3600));
        assert!(deadline.poll_millis() > 3_590_000);
        assert!(!deadline.has_passed());
    }
}
