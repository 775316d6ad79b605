//! Streams: work on one stream is done in order, work on different ones in any order. Every thread
//! has a current stream per device, on which operations put their work; at first that is the
//! device's default stream, which all threads share.
//!
//! Streams come from pools of 32 per device and priority that are handed out in turn and live
//! until the process ends, so a [`Stream`] is a plain value.

use std::array;
use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::device::{self, DeviceGuard, MAX_DEVICES, NOWHERE};
use crate::driver::code::Code;
use crate::driver::{self, StreamHandle, driver};
use crate::memo::once::TryOnce;
use crate::work::lost;
use crate::work::synchronisation;
use torchrs_error::{Error, Result};

/// Streams per device and priority.
pub const POOL_SIZE: usize = 32;
/// The stream does not wait for the driver's stream 0.
const NON_BLOCKING: c_uint = 1;

/// Which of two streams' waiting blocks a device starts first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// The usual one.
    #[default]
    Normal,
    /// Before the usual one: communication, for instance.
    High,
}

impl Priority {
    /// The driver's number: lower comes first.
    fn number(self) -> c_int {
        match self {
            Priority::Normal => 0,
            Priority::High => -1,
        }
    }
}

/// A stream of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    device: u32,
    priority: Priority,
    handle: StreamHandle,
}

/// The streams of one device.
struct Streams {
    default: TryOnce<Stream>,
    pools: [Pool; 2],
}

/// The streams of one priority.
struct Pool {
    next: AtomicUsize,
    streams: [TryOnce<Stream>; POOL_SIZE],
}

impl Pool {
    const fn new() -> Pool {
        Pool { next: AtomicUsize::new(0), streams: [const { TryOnce::new() }; POOL_SIZE] }
    }
}

static STREAMS: [Streams; MAX_DEVICES] =
    [const { Streams { default: TryOnce::new(), pools: [Pool::new(), Pool::new()] } }; MAX_DEVICES];

thread_local! {
    /// What this thread has set in place of the default streams.
    static CURRENT: [Cell<Option<Stream>>; MAX_DEVICES] = array::from_fn(|_| Cell::new(None));
}

/// Whether any thread has ever set its current stream.
static OTHERS: AtomicBool = AtomicBool::new(false);

/// Whether any thread has ever set its current stream. Where none has, all work is on the default streams.
#[doc(hidden)]
#[inline]
pub fn others_were_current() -> bool {
    OTHERS.load(Relaxed)
}

fn create(device: usize, priority: Priority) -> Result<Stream> {
    device::bind(device)?;
    let mut handle = StreamHandle::default();
    // SAFETY: writes one handle; the stream is of the context that was just bound.
    unsafe { driver()?.cuStreamCreateWithPriority(&mut handle, NON_BLOCKING, priority.number()) }?;
    Ok(Stream { device: device as u32, priority, handle })
}

impl Stream {
    /// The next stream of a device's pool. After 32 of them the first comes again.
    ///
    /// # Errors
    /// [`Error::Device`] where there is no such device.
    pub fn new(device: usize, priority: Priority) -> Result<Stream> {
        device::number(device)?;
        let pool = &STREAMS[device].pools[priority as usize];
        let turn = pool.next.fetch_add(1, Relaxed) % POOL_SIZE;
        pool.streams[turn].get_or_try(|| create(device, priority)).copied()
    }

    /// A stream that nobody else gets, for work that may have to last while all others go on.
    #[doc(hidden)]
    pub fn outside_pool(device: usize, priority: Priority) -> Result<Stream> {
        device::number(device)?;
        create(device, priority)
    }

    /// A stream that another library has made, by its handle: 1 is the driver's own default stream.
    ///
    /// # Safety
    /// *Alive*: the stream is one of this device, and is not destroyed while the value, or a copy of it, is used.
    #[doc(hidden)]
    pub unsafe fn of_others(device: usize, handle: usize) -> Result<Stream> {
        device::number(device)?;
        let handle = StreamHandle(handle);
        Ok(Stream { device: device as u32, priority: Priority::Normal, handle })
    }

    /// The stream that every thread begins with.
    ///
    /// # Errors
    /// [`Error::Device`] where there is no such device.
    #[inline]
    pub fn default_of(device: usize) -> Result<Stream> {
        if let Some(stream) = STREAMS.get(device).and_then(|s| s.default.get()) {
            return Ok(*stream);
        }
        if device == NOWHERE {
            return Ok(Stream {
                device: NOWHERE as u32,
                priority: Priority::Normal,
                handle: StreamHandle::default(),
            });
        }
        device::number(device)?;
        STREAMS[device].default.get_or_try(|| create(device, Priority::Normal)).copied()
    }

    /// The calling thread's stream of a device.
    ///
    /// # Errors
    /// [`Error::Device`] where there is no such device.
    #[inline]
    pub fn current(device: usize) -> Result<Stream> {
        match CURRENT.with(|streams| streams.get(device).and_then(Cell::get)) {
            Some(stream) => Ok(stream),
            None => Stream::default_of(device),
        }
    }

    /// Makes it the calling thread's stream of its device. [`StreamGuard`] does so for a while.
    #[inline]
    pub fn set_current(self) {
        OTHERS.store(true, Relaxed);
        CURRENT.with(|streams| streams[self.device()].set(Some(self)));
    }

    /// Whether it is that of the device without memory, so that work is not started.
    #[doc(hidden)]
    #[inline]
    pub fn is_nowhere(self) -> bool {
        self.device() == NOWHERE
    }

    /// The device's index.
    #[inline]
    pub fn device(self) -> usize {
        self.device as usize
    }

    /// Its priority.
    #[inline]
    pub fn priority(self) -> Priority {
        self.priority
    }

    /// The driver's handle, for libraries that take a `CUstream`.
    #[inline]
    pub fn as_raw(self) -> *mut c_void {
        self.handle.0 as *mut c_void
    }

    #[inline]
    pub(crate) fn handle(self) -> StreamHandle {
        self.handle
    }

    /// Whether all work so far is done.
    ///
    /// # Errors
    /// [`Error::Device`] for what failed in that work.
    pub fn query(self) -> Result<bool> {
        refuse(
            self,
            "asking whether a stream's work is done",
            "nothing is done before the replay",
        )?;
        device::bind(self.device())?;
        let driver = driver()?;
        let _relaxed = driver::Relaxed::new()?;
        // SAFETY: a stream that lives until the process ends.
        match unsafe { (driver.cuStreamQuery)(self.handle) } {
            Code::SUCCESS => Ok(true),
            Code::NOT_READY => Ok(false),
            code => Err(driver.error("cuStreamQuery", code)),
        }
    }

    /// Whether its device has failed, so that no work of it is done any more.
    pub(crate) fn has_failed(self) -> bool {
        let (Ok(driver), Ok(_relaxed)) = (driver(), driver::Relaxed::new()) else { return true };
        // SAFETY: a stream that lives until the process ends.
        device::bind(self.device()).is_err()
            || unsafe { (driver.cuStreamQuery)(self.handle) }.is_sticky()
    }

    /// Waits until all work so far is done.
    ///
    /// # Errors
    /// [`Error::Device`] for what failed in that work; why a collective ended without a result.
    pub fn synchronize(self) -> Result<()> {
        self.finish()?;
        lost::check(self.device())
    }

    /// [`Stream::synchronize`] for those who use no results, and so are not told what was lost.
    pub(crate) fn finish(self) -> Result<()> {
        refuse_wait(self)?;
        device::bind(self.device())?;
        synchronisation::count();
        let _relaxed = driver::Relaxed::new()?;
        // SAFETY: a stream that lives until the process ends.
        unsafe { driver()?.cuStreamSynchronize(self.handle) }
    }

    /// Calls a function on a thread of the driver when this stream reaches it. The function must
    /// not call CUDA.
    ///
    /// # Errors
    /// [`Error::Device`] where the driver refuses, or the stream is being captured.
    pub fn call_host(self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        refuse(self, "call_host", "a graph would call the function at every replay")?;
        device::bind(self.device())?;
        let boxed: Box<Box<dyn FnOnce() + Send>> = Box::new(Box::new(function));
        let data = Box::into_raw(boxed);
        // SAFETY: `call_once` takes the box back, exactly once, when the stream reaches it.
        let outcome = unsafe { driver()?.cuLaunchHostFunc(self.handle, call_once, data.cast()) };
        if outcome.is_err() {
            // SAFETY: the driver refused, so nobody else takes the box back.
            drop(unsafe { Box::from_raw(data) });
        }
        outcome
    }

    /// Whether its work is being recorded into a graph rather than done. Costs nothing where no capture is under way.
    ///
    /// # Errors
    /// [`Error::Device`] where the driver refuses.
    #[inline]
    pub fn is_capturing(self) -> Result<bool> {
        if is_any_capture_under_way() && !self.is_nowhere() {
            self.ask_is_capturing()
        } else {
            Ok(false)
        }
    }

    fn ask_is_capturing(self) -> Result<bool> {
        device::bind(self.device())?;
        let mut status = 0;
        // SAFETY: a stream that lives until the process ends; writes one number.
        unsafe { driver()?.cuStreamIsCapturing(self.handle, &mut status) }?;
        Ok(status != 0)
    }
}

/// Captures that are under way in this process.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);

/// A capture on some stream begins: from now on streams are asked.
pub(crate) fn capture_begins() {
    CAPTURES.fetch_add(1, Relaxed);
}

/// A capture has ended, or could not begin.
pub(crate) fn capture_is_over() {
    CAPTURES.fetch_sub(1, Relaxed);
}

/// Whether any capture is under way.
#[inline]
fn is_any_capture_under_way() -> bool {
    CAPTURES.load(Relaxed) > 0
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

/// Runs the function that `call_host` boxed.
unsafe extern "C" fn call_once(data: *mut c_void) {
    // SAFETY: `data` is the box of `call_host`, which comes here once.
    let function = unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce() + Send>>()) };
    // A panic may not pass through the driver's code. The hook has printed it by then.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(function));
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{} stream {:#x}", self.device, self.handle.0)
    }
}

/// Makes a stream the thread's current one, and its device the current device, until it is
/// dropped.
#[must_use = "the stream is current only while the guard lives"]
pub struct StreamGuard {
    device: usize,
    before: Option<Stream>,
    _device: DeviceGuard,
    /// Belongs to the thread whose stream it changed.
    _thread: PhantomData<*const ()>,
}

impl StreamGuard {
    /// Makes `stream` current.
    ///
    /// # Errors
    /// [`Error::Device`] where its device is gone.
    pub fn new(stream: Stream) -> Result<StreamGuard> {
        let device = stream.device();
        let guard = DeviceGuard::new(device)?;
        OTHERS.store(true, Relaxed);
        let before = CURRENT.with(|streams| streams[device].replace(Some(stream)));
        Ok(StreamGuard { device, before, _device: guard, _thread: PhantomData })
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        CURRENT.with(|streams| streams[self.device].set(self.before));
    }
}
