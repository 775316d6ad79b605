//! The handle of a collective that runs in the background.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Deadline;
use super::nccl::Started;
use crate::error::Result;
use crate::profiler::Phase;

/// A collective that was started and may still be under way (`torch.distributed.Work`).
///
/// Its tensors must be left alone until it has completed; debug builds panic where an op uses them. Dropping it without waiting is allowed:
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
    /// Of a collective on a GPU: what is on its way there.
    result: Mutex<Option<Result<Option<Started>>>>,
    done: Condvar,
}

impl Work {
    /// A work and the function that completes it.
    pub(super) fn new() -> (Work, impl FnOnce(Result<Option<Started>>) + Send + 'static) {
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
    /// For tensors on a GPU it is the current stream that waits, not the host: what is put there
    /// afterwards finds the result. A failure on the way is the error of the group's next call and of the
    /// next wait for the GPU, such as `item`; [`wait_timeout`](Self::wait_timeout) waits for that too.
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
        let _phase = Phase::work();
        let mut result = self.state.result.lock();
        while result.is_none() {
            self.state.done.wait(&mut result);
        }
        match result.clone() {
            Some(Ok(Some(started))) => started.join_current_stream(),
            Some(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// As [`wait`](Self::wait), for at most `limit`; on the host also for tensors on a GPU. The
    /// collective goes on after a time-out.
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
        let _phase = Phase::work();
        let late = || deadline.error("a collective has not completed yet");
        let mut result = self.state.result.lock();
        let started = loop {
            match &*result {
                Some(Ok(started)) => break started.clone(),
                Some(Err(error)) => return Err(error.clone()),
                None if deadline.has_passed() => return Err(late()),
                None => drop(self.state.done.wait_for(&mut result, deadline.remaining())),
            }
        };
        drop(result);
        let Some(started) = started else { return Ok(()) };
        while !started.is_done()? {
            if deadline.has_passed() {
                return Err(late());
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        started.join_current_stream()
    }

    /// True when it has completed, with or without an error: no wait for it takes time.
    ///
    /// ```
    /// let group = torchrs::distributed::init_process_group(Default::default())?;
    /// let work = group.barrier_async()?;
    /// work.wait()?;
    /// assert!(work.is_completed());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn is_completed(&self) -> bool {
        match &*self.state.result.lock() {
            Some(Ok(Some(started))) => started.is_done().unwrap_or(true),
            result => result.is_some(),
        }
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
