//! Blocks of device memory, and each device's allocator: what it takes memory from, and its figures.

use std::env;
use std::fmt;
use std::sync::{LazyLock, OnceLock};

use crate::device::{self, MAX_DEVICES};
use crate::driver::Relaxed;
use crate::driver::code::Code;
use crate::driver::driver;
use crate::loading::library;
use crate::memory::allocator::{
    CachingAllocator, EventSource, MemorySource, Piece, SegmentSnapshot, Statistics,
};
use crate::memory::copy;
use crate::work::event::Event;
use crate::work::stream::Stream;
use crate::work::synchronisation;
use torchrs_error::Result;

/// `0` takes every block from the driver, of exactly its bytes, and gives it back at once: for
/// compute-sanitizer, and for guard pages of the simulated GPU.
pub const USE_CACHE: &str = "TORCHRS_CUDA_CACHE";
/// The simulated GPU's adversary, which also spoils memory that is freed into the cache.
const ADVERSARY: &str = "TORCHRS_SIMULATED_ADVERSARY";
/// What spoiled memory holds: a NaN as f32, f16 and bf16, as new memory of the simulated GPU does.
const SPOILED: u32 = 0x7ffb_7ffb;

/// A device's memory and events.
pub struct DeviceSource {
    device: usize,
}

impl MemorySource for DeviceSource {
    fn reserve(&self, bytes: usize) -> Result<Option<u64>> {
        device::bind(self.device)?;
        let driver = driver()?;
        // A capture forbids it otherwise, since it may wait for the device.
        let _relaxed = Relaxed::new()?;
        let mut address = 0;
        // SAFETY: writes one address.
        match unsafe { (driver.cuMemAlloc_v2)(&mut address, bytes) } {
            Code::SUCCESS => Ok(Some(address)),
            Code::OUT_OF_MEMORY => Ok(None),
            code => Err(driver.error("cuMemAlloc", code)),
        }
    }

    fn release(&self, address: u64) -> Result<()> {
        device::bind(self.device)?;
        let _relaxed = Relaxed::new()?;
        // The driver waits for the device before it takes memory back.
        synchronisation::count();
        // SAFETY: a segment of which no chunk is in use, nor waited for.
        unsafe { driver()?.cuMemFree_v2(address) }
    }

    fn info(&self) -> Result<(usize, usize)> {
        device::memory_info(self.device)
    }

    fn name(&self) -> String {
        format!("cuda:{}", self.device)
    }
}

impl EventSource for DeviceSource {
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

    fn retired(&self, address: u64, bytes: usize, stream: Stream) {
        static SPOILS: LazyLock<bool> = LazyLock::new(|| {
            let seed = env::var(ADVERSARY).ok().and_then(|text| text.trim().parse::<u64>().ok());
            library::is_simulated() && seed.is_some()
        });
        if *SPOILS {
            // SAFETY: a chunk that nobody has; what uses it next comes later on the stream. Where
            // the device has failed, there is nothing to spoil.
            let _ = unsafe { copy::fill_words(address as *mut u32, SPOILED, bytes / 4, stream) };
        }
    }
}

/// The allocator of a device.
pub type DeviceAllocator = CachingAllocator<DeviceSource>;

static ALLOCATORS: [OnceLock<DeviceAllocator>; MAX_DEVICES] =
    [const { OnceLock::new() }; MAX_DEVICES];

/// The allocator of a device.
///
/// # Errors
/// [`Error::Device`](torchrs_error::Error::Device) where there is no such device.
#[inline]
pub fn allocator(device: usize) -> Result<&'static DeviceAllocator> {
    match ALLOCATORS.get(device).and_then(OnceLock::get) {
        Some(allocator) => Ok(allocator),
        None => first_use(device),
    }
}

#[cold]
fn first_use(device: usize) -> Result<&'static DeviceAllocator> {
    device::number(device)?;
    Ok(ALLOCATORS[device].get_or_init(|| {
        let source = DeviceSource { device };
        match library::is_off(USE_CACHE) {
            true => CachingAllocator::uncached(source),
            false => CachingAllocator::new(source),
        }
    }))
}

/// A block of device memory, uninitialised, for work on one stream. Dropping it gives it back to
/// the allocator at once: work on its stream that was enqueued before may still use it.
pub struct Block {
    /// Taken out when it is dropped.
    piece: Option<Piece>,
    bytes: usize,
    stream: Stream,
    allocator: &'static DeviceAllocator,
}

impl Block {
    /// A block for work on the calling thread's current stream of a device.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](torchrs_error::Error::OutOfMemory), which says where the memory is.
    pub fn new(bytes: usize, device: usize) -> Result<Block> {
        Block::on(bytes, Stream::current(device)?)
    }

    /// A block for work on a stream.
    ///
    /// # Errors
    /// As [`Block::new`].
    pub fn on(bytes: usize, stream: Stream) -> Result<Block> {
        let allocator = allocator(stream.device())?;
        let piece = Some(allocator.allocate(bytes, stream)?);
        Ok(Block { piece, bytes, stream, allocator })
    }

    #[inline]
    fn piece(&self) -> &Piece {
        self.piece.as_ref().expect("there until it is dropped")
    }

    /// The first byte's address on the device.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.piece().address as *mut u8
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

    /// Bytes that are there.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.piece().size
    }

    /// The device's index.
    #[inline]
    pub fn device(&self) -> usize {
        self.stream.device()
    }

    /// The stream that it was made for.
    #[inline]
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Where its segment begins: what another process can open.
    pub fn segment(&self) -> *mut u8 {
        self.piece().base as *mut u8
    }

    /// Bytes from the segment's beginning.
    pub fn offset(&self) -> usize {
        self.piece().offset()
    }

    /// Work on another stream uses it too: when it is dropped, it waits for that work.
    #[inline]
    pub fn record_stream(&self, stream: Stream) {
        self.allocator.record_stream(self.piece(), stream);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(piece) = self.piece.take() {
            // It fails where the device has failed; the memory is then lost with all else on it.
            let _ = self.allocator.free(piece);
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{} {:p} {} bytes", self.device(), self.as_ptr(), self.bytes)
    }
}

/// A device's allocator in figures.
///
/// # Errors
/// [`Error::Device`](torchrs_error::Error::Device) where there is no such device; so below.
pub fn statistics(device: usize) -> Result<Statistics> {
    allocator(device).map(CachingAllocator::statistics)
}

/// Bytes in use by tensors.
///
/// # Errors
/// As [`statistics`].
pub fn memory_allocated(device: usize) -> Result<usize> {
    statistics(device).map(|statistics| statistics.allocated.current)
}

/// Bytes reserved from the driver.
///
/// # Errors
/// As [`statistics`].
pub fn memory_reserved(device: usize) -> Result<usize> {
    statistics(device).map(|statistics| statistics.reserved.current)
}

/// Lets every peak begin at what is now.
///
/// # Errors
/// As [`statistics`].
pub fn reset_peak(device: usize) -> Result<()> {
    allocator(device).map(CachingAllocator::reset_peak)
}

/// Every segment and chunk of a device.
///
/// # Errors
/// As [`statistics`].
pub fn snapshot(device: usize) -> Result<Vec<SegmentSnapshot>> {
    allocator(device).map(CachingAllocator::snapshot)
}

/// Lets this process reserve at most this part of a device's memory.
///
/// # Errors
/// As [`statistics`]; [`Error::Argument`](torchrs_error::Error::Argument) for what is not in 0 to 1.
pub fn set_memory_fraction(fraction: f64, device: usize) -> Result<()> {
    allocator(device)?.set_fraction(fraction)
}

/// Gives cached memory of all devices, and cached pinned host memory, back to the driver.
///
/// # Errors
/// [`Error::Device`](torchrs_error::Error::Device) for what failed in work that was waited for.
pub fn empty_cache() -> Result<()> {
    for allocator in ALLOCATORS.iter().filter_map(OnceLock::get) {
        allocator.empty_cache()?;
    }
    crate::memory::pinned::empty_cache()
}
