//! Events: marks in a stream's order of work that other streams, and the host, can wait for.

use crate::code::{Code, Result};
use crate::graph::capture::Point;
use crate::ipc::event::SharedEvent;
use crate::registry::{Handle, Registry};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// `CU_EVENT_DISABLE_TIMING`.
pub const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`.
pub const INTERPROCESS: u32 = 4;

/// All events that live.
pub static EVENTS: Registry<Event> = Registry::new();

/// An event, which is recorded any number of times.
#[derive(Debug)]
pub struct Event {
    /// The device of its context.
    pub device: usize,
    /// As `cuEventCreate` got them.
    pub flags: u32,
    /// Its state in memory that other processes map too.
    pub shared: Option<Arc<SharedEvent>>,
    /// The latest record.
    pub latest: Mutex<Recorded>,
}

/// What the latest record of an event was.
#[derive(Debug, Clone)]
pub enum Recorded {
    /// It was never recorded here.
    Never,
    /// In a stream that executes.
    Live(Arc<Mark>),
    /// In a stream under capture.
    Captured(Point),
}

/// One record of an event, done when the work before it is.
#[derive(Debug, Default)]
pub struct Mark {
    done: AtomicBool,
    /// Nanoseconds since the process's first mark.
    time: AtomicU64,
    /// The event's state between processes and this record's number there.
    shared: Option<(Arc<SharedEvent>, u64)>,
}

static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Mark {
    /// A record of an event between processes, by its number.
    pub fn shared(event: Arc<SharedEvent>, number: u64) -> Mark {
        Mark { shared: Some((event, number)), ..Mark::default() }
    }

    /// Whether the work before it is done.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
            || self.shared.as_ref().is_some_and(|(event, number)| event.is_done(*number))
    }

    /// Whether its event's maker has destroyed it before the work was done. CUDA does not say what becomes of a wait
    /// for it then.
    pub fn is_lost(&self) -> bool {
        self.shared.as_ref().is_some_and(|(event, _)| event.is_destroyed()) && !self.is_done()
    }

    /// Whether another process may be the one that completes it, so that nobody here is told.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Says that the work before it is done.
    pub fn complete(&self) {
        self.time.store(BEGIN.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.done.store(true, Ordering::Release);
        if let Some((event, number)) = &self.shared {
            event.complete(*number);
        }
    }

    /// When it was done, in nanoseconds.
    pub fn time(&self) -> u64 {
        self.time.load(Ordering::Relaxed)
    }
}

impl Event {
    /// A new event.
    pub fn new(device: usize, flags: u32, shared: Option<Arc<SharedEvent>>) -> Event {
        LazyLock::force(&BEGIN);
        Event { device, flags, shared, latest: Mutex::new(Recorded::Never) }
    }

    /// Begins a new record; the stream's work completes it.
    pub fn record(&self) -> Arc<Mark> {
        let mark = Arc::new(match &self.shared {
            Some(shared) => Mark::shared(shared.clone(), shared.record()),
            None => Mark::default(),
        });
        *self.latest.lock() = Recorded::Live(mark.clone());
        mark
    }

    /// The record that a wait which begins now waits for; with an event between processes that may be
    /// another process's.
    pub fn pending(&self) -> Recorded {
        match &self.shared {
            Some(shared) => match shared.recorded() {
                0 => Recorded::Never,
                number => Recorded::Live(Arc::new(Mark::shared(shared.clone(), number))),
            },
            None => self.latest.lock().clone(),
        }
    }
}

/// The event behind a handle; none of another process that has destroyed it.
pub fn get(handle: Handle) -> Result<Arc<Event>> {
    let event = EVENTS.get(handle)?;
    match &event.shared {
        Some(shared) if shared.is_destroyed() => Err(Code::INVALID_HANDLE),
        _ => Ok(event),
    }
}
