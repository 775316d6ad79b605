//! Waits for operations of MPI. They end by the call's deadline, by its watch, and by what the control connections say,
//! as calls over TCP do.

use std::time::{Duration, Instant};

use torchrs_links::{Call, Failure, Links};
use torchrs_mpi::{Failure as MpiFailure, Request};

/// How often a wait looks at the control connections.
const LOOK: Duration = Duration::from_millis(20);
/// How long what a place has sent may be under way after it has left.
const LEFT: Duration = Duration::from_millis(500);
/// How long MPI's failure waits for the control connections to say what is behind it.
const BEHIND: Duration = Duration::from_millis(300);

/// What the waits of one call have in common.
pub(super) struct Wait<'a> {
    control: &'a mut Links,
    call: &'a Call<'a>,
    looked: Instant,
    /// A place that has left, and when that was seen.
    left: Option<(usize, Instant)>,
}

/// A request that was to be started.
pub(super) fn started<T>(request: Result<T, MpiFailure>) -> Result<T, Failure> {
    request.map_err(|failure| Failure::Carrier(failure.to_string()))
}

impl<'a> Wait<'a> {
    pub fn new(control: &'a mut Links, call: &'a Call<'a>) -> Self {
        Wait { control, call, looked: Instant::now(), left: None }
    }

    /// Waits for one operation, for which `places` have to do something.
    pub fn one<M>(&mut self, request: Request<M>, places: Vec<usize>) -> Result<M, Failure> {
        let deadline = self.call.deadline;
        self.until(places, |watch| request.wait(deadline, watch))
    }

    /// Waits for what `run` does with a deadline and this watch.
    pub fn until<T>(
        &mut self,
        places: Vec<usize>,
        run: impl FnOnce(&mut dyn FnMut() -> Option<String>) -> Result<T, MpiFailure>,
    ) -> Result<T, Failure> {
        let mut seen = None;
        let ended = run(&mut || {
            seen = self.look();
            seen.as_ref().map(Failure::to_string)
        });
        ended.map_err(|failure| match (failure, seen) {
            (MpiFailure::Stopped { .. }, Some(seen)) => seen,
            (MpiFailure::TimedOut { seconds, .. }, _) => {
                Failure::TimedOut { waiting: places, seconds }
            }
            (other, _) => self.behind(&other),
        })
    }

    /// Waits for all, each with a place, and hands their memory to `take`.
    pub fn each<M>(
        &mut self,
        requests: Vec<(usize, Request<M>)>,
        mut take: impl FnMut(usize, M),
    ) -> Result<(), Failure> {
        let mut rest = requests.into_iter();
        while let Some((place, request)) = rest.next() {
            match self.one(request, vec![place]) {
                Ok(memory) => take(place, memory),
                Err(Failure::TimedOut { mut waiting, seconds }) => {
                    let late = rest.filter_map(|(other, mut request)| {
                        // One that fails has not come either.
                        (!request.test().unwrap_or(false)).then_some(other)
                    });
                    waiting.extend(late);
                    waiting.sort_unstable();
                    waiting.dedup();
                    return Err(Failure::TimedOut { waiting, seconds });
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Why to wait no longer, if so.
    fn look(&mut self) -> Option<Failure> {
        if let Some(why) = (self.call.watch)() {
            return Some(Failure::Stopped(why));
        }
        if self.looked.elapsed() < LOOK {
            return None;
        }
        self.looked = Instant::now();
        if let Err(failure) = self.control.check() {
            return Some(failure);
        }
        let place = self.control.left()?;
        let (place, since) = *self.left.get_or_insert((place, Instant::now()));
        let how = || "it has left the process group".to_owned();
        (since.elapsed() >= LEFT).then(|| Failure::PeerGone { place, how: how() })
    }

    /// MPI fails where a process dies. The control connections know better.
    fn behind(&mut self, failure: &MpiFailure) -> Failure {
        let start = Instant::now();
        while start.elapsed() < BEHIND {
            if let Err(failure) = self.control.check() {
                return failure;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Failure::Carrier(failure.to_string())
    }
}
