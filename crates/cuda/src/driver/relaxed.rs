//! What threads may do beside captures of graphs, as they tell the driver.

use std::cell::Cell;
use std::ffi::c_uint;
use std::marker::PhantomData;

use super::table::driver;
use torchrs_error::Result;

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
