//! Events: marks in a stream that other streams and the host can wait for, and that can tell how
//! much time lies between them.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::device::{self, MAX_DEVICES};
use crate::driver::code::Code;
use crate::driver::{self, EventHandle, IpcHandle, driver};
use crate::work::lost;
use crate::work::stream::{Stream, refuse_wait};
use crate::work::synchronisation;
use torchrs_error::{Error, Result};

const BLOCKING: c_uint = 1;
const NO_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;

/// What an event is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventOptions {
    /// It can tell times.
    pub timing: bool,
    /// A thread that waits for it sleeps rather than looks again and again.
    pub blocking: bool,
    /// Other processes can wait for it; it can then tell no times.
    pub interprocess: bool,
}

impl EventOptions {
    fn flags(self) -> c_uint {
        let flag = |set, flag| if set { flag } else { 0 };
        flag(self.blocking, BLOCKING)
            | flag(!self.timing, NO_TIMING)
            | flag(self.interprocess, INTERPROCESS)
    }
}

/// An event of a device.
#[derive(Debug)]
pub struct Event {
    device: usize,
    options: EventOptions,
    handle: EventHandle,
    /// Whether it means anything: one that is used again still has its last user's record.
    recorded: AtomicBool,
    /// Not kept for reuse: it is another process's.
    foreign: bool,
}

/// Plain events that nobody uses, to be used again.
static SPARE: [Mutex<Vec<EventHandle>>; MAX_DEVICES] =
    [const { Mutex::new(Vec::new()) }; MAX_DEVICES];
/// How many are kept per device.
const MOST_SPARE: usize = 1024;

impl Event {
    /// A new event, not yet recorded: nobody waits for it.
    ///
    /// # Errors
    /// [`Error::Device`] where there is no such device, [`Error::Argument`] for options that do
    /// not go together.
    pub fn new(device: usize, options: EventOptions) -> Result<Event> {
        if options.timing && options.interprocess {
            let message = "true; an event that other processes wait for cannot tell times";
            return Err(Error::argument("Event::new", "timing", message));
        }
        device::bind(device)?;
        let event = |handle| {
            let recorded = AtomicBool::new(false);
            Event { device, options, handle, recorded, foreign: false }
        };
        if options == EventOptions::default()
            && let Some(handle) = SPARE[device].lock().pop()
        {
            return Ok(event(handle));
        }
        let mut handle = EventHandle::default();
        // SAFETY: writes one handle; the event is of the context that was just bound.
        unsafe { driver()?.cuEventCreate(&mut handle, options.flags()) }?;
        Ok(event(handle))
    }

    /// The device's index.
    #[inline]
    pub fn device(&self) -> usize {
        self.device
    }

    /// Whether there is something to wait for.
    #[inline]
    pub(crate) fn is_recorded(&self) -> bool {
        self.recorded.load(Relaxed)
    }

    /// Is reached when all work so far on the stream is done. An earlier record is forgotten.
    ///
    /// # Errors
    /// [`Error::Device`] for a stream of another device.
    pub fn record(&self, stream: Stream) -> Result<()> {
        if stream.device() != self.device {
            return Err(Error::Device(format!(
                "an event of cuda:{} cannot be recorded on a stream of cuda:{}",
                self.device,
                stream.device()
            )));
        }
        device::bind(self.device)?;
        // SAFETY: an event and a stream of the context that was just bound.
        unsafe { driver()?.cuEventRecord(self.handle, stream.handle()) }?;
        self.recorded.store(true, Relaxed);
        Ok(())
    }

    /// Lets what comes next on a stream wait for it.
    ///
    /// # Errors
    /// [`Error::Device`] where the driver refuses.
    #[inline]
    pub fn wait(&self, stream: Stream) -> Result<()> {
        stream.wait_event(self)
    }

    /// Lets what comes next on the thread's current stream of its device wait for it.
    #[doc(hidden)]
    #[inline]
    pub fn hold_current_stream(&self) -> Result<()> {
        self.wait(Stream::current(self.device())?)
    }

    /// Whether it has been reached; true for one that was never recorded. Also while another thread captures.
    ///
    /// # Errors
    /// [`Error::Device`] for what failed in the work before it.
    pub fn query(&self) -> Result<bool> {
        match self.state()? {
            Code::SUCCESS => Ok(true),
            Code::NOT_READY => Ok(false),
            code => Err(driver()?.error("cuEventQuery", code)),
        }
    }

    /// Whether nothing before it can touch memory any more: it has been reached, or its device has failed. What
    /// cannot be known counts as not done.
    pub(crate) fn is_over(&self) -> bool {
        self.state().is_ok_and(|code| code == Code::SUCCESS || code.is_sticky())
    }

    /// What the driver answers.
    fn state(&self) -> Result<Code> {
        if !self.is_recorded() {
            return Ok(Code::SUCCESS);
        }
        device::bind(self.device)?;
        let _relaxed = driver::Relaxed::new()?;
        // SAFETY: an event of this process.
        Ok(unsafe { (driver()?.cuEventQuery)(self.handle) })
    }

    /// Waits on the host until it is reached.
    ///
    /// # Errors
    /// [`Error::Device`] for what failed in the work before it; why a collective ended without a result.
    pub fn synchronize(&self) -> Result<()> {
        self.finish()?;
        lost::check(self.device)
    }

    /// [`Event::synchronize`] for those who use no results, and so are not told what was lost.
    pub(crate) fn finish(&self) -> Result<()> {
        if !self.is_recorded() {
            return Ok(());
        }
        refuse_wait(Stream::current(self.device)?)?;
        device::bind(self.device)?;
        synchronisation::count();
        let _relaxed = driver::Relaxed::new()?;
        // SAFETY: an event of this process.
        unsafe { driver()?.cuEventSynchronize(self.handle) }
    }

    /// Milliseconds from this event to a later one. Both must have been reached.
    ///
    /// # Errors
    /// [`Error::Argument`] for events that do not tell times, [`Error::Device`] for ones that were
    /// not reached.
    pub fn elapsed_ms(&self, later: &Event) -> Result<f32> {
        if !(self.options.timing && later.options.timing) {
            let message = "an event without `timing: true`";
            return Err(Error::argument("Event::elapsed_ms", "later", message));
        }
        device::bind(self.device)?;
        let driver = driver()?;
        let mut ms = 0.0;
        // SAFETY: events of this process; writes one number.
        match unsafe { (driver.cuEventElapsedTime)(&mut ms, self.handle, later.handle) } {
            Code::SUCCESS => Ok(ms),
            Code::NOT_READY => Err(Error::Device(
                "elapsed_ms: the events have not been reached; synchronize the later one".into(),
            )),
            code => Err(driver.error("cuEventElapsedTime", code)),
        }
    }

    /// What another process opens the event by. The event has to live until every such process has opened it, and the
    /// work that waits for it there is done: CUDA promises nothing otherwise.
    ///
    /// # Errors
    /// [`Error::Argument`] for an event that is not `interprocess`.
    pub fn ipc_handle(&self) -> Result<[u8; 64]> {
        if !self.options.interprocess {
            let message = "an event without `interprocess: true`";
            return Err(Error::argument("Event::ipc_handle", "self", message));
        }
        device::bind(self.device)?;
        let _relaxed = driver::Relaxed::new()?;
        let mut handle = IpcHandle([0; 64]);
        // SAFETY: an event of the context that was just bound; writes 64 bytes.
        unsafe { driver()?.cuIpcGetEventHandle(&mut handle, self.handle) }?;
        Ok(handle.0)
    }

    /// Opens an event of another process on the same device.
    ///
    /// # Errors
    /// [`Error::Device`] where the other process is gone or is this one.
    pub fn from_ipc(device: usize, handle: [u8; 64]) -> Result<Event> {
        device::bind(device)?;
        let _relaxed = driver::Relaxed::new()?;
        let mut event = EventHandle::default();
        // SAFETY: writes one handle; the driver checks what it is given.
        unsafe { driver()?.cuIpcOpenEventHandle(&mut event, IpcHandle(handle)) }?;
        let options = EventOptions { interprocess: true, ..EventOptions::default() };
        let recorded = AtomicBool::new(true);
        Ok(Event { device, options, handle: event, recorded, foreign: true })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.foreign && self.options == EventOptions::default() {
            let mut spare = SPARE[self.device].lock();
            // Work that waits for its last record goes on waiting for that one.
            if spare.len() < MOST_SPARE {
                return spare.push(self.handle);
            }
        }
        if let Ok(driver) = driver() {
            // SAFETY: an event that nobody uses any more. It fails only when the process ends.
            let _ = unsafe { (driver.cuEventDestroy_v2)(self.handle) };
        }
    }
}

impl Stream {
    /// Lets what comes next on this stream wait for an event, also of another device.
    ///
    /// # Errors
    /// [`Error::Device`] where the driver refuses.
    pub fn wait_event(self, event: &Event) -> Result<()> {
        if !event.is_recorded() {
            return Ok(());
        }
        device::bind(self.device())?;
        // SAFETY: a stream that lives until the process ends, and an event.
        unsafe { driver()?.cuStreamWaitEvent(self.handle(), event.handle, 0) }
    }

    /// Lets what comes next on this stream wait for all work so far of another one.
    ///
    /// # Errors
    /// [`Error::Device`] where the driver refuses.
    #[inline]
    pub fn wait_stream(self, other: Stream) -> Result<()> {
        if self == other { Ok(()) } else { self.wait_event(&other.record_event()?) }
    }

    /// A new event that is reached when all work so far is done.
    ///
    /// # Errors
    /// [`Error::Device`] where the driver refuses.
    pub fn record_event(self) -> Result<Event> {
        let event = Event::new(self.device(), EventOptions::default())?;
        event.record(self)?;
        Ok(event)
    }
}
