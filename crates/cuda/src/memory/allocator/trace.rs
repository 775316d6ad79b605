//! Recorded requests and frees of a program, as text and in memory.

use std::collections::HashMap;
use std::hash::Hash;

use super::chunks::ChunkId;
use torchrs_error::{Error, Result};

/// One step of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceEntry {
    /// A request for so many bytes by the stream of a number.
    Allocate {
        /// Bytes that were asked for.
        bytes: usize,
        /// Streams are numbered in the order in which they came.
        stream: u32,
    },
    /// What the request of this number got is freed; requests count from 0.
    Free(u32),
}

/// Requests and frees in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace(pub Vec<TraceEntry>);

impl Trace {
    /// A step per line: `+BYTES`, or `+BYTES@STREAM` for streams other than 0, and `-NUMBER` for a
    /// free.
    pub fn to_text(&self) -> String {
        let line = |entry: &TraceEntry| match entry {
            TraceEntry::Allocate { bytes, stream: 0 } => format!("+{bytes}\n"),
            TraceEntry::Allocate { bytes, stream } => format!("+{bytes}@{stream}\n"),
            TraceEntry::Free(number) => format!("-{number}\n"),
        };
        self.0.iter().map(line).collect()
    }

    /// Reads what [`Trace::to_text`] writes.
    ///
    /// # Errors
    /// [`Error::Other`] that names the line.
    pub fn from_text(text: &str) -> Result<Trace> {
        let entry = |line: &str| match line.split_at_checked(1)? {
            ("-", number) => number.parse().ok().map(TraceEntry::Free),
            ("+", rest) => {
                let (bytes, stream) = rest.split_once('@').unwrap_or((rest, "0"));
                let (bytes, stream) = (bytes.parse().ok()?, stream.parse().ok()?);
                Some(TraceEntry::Allocate { bytes, stream })
            }
            _ => None,
        };
        let wrong = |i: usize, line: &str| {
            Error::Other(format!("allocation trace, line {}: `{line}`", i + 1))
        };
        let lines = text.lines().enumerate();
        lines
            .map(|(i, line)| entry(line).ok_or_else(|| wrong(i, line)))
            .collect::<Result<_>>()
            .map(Trace)
    }
}

/// Notes a trace.
pub(super) struct Recorder<Stream> {
    entries: Vec<TraceEntry>,
    /// Numbers of the requests whose chunks are in use.
    numbers: HashMap<ChunkId, u32>,
    streams: HashMap<Stream, u32>,
    count: u32,
}

impl<Stream> Default for Recorder<Stream> {
    fn default() -> Self {
        let (numbers, streams) = (HashMap::new(), HashMap::new());
        Recorder { entries: Vec::new(), numbers, streams, count: 0 }
    }
}

impl<Stream: Copy + Eq + Hash> Recorder<Stream> {
    pub(super) fn allocate(&mut self, chunk: ChunkId, bytes: usize, stream: Stream) {
        let next = self.streams.len() as u32;
        let stream = *self.streams.entry(stream).or_insert(next);
        self.entries.push(TraceEntry::Allocate { bytes, stream });
        self.numbers.insert(chunk, self.count);
        self.count += 1;
    }

    /// Frees of what was there before the trace began are left out.
    pub(super) fn free(&mut self, chunk: ChunkId) {
        if let Some(number) = self.numbers.remove(&chunk) {
            self.entries.push(TraceEntry::Free(number));
        }
    }

    pub(super) fn finish(self) -> Trace {
        Trace(self.entries)
    }
}
