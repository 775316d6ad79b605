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

/// The low word of a number.
const LOW: u64 = u32::MAX as u64;

/// Words as the low halves of numbers of 64 bits, whose high halves are of no account: products need no shuffles.
type Line = [u64; LANES];

/// A round for [`LANES`] blocks.
#[inline(always)]
fn round(c: [Line; 4], key: [u32; 2]) -> [Line; 4] {
    let mut next = [[0; LANES]; 4];
    for l in 0..LANES {
        let a = u64::from(c[0][l] as u32) * u64::from(MULTIPLIER[0]);
        let b = u64::from(c[2][l] as u32) * u64::from(MULTIPLIER[1]);
        next[0][l] = (b >> 32) ^ c[1][l] ^ u64::from(key[0]);
        next[1][l] = b;
        next[2][l] = (a >> 32) ^ c[3][l] ^ u64::from(key[1]);
        next[3][l] = a;
    }
    next
}

/// [`philox4x32_10`] for [`LANES`] neighbouring blocks of a stream, in loops that are vector code.
#[inline(always)]
pub fn philox_blocks(first: u64, stream: u64, mut key: [u32; 2], out: &mut [[u32; 4]; LANES]) {
    let mut c = [[0; LANES], [0; LANES], [stream; LANES], [stream >> 32; LANES]];
    for l in 0..LANES {
        c[0][l] = first.wrapping_add(l as u64);
        c[1][l] = c[0][l] >> 32;
    }
    c = round(c, key);
    for _ in 1..10 {
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        c = round(c, key);
    }
    // In pairs first, which is less work than words one by one.
    let mut pairs = [[0; 2]; LANES];
    for l in 0..LANES {
        pairs[l] = [(c[0][l] & LOW) | (c[1][l] << 32), (c[2][l] & LOW) | (c[3][l] << 32)];
    }
    for l in 0..LANES {
        let [a, b] = pairs[l];
        out[l] = [a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32];
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
