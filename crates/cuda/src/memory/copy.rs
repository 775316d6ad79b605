//! Copies and fills on a stream. None waits for the device but for copies to host memory that is not
//! pinned, which are done when they return, and large ones from there.
//!
//! Every function is `unsafe` for the same reason: the addresses must be valid for so many bytes
//! until the stream has done the copy, and what uses the bytes must be ordered after it.

use std::ffi::c_int;

use crate::device;
use crate::driver::code::Code;
use crate::driver::{DevicePointer, driver};
use crate::memory::peer;
use crate::memory::pinned::{self, PinnedBlock};
use crate::work::recording;
use crate::work::stream::{Stream, refuse, refuse_wait};
use crate::work::traffic;
use torchrs_error::Result;

fn address<T>(pointer: *const T) -> DevicePointer {
    pointer as DevicePointer
}

/// Memory that is not pinned is copied to a pinned block first, up to so many bytes: the device reads that by itself.
/// For more of it the host waits.
const STAGED: usize = 1 << 20;

/// Copies from the host to the device. Memory that is not pinned is read before it returns, of more than 1 MiB of which it
/// waits for the stream; pinned memory is read when the stream comes to it.
///
/// # Errors
/// [`Error::Device`](torchrs_error::Error::Device) where the driver refuses; so below.
///
/// # Safety
/// As the module says.
pub unsafe fn host_to_device(
    to: *mut u8,
    from: *const u8,
    bytes: usize,
    stream: Stream,
) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    refuse(stream, "a copy from the host", "a replay would read that memory again")?;
    device::bind(stream.device())?;
    if !pinned::is_pinned(from, bytes) {
        if bytes <= STAGED
            && let Ok(block) = PinnedBlock::new(bytes)
        {
            // SAFETY: the caller's duty; a new block of that length.
            return unsafe {
                block.as_ptr().copy_from_nonoverlapping(from, bytes);
                block_to_device(to, block, stream)
            };
        }
        count("cuMemcpyHtoD", bytes);
        // SAFETY: the caller's duty.
        unsafe {
            driver()?.cuMemcpyHtoDAsync_v2(address(to), from.cast(), bytes, stream.handle())
        }?;
        // The manual leaves open when the driver reads so much: some devices read such memory by themselves, late.
        return stream.finish();
    }
    count("cuMemcpyHtoD", bytes);
    // SAFETY: the caller's duty.
    unsafe { driver()?.cuMemcpyHtoDAsync_v2(address(to), from.cast(), bytes, stream.handle()) }
}

/// Counts a copy or a fill that reads or writes so much of the device's memory, where somebody counts.
#[inline]
fn count(name: &str, bytes: usize) {
    if traffic::is_counted() {
        traffic::moved(name, bytes);
    }
}

/// Copies a whole block to the device, and never waits. The block lives until that is done; a graph that is
/// being captured keeps it, and its replays copy it again.
///
/// # Errors
/// As above.
///
/// # Safety
/// As the module says.
pub unsafe fn block_to_device(to: *mut u8, block: PinnedBlock, stream: Stream) -> Result<()> {
    if stream.is_nowhere() {
        return Ok(());
    }
    device::bind(stream.device())?;
    let from = block.as_ptr().cast();
    count("cuMemcpyHtoD", block.len());
    // SAFETY: the caller's duty; a dropped block waits for the streams that it knows.
    unsafe { driver()?.cuMemcpyHtoDAsync_v2(address(to), from, block.len(), stream.handle()) }?;
    if stream.is_capturing()? {
        recording::keep(stream.device(), block);
    } else {
        block.record_stream(stream);
    }
    Ok(())
}

/// Copies from the device to the host. For memory that is not pinned it waits for the stream.
///
/// # Errors
/// Also what failed in the work before it, where it waits.
///
/// # Safety
/// As the module says.
pub unsafe fn device_to_host(
    to: *mut u8,
    from: *const u8,
    bytes: usize,
    stream: Stream,
) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    refuse_wait(stream)?;
    device::bind(stream.device())?;
    let driver = driver()?;
    count("cuMemcpyDtoH", bytes);
    // SAFETY: the caller's duty.
    unsafe { driver.cuMemcpyDtoHAsync_v2(to.cast(), address(from), bytes, stream.handle()) }?;
    if !pinned::is_pinned(to, bytes) {
        // The copy is done by now as the manual has it; that it is, is not left to the driver.
        stream.synchronize()?;
    }
    Ok(())
}

/// Copies within a device.
///
/// # Errors
/// As [`host_to_device`].
///
/// # Safety
/// As the module says; the two do not overlap.
pub unsafe fn device_to_device(
    to: *mut u8,
    from: *const u8,
    bytes: usize,
    stream: Stream,
) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    device::bind(stream.device())?;
    count("cuMemcpyDtoD", 2 * bytes);
    // SAFETY: the caller's duty.
    unsafe { driver()?.cuMemcpyDtoDAsync_v2(address(to), address(from), bytes, stream.handle()) }
}

/// Copies from one device to another: directly where they can, else through the host's memory,
/// which the driver does. The stream is of either device.
///
/// # Errors
/// As [`host_to_device`].
///
/// # Safety
/// As the module says.
pub unsafe fn between_devices(
    (to, to_device): (*mut u8, usize),
    (from, from_device): (*const u8, usize),
    bytes: usize,
    stream: Stream,
) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    if to_device == from_device {
        // SAFETY: the caller's duty.
        return unsafe { device_to_device(to, from, bytes, stream) };
    }
    let other = if stream.device() == to_device { from_device } else { to_device };
    if peer::can_access(stream.device(), other)? {
        peer::enable(stream.device(), other)?;
    }
    let (to_context, from_context) = (device::context(to_device)?, device::context(from_device)?);
    device::bind(stream.device())?;
    // SAFETY: the caller's duty; contexts that are kept until the process ends.
    unsafe {
        driver()?.cuMemcpyPeerAsync(
            address(to),
            to_context,
            address(from),
            from_context,
            bytes,
            stream.handle(),
        )
    }
}

/// Copies between any two addresses; the driver finds out where they are. Host memory, pinned or not, may be read and
/// written until the stream has done the copy.
///
/// # Errors
/// As [`host_to_device`].
///
/// # Safety
/// As the module says.
pub unsafe fn any(to: *mut u8, from: *const u8, bytes: usize, stream: Stream) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    device::bind(stream.device())?;
    // SAFETY: the caller's duty.
    unsafe { driver()?.cuMemcpyAsync(address(to), address(from), bytes, stream.handle()) }
}

/// Fills with a byte.
///
/// # Errors
/// As [`host_to_device`].
///
/// # Safety
/// As the module says.
pub unsafe fn fill_bytes(to: *mut u8, value: u8, bytes: usize, stream: Stream) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    device::bind(stream.device())?;
    count("cuMemsetD8", bytes);
    // SAFETY: the caller's duty.
    unsafe { driver()?.cuMemsetD8Async(address(to), value, bytes, stream.handle()) }
}

/// Fills with a word of four bytes.
///
/// # Errors
/// As [`host_to_device`].
///
/// # Safety
/// As the module says; the address is a multiple of 4.
pub unsafe fn fill_words(to: *mut u32, value: u32, words: usize, stream: Stream) -> Result<()> {
    if words == 0 {
        return Ok(());
    }
    device::bind(stream.device())?;
    count("cuMemsetD32", 4 * words);
    // SAFETY: the caller's duty.
    unsafe { driver()?.cuMemsetD32Async(address(to), value, words, stream.handle()) }
}

/// The device whose memory an address belongs to; none for host memory, pinned or not.
///
/// # Errors
/// [`Error::Device`](torchrs_error::Error::Device) where there is no CUDA.
pub fn device_of(pointer: *const u8) -> Result<Option<usize>> {
    const MEMORY_TYPE: c_int = 2;
    const DEVICE_MEMORY: c_int = 2;
    const DEVICE_ORDINAL: c_int = 9;
    const INVALID_VALUE: Code = Code(1);
    let driver = driver()?;
    let figure = |attribute| {
        let mut value: c_int = -1;
        // SAFETY: writes one number; any address may be asked about.
        let code = unsafe {
            (driver.cuPointerGetAttribute)((&raw mut value).cast(), attribute, address(pointer))
        };
        match code {
            Code::SUCCESS => Ok(Some(value)),
            // An address that CUDA does not know.
            INVALID_VALUE => Ok(None),
            code => Err(driver.error("cuPointerGetAttribute", code)),
        }
    };
    if figure(MEMORY_TYPE)? != Some(DEVICE_MEMORY) {
        return Ok(None);
    }
    Ok(figure(DEVICE_ORDINAL)?.and_then(|ordinal| usize::try_from(ordinal).ok()))
}
