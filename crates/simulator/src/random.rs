//! A small random generator for the adversary: what it decides depends on its seed only.

use std::sync::atomic::{AtomicU64, Ordering};

/// Splitmix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator of its own for each `salt`, such as an executor's number.
    pub fn new(seed: u64, salt: u64) -> Random {
        let mut random = Random(seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.next();
        random
    }

    /// One that no other call of this process got.
    pub fn fresh(seed: u64) -> Random {
        static SALT: AtomicU64 = AtomicU64::new(1);
        Random::new(seed, SALT.fetch_add(1, Ordering::Relaxed))
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}
