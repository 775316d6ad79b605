//! How large a core's caches are, which decides whether an operand is used where it is or copied first.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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

#[cfg(test)]
mod tests {
    /// Whatever the processor, the first level is smaller than the second, and no level is absurd.
    #[test]
    fn levels_grow() {
        assert!((4 << 10..1 << 20).contains(&super::first()), "{}", super::first());
        assert!(super::first() < super::second() && super::second() < 1 << 30);
        assert_eq!(super::first(), super::first());
    }
}
