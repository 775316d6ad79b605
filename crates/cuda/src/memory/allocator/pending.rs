//! Chunks that were freed while other streams may still use them.

use std::collections::{BTreeMap, VecDeque};

use super::chunks::ChunkId;
use super::source::EventSource;
use torchrs_error::Result;

/// Events that freed chunks wait for, per stream in order of recording, so that looking can stop
/// at the first that has not been reached.
pub(super) struct Pending<S: EventSource> {
    events: BTreeMap<S::Stream, VecDeque<(S::Event, ChunkId)>>,
    /// Chunks that were freed during a capture, whose events are recorded after it.
    deferred: Vec<ChunkId>,
}

impl<S: EventSource> Pending<S> {
    pub(super) fn new() -> Self {
        Pending { events: BTreeMap::new(), deferred: Vec::new() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.deferred.is_empty()
    }

    /// A chunk waits for an event.
    pub(super) fn push(&mut self, stream: S::Stream, event: S::Event, chunk: ChunkId) {
        self.events.entry(stream).or_default().push_back((event, chunk));
    }

    /// A chunk waits for the end of the capture.
    pub(super) fn defer(&mut self, chunk: ChunkId) {
        self.deferred.push(chunk);
    }

    /// Chunks whose events can be recorded now that no capture is under way.
    pub(super) fn take_deferred(&mut self) -> Vec<ChunkId> {
        std::mem::take(&mut self.deferred)
    }

    /// Calls `reached` for every event that has been reached.
    pub(super) fn poll(&mut self, source: &S, mut reached: impl FnMut(ChunkId)) -> Result<()> {
        let mut outcome = Ok(());
        self.events.retain(|_, queue| {
            while outcome.is_ok()
                && let Some((event, chunk)) = queue.front()
            {
                match source.is_reached(event) {
                    Ok(true) => {
                        reached(*chunk);
                        queue.pop_front();
                    }
                    Ok(false) => break,
                    Err(error) => outcome = Err(error),
                }
            }
            !queue.is_empty()
        });
        outcome
    }

    /// Waits for every event and calls `reached` for it.
    pub(super) fn wait(&mut self, source: &S, mut reached: impl FnMut(ChunkId)) -> Result<()> {
        for queue in self.events.values_mut() {
            while let Some((event, chunk)) = queue.front() {
                source.wait(event)?;
                reached(*chunk);
                queue.pop_front();
            }
        }
        self.events.clear();
        Ok(())
    }
}
