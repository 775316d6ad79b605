//! How a wait asks MPI: it makes progress only when it is asked, and two ranks may share a core.

use std::thread;
use std::time::{Duration, Instant};

use torchrs_job::deadline::Deadline;

use crate::failure::{Failure, Watch};

/// How eagerly a wait polls.
#[derive(Debug, Clone, Copy)]
pub struct Polling {
    /// Asks again at once for so long.
    pub spin: Duration,
    /// More of that for each MiB of the operation, up to a millisecond: below a scheduler's slice.
    pub spin_per_mib: Duration,
    /// After that, gives way to other threads between two questions for so long.
    pub give_way: Duration,
    /// More of that for each MiB of the operation: a long message needs many questions.
    pub give_way_per_mib: Duration,
    /// After that, sleeps: this long at first, twice as long each time.
    pub sleep: Duration,
    /// No longer than this.
    pub longest_sleep: Duration,
}

impl Default for Polling {
    fn default() -> Self {
        Polling {
            spin: Duration::from_micros(50),
            spin_per_mib: Duration::from_millis(1),
            give_way: Duration::from_millis(1),
            give_way_per_mib: Duration::from_millis(8),
            sleep: Duration::from_micros(20),
            longest_sleep: Duration::from_micros(200),
        }
    }
}

/// The pauses of one wait between its questions.
#[derive(Debug)]
pub struct Pauses {
    polling: Polling,
    spin: Duration,
    give_way: Duration,
    start: Instant,
    sleep: Duration,
}

impl Pauses {
    /// Of a wait for an operation of `size` bytes.
    pub fn new(polling: Polling, size: usize) -> Self {
        let mib = size as f64 / (1 << 20) as f64;
        let more = polling.spin_per_mib.mul_f64(mib.min(1e3)).min(Duration::from_millis(1));
        let spin = polling.spin + more;
        let give_way = spin + polling.give_way + polling.give_way_per_mib.mul_f64(mib.min(1e5));
        Pauses { polling, spin, give_way, start: Instant::now(), sleep: polling.sleep }
    }

    /// Something has come: the next questions are eager again.
    pub fn restart(&mut self) {
        self.start = Instant::now();
        self.sleep = self.polling.sleep;
    }

    /// The pause after a question that found nothing. `what`: what is waited for.
    ///
    /// # Errors
    /// [`Failure::Stopped`] in the watch's words, [`Failure::TimedOut`].
    pub fn pause(
        &mut self,
        what: impl FnOnce() -> String,
        deadline: &Deadline,
        watch: &mut Watch<'_>,
    ) -> Result<(), Failure> {
        let waited = self.start.elapsed();
        if waited < self.spin {
            std::hint::spin_loop();
            return Ok(());
        }
        if let Some(why) = watch() {
            return Err(Failure::Stopped { why, what: what() });
        }
        if deadline.has_passed() {
            return Err(Failure::timed_out(deadline, &what()));
        }
        if waited < self.give_way {
            thread::yield_now();
        } else {
            thread::sleep(self.sleep.min(deadline.remaining()));
            self.sleep = (2 * self.sleep).min(self.polling.longest_sleep);
        }
        Ok(())
    }
}
