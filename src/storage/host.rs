//! The caching allocator of host memory. Freed blocks are kept: memory that goes back to the system
//! costs a page fault per 4 KiB when it is needed again, on every training step.
//!
//! Sizes to 256 KiB are rounded up to one of four classes per power of two (at most 25% waste). Each
//! thread keeps a few free blocks of each class without a lock, and counts for itself what it takes;
//! others wait in one locked list per class. Larger blocks are pieces of one arena.
//!
//! ```
//! use torchrs::{Dtype, Tensor};
//! let x = Tensor::zeros([1000], Dtype::F32);
//! let address = x.data_ptr();
//! drop(x);
//! assert_eq!(Tensor::ones([990], Dtype::F32).data_ptr(), address);
//! ```

use std::alloc::{Layout, alloc, dealloc};
use std::cell::Cell;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::{Device, arena, living};
use crate::error::{Error, throw};

/// Blocks start at a cache line, which is also what the widest vector loads want.
///
/// ```
/// use torchrs::{Tensor, storage::host::ALIGNMENT};
/// assert_eq!(Tensor::from([1u8]).data_ptr() as usize % ALIGNMENT, 0);
/// ```
pub const ALIGNMENT: usize = 64;
/// Larger blocks are pieces of the arena.
const LARGEST_CLASS: usize = 256 << 10;
/// Free blocks kept per class and thread.
const PER_THREAD: u8 = 16;
const CLASSES: usize = class_of(LARGEST_CLASS) + 1;

/// Class of a size: 64, then 4 steps per doubling.
#[inline]
const fn class_of(nbytes: usize) -> usize {
    let n = if nbytes < ALIGNMENT { ALIGNMENT } else { nbytes };
    let log = (n - 1).ilog2() as usize;
    // `n` lies in (2^log, 2^(log+1)]; which quarter of it?
    let quarter = ((n - 1) >> (log - 2)) & 3;
    4 * (log - 5) + quarter
}

/// Size of the blocks of a class.
#[inline]
const fn class_size(class: usize) -> usize {
    let (log, quarter) = (class / 4 + 5, class % 4);
    ((1 << log) + ((quarter + 1) << (log - 2))).next_multiple_of(ALIGNMENT)
}

fn layout_of(class: usize) -> Layout {
    Layout::from_size_align(class_size(class), ALIGNMENT).expect("classes are small")
}

struct FreeList(Vec<NonNull<u8>>);
// SAFETY: the pointers in a free list are owned by it: nobody else reads or writes those blocks.
unsafe impl Send for FreeList {}

static FREE: [Mutex<FreeList>; CLASSES] = [const { Mutex::new(FreeList(Vec::new())) }; CLASSES];
/// Bytes of all blocks of a class.
static RESERVED: AtomicUsize = AtomicUsize::new(0);

/// Bytes that threads have taken, less those that they gave back: a number for each thread, because
/// one for all would cost more than the rest of a small block's way. What a thread frees of
/// another's makes its own number negative. Numbers of threads that have ended go on with new ones.
struct Counters {
    all: Vec<&'static AtomicIsize>,
    without_thread: Vec<&'static AtomicIsize>,
}

static COUNTERS: Mutex<Counters> =
    Mutex::new(Counters { all: Vec::new(), without_thread: Vec::new() });
/// The number of threads that are about to end.
static ENDING: AtomicIsize = AtomicIsize::new(0);

/// The calling thread's free blocks and its number of bytes in use; the blocks go to the shared
/// lists when the thread ends.
struct ThreadCache {
    /// The first free block of each class, which starts with the address of the next one.
    first: [Cell<*mut u8>; CLASSES],
    count: [Cell<u8>; CLASSES],
    in_use: Cell<Option<&'static AtomicIsize>>,
}

thread_local! {
    static CACHE: ThreadCache = const {
        ThreadCache {
            first: [const { Cell::new(null_mut()) }; CLASSES],
            count: [const { Cell::new(0) }; CLASSES],
            in_use: Cell::new(None),
        }
    };
}

impl ThreadCache {
    #[inline]
    fn pop(&self, class: usize) -> Option<NonNull<u8>> {
        let block = NonNull::new(self.first[class].get())?;
        // SAFETY: a free block, which `push` made start with the next one's address.
        self.first[class].set(unsafe { block.cast::<*mut u8>().read() });
        self.count[class].set(self.count[class].get() - 1);
        Some(block)
    }

    /// Keeps a free block if there is room.
    #[inline]
    fn push(&self, class: usize, block: NonNull<u8>) -> bool {
        let room = self.count[class].get() < PER_THREAD;
        if room {
            // SAFETY: a block has at least 64 bytes, and nobody else uses a free one.
            unsafe { block.cast::<*mut u8>().write(self.first[class].get()) };
            self.first[class].set(block.as_ptr());
            self.count[class].set(self.count[class].get() + 1);
        }
        room
    }

    #[inline]
    fn count(&self, bytes: isize) {
        let number = self.in_use.get().unwrap_or_else(|| self.start_counting());
        // Nobody else writes it.
        number.store(number.load(Relaxed) + bytes, Relaxed);
    }

    #[cold]
    fn start_counting(&self) -> &'static AtomicIsize {
        let mut counters = COUNTERS.lock();
        let number = counters.without_thread.pop().unwrap_or_else(|| {
            let new: &'static AtomicIsize = Box::leak(Box::default());
            counters.all.push(new);
            new
        });
        self.in_use.set(Some(number));
        number
    }

    /// Gives the free blocks to the shared lists.
    fn release(&self) {
        for class in 0..CLASSES {
            while let Some(block) = self.pop(class) {
                FREE[class].lock().0.push(block);
            }
        }
    }
}

impl Drop for ThreadCache {
    fn drop(&mut self) {
        self.release();
        if let Some(number) = self.in_use.get() {
            COUNTERS.lock().without_thread.push(number);
        }
    }
}

/// A block of host memory, uninitialised, at least as long as was asked for. Freeing it (drop)
/// returns it to the cache.
///
/// ```
/// use torchrs::storage::{HostBlock, host::ALIGNMENT};
/// let block = HostBlock::new(100);
/// assert_eq!(block.as_ptr() as usize % ALIGNMENT, 0);
/// ```
#[derive(Debug)]
pub struct HostBlock {
    ptr: NonNull<u8>,
    /// Its class, or the arena's units that it has and [`CLASSES`].
    kind: usize,
}

// SAFETY: a block is owned memory; moving or sharing the handle moves no bytes.
unsafe impl Send for HostBlock {}
// SAFETY: as above; access to the bytes is by raw pointer, whose users synchronise.
unsafe impl Sync for HostBlock {}

impl HostBlock {
    /// A block of at least `nbytes` bytes.
    ///
    /// ```
    /// use torchrs::{catch, storage::HostBlock};
    /// let address = HostBlock::new(100).as_ptr();
    /// assert_eq!(HostBlock::new(110).as_ptr(), address); // the block that was freed at once
    /// assert!(catch(|| HostBlock::new(1 << 50)).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::OutOfMemory`] when the system is out of memory, or a limit would be exceeded: it names the
    /// size, what is held, and the largest living tensors with the lines that made them.
    #[track_caller]
    #[inline]
    pub fn new(nbytes: usize) -> Self {
        if nbytes > LARGEST_CLASS {
            return Self::large(nbytes);
        }
        let class = class_of(nbytes);
        let own = CACHE.try_with(|cache| {
            let block = cache.pop(class)?;
            cache.count(class_size(class) as isize);
            Some(block)
        });
        let block = match own {
            Ok(Some(ptr)) => HostBlock { ptr, kind: class },
            _ => Self::not_kept_here(class, nbytes),
        };
        if living::is_watched() {
            living::made(Device::Cpu, block.ptr.addr().get(), class_size(class));
        }
        block
    }

    /// A block that this thread has not kept.
    #[track_caller]
    #[inline(never)]
    fn not_kept_here(class: usize, nbytes: usize) -> Self {
        let free = FREE[class].lock().0.pop();
        let ptr = free.unwrap_or_else(|| reserve(class, nbytes));
        count(class_size(class) as isize);
        HostBlock { ptr, kind: class }
    }

    /// A piece of the arena.
    #[track_caller]
    #[inline(never)]
    fn large(nbytes: usize) -> Self {
        if nbytes > 1 << 46 {
            out_of_memory(nbytes);
        }
        let size = nbytes.next_multiple_of(arena::UNIT);
        if let Some((limit, whose)) = living::limit()
            && memory_stats().in_use.saturating_add(size) > limit
        {
            over_limit(nbytes, limit, whose);
        }
        let piece = arena::take(size).or_else(|| {
            empty_cache();
            arena::take(size)
        });
        let Some(ptr) = piece else { out_of_memory(nbytes) };
        count(size as isize);
        if size >= living::LARGE || living::is_watched() {
            living::made(Device::Cpu, ptr.addr().get(), size);
        }
        HostBlock { ptr, kind: CLASSES + size / arena::UNIT }
    }

    #[inline(never)]
    fn free_large(&self) {
        let size = (self.kind - CLASSES) * arena::UNIT;
        count(-(size as isize));
        if size >= living::LARGE || living::is_watched() {
            living::freed(Device::Cpu, self.ptr.addr().get(), size);
        }
        // SAFETY: `large` took it with this size, and the block is being dropped.
        unsafe { arena::give(self.ptr, size) };
    }

    /// The first byte.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }
}

impl Drop for HostBlock {
    #[inline]
    fn drop(&mut self) {
        if self.kind >= CLASSES {
            return self.free_large();
        }
        let size = class_size(self.kind) as isize;
        if living::is_watched() {
            living::freed(Device::Cpu, self.ptr.addr().get(), size as usize);
        }
        let kept = CACHE.try_with(|cache| {
            cache.count(-size);
            cache.push(self.kind, self.ptr)
        });
        if kept.is_err() {
            ENDING.fetch_sub(size, Relaxed);
        }
        if !kept.unwrap_or(false) {
            FREE[self.kind].lock().0.push(self.ptr);
        }
    }
}

/// Bytes that this thread has taken, less those that it gave back; what others do is not in it.
pub(crate) fn taken_by_this_thread() -> isize {
    let number = CACHE.try_with(|cache| cache.in_use.get().map(|number| number.load(Relaxed)));
    number.ok().flatten().unwrap_or(0)
}

/// Counts bytes that this thread takes, or gives back.
fn count(bytes: isize) {
    if CACHE.try_with(|cache| cache.count(bytes)).is_err() {
        ENDING.fetch_add(bytes, Relaxed);
    }
}

#[track_caller]
fn reserve(class: usize, nbytes: usize) -> NonNull<u8> {
    let layout = layout_of(class);
    if let Some((limit, whose)) = living::limit()
        && memory_stats().in_use.saturating_add(layout.size()) > limit
    {
        over_limit(nbytes, limit, whose);
    }
    // SAFETY: the layout's size is never zero.
    let mut raw = unsafe { alloc(layout) };
    if raw.is_null() {
        empty_cache();
        // SAFETY: the layout's size is never zero.
        raw = unsafe { alloc(layout) };
    }
    let Some(ptr) = NonNull::new(raw) else { out_of_memory(nbytes) };
    RESERVED.fetch_add(layout.size(), Relaxed);
    ptr
}

#[track_caller]
#[cold]
fn out_of_memory(nbytes: usize) -> ! {
    let stats = memory_stats();
    throw(Error::OutOfMemory(format!(
        "the host has no room for {}: {nbytes} bytes asked for, {} in tensors, {} cached{}",
        living::bytes(nbytes),
        living::bytes(stats.in_use),
        living::bytes(stats.reserved - stats.in_use),
        living::report(Device::Cpu)
    )))
}

#[track_caller]
#[cold]
fn over_limit(nbytes: usize, limit: usize, whose: &str) -> ! {
    throw(Error::OutOfMemory(format!(
        "the host has no room for {}: {} in tensors, of {} that the process may have ({whose}){}",
        living::bytes(nbytes),
        living::bytes(memory_stats().in_use),
        living::bytes(limit),
        living::report(Device::Cpu)
    )))
}

/// What the host allocator holds.
///
/// ```
/// use torchrs::storage::{HostBlock, memory_stats};
/// let before = memory_stats();
/// let block = HostBlock::new(1 << 20);
/// let after = memory_stats();
/// assert!(after.in_use >= before.in_use + (1 << 20) && after.reserved >= after.in_use);
/// # drop(block);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in live blocks, with rounding.
    pub in_use: usize,
    /// Bytes taken from the system: live and cached.
    pub reserved: usize,
}

/// Bytes in use and reserved by the host allocator (`torch.cuda.memory_stats` for the CPU).
///
/// ```
/// use torchrs::storage::{HostBlock, memory_stats};
/// drop(HostBlock::new(1 << 20));
/// let stats = memory_stats();
/// assert!(stats.reserved - stats.in_use >= 1 << 20); // kept for the next one
/// ```
pub fn memory_stats() -> MemoryStats {
    let counters = COUNTERS.lock();
    let numbers = counters.all.iter().map(|number| number.load(Relaxed));
    let in_use = (numbers.sum::<isize>() + ENDING.load(Relaxed)).max(0) as usize;
    MemoryStats { in_use, reserved: (RESERVED.load(Relaxed) + arena::mapped()).max(in_use) }
}

/// Gives cached free blocks back to the system (`torch.cuda.empty_cache` for the CPU). Blocks in
/// other threads' caches stay.
///
/// ```
/// use torchrs::storage::{HostBlock, empty_cache, memory_stats};
/// drop(HostBlock::new(3 << 20));
/// let before = memory_stats().reserved;
/// empty_cache();
/// assert!(memory_stats().reserved + (3 << 20) <= before);
/// ```
pub fn empty_cache() {
    let _ = CACHE.try_with(ThreadCache::release);
    for (class, list) in FREE.iter().enumerate() {
        let blocks = std::mem::take(&mut list.lock().0);
        for ptr in blocks {
            // SAFETY: the block came from `alloc` with this layout, and the list owned it.
            unsafe { dealloc(ptr.as_ptr(), layout_of(class)) };
            RESERVED.fetch_sub(class_size(class), Relaxed);
        }
    }
    arena::release();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_their_sizes_and_waste_little() {
        for n in (1..5000).chain([1 << 17, (1 << 17) + 1, LARGEST_CLASS - 1, LARGEST_CLASS]) {
            let size = class_size(class_of(n));
            assert!(size >= n, "{n} in a block of {size}");
            assert!(n < 256 || size <= n + n / 4 + ALIGNMENT, "{n} in a block of {size}");
        }
    }

    #[test]
    fn a_freed_block_is_used_again() {
        let a = HostBlock::new(100);
        let p = a.as_ptr();
        assert_eq!(p as usize % ALIGNMENT, 0);
        drop(a);
        assert_eq!(HostBlock::new(100).as_ptr(), p);
    }

    #[test]
    fn large_blocks_are_as_long_as_they_should_be() {
        for n in [LARGEST_CLASS + 1, 3 << 20, (64 << 20) + 13] {
            let (a, b) = (HostBlock::new(n), HostBlock::new(n));
            assert!(a.as_ptr().addr().abs_diff(b.as_ptr().addr()) >= n);
            for block in [&a, &b] {
                assert_eq!(block.as_ptr().addr() % ALIGNMENT, 0);
                // SAFETY: the block has that many bytes.
                unsafe {
                    block.as_ptr().write_bytes(1, n);
                    assert_eq!(block.as_ptr().add(n - 1).read(), 1);
                }
            }
        }
    }

    #[test]
    fn what_another_thread_frees_is_counted() {
        // So large that the other tests' blocks do not matter.
        let size = 1 << 40;
        let before = memory_stats().in_use;
        CACHE.with(|cache| cache.count(size));
        assert!(memory_stats().in_use >= before + (1 << 39));
        std::thread::spawn(move || CACHE.with(|cache| cache.count(-size))).join().unwrap();
        assert!(memory_stats().in_use < before + (1 << 39));
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        let error = crate::error::catch(|| HostBlock::new(1 << 50)).unwrap_err();
        assert!(error.to_string().contains("the host has no room for 1048576.00 GiB"), "{error}");
    }
}
