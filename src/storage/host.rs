//! The caching allocator of host memory. Freed blocks are kept by size class: memory that goes back
//! to the system costs a page fault per 4 KiB when it is needed again, on every training step.
//!
//! Sizes are rounded up to one of four classes per power of two (at most 25% waste). Each thread
//! keeps a few free blocks of small classes without a lock; everything else waits in one locked
//! list per class. Large blocks are 2 MiB-aligned and ask for huge pages.
//!
//! ```
//! use torchrs::{Dtype, Tensor};
//! let x = Tensor::zeros([1000], Dtype::F32);
//! let address = x.data_ptr();
//! drop(x);
//! assert_eq!(Tensor::ones([990], Dtype::F32).data_ptr(), address);
//! ```

use std::alloc::{Layout, alloc, dealloc};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::error::{Error, throw};

/// Blocks start at a cache line, which is also what the widest vector loads want.
///
/// ```
/// use torchrs::{Tensor, storage::host::ALIGNMENT};
/// assert_eq!(Tensor::from([1u8]).data_ptr() as usize % ALIGNMENT, 0);
/// ```
pub const ALIGNMENT: usize = 64;
/// From this size on, blocks are aligned for transparent huge pages.
const HUGE: usize = 2 << 20;
/// Classes up to this size are cached per thread.
const THREAD_CACHED: usize = 256 << 10;
/// Free blocks kept per class and thread.
const PER_THREAD: usize = 16;
const CLASSES: usize = 4 * 48;

/// Class of a size: 64, then 4 steps per doubling.
#[inline]
fn class_of(nbytes: usize) -> usize {
    let n = nbytes.max(ALIGNMENT);
    let log = (usize::BITS - 1 - (n - 1).max(1).leading_zeros()) as usize;
    // `n` lies in (2^log, 2^(log+1)]; which quarter of it?
    let quarter = ((n - 1) >> (log - 2)) & 3;
    4 * (log - 5) + quarter
}

/// Size of the blocks of a class.
#[inline]
fn class_size(class: usize) -> usize {
    let (log, quarter) = (class / 4 + 5, class % 4);
    ((1 << log) + ((quarter + 1) << (log - 2))).next_multiple_of(ALIGNMENT)
}

fn layout_of(class: usize) -> Layout {
    let size = class_size(class);
    let align = if size >= HUGE { HUGE } else { ALIGNMENT };
    Layout::from_size_align(size, align).expect("block sizes are far below isize::MAX")
}

struct FreeList(Vec<NonNull<u8>>);
// SAFETY: the pointers in a free list are owned by it: nobody else reads or writes those blocks.
unsafe impl Send for FreeList {}

static FREE: [Mutex<FreeList>; CLASSES] = [const { Mutex::new(FreeList(Vec::new())) }; CLASSES];
static IN_USE: AtomicUsize = AtomicUsize::new(0);
static RESERVED: AtomicUsize = AtomicUsize::new(0);

/// The calling thread's free blocks; they go to the shared lists when the thread ends.
struct ThreadCache(Vec<Vec<NonNull<u8>>>);

impl Drop for ThreadCache {
    fn drop(&mut self) {
        for (class, blocks) in self.0.iter_mut().enumerate() {
            if !blocks.is_empty() {
                FREE[class].lock().0.append(blocks);
            }
        }
    }
}

thread_local! {
    static CACHE: RefCell<ThreadCache> = const { RefCell::new(ThreadCache(Vec::new())) };
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
    class: usize,
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
    /// Throws [`Error::Device`] when the system is out of memory, naming the size and what is held.
    #[track_caller]
    pub fn new(nbytes: usize) -> Self {
        if nbytes > 1 << 46 {
            out_of_memory(nbytes);
        }
        let class = class_of(nbytes);
        let size = class_size(class);
        let cached = if size <= THREAD_CACHED {
            CACHE.try_with(|c| c.borrow_mut().0.get_mut(class).and_then(Vec::pop)).ok().flatten()
        } else {
            None
        };
        let ptr = match cached.or_else(|| FREE[class].lock().0.pop()) {
            Some(ptr) => ptr,
            None => reserve(class, nbytes),
        };
        IN_USE.fetch_add(size, Relaxed);
        HostBlock { ptr, class }
    }

    /// The first byte.
    ///
    /// ```
    /// let block = torchrs::storage::HostBlock::new(8);
    /// // SAFETY: eight bytes that nobody else uses.
    /// unsafe {
    ///     block.as_ptr().write_bytes(7, 8);
    ///     assert_eq!(block.as_ptr().cast::<u64>().read(), 0x0707_0707_0707_0707);
    /// }
    /// ```
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        let size = class_size(self.class);
        IN_USE.fetch_sub(size, Relaxed);
        let kept = size <= THREAD_CACHED
            && CACHE
                .try_with(|c| {
                    let mut cache = c.borrow_mut();
                    if cache.0.len() <= self.class {
                        cache.0.resize_with(self.class + 1, Vec::new);
                    }
                    let list = &mut cache.0[self.class];
                    let room = list.len() < PER_THREAD;
                    if room {
                        list.push(self.ptr);
                    }
                    room
                })
                .unwrap_or(false);
        if !kept {
            FREE[self.class].lock().0.push(self.ptr);
        }
    }
}

#[track_caller]
fn reserve(class: usize, nbytes: usize) -> NonNull<u8> {
    let layout = layout_of(class);
    // SAFETY: the layout's size is never zero.
    let mut raw = unsafe { alloc(layout) };
    if raw.is_null() {
        empty_cache();
        // SAFETY: as above.
        raw = unsafe { alloc(layout) };
    }
    let Some(ptr) = NonNull::new(raw) else { out_of_memory(nbytes) };
    if layout.size() >= HUGE {
        // SAFETY: advice about memory that is ours; a refusal changes nothing.
        unsafe { libc::madvise(raw.cast(), layout.size(), libc::MADV_HUGEPAGE) };
    }
    RESERVED.fetch_add(layout.size(), Relaxed);
    ptr
}

#[track_caller]
#[cold]
fn out_of_memory(nbytes: usize) -> ! {
    let stats = memory_stats();
    throw(Error::Device(format!(
        "out of host memory: {nbytes} bytes asked for, {} bytes in tensors, {} bytes cached",
        stats.in_use,
        stats.reserved - stats.in_use
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
    let in_use = IN_USE.load(Relaxed);
    MemoryStats { in_use, reserved: RESERVED.load(Relaxed).max(in_use) }
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
    let _ = CACHE.try_with(|c| *c.borrow_mut() = ThreadCache(Vec::new()));
    for (class, list) in FREE.iter().enumerate() {
        let blocks = std::mem::take(&mut list.lock().0);
        for ptr in blocks {
            // SAFETY: the block came from `alloc` with this layout, and the list owned it.
            unsafe { dealloc(ptr.as_ptr(), layout_of(class)) };
            RESERVED.fetch_sub(class_size(class), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_their_sizes_and_waste_little() {
        for n in (1..5000).chain([1 << 20, (1 << 20) + 1, 3 << 20, (7 << 30) + 13]) {
            let size = class_size(class_of(n));
            assert!(size >= n, "{n} in a block of {size}");
            assert!(n < 256 || size <= n + n / 4 + ALIGNMENT, "{n} in a block of {size}");
        }
    }

    #[test]
    fn a_freed_block_is_used_again() {
        for n in [100, 3 << 20] {
            let a = HostBlock::new(n);
            let p = a.as_ptr();
            assert_eq!(p as usize % if n >= HUGE { HUGE } else { ALIGNMENT }, 0);
            drop(a);
            assert_eq!(HostBlock::new(n).as_ptr(), p);
        }
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        let error = crate::catch(|| HostBlock::new(1 << 50)).unwrap_err();
        assert!(error.to_string().contains("out of host memory"), "{error}");
    }
}
