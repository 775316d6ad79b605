//! How a thread waits for a call of NCCL to be through, which mostly takes microseconds: less than the shortest sleep.

use std::time::{Duration, Instant};

/// For so long it looks again at once.
const SPIN: Duration = Duration::from_micros(200);
/// Turns between two looks meanwhile: a look is a call that takes a lock.
const TURNS: u32 = 64;
/// The first sleep behind that, and the longest.
const SLEEPS: (Duration, Duration) = (Duration::from_micros(5), Duration::from_millis(1));

/// Since when it waits, and how long it sleeps next.
pub(super) struct Patience {
    start: Instant,
    next: Duration,
}

impl Patience {
    pub(super) fn new() -> Self {
        Patience { start: Instant::now(), next: SLEEPS.0 }
    }

    /// Returns when it is time to look again: whether it has slept.
    pub(super) fn wait(&mut self) -> bool {
        if self.start.elapsed() < SPIN {
            (0..TURNS).for_each(|_| std::hint::spin_loop());
            return false;
        }
        std::thread::sleep(self.next);
        self.next = (self.next * 2).min(SLEEPS.1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_often_before_it_sleeps() {
        let mut patience = Patience::new();
        let looks = (0..).take_while(|_| !patience.wait()).count();
        assert!(looks > 3, "{looks} looks in {SPIN:?}");
        assert!(patience.start.elapsed() >= SPIN);
        (0..20).for_each(|_| _ = patience.wait());
        assert_eq!(patience.next, SLEEPS.1);
    }
}
