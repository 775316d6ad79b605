//! Host memory that copies still read: it is kept until a stream has done them.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::event::Event;
use super::stream::Stream;

/// What is kept, with the event after its last use; oldest first.
static KEPT: Mutex<VecDeque<(Event, Box<dyn Any + Send>)>> = Mutex::new(VecDeque::new());
/// Its length, readable without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Keeps `value` until the work that a stream has been given so far is done, and lets go of what is done.
/// Waits for the stream where no event can be had.
pub fn keep(stream: Stream, value: impl Any + Send) {
    match stream.record_event() {
        Ok(event) => {
            KEPT.lock().push_back((event, Box::new(value)));
            COUNT.fetch_add(1, Relaxed);
        }
        // A stream that fails is done with all memory.
        Err(_) => drop(stream.synchronize()),
    }
    poll();
}

/// Lets go of what streams are done with.
pub fn poll() {
    while COUNT.load(Relaxed) > 0 {
        let mut kept = KEPT.lock();
        // What failed is done, too.
        let done = kept.front().is_some_and(|(event, _)| event.query().unwrap_or(true));
        let Some(first) = done.then(|| kept.pop_front()).flatten() else { return };
        COUNT.fetch_sub(1, Relaxed);
        drop(kept);
        // Outside of the lock: what it is may keep other things.
        drop(first);
    }
}
