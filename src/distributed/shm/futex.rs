//! Sleeping on a word of shared memory, and waking those who sleep on it, across processes.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps until `word` is woken, `limit` passes, or at once if `word` is not `expected`. May also
/// return for no reason: the caller looks at the word again.
pub(super) fn wait(word: &AtomicU32, expected: u32, limit: Duration) {
    let limit = libc::timespec {
        tv_sec: limit.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_nsec: limit.subsec_nanos().into(),
    };
    let null = std::ptr::null::<u32>();
    // SAFETY: `word` and `limit` are valid for the call; FUTEX_WAIT reads them and nothing else.
    // Not FUTEX_WAIT_PRIVATE: the word is shared with other processes.
    unsafe {
        let (word, limit) = (word.as_ptr(), &raw const limit);
        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, expected, limit, null, 0u32);
    }
}

/// Wakes all who sleep on `word`.
pub(super) fn wake_all(word: &AtomicU32) {
    let null = std::ptr::null::<u32>();
    // SAFETY: FUTEX_WAKE uses the address as a name only.
    unsafe {
        let (word, none) = (word.as_ptr(), std::ptr::null::<libc::timespec>());
        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX, none, null, 0u32);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_wait_ends_by_its_limit_by_another_value_or_by_a_wake() {
        let word = AtomicU32::new(5);
        let start = Instant::now();
        wait(&word, 5, Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(19));
        wait(&word, 4, Duration::from_secs(600));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while word.load(Ordering::SeqCst) == 5 {
                    wait(&word, 5, Duration::from_secs(600));
                }
            });
            word.store(6, Ordering::SeqCst);
            wake_all(&word);
        });
    }
}
