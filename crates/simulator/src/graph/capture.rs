//! Captures: which streams take part in which, what each has seen, and what is forbidden meanwhile.

use super::exec::{Graph, Node};
use crate::code::{Code, Result};
use crate::stream::Stream;
use crate::work::Work;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;

/// `CUstreamCaptureMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Unsafe calls are forbidden to all threads.
    Global,
    /// Unsafe calls are forbidden to the thread that captures.
    ThreadLocal,
    /// They are allowed.
    Relaxed,
}

impl Mode {
    /// By its number.
    pub fn from_number(number: u32) -> Result<Mode> {
        match number {
            0 => Ok(Mode::Global),
            1 => Ok(Mode::ThreadLocal),
            2 => Ok(Mode::Relaxed),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

/// A capture.
#[derive(Debug)]
pub struct Capture {
    mode: Mode,
    thread: ThreadId,
    /// The stream in which it began and must end.
    origin: usize,
    /// That stream's device.
    device: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    nodes: Vec<Node>,
    invalid: bool,
    /// The other streams that take part.
    forked: Vec<Weak<Stream>>,
}

/// A place in a capture: the nodes that come before whatever comes next.
#[derive(Debug, Clone)]
pub struct Point {
    capture: Arc<Capture>,
    after: BTreeSet<usize>,
}

/// A stream's part in a capture.
pub type Capturing = Point;

/// Captures that are under way.
static ACTIVE: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
/// How many, for a look without the lock.
static COUNT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Exchanges the calling thread's mode.
pub fn exchange_mode(mode: Mode) -> Mode {
    MODE.replace(mode)
}

/// Refuses a call that might disturb a capture, as CUDA does, and spoils that capture.
pub fn check_unsafe_call() -> Result {
    if COUNT.load(Ordering::Acquire) == 0 || MODE.get() == Mode::Relaxed {
        return Ok(());
    }
    let me = std::thread::current().id();
    let all_modes = MODE.get() == Mode::Global;
    let mut refused = false;
    for capture in ACTIVE.lock().iter() {
        let mine = capture.thread == me && capture.mode != Mode::Relaxed;
        if mine || (all_modes && capture.mode == Mode::Global) {
            capture.invalidate();
            refused = true;
        }
    }
    if refused { Err(Code::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

/// Refuses to wait for a stream that is under capture.
pub fn check_not_capturing(stream: &Stream) -> Result {
    match &*stream.capture.lock() {
        Some(point) => {
            point.capture.invalidate();
            Err(Code::STREAM_CAPTURE_UNSUPPORTED)
        }
        None => Ok(()),
    }
}

/// Refuses to wait for a device some of whose streams are under capture, which spoils that, in any mode; for another
/// one it is as other unsafe calls.
pub fn check_device_not_capturing(device: usize) -> Result {
    let active = ACTIVE.lock();
    let mut refused = false;
    for capture in active.iter().filter(|capture| capture.device == device) {
        capture.invalidate();
        refused = true;
    }
    drop(active);
    if refused { Err(Code::STREAM_CAPTURE_UNSUPPORTED) } else { check_unsafe_call() }
}

impl Capture {
    fn invalidate(&self) {
        self.state.lock().invalid = true;
    }
}

impl Point {
    /// Whether something that is not allowed has spoiled the capture.
    pub fn is_invalid(&self) -> bool {
        self.capture.state.lock().invalid
    }
}

/// Begins a capture in a stream.
pub fn begin(stream: &Stream, mode: Mode) -> Result {
    let mut part = stream.capture.lock();
    if part.is_some() {
        return Err(Code::ILLEGAL_STATE);
    }
    let thread = std::thread::current().id();
    let (origin, device) = (stream.id, stream.device);
    let capture = Arc::new(Capture { mode, thread, origin, device, state: Mutex::default() });
    ACTIVE.lock().push(capture.clone());
    COUNT.fetch_add(1, Ordering::AcqRel);
    *part = Some(Point { capture, after: BTreeSet::new() });
    Ok(())
}

/// Ends a capture and gives its graph.
pub fn end(stream: &Stream) -> Result<Graph> {
    let mut part = stream.capture.lock();
    let point = part.clone().ok_or(Code::ILLEGAL_STATE)?;
    let capture = &point.capture;
    if capture.origin != stream.id {
        capture.invalidate();
        return Err(Code::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id() {
        return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
    }
    *part = None;
    drop(part);
    ACTIVE.lock().retain(|other| !Arc::ptr_eq(other, capture));
    COUNT.fetch_sub(1, Ordering::AcqRel);
    let mut state = capture.state.lock();
    let seen = ancestors(&state.nodes, &point.after);
    let mut unjoined = false;
    for other in state.forked.drain(..).filter_map(|stream| stream.upgrade()) {
        let mut part = other.capture.lock();
        if let Some(end) = part.take_if(|part| Arc::ptr_eq(&part.capture, capture)) {
            unjoined |= !end.after.is_subset(&seen);
        }
    }
    if state.invalid {
        return Err(Code::STREAM_CAPTURE_INVALIDATED);
    }
    if unjoined {
        return Err(Code::STREAM_CAPTURE_UNJOINED);
    }
    Ok(Graph { nodes: std::mem::take(&mut state.nodes) })
}

/// All nodes that come before a place.
fn ancestors(nodes: &[Node], after: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut seen = after.clone();
    for number in (0..nodes.len()).rev() {
        if seen.contains(&number) {
            seen.extend(&nodes[number].after);
        }
    }
    seen
}

/// Writes a piece of work down if the stream is under capture; gives it back otherwise.
pub fn take(stream: &Stream, work: Work) -> Result<Option<Work>> {
    let mut part = stream.capture.lock();
    let Some(point) = part.as_mut() else { return Ok(Some(work)) };
    let mut state = point.capture.state.lock();
    if state.invalid {
        return Err(Code::STREAM_CAPTURE_INVALIDATED);
    }
    let after = std::mem::take(&mut point.after).into_iter().collect();
    state.nodes.push(Node { work, device: stream.device, after });
    point.after = BTreeSet::from([state.nodes.len() - 1]);
    Ok(None)
}

/// Where a stream stands in its capture, for an event that is recorded there.
pub fn point(stream: &Stream) -> Result<Option<Point>> {
    let part = stream.capture.lock().clone();
    match part {
        Some(point) if point.is_invalid() => Err(Code::STREAM_CAPTURE_INVALIDATED),
        part => Ok(part),
    }
}

/// Lets a stream wait for a place of a capture, in which it takes part from then on.
pub fn join(stream: &Arc<Stream>, point: &Point) -> Result {
    let mut part = stream.capture.lock();
    if !ACTIVE.lock().iter().any(|capture| Arc::ptr_eq(capture, &point.capture)) {
        return Err(Code::INVALID_VALUE);
    }
    match part.as_mut() {
        Some(mine) if Arc::ptr_eq(&mine.capture, &point.capture) => {
            mine.after.extend(&point.after);
        }
        Some(mine) => {
            mine.capture.invalidate();
            point.capture.invalidate();
            return Err(Code::STREAM_CAPTURE_MERGE);
        }
        None => {
            let mut state = point.capture.state.lock();
            if state.invalid {
                return Err(Code::STREAM_CAPTURE_INVALIDATED);
            }
            state.forked.push(Arc::downgrade(stream));
            drop(state);
            *part = Some(point.clone());
        }
    }
    Ok(())
}

/// Refuses a wait, in a stream under capture, for work that is not.
pub fn isolation(stream: &Stream) -> Result {
    match &*stream.capture.lock() {
        Some(part) => {
            part.capture.invalidate();
            Err(Code::STREAM_CAPTURE_ISOLATION)
        }
        None => Ok(()),
    }
}
