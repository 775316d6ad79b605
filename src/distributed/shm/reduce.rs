//! Combining the same elements of several ranks' buffers, in rank order, and writing the result to
//! one or more places.
//!
//! With two sources a block of elements goes from both through registers to all destinations. With
//! more, work goes in tiles that stay in the L1 cache: all but the last source are combined in an
//! accumulator tile, which then takes the place of the first source. f16 and bf16 always pass
//! through a tile, of f32, so they are rounded once. The result of an element depends on nothing
//! but the sources' values at that element: not on tile, slice, chunk or instruction set.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::cpu::widen::Widen;
use crate::distributed::Dtype;
use crate::distributed::collective::ReduceOp;

/// Elements per tile: 4 KiB of f32.
const TILE: usize = 1024;
/// Elements that pass through registers at once: 4 AVX2 registers of f32.
const BLOCK: usize = 32;

/// Combines `len` elements of `dtype` at each of `sources` and writes the result to each of
/// `destinations`.
///
/// With plain stores: in an all-reduce the lines that are written have just been read, and
/// streaming stores took twice as long for 100 MiB.
///
/// # Safety
/// All pointers are aligned for `dtype`, the sources readable and the destinations writable for
/// `len` elements, and nobody else writes the sources or uses the destinations meanwhile. A
/// destination may be one of the sources; other overlaps are not allowed. There is a source.
pub(super) unsafe fn reduce(
    op: ReduceOp,
    dtype: Dtype,
    sources: &[*const u8],
    destinations: &[*mut u8],
    len: usize,
) {
    assert!(!sources.is_empty());
    // A complex number is two real ones: `ReduceOp::check` lets sums and means through.
    let len = if dtype.is_complex() { 2 * len } else { len };
    let job = Job { sources, destinations, len };
    // SAFETY: the caller's promises are those of `Job::run`, with the element type of `dtype`.
    unsafe {
        match dtype {
            Dtype::C128 => job.floating::<f64>(op),
            Dtype::C64 => job.floating::<f32>(op),
            Dtype::F64 => job.floating::<f64>(op),
            Dtype::F32 => job.floating::<f32>(op),
            Dtype::F16 => job.floating::<f16>(op),
            Dtype::BF16 => job.floating::<bf16>(op),
            Dtype::I64 => job.integral::<i64>(op),
            Dtype::I32 => job.integral::<i32>(op),
            Dtype::I16 => job.integral::<i16>(op),
            Dtype::I8 => job.integral::<i8>(op),
            Dtype::U8 => job.integral::<u8>(op),
            Dtype::Bool => job.boolean(op),
        }
    }
}

struct Job<'a> {
    sources: &'a [*const u8],
    destinations: &'a [*mut u8],
    len: usize,
}

impl Job<'_> {
    /// # Safety
    /// As [`reduce`], with elements of type `T`.
    unsafe fn floating<T: Lane<Acc: Float>>(&self, op: ReduceOp) {
        let count = self.sources.len();
        // SAFETY: passed on.
        unsafe {
            match op {
                ReduceOp::Sum => self.widest::<T, Sum, _>(Keep),
                // The same bits as a division, in a quarter of the time.
                ReduceOp::Avg if count.is_power_of_two() => {
                    self.widest::<T, Sum, _>(Times(T::Acc::inverse(count)));
                }
                ReduceOp::Avg => self.widest::<T, Sum, _>(Over(T::Acc::from_count(count))),
                ReduceOp::Product => self.tiles::<T, Product, _, false>(Keep),
                ReduceOp::Min => self.tiles::<T, Min, _, false>(Keep),
                ReduceOp::Max => self.tiles::<T, Max, _, false>(Keep),
                _ => unreachable!("checked by ReduceOp::check"),
            }
        }
    }

    /// # Safety
    /// As [`reduce`], with elements of type `T`.
    unsafe fn integral<T: Lane<Acc: Arithmetic>>(&self, op: ReduceOp) {
        let bytes = Job { len: self.len * size_of::<T>(), ..*self };
        // SAFETY: passed on; the elements' bytes are as valid as the elements.
        unsafe {
            match op {
                ReduceOp::Sum => self.tiles::<T, Sum, _, false>(Keep),
                ReduceOp::Product => self.tiles::<T, Product, _, false>(Keep),
                ReduceOp::Min => self.tiles::<T, Min, _, false>(Keep),
                ReduceOp::Max => self.tiles::<T, Max, _, false>(Keep),
                _ => bytes.logic(op),
            }
        }
    }

    /// # Safety
    /// As [`reduce`], with elements that are bytes.
    unsafe fn logic(&self, op: ReduceOp) {
        // SAFETY: passed on.
        unsafe {
            match op {
                ReduceOp::Band => self.tiles::<u8, Band, _, false>(Keep),
                ReduceOp::Bor => self.tiles::<u8, Bor, _, false>(Keep),
                ReduceOp::Bxor => self.tiles::<u8, Bxor, _, false>(Keep),
                _ => unreachable!("checked by ReduceOp::check"),
            }
        }
    }

    /// # Safety
    /// As [`reduce`], with elements that are bytes of value 0 or 1.
    unsafe fn boolean(&self, op: ReduceOp) {
        let logic = match op {
            ReduceOp::Sum | ReduceOp::Max => ReduceOp::Bor,
            ReduceOp::Product | ReduceOp::Min => ReduceOp::Band,
            other => other,
        };
        // SAFETY: passed on.
        unsafe { self.logic(logic) }
    }

    /// With the widest instruction set that this machine has. For what trains: sums and means of
    /// floating-point numbers. Everything else runs [`tiles`](Self::tiles) as it is, because each
    /// copy of this loop costs compile time.
    ///
    /// # Safety
    /// As [`reduce`], with elements of type `T`.
    unsafe fn widest<T: Lane, C: Combine<T::Acc>, F: Finish<T::Acc>>(&self, finish: F) {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                // SAFETY: the features are there; the rest is passed on.
                return unsafe { self.run_avx512::<T, C, F>(finish) };
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the feature is there; the rest is passed on.
                return unsafe { self.run_avx2::<T, C, F>(finish) };
            }
        }
        // SAFETY: passed on.
        unsafe { self.tiles::<T, C, F, true>(finish) }
    }

    /// # Safety
    /// As [`reduce`], with elements of type `T`, on a machine with these features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn run_avx512<T: Lane, C: Combine<T::Acc>, F: Finish<T::Acc>>(&self, finish: F) {
        // SAFETY: passed on.
        unsafe { self.tiles::<T, C, F, true>(finish) }
    }

    /// # Safety
    /// As [`reduce`], with elements of type `T`, on a machine with this feature.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn run_avx2<T: Lane, C: Combine<T::Acc>, F: Finish<T::Acc>>(&self, finish: F) {
        // SAFETY: passed on.
        unsafe { self.tiles::<T, C, F, true>(finish) }
    }

    /// `REGISTERS`: whether the last source goes through registers instead of the tile.
    ///
    /// # Safety
    /// As [`reduce`], with elements of type `T`.
    #[inline(always)]
    unsafe fn tiles<T, C, F, const REGISTERS: bool>(&self, finish: F)
    where
        T: Lane,
        C: Combine<T::Acc>,
        F: Finish<T::Acc>,
    {
        let mut tile = Tile([T::Acc::default(); TILE]);
        for start in (0..self.len).step_by(TILE) {
            let acc = &mut tile.0[..TILE.min(self.len - start)];
            let at = |source: *const u8| source.cast::<T>().wrapping_add(start);
            // SAFETY: `start + acc.len()` elements are inside each buffer, by the caller's promise.
            unsafe {
                match self.sources {
                    [first] => {
                        T::load(at(*first), acc);
                        T::store(acc, finish, self.destinations, start);
                    }
                    [first, last] if REGISTERS => {
                        let pair = (at(*first), at(*last));
                        T::combine_pair::<C, F>(pair, acc, finish, self.destinations, start);
                    }
                    [first, rest @ ..] if !REGISTERS => {
                        T::load(at(*first), acc);
                        rest.iter().for_each(|&source| T::combine::<C>(acc, at(source)));
                        T::store(acc, finish, self.destinations, start);
                    }
                    [first, middle @ .., last] => {
                        T::load(at(*first), acc);
                        middle.iter().for_each(|&source| T::combine::<C>(acc, at(source)));
                        T::combine_last::<C, F>(acc, at(*last), finish, self.destinations, start);
                    }
                    [] => unreachable!("there is a source"),
                }
            }
        }
    }
}

/// 64-byte aligned, so that vector stores to it never straddle lines.
#[repr(align(64))]
struct Tile<A>([A; TILE]);

/// A floating-point type that elements are combined in.
trait Float: Arithmetic + std::ops::Mul<Output = Self> + std::ops::Div<Output = Self> {
    fn from_count(count: usize) -> Self;
    /// 1 / `count`, exact if `count` is a power of two.
    fn inverse(count: usize) -> Self;
}

trait Arithmetic: Copy {
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
}

trait Logic: Copy {
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
}

macro_rules! floats {
    ($($t:ty),*) => {$(
        impl Float for $t {
            fn from_count(count: usize) -> Self { count as $t }
            fn inverse(count: usize) -> Self { 1.0 / count as $t }
        }
        impl Arithmetic for $t {
            #[inline(always)]
            fn add(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self * other }
            // The first NaN stays, as in torch.minimum and torch.maximum.
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                if self < other || self.is_nan() { self } else { other }
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                if self > other || self.is_nan() { self } else { other }
            }
        }
    )*};
}
floats!(f32, f64);

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Arithmetic for $t {
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn min(self, other: Self) -> Self { Ord::min(self, other) }
            #[inline(always)]
            fn max(self, other: Self) -> Self { Ord::max(self, other) }
        }
    )*};
}
integers!(i64, i32, i16, i8, u8);

impl Logic for u8 {
    #[inline(always)]
    fn and(self, other: Self) -> Self {
        self & other
    }
    #[inline(always)]
    fn or(self, other: Self) -> Self {
        self | other
    }
    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self ^ other
    }
}

/// A reduction of two accumulators.
trait Combine<A> {
    fn combine(a: A, b: A) -> A;
}

macro_rules! combinations {
    ($($name:ident: $bound:ident::$method:ident;)*) => {$(
        struct $name;
        impl<A: $bound> Combine<A> for $name {
            #[inline(always)]
            fn combine(a: A, b: A) -> A { $bound::$method(a, b) }
        }
    )*};
}
combinations! {
    Sum: Arithmetic::add;
    Product: Arithmetic::mul;
    Min: Arithmetic::min;
    Max: Arithmetic::max;
    Band: Logic::and;
    Bor: Logic::or;
    Bxor: Logic::xor;
}

/// What is done to an element when all sources have been combined.
trait Finish<A>: Copy {
    fn finish(self, a: A) -> A;
}

#[derive(Clone, Copy)]
struct Keep;
impl<A> Finish<A> for Keep {
    #[inline(always)]
    fn finish(self, a: A) -> A {
        a
    }
}

#[derive(Clone, Copy)]
struct Times<A>(A);
impl<A: Float> Finish<A> for Times<A> {
    #[inline(always)]
    fn finish(self, a: A) -> A {
        a * self.0
    }
}

#[derive(Clone, Copy)]
struct Over<A>(A);
impl<A: Float> Finish<A> for Over<A> {
    #[inline(always)]
    fn finish(self, a: A) -> A {
        a / self.0
    }
}

/// An element type: how a tile of it is combined with accumulators and stored.
///
/// All pointers are aligned. Sources are those of elements `start..start + acc.len()`, of which all
/// methods read or write as many; `destinations` begin at element 0.
trait Lane: Copy {
    type Acc: Copy + Default;

    /// # Safety
    /// `from` is readable.
    unsafe fn load(from: *const Self, acc: &mut [Self::Acc]);

    /// # Safety
    /// `from` is readable.
    unsafe fn combine<C: Combine<Self::Acc>>(acc: &mut [Self::Acc], from: *const Self);

    /// # Safety
    /// The destinations are writable.
    unsafe fn store(
        acc: &[Self::Acc],
        finish: impl Finish<Self::Acc>,
        destinations: &[*mut u8],
        start: usize,
    );

    /// [`combine`](Self::combine) and [`store`](Self::store).
    ///
    /// # Safety
    /// `last` is readable, the destinations are writable.
    #[inline(always)]
    unsafe fn combine_last<C: Combine<Self::Acc>, F: Finish<Self::Acc>>(
        acc: &mut [Self::Acc],
        last: *const Self,
        finish: F,
        destinations: &[*mut u8],
        start: usize,
    ) {
        // SAFETY: passed on.
        unsafe {
            Self::combine::<C>(acc, last);
            Self::store(acc, finish, destinations, start);
        }
    }

    /// [`load`](Self::load), [`combine`](Self::combine) and [`store`](Self::store).
    ///
    /// # Safety
    /// Both of `pair` are readable, the destinations are writable.
    #[inline(always)]
    unsafe fn combine_pair<C: Combine<Self::Acc>, F: Finish<Self::Acc>>(
        pair: (*const Self, *const Self),
        acc: &mut [Self::Acc],
        finish: F,
        destinations: &[*mut u8],
        start: usize,
    ) {
        // SAFETY: passed on.
        unsafe {
            Self::load(pair.0, acc);
            Self::combine_last::<C, F>(acc, pair.1, finish, destinations, start);
        }
    }
}

/// Combines `len` elements at `a` and `b` and writes them to the destinations from `start` on, block
/// by block through registers. (A loop over elements that stores to places which may be its own
/// sources would not be vectorised; a copy of a finished tile would become a call of `memcpy`.)
///
/// # Safety
/// `a` and `b` are readable, the destinations writable.
#[inline(always)]
unsafe fn through_registers<A: Copy, C: Combine<A>, F: Finish<A>>(
    a: *const A,
    b: *const A,
    len: usize,
    finish: F,
    destinations: &[*mut u8],
    start: usize,
) {
    let to = |destination: *mut u8| destination.cast::<A>().wrapping_add(start);
    let whole = len / BLOCK * BLOCK;
    // SAFETY: all accesses are below `len`. A block is read before anything of it is written.
    unsafe {
        for at in (0..whole).step_by(BLOCK) {
            let mut x = a.add(at).cast::<[A; BLOCK]>().read();
            let y = b.add(at).cast::<[A; BLOCK]>().read();
            for i in 0..BLOCK {
                x[i] = finish.finish(C::combine(x[i], y[i]));
            }
            for &destination in destinations {
                to(destination).add(at).cast::<[A; BLOCK]>().write(x);
            }
        }
        for at in whole..len {
            let x = finish.finish(C::combine(*a.add(at), *b.add(at)));
            for &destination in destinations {
                *to(destination).add(at) = x;
            }
        }
    }
}

macro_rules! plain_lanes {
    ($($t:ty),*) => {$(
        impl Lane for $t {
            type Acc = $t;

            #[inline(always)]
            unsafe fn load(from: *const $t, acc: &mut [$t]) {
                // SAFETY: readable; the tile is this function's own.
                unsafe { from.copy_to_nonoverlapping(acc.as_mut_ptr(), acc.len()) }
            }

            #[inline(always)]
            unsafe fn combine<C: Combine<$t>>(acc: &mut [$t], from: *const $t) {
                for (i, a) in acc.iter_mut().enumerate() {
                    // SAFETY: readable for `acc.len()` elements.
                    *a = C::combine(*a, unsafe { *from.add(i) });
                }
            }

            #[inline(always)]
            unsafe fn store(
                acc: &[$t],
                finish: impl Finish<$t>,
                destinations: &[*mut u8],
                start: usize,
            ) {
                for &destination in destinations {
                    let to = destination.cast::<$t>().wrapping_add(start);
                    for (i, &a) in acc.iter().enumerate() {
                        // SAFETY: writable for `acc.len()` elements.
                        unsafe { *to.add(i) = finish.finish(a) };
                    }
                }
            }

            #[inline(always)]
            unsafe fn combine_last<C: Combine<$t>, F: Finish<$t>>(
                acc: &mut [$t],
                last: *const $t,
                finish: F,
                destinations: &[*mut u8],
                start: usize,
            ) {
                let (len, acc) = (acc.len(), acc.as_ptr());
                // SAFETY: passed on; the tile is readable.
                unsafe {
                    through_registers::<$t, C, F>(acc, last, len, finish, destinations, start);
                }
            }

            #[inline(always)]
            unsafe fn combine_pair<C: Combine<$t>, F: Finish<$t>>(
                pair: (*const $t, *const $t),
                acc: &mut [$t],
                finish: F,
                destinations: &[*mut u8],
                start: usize,
            ) {
                let len = acc.len();
                // SAFETY: passed on.
                unsafe {
                    through_registers::<$t, C, F>(pair.0, pair.1, len, finish, destinations, start);
                }
            }
        }
    )*};
}
plain_lanes!(f64, f32, i64, i32, i16, i8, u8);

impl Lane for bf16 {
    type Acc = f32;

    #[inline(always)]
    unsafe fn load(from: *const bf16, acc: &mut [f32]) {
        for (i, a) in acc.iter_mut().enumerate() {
            // SAFETY: readable for `acc.len()` elements.
            *a = unsafe { *from.add(i) }.widen();
        }
    }

    #[inline(always)]
    unsafe fn combine<C: Combine<f32>>(acc: &mut [f32], from: *const bf16) {
        for (i, a) in acc.iter_mut().enumerate() {
            // SAFETY: readable for `acc.len()` elements.
            *a = C::combine(*a, unsafe { *from.add(i) }.widen());
        }
    }

    #[inline(always)]
    unsafe fn store(acc: &[f32], finish: impl Finish<f32>, destinations: &[*mut u8], start: usize) {
        for &destination in destinations {
            let to = destination.cast::<bf16>().wrapping_add(start);
            for (i, &a) in acc.iter().enumerate() {
                // SAFETY: writable for `acc.len()` elements.
                unsafe { *to.add(i) = bf16::narrow(finish.finish(a)) };
            }
        }
    }
}

impl Lane for f16 {
    type Acc = f32;

    #[inline(always)]
    unsafe fn load(from: *const f16, acc: &mut [f32]) {
        // SAFETY: readable, and not written meanwhile.
        let from = unsafe { std::slice::from_raw_parts(from, acc.len()) };
        from.convert_to_f32_slice(acc);
    }

    #[inline(always)]
    unsafe fn combine<C: Combine<f32>>(acc: &mut [f32], from: *const f16) {
        let mut wide = Tile([0f32; TILE]);
        let wide = &mut wide.0[..acc.len()];
        // SAFETY: passed on.
        unsafe { Self::load(from, wide) };
        for (a, &w) in acc.iter_mut().zip(&*wide) {
            *a = C::combine(*a, w);
        }
    }

    #[inline(always)]
    unsafe fn store(acc: &[f32], finish: impl Finish<f32>, destinations: &[*mut u8], start: usize) {
        let mut wide = Tile([0f32; TILE]);
        let wide = &mut wide.0[..acc.len()];
        for (w, &a) in wide.iter_mut().zip(acc) {
            *w = finish.finish(a);
        }
        for &destination in destinations {
            let to = destination.cast::<f16>().wrapping_add(start);
            // SAFETY: writable, and nobody else's meanwhile.
            let to = unsafe { std::slice::from_raw_parts_mut(to, acc.len()) };
            to.convert_from_f32_slice(wide);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The plain loop that the fast one is compared with.
    fn reference(op: ReduceOp, values: &[f32]) -> f32 {
        let n = values.len() as f32;
        let nan = |a: f32, b: f32| a.is_nan() || b.is_nan();
        let all = values.iter().copied().reduce(|a, b| match op {
            ReduceOp::Sum | ReduceOp::Avg => a + b,
            ReduceOp::Product => a * b,
            ReduceOp::Min if nan(a, b) => f32::NAN,
            ReduceOp::Max if nan(a, b) => f32::NAN,
            ReduceOp::Min => a.min(b),
            ReduceOp::Max => a.max(b),
            _ => unreachable!(),
        });
        all.map(|v| if op == ReduceOp::Avg { v / n } else { v }).unwrap()
    }

    fn run<T: Copy + Default>(
        op: ReduceOp,
        dtype: Dtype,
        sources: &[Vec<T>],
        destinations: usize,
    ) -> Vec<Vec<T>> {
        let len = sources[0].len();
        let mut out = vec![vec![T::default(); len]; destinations];
        let from: Vec<_> = sources.iter().map(|s| s.as_ptr().cast()).collect();
        let to: Vec<_> = out.iter_mut().map(|d| d.as_mut_ptr().cast()).collect();
        // SAFETY: vectors of `len` elements each, distinct, of the dtype's type.
        unsafe { reduce(op, dtype, &from, &to, len) };
        out
    }

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
    }

    proptest! {
        #[test]
        fn floats_are_combined_in_order_and_rounded_once(
            ranks in 1usize..5, len in 0usize..2100, seed: u32
        ) {
            let value = |rank: usize, i: usize| {
                let bits = (rank as u32 * 7919 + i as u32 + seed).wrapping_mul(2_654_435_761);
                if bits.is_multiple_of(97) { f32::NAN } else { (bits >> 8) as f32 / 65536.0 - 100.0 }
            };
            for op in [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max] {
                let at = |i, round: &dyn Fn(f32) -> f32| {
                    round(reference(op, &(0..ranks).map(|r| round(value(r, i))).collect::<Vec<_>>()))
                };
                let rank = |r| (0..len).map(move |i| value(r, i));
                let f32s: Vec<Vec<f32>> = (0..ranks).map(|r| rank(r).collect()).collect();
                for out in run(op, Dtype::F32, &f32s, 2) {
                    prop_assert!(out.iter().enumerate().all(|(i, &v)| same(v, at(i, &|v| v))));
                }
                let halves: Vec<Vec<f16>> = (0..ranks).map(|r| rank(r).map(f16::from_f32).collect()).collect();
                for out in run(op, Dtype::F16, &halves, 1) {
                    let round = |v| f16::from_f32(v).to_f32();
                    prop_assert!(out.iter().enumerate().all(|(i, v)| same(v.to_f32(), at(i, &round))));
                }
                let brains: Vec<Vec<bf16>> = (0..ranks).map(|r| rank(r).map(bf16::from_f32).collect()).collect();
                for out in run(op, Dtype::BF16, &brains, 1) {
                    let round = |v| bf16::from_f32(v).to_f32();
                    prop_assert!(out.iter().enumerate().all(|(i, v)| same(v.to_f32(), at(i, &round))));
                }
            }
        }

        #[test]
        fn bf16_is_rounded_as_the_half_crate_rounds(bits: u32) {
            let value = f32::from_bits(bits);
            let (ours, theirs) = (bf16::narrow(value), bf16::from_f32(value));
            prop_assert!(ours == theirs || ours.is_nan() && theirs.is_nan());
        }
    }

    #[test]
    fn integers_wrap_and_bools_stay_bools() {
        let bytes = vec![vec![200u8, 1, 3, 0], vec![100, 1, 5, 0], vec![50, 0, 6, 0]];
        let out = |op| run(op, Dtype::U8, &bytes, 1).remove(0);
        assert_eq!(out(ReduceOp::Sum), [94, 2, 14, 0]);
        assert_eq!(out(ReduceOp::Product), [64, 0, 90, 0]);
        assert_eq!(out(ReduceOp::Min), [50, 0, 3, 0]);
        assert_eq!(out(ReduceOp::Max), [200, 1, 6, 0]);
        assert_eq!(out(ReduceOp::Band), [0, 0, 0, 0]);
        assert_eq!(out(ReduceOp::Bor), [254, 1, 7, 0]);
        assert_eq!(out(ReduceOp::Bxor), [158, 0, 0, 0]);
        let signed = vec![vec![i64::MAX, -5], vec![1, 3]];
        assert_eq!(run(ReduceOp::Sum, Dtype::I64, &signed, 1)[0], [i64::MIN, -2]);
        assert_eq!(run(ReduceOp::Min, Dtype::I64, &signed, 1)[0], [1, -5]);
        let bools = vec![vec![1u8, 1, 0], vec![1, 0, 0]];
        let out = |op| run(op, Dtype::Bool, &bools, 1).remove(0);
        assert_eq!(out(ReduceOp::Sum), [1, 1, 0]);
        assert_eq!(out(ReduceOp::Product), [1, 0, 0]);
        assert_eq!(out(ReduceOp::Bxor), [0, 1, 0]);
    }

    #[test]
    fn in_place_on_a_source() {
        let mut a: Vec<f32> = (0..3000).map(|i| i as f32).collect();
        let mut b = a.clone();
        let from = [a.as_ptr().cast(), b.as_ptr().cast()];
        let to = [a.as_mut_ptr().cast(), b.as_mut_ptr().cast()];
        // SAFETY: two vectors of 3000 elements; each destination is exactly one of the sources.
        unsafe { reduce(ReduceOp::Sum, Dtype::F32, &from, &to, 3000) };
        assert!(a.iter().zip(&b).enumerate().all(|(i, (a, b))| *a == 2.0 * i as f32 && a == b));
    }
}
