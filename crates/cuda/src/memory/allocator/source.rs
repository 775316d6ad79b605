//! Where the allocator's memory and events come from.

use std::fmt::Debug;
use std::hash::Hash;

use torchrs_error::Result;

/// A source of segments.
pub trait MemorySource {
    /// Reserves memory; `None` where there is not enough.
    ///
    /// # Errors
    /// Whatever else went wrong.
    fn reserve(&self, bytes: usize) -> Result<Option<u64>>;

    /// Gives a segment back.
    ///
    /// # Errors
    /// Where the source refuses.
    fn release(&self, address: u64) -> Result<()>;

    /// Free and total bytes, of all users of the source.
    ///
    /// # Errors
    /// Where the source does not tell.
    fn info(&self) -> Result<(usize, usize)>;

    /// What messages call the source.
    fn name(&self) -> String;
}

/// A source of events on streams.
pub trait EventSource {
    /// A stream.
    type Stream: Copy + Ord + Hash + Debug + Send;
    /// A mark in a stream.
    type Event: Send;

    /// An event that is reached when the stream's work so far is done.
    ///
    /// # Errors
    /// Where the source refuses.
    fn record(&self, stream: Self::Stream) -> Result<Self::Event>;

    /// Whether it has been reached.
    ///
    /// # Errors
    /// What went wrong in the work before it.
    fn is_reached(&self, event: &Self::Event) -> Result<bool>;

    /// Waits until it is reached.
    ///
    /// # Errors
    /// What went wrong in the work before it.
    fn wait(&self, event: &Self::Event) -> Result<()>;

    /// Whether the stream's work is being captured. Asked only while a capture is under way.
    ///
    /// # Errors
    /// Where the source does not tell.
    fn is_capturing(&self, stream: Self::Stream) -> Result<bool>;

    /// Nobody uses a chunk any more: the source may write to it, as work of the stream.
    fn retired(&self, _address: u64, _bytes: usize, _stream: Self::Stream) {}
}

/// Both.
pub trait Source: MemorySource + EventSource {}

impl<S: MemorySource + EventSource> Source for S {}
