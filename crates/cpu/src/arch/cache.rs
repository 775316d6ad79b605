//! How large a core's caches are, which decides whether an operand is used where it is or copied first.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::arch::isa::{self, Isa};

/// Bytes of a cache line.
pub const LINE: usize = 64;
/// Where the system does not say: what most processors have at least.
const FIRST: usize = 32 << 10;
const SECOND: usize = 512 << 10;

/// Bytes of a core's first-level cache of data.
#[inline]
pub fn first() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    once(&SIZE, 1, FIRST)
}

/// Bytes of a core's second-level cache.
#[inline]
pub fn second() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    once(&SIZE, 2, SECOND)
}

/// Whether so many elements more likely come from memory than from a cache that cores share. Where they do, lines
/// that are near each other had better be read one after the other: processors foresee one stream in a page, and
/// of two lines in turns none (on Zen 4 they come at half the speed).
#[inline]
pub fn is_far<T>(x: &[T]) -> bool {
    are_far(size_of_val(x))
}

/// [`is_far`] of so many bytes.
#[inline]
pub fn are_far(bytes: usize) -> bool {
    bytes > 8 << 20
}

/// Whether memory is reached best as on Zen 4, which reads fastest from one place, rather than as on Zen 3, which wants
/// several. Processors with AVX-512 are taken for the former.
#[inline]
pub fn is_like_zen4() -> bool {
    isa::available() == Isa::Avx512
}

/// Whether a result of so many bytes is better written past the caches: the shared one does not hold it until it
/// is read.
#[inline]
pub fn is_beyond(bytes: usize) -> bool {
    bytes >= 32 << 20
}

#[inline]
fn once(size: &AtomicUsize, level: u8, usual: usize) -> usize {
    match size.load(Relaxed) {
        0 => ask(size, level, usual),
        known => known,
    }
}

#[cold]
fn ask(size: &AtomicUsize, level: u8, usual: usize) -> usize {
    let found = said(level).unwrap_or(usual);
    size.store(found, Relaxed);
    found
}

/// What the C library knows of a level, if it does.
fn said(level: u8) -> Option<usize> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let name = match level {
            1 => libc::_SC_LEVEL1_DCACHE_SIZE,
            _ => libc::_SC_LEVEL2_CACHE_SIZE,
        };
        // SAFETY: asks for a number.
        let size = unsafe { libc::sysconf(name) };
        usize::try_from(size).ok().filter(|&size| size > 0)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    {
        let _ = level;
        None
    }
}
