//! Shared ownership of what every op makes and drops.
//!
//! Knows nothing of `storage` and `tensor`, whose handles it counts.
//!
//! [`Counted`] is [`Arc`](std::sync::Arc) but for one thing: its owners and its weak references are counted in two
//! halves of one word. An owner that drops it sees by one load whether nobody else is there, and counts nothing
//! then. Of an `Arc` the last owner counts down twice, and each time waits until all that was stored before has
//! reached the cache (libstdc++'s `shared_ptr` does without in the same way). With two such counters a tensor and
//! its storage were a fifth of what it takes to add two numbers.
//!
//! The word and its orders:
//!
//! - All owners together have one weak reference. The value is dropped when the owners' half becomes 0, the memory
//!   when the other half does; so the value is always dropped before its memory goes.
//! - An owner that drops it and reads one owner and one weak reference is the only one who can reach the word. It
//!   reads with `Acquire` what others wrote with `Release` when they went: all that they did comes before.
//! - Any other owner counts itself out with `Release`; who counts the last one out fences with `Acquire`.
//! - Only an owner makes an owner, or a weak reference that still sees one in the same exchange: from 0 there is no
//!   way back. New references are counted with `Relaxed`, since whoever makes one has one.
//!
//! `crates/interleavings` runs this file in every order.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;

use super::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

/// One owner, in the lower half.
const OWNER: u64 = 1;
/// All owners.
const OWNERS: u64 = u32::MAX as u64;
/// One weak reference, in the upper half; all owners together have one.
const WEAK: u64 = 1 << 32;
/// One owner and no weak reference but the owners'.
const ALONE: u64 = WEAK | OWNER;
/// More of either end the process: they could only come from forgotten references, and must not overflow.
const MOST: u64 = 1 << 31;

struct Inner<T> {
    counts: AtomicU64,
    value: T,
}

/// A value with several owners, dropped by the last.
pub(crate) struct Counted<T> {
    inner: NonNull<Inner<T>>,
    _owned: PhantomData<Inner<T>>,
}

/// A [`Counted`] of a structure, each of whose fields is written where it stays: a value that is there before its place is
/// copied in large pieces, with all that is unused in it, and the processor waits for the small pieces in which it was just
/// written. For the same reason what a mutex has is better written into it than with it.
macro_rules! counted {
    ($type:ident { $($field:ident: $value:expr),* $(,)? }) => {{
        // Does not compile when a field is forgotten.
        let _all = |$type { $($field: _),* }: &$type| {};
        let mut place = $crate::counted::Place::<$type>::new();
        $(
            let value = $value;
            // SAFETY: a field of a place that is there and not yet used.
            unsafe { (&raw mut (*place.value()).$field).write(value) };
        )*
        // SAFETY: each of the fields is written.
        unsafe { place.complete() }
    }};
}
pub(crate) use counted;

/// A reference that keeps a [`Counted`]'s memory, but not its value.
pub(crate) struct WeakCounted<T> {
    inner: NonNull<Inner<T>>,
    _kept: PhantomData<Inner<T>>,
}

// SAFETY: as of an `Arc`: any thread may read the value, and any drop it.
unsafe impl<T: Send + Sync> Send for Counted<T> {}
// SAFETY: as above: from a reference a thread gets an owner.
unsafe impl<T: Send + Sync> Sync for Counted<T> {}
// SAFETY: as above: from a weak reference a thread gets an owner.
unsafe impl<T: Send + Sync> Send for WeakCounted<T> {}
// SAFETY: from a reference to a weak reference a thread gets an owner.
unsafe impl<T: Send + Sync> Sync for WeakCounted<T> {}

/// Where the value of a [`Counted`] will be. To be used by [`counted!`].
pub(crate) struct Place<T>(Box<MaybeUninit<Inner<T>>>);

impl<T> Place<T> {
    #[inline(always)]
    pub fn new() -> Self {
        Place(Box::new_uninit())
    }

    #[inline(always)]
    pub fn value(&mut self) -> *mut T {
        // SAFETY: a field of a place that is there.
        unsafe { &raw mut (*self.0.as_mut_ptr()).value }
    }

    /// # Safety
    /// The whole value was written.
    #[inline(always)]
    pub unsafe fn complete(mut self) -> Counted<T> {
        // SAFETY: a field of a place that is there and not yet used.
        unsafe { (&raw mut (*self.0.as_mut_ptr()).counts).write(AtomicU64::new(ALONE)) };
        Counted { inner: NonNull::from(Box::leak(self.0)).cast(), _owned: PhantomData }
    }
}

impl<T> Counted<T> {
    #[inline]
    fn counts(&self) -> &AtomicU64 {
        // SAFETY: there as long as an owner is.
        unsafe { &(*self.inner.as_ptr()).counts }
    }

    /// True when both are the same.
    #[inline]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }

    /// Where the value is.
    #[inline]
    pub fn as_ptr(&self) -> *const T {
        // SAFETY: a field of what is there.
        unsafe { &raw const (*self.inner.as_ptr()).value }
    }

    /// How many owners there are.
    #[inline]
    pub fn owners(&self) -> usize {
        (self.counts().load(Acquire) & OWNERS) as usize
    }

    /// The value, if there is neither another owner nor a weak reference.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // With `Acquire` all that those did who are gone comes before.
        let alone = self.counts().load(Acquire) == ALONE;
        // SAFETY: nobody else has the value, nor can get it while this reference lives.
        alone.then(|| unsafe { &mut (*self.inner.as_ptr()).value })
    }

    /// A reference that does not keep the value.
    pub fn downgrade(&self) -> WeakCounted<T> {
        guard(self.counts().fetch_add(WEAK, Relaxed) >> 32);
        WeakCounted { inner: self.inner, _kept: PhantomData }
    }

    /// Drops the value for the last owner, beside whom there are or were others.
    #[cold]
    #[inline(never)]
    fn drop_counted(&mut self) {
        // All that the other owners did comes before the value's end.
        fence(Acquire);
        let _owners = WeakCounted { inner: self.inner, _kept: PhantomData };
        // SAFETY: no owner is left, and no new one comes: weak references see that.
        unsafe { (&raw mut (*self.inner.as_ptr()).value).drop_in_place() };
    }
}

/// Ends the process when a half of the word is about to overflow.
#[inline]
fn guard(count: u64) {
    if count > MOST {
        std::process::abort();
    }
}

impl<T> Deref for Counted<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: there as long as an owner is, and not changed while there are several.
        unsafe { &(*self.inner.as_ptr()).value }
    }
}

impl<T> Clone for Counted<T> {
    #[inline]
    fn clone(&self) -> Self {
        guard(self.counts().fetch_add(OWNER, Relaxed) & OWNERS);
        Counted { inner: self.inner, _owned: PhantomData }
    }
}

impl<T> Drop for Counted<T> {
    #[inline]
    fn drop(&mut self) {
        // With `Acquire` all that those did who are gone comes before the value's end.
        if self.counts().load(Acquire) != ALONE {
            if self.counts().fetch_sub(OWNER, Release) & OWNERS == OWNER {
                self.drop_counted();
            }
            return;
        }
        let _memory = Memory(self.inner);
        // SAFETY: the only reference of any kind ends here.
        unsafe { (&raw mut (*self.inner.as_ptr()).value).drop_in_place() };
    }
}

/// Memory that goes back, also when the value's drop panics.
struct Memory<T>(NonNull<Inner<T>>);

impl<T> Drop for Memory<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it came from a box, nobody refers to it any more, and the value is dropped already.
        drop(unsafe { Box::from_raw(self.0.as_ptr().cast::<MaybeUninit<Inner<T>>>()) });
    }
}

/// A [`Counted`] in whose place another can be put, for all who have a reference to the slot.
pub(crate) struct Slot<T>(UnsafeCell<Counted<T>>);

// SAFETY: a shared slot is only read, but by `replace`, whose caller keeps other threads away.
unsafe impl<T: Send + Sync> Sync for Slot<T> {}

impl<T> Slot<T> {
    #[inline]
    pub fn new(value: Counted<T>) -> Self {
        Slot(UnsafeCell::new(value))
    }

    /// Puts another value in the place of this one, and gives this one back.
    ///
    /// # Safety
    /// *Sole use*: no other thread uses the slot meanwhile, and no reference to the old value is used after this.
    pub unsafe fn replace(&self, other: Slot<T>) -> Counted<T> {
        // SAFETY: the only use at this time, by *Sole use*.
        unsafe { self.0.get().replace(other.0.into_inner()) }
    }
}

impl<T> Deref for Slot<T> {
    type Target = Counted<T>;

    #[inline(always)]
    fn deref(&self) -> &Counted<T> {
        // SAFETY: it is written by `replace` alone, at which time nobody reads.
        unsafe { &*self.0.get() }
    }
}

impl<T> Clone for Slot<T> {
    #[inline]
    fn clone(&self) -> Self {
        Slot::new((**self).clone())
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> WeakCounted<T> {
    #[inline]
    fn counts(&self) -> &AtomicU64 {
        // SAFETY: the memory is there as long as a weak reference is.
        unsafe { &(*self.inner.as_ptr()).counts }
    }

    /// How many owners there are.
    pub fn owners(&self) -> usize {
        (self.counts().load(Acquire) & OWNERS) as usize
    }

    /// An owner, if there still is one.
    pub fn upgrade(&self) -> Option<Counted<T>> {
        let mut counts = self.counts().load(Relaxed);
        loop {
            if counts & OWNERS == 0 {
                return None;
            }
            guard(counts & OWNERS);
            match self.counts().compare_exchange_weak(counts, counts + OWNER, Acquire, Relaxed) {
                Ok(_) => return Some(Counted { inner: self.inner, _owned: PhantomData }),
                Err(now) => counts = now,
            }
        }
    }

    /// Where the value is or was.
    pub fn as_ptr(&self) -> *const T {
        // SAFETY: a field of memory that is there.
        unsafe { &raw const (*self.inner.as_ptr()).value }
    }
}

impl<T> Clone for WeakCounted<T> {
    fn clone(&self) -> Self {
        guard(self.counts().fetch_add(WEAK, Relaxed) >> 32);
        WeakCounted { inner: self.inner, _kept: PhantomData }
    }
}

impl<T> Drop for WeakCounted<T> {
    fn drop(&mut self) {
        // The owners' reference is dropped last of theirs: with the last of all there is no owner.
        if self.counts().fetch_sub(WEAK, Release) >> 32 == 1 {
            fence(Acquire);
            drop(Memory(self.inner));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts its drops, and holds memory, so that a second drop or a missing one is seen.
    struct Seen(Arc<AtomicUsize>, Box<[usize; 4]>);

    impl Drop for Seen {
        fn drop(&mut self) {
            assert_eq!(*self.1, [1, 2, 3, 4]);
            self.1.fill(0);
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn counted<T>(value: T) -> Counted<T> {
        let mut place = Place::<T>::new();
        // SAFETY: the value is written.
        unsafe {
            place.value().write(value);
            place.complete()
        }
    }

    fn seen() -> (Counted<Seen>, Arc<AtomicUsize>) {
        let drops = Arc::new(AtomicUsize::new(0));
        (counted(Seen(drops.clone(), Box::new([1, 2, 3, 4]))), drops)
    }

    #[test]
    fn the_last_owner_drops_the_value_once() {
        let (a, drops) = seen();
        let b = a.clone();
        assert!(a.ptr_eq(&b) && a.owners() == 2 && std::ptr::eq(a.as_ptr(), &*b));
        drop(a);
        assert_eq!((drops.load(Relaxed), b.owners(), b.1[3]), (0, 1, 4));
        drop(b);
        assert_eq!(drops.load(Relaxed), 1);
    }

    #[test]
    fn weak_references_keep_the_memory_and_not_the_value() {
        let (a, drops) = seen();
        let weak = a.downgrade();
        let again = weak.upgrade().expect("an owner is there");
        drop(a);
        assert_eq!((drops.load(Relaxed), again.owners()), (0, 1));
        assert_eq!(weak.as_ptr(), again.as_ptr());
        let other = weak.clone();
        drop(again);
        assert_eq!(drops.load(Relaxed), 1);
        assert!(weak.upgrade().is_none());
        drop(weak);
        assert!(other.upgrade().is_none());
        assert_eq!(drops.load(Relaxed), 1);
    }

    #[test]
    fn a_value_is_changed_only_by_one_who_is_alone() {
        let mut a = counted(vec![1]);
        a.get_mut().expect("alone").push(2);
        let b = a.clone();
        assert!(a.get_mut().is_none());
        drop(b);
        let weak = a.downgrade();
        assert!(a.get_mut().is_none());
        drop(weak);
        a.get_mut().expect("alone again").push(3);
        assert_eq!(*a, [1, 2, 3]);
    }

    #[test]
    fn a_slot_changes_for_those_who_refer_to_it_and_for_no_clone() {
        let (a, drops) = seen();
        let (b, drops_b) = seen();
        let slot = Slot::new(a);
        let (clone, seen_by) = (slot.clone(), &slot);
        // SAFETY: one thread, and no reference to the old value.
        drop(unsafe { slot.replace(Slot::new(b)) });
        assert!(!seen_by.ptr_eq(&clone) && seen_by.1[3] == 4 && clone.owners() == 1);
        drop(clone);
        assert_eq!((drops.load(Relaxed), drops_b.load(Relaxed)), (1, 0));
        drop(slot);
        assert_eq!(drops_b.load(Relaxed), 1);
    }

    #[test]
    fn a_value_whose_drop_panics_is_gone() {
        struct Bad(Seen);
        impl Drop for Bad {
            fn drop(&mut self) {
                assert_eq!(self.0.1[0], 2, "meant");
            }
        }
        for several in [false, true] {
            let drops = Arc::new(AtomicUsize::new(0));
            let a = counted(Bad(Seen(drops.clone(), Box::new([1, 2, 3, 4]))));
            let weak = several.then(|| a.downgrade());
            assert!(catch_unwind(AssertUnwindSafe(|| drop(a))).is_err());
            assert!(weak.is_none_or(|w| w.owners() == 0 && w.upgrade().is_none()));
            assert_eq!(drops.load(Relaxed), 1);
        }
    }

    #[test]
    fn threads_share_it() {
        for round in 0..200 {
            let (a, drops) = seen();
            let weak = a.downgrade();
            let start = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (mine, weak) = (a.clone(), weak.clone());
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        let mut held = Some(mine);
                        for i in 0..50 {
                            let other = match &held {
                                Some(owner) => Some(owner.clone()),
                                None => weak.upgrade(),
                            };
                            if let Some(other) = other {
                                assert_eq!(other.1[2], 3);
                                drop(other.downgrade().upgrade());
                            }
                            if i == 10 * thread {
                                held = None;
                            }
                        }
                    });
                }
                if round % 2 == 0 {
                    drop(weak);
                }
                drop(a);
            });
            assert_eq!(drops.load(Relaxed), 1, "round {round}");
        }
    }
}
