//! Bytes and who owns them: the caching host allocator and memory shared between processes.
//!
//! Knows nothing of `tensor`, `autograd` and `ops`: a storage has bytes and a device, no shape and no
//! type.
//!
//! A [`Storage`] is what several tensors (views) have in common: the memory and the version
//! counter by which autograd notices in-place changes.
//!
//! ```
//! use torchrs::Tensor;
//! let x = Tensor::from([[1f32, 2.], [3., 4.]]);
//! let y = x.t();
//! assert!(x.storage().ptr_eq(y.storage()));
//! y.fill_(5.0);
//! assert_eq!((x.version(), x.to_vec::<f32>()), (1, vec![5.0; 4]));
//! ```

mod arena;
mod device;
mod foreign;
pub(crate) mod grace;
#[doc(hidden)]
pub mod host;
pub(crate) mod living;
mod meta;
pub(crate) use meta::{no_values, set_building};
pub(crate) mod on_demand;
mod opened;
pub(crate) mod race;
pub mod shared;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};

use memmap2::MmapRaw;
use parking_lot::Mutex;

pub use device::Device;
pub(crate) use foreign::Lent;
pub use host::{HostBlock, MemoryStats, empty_cache, memory_stats};
pub use living::set_host_memory_limit;
pub(crate) use opened::{Name, Opened, ready_event};
pub use shared::SharedMemory;

use self::foreign::{Foreign, Ties};
use self::on_demand::OnDemand;
use crate::counted::{Counted, Slot, WeakCounted, counted};
use crate::cuda;
use crate::error::{Error, Result, throw};

/// Who keeps the bytes alive.
#[derive(Debug)]
enum Owner {
    /// While a storage is made.
    Nobody,
    Host(#[allow(dead_code, reason = "held for its drop")] HostBlock),
    /// A range of memory that several processes map, starting `start` bytes into the mapping.
    Shared {
        memory: Arc<SharedMemory>,
        start: usize,
        _guard: Option<Guard>,
    },
    /// Memory of a GPU.
    Cuda(OnGpu),
    /// Memory of a GPU that belongs to another process.
    Opened(Box<Opened>),
    /// A range of a file, in a private mapping: what is written stays in this process.
    File(#[allow(dead_code, reason = "held for its drop")] Arc<MmapRaw>),
    /// Memory that another library or value owns.
    Foreign(Box<Foreign>),
    /// Memory that comes and goes.
    OnDemand(Box<OnDemand>),
    /// No memory, and what those above note instead of values.
    Meta(meta::Notes),
}

/// A block of a GPU, and what is needed once another process is to use it.
#[derive(Debug)]
struct OnGpu {
    /// Before the block: it is forgotten before others can get its address.
    _known: Known,
    block: cuda::Block,
    sent: Option<(cuda::Event, u64)>,
    /// How many graphs had been recorded when it was made: later ones may use its address.
    made: u64,
}

/// A GPU's block among the living ones.
#[derive(Debug)]
struct Known(Option<(Device, usize, usize)>);

impl Drop for Known {
    fn drop(&mut self) {
        if let Some((device, address, nbytes)) = self.0 {
            living::freed(device, address, nbytes);
        }
    }
}

/// Memory of a GPU as another process gets it.
pub(crate) enum DeviceMemory<'a> {
    /// Of this process: the block, an event to record, and the storage's number.
    Own { block: &'a cuda::Block, ready: &'a cuda::Event, number: u64 },
    /// Of another one.
    Opened(&'a Opened),
}

struct Guard(#[allow(dead_code, reason = "held for its drop")] Box<dyn Any + Send + Sync>);

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard")
    }
}

#[derive(Debug)]
struct Inner {
    /// Changes only in `share_memory`, and where memory comes and goes: null while it is away.
    ptr: AtomicPtr<u8>,
    nbytes: usize,
    version: AtomicU32,
    device: Device,
    ties: Ties,
    owner: Mutex<Owner>,
    tracked: race::Tracked,
}

const ALONE: &str = "nobody else has a new storage";

#[cold]
#[track_caller]
fn not_on_host(device: Device) -> ! {
    if device.is_meta() {
        meta::no_values(None);
    }
    throw(Error::Device(format!(
        "the tensor is on {device}, and this computes on the CPU; move it there with `.to_device(Device::Cpu)`"
    )))
}

/// Reference-counted bytes with a version counter. Clones are the same storage.
///
/// ```
/// use torchrs::storage::Storage;
/// let storage = Storage::host(64);
/// assert_eq!((storage.nbytes(), storage.version()), (64, 0));
/// assert!(storage.is_unique() && storage.clone().ptr_eq(&storage));
/// ```
#[derive(Clone, Debug)]
pub struct Storage(Slot<Inner>);

/// A [`Storage`] that may be gone.
pub(crate) struct WeakStorage(WeakCounted<Inner>);

impl WeakStorage {
    /// The storage, if some tensor still has it.
    pub fn upgrade(&self) -> Option<Storage> {
        self.0.upgrade().map(|inner| Storage(Slot::new(inner)))
    }
}

impl Storage {
    /// Uninitialised host memory from the caching allocator.
    ///
    /// ```
    /// use torchrs::storage::Storage;
    /// let (a, b) = (Storage::host(100), Storage::host(100));
    /// assert_eq!(a.nbytes(), 100);
    /// assert!(!a.ptr_eq(&b) && a.as_ptr() != b.as_ptr());
    /// ```
    #[track_caller]
    #[inline]
    pub fn host(nbytes: usize) -> Self {
        let mut new = Self::without_memory(nbytes, Device::Cpu);
        let inner = new.get_mut().expect(ALONE);
        // Last, so that it goes from registers to its place.
        let block = HostBlock::new(nbytes);
        *inner.ptr.get_mut() = block.as_ptr();
        *inner.owner.get_mut() = Owner::Host(block);
        Storage(Slot::new(new))
    }

    /// Uninitialised memory of a device, from its caching allocator.
    ///
    /// # Panics
    /// Throws when there is no such device, or no memory left on it.
    #[track_caller]
    #[inline]
    pub fn on(device: Device, nbytes: usize) -> Self {
        match device {
            Device::Cpu => Self::host(nbytes),
            Device::Cuda(index) => Self::on_cuda(index, nbytes),
            Device::Meta => Self::meta(nbytes),
        }
    }

    #[cold]
    #[track_caller]
    fn on_cuda(index: usize, nbytes: usize) -> Self {
        match cuda::Block::new(nbytes, index) {
            Ok(block) => {
                let ptr = block.as_ptr();
                let device = Device::Cuda(index);
                let is_told = nbytes >= living::LARGE || living::is_watched();
                let known = is_told.then_some((device, ptr.addr(), nbytes));
                if is_told {
                    living::made(device, ptr.addr(), nbytes);
                }
                let (made, _known) = (cuda::graph::recorded(), Known(known));
                let owner = Owner::Cuda(OnGpu { block, sent: None, made, _known });
                Self::new(ptr, nbytes, Device::Cuda(index), owner)
            }
            Err(Error::OutOfMemory(message)) => {
                throw(Error::OutOfMemory(message + &living::report(Device::Cuda(index))))
            }
            Err(error) => throw(error),
        }
    }

    /// Memory of another process's GPU.
    pub(crate) fn opened(opened: Opened) -> Self {
        let (ptr, bytes, device) = (opened.as_ptr(), opened.len(), Device::Cuda(opened.device()));
        Self::new(ptr, bytes, device, Owner::Opened(Box::new(opened)))
    }

    /// Calls `f` with what another process needs of memory on a GPU.
    pub(crate) fn with_device_memory<T>(
        &self,
        f: impl FnOnce(DeviceMemory<'_>) -> Result<T>,
    ) -> Result<T> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        match &mut *self.0.owner.lock() {
            Owner::Cuda(OnGpu { block, sent, .. }) => {
                if sent.is_none() {
                    *sent = Some((ready_event(block.device())?, NEXT.fetch_add(1, Relaxed)));
                }
                let Some((ready, number)) = &*sent else { unreachable!("made above") };
                f(DeviceMemory::Own { block, ready, number: *number })
            }
            Owner::Opened(opened) => f(DeviceMemory::Opened(opened)),
            Owner::Foreign(_) if self.0.device.is_cuda() => Err(Error::Other(
                "memory that another library owns is not sent to other processes; send a clone"
                    .to_owned(),
            )),
            _ => Err(Error::Other("a storage in host memory has no GPU's handle".to_owned())),
        }
    }

    /// `nbytes` bytes of a shared mapping from `start` on. `guard`, if any, is dropped with the
    /// last tensor that uses the storage: a loader slot returns to its worker by it.
    ///
    /// ```
    /// use torchrs::storage::{SharedMemory, Storage};
    /// let memory = SharedMemory::create("example", 4096)?;
    /// let storage = Storage::shared(memory.clone(), 1024, 64, None);
    /// assert_eq!(storage.as_ptr() as usize - memory.as_ptr() as usize, 1024);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    #[track_caller]
    pub fn shared(
        memory: Arc<SharedMemory>,
        start: usize,
        nbytes: usize,
        guard: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        assert!(
            start.checked_add(nbytes).is_some_and(|end| end <= memory.len()),
            "range {start}..+{nbytes} is outside the mapping of {} bytes",
            memory.len()
        );
        // SAFETY: the offset is inside the mapping, as just checked.
        let ptr = unsafe { memory.as_ptr().add(start) };
        Self::new(
            ptr,
            nbytes,
            Device::Cpu,
            Owner::Shared { memory, start, _guard: guard.map(Guard) },
        )
    }

    /// `nbytes` bytes of a private (copy-on-write) mapping of a file from `start` on.
    ///
    /// # Panics
    /// If the range is not inside the mapping.
    pub(crate) fn of_file(map: &Arc<MmapRaw>, start: usize, nbytes: usize) -> Self {
        let inside = start.checked_add(nbytes).is_some_and(|end| end <= map.len());
        assert!(inside, "range {start}..+{nbytes} is outside the mapping of {} bytes", map.len());
        // SAFETY: the offset is inside the mapping, as just checked.
        let ptr = unsafe { map.as_mut_ptr().add(start) };
        Self::new(ptr, nbytes, Device::Cpu, Owner::File(map.clone()))
    }

    fn new(ptr: *mut u8, nbytes: usize, device: Device, owner: Owner) -> Self {
        let mut new = Self::without_memory(nbytes, device);
        let inner = new.get_mut().expect(ALONE);
        if !matches!(owner, Owner::Host(_) | Owner::File(_)) {
            inner.tracked.exempt();
        }
        (*inner.ptr.get_mut(), *inner.owner.get_mut()) = (ptr, owner);
        Storage(Slot::new(new))
    }

    #[inline(always)]
    fn without_memory(nbytes: usize, device: Device) -> Counted<Inner> {
        counted!(Inner {
            ptr: AtomicPtr::default(),
            nbytes: nbytes,
            version: AtomicU32::new(0),
            device: device,
            ties: Ties::new(),
            owner: Mutex::new(Owner::Nobody),
            tracked: race::Tracked::new(),
        })
    }

    /// The first byte, in host memory.
    ///
    /// ```
    /// let x = torchrs::Tensor::from([5i64, 6]);
    /// // SAFETY: the storage holds two i64.
    /// assert_eq!(unsafe { x.storage().as_ptr().cast::<i64>().add(1).read() }, 6);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Device`] for memory of a GPU, which the host cannot read.
    #[track_caller]
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        if self.0.device != Device::Cpu {
            not_on_host(self.0.device);
        }
        self.address()
    }

    /// The first byte's address on the storage's [`device`](Self::device). That of a parameter sharded over ranks is
    /// valid until the end of the running op, or of the next one.
    #[track_caller]
    #[inline]
    pub fn address(&self) -> *mut u8 {
        let address = self.0.ptr.load(Acquire);
        if address.is_null() { self.bring() } else { address }
    }

    /// Where the bytes are.
    #[inline]
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// Size in bytes.
    #[inline]
    pub fn nbytes(&self) -> usize {
        self.0.nbytes
    }

    /// How often the bytes were changed in place.
    #[inline]
    pub fn version(&self) -> u32 {
        self.0.version.load(Relaxed)
    }

    /// Notes for the running op, in debug builds, that it uses these elements.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn note(&self, how: race::Use, place: race::Elements<'_>) {
        self.0.tracked.note(how, place);
    }

    /// Notes, in debug builds, that something in the background uses these elements.
    pub(crate) fn note_in_flight(
        &self,
        by: &mut race::InFlight,
        how: race::Use,
        place: race::Elements<'_>,
    ) {
        self.0.tracked.note_in_flight(by, how, place);
    }

    /// Counts an in-place change.
    ///
    /// ```
    /// use torchrs::{Tensor, catch};
    /// let x = Tensor::from([1f64]).requires_grad_(true);
    /// let y = x.exp(); // its backward needs y
    /// // SAFETY: nobody else uses the storage meanwhile.
    /// unsafe { y.as_mut_slice::<f64>()[0] = 0.0 };
    /// y.storage().bump_version();
    /// assert!(catch(|| y.backward()).is_err());
    /// ```
    #[inline]
    pub fn bump_version(&self) {
        debug_assert!(!self.is_read_only(), "a write to read-only memory was not refused");
        self.0.version.fetch_add(1, Relaxed);
        if self.0.device.is_meta() {
            self.count_change();
        }
    }

    /// True when both are the same storage.
    #[inline]
    pub fn ptr_eq(&self, other: &Storage) -> bool {
        self.0.ptr_eq(&other.0)
    }

    /// True when no other tensor, saved tensor or view uses these bytes. Never of memory that another library owns.
    ///
    /// ```
    /// let x = torchrs::Tensor::from([1f32, 2.]);
    /// assert!(x.storage().is_unique());
    /// let first = x.narrow(0, 0, 1);
    /// assert!(!first.storage().is_unique());
    /// ```
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.owners() == 1
    }

    /// How many tensors have these bytes; another library or value that owns them is one more.
    #[inline]
    pub(crate) fn owners(&self) -> usize {
        self.0.owners() + usize::from(self.0.ties.is_foreign())
    }

    /// The mapping and the position in it, if the bytes are shared with other processes.
    ///
    /// ```
    /// let x = torchrs::Tensor::from([1f32, 2.]);
    /// assert!(x.storage().shared_range().is_none());
    /// x.storage().share_memory()?;
    /// let (memory, start) = x.storage().shared_range().unwrap();
    /// assert_eq!((memory.len(), start), (8, 0));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn shared_range(&self) -> Option<(Arc<SharedMemory>, usize)> {
        match &*self.0.owner.lock() {
            Owner::Shared { memory, start, .. } => Some((memory.clone(), *start)),
            _ => None,
        }
    }

    /// True when the bytes go back to a lender with the last tensor that uses them (the guard of
    /// [`shared`](Self::shared)).
    pub(crate) fn is_lent(&self) -> bool {
        matches!(&*self.0.owner.lock(), Owner::Shared { _guard: Some(_), .. })
    }

    /// True when a device reads and writes the bytes by itself: a loader's slot, which is pinned at the first
    /// call, as are all others of its memory.
    pub(crate) fn pin_if_lent(&self) -> bool {
        match &*self.0.owner.lock() {
            Owner::Shared { memory, _guard: Some(_), .. } => memory.pin(),
            _ => false,
        }
    }

    /// Work on another stream than the one for which memory of a GPU was taken uses it too.
    pub(crate) fn record_stream(&self, stream: cuda::Stream) {
        match &*self.0.owner.lock() {
            Owner::Cuda(OnGpu { block, .. }) => block.record_stream(stream),
            Owner::Opened(opened) => opened.record_stream(stream),
            Owner::Foreign(foreign) => foreign.record_stream(stream),
            Owner::OnDemand(own) => {
                own.memory().into_iter().for_each(|memory| memory.record_stream(stream));
            }
            Owner::Nobody
            | Owner::Host(_)
            | Owner::Shared { .. }
            | Owner::File(_)
            | Owner::Meta(_) => {}
        }
    }

    /// True when a graph that still lives may read and write these bytes: it was recorded after they were
    /// there.
    pub(crate) fn may_be_recorded(&self) -> bool {
        match &*self.0.owner.lock() {
            Owner::Cuda(OnGpu { block, made, .. }) => {
                cuda::graph::is_alive_since(block.device(), *made)
            }
            _ => false,
        }
    }

    /// Puts other bytes, which nobody else has, in place of these: for this handle, not for its clones.
    /// The version goes on, so that it tells of the change.
    ///
    /// # Safety
    /// *Sole use*: no other thread uses this handle meanwhile, and no address that came from it is used after this.
    pub(crate) unsafe fn replace(&self, other: Storage) {
        debug_assert!(other.is_unique(), "the version of bytes that others have would jump");
        other.0.version.store(self.version().wrapping_add(1), Relaxed);
        // SAFETY: *Sole use* of the handle, and so of its slot; references to what is inside never leave these methods.
        drop(unsafe { self.0.replace(other.0) });
    }

    /// Makes this handle one of another storage, which is new, and others may have. The version goes on.
    ///
    /// # Safety
    /// *Sole use*, as of [`replace`](Self::replace).
    pub(crate) unsafe fn become_other(&self, other: &Storage) {
        other.0.version.fetch_max(self.version().wrapping_add(1), Relaxed);
        // SAFETY: as in `replace`.
        drop(unsafe { self.0.replace(other.clone().0) });
    }

    /// The same bytes in new shared memory of their own.
    pub(crate) fn shared_copy(&self) -> Result<Storage> {
        let memory = SharedMemory::create("tensor", self.0.nbytes)?;
        // SAFETY: both ranges are `nbytes` long and distinct.
        unsafe { memory.as_ptr().copy_from_nonoverlapping(self.as_ptr(), self.0.nbytes) };
        Ok(Self::shared(memory, 0, self.0.nbytes, None))
    }

    /// A reference that does not keep the bytes.
    pub(crate) fn downgrade(&self) -> WeakStorage {
        WeakStorage(self.0.downgrade())
    }

    /// Moves the bytes into shared memory, for all tensors that use them
    /// (`torch.UntypedStorage.share_memory_`). Nothing happens if they are there already. No other
    /// thread may use the storage meanwhile.
    ///
    /// ```
    /// let x = torchrs::Tensor::from([1f32, 2.]);
    /// let view = x.narrow(0, 1, 1);
    /// x.storage().share_memory()?;
    /// x.fill_(5.0);
    /// assert_eq!(view.item(), 5.0); // the view has moved too
    /// assert!(view.storage().shared_range().is_some());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when there is no memory or descriptor left; [`Error::Argument`] for memory that another library or
    /// value owns or has been lent.
    pub fn share_memory(&self) -> Result<()> {
        // Other processes can open it as it is.
        if self.0.device.is_cuda() {
            return Ok(());
        }
        if self.0.device.is_meta() {
            return Err(Error::Device(
                "share_memory: a tensor on meta has no memory; give it some with `Module::to_empty`".to_owned(),
            ));
        }
        let mut owner = self.0.owner.lock();
        if matches!(&*owner, Owner::OnDemand(_)) {
            return Err(Error::Other(
                "memory that comes and goes, of a sharded parameter, is shared with nobody; clone the tensor first"
                    .to_owned(),
            ));
        }
        if !matches!(&*owner, Owner::Shared { .. }) {
            self.check_movable()?;
            let memory = SharedMemory::create("tensor", self.0.nbytes)?;
            // SAFETY: both ranges are `nbytes` long and distinct; the old block is alive in `owner`.
            unsafe { memory.as_ptr().copy_from_nonoverlapping(self.as_ptr(), self.0.nbytes) };
            self.0.ptr.store(memory.as_ptr(), Relaxed);
            self.0.tracked.exempt();
            *owner = Owner::Shared { memory, start: 0, _guard: None };
        }
        Ok(())
    }
}
