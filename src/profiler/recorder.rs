//! How spans are recorded: a flag that says whether to, and a track per thread with the spans that are
//! open and those that have ended. A track has a lock, since whoever stops the recording collects those
//! of all threads; else only its own thread takes it.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use parking_lot::Mutex;

use super::device::Mark;
use super::flops::Counting;
use super::modules::{self, Watch};
use super::options::ProfilerOptions;
use super::profile::{Category, Event, MemorySample, Profile, Thread};
use crate::cuda::{self, traffic, traffic::Traffic};
use crate::error::within::users_line;
use crate::storage::grace;
use crate::storage::host::taken_by_this_thread;
use crate::storage::living::{self, Maker, now_ns};
#[cfg(debug_assertions)]
use crate::storage::race::Scope;
use crate::storage::{Device, memory_stats};

/// Whether spans are recorded: all that an op looks at when they are not.
static ON: AtomicBool = AtomicBool::new(false);
/// Taken from start to stop.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// The number of the recording; what a track has of an older one is void.
static SESSION: AtomicU64 = AtomicU64::new(0);
/// When the recording began.
static STARTED: AtomicU64 = AtomicU64::new(0);
/// What the recording holds besides names and times.
static WANTED: Mutex<Option<Wanted>> = Mutex::new(None);
static SHAPES: AtomicBool = AtomicBool::new(false);
static MEMORY: AtomicBool = AtomicBool::new(false);
static LINES: AtomicBool = AtomicBool::new(false);
static MODULES: AtomicBool = AtomicBool::new(false);
static DEVICE: AtomicBool = AtomicBool::new(false);

/// What a recording asks others for.
struct Wanted {
    options: ProfilerOptions,
    _flops: Option<Counting>,
    _modules: Option<Watch>,
    _traffic: Option<traffic::Counting>,
}

/// All threads that recorded something.
static TRACKS: Mutex<Vec<Arc<Mutex<Track>>>> = Mutex::new(Vec::new());

thread_local! {
    static TRACK: Arc<Mutex<Track>> = {
        let track = Arc::new(Mutex::new(Track::of_this_thread()));
        TRACKS.lock().push(track.clone());
        track
    };
}

/// A span that lasts as long as this guard; what makes one says what it is.
///
/// ```
/// use torchrs::profiler::{self, Span};
/// let ((), profile) = profiler::profile(|| {
///     let span: Span = profiler::record_function("load");
///     drop(span);
/// });
/// assert_eq!(profile.events()[0].name, "load");
/// ```
pub struct Span {
    /// Number of the open span on this thread; 0 is none.
    id: u64,
    /// Of an op that memory waits for; see [`grace`].
    is_waited_for: bool,
    /// Of an op: what it uses, for debug builds.
    #[cfg(debug_assertions)]
    _scope: Option<Scope>,
    /// A span belongs to a thread.
    _not_send: PhantomData<*const ()>,
}

impl Span {
    #[inline(always)]
    fn new(id: u64) -> Self {
        Span {
            id,
            is_waited_for: false,
            #[cfg(debug_assertions)]
            _scope: None,
            _not_send: PhantomData,
        }
    }
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        if self.id != 0 {
            end(self.id);
        }
        if self.is_waited_for {
            grace::leave();
        }
    }
}

/// The span of an op.
#[inline(always)]
#[track_caller]
pub(crate) fn op(name: &'static str) -> Span {
    op_named(|| name)
}

/// The span of an op whose name has to be found out.
#[inline(always)]
#[track_caller]
pub(crate) fn op_named(name: impl Fn() -> &'static str) -> Span {
    op_with(name, || None)
}

/// The span of an op that tells its inputs' shapes.
#[inline(always)]
#[track_caller]
pub(crate) fn op_with(
    name: impl Fn() -> &'static str,
    shapes: impl Fn() -> Option<Vec<Vec<usize>>>,
) -> Span {
    #[cfg(debug_assertions)]
    let scope = Some(Scope::enter(&name));
    let id = if ON.load(Relaxed) {
        let shapes = if SHAPES.load(Relaxed) { shapes() } else { None };
        let about = About { shapes, at: Some(Location::caller()), ..About::default() };
        begin(Cow::Borrowed(name()), Category::Op, about)
    } else {
        0
    };
    Span {
        id,
        is_waited_for: grace::enter(),
        #[cfg(debug_assertions)]
        _scope: scope,
        _not_send: PhantomData,
    }
}

/// A span of another kind.
#[inline(always)]
pub(crate) fn span(name: impl Into<Cow<'static, str>>, category: Category) -> Span {
    Span::new(if ON.load(Relaxed) { begin(name.into(), category, About::default()) } else { 0 })
}

/// A span of something that moves that many bytes.
#[inline(always)]
pub(crate) fn span_of_bytes(name: &'static str, category: Category, bytes: usize) -> Span {
    let about = About { bytes: Some(bytes), ..About::default() };
    Span::new(if ON.load(Relaxed) { begin(name.into(), category, about) } else { 0 })
}

impl Span {
    /// Of a wait: the rank that came last.
    #[inline]
    pub(crate) fn waited_for(&self, rank: usize) {
        if self.id != 0 {
            let _ = TRACK.try_with(|track| {
                if let Some(span) = track.lock().open.iter_mut().rfind(|span| span.id == self.id) {
                    span.about.peer = Some(rank);
                }
            });
        }
    }
}

/// What is known of a span besides its name and times.
#[derive(Default)]
struct About {
    bytes: Option<usize>,
    shapes: Option<Vec<Vec<usize>>>,
    at: Option<&'static Location<'static>>,
    module: Option<Arc<str>>,
    peer: Option<usize>,
}

/// A span that has not ended.
struct Open {
    id: u64,
    name: Cow<'static, str>,
    category: Category,
    about: About,
    start_ns: u64,
    /// Bytes of the thread at its start, and what spans inside it took.
    memory: isize,
    inner_memory: isize,
    device: Option<Mark>,
    /// What spans inside it took.
    inner_ns: u64,
    flops: u64,
    /// What the thread asked of GPUs until its start, and in spans inside it.
    traffic: Traffic,
    inner_traffic: Traffic,
}

struct Track {
    session: u64,
    thread: Thread,
    last_id: u64,
    open: Vec<Open>,
    ended: Vec<Event>,
    /// The marks of those that have some: place in `ended`, begin and end.
    marks: Vec<(usize, Mark, Mark)>,
    memory: Vec<MemorySample>,
}

impl Track {
    fn of_this_thread() -> Self {
        let name = std::thread::current().name().unwrap_or("unnamed").to_owned();
        let thread = Thread { tid: nix::unistd::gettid().as_raw(), name };
        Track {
            session: 0,
            thread,
            last_id: 0,
            open: Vec::new(),
            ended: Vec::new(),
            marks: Vec::new(),
            memory: Vec::new(),
        }
    }

    /// Forgets what an older recording left.
    fn enter(&mut self, session: u64) {
        if self.session != session {
            self.session = session;
            self.open.clear();
            self.ended.clear();
            self.marks.clear();
            self.memory.clear();
        }
    }

    /// Ends the innermost span.
    fn close(&mut self, now: u64) {
        let Some(span) = self.open.pop() else { return };
        let duration_ns = now - span.start_ns;
        let memory = match MEMORY.load(Relaxed) {
            true => taken_by_this_thread() - span.memory,
            false => 0,
        };
        let traffic = traffic::of_this_thread() - span.traffic;
        if let Some(around) = self.open.last_mut() {
            around.inner_traffic = around.inner_traffic + traffic;
            around.inner_ns += duration_ns;
            around.inner_memory += memory;
        }
        if let Some(begin) = span.device
            && let Some(end) = Mark::of(begin.device())
        {
            self.marks.push((self.ended.len(), begin, end));
        }
        self.ended.push(Event {
            name: span.name,
            category: span.category,
            bytes: span.about.bytes,
            flops: span.flops,
            start_ns: span.start_ns,
            duration_ns,
            self_ns: duration_ns - span.inner_ns,
            depth: self.open.len(),
            thread: 0,
            shapes: span.about.shapes,
            memory,
            self_memory: memory - span.inner_memory,
            module: span.about.module,
            at: span.about.at,
            peer: span.about.peer,
            device_ns: None,
            self_device_ns: None,
            traffic: traffic - span.inner_traffic,
        });
        let bytes = memory_stats().in_use;
        if self.memory.last().is_none_or(|last| last.bytes != bytes) {
            self.memory.push(MemorySample { at_ns: now, bytes });
        }
    }
}

/// Opens a span on this thread: its number, or 0 for a part of one of the same name.
#[cold]
#[inline(never)]
fn begin(name: Cow<'static, str>, category: Category, mut about: About) -> u64 {
    about.at = about.at.filter(|_| LINES.load(Relaxed)).map(users_line);
    if MODULES.load(Relaxed) {
        about.module = modules::current();
    }
    // A thread that ends has no track any more.
    let opened = TRACK.try_with(|track| {
        let mut track = track.lock();
        track.enter(SESSION.load(SeqCst));
        if category == Category::Op && track.open.last().is_some_and(|top| top.name == name) {
            return 0;
        }
        track.last_id += 1;
        let id = track.last_id;
        let computes = matches!(category, Category::Op | Category::Backward | Category::Optimizer);
        let device = if computes && DEVICE.load(Relaxed) { Mark::here() } else { None };
        let memory = if MEMORY.load(Relaxed) { taken_by_this_thread() } else { 0 };
        track.open.push(Open {
            id,
            name,
            category,
            about,
            memory,
            inner_memory: 0,
            device,
            start_ns: now_ns(),
            inner_ns: 0,
            flops: 0,
            traffic: traffic::of_this_thread(),
            inner_traffic: Traffic::default(),
        });
        id
    });
    opened.unwrap_or(0)
}

/// Ends a span of this thread, and those inside it that are still open.
#[cold]
#[inline(never)]
fn end(id: u64) {
    let now = now_ns();
    let _ = TRACK.try_with(|track| {
        let mut track = track.lock();
        if track.session != SESSION.load(SeqCst) {
            return;
        }
        // Not there: it ended with the one around it.
        if let Some(place) = track.open.iter().rposition(|span| span.id == id) {
            while track.open.len() > place {
                track.close(now);
            }
        }
    });
}

/// The innermost span of this thread does so many floating-point operations.
pub(super) fn flops(count: u64) {
    if !ON.load(Relaxed) {
        return;
    }
    let _ = TRACK.try_with(|track| {
        let mut track = track.lock();
        if track.session == SESSION.load(SeqCst)
            && let Some(span) = track.open.last_mut()
        {
            span.flops += count;
        }
    });
}

/// Bytes of host tensors when the recording began.
static BASE: Mutex<usize> = Mutex::new(0);

/// Who makes a block of memory on this thread.
fn maker() -> Maker {
    let op = TRACK.try_with(|track| {
        let track = track.lock();
        let computes = |span: &&Open| {
            matches!(span.category, Category::Op | Category::Backward | Category::Optimizer)
        };
        track.open.iter().rfind(computes).map(|span| span.name.clone())
    });
    Maker { op: op.ok().flatten(), module: modules::current() }
}

/// Bytes of each device at the begin of the recording that made those changes.
fn bases(changes: &[living::Change]) -> Vec<(Device, usize)> {
    let mut bases = vec![(Device::Cpu, *BASE.lock())];
    for change in changes {
        let Device::Cuda(index) = change.device else { continue };
        if bases.iter().any(|(device, _)| *device == change.device) {
            continue;
        }
        // From what is there now, back over all changes.
        let mut bytes = cuda::memory::memory_allocated(index).unwrap_or(0);
        for change in changes.iter().rev().filter(|other| other.device == change.device) {
            bytes = match change.made {
                Some(_) => bytes.saturating_sub(change.bytes),
                None => bytes + change.bytes,
            };
        }
        bases.push((change.device, bytes));
    }
    bases
}

/// Starts a recording; false while there is one.
pub(super) fn start(options: ProfilerOptions) -> bool {
    if TAKEN.swap(true, SeqCst) {
        return false;
    }
    let switches = [
        (&SHAPES, options.record_shapes),
        (&MEMORY, options.profile_memory),
        (&LINES, options.with_stack),
        (&MODULES, options.with_modules),
        (&DEVICE, options.cuda),
    ];
    switches.iter().for_each(|(switch, on)| switch.store(*on, SeqCst));
    *WANTED.lock() = Some(Wanted {
        options,
        _flops: options.with_flops.then(Counting::new),
        _modules: options.with_modules.then(Watch::new),
        _traffic: options.with_traffic.then(traffic::Counting::start),
    });
    if options.profile_memory {
        *BASE.lock() = memory_stats().in_use;
        living::watch(maker);
    }
    SESSION.fetch_add(1, SeqCst);
    STARTED.store(now_ns(), SeqCst);
    ON.store(true, SeqCst);
    true
}

/// Ends the recording.
pub(super) fn stop() -> Profile {
    ON.store(false, SeqCst);
    let (start_ns, end_ns) = (STARTED.load(SeqCst), now_ns());
    let session = SESSION.load(SeqCst);
    let (mut threads, mut events, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    let mut tracks = TRACKS.lock();
    for track in tracks.iter() {
        let mut track = track.lock();
        if track.session != session || track.ended.is_empty() {
            continue;
        }
        let thread = threads.len();
        threads.push(track.thread.clone());
        for (place, begin, end) in std::mem::take(&mut track.marks) {
            track.ended[place].device_ns = begin.until(&end);
        }
        events.extend(track.ended.drain(..).map(|event| Event { thread, ..event }));
        memory.append(&mut track.memory);
        // Spans that are open now end outside of any recording.
        track.session = 0;
    }
    tracks.retain(|track| Arc::strong_count(track) > 1);
    drop(tracks);
    let calls = traffic::by_name();
    let options = WANTED.lock().take().map(|wanted| wanted.options).unwrap_or_default();
    let changes = if options.profile_memory { living::unwatch() } else { Vec::new() };
    let bases = bases(&changes);
    TAKEN.store(false, SeqCst);
    let profile = Profile::new(threads, events, memory, start_ns..end_ns, options);
    let mut profile = profile.with_changes(changes, bases);
    if options.with_traffic {
        profile = profile.with_calls(calls);
    }
    profile.find_self_device_times();
    profile
}
