//! Jobs of several processes on the CPU: how processes start, talk, share memory, join, train together and fail.

mod channels;
mod comm_hooks;
mod ddp;
mod multiprocessing;
mod process_groups;
mod shared_tensors;
mod sync_batch_norm;
mod train_program;

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of a place where the processes of one job meet: each test has its own.
fn free_port() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    1 + (std::process::id() * 16 + NEXT.fetch_add(1, Ordering::Relaxed)) % 65_000
}
