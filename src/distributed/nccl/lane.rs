//! Streams of collectives, each with the list of what is on its way there. All groups of a process share one on
//! a GPU, on which their collectives come in one order, as NCCL wants it of all ranks. Messages between two
//! ranks have one of their own for each direction: in a ring every rank waits for its neighbour's, so
//! that none may wait for another of the same rank.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::link::Link;
use super::watchdog;
use crate::cuda::{Event, Priority, Stream};
use crate::distributed::Deadline;
use crate::distributed::reminder::Reminder;
use crate::error::Result;

/// How often a wait looks.
const LOOK: Duration = Duration::from_micros(100);

/// Collectives on a GPU that wait for one another.
#[derive(Debug)]
pub(super) struct Lane {
    /// Nobody else's: no collective waits for what another lane, or the program, has there.
    stream: Stream,
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
    /// Of the first in the lane.
    reminder: Reminder,
}

/// All lanes.
static LANES: Mutex<Vec<Weak<Lane>>> = Mutex::new(Vec::new());
/// The one of each device that groups share.
static SHARED: Mutex<Vec<Arc<Lane>>> = Mutex::new(Vec::new());
/// The streams of lanes that are gone.
static SPARE: Mutex<Vec<Stream>> = Mutex::new(Vec::new());

/// The lane of a device that all groups share.
pub(super) fn shared(device: usize) -> Result<Arc<Lane>> {
    let mut shared = SHARED.lock();
    if let Some(lane) = shared.iter().find(|lane| lane.stream.device() == device) {
        return Ok(lane.clone());
    }
    let lane = Lane::new(device)?;
    shared.push(lane.clone());
    Ok(lane)
}

/// Looks at all that is on its way on any device; whether there is anything.
pub(super) fn look_at_all() -> bool {
    let lanes: Vec<Arc<Lane>> = LANES.lock().iter().filter_map(Weak::upgrade).collect();
    lanes.iter().fold(false, |busy, lane| lane.look() | busy)
}

impl Lane {
    /// A lane of its own.
    pub(super) fn new(device: usize) -> Result<Arc<Lane>> {
        let spare = {
            let mut spare = SPARE.lock();
            let place = spare.iter().position(|stream| stream.device() == device);
            place.map(|place| spare.swap_remove(place))
        };
        let stream = spare.map_or_else(|| Stream::outside_pool(device, Priority::High), Ok)?;
        let lane = Arc::new(Lane { stream, in_flight: Mutex::default() });
        let mut lanes = LANES.lock();
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(Arc::downgrade(&lane));
        Ok(lane)
    }

    /// Its stream.
    pub(super) fn stream(&self) -> Stream {
        self.stream
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
        let reminder = Reminder::new();
        self.in_flight.lock().push_back(InFlight { link, done, deadline, call, reminder });
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

    /// Waits until what is on its way now is done: NCCL makes and splits communicators best while no
    /// collective runs. It cannot be kept from it: messages have lanes of their own, and other threads go on.
    pub(super) fn drain(&self, deadline: &Deadline, doing: impl Fn() -> String) -> Result<()> {
        let last = self.in_flight.lock().back().map(|one| one.done.clone());
        let Some(last) = last else { return Ok(()) };
        while self.in_flight.lock().iter().any(|one| Arc::ptr_eq(&one.done, &last)) {
            if deadline.has_passed() {
                return Err(deadline.error(format!("{} after other collectives", doing())));
            }
            self.look();
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
                Ok(false) => {
                    first.reminder.remind(|| first.link.waiting_in(&first.call, &first.deadline));
                    break Ok(first_calls(&in_flight));
                }
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

impl Drop for Lane {
    fn drop(&mut self) {
        SPARE.lock().push(self.stream);
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
