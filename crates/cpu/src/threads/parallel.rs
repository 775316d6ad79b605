//! Splits large loops over threads. The calling thread works too; the others are started at the first loop
//! that is worth it. A fork and join costs a microsecond or two, so small loops run inline.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use smallvec::SmallVec;

use crate::threads::pool;
use torchrs_error::{Error, throw};

/// Elements of cheap work (an add) below which a loop is not split.
pub const GRAIN: usize = 32 << 10;

/// 0 until first asked for.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Number of threads that one operation may use (`torch.get_num_threads`). At first the value of
/// `OMP_NUM_THREADS`, or without it the number of cores this process may run on.
///
/// ```
/// assert!(torchrs::get_num_threads() >= 1);
/// torchrs::set_num_threads(3);
/// assert_eq!(torchrs::get_num_threads(), 3);
/// ```
#[inline]
pub fn get_num_threads() -> usize {
    match THREADS.load(Relaxed) {
        0 => {
            let n = initial_threads();
            // Another thread may have set it meanwhile: then its value stays.
            THREADS.compare_exchange(0, n, Relaxed, Relaxed).err().unwrap_or(n)
        }
        n => n,
    }
}

/// Sets the number of threads that one operation may use (`torch.set_num_threads`). Operations that
/// already run keep theirs.
///
/// ```
/// torchrs::set_num_threads(1); // in each of as many processes as there are cores
/// assert_eq!(torchrs::get_num_threads(), 1);
/// assert!(torchrs::catch(|| torchrs::set_num_threads(0)).is_err());
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] for 0.
#[track_caller]
pub fn set_num_threads(threads: usize) {
    if threads == 0 {
        throw(Error::argument("set_num_threads", "threads", "0; at least 1 is needed"));
    }
    THREADS.store(threads, Relaxed);
}

fn initial_threads() -> usize {
    std::env::var("OMP_NUM_THREADS")
        .ok()
        // OpenMP allows a list, one entry per nesting level.
        .and_then(|text| text.split(',').next().and_then(|n| n.trim().parse().ok()))
        .filter(|&n: &usize| n > 0)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}

/// Calls `body` on disjoint ranges that cover `0..n`, on several threads when there are at least
/// two times `grain` items. Inside another parallel loop it runs inline. A panic in `body` reaches
/// the caller with its payload.
#[inline]
pub fn parallel_for(n: usize, grain: usize, body: impl Fn(Range<usize>) + Sync) {
    let grain = grain.max(1);
    if n < 2 * grain || get_num_threads() == 1 || pool::works() {
        if n > 0 {
            body(0..n);
        }
        return;
    }
    let parts = get_num_threads().min(n / grain).min(pool::MOST);
    pool::run(parts, &|i| body(n * i / parts..n * (i + 1) / parts));
}

/// Calls `body` with each of `0..n`, as [`parallel_for`] does with ranges of them, for items of some microseconds
/// and of different length: a thread that is done with its own range takes items of the others'.
pub fn parallel_items(n: usize, grain: usize, body: impl Fn(usize) + Sync) {
    let grain = grain.max(1);
    if n < 2 * grain || get_num_threads() == 1 || pool::works() {
        return (0..n).for_each(body);
    }
    let parts = get_num_threads().min(n / grain).min(pool::MOST);
    let ranges: SmallVec<[Rest; 8]> = (0..parts)
        .map(|i| Rest { next: AtomicUsize::new(n * i / parts), end: n * (i + 1) / parts })
        .collect();
    pool::run(parts, &|i| {
        for rest in ranges[i..].iter().chain(&ranges[..i]) {
            while let Some(item) = rest.take() {
                body(item);
            }
        }
    });
}

/// What is left of a range, in a cache line of its own.
#[repr(align(64))]
struct Rest {
    next: AtomicUsize,
    end: usize,
}

impl Rest {
    fn take(&self) -> Option<usize> {
        // Reading first keeps the line shared among those who find the range empty.
        let left = self.next.load(Relaxed) < self.end;
        left.then(|| self.next.fetch_add(1, Relaxed)).filter(|&item| item < self.end)
    }
}
