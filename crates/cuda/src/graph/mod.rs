//! Graphs: a stream's work is recorded once and then started as a whole, again and again, at the
//! cost of one launch.
//!
//! What is allocated during the capture comes from a private pool that belongs to the graph, since
//! a replay writes to the same addresses again. Nothing may wait for the device during a capture.

use std::cell::Cell;
use std::ffi::c_uint;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed as Order, Ordering::SeqCst,
};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::device;
use crate::driver::{GraphExecHandle, GraphHandle, driver};
use crate::memory;
use crate::memory::allocator::PoolId;
use crate::memory::pinned::PinnedBlock;
use crate::work::stream::{Stream, StreamGuard};
use torchrs_error::{Error, Result};

/// Captures that are under way in this process.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);

/// How many graphs were recorded in this process.
static RECORDED: AtomicU64 = AtomicU64::new(0);

/// The device and the number of each graph that lives.
static ALIVE: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());

/// How many graphs were recorded so far: what is allocated now is known to later ones only.
#[doc(hidden)]
#[inline]
pub fn recorded() -> u64 {
    RECORDED.load(Order)
}

/// Whether a graph lives that was recorded on a device when there were `count` graphs, or later.
#[doc(hidden)]
pub fn is_alive_since(device: usize, count: u64) -> bool {
    ALIVE.lock().iter().any(|&(on, number)| on == device && number >= count)
}

/// A graph's place among those that live.
#[derive(Debug)]
struct Alive {
    number: u64,
}

impl Alive {
    fn new(device: usize) -> Alive {
        let number = RECORDED.fetch_add(1, Order);
        ALIVE.lock().push((device, number));
        Alive { number }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        ALIVE.lock().retain(|&(_, number)| number != self.number);
    }
}

/// Whether any capture is under way.
#[inline]
pub(crate) fn is_any_capture_under_way() -> bool {
    CAPTURES.load(Order) > 0
}

/// Whether what this thread puts on its current stream of a device is recorded into a graph rather than
/// done (`torch.cuda.is_current_stream_capturing`).
///
/// # Errors
/// [`Error::Device`] where the driver refuses.
#[inline]
pub fn is_current_stream_capturing(device: usize) -> Result<bool> {
    Stream::current(device)?.is_capturing()
}

/// For what a graph cannot have: an error where the stream is being captured, before the driver gives up
/// the whole capture without a word on why.
#[doc(hidden)]
#[inline]
pub fn refuse(stream: Stream, what: impl fmt::Display, advice: &str) -> Result<()> {
    if stream.is_capturing()? {
        return Err(Error::Device(format!("{what} cannot be captured in a graph: {advice}")));
    }
    Ok(())
}

/// Where something would wait for a stream.
#[inline]
pub(crate) fn refuse_wait(stream: Stream) -> Result<()> {
    const ADVICE: &str =
        "nothing is computed before the replay; read numbers, as `item` does, after it";
    refuse(stream, "waiting for the GPU", ADVICE)
}

/// What other threads may do during a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureMode {
    /// Nothing that could disturb it, on any thread. The allocator and the loading of kernels know
    /// how to do their part.
    #[default]
    Global,
    /// As `Global`, on the capturing thread only.
    ThreadLocal,
    /// Everything.
    Relaxed,
}

/// How to capture.
#[derive(Clone, Copy, Debug, Default)]
pub struct CaptureOptions {
    /// What other threads may do meanwhile.
    pub mode: CaptureMode,
    /// Shares the pool of another graph: the two are replayed one after the other, in the order
    /// of their captures.
    pub pool: Option<PoolId>,
}

/// Somebody whose work was recorded and who has to know of every replay: a process group. It lives as long
/// as the graph.
#[doc(hidden)]
pub trait Participant: fmt::Debug + Send + Sync {
    /// Tells participants apart.
    fn key(&self) -> usize;

    /// The recorded work is ready, and may be ended with [`Executable::end`] from then on.
    fn recorded(&self, executable: &Arc<Executable>);

    /// Puts a replay on `stream` by `launch`, unless it may not start.
    fn replay(&self, stream: Stream, launch: &mut dyn FnMut() -> Result<()>) -> Result<()>;
}

/// What recorded work needs as long as it can be started.
#[derive(Debug, Default)]
struct Needs {
    participants: Vec<Box<dyn Participant>>,
    /// Memory that it copies from.
    blocks: Vec<PinnedBlock>,
    /// What else has to live.
    others: Vec<Box<dyn Keepable>>,
}

/// Anything that a graph can keep.
trait Keepable: fmt::Debug + Send + Sync {}
impl<T: fmt::Debug + Send + Sync> Keepable for T {}

/// What the captures under way have recorded so far, by their devices.
static NEEDS: Mutex<Vec<(usize, Needs)>> = Mutex::new(Vec::new());

/// Adds somebody whose work the capture on a device is recording.
#[doc(hidden)]
pub fn take_part(device: usize, participant: impl Participant + 'static) {
    let mut all = NEEDS.lock();
    if let Some((_, Needs { participants, .. })) = all.iter_mut().find(|one| one.0 == device)
        && !participants.iter().any(|one| one.key() == participant.key())
    {
        participants.push(Box::new(participant));
    }
}

/// Lets the graph that a capture on a device is recording keep the memory that it copies from.
pub(crate) fn keep(device: usize, block: PinnedBlock) {
    let mut all = NEEDS.lock();
    if let Some((_, needs)) = all.iter_mut().find(|one| one.0 == device) {
        needs.blocks.push(block);
    }
}

/// Lets the graph that a capture on a device is recording keep whatever its work needs, such as a library's code.
pub(crate) fn keep_for_replays(device: usize, value: impl fmt::Debug + Send + Sync + 'static) {
    let mut all = NEEDS.lock();
    if let Some((_, needs)) = all.iter_mut().find(|one| one.0 == device) {
        needs.others.push(Box::new(value));
    }
}

/// What the driver launches; may be ended while its graph lives.
#[doc(hidden)]
#[derive(Debug)]
pub struct Executable {
    exec: Mutex<Option<GraphExecHandle>>,
    is_over: AtomicBool,
}

impl Executable {
    fn launch(&self, stream: Stream) -> Result<()> {
        let launched = match (*self.exec.lock(), self.is_over.load(SeqCst)) {
            // SAFETY: a program that lives, by the lock.
            (Some(exec), false) => unsafe { driver()?.cuGraphLaunch(exec, stream.handle()) },
            _ => Err(Error::Device("the graph has ended with its process group".into())),
        };
        if self.is_over.load(SeqCst) {
            self.end();
        }
        launched
    }

    /// Lets it be started no more; a replay under way is completed. Never waits: a launch under way, which may
    /// take as long as the device is stuck, does the rest.
    pub fn end(&self) {
        self.is_over.store(true, SeqCst);
        let exec = self.exec.try_lock().and_then(|mut exec| exec.take());
        let _relaxed = Relaxed::new();
        if let (Some(exec), Ok(driver)) = (exec, driver()) {
            // SAFETY: a graph that nobody starts any more; a replay under way is completed.
            let _ = unsafe { (driver.cuGraphExecDestroy)(exec) };
        }
    }
}

/// Recorded work, ready to be started.
#[derive(Debug)]
pub struct Graph {
    executable: Arc<Executable>,
    needs: Needs,
    pool: Pool,
    _alive: Alive,
}

/// A graph's share in a private pool.
#[derive(Debug)]
struct Pool {
    device: usize,
    id: PoolId,
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Ok(allocator) = memory::allocator(self.device) {
            allocator.release_pool(self.id);
        }
    }
}

/// A capture under way; ends it also where the recorded function fails or panics.
struct Capture {
    stream: Stream,
    is_over: bool,
}

impl Capture {
    fn begin(stream: Stream, mode: CaptureMode, pool: PoolId) -> Result<Capture> {
        device::bind(stream.device())?;
        let (driver, allocator) = (driver()?, memory::allocator(stream.device())?);
        allocator.begin_capture(pool)?;
        let beginning = BEGINNING.write();
        CAPTURES.fetch_add(1, Order);
        NEEDS.lock().push((stream.device(), Needs::default()));
        // SAFETY: a stream that lives until the process ends.
        let begun = unsafe { driver.cuStreamBeginCapture_v2(stream.handle(), mode as c_uint) };
        drop(beginning);
        if let Err(error) = begun {
            CAPTURES.fetch_sub(1, Order);
            drop(take_needs(stream.device()));
            let _ = allocator.end_capture();
            return Err(error);
        }
        Ok(Capture { stream, is_over: false })
    }

    /// Ends the recording and gives what was recorded.
    fn end(&mut self) -> Result<(Captured, Needs)> {
        self.is_over = true;
        let device = self.stream.device();
        let mut graph = GraphHandle::default();
        let ended = device::bind(device).and_then(|()| {
            // SAFETY: the stream is being captured; writes one handle.
            unsafe { driver()?.cuStreamEndCapture(self.stream.handle(), &mut graph) }
        });
        CAPTURES.fetch_sub(1, Order);
        let needs = take_needs(device);
        let allowed = memory::allocator(device)?.end_capture();
        ended?;
        let captured = Captured(graph);
        allowed.map(|()| (captured, needs))
    }
}

fn take_needs(device: usize) -> Needs {
    let mut all = NEEDS.lock();
    let place = all.iter().position(|one| one.0 == device);
    place.map_or_else(Needs::default, |place| all.swap_remove(place).1)
}

impl Drop for Capture {
    fn drop(&mut self) {
        if !self.is_over {
            // What was recorded is of no use, and neither is the reason why it could not end.
            let _ = self.end();
        }
    }
}

/// A captured graph that is destroyed when it has been made ready, or not.
struct Captured(GraphHandle);

impl Drop for Captured {
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            // SAFETY: a graph that nobody uses any more.
            let _ = unsafe { (driver.cuGraphDestroy)(self.0) };
        }
    }
}

impl Graph {
    /// Records what `work` does on a stream, which is the thread's current one meanwhile. Nothing
    /// is done: `work`'s results are there after the first replay.
    ///
    /// # Errors
    /// What `work` returns; [`Error::Device`] where something in it cannot be
    /// recorded, or another capture is under way on the device.
    pub fn capture<T>(
        stream: Stream,
        options: CaptureOptions,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(Graph, T)> {
        let device = stream.device();
        let allocator = memory::allocator(device)?;
        let id = match options.pool {
            Some(id) => allocator.retain_pool(id).map(|()| id)?,
            None => allocator.create_pool(),
        };
        let pool = Pool { device, id };
        let ((captured, needs), result) = {
            let mut capture = Capture::begin(stream, options.mode, id)?;
            let _current = StreamGuard::new(stream)?;
            let result = work()?;
            (capture.end()?, result)
        };
        let mut exec = GraphExecHandle::default();
        let _relaxed = Relaxed::new()?;
        // SAFETY: a captured graph; writes one handle.
        unsafe { driver()?.cuGraphInstantiateWithFlags(&mut exec, captured.0, 0) }?;
        let executable =
            Arc::new(Executable { exec: Mutex::new(Some(exec)), is_over: false.into() });
        needs.participants.iter().for_each(|one| one.recorded(&executable));
        Ok((Graph { executable, needs, pool, _alive: Alive::new(device) }, result))
    }

    /// Starts the recorded work on a stream of the same device. With recorded collectives it comes after all
    /// collectives that were started before.
    ///
    /// # Errors
    /// [`Error::Device`] where the driver refuses; why the process group of a recorded collective has failed.
    pub fn replay(&self, stream: Stream) -> Result<()> {
        if stream.device() != self.pool.device {
            return Err(Error::Device(format!(
                "Graph::replay: the graph is of cuda:{} and the stream of cuda:{}",
                self.pool.device,
                stream.device()
            )));
        }
        device::bind(self.pool.device)?;
        self.needs.blocks.iter().for_each(|block| block.record_stream(stream));
        replay(&self.needs.participants, &self.executable, stream)
    }

    /// The pool of its memory, to be shared with further graphs.
    pub fn pool(&self) -> PoolId {
        self.pool.id
    }

    /// The device's index.
    pub fn device(&self) -> usize {
        self.pool.device
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // Before its participants go: a communicator outlives the graphs of its calls.
        self.executable.end();
    }
}

/// Each participant puts the rest on the stream.
fn replay(rest: &[Box<dyn Participant>], executable: &Executable, stream: Stream) -> Result<()> {
    match rest {
        [first, rest @ ..] => first.replay(stream, &mut || replay(rest, executable, stream)),
        [] => executable.launch(stream),
    }
}

thread_local! {
    /// Whether this thread is under no restriction now: it has told the driver so.
    static IS_RELAXED: Cell<bool> = const { Cell::new(false) };
}

/// Tells the driver what this thread may do beside captures; gives what it might before.
fn exchange(mode: CaptureMode) -> Result<c_uint> {
    let mut mode = mode as c_uint;
    // SAFETY: exchanges one number with this thread's mode.
    unsafe { driver()?.cuThreadExchangeStreamCaptureMode(&mut mode) }?;
    Ok(mode)
}

/// Lets this thread, one of our own, do from now on what [`Relaxed`] lets others do for a while. Where there is no
/// driver there is nothing to do.
#[doc(hidden)]
pub fn relax_thread() {
    if !IS_RELAXED.get() && exchange(CaptureMode::Relaxed).is_ok() {
        IS_RELAXED.set(true);
    }
}

/// Lets this thread do what captures of other threads, or its own, would forbid: things that do not
/// touch the captured streams. Ends when it is dropped.
///
/// The driver is told whether or not a capture is under way: another thread may begin one at any moment, which the
/// forbidden call would spoil.
#[must_use = "the thread is relaxed only while the guard lives"]
pub(crate) struct Relaxed {
    before: Option<c_uint>,
    /// Belongs to the thread whose mode it changed.
    _thread: PhantomData<*const ()>,
}

impl Relaxed {
    /// Two short calls of the driver, for which no lock is taken; nothing on a thread that is relaxed already.
    #[inline]
    pub(crate) fn new() -> Result<Relaxed> {
        let before = match IS_RELAXED.get() {
            true => None,
            false => Some(exchange(CaptureMode::Relaxed)?),
        };
        IS_RELAXED.set(true);
        Ok(Relaxed { before, _thread: PhantomData })
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        if let (Some(mut mode), Ok(driver)) = (self.before, driver()) {
            // SAFETY: exchanges one number with this thread's mode.
            let _ = unsafe { (driver.cuThreadExchangeStreamCaptureMode)(&mut mode) };
            IS_RELAXED.set(false);
        }
    }
}

/// Held for writing while a capture begins, and for reading by waits for a whole device, which no mode allows beside one.
static BEGINNING: RwLock<()> = RwLock::new(());

/// Lets no capture begin on any device until it is dropped.
///
/// # Errors
/// [`Error::Device`] where one is under way on this device. It goes on: to wait for the device would spoil it.
pub(crate) fn no_capture_on(device: usize) -> Result<RwLockReadGuard<'static, ()>> {
    let guard = BEGINNING.read_recursive();
    match NEEDS.lock().iter().any(|one| one.0 == device) {
        false => Ok(guard),
        true => Err(Error::Device(format!(
            "waiting for cuda:{device} is not possible while a thread captures a graph there: it would spoil the graph; \
             wait for a stream or an event instead, or after the capture"
        ))),
    }
}

#[cfg(test)]
mod tests;
