//! What threads of one loop share: an output of which each writes its own part, pointers, and
//! scratch memory that each thread keeps.

use std::cell::RefCell;

use crate::arch::cache::LINE;
use crate::numbers::float::Float;

/// A value of pointers that the threads of one loop share.
#[derive(Clone, Copy)]
pub struct Shared<T>(T);
// SAFETY: a copy of a pointer by itself touches nothing; whoever dereferences it says why that is
// sound.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: a pointer that goes to another thread touches nothing there; whoever dereferences it says
// why that is sound.
unsafe impl<T> Send for Shared<T> {}

impl<T: Copy> Shared<T> {
    /// Wraps pointers.
    pub fn new(pointers: T) -> Self {
        Shared(pointers)
    }

    /// The pointers. (A method, so that a closure captures the whole and not the field.)
    pub fn get(&self) -> T {
        self.0
    }
}

/// A slice whose disjoint parts several threads write.
pub struct Parts<T> {
    ptr: *mut T,
    len: usize,
}

// SAFETY: access is by `slice`, whose callers vouch for disjointness.
unsafe impl<T: Send> Sync for Parts<T> {}

impl<T> Parts<T> {
    /// The whole slice; it must not be used otherwise until the threads are done.
    pub fn new(slice: &mut [T]) -> Self {
        Parts { ptr: slice.as_mut_ptr(), len: slice.len() }
    }

    /// Elements of the whole slice.
    pub fn len(&self) -> usize {
        self.len
    }

    /// A part.
    ///
    /// # Safety
    /// No other part in use overlaps it, and the slice behind is still there.
    #[allow(
        clippy::mut_from_ref,
        reason = "that is the point; disjointness is the caller's promise"
    )]
    pub unsafe fn slice(&self, range: std::ops::Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: inside the slice; disjoint from all parts in use by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(range.start), range.len()) }
    }

    /// A part to read.
    ///
    /// # Safety
    /// No part in use overlaps it, and the slice behind is still there.
    pub unsafe fn read(&self, range: std::ops::Range<usize>) -> &[T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: inside the slice; nobody writes it, by this function's contract.
        unsafe { std::slice::from_raw_parts(self.ptr.add(range.start), range.len()) }
    }

    /// Where an element is; whoever reads or writes there says why that is sound.
    pub fn pointer(&self, index: usize) -> *mut T {
        assert!(index <= self.len);
        // SAFETY: inside the slice, or at its end.
        unsafe { self.ptr.add(index) }
    }

    /// Writes one element.
    ///
    /// # Safety
    /// No part in use contains it, and the slice behind is still there.
    pub unsafe fn put(&self, index: usize, value: T) {
        // SAFETY: this function's contract: no part in use contains the element.
        let element = unsafe { self.slice(index..index + 1) };
        element[0] = value;
    }
}

thread_local! {
    static SCRATCH: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Calls `body` with `len` numbers of this thread's scratch memory, whose contents are whatever an
/// earlier use left. Not to be nested. Meant for blocks of a cache's size, since it is kept.
pub fn with_scratch<T: Float, R>(len: usize, body: impl FnOnce(&mut [T]) -> R) -> R {
    SCRATCH.with_borrow_mut(|memory| {
        // A vector load that crosses cache lines is slow: start at one.
        let words = (len * size_of::<T>()).div_ceil(8) + 8;
        if memory.len() < words {
            memory.resize(words, 0);
        }
        let skip = memory.as_ptr().align_offset(LINE).min(8);
        let start = memory[skip..].as_mut_ptr().cast::<T>();
        // SAFETY: the words are initialised, `len` numbers fit behind `skip`, their alignment is at
        // most 8, and any bits are a valid f32 or f64.
        body(unsafe { std::slice::from_raw_parts_mut(start, len) })
    })
}
