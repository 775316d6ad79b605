//! Pinned host memory, which devices read and write by themselves while the host goes on: blocks
//! from a cache, and memory that exists already (a loader's arena, a shared file) and is registered.
//! All devices can use either.

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::device;
use crate::driver::Relaxed;
use crate::driver::code::Code;
use crate::driver::driver;
use crate::memory::allocator::{EventSource, MemorySource};
use crate::memory::host_cache::{HostCache, Users};
use crate::work::event::Event;
use crate::work::recording::Read;
use crate::work::stream::Stream;
use crate::work::synchronisation;
use torchrs_error::Result;

/// Pinned for the contexts of all devices.
const PORTABLE: c_uint = 1;

/// Pinned memory of this process by its first address, with its length.
static RANGES: RwLock<BTreeMap<usize, usize>> = RwLock::new(BTreeMap::new());

/// Whether memory is pinned as far as torchrs knows: copies to and from it do not wait.
pub fn is_pinned(start: *const u8, bytes: usize) -> bool {
    let start = start as usize;
    let ranges = RANGES.read();
    let below = ranges.range(..=start).next_back();
    below.is_some_and(|(&at, &len)| start + bytes <= at + len)
}

/// Pinned memory of the driver.
struct PinnedSource;

impl MemorySource for PinnedSource {
    fn reserve(&self, bytes: usize) -> Result<Option<u64>> {
        device::bind(device::current())?;
        let _relaxed = Relaxed::new()?;
        let driver = driver()?;
        let mut address = null_mut();
        // SAFETY: writes one address.
        match unsafe { (driver.cuMemHostAlloc)(&mut address, bytes, PORTABLE) } {
            Code::SUCCESS => {
                RANGES.write().insert(address as usize, bytes);
                Ok(Some(address as u64))
            }
            Code::OUT_OF_MEMORY => Ok(None),
            code => Err(driver.error("cuMemHostAlloc", code)),
        }
    }

    fn release(&self, address: u64) -> Result<()> {
        device::bind(device::current())?;
        let _relaxed = Relaxed::new()?;
        RANGES.write().remove(&(address as usize));
        synchronisation::count();
        // SAFETY: a block that is not in use, nor waited for.
        unsafe { driver()?.cuMemFreeHost(address as *mut c_void) }
    }

    fn info(&self) -> Result<(usize, usize)> {
        Ok((0, 0))
    }

    fn name(&self) -> String {
        "pinned host memory".to_owned()
    }
}

impl EventSource for PinnedSource {
    type Stream = Stream;
    type Event = Event;

    fn record(&self, stream: Stream) -> Result<Event> {
        stream.record_event()
    }

    fn is_reached(&self, event: &Event) -> Result<bool> {
        event.query()
    }

    fn wait(&self, event: &Event) -> Result<()> {
        event.finish()
    }

    fn is_capturing(&self, stream: Stream) -> Result<bool> {
        stream.is_capturing()
    }
}

static CACHE: Mutex<HostCache<PinnedSource>> = Mutex::new(HostCache::new());

/// A block of pinned host memory, uninitialised. Dropping it gives it back to the cache, where it
/// waits for the streams that used it.
pub struct PinnedBlock {
    address: u64,
    size: usize,
    bytes: usize,
    users: Mutex<Users<Stream>>,
}

impl PinnedBlock {
    /// A block of at least so many bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](torchrs_error::Error::OutOfMemory) where the system gives no more.
    pub fn new(bytes: usize) -> Result<PinnedBlock> {
        let (address, size) = CACHE.lock().allocate(&PinnedSource, bytes)?;
        Ok(PinnedBlock { address, size, bytes, users: Mutex::default() })
    }

    /// The first byte.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.address as *mut u8
    }

    /// Bytes that were asked for.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether no bytes were asked for.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Work on a stream uses it: when it is dropped, it waits for that work. To be called for
    /// every copy from or to it.
    pub fn record_stream(&self, stream: Stream) {
        let mut users = self.users.lock();
        if !users.contains(&stream) {
            users.push(stream);
        }
    }
}

impl Read for PinnedBlock {
    fn is_read_on(&self, stream: Stream) {
        self.record_stream(stream);
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        let users = std::mem::take(self.users.get_mut());
        // It fails where the device has failed; the block is then not used again.
        let _ = CACHE.lock().free(&PinnedSource, (self.address, self.size), users);
    }
}

impl fmt::Debug for PinnedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pinned {:p} {} bytes", self.as_ptr(), self.bytes)
    }
}

/// Pinned bytes in use by blocks, and reserved for them.
pub fn statistics() -> (usize, usize) {
    let cache = CACHE.lock();
    (cache.allocated, cache.reserved)
}

/// Gives free blocks back to the driver.
///
/// # Errors
/// [`Error::Device`](torchrs_error::Error::Device) for what failed in work that used them.
pub fn empty_cache() -> Result<()> {
    let mut cache = CACHE.lock();
    if cache.reserved == 0 {
        return Ok(());
    }
    cache.poll(&PinnedSource)?;
    cache.release_free(&PinnedSource)
}

/// How often memory was registered.
static REGISTRATIONS: AtomicU64 = AtomicU64::new(0);

/// How often this process has pinned memory that existed already, such as the memory of a loader's batches, which is
/// pinned once.
pub fn registrations() -> u64 {
    REGISTRATIONS.load(Ordering::Relaxed)
}

/// Memory that is pinned while this lives.
#[derive(Debug)]
#[must_use = "the memory is pinned only while this lives"]
pub struct Registration<'a> {
    start: *mut u8,
    bytes: usize,
    device: usize,
    _memory: PhantomData<&'a [u8]>,
}

// SAFETY: the address is only passed to the driver, which may be called from any thread.
unsafe impl Send for Registration<'_> {}
// SAFETY: as above.
unsafe impl Sync for Registration<'_> {}

/// Pins memory that exists, for all devices. It takes time in proportion to the size and is meant
/// for memory that is used again and again.
///
/// # Errors
/// [`Error::Device`](torchrs_error::Error::Device) where it is pinned already, or the system refuses.
///
/// # Safety
/// The memory stays mapped until the registration is dropped, and all copies from and to it have been
/// done by then.
pub unsafe fn register<'a>(start: *mut u8, bytes: usize) -> Result<Registration<'a>> {
    let device = device::current();
    device::bind(device)?;
    let _relaxed = Relaxed::new()?;
    // SAFETY: mapped memory, as the caller says.
    unsafe { driver()?.cuMemHostRegister_v2(start.cast(), bytes, PORTABLE) }?;
    REGISTRATIONS.fetch_add(1, Ordering::Relaxed);
    RANGES.write().insert(start as usize, bytes);
    Ok(Registration { start, bytes, device, _memory: PhantomData })
}

impl Registration<'_> {
    /// The first byte.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// How many bytes are pinned.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether none are.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The address by which kernels on the current device reach it.
    ///
    /// # Errors
    /// [`Error::Device`](torchrs_error::Error::Device) where the device cannot.
    pub fn device_ptr(&self) -> Result<*mut u8> {
        device::bind(device::current())?;
        let mut address = 0;
        // SAFETY: pinned memory; writes one address.
        unsafe { driver()?.cuMemHostGetDevicePointer_v2(&mut address, self.start.cast(), 0) }?;
        Ok(address as *mut u8)
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        RANGES.write().remove(&(self.start as usize));
        if let (Ok(()), Ok(driver), Ok(_relaxed)) =
            (device::bind(self.device), driver(), Relaxed::new())
        {
            // SAFETY: memory that `register` pinned, and that no copy uses.
            let _ = unsafe { (driver.cuMemHostUnregister)(self.start.cast()) };
        }
    }
}
