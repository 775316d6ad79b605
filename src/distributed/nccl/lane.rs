//! Streams of collectives, each with the list of what is on its way there. All groups of a process share one on
//! a GPU, on which their collectives come in one order, as NCCL wants it of all ranks. Messages between two
//! ranks have one of their own for each direction: in a ring every rank waits for its neighbour's, so
//! that none may wait for another of the same rank.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::link::Link;
use super::watchdog;
use crate::cuda::{Event, MAX_DEVICES, Priority, Stream};
use crate::distributed::Deadline;
use crate::error::Result;

/// How often a wait looks.
const LOOK: Duration = Duration::from_micros(100);

/// Collectives on a GPU that wait for one another.
#[derive(Debug, Default)]
pub(super) struct Lane {
    stream: Mutex<Option<Stream>>,
    in_flight: Mutex<VecDeque<InFlight>>,
}

/// A collective that was put on the stream, or a graph's replay with some.
#[derive(Debug)]
struct InFlight {
    link: Arc<Link>,
    done: Arc<Event>,
    /// Counts anew when nothing is before it any more.
    deadline: Deadline,
    call: String,
}

/// The lane that groups share, of each device.
static SHARED: LazyLock<[Arc<Lane>; MAX_DEVICES]> = LazyLock::new(Default::default);
/// Those of single directions.
static APART: Mutex<Vec<Weak<Lane>>> = Mutex::new(Vec::new());

/// The lane of a device that all groups share.
pub(super) fn shared(device: usize) -> Arc<Lane> {
    SHARED[device].clone()
}

/// A lane of its own.
pub(super) fn apart() -> Arc<Lane> {
    let lane = Arc::default();
    let mut all = APART.lock();
    all.retain(|lane| lane.strong_count() > 0);
    all.push(Arc::downgrade(&lane));
    lane
}

/// Looks at all that is on its way on any device; whether there is anything.
pub(super) fn look_at_all() -> bool {
    let apart: Vec<Arc<Lane>> = APART.lock().iter().filter_map(Weak::upgrade).collect();
    SHARED.iter().chain(&apart).fold(false, |busy, lane| lane.look() | busy)
}

impl Lane {
    /// Its stream.
    pub(super) fn stream(&self, device: usize) -> Result<Stream> {
        let mut stream = self.stream.lock();
        match *stream {
            Some(stream) => Ok(stream),
            None => Ok(*stream.insert(Stream::new(device, Priority::High)?)),
        }
    }

    /// Takes down that `call` was started, and is done after an event.
    pub(super) fn add(
        &self,
        link: &Arc<Link>,
        done: &Arc<Event>,
        deadline: Deadline,
        call: String,
    ) {
        let (link, done) = (link.clone(), done.clone());
        self.in_flight.lock().push_back(InFlight { link, done, deadline, call });
        watchdog::wake();
    }

    /// Whether something of a communicator is on its way.
    pub(super) fn holds(&self, link: &Link) -> bool {
        self.in_flight.lock().iter().any(|one| std::ptr::eq(&*one.link, link))
    }

    /// Forgets what is on its way of a communicator, which has failed; whether there was anything.
    pub(super) fn forget(&self, link: &Link) -> bool {
        let mut in_flight = self.in_flight.lock();
        let before = in_flight.len();
        let (gone, rest) =
            in_flight.drain(..).partition(|one: &InFlight| std::ptr::eq(&*one.link, link));
        *in_flight = rest;
        let lost = in_flight.len() < before;
        drop(in_flight);
        // The last handle of a communicator ends it, which may take its time.
        drop::<VecDeque<InFlight>>(gone);
        lost
    }

    /// Waits until nothing is on its way: NCCL makes and splits communicators while no collective runs.
    pub(super) fn drain(&self, deadline: &Deadline, doing: impl Fn() -> String) -> Result<()> {
        while self.look() {
            if deadline.has_passed() {
                return Err(deadline.error(format!("{} after other collectives", doing())));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Looks at what is on its way; whether there is anything. What has failed, or takes too long, aborts its
    /// group.
    pub(super) fn look(&self) -> bool {
        let mut done = Vec::new();
        let mut in_flight = self.in_flight.lock();
        let queried = loop {
            let Some(first) = in_flight.front() else { return false };
            match first.done.query() {
                Ok(true) => {
                    done.extend(in_flight.pop_front());
                    if let Some(next) = in_flight.front_mut() {
                        next.deadline = Deadline::after(next.deadline.limit());
                    }
                }
                Ok(false) => break Ok(first_calls(&in_flight)),
                // The device has failed; the thread that uses it will hear it, too.
                Err(error) => break Err((first.link.clone(), error)),
            }
        };
        drop(in_flight);
        match queried {
            Ok(calls) => {
                for (link, call, deadline) in calls {
                    if let Some(error) = link.find_failure(&call, deadline.as_ref()) {
                        link.fail(error);
                    }
                }
            }
            Err((link, error)) => link.fail(error),
        }
        true
    }
}

/// The first call of every communicator. The deadline counts for the first of all only: the others wait for it.
fn first_calls(in_flight: &VecDeque<InFlight>) -> Vec<(Arc<Link>, String, Option<Deadline>)> {
    let mut calls: Vec<(Arc<Link>, String, Option<Deadline>)> = Vec::new();
    for one in in_flight {
        if !calls.iter().any(|(link, ..)| Arc::ptr_eq(link, &one.link)) {
            let deadline = calls.is_empty().then_some(one.deadline);
            calls.push((one.link.clone(), one.call.clone(), deadline));
        }
    }
    calls
}
