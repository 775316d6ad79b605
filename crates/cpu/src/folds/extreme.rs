//! The largest or smallest element along a dimension of a strided buffer, and where it is: the first
//! of equal ones; NaN counts as the extreme.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::arch::vectorize::{Kernel, vectorize};
use crate::folds::fold::{Fold, Order, Shared, gather, leaf};
use crate::threads::{GRAIN, parallel_for};
use torchrs_loops::fold::{Plan, Walk};

/// A type with a largest and a smallest element.
pub trait Ordered: Copy + Default + PartialOrd + Send + Sync {
    /// Not above any other.
    const LOWEST: Self;
    /// Not below any other.
    const HIGHEST: Self;
    /// The value, with all bits set if `other` is NaN: no branch, and only this waits for the value.
    fn or_nan(self, other: Self) -> Self;
}

macro_rules! ordered {
    ($($t:ty: $low:expr, $high:expr, |$x:ident, $other:ident| $or_nan:expr;)*) => {$(
        impl Ordered for $t {
            const LOWEST: $t = $low;
            const HIGHEST: $t = $high;
            #[inline(always)]
            fn or_nan(self, $other: $t) -> $t {
                let $x = self;
                $or_nan
            }
        }
    )*};
}
ordered! {
    f32: f32::NEG_INFINITY, f32::INFINITY, |x, other| {
        f32::from_bits(x.to_bits() | if other.is_nan() { u32::MAX } else { 0 })
    };
    f64: f64::NEG_INFINITY, f64::INFINITY, |x, other| {
        f64::from_bits(x.to_bits() | if other.is_nan() { u64::MAX } else { 0 })
    };
    i64: i64::MIN, i64::MAX, |x, _other| x;
}

/// True when `a` is to be preferred to `b`, which comes before it. A NaN is preferred to anything but
/// a NaN.
#[inline(always)]
#[allow(clippy::eq_op, reason = "x != x is how a generic float says that it is NaN")]
pub fn beats<T: Ordered, const LARGEST: bool>(a: T, b: T) -> bool {
    let further = if LARGEST { a > b } else { a < b };
    further | (a != a) & (b == b)
}

/// The fold that finds the largest (or smallest) value.
pub struct Extreme<T, const LARGEST: bool>(pub std::marker::PhantomData<T>);

impl<T: Ordered, const LARGEST: bool> Fold for Extreme<T, LARGEST> {
    type In = T;
    type Acc = T;
    type Param = ();
    #[inline(always)]
    fn identity(&self) -> T {
        if LARGEST { T::LOWEST } else { T::HIGHEST }
    }
    #[inline(always)]
    fn param(&self, _: usize) {}
    #[inline(always)]
    fn map<const FMA: bool>(&self, x: T, (): ()) -> T {
        x
    }
    #[inline(always)]
    fn combine(&self, a: T, b: T) -> T {
        let further = if LARGEST { b > a } else { b < a };
        // A NaN that is there already is never passed.
        (if further { b } else { a }).or_nan(b)
    }
}

/// Elements that are searched as one; also the width of a tile of columns.
const TILE: usize = 1024;

/// Calls `store(output, value, index)` once for every output of the plan, which folds at most one
/// dimension, of at least one element.
///
/// # Safety
/// Every position of the plan relative to `input` is an element that can be read and is not written
/// meanwhile.
pub unsafe fn extremes<T: Ordered, const LARGEST: bool>(
    plan: &Plan,
    input: *const T,
    store: impl Fn(usize, T, usize) + Sync,
) {
    assert!(plan.folded().1.is_empty() && plan.count() > 0);
    let input = Shared(input);
    let order = Order::of(plan.outputs() * plan.count() * size_of::<T>());
    parallel_for(plan.outputs(), GRAIN / plan.count(), |range| {
        vectorize(Job::<T, _, LARGEST> { plan, input, order, range, store: &store });
    });
}

struct Job<'a, T, S, const LARGEST: bool> {
    plan: &'a Plan,
    input: Shared<T>,
    order: Order,
    range: Range<usize>,
    store: &'a S,
}

impl<T: Ordered, S: Fn(usize, T, usize), const LARGEST: bool> Kernel for Job<'_, T, S, LARGEST> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Job { plan, input, order, range, store } = self;
        let ((width, step), kept_outer) = plan.kept();
        let ((n, stride), _) = plan.folded();
        let mut kept = Walk::new(kept_outer, range.start / width);
        let mut output = range.start;
        while output < range.end {
            let column = output % width;
            // SAFETY: a position of the plan, which is inside by the contract of `extremes`.
            let at = unsafe { input.0.offset(kept.offset + column as isize * step) };
            let columns = if plan.by_columns() {
                TILE.min(width - column).min(range.end - output)
            } else {
                1
            };
            // SAFETY: the contract of `extremes`: the plan's positions can be read.
            unsafe {
                if plan.by_columns() {
                    by_columns::<T, LARGEST>(at, step, columns, stride, n, |j, value, index| {
                        store(output + j, value, index)
                    });
                } else {
                    let (value, index) = in_row::<T, LARGEST, FMA>(at, stride, n, order);
                    store(output, value, index);
                }
            }
            output += columns;
            if column + columns == width {
                kept.advance();
            }
        }
    }
}

/// The extreme of `n` elements: first the tile that has it, then the place in the tile.
///
/// # Safety
/// They can be read.
#[inline(always)]
#[allow(clippy::eq_op, reason = "x != x is how a generic float says that it is NaN")]
unsafe fn in_row<T: Ordered, const LARGEST: bool, const FMA: bool>(
    at: *const T,
    stride: isize,
    n: usize,
    order: Order,
) -> (T, usize) {
    let mut tile = [const { MaybeUninit::<T>::uninit() }; TILE];
    let f = Extreme::<T, LARGEST>(std::marker::PhantomData);
    let (mut best, mut best_start) = (f.identity(), 0);
    for start in (0..n).step_by(TILE) {
        // SAFETY: elements that can be read by this function's contract.
        let x = unsafe {
            gather(at.offset(start as isize * stride), stride, TILE.min(n - start), &mut tile)
        };
        let value = leaf::<_, FMA>(&f, x, (), order);
        if beats::<T, LARGEST>(value, best) || start == 0 {
            (best, best_start) = (value, start);
        }
    }
    let count = TILE.min(n - best_start);
    // SAFETY: elements that can be read by this function's contract.
    let x = unsafe { gather(at.offset(best_start as isize * stride), stride, count, &mut tile) };
    let is_best = |v: T| (v == best) | (v != v) & (best != best);
    // Whole chunks without a branch inside, so that the search is vector code too.
    const CHUNK: usize = 64;
    let mut place = 0;
    for chunk in x.chunks_exact(CHUNK) {
        if chunk.iter().fold(false, |found, &v| found | is_best(v)) {
            break;
        }
        place += CHUNK;
    }
    while place + 1 < count && !is_best(x[place]) {
        place += 1;
    }
    // Not `best`, which may be another NaN, or another zero.
    (x[place], best_start + place)
}

/// The extremes of neighbouring columns of `n` elements each.
///
/// # Safety
/// They can be read.
#[inline(always)]
unsafe fn by_columns<T: Ordered, const LARGEST: bool>(
    at: *const T,
    step: isize,
    columns: usize,
    stride: isize,
    n: usize,
    store: impl Fn(usize, T, usize),
) {
    let mut tile = [const { MaybeUninit::<T>::uninit() }; TILE];
    let mut best = [T::LOWEST; TILE];
    let mut place = [0u32; TILE];
    // SAFETY: the first elements of the caller's columns.
    best[..columns].copy_from_slice(unsafe { gather(at, step, columns, &mut tile) });
    assert!(n <= u32::MAX as usize, "more than 2^32 rows");
    for row in 1..n {
        // SAFETY: a row of the caller's columns.
        let x = unsafe { gather(at.offset(row as isize * stride), step, columns, &mut tile) };
        for ((&v, b), p) in x.iter().zip(&mut best).zip(&mut place) {
            let better = beats::<T, LARGEST>(v, *b);
            *b = if better { v } else { *b };
            *p = if better { row as u32 } else { *p };
        }
    }
    for j in 0..columns {
        store(j, best[j], place[j] as usize);
    }
}
