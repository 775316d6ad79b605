//! What was recorded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use super::options::ProfilerOptions;
use crate::cuda::traffic::Traffic;
use crate::storage::Device;
use crate::storage::living::Change;

/// What kind of thing a span is.
///
/// ```
/// use torchrs::{Tensor, profiler::{self, Category}};
/// let x = Tensor::from([2f32]).requires_grad_(true);
/// let ((), profile) = profiler::profile(|| x.exp().backward());
/// let exp = |category| profile.events().iter().any(|e| e.name == "exp" && e.category == category);
/// assert!(exp(Category::Op) && exp(Category::Backward) && !exp(Category::User));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Category {
    /// A tensor operation.
    Op,
    /// A backward pass, or the backward of one op.
    Backward,
    /// A collective, or a wait for one.
    Communication,
    /// A step of an optimizer.
    Optimizer,
    /// The wait for a batch.
    Data,
    /// [`record_function`](super::record_function).
    User,
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Category::Op => "op",
            Category::Backward => "backward",
            Category::Communication => "communication",
            Category::Optimizer => "optimizer",
            Category::Data => "data",
            Category::User => "user",
        })
    }
}

/// A span that was recorded.
///
/// ```
/// use torchrs::profiler::{self, Event};
/// let ((), profile) = profiler::profile(|| {
///     let _outer = profiler::record_function("outer");
///     let _inner = profiler::record_function("inner");
/// });
/// let [outer, inner]: &[Event; 2] = profile.events().try_into().unwrap();
/// assert_eq!((outer.depth, inner.depth), (0, 1));
/// assert_eq!(outer.self_ns, outer.duration_ns - inner.duration_ns);
/// assert!(outer.start_ns <= inner.start_ns && inner.end_ns() <= outer.end_ns());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The op, the node's op, the collective, or the user's name.
    pub name: Cow<'static, str>,
    /// What it is.
    pub category: Category,
    /// Of a collective: the bytes that this rank gives or gets.
    pub bytes: Option<usize>,
    /// Floating-point operations in it, without those of spans inside it; 0 where they are not counted.
    pub flops: u64,
    /// When it began, in nanoseconds of `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// How long it was.
    pub duration_ns: u64,
    /// The same without the spans directly inside it.
    pub self_ns: u64,
    /// How many spans of its thread were open around it.
    pub depth: usize,
    /// Its thread's place in [`Profile::threads`].
    pub thread: usize,
    /// Shapes of an op's inputs, where they are recorded and the op tells them; those of a collective never.
    pub shapes: Option<Vec<Vec<usize>>>,
    /// Bytes of host memory that its thread took in it less those that it gave back, where they are recorded.
    pub memory: isize,
    /// The same without the spans directly inside it.
    pub self_memory: isize,
    /// The path of the module that computes, where they are recorded. Of a node of backward: the module whose
    /// forward made it.
    pub module: Option<Arc<str>>,
    /// The user's line, where lines are recorded.
    pub at: Option<&'static Location<'static>>,
    /// Of a wait for other ranks: the one that came last.
    pub peer: Option<usize>,
    /// Nanoseconds of the current stream between its begin and its end, where a GPU's times are recorded.
    pub device_ns: Option<u64>,
    /// The same without the spans directly inside it.
    pub self_device_ns: Option<u64>,
    /// What its thread asked of GPUs in it, without the spans inside it, where that is counted.
    pub traffic: Traffic,
}

impl Event {
    /// When it ended.
    pub fn end_ns(&self) -> u64 {
        self.start_ns + self.duration_ns
    }
}

/// Bytes in tensors at a time, as [`memory_stats`](crate::storage::memory_stats) has them.
///
/// ```
/// use torchrs::{Dtype, Tensor, profiler};
/// let (x, profile) = profiler::profile(|| Tensor::ones([1 << 18], Dtype::F32) * 2.0);
/// assert!(profile.memory().iter().any(|sample| sample.bytes >= 4 * x.numel()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySample {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Bytes in use.
    pub bytes: usize,
}

/// A thread that recorded something.
///
/// ```
/// use torchrs::profiler;
/// let ((), profile) = profiler::profile(|| {
///     let named = std::thread::Builder::new().name("loader".into());
///     named.spawn(|| drop(profiler::record_function("load"))).unwrap().join().unwrap();
/// });
/// assert_eq!(profile.threads()[0].name, "loader");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// The system's number for it.
    pub tid: i32,
    /// Its name.
    pub name: String,
}

/// What a recording found; see [`profile`](super::profile).
///
/// ```
/// use torchrs::{Tensor, profiler::{self, Profile}};
/// let (_, profile): (_, Profile) = profiler::profile(|| Tensor::from([1f32]) + 1.0);
/// assert_eq!(profile.events()[0].name, "add");
/// ```
#[derive(Debug, Clone)]
pub struct Profile {
    threads: Vec<Thread>,
    events: Vec<Event>,
    memory: Vec<MemorySample>,
    time: Range<u64>,
    options: ProfilerOptions,
    /// Blocks of memory that were made and freed, where that is recorded.
    changes: Arc<Vec<Change>>,
    /// Bytes of each device when the recording began.
    bases: Vec<(Device, usize)>,
    /// What GPUs were asked to do, by the name of the call.
    calls: BTreeMap<String, Traffic>,
}

impl Profile {
    pub(super) fn new(
        threads: Vec<Thread>,
        mut events: Vec<Event>,
        mut memory: Vec<MemorySample>,
        time: Range<u64>,
        options: ProfilerOptions,
    ) -> Self {
        let (changes, bases) = (Arc::default(), Vec::new());
        events.sort_by_key(|e| (e.thread, e.start_ns, e.depth));
        memory.sort_by_key(|sample| sample.at_ns);
        let calls = BTreeMap::new();
        Profile { threads, events, memory, time, options, changes, bases, calls }
    }

    /// What GPUs were asked to do, by the name of the kernel, the copy or the library's call, where
    /// [`ProfilerOptions::with_traffic`] says so.
    pub fn device_calls(&self) -> &BTreeMap<String, Traffic> {
        &self.calls
    }

    pub(super) fn with_calls(self, calls: BTreeMap<String, Traffic>) -> Self {
        Profile { calls, ..self }
    }

    /// What was to be recorded.
    pub fn options(&self) -> ProfilerOptions {
        self.options
    }

    /// All spans, thread by thread, in the order in which they began: a span comes right before those
    /// inside it.
    ///
    /// ```
    /// use torchrs::{Tensor, profiler};
    /// let x = Tensor::from([1f32]);
    /// let (_, profile) = profiler::profile(|| x.exp().sin());
    /// let names: Vec<_> = profile.events().iter().map(|e| &*e.name).collect();
    /// assert_eq!(names, ["exp", "sin"]);
    /// ```
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// With the blocks of memory that were made and freed.
    pub(super) fn with_changes(
        mut self,
        changes: Vec<Change>,
        bases: Vec<(Device, usize)>,
    ) -> Self {
        (self.changes, self.bases) = (Arc::new(changes), bases);
        self
    }

    pub(super) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Bytes of a device when the recording began.
    pub(super) fn base(&self, device: Device) -> usize {
        self.bases.iter().find(|(of, _)| *of == device).map_or(0, |(_, bytes)| *bytes)
    }

    pub(super) fn events_mut(&mut self) -> &mut [Event] {
        &mut self.events
    }

    /// The threads that recorded something.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Bytes in tensors, whenever they had changed at the end of a span. Memory that processes share is
    /// not counted.
    pub fn memory(&self) -> &[MemorySample] {
        &self.memory
    }

    /// From start to stop, in nanoseconds of `CLOCK_MONOTONIC`.
    pub fn time(&self) -> Range<u64> {
        self.time.clone()
    }
}
