//! Sums, means and variances of runs of numbers in one reading of memory. Numbers are added in lanes of
//! blocks that stay in the first-level cache; blocks are put together in f64, the variances of two blocks by
//! the distance of their means. A large mean costs no digits of the variance. Blocks whose squares leave f32's range
//! are added up again in f64.

use crate::numbers::float::Float;

/// Sums of squares in f32 from here on have all their digits: what underflows is nothing against them.
pub const LEAST_SQUARES: f64 = 1e-30;

/// Whether a sum of squares that was taken in f32 is to be taken in f64: it is infinite, unknown or so small that some
/// of its terms may have been lost.
#[inline(always)]
pub fn is_beyond(squares: f64) -> bool {
    !(LEAST_SQUARES..f64::INFINITY).contains(&squares)
}

/// Numbers that are added at once: four registers of f32 hide the latency of an addition.
pub const LANES: usize = 32;
/// A register of f32, for what is left of a run.
pub const REGISTER: usize = 8;
/// Numbers of a block, which are read twice: from the first-level cache the second time.
pub const BLOCK: usize = 4096;

/// `lane_sums!(T, n: a = a + x, b = b + x * y; x in xs, y in ys)`: sums over the first `n` numbers of slices of
/// `T`, as a tuple. A macro, not a function of a closure: it is part of the function for an instruction set.
#[doc(hidden)]
#[macro_export]
macro_rules! lane_sums {
    ($T:ty, $n:expr; $($sum:ident = $term:expr),+; $($x:ident in $from:expr),+) => {{
        use $crate::folds::moments::{LANES, REGISTER, add_register, fold_lanes};
        let n: usize = $n;
        $(let $x: &[$T] = &$from[..n];)+
        if n < REGISTER {
            $(let mut $sum = <$T as $crate::numbers::widen::Real>::ZERO;)+
            for j in 0..n {
                $(let $x = $x[j];)+
                $($sum = $term;)+
            }
            ($($sum.as_f64()),+)
        } else {
            $(let mut $sum = [<$T as $crate::numbers::widen::Real>::ZERO; LANES];)+
            let whole = n / LANES;
            {
                $(let $x = $x.as_chunks::<LANES>().0;)+
                for i in 0..whole {
                    $(let $x = &$x[i];)+
                    for j in 0..LANES {
                        $(let $x = $x[j];)+
                        $($sum[j] = { let $sum = $sum[j]; $term };)+
                    }
                }
            }
            $(let mut $sum = fold_lanes($sum);)+
            let mut start = whole * LANES;
            while start + REGISTER <= n {
                $(let $x: &[$T; REGISTER] = $x[start..].first_chunk().expect("so many are left");)+
                for j in 0..REGISTER {
                    $(let $x = $x[j];)+
                    $($sum[j] = { let $sum = $sum[j]; $term };)+
                }
                start += REGISTER;
            }
            if start < n {
                // The last register overlaps what is done, and takes what is not.
                let done = (start + REGISTER - n) as u32;
                $(let $x: &[$T; REGISTER] = $x[n - REGISTER..].first_chunk().expect("so many there are");)+
                for j in 0..REGISTER {
                    $(let $x = $x[j];)+
                    $($sum[j] = { let $sum = $sum[j]; let more = $term; if (j as u32) < done { $sum } else { more } };)+
                }
            }
            ($(add_register($sum)),+)
        }
    }};
}
pub use lane_sums;

/// The lanes' sums in a register.
#[inline(always)]
pub fn fold_lanes<T: Float>(lanes: [T; LANES]) -> [T; REGISTER] {
    let mut sums = [T::ZERO; REGISTER];
    for j in 0..REGISTER {
        sums[j] =
            (lanes[j] + lanes[j + 2 * REGISTER]) + (lanes[j + REGISTER] + lanes[j + 3 * REGISTER]);
    }
    sums
}

/// The sum of a register's numbers, pairwise.
#[inline(always)]
pub fn add_register<T: Float>(x: [T; REGISTER]) -> f64 {
    let half = [x[0] + x[4], x[1] + x[5], x[2] + x[6], x[3] + x[7]];
    ((half[0] + half[2]) + (half[1] + half[3])).as_f64()
}

/// Most numbers for which one register of sums does.
pub const SHORT: usize = 128;

/// Of a register's places those that [`short_sum`] takes of the last numbers of a run of `n`: it reads them with some
/// that are done already.
#[inline(always)]
pub fn last_of(n: usize) -> [bool; REGISTER] {
    let mut taken = [false; REGISTER];
    taken[REGISTER - n % REGISTER..].fill(true);
    taken
}

/// The sum of [`REGISTER`] to [`SHORT`] numbers, for many runs of one length, of which `taken` is [`last_of`].
#[inline(always)]
pub fn short_sum<T: Float>(x: &[T], taken: &[bool; REGISTER]) -> f64 {
    let (mut sums, whole) = ([T::ZERO; REGISTER], x.as_chunks::<REGISTER>().0);
    for i in 0..whole.len() {
        for k in 0..REGISTER {
            sums[k] += whole[i][k];
        }
    }
    let last: &[T; REGISTER] = x.last_chunk().expect("as many and more");
    for k in 0..REGISTER {
        sums[k] = if taken[k] { sums[k] + last[k] } else { sums[k] };
    }
    add_register(sums)
}

/// The sum of some numbers.
#[inline(always)]
pub fn sum<T: Float>(x: &[T]) -> f64 {
    if x.len() <= BLOCK {
        return lane_sums!(T, x.len(); s = s + x; x in x);
    }
    let mut total = 0.0;
    for start in (0..x.len()).step_by(BLOCK) {
        let n = BLOCK.min(x.len() - start);
        total += lane_sums!(T, n; s = s + x; x in x[start..]);
    }
    total
}

/// Count, mean, and sum of the squared distances to the mean.
#[derive(Clone, Copy, Default)]
pub struct Moments {
    /// How many numbers.
    pub count: f64,
    /// Their mean.
    pub mean: f64,
    /// Sum of the squared distances to it.
    pub squares: f64,
}

impl Moments {
    /// Of one run of numbers.
    #[inline(always)]
    pub fn of<T: Float, const FMA: bool>(x: &[T]) -> Self {
        if x.len() <= BLOCK {
            return Moments::of_block::<T, FMA>(x);
        }
        let mut moments = Moments::default();
        for start in (0..x.len()).step_by(BLOCK) {
            let block = &x[start..][..BLOCK.min(x.len() - start)];
            moments = moments.with(Moments::of_block::<T, FMA>(block));
        }
        moments
    }

    #[inline(always)]
    fn of_block<T: Float, const FMA: bool>(x: &[T]) -> Self {
        let n = x.len() as f64;
        // Of no numbers the mean is NaN, as it should be.
        let near = T::of(lane_sums!(T, x.len(); s = s + x; x in x) / n);
        let (squares, rest) = lane_sums!(
            T, x.len();
            squares = (x - near).fma::<FMA>(x - near, squares), rest = rest + (x - near);
            x in x
        );
        if size_of::<T>() == 4 && is_beyond(squares) {
            return Moments::of_block_in_f64(x);
        }
        // `near` is rounded: what that leaves of the mean is taken out again.
        let off = rest / n;
        Moments { count: n, mean: near.as_f64() + off, squares: squares - off * rest }
    }

    /// The same in f64.
    #[cold]
    #[inline(never)]
    fn of_block_in_f64<T: Float>(x: &[T]) -> Self {
        let count = x.len() as f64;
        // Padding is all the same.
        if let Some(&first) = x.first()
            && x.iter().all(|v| *v == first)
        {
            return Moments {
                count,
                mean: first.as_f64(),
                squares: first.as_f64() - first.as_f64(),
            };
        }
        let mean = x.iter().map(|v| v.as_f64()).sum::<f64>() / count;
        let squares = x.iter().map(|v| (v.as_f64() - mean) * (v.as_f64() - mean)).sum();
        Moments { count, mean, squares }
    }

    /// Of both.
    #[inline(always)]
    pub fn with(self, other: Self) -> Self {
        if self.count == 0.0 {
            return other;
        }
        let count = self.count + other.count;
        let (distance, share) = (other.mean - self.mean, other.count / count);
        Moments {
            count,
            mean: self.mean + distance * share,
            squares: self.squares + other.squares + distance * distance * self.count * share,
        }
    }

    /// The mean squared distance to the mean.
    #[inline(always)]
    pub fn variance(self) -> f64 {
        // Rounding may leave a little less than nothing.
        if self.squares < 0.0 { 0.0 } else { self.squares / self.count }
    }
}
