//! loom's atomics, with fences where the library asks for sequential consistency.

use std::cell::Cell;

pub use loom::sync::atomic::{Ordering, fence};

macro_rules! atomics {
    ($($name:ident($number:ty)),*) => {$(
        pub struct $name(loom::sync::atomic::$name);

        impl $name {
            pub fn new(value: $number) -> Self {
                $name(loom::sync::atomic::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $number {
                read(order, |order| self.0.load(order))
            }

            pub fn store(&self, value: $number, order: Ordering) {
                write(order, Ordering::Release, |order| self.0.store(value, order))
            }

            pub fn compare_exchange(
                &self,
                old: $number,
                new: $number,
                order: Ordering,
                failure: Ordering,
            ) -> Result<$number, $number> {
                write(order, Ordering::AcqRel, |order| {
                    self.0.compare_exchange(old, new, order, failure)
                })
            }

            /// Never fails without a reason: a loop that tries again would have no end for loom.
            pub fn compare_exchange_weak(
                &self,
                old: $number,
                new: $number,
                order: Ordering,
                failure: Ordering,
            ) -> Result<$number, $number> {
                self.compare_exchange(old, new, order, failure)
            }
        }
    )*};
}

macro_rules! sums {
    ($($name:ident($number:ty)),*) => {$(
        impl $name {
            pub fn fetch_add(&self, value: $number, order: Ordering) -> $number {
                write(order, Ordering::AcqRel, |order| self.0.fetch_add(value, order))
            }

            pub fn fetch_sub(&self, value: $number, order: Ordering) -> $number {
                write(order, Ordering::AcqRel, |order| self.0.fetch_sub(value, order))
            }
        }
    )*};
}

atomics! { AtomicBool(bool), AtomicU32(u32), AtomicU64(u64), AtomicUsize(usize) }
sums! { AtomicU32(u32), AtomicU64(u64), AtomicUsize(usize) }

/// Where fences stand for sequential consistency. Each place alone gives less than the real order does.
#[derive(Clone, Copy, PartialEq)]
pub enum Fences {
    AfterWrites,
    BeforeReads,
}

thread_local! {
    /// All of a model's threads run on one of the system's.
    static FENCES: Cell<Fences> = const { Cell::new(Fences::AfterWrites) };
}

/// Chooses the place for the models that this thread runs.
pub fn set_fences(fences: Fences) {
    FENCES.set(fences);
}

fn fence_if(order: Ordering, fences: Fences) {
    if order == Ordering::SeqCst && FENCES.get() == fences {
        fence(Ordering::SeqCst);
    }
}

fn read<T>(order: Ordering, call: impl FnOnce(Ordering) -> T) -> T {
    fence_if(order, Fences::BeforeReads);
    call(if order == Ordering::SeqCst { Ordering::Acquire } else { order })
}

fn write<T>(order: Ordering, weaker: Ordering, call: impl FnOnce(Ordering) -> T) -> T {
    let result = call(if order == Ordering::SeqCst { weaker } else { order });
    fence_if(order, Fences::AfterWrites);
    result
}
