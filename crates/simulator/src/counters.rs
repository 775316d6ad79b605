//! Numbers that tests ask for: how often the host waited, how many kernels were launched, and so on.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, but for [`Counter::subtract`].
#[derive(Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Adds one and gives the new number.
    pub fn count(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Takes `amount` away.
    pub fn subtract(&self, amount: u64) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Calls that made the host wait for a device.
pub static SYNCHRONIZING_CALLS: Counter = Counter::new();
/// Kernels launched, those of graphs included.
pub static KERNEL_LAUNCHES: Counter = Counter::new();
/// Calls of `cuMemAlloc`, failed ones included.
pub static ALLOCATIONS: Counter = Counter::new();
/// Bytes of device memory that are allocated now.
pub static ALLOCATED_BYTES: Counter = Counter::new();
/// Copies that were asked for.
pub static COPIES: Counter = Counter::new();
/// Calls of NCCL that move data.
pub static COLLECTIVES: Counter = Counter::new();
/// Communicators that this process began to join.
pub static JOINS: Counter = Counter::new();
/// Graphs launched.
pub static GRAPH_LAUNCHES: Counter = Counter::new();

macro_rules! exported {
    ($($(#[$doc:meta])* $name:ident = $counter:ident;)*) => {
        $($(#[$doc])* #[unsafe(no_mangle)] pub extern "C" fn $name() -> u64 {
            $counter.get()
        })*
    };
}

exported! {
    /// How many calls made the host wait for a device.
    torchrs_simulated_synchronizing_calls = SYNCHRONIZING_CALLS;
    /// How many kernels were launched.
    torchrs_simulated_kernel_launches = KERNEL_LAUNCHES;
    /// How many allocations of device memory were asked for.
    torchrs_simulated_allocations = ALLOCATIONS;
    /// How many bytes of device memory are allocated now.
    torchrs_simulated_allocated_bytes = ALLOCATED_BYTES;
    /// How many copies were asked for.
    torchrs_simulated_copies = COPIES;
    /// How many calls of NCCL moved data, or tried to.
    torchrs_simulated_collectives = COLLECTIVES;
    /// How many communicators this process began to join.
    torchrs_simulated_joins = JOINS;
    /// How many graphs were launched.
    torchrs_simulated_graph_launches = GRAPH_LAUNCHES;
}
