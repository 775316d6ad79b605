//! How spans are recorded: a flag that says whether to, and a track per thread with the spans that are
//! open and those that have ended. A track has a lock, since whoever stops the recording collects those
//! of all threads; else only its own thread takes it.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use parking_lot::Mutex;

use super::profile::{Category, Event, MemorySample, Profile, Thread};
use crate::storage::memory_stats;
#[cfg(debug_assertions)]
use crate::storage::race::Scope;

/// Whether spans are recorded: all that an op looks at when they are not.
static ON: AtomicBool = AtomicBool::new(false);
/// Taken from start to stop.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// The number of the recording; what a track has of an older one is void.
static SESSION: AtomicU64 = AtomicU64::new(0);
/// When the recording began.
static STARTED: AtomicU64 = AtomicU64::new(0);
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
    }
}

/// The span of an op.
#[inline(always)]
#[cfg_attr(debug_assertions, track_caller)]
pub(crate) fn op(name: &'static str) -> Span {
    op_named(|| name)
}

/// The span of an op whose name has to be found out.
#[inline(always)]
#[cfg_attr(debug_assertions, track_caller)]
pub(crate) fn op_named(name: impl Fn() -> &'static str) -> Span {
    #[cfg(debug_assertions)]
    let scope = Some(Scope::enter(&name));
    let id = if ON.load(Relaxed) { begin(Cow::Borrowed(name()), Category::Op, None) } else { 0 };
    Span {
        id,
        #[cfg(debug_assertions)]
        _scope: scope,
        _not_send: PhantomData,
    }
}

/// A span of another kind.
#[inline(always)]
pub(crate) fn span(name: impl Into<Cow<'static, str>>, category: Category) -> Span {
    Span::new(if ON.load(Relaxed) { begin(name.into(), category, None) } else { 0 })
}

/// A span of something that moves that many bytes.
#[inline(always)]
pub(crate) fn span_of_bytes(name: &'static str, category: Category, bytes: usize) -> Span {
    Span::new(if ON.load(Relaxed) { begin(name.into(), category, Some(bytes)) } else { 0 })
}

/// A span that has not ended.
struct Open {
    id: u64,
    name: Cow<'static, str>,
    category: Category,
    bytes: Option<usize>,
    start_ns: u64,
    /// What spans inside it took.
    inner_ns: u64,
    flops: u64,
}

struct Track {
    session: u64,
    thread: Thread,
    last_id: u64,
    open: Vec<Open>,
    ended: Vec<Event>,
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
            memory: Vec::new(),
        }
    }

    /// Forgets what an older recording left.
    fn enter(&mut self, session: u64) {
        if self.session != session {
            self.session = session;
            self.open.clear();
            self.ended.clear();
            self.memory.clear();
        }
    }

    /// Ends the innermost span.
    fn close(&mut self, now: u64) {
        let Some(span) = self.open.pop() else { return };
        let duration_ns = now - span.start_ns;
        if let Some(around) = self.open.last_mut() {
            around.inner_ns += duration_ns;
        }
        self.ended.push(Event {
            name: span.name,
            category: span.category,
            bytes: span.bytes,
            flops: span.flops,
            start_ns: span.start_ns,
            duration_ns,
            self_ns: duration_ns - span.inner_ns,
            depth: self.open.len(),
            thread: 0,
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
fn begin(name: Cow<'static, str>, category: Category, bytes: Option<usize>) -> u64 {
    // A thread that ends has no track any more.
    let opened = TRACK.try_with(|track| {
        let mut track = track.lock();
        track.enter(SESSION.load(SeqCst));
        if category == Category::Op && track.open.last().is_some_and(|top| top.name == name) {
            return 0;
        }
        track.last_id += 1;
        let id = track.last_id;
        track.open.push(Open {
            id,
            name,
            category,
            bytes,
            start_ns: now_ns(),
            inner_ns: 0,
            flops: 0,
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

/// Starts a recording; false while there is one.
pub(super) fn start() -> bool {
    if TAKEN.swap(true, SeqCst) {
        return false;
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
        events.extend(track.ended.drain(..).map(|event| Event { thread, ..event }));
        memory.append(&mut track.memory);
        // Spans that are open now end outside of any recording.
        track.session = 0;
    }
    tracks.retain(|track| Arc::strong_count(track) > 1);
    drop(tracks);
    TAKEN.store(false, SeqCst);
    Profile::new(threads, events, memory, start_ns..end_ns)
}

/// `CLOCK_MONOTONIC`: the same for all processes of a host.
fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time`, which is there; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
