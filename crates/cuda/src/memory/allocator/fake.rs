//! A source of memory and events for tests: addresses without memory, and streams whose work is
//! done when the test says so.

use std::collections::BTreeMap;
use std::ops::Range;

use parking_lot::Mutex;

use super::source::{EventSource, MemorySource};
use torchrs_error::Result;

/// A mark after so many steps of a stream.
pub(crate) struct FakeEvent {
    stream: u8,
    step: u64,
}

#[derive(Default)]
struct State {
    segments: BTreeMap<u64, usize>,
    next: u64,
    /// Steps enqueued and done per stream.
    enqueued: BTreeMap<u8, u64>,
    done: BTreeMap<u8, u64>,
    capturing: Option<u8>,
    /// Calls that may not happen during a capture.
    forbidden: usize,
    releases: usize,
}

/// The source.
pub(crate) struct Fake {
    capacity: usize,
    state: Mutex<State>,
}

impl Fake {
    pub(crate) fn new(capacity: usize) -> Fake {
        // Segments lie apart from each other, so that chunks of two can never be joined.
        let state = State { next: 1 << 20, ..State::default() };
        Fake { capacity, state: Mutex::new(state) }
    }

    /// All work of a stream so far is done.
    pub(crate) fn finish(&self, stream: u8) {
        let mut state = self.state.lock();
        let steps = state.enqueued.get(&stream).copied().unwrap_or(0);
        state.done.insert(stream, steps);
    }

    /// The stream's work is recorded from now on, or nobody's.
    pub(crate) fn capture(&self, stream: Option<u8>) {
        self.state.lock().capturing = stream;
    }

    /// How often something was called that a capture forbids.
    pub(crate) fn forbidden(&self) -> usize {
        self.state.lock().forbidden
    }

    /// How many segments were given back.
    pub(crate) fn releases(&self) -> usize {
        self.state.lock().releases
    }

    /// Segments that have not been given back.
    pub(crate) fn segments(&self) -> Vec<Range<u64>> {
        self.state.lock().segments.iter().map(|(&at, &size)| at..at + size as u64).collect()
    }
}

impl MemorySource for Fake {
    fn reserve(&self, bytes: usize) -> Result<Option<u64>> {
        let mut state = self.state.lock();
        if state.segments.values().sum::<usize>() + bytes > self.capacity {
            return Ok(None);
        }
        let address = state.next;
        state.next += (bytes + (1 << 20)) as u64;
        state.segments.insert(address, bytes);
        Ok(Some(address))
    }

    fn release(&self, address: u64) -> Result<()> {
        let mut state = self.state.lock();
        state.forbidden += usize::from(state.capturing.is_some());
        state.releases += 1;
        assert!(state.segments.remove(&address).is_some(), "no segment begins at {address:#x}");
        Ok(())
    }

    fn info(&self) -> Result<(usize, usize)> {
        let used: usize = self.state.lock().segments.values().sum();
        Ok((self.capacity - used, self.capacity))
    }

    fn name(&self) -> String {
        "fake:0".into()
    }
}

impl EventSource for Fake {
    type Stream = u8;
    type Event = FakeEvent;

    fn record(&self, stream: u8) -> Result<FakeEvent> {
        let mut state = self.state.lock();
        state.forbidden += usize::from(state.capturing.is_some());
        let step = state.enqueued.entry(stream).or_default();
        *step += 1;
        Ok(FakeEvent { stream, step: *step })
    }

    fn is_reached(&self, event: &FakeEvent) -> Result<bool> {
        let mut state = self.state.lock();
        state.forbidden += usize::from(state.capturing.is_some());
        Ok(state.done.get(&event.stream).is_some_and(|&done| done >= event.step))
    }

    fn wait(&self, event: &FakeEvent) -> Result<()> {
        self.finish(event.stream);
        Ok(())
    }

    fn is_capturing(&self, stream: u8) -> Result<bool> {
        Ok(self.state.lock().capturing == Some(stream))
    }
}
