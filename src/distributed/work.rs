//! The handle of a collective that runs in the background.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Deadline;
use crate::error::Result;

/// A collective that was started and may still be under way (`torch.distributed.Work`).
///
/// Its tensors must be left alone until it has completed. Dropping it without waiting is allowed:
/// the collective goes on, and what it returns is lost, though a failure that aborts the group is
/// seen by the group's next call.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Tensor, distributed::{ReduceOp, Work}};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let x = Tensor::from([group.rank() as f32 + 1.0]);
/// let work: Work = group.all_reduce_async(&x, ReduceOp::Sum)?;
/// // Something else meanwhile.
/// work.wait()?;
/// assert_eq!(x.item(), 3.0);
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "wait for it before using its tensors"]
pub struct Work {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    result: Mutex<Option<Result<()>>>,
    done: Condvar,
}

impl Work {
    /// A work and the function that completes it.
    pub(super) fn new() -> (Work, impl FnOnce(Result<()>) + Send + 'static) {
        let work = Work { state: Arc::default() };
        let state = work.state.clone();
        let complete = move |result| {
            *state.result.lock() = Some(result);
            state.done.notify_all();
        };
        (work, complete)
    }

    /// Waits until the collective has completed. Ends by itself: the collective has a deadline.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// # use torchrs::Tensor;
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let x = Tensor::from([group.rank() as f32 + 1.0]);
    /// group.broadcast_async(&x, 1)?.wait()?;
    /// assert_eq!(x.item(), 2.0);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// What the collective itself returned.
    pub fn wait(&self) -> Result<()> {
        let mut result = self.state.result.lock();
        loop {
            match &*result {
                Some(result) => return result.clone(),
                None => self.state.done.wait(&mut result),
            }
        }
    }

    /// As [`wait`](Self::wait), for at most `limit`. The collective goes on after a time-out.
    ///
    /// ```
    /// use std::time::Duration;
    /// use torchrs::{Error, distributed};
    /// let group = distributed::init_process_group(Default::default())?;
    /// group.barrier_async()?.wait_timeout(Duration::from_secs(60))?;
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`](crate::Error::Timeout), or what the collective itself returned.
    pub fn wait_timeout(&self, limit: Duration) -> Result<()> {
        let deadline = Deadline::after(limit);
        let mut result = self.state.result.lock();
        loop {
            match &*result {
                Some(result) => return result.clone(),
                None if deadline.has_passed() => {
                    return Err(deadline.error("a collective has not completed yet"));
                }
                None => drop(self.state.done.wait_for(&mut result, deadline.remaining())),
            }
        }
    }

    /// True when it has completed, with or without an error: [`wait`](Self::wait) returns at once.
    ///
    /// ```
    /// let group = torchrs::distributed::init_process_group(Default::default())?;
    /// let work = group.barrier_async()?;
    /// work.wait()?;
    /// assert!(work.is_completed());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn is_completed(&self) -> bool {
        self.state.result.lock().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn a_work_completes_once_for_all_who_wait() {
        let (work, complete) = Work::new();
        assert!(!work.is_completed());
        let early = work.wait_timeout(Duration::from_millis(5)).unwrap_err();
        assert!(matches!(early, Error::Timeout { .. }), "{early}");
        let waiting = std::thread::spawn({
            let work = work.clone();
            move || work.wait()
        });
        complete(Err(Error::Mismatch("x".into())));
        assert!(waiting.join().unwrap().is_err());
        assert!(work.is_completed() && work.wait_timeout(Duration::ZERO).is_err());
    }
}
