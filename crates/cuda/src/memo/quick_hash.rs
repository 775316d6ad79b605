//! A hash of keys that nobody outside chooses, such as what a library was asked before: a few instructions per number,
//! where the standard one, which withstands chosen keys, takes longer than the look-up of a plan should.

use std::hash::{BuildHasherDefault, Hasher};

/// For `HashMap::with_hasher` and the like.
pub(crate) type QuickHash = BuildHasherDefault<Mixer>;

/// Multiplies what came before with an odd number, after each word.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mixer {
    state: u64,
}

/// 2^64 divided by the golden ratio, odd.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Mixer {
    #[inline]
    fn mix(&mut self, word: u64) {
        self.state = (self.state.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.mix(number.into());
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.mix(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64);
    }

    /// Tables take the lowest bits, which a product mixes least.
    #[inline]
    fn finish(&self) -> u64 {
        self.state ^ self.state >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::{BuildHasher, Hash};

    #[test]
    fn sizes_that_differ_little_are_told_apart() {
        fn low(key: impl Hash) -> u64 {
            QuickHash::default().hash_one(key) & 0xffff
        }
        let sizes =
            (0..32u64).flat_map(|m| (0..32u64).map(move |n| [64 * m, 64 * n, 1 << (n % 8)]));
        let places: HashSet<u64> = sizes.map(low).collect();
        assert!(places.len() > 900, "{} of 1024", places.len());
    }
}
