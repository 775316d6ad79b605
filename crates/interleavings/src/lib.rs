//! The library's own protocols between threads, run by loom in every order that the memory model allows. The files
//! are the library's, by their paths: what is checked is what runs. They take atomics from the module above them,
//! which here has loom's.
//!
//! loom treats sequentially consistent operations as no more than acquire and release. [`atomic`] puts
//! sequentially consistent fences after such writes, or before such reads; each model runs with the one and with
//! the other. Of two threads that each write one word and then read the other's, at least one then sees the other's
//! write, which is what the protocols rely on; and a write or read that is made weaker fails one of the two runs.

#![allow(dead_code, reason = "the library's files have more than the models use")]

pub mod atomic;

#[path = "../../../src/counted.rs"]
mod counted;
#[path = "../../cpu/src/threads/handover.rs"]
pub mod handover;
#[path = "../../../src/distributed/shm/sleepers.rs"]
pub mod sleepers;

/// What a [`Counted`](counted::Counted) of the models holds: loom reports a read that races with the drop's write.
pub struct Value {
    pub cell: loom::cell::UnsafeCell<u32>,
    pub drops: loom::sync::Arc<loom::sync::atomic::AtomicUsize>,
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: the value is dropped once, by its last owner.
        self.cell.with_mut(|p| unsafe { *p = 0 });
        self.drops.fetch_add(1, loom::sync::atomic::Ordering::Relaxed);
    }
}

/// An owner of a [`Value`].
pub struct Owner(counted::Counted<Value>);

/// A weak reference to a [`Value`].
pub struct Weak(counted::WeakCounted<Value>);

impl Owner {
    pub fn new(drops: loom::sync::Arc<loom::sync::atomic::AtomicUsize>) -> Owner {
        Owner(counted::counted!(Value { cell: loom::cell::UnsafeCell::new(1), drops: drops }))
    }

    /// The number, which is 1 for as long as there is an owner.
    pub fn read(&self) -> u32 {
        // SAFETY: nobody writes while there are owners.
        self.0.cell.with(|p| unsafe { *p })
    }

    pub fn share(&self) -> Owner {
        Owner(self.0.clone())
    }

    pub fn weak(&self) -> Weak {
        Weak(self.0.downgrade())
    }

    /// Writes the number through the only reference; whether this is the only one.
    pub fn write_alone(&mut self) -> bool {
        let Some(value) = self.0.get_mut() else { return false };
        // SAFETY: the reference is the only one.
        value.cell.with_mut(|p| unsafe { *p = 1 });
        true
    }
}

impl Weak {
    pub fn owner(&self) -> Option<Owner> {
        self.0.upgrade().map(Owner)
    }
}
