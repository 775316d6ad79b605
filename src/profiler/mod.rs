//! Where the time of a program goes (`torch.profiler`): spans of ops, of the nodes of backward, of
//! collectives and of the user's own making, on a track per thread; the bytes that tensors hold; a table
//! of averages, and a trace that Perfetto and `chrome://tracing` show.
//!
//! Knows nothing of `tensor`, `autograd` and `ops`, which tell it when they begin and end.
//!
//! ```
//! use torchrs::{Dtype, Tensor, profiler};
//! let w = Tensor::randn([64, 64], Dtype::F32).requires_grad_(true);
//! let (loss, profile) = profiler::profile(|| {
//!     let _span = profiler::record_function("step");
//!     let loss = w.matmul(&w).tanh().sum();
//!     loss.backward();
//!     loss
//! });
//! let averages = profile.key_averages();
//! assert_eq!(averages.calls("tanh"), Some(1));
//! println!("{averages}");
//! # let folder = std::env::temp_dir().join(format!("profiler-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder).unwrap();
//! profile.export_chrome_trace(folder.join("trace.json"))?;
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # assert!(loss.item().is_finite());
//! # Ok::<(), torchrs::Error>(())
//! ```
//!
//! # What has a span
//!
//! | category | spans |
//! | --- | --- |
//! | [`Op`](Category::Op) | every pointwise row; every op that `autocast` knows (products of matrices, convolutions, norms, losses, reductions); every kernel that names itself where it picks its type (pooling, batch norm, dropout, recurrent nets); joining, gathering, filling and copying; views |
//! | [`Backward`](Category::Backward) | a pass, `backward` or `grad`, and in it every node by its op's name |
//! | [`Communication`](Category::Communication) | every collective, on the thread that runs it: the communication thread for those in the background, such as DistributedDataParallel's buckets; inside it each wait for peers; the wait at the end of backward |
//! | [`Optimizer`](Category::Optimizer) | `step`, by the optimizer's name |
//! | [`Data`](Category::Data) | the wait for a `DataLoader`'s next batch |
//! | [`User`](Category::User) | [`record_function`] |
//!
//! An op that only calls others has the spans of those; so have a few that write to places named by an index
//! (`scatter`, `index_add`). An op's span inside one of the same name is part of that. The helper threads
//! of a parallel loop have no track: the op's span lasts until they are through. Loader workers are processes
//! of their own, which are not recorded.
//!
//! # What it costs
//!
//! Off: a load and a branch per span. On: two looks at the clock and a lock that nobody else holds, about
//! 0.15 us per span. Memory that ranks share (gradient buckets) is not in the counter of allocated bytes.
//!
//! # Several ranks
//!
//! Times are those of `CLOCK_MONOTONIC`, which all processes of a host share: [`merge_chrome_traces`] puts
//! the ranks' files under each other, on one time axis.

mod auto;
mod averages;
mod bottleneck;
mod chrome;
mod device;
mod flops;
mod memory;
pub(crate) mod modules;
pub(crate) mod notes;
mod options;
mod overlap;
mod phase;
mod profile;
mod ranks;
mod recorder;
mod schedule;
pub(crate) mod text;

use std::borrow::Cow;

pub use crate::cuda::traffic::Traffic;
pub(crate) use auto::{announce, step_ended};
pub use averages::{GroupBy, KeyAverages, KeyRow, SortBy};
pub use bottleneck::{Bottleneck, Part, PartKind};
pub use chrome::merge_chrome_traces;
pub(crate) use flops::flops;
pub use flops::{FlopCounter, FlopCounts};
pub use memory::{MemoryPeak, MemoryTimeline};
pub use options::ProfilerOptions;
pub use overlap::Overlap;
pub(crate) use phase::Phase;
pub use profile::{Category, Event, MemorySample, Profile, Thread};
pub use ranks::JobBottleneck;
pub use recorder::Span;
pub(crate) use recorder::{op, op_named, op_with, span, span_of_bytes};
pub use schedule::{Action, Schedule, ScheduledProfiler, schedule};

use crate::error::{Error, throw};

/// The span of a backward pass.
pub(crate) const BACKWARD: &str = "backward";
/// The span of an all-reduce of one of DistributedDataParallel's buckets.
pub(crate) const BUCKET: &str = "all_reduce_bucket";
/// The span of a wait for other ranks inside a collective.
pub(crate) const WAIT: &str = "wait_for_peers";
/// The span of what DistributedDataParallel does when backward has made all gradients.
pub(crate) const END_OF_BACKWARD: &str = "DistributedDataParallel.end_of_backward";

/// Records what this process does while `f` runs, on all its threads.
///
/// ```
/// use torchrs::{Tensor, profiler};
/// let (sum, profile) = profiler::profile(|| (Tensor::from([1f32, 2.]) + 1.0).sum().item());
/// assert_eq!(sum, 5.0);
/// let names: Vec<&str> = profile.events().iter().map(|event| &*event.name).collect();
/// assert!(names.contains(&"add") && names.contains(&"sum"));
/// ```
///
/// # Panics
/// As [`Profiler::start`]. A panic of `f` ends the recording and goes on.
#[track_caller]
pub fn profile<T>(f: impl FnOnce() -> T) -> (T, Profile) {
    profile_with(ProfilerOptions::default(), f)
}

/// [`profile`] with more than names and times (the arguments of `torch.profiler.profile`).
///
/// # Panics
/// As [`profile`].
#[track_caller]
pub fn profile_with<T>(options: ProfilerOptions, f: impl FnOnce() -> T) -> (T, Profile) {
    let profiler = Profiler::with(options);
    let result = f();
    (result, profiler.stop())
}

/// A recording that runs; dropped without [`stop`](Self::stop), it is thrown away.
///
/// ```
/// use torchrs::{Tensor, profiler::Profiler};
/// let profiler = Profiler::start();
/// Tensor::from([4f32]).sqrt();
/// let profile = profiler.stop();
/// assert_eq!(profile.key_averages().calls("sqrt"), Some(1));
/// ```
#[must_use = "recording ends when it is dropped"]
pub struct Profiler(());

impl Profiler {
    /// Starts to record all threads of this process.
    ///
    /// ```
    /// use torchrs::{catch, profiler::Profiler};
    /// let profiler = Profiler::start();
    /// assert!(catch(|| Profiler::start().stop()).is_err()); // one at a time
    /// drop(profiler);
    /// Profiler::start().stop();
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Other`] while another recording runs: there is one at a time.
    #[track_caller]
    pub fn start() -> Self {
        Self::with(ProfilerOptions::default())
    }

    /// [`start`](Self::start) with more than names and times.
    ///
    /// # Panics
    /// As that.
    #[track_caller]
    pub fn with(options: ProfilerOptions) -> Self {
        if !recorder::start(options) {
            throw(Error::Other(
                "Profiler::start: a recording is running in this process; stop that one first"
                    .into(),
            ));
        }
        Profiler(())
    }

    /// Ends the recording. Spans that are still open are not in it.
    ///
    /// ```
    /// use torchrs::profiler::{Profiler, record_function};
    /// let profiler = Profiler::start();
    /// let open = record_function("open");
    /// drop(record_function("closed"));
    /// let profile = profiler.stop();
    /// drop(open);
    /// assert_eq!(profile.events().iter().map(|e| &*e.name).collect::<Vec<_>>(), ["closed"]);
    /// ```
    pub fn stop(self) -> Profile {
        let profile = recorder::stop();
        std::mem::forget(self);
        profile
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        recorder::stop();
    }
}

/// A span of the user's own, from here to the guard's end (`torch.profiler.record_function`). Costs a
/// branch while nothing is recorded.
///
/// ```
/// use torchrs::{Tensor, profiler};
/// let ((), profile) = profiler::profile(|| {
///     let _epoch = profiler::record_function("epoch");
///     for i in 0..3 {
///         let _step = profiler::record_function(format!("step {i}"));
///         Tensor::from([1f32]).exp();
///     }
/// });
/// let averages = profile.key_averages();
/// let calls = ["epoch", "step 2", "exp"].map(|name| averages.calls(name));
/// assert_eq!(calls, [Some(1), Some(1), Some(3)]);
/// ```
#[must_use = "the span ends when the guard is dropped"]
pub fn record_function(name: impl Into<Cow<'static, str>>) -> Span {
    recorder::span(name, Category::User)
}
