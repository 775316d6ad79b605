//! What streams still use after its owner has dropped it: host memory that copies read, memory of other
//! processes. It is kept until they are done with it.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::driver;
use crate::work::event::Event;
use crate::work::stream::Stream;

/// The events after the last uses, and what is kept until then.
type Kept = (SmallVec<[Event; 1]>, Box<dyn Any + Send>);

/// What is let go of at the next opportunity.
static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
/// Its length, readable without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// What a thread lets go of, because others wait for it.
static AWAITED: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
/// Whether there is that thread. Changed under the lock of what it looks after.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Keeps `value` until the work that a stream has been given so far is done, and lets go of what is done.
pub fn keep(stream: Stream, value: impl Any + Send) {
    if let Some(kept) = after(&[stream], Box::new(value)) {
        KEPT.lock().push(kept);
        COUNT.fetch_add(1, Relaxed);
    }
    poll();
}

/// Keeps `value` until the work that streams have been given so far is done. It is let go of then, and not only when
/// this process does something next.
pub fn release_after(streams: &[Stream], value: impl Any + Send) {
    let Some(kept) = after(streams, Box::new(value)) else { return };
    if is_over(&kept) {
        return drop(kept);
    }
    let mut awaited = AWAITED.lock();
    awaited.push(kept);
    if !WATCHED.swap(true, Relaxed) {
        let watch = thread::Builder::new().name("torchrs-release".to_owned()).spawn(watch);
        // Without the thread the next value tries again.
        WATCHED.store(watch.is_ok(), Relaxed);
    }
}

/// Lets go of what others wait for, until there is no more.
fn watch() {
    driver::relax_thread();
    let mut pause = Duration::from_micros(50);
    loop {
        let mut awaited = AWAITED.lock();
        let done: Vec<_> = awaited.extract_if(.., |kept| is_over(kept)).collect();
        if awaited.is_empty() {
            WATCHED.store(false, Relaxed);
            drop(awaited);
            return drop(done);
        }
        drop(awaited);
        drop(done);
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// A value with the events after the streams' work. Waits where no events can be had; where that fails, too, and the
/// device may go on, and for work that a graph repeats, the value stays for good.
fn after(streams: &[Stream], value: Box<dyn Any + Send>) -> Option<Kept> {
    let mut events = SmallVec::new();
    for &stream in streams {
        if stream.is_capturing().unwrap_or(true) {
            std::mem::forget(value);
            return None;
        }
        match stream.record_event() {
            Ok(event) => events.push(event),
            Err(_) if stream.finish().is_ok() || stream.has_failed() => {}
            Err(_) => {
                std::mem::forget(value);
                return None;
            }
        }
    }
    Some((events, value))
}

fn is_over((events, _): &Kept) -> bool {
    events.iter().all(Event::is_over)
}

/// Lets go of what streams are done with.
#[inline]
pub fn poll() {
    if COUNT.load(Relaxed) != 0 {
        let_go();
    }
}

#[cold]
fn let_go() {
    let done: Vec<_> = KEPT.lock().extract_if(.., |kept| is_over(kept)).collect();
    COUNT.fetch_sub(done.len(), Relaxed);
    // Outside of the lock: what it is may keep other things.
    drop(done);
}
