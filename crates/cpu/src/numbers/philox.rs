//! Philox 4x32-10, the counter-based random generator of Salmon et al., "Parallel random numbers:
//! as easy as 1, 2, 3" (SC 2011). A block is a pure function of (counter, key), so any thread,
//! process or device can compute any part of a stream and gets the same numbers.

/// Multipliers of the two 32x32 products of a round.
const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Added to the key after every round (golden ratio, sqrt(3) - 1).
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words for this counter under this key: ten rounds.
#[inline]
pub fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let a = u64::from(MULTIPLIER[0]) * u64::from(counter[0]);
        let b = u64::from(MULTIPLIER[1]) * u64::from(counter[2]);
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
    }
    counter
}

/// Blocks that [`philox_blocks`] makes side by side.
pub const LANES: usize = 8;

/// [`philox4x32_10`] for [`LANES`] neighbouring blocks of a stream, in loops that are vector code.
#[inline(always)]
pub fn philox_blocks(first: u64, stream: u64, mut key: [u32; 2], out: &mut [[u32; 4]; LANES]) {
    let mut c0 = [0; LANES];
    let mut c1 = [0; LANES];
    let mut c2 = [stream as u32; LANES];
    let mut c3 = [(stream >> 32) as u32; LANES];
    for l in 0..LANES {
        let block = first.wrapping_add(l as u64);
        (c0[l], c1[l]) = (block as u32, (block >> 32) as u32);
    }
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        for l in 0..LANES {
            let a = u64::from(MULTIPLIER[0]) * u64::from(c0[l]);
            let b = u64::from(MULTIPLIER[1]) * u64::from(c2[l]);
            c0[l] = (b >> 32) as u32 ^ c1[l] ^ key[0];
            c1[l] = b as u32;
            c2[l] = (a >> 32) as u32 ^ c3[l] ^ key[1];
            c3[l] = a as u32;
        }
    }
    for l in 0..LANES {
        out[l] = [c0[l], c1[l], c2[l], c3[l]];
    }
}

/// The words of one Philox stream in order. `seed` is the key; `stream` the upper half of the
/// counter, so that each (seed, stream) pair has 2^66 words of its own.
#[derive(Debug, Clone)]
pub struct PhiloxStream {
    key: [u32; 2],
    stream: u64,
    next_block: u64,
    words: [u32; 4],
    used: usize,
}

impl PhiloxStream {
    /// The beginning of stream number `stream` under `seed`.
    #[inline]
    pub fn new(seed: u64, stream: u64) -> Self {
        let key = [seed as u32, (seed >> 32) as u32];
        PhiloxStream { key, stream, next_block: 0, words: [0; 4], used: 4 }
    }

    /// 32 random bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            let (block, stream) = (self.next_block, self.stream);
            let counter =
                [block as u32, (block >> 32) as u32, stream as u32, (stream >> 32) as u32];
            self.words = philox4x32_10(counter, self.key);
            self.next_block = block.wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) | u64::from(self.next_u32()) << 32
    }

    /// A uniform integer in `0..bound`, without bias: Lemire's multiply-and-reject.
    ///
    /// # Panics
    /// When `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "PhiloxStream::below: the bound is 0");
        // The 128-bit product's upper half is the result; lower halves under 2^64 mod bound (which
        // is itself under `bound`) would favour some results by one.
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            let lower = product as u64;
            if lower >= bound || lower >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// A uniform number in [0, 1): 24 random bits.
    #[inline]
    pub fn uniform(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 * (1.0 / (1 << 24) as f32)
    }

    /// Two independent standard normal numbers (Box-Muller).
    #[inline]
    pub fn normal_pair(&mut self) -> [f32; 2] {
        // 1 - u lies in (0, 1], where the logarithm is finite.
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        let (sin, cos) = (std::f32::consts::TAU * self.uniform()).sin_cos();
        [radius * cos, radius * sin]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_side_by_side_are_those_one_by_one() {
        for (first, stream) in [(0, 0), (u64::from(u32::MAX) - 3, 7 << 40 | 5), (u64::MAX - 2, 1)] {
            let (key, mut blocks) = ([3, 1 << 31], [[0; 4]; LANES]);
            philox_blocks(first, stream, key, &mut blocks);
            for (l, words) in blocks.iter().enumerate() {
                let block = first.wrapping_add(l as u64);
                let counter = [block, block >> 32, stream, stream >> 32].map(|c| c as u32);
                assert_eq!(*words, philox4x32_10(counter, key));
            }
        }
    }

    /// Random123's known answers for philox4x32, 10 rounds.
    #[test]
    fn known_answers() {
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([!0; 4], [!0; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32_10(counter, key), expected, "counter {counter:x?}");
        }
    }

    #[test]
    fn a_stream_is_its_blocks_in_order() {
        let mut stream = PhiloxStream::new(5 | 7 << 32, 3 | 9 << 32);
        let words: Vec<u32> = (0..8).map(|_| stream.next_u32()).collect();
        assert_eq!(words[..4], philox4x32_10([0, 0, 3, 9], [5, 7]));
        assert_eq!(words[4..], philox4x32_10([1, 0, 3, 9], [5, 7]));
    }

    #[test]
    fn bounded_integers_are_uniform_and_in_range() {
        let mut stream = PhiloxStream::new(1, 0);
        let mut counts = [0u32; 6];
        for _ in 0..60_000 {
            counts[stream.below(6) as usize] += 1;
        }
        // Standard deviation of a count is 91; the seed is fixed, so this cannot flicker.
        assert!(counts.iter().all(|&c| c.abs_diff(10_000) < 400), "{counts:?}");
        // A bound of 3/4 of 2^64 rejects a quarter of the draws: the loop is exercised.
        let large = 3 << 62;
        let mean = (0..4_000).map(|_| stream.below(large) as f64 / large as f64).sum::<f64>() / 4e3;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        assert_eq!(stream.below(1), 0);
    }

    #[test]
    fn normal_numbers_have_mean_0_and_variance_1() {
        let mut stream = PhiloxStream::new(2, 0);
        let numbers: Vec<f32> = (0..20_000).flat_map(|_| stream.normal_pair()).collect();
        let mean = numbers.iter().sum::<f32>() / numbers.len() as f32;
        let variance = numbers.iter().map(|x| x * x).sum::<f32>() / numbers.len() as f32;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
        assert!(numbers.iter().all(|x| x.is_finite()));
    }
}
