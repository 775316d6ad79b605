//! The table of devices, their figures and contexts, and which device a thread works on.

use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fmt;
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::nowhere::{self, NOWHERE};
use crate::driver::code::Code;
use crate::driver::{self, Context, DeviceNumber, driver};
use crate::memo::once::TryOnce;
use torchrs_error::{Error, Result, throw};

/// The most devices of one process.
pub const MAX_DEVICES: usize = 32;

/// What is known of a device.
struct Entry {
    number: DeviceNumber,
    properties: TryOnce<Properties>,
    context: TryOnce<Context>,
}

fn entries() -> Result<&'static [Entry]> {
    static ENTRIES: OnceLock<Result<Vec<Entry>>> = OnceLock::new();
    ENTRIES.get_or_init(find).as_ref().map(Vec::as_slice).map_err(Error::clone)
}

fn find() -> Result<Vec<Entry>> {
    let driver = driver()?;
    let mut count = 0;
    // SAFETY: writes one number.
    unsafe { driver.cuDeviceGetCount(&mut count) }?;
    if count == 0 {
        return Err(driver.error("cuDeviceGetCount", Code::NO_DEVICE));
    }
    let number = |index| {
        let mut number = 0;
        // SAFETY: an index below the count; writes one number.
        unsafe { driver.cuDeviceGet(&mut number, index) }.map(|()| number)
    };
    let numbers = (0..count.min(MAX_DEVICES as c_int)).map(number);
    numbers
        .map(|number| {
            Ok(Entry { number: number?, properties: TryOnce::new(), context: TryOnce::new() })
        })
        .collect()
}

fn entry(index: usize) -> Result<&'static Entry> {
    let all = entries()?;
    all.get(index).ok_or_else(|| {
        let last = all.len() - 1;
        Error::Device(format!("cuda:{index} is not there; this process has cuda:0 to cuda:{last}"))
    })
}

/// Whether there is a device to use. Never fails, and costs nothing after the first call.
pub fn is_available() -> bool {
    entries().is_ok()
}

/// Why there is no device to use, if there is none.
///
/// # Errors
/// [`Error::Device`] that names what is missing.
pub fn check_available() -> Result<()> {
    entries().map(|_| ())
}

/// How many devices this process may use; 0 where there is no CUDA.
pub fn device_count() -> usize {
    entries().map_or(0, <[Entry]>::len)
}

/// The figures of a device.
#[derive(Clone, Debug)]
pub struct Properties {
    /// The product's name.
    pub name: String,
    /// Its memory in bytes.
    pub total_memory: usize,
    /// Major and minor compute capability: (9, 0) is a Hopper.
    pub capability: (u32, u32),
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Threads that a multiprocessor can hold.
    pub threads_per_multiprocessor: u32,
    /// The most threads of a block.
    pub threads_per_block: u32,
    /// Threads of a warp.
    pub warp_size: u32,
    /// Shared memory of a block in bytes without asking.
    pub shared_memory_per_block: usize,
    /// Shared memory of a block in bytes for kernels that ask for more.
    pub shared_memory_per_block_optin: usize,
    /// Second-level cache in bytes.
    pub l2_cache: usize,
    /// The identity of the device, the same in every process.
    pub uuid: Uuid,
    /// Domain, bus, device and function, as in `0000:1b:00.0`.
    pub pci_bus_id: String,
}

/// The identity of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    /// As `nvidia-smi -L` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (i, byte) in self.0.iter().enumerate() {
            let dash = if [0, 4, 6, 8, 10].contains(&i) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The figures of a device.
///
/// # Errors
/// [`Error::Device`] where there is no such device.
pub fn properties(index: usize) -> Result<&'static Properties> {
    if index == NOWHERE {
        return Ok(nowhere::properties());
    }
    let entry = entry(index)?;
    entry.properties.get_or_try(|| ask(entry.number))
}

fn ask(number: DeviceNumber) -> Result<Properties> {
    let driver = driver()?;
    let figure = |attribute: c_int| {
        let mut value = 0;
        // SAFETY: a device of the driver; writes one number.
        unsafe { driver.cuDeviceGetAttribute(&mut value, attribute, number) }?;
        Ok::<u32, Error>(value as u32)
    };
    let text = |bytes: &[c_char]| {
        // SAFETY: the driver ended the text with a zero within the bytes.
        unsafe { CStr::from_ptr(bytes.as_ptr()) }.to_string_lossy().into_owned()
    };
    let (mut name, mut pci) = ([0 as c_char; 256], [0 as c_char; 32]);
    let (mut total_memory, mut uuid) = (0, [0; 16]);
    // SAFETY: room for as many bytes as is said; a device of the driver.
    unsafe {
        driver.cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, number)?;
        driver.cuDeviceGetPCIBusId(pci.as_mut_ptr(), pci.len() as c_int, number)?;
        driver.cuDeviceTotalMem_v2(&mut total_memory, number)?;
        driver.cuDeviceGetUuid_v2(&mut uuid, number)?;
    }
    Ok(Properties {
        name: text(&name),
        total_memory,
        capability: (figure(75)?, figure(76)?),
        multiprocessors: figure(16)?,
        threads_per_multiprocessor: figure(39)?,
        threads_per_block: figure(1)?,
        warp_size: figure(10)?,
        shared_memory_per_block: figure(8)? as usize,
        shared_memory_per_block_optin: figure(97)? as usize,
        l2_cache: figure(38)? as usize,
        uuid: Uuid(uuid),
        pci_bus_id: text(&pci).to_lowercase(),
    })
}

/// The driver's number of a device.
pub(crate) fn number(index: usize) -> Result<DeviceNumber> {
    entry(index).map(|entry| entry.number)
}

/// The device with an identity, if this process may use it.
pub(crate) fn with_uuid(uuid: Uuid) -> Result<Option<usize>> {
    for index in 0..entries()?.len() {
        if properties(index)?.uuid == uuid {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// A device's context, made at the first call.
pub(crate) fn context(index: usize) -> Result<Context> {
    let entry = entry(index)?;
    let retained = entry.context.get_or_try(|| {
        let mut context = Context::default();
        // It may be made only now, beside another device's capture.
        let _relaxed = driver::Relaxed::new()?;
        // SAFETY: a device of the driver; writes one handle. It is kept until the process ends.
        unsafe { driver()?.cuDevicePrimaryCtxRetain(&mut context, entry.number) }?;
        Ok(context)
    });
    retained.copied()
}

thread_local! {
    /// The device that new tensors of this thread are on.
    static CURRENT: Cell<usize> = Cell::new(first());
    /// The device whose context the driver has for this thread.
    static BOUND: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Makes a device's context the driver's one for this thread. Whatever is then called works on it.
#[inline]
pub(crate) fn bind(index: usize) -> Result<()> {
    if BOUND.get() == index { Ok(()) } else { bind_anew(index) }
}

#[cold]
fn bind_anew(index: usize) -> Result<()> {
    let context = context(index)?;
    // SAFETY: a context that is kept until the process ends.
    unsafe { driver()?.cuCtxSetCurrent(context) }?;
    BOUND.set(index);
    Ok(())
}

/// Which of a host's processes this is.
const LOCAL_RANK: &str = "LOCAL_RANK";

/// The device that threads begin with: a job's workers have one each, by `LOCAL_RANK`; else the first.
fn first() -> usize {
    static FIRST: OnceLock<usize> = OnceLock::new();
    *FIRST.get_or_init(|| {
        let text = std::env::var_os(LOCAL_RANK);
        let rank = local_rank(text.as_deref()).unwrap_or_else(|error| throw(error));
        rank.map_or(0, |rank| rank % device_count().max(1))
    })
}

/// The number that `LOCAL_RANK` holds, if it is set.
fn local_rank(text: Option<&OsStr>) -> Result<Option<usize>> {
    let Some(text) = text else { return Ok(None) };
    match text.to_str().and_then(|text| text.trim().parse().ok()) {
        Some(rank) => Ok(Some(rank)),
        None => {
            let shown = text.to_string_lossy();
            Err(Error::config(
                LOCAL_RANK,
                format!("`{shown}` is not the number of a process of this host"),
            ))
        }
    }
}

/// The calling thread's current device; at first `LOCAL_RANK` of the environment, which the launcher
/// sets, else 0.
#[inline]
pub fn current() -> usize {
    CURRENT.get()
}

/// Makes a device the calling thread's current one.
///
/// # Errors
/// [`Error::Device`] where there is no such device.
pub fn set_current(index: usize) -> Result<()> {
    entry(index)?;
    CURRENT.set(index);
    Ok(())
}

/// Makes a device the thread's current one until it is dropped.
#[must_use = "the device is current only while the guard lives"]
pub struct DeviceGuard {
    before: usize,
    /// Belongs to the thread whose device it changed.
    _thread: PhantomData<*const ()>,
}

impl DeviceGuard {
    /// Makes `index` current.
    ///
    /// # Errors
    /// [`Error::Device`] where there is no such device.
    pub fn new(index: usize) -> Result<DeviceGuard> {
        let before = current();
        set_current(index)?;
        Ok(DeviceGuard { before, _thread: PhantomData })
    }
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

/// Free and total bytes of a device, of all processes together.
///
/// # Errors
/// [`Error::Device`] where there is no such device.
pub fn memory_info(index: usize) -> Result<(usize, usize)> {
    bind(index)?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: writes two numbers.
    unsafe { driver()?.cuMemGetInfo_v2(&mut free, &mut total) }?;
    Ok((free, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_written_as_nvidia_smi_does() {
        let uuid = Uuid(std::array::from_fn(|i| 17 * i as u8));
        assert_eq!(uuid.to_string(), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn a_local_rank_that_is_no_number_is_an_error() {
        assert_eq!(local_rank(None).unwrap(), None);
        assert_eq!(local_rank(Some(OsStr::new(" 3"))).unwrap(), Some(3));
        for text in ["", "one", "-1", "1.5"] {
            let error = local_rank(Some(OsStr::new(text))).unwrap_err().to_string();
            assert!(error.starts_with(&format!("LOCAL_RANK: `{text}`")), "{error}");
        }
    }
}
