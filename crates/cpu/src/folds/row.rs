//! Loops over a dense row that several ops are made of: maxima, sums of a function, exponentials.
//! Values are wide (f32 or f64); the last, incomplete group of lanes is padded, so that short rows
//! are vector code too. Sums are taken in lanes and then pairwise, as in `fold`.

use std::any::TypeId;

use crate::arch::prefetch::prefetch;
use crate::folds::extreme::Ordered;
use crate::folds::fold::in_pairs;
use crate::numbers::widen::{Real, Widen};

/// Lanes of a group: two 256-bit registers of f32.
pub const N: usize = 16;
/// Elements that are summed in lanes before the pairwise tree takes over.
pub const LEAF: usize = 128 * N;

/// What rows hold: a float type, with its wide type.
pub trait Float: Widen<Wide: Real + Ordered> {}
impl<T: Widen<Wide: Real + Ordered>> Float for T {}

#[inline(always)]
fn padded<T: Float>(tail: &[T], pad: T::Wide) -> [T::Wide; N] {
    let mut wide = [pad; N];
    for (w, x) in wide.iter_mut().zip(tail) {
        *w = x.widen();
    }
    wide
}

/// The `n` elements at the start of `all`, less than a group, widened, with `pad` behind them. What follows a
/// row mostly is the next one: then a whole group is read at once, and what is not the row's is replaced.
#[inline(always)]
pub fn tail<T: Float>(all: &[T], n: usize, pad: T::Wide) -> [T::Wide; N] {
    let Some(group) = all.first_chunk() else { return padded(&all[..n], pad) };
    let (mut wide, n) = (T::widen_some::<false, N>(group), n as u32);
    for j in 0..N {
        wide[j] = if (j as u32) < n { wide[j] } else { pad };
    }
    wide
}

/// Sum of the lanes, pairwise.
#[inline(always)]
pub fn add_lanes<R: Real>(lanes: [R; N]) -> R {
    in_pairs(lanes, |a, b| a + b)
}

/// `b` where it is larger, else `a`: one instruction, which leaves NaN in `b` out.
#[inline(always)]
pub fn larger<R: Real>(a: R, b: R) -> R {
    if b > a { b } else { a }
}

/// The largest of the `n` numbers at the start of `all`; minus infinity if there is none. NaN does not count: the
/// exponential of its distance to any number is NaN, so that the sums for which rows are shifted by this have it all
/// the same.
#[inline(always)]
pub fn max<T: Float>(all: &[T], n: usize) -> T::Wide {
    let (groups, rest) = all[..n].as_chunks::<N>();
    let last = tail(&all[n - rest.len()..], rest.len(), T::Wide::NEG_INFINITY);
    // Four at a time: a maximum takes several cycles, and a row of them waits for one another.
    let (fours, rest) = groups.as_chunks::<4>();
    let mut lanes = [[T::Wide::NEG_INFINITY; N]; 4];
    for four in fours {
        for k in 0..4 {
            for j in 0..N {
                lanes[k][j] = larger(lanes[k][j], four[k][j].widen());
            }
        }
    }
    let mut most = [T::Wide::NEG_INFINITY; N];
    for j in 0..N {
        most[j] = larger(most[j], last[j]);
    }
    for group in rest {
        for j in 0..N {
            most[j] = larger(most[j], group[j].widen());
        }
    }
    for k in 0..4 {
        for j in 0..N {
            most[j] = larger(most[j], lanes[k][j]);
        }
    }
    in_pairs(most, larger)
}

/// `sums(start..end)` of leaves, put together by a binary tree. These are macros, not functions of
/// closures: a closure with exponentials in it is too long for LLVM to inline into the loop for an
/// instruction set, and then knows none of its instructions.
#[doc(hidden)]
#[macro_export]
macro_rules! pairwise {
    ($n:expr, $R:ty, |$start:ident, $end:ident| $leaf:expr) => {{
        let (n, mut tree, mut $start) = ($n, $crate::folds::fold::Tree::<$R>::new(), 0);
        loop {
            let $end = n.min($start + $crate::folds::row::LEAF);
            let sum: $R = $leaf;
            if $start == 0 && $end == n {
                break sum;
            }
            tree.push(sum, |a, b| a + b);
            $start = $end;
            if $start == n {
                break tree.finish(<$R>::ZERO, |a, b| a + b);
            }
        }
    }};
}
pub use pairwise;

/// `sum!(T, all, n, pad, |v| f(v))`: the sum of f over the `n` elements at the start of the `&[T]` all.
/// `f(pad)` must be 0.
#[doc(hidden)]
#[macro_export]
macro_rules! sum {
    ($T:ty, $all:expr, $n:expr, $pad:expr, |$v:ident| $f:expr) => {{
        type Wide<T> = <T as $crate::numbers::widen::Widen>::Wide;
        let (all, n): (&[$T], usize) = ($all, $n);
        $crate::folds::row::pairwise!(n, Wide<$T>, |start, end| {
            let mut lanes = [<Wide<$T>>::ZERO; $crate::folds::row::N];
            let (groups, rest) = all[start..end].as_chunks::<{ $crate::folds::row::N }>();
            for group in groups {
                for j in 0..$crate::folds::row::N {
                    let $v = group[j].widen();
                    lanes[j] += $f;
                }
            }
            // No part of the loop above: with it, the lanes would live in memory.
            if !rest.is_empty() {
                let last = $crate::folds::row::tail(&all[end - rest.len()..], rest.len(), $pad);
                for j in 0..$crate::folds::row::N {
                    let $v = last[j];
                    lanes[j] += $f;
                }
            }
            $crate::folds::row::add_lanes(lanes)
        })
    }};
}
pub use sum;

/// `sum2!(T, x, y, |v, w| f(v, w))`: the sum of f over two `&[T]`. `f(0, 0)` must be 0.
#[doc(hidden)]
#[macro_export]
macro_rules! sum2 {
    ($T:ty, $x:expr, $y:expr, |$v:ident, $w:ident| $f:expr) => {{
        type Wide<T> = <T as $crate::numbers::widen::Widen>::Wide;
        let (x, y): (&[$T], &[$T]) = ($x, $y);
        assert_eq!(x.len(), y.len());
        let zero = <Wide<$T>>::ZERO;
        $crate::folds::row::pairwise!(x.len(), Wide<$T>, |start, end| {
            let mut lanes = [zero; $crate::folds::row::N];
            let (a, a_tail) = x[start..end].as_chunks();
            let (b, b_tail) = y[start..end].as_chunks();
            for g in 0..a.len() + usize::from(!a_tail.is_empty()) {
                let a = $crate::folds::row::group(a, a_tail, g, zero);
                let b = $crate::folds::row::group(b, b_tail, g, zero);
                for j in 0..$crate::folds::row::N {
                    let ($v, $w) = (a[j], b[j]);
                    lanes[j] += $f;
                }
            }
            $crate::folds::row::add_lanes(lanes)
        })
    }};
}
pub use sum2;

/// `map!(T, all, out, |v| f(v))`: `out_i = f(x_i)` of as many elements from the start of the `&[T]` all.
#[doc(hidden)]
#[macro_export]
macro_rules! map {
    ($T:ty, $all:expr, $out:expr, |$v:ident| $f:expr) => {{
        type Wide<T> = <T as $crate::numbers::widen::Widen>::Wide;
        let (all, out): (&[$T], &mut [$T]) = ($all, $out);
        let rest = out.len() % $crate::folds::row::N;
        let whole = out.len() - rest;
        // A plain loop: of one over groups the compiler makes scatters.
        let x = &all[..whole];
        for i in 0..whole {
            let $v = x[i].widen();
            out[i] = <$T>::narrow($f);
        }
        if rest > 0 {
            let mut last = $crate::folds::row::tail(&all[whole..], rest, <Wide<$T>>::ZERO);
            for j in 0..$crate::folds::row::N {
                let $v = last[j];
                last[j] = $f;
            }
            for (result, value) in out[whole..].iter_mut().zip(last) {
                *result = <$T>::narrow(value);
            }
        }
    }};
}
pub use map;

/// Group `g` of a row, widened; the one after `groups` is the tail, padded.
#[inline(always)]
pub fn group<T: Float>(groups: &[[T; N]], tail: &[T], g: usize, pad: T::Wide) -> [T::Wide; N] {
    match groups.get(g) {
        Some(group) => T::widen_some::<false, N>(group),
        None => padded(tail, pad),
    }
}

/// A row as one of the wide type, if that is what it is.
#[inline(always)]
pub fn as_wide<T: Float>(x: &mut [T]) -> Option<&mut [T::Wide]> {
    let same = TypeId::of::<T>() == TypeId::of::<T::Wide>();
    // SAFETY: the same type under its other name.
    same.then(|| unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().cast(), x.len()) })
}

/// Writes `e^(x_i - shift)` to `out`, with as many elements from the start of `all`, and gives their sum;
/// meanwhile has what follows both brought in, which mostly are the next rows.
#[inline(always)]
pub fn exp_sum<T: Float, const FMA: bool>(
    all: &[T],
    shift: T::Wide,
    out: &mut [T::Wide],
) -> T::Wide {
    let x = &all[..out.len()];
    let out_start = out.as_ptr();
    pairwise!(x.len(), T::Wide, |start, end| {
        let mut lanes = [T::Wide::ZERO; N];
        let (groups, rest) = x[start..end].as_chunks::<N>();
        let (results, result_tail) = out[start..end].as_chunks_mut::<N>();
        // The tail is no part of this loop: with it, the lanes would live in memory.
        for g in 0..groups.len().min(results.len()) {
            let next = x.len() + start + g * N;
            prefetch(x.as_ptr().wrapping_add(next));
            prefetch(out_start.wrapping_add(next));
            for j in 0..N {
                let power = (groups[g][j].widen() - shift).exp_flushed::<FMA>();
                results[g][j] = power;
                lanes[j] += power;
            }
        }
        if !rest.is_empty() {
            let mut powers = tail(&all[end - rest.len()..], rest.len(), T::Wide::NEG_INFINITY);
            for j in 0..N {
                powers[j] = (powers[j] - shift).exp_flushed::<FMA>();
                lanes[j] += powers[j];
            }
            for (result, power) in result_tail.iter_mut().zip(powers) {
                *result = power;
            }
        }
        add_lanes(lanes)
    })
}
