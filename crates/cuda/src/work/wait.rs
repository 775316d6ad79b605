//! Waits for all work of a device.

use torchrs_error::Result;

use crate::device;
use crate::driver::{self, driver};
use crate::work::stream::{Stream, refuse_wait};
use crate::work::{lost, recording, synchronisation};

/// Waits until all work on a device is done.
///
/// # Errors
/// [`Error::Device`](torchrs_error::Error::Device), also while any thread captures a graph there, and for what failed in that work; why a collective ended without a result.
pub fn synchronize(index: usize) -> Result<()> {
    finish(index)?;
    lost::check(index)
}

/// [`synchronize`] for those who use no results, and so are not told what was lost.
pub(crate) fn finish(index: usize) -> Result<()> {
    device::bind(index)?;
    refuse_wait(Stream::current(index)?)?;
    synchronisation::count();
    let (_alone, _relaxed) = (recording::no_capture_on(index)?, driver::Relaxed::new()?);
    // SAFETY: waits for the context that was just bound.
    unsafe { driver()?.cuCtxSynchronize() }
}
