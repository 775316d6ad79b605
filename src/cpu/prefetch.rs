//! Having memory brought in before it is read. Processors foresee rising addresses by themselves, but not
//! beyond a page, and not for many streams at once.

/// Has the cache line with `at` brought in; any address will do.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    bring::<FIRST, T>(at);
}

/// Has the cache line with `at` brought into the second-level cache, where it pushes nothing out of the first
/// that is in use until then; any address will do.
#[inline(always)]
pub fn prefetch_later<T>(at: *const T) {
    bring::<SECOND, T>(at);
}

/// The first-level cache, as x86-64's instruction has it.
const FIRST: i32 = 3;
/// The second-level cache.
const SECOND: i32 = 2;

#[inline(always)]
fn bring<const LEVEL: i32, T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is harmless, and SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<LEVEL>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
