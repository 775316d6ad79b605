//! Finds data races of ops on host memory, in builds with debug assertions. In other builds each
//! item here is empty.
//!
//! An op opens a [`Scope`]. Until the scope ends, each tensor whose address the op asks for is noted
//! as read, and the target of an in-place op as written. A note that meets another thread's note
//! about the same bytes, one of the two a write, panics and names both ops. Nothing waits for
//! anything, so a race is found when the two ops overlap in time.
//!
//! What runs in the background, such as a collective, uses its tensors from its start to its end: [`InFlight`]
//! has its notes, which meet those of every thread.
//!
//! Left out, because only their users know when they are in use: memory shared between processes
//! (where races may be intended), memory of GPUs (ordered by streams), and addresses that are taken
//! outside an op.

#[cfg(debug_assertions)]
mod notes;

#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What an op does with a tensor's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
}

/// Where a tensor's elements lie in its storage: counted in elements, each of `size` bytes.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(debug_assertions), allow(dead_code))] // Read by what such builds leave out.
pub(crate) struct Elements<'a> {
    pub offset: usize,
    pub size: usize,
    pub shape: &'a [usize],
    pub strides: &'a [isize],
}

/// A storage's number among those that are looked at; 0 when it is not.
#[derive(Debug)]
pub(super) struct Tracked {
    #[cfg(debug_assertions)]
    number: AtomicU64,
}

impl Tracked {
    #[inline(always)]
    pub fn new() -> Self {
        Tracked {
            #[cfg(debug_assertions)]
            number: AtomicU64::new({
                static NEXT: AtomicU64 = AtomicU64::new(1);
                NEXT.fetch_add(1, Relaxed)
            }),
        }
    }

    /// Looks at the storage no more.
    #[inline(always)]
    pub fn exempt(&self) {
        #[cfg(debug_assertions)]
        self.number.store(0, Relaxed);
    }

    /// Notes a use for this thread's innermost scope, if it has one.
    ///
    /// # Panics
    /// When another thread's op uses one of the bytes at the same time, and one of the two writes.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn note(&self, how: Use, place: Elements<'_>) {
        #[cfg(debug_assertions)]
        match self.number.load(Relaxed) {
            0 => {}
            number => notes::note(number, how, place),
        }
        #[cfg(not(debug_assertions))]
        let _ = (how, place);
    }
}

/// The time in which an op uses its tensors.
#[must_use]
pub(crate) struct Scope {
    /// A scope belongs to a thread, and needs a drop in debug builds only.
    _not_send: std::marker::PhantomData<*const ()>,
}

impl Scope {
    /// Opens the scope of the op of that name, called at the caller's place.
    #[inline(always)]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn enter(name: impl FnOnce() -> &'static str) -> Self {
        #[cfg(debug_assertions)]
        notes::enter(name(), std::panic::Location::caller());
        #[cfg(not(debug_assertions))]
        let _ = name;
        Scope { _not_send: std::marker::PhantomData }
    }
}

#[cfg(debug_assertions)]
impl Drop for Scope {
    fn drop(&mut self) {
        notes::leave();
    }
}

/// The time in which something in the background uses tensors: until it is dropped, on any thread.
#[must_use]
pub(crate) struct InFlight {
    #[cfg(debug_assertions)]
    number: u64,
    #[cfg(debug_assertions)]
    call: notes::Call,
    #[cfg(debug_assertions)]
    noted: smallvec::SmallVec<[u64; 2]>,
}

impl InFlight {
    /// Begins the use by the call of that name, at that place.
    pub fn begin(name: &'static str, at: &'static std::panic::Location<'static>) -> Self {
        #[cfg(debug_assertions)]
        {
            static NEXT: AtomicU64 = AtomicU64::new(0);
            let call = notes::Call { name, at };
            InFlight { number: NEXT.fetch_add(1, Relaxed), call, noted: Default::default() }
        }
        #[cfg(not(debug_assertions))]
        {
            let _ = (name, at);
            InFlight {}
        }
    }
}

impl Tracked {
    /// Notes a use that lasts as long as `by`.
    ///
    /// # Panics
    /// When an op of another thread uses one of the bytes at the same time, and one of the two writes.
    pub(crate) fn note_in_flight(&self, by: &mut InFlight, how: Use, place: Elements<'_>) {
        #[cfg(debug_assertions)]
        match self.number.load(Relaxed) {
            0 => {}
            number => {
                by.noted.push(number);
                notes::note_in_flight(number, by.number, by.call, how, place);
            }
        }
        #[cfg(not(debug_assertions))]
        let _ = (by, how, place);
    }
}

#[cfg(debug_assertions)]
impl Drop for InFlight {
    fn drop(&mut self) {
        notes::land(self.number, &self.noted);
    }
}
