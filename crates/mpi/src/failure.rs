//! How an operation ends that does not succeed, and waits for calls of MPI that cannot be polled.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use torchrs_error::Error;
use torchrs_job::deadline::Deadline;

/// Looked at while an operation waits: says why to stop (a peer died, the group was aborted), or `None`.
pub type Watch<'a> = dyn FnMut() -> Option<String> + 'a;

/// Why an operation has no result.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The deadline passed.
    #[error("timed out after {seconds:.1} s: {what}")]
    TimedOut {
        /// How long was waited.
        seconds: f64,
        /// On what.
        what: String,
    },
    /// The watch said so.
    #[error("stopped in {what}: {why}")]
    Stopped {
        /// The watch's words.
        why: String,
        /// What was waited for.
        what: String,
    },
    /// MPI returned an error, or is no longer usable.
    #[error("MPI: {text}")]
    Failed {
        /// The call and MPI's own text.
        text: String,
    },
    /// The call cannot be made; nothing was started, and the communicator stays usable.
    #[error(transparent)]
    Argument(#[from] Error),
}

impl Failure {
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Failure::Failed { text: text.into() }
    }

    pub(crate) fn timed_out(deadline: &Deadline, what: &str) -> Self {
        Failure::TimedOut { seconds: deadline.limit().as_secs_f64(), what: what.to_owned() }
    }

    /// What it is to a caller of torchrs. There is no `From`: with one, the compiler could no longer tell which error
    /// `?` gives in a user's closure.
    pub fn into_error(self) -> Error {
        match self {
            Failure::TimedOut { seconds, what } => Error::Timeout { seconds, message: what },
            Failure::Stopped { why, .. } => Error::Aborted(why),
            Failure::Argument(error) => error,
            failed @ Failure::Failed { .. } => Error::Other(failed.to_string()),
        }
    }
}

/// Runs a call of MPI that blocks until other processes make it too, on a thread of its own. If they do not come,
/// the thread stays behind: MPI has no way to call it back.
pub(crate) fn within<T: Send + 'static>(
    what: &str,
    deadline: Deadline,
    watch: &mut Watch<'_>,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let (sender, receiver) = sync_channel(1);
    let thread = thread::Builder::new().name("torchrs-mpi".to_owned());
    let started = thread.spawn(move || {
        // Nobody listens any more after the deadline.
        let _ = sender.send(call());
    });
    started.map_err(|e| Error::os(format!("start a thread for {what}"), e))?;
    loop {
        let step = deadline.remaining().min(Duration::from_millis(5));
        match receiver.recv_timeout(step) {
            Ok(value) => return Ok(value),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::failed(format!("{what}: its thread panicked")));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(why) = watch() {
            return Err(Failure::Stopped { why, what: what.to_owned() });
        }
        if deadline.has_passed() {
            return Err(Failure::timed_out(&deadline, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_blocks_ends_by_the_deadline_or_the_watch() {
        let (sender, receiver) = sync_channel::<()>(0);
        let deadline = Deadline::after(Duration::from_millis(30));
        let error = within("split", deadline, &mut || None, move || receiver.recv()).unwrap_err();
        assert_eq!(error.to_string(), "timed out after 0.0 s: split");
        drop(sender);

        let (sender, receiver) = sync_channel::<()>(0);
        let deadline = Deadline::after(Duration::from_secs(600));
        let mut watch = || Some("rank 1 died".to_owned());
        let error = within("split", deadline, &mut watch, move || receiver.recv()).unwrap_err();
        assert_eq!(error.to_string(), "stopped in split: rank 1 died");
        assert!(matches!(error.into_error(), Error::Aborted(why) if why == "rank 1 died"));
        drop(sender);

        assert_eq!(within("add", deadline, &mut || None, || 1 + 1).unwrap(), 2);
    }
}
