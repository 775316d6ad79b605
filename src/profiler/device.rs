//! Marks in a GPU's stream at the begin and the end of spans, and the times between them.

use super::profile::Profile;
use crate::cuda::{Event, EventOptions, Stream, device, graph, is_available};

/// A mark in a stream.
pub(super) struct Mark(Event);

impl Mark {
    /// In the current stream of this thread's current GPU, if there is one.
    pub fn here() -> Option<Mark> {
        if is_available() { Mark::of(device::current()) } else { None }
    }

    /// In the current stream of that GPU. None while a graph is captured, and where the GPU has failed, which the
    /// program will see by itself.
    pub fn of(device: usize) -> Option<Mark> {
        if graph::is_current_stream_capturing(device).unwrap_or(true) {
            return None;
        }
        let event = Event::new(device, EventOptions { timing: true, ..Default::default() }).ok()?;
        event.record(Stream::current(device).ok()?).ok()?;
        Some(Mark(event))
    }

    pub fn device(&self) -> usize {
        self.0.device()
    }

    /// Nanoseconds from this mark to a later one. Waits for that.
    pub fn until(&self, later: &Mark) -> Option<u64> {
        later.0.synchronize().ok()?;
        let ms = self.0.elapsed_ms(&later.0).ok()?;
        Some((f64::from(ms) * 1e6) as u64)
    }
}

impl Profile {
    /// From the times of spans those without the spans inside them.
    pub(super) fn find_self_device_times(&mut self) {
        let events = self.events_mut();
        let mut open: Vec<usize> = Vec::new();
        for i in 0..events.len() {
            let (thread, depth) = (events[i].thread, events[i].depth);
            let around = |o: &usize| events[*o].thread == thread && events[*o].depth < depth;
            while open.last().is_some_and(|last| !around(last)) {
                open.pop();
            }
            let own = events[i].device_ns;
            events[i].self_device_ns = own;
            let outer = open.iter().rev().find(|o| events[**o].device_ns.is_some()).copied();
            if let (Some(outer), Some(own)) = (outer, own) {
                let left = &mut events[outer].self_device_ns;
                *left = left.map(|left| left.saturating_sub(own));
            }
            open.push(i);
        }
    }
}
