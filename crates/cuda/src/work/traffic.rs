//! What devices are asked to do, counted: launches, calls of libraries, and the bytes of memory that their operands
//! have. Nobody counts: a load and a branch.
//!
//! A launch is told addresses. How much memory an address stands for is known to who makes tensors of it, and said by
//! [`operand`]. An operand counts once for each time that a call has its address; what a kernel writes where it has read
//! is said by [`rewritten`].

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

/// How many count.
static COUNTING: AtomicUsize = AtomicUsize::new(0);
/// Bytes at addresses, as they were said last.
static OPERANDS: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);
/// By the name of what was called.
static CALLS: Mutex<BTreeMap<String, Traffic>> = Mutex::new(BTreeMap::new());

thread_local! {
    static OWN: Cell<Traffic> = const { Cell::new(Traffic::NONE) };
    /// Addresses and sizes of arguments for the next launch.
    static ARGUMENTS: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
    /// Bytes that the next launch writes where it has read.
    static REWRITTEN: Cell<usize> = const { Cell::new(0) };
}

/// What a device was asked to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Kernels of this library, fills and copies.
    pub launches: u64,
    /// Bytes of their operands.
    pub bytes: u64,
    /// Products, convolutions and attention of NVIDIA's libraries.
    pub library_calls: u64,
    /// Bytes of their operands.
    pub library_bytes: u64,
}

impl Traffic {
    const NONE: Traffic = Traffic { launches: 0, bytes: 0, library_calls: 0, library_bytes: 0 };

    fn both(self, other: Traffic, f: impl Fn(u64, u64) -> u64) -> Traffic {
        Traffic {
            launches: f(self.launches, other.launches),
            bytes: f(self.bytes, other.bytes),
            library_calls: f(self.library_calls, other.library_calls),
            library_bytes: f(self.library_bytes, other.library_bytes),
        }
    }
}

impl std::ops::Add for Traffic {
    type Output = Traffic;
    fn add(self, other: Traffic) -> Traffic {
        self.both(other, |a, b| a + b)
    }
}

impl std::ops::Sub for Traffic {
    type Output = Traffic;
    fn sub(self, other: Traffic) -> Traffic {
        self.both(other, u64::saturating_sub)
    }
}

/// While it lives, all threads count.
#[derive(Debug)]
pub struct Counting(());

impl Counting {
    /// Counts from now on; the first forgets what was counted before.
    pub fn start() -> Counting {
        if COUNTING.fetch_add(1, Relaxed) == 0 {
            CALLS.lock().clear();
            *OPERANDS.lock() = Some(HashMap::new());
        }
        Counting(())
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        if COUNTING.fetch_sub(1, Relaxed) == 1 {
            *OPERANDS.lock() = None;
        }
    }
}

/// Whether somebody counts.
#[inline(always)]
pub fn is_counted() -> bool {
    COUNTING.load(Relaxed) != 0
}

/// What this thread has asked for so far.
pub fn of_this_thread() -> Traffic {
    OWN.get()
}

/// What was called since the counting began, by name.
pub fn by_name() -> BTreeMap<String, Traffic> {
    CALLS.lock().clone()
}

/// Says that calls with this address use so many bytes there.
#[cold]
pub fn operand(address: *const u8, bytes: usize) {
    if let Some(operands) = &mut *OPERANDS.lock() {
        operands.insert(address as usize, bytes);
    }
}

/// Notes an argument of the next launch of this thread.
#[cold]
pub fn argument(address: usize, bytes: usize) {
    ARGUMENTS.with_borrow_mut(|arguments| arguments.push((address, bytes)));
}

/// Says that the next launch of this thread writes so many bytes where it has read.
#[inline]
pub fn rewritten(bytes: impl FnOnce() -> usize) {
    if is_counted() {
        REWRITTEN.set(bytes());
    }
}

/// Forgets the arguments that were noted: of a launch that does not use all memory that it has addresses of.
#[cold]
pub fn forget_arguments() {
    ARGUMENTS.take();
}

/// Counts a launch of a kernel with arguments at these addresses.
///
/// # Safety
/// The arguments are there.
#[cold]
pub unsafe fn launched(name: &str, arguments: &[usize]) {
    let noted = ARGUMENTS.take();
    let mut bytes = REWRITTEN.take();
    for at in arguments {
        let Some((_, size)) = noted.iter().rfind(|(address, _)| address == at) else { continue };
        let words = size / size_of::<usize>();
        if !at.is_multiple_of(align_of::<usize>()) {
            continue;
        }
        // SAFETY: the caller's promise; so many words are in the argument.
        let words = unsafe { std::slice::from_raw_parts(*at as *const usize, words) };
        bytes += words.iter().map(|word| bytes_at(*word)).sum::<usize>();
    }
    add(name, Traffic { launches: 1, bytes: bytes as u64, ..Traffic::NONE });
}

/// Counts a call of a library.
#[cold]
pub fn called(name: &str, operands: &[*const u8]) {
    let bytes: usize = operands.iter().map(|at| bytes_at(*at as usize)).sum();
    add(name, Traffic { library_calls: 1, library_bytes: bytes as u64, ..Traffic::NONE });
}

/// Counts a fill or a copy, which reads and writes so many bytes.
#[cold]
pub fn moved(name: &str, bytes: usize) {
    add(name, Traffic { launches: 1, bytes: bytes as u64, ..Traffic::NONE });
}

fn bytes_at(address: usize) -> usize {
    let operands = OPERANDS.lock();
    operands.as_ref().and_then(|all| all.get(&address)).copied().unwrap_or(0)
}

fn add(name: &str, more: Traffic) {
    OWN.set(OWN.get() + more);
    let mut calls = CALLS.lock();
    let of_name = calls.entry(name.to_owned()).or_default();
    *of_name = *of_name + more;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_count_by_the_addresses_in_arguments() {
        let _counting = Counting::start();
        let (x, y) = ([0u8; 64], [0u8; 32]);
        operand(x.as_ptr(), 64);
        operand(y.as_ptr(), 32);
        let task = [x.as_ptr() as usize, 7, y.as_ptr() as usize];
        let other = 3i32;
        let (at, beside) = ((&raw const task) as usize, (&raw const other) as usize);
        argument(at, size_of_val(&task));
        argument(beside, 4);
        rewritten(|| 4);
        let before = of_this_thread();
        // SAFETY: both are there.
        unsafe { launched("add", &[at, beside]) };
        called("product", &[x.as_ptr(), x.as_ptr()]);
        let counted = of_this_thread() - before;
        let expected = Traffic { launches: 1, bytes: 100, library_calls: 1, library_bytes: 128 };
        assert_eq!(counted, expected);
        assert_eq!(by_name()["add"].bytes, 100);
    }
}
