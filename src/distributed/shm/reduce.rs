//! Combining the same elements of several ranks' buffers, in rank order, and writing the result to
//! one or more places.
//!
//! Work goes in tiles that stay in the L1 cache: the first source is loaded into an accumulator,
//! the others are combined into it one after the other, and it is stored to each destination. The
//! accumulator of f16 and bf16 is f32, so they are rounded once. The result of an element depends
//! on nothing but the sources' values at that element: not on tile, slice, chunk or instruction set.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::distributed::Dtype;
use crate::distributed::collective::ReduceOp;

/// Elements per tile: 4 KiB of f32.
const TILE: usize = 1024;

/// Combines `len` elements of `dtype` at each of `sources` and writes the result to each of
/// `destinations`. With `streaming`, past the caches.
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
    streaming: bool,
) {
    assert!(!sources.is_empty());
    let job = Job { sources, destinations, len, streaming };
    // SAFETY: the caller's promises are those of `Job::run`, with the element type of `dtype`.
    unsafe {
        match dtype {
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
    streaming: bool,
}

impl Job<'_> {
    /// # Safety
    /// As [`reduce`], with elements of type `T`.
    unsafe fn floating<T: Lane<Acc: Float>>(&self, op: ReduceOp) {
        // SAFETY: passed on.
        unsafe {
            match op {
                ReduceOp::Sum => self.run::<T, Sum, false>(),
                ReduceOp::Avg => self.run::<T, Sum, true>(),
                ReduceOp::Product => self.run::<T, Product, false>(),
                ReduceOp::Min => self.run::<T, Min, false>(),
                ReduceOp::Max => self.run::<T, Max, false>(),
                _ => unreachable!("checked by ReduceOp::check"),
            }
        }
    }

    /// # Safety
    /// As [`reduce`], with elements of type `T`.
    unsafe fn integral<T: Lane<Acc: Bits>>(&self, op: ReduceOp) {
        // SAFETY: passed on.
        unsafe {
            match op {
                ReduceOp::Sum => self.run::<T, Sum, false>(),
                ReduceOp::Product => self.run::<T, Product, false>(),
                ReduceOp::Min => self.run::<T, Min, false>(),
                ReduceOp::Max => self.run::<T, Max, false>(),
                ReduceOp::Band => self.run::<T, Band, false>(),
                ReduceOp::Bor => self.run::<T, Bor, false>(),
                ReduceOp::Bxor => self.run::<T, Bxor, false>(),
                ReduceOp::Avg => unreachable!("checked by ReduceOp::check"),
            }
        }
    }

    /// # Safety
    /// As [`reduce`], with elements that are bytes of value 0 or 1.
    unsafe fn boolean(&self, op: ReduceOp) {
        // SAFETY: passed on.
        unsafe {
            match op {
                ReduceOp::Sum | ReduceOp::Max | ReduceOp::Bor => self.run::<u8, Bor, false>(),
                ReduceOp::Product | ReduceOp::Min | ReduceOp::Band => self.run::<u8, Band, false>(),
                ReduceOp::Bxor => self.run::<u8, Bxor, false>(),
                ReduceOp::Avg => unreachable!("checked by ReduceOp::check"),
            }
        }
    }

    /// Picks the widest instruction set that this machine has.
    ///
    /// # Safety
    /// As [`reduce`], with elements of type `T`.
    unsafe fn run<T: Lane, C: Combine<T::Acc>, const AVERAGE: bool>(&self) {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                // SAFETY: the features are there; the rest is passed on.
                return unsafe { self.run_avx512::<T, C, AVERAGE>() };
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the feature is there; the rest is passed on.
                return unsafe { self.run_avx2::<T, C, AVERAGE>() };
            }
        }
        // SAFETY: passed on.
        unsafe { self.tiles::<T, C, AVERAGE>() }
    }

    /// # Safety
    /// As [`reduce`], with elements of type `T`, on a machine with these features.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn run_avx512<T: Lane, C: Combine<T::Acc>, const AVERAGE: bool>(&self) {
        // SAFETY: passed on.
        unsafe { self.tiles::<T, C, AVERAGE>() }
    }

    /// # Safety
    /// As [`reduce`], with elements of type `T`, on a machine with this feature.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn run_avx2<T: Lane, C: Combine<T::Acc>, const AVERAGE: bool>(&self) {
        // SAFETY: passed on.
        unsafe { self.tiles::<T, C, AVERAGE>() }
    }

    /// # Safety
    /// As [`reduce`], with elements of type `T`.
    #[inline(always)]
    unsafe fn tiles<T: Lane, C: Combine<T::Acc>, const AVERAGE: bool>(&self) {
        let count = <T::Acc as Accumulator>::from_count(self.sources.len());
        let mut tile = Tile([T::Acc::default(); TILE]);
        let mut start = 0;
        while start < self.len {
            let len = TILE.min(self.len - start);
            let acc = &mut tile.0[..len];
            let at = |source: *const u8| source.cast::<T>().wrapping_add(start);
            // SAFETY: `start + len` elements are inside each buffer, by the caller's promise.
            unsafe {
                if let [first, second] = self.sources {
                    T::load_two::<C>(at(*first), at(*second), acc);
                } else {
                    T::load(at(self.sources[0]), acc);
                    for &source in &self.sources[1..] {
                        T::combine::<C>(acc, at(source));
                    }
                }
                if AVERAGE {
                    acc.iter_mut().for_each(|a| *a = a.divided_by(count));
                }
                for &destination in self.destinations {
                    let to = destination.cast::<T>().wrapping_add(start);
                    T::store(acc, to, self.streaming);
                }
            }
            start += len;
        }
        if self.streaming {
            stream_fence();
        }
    }
}

/// 64-byte aligned, so that vector stores to it never straddle lines.
#[repr(align(64))]
struct Tile<A>([A; TILE]);

/// A type that elements are combined in.
trait Accumulator: Copy + Default {
    fn from_count(count: usize) -> Self;
    fn divided_by(self, count: Self) -> Self;
}

/// Floating-point accumulators.
trait Float: Accumulator + Arithmetic {}
/// Integer accumulators.
trait Bits: Accumulator + Arithmetic + Logic {}

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
        impl Accumulator for $t {
            #[inline(always)]
            fn from_count(count: usize) -> Self { count as $t }
            #[inline(always)]
            fn divided_by(self, count: Self) -> Self { self / count }
        }
        impl Float for $t {}
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
        impl Accumulator for $t {
            #[inline(always)]
            fn from_count(count: usize) -> Self { count as $t }
            #[inline(always)]
            fn divided_by(self, count: Self) -> Self { self / count }
        }
        impl Bits for $t {}
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
        impl Logic for $t {
            #[inline(always)]
            fn and(self, other: Self) -> Self { self & other }
            #[inline(always)]
            fn or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn xor(self, other: Self) -> Self { self ^ other }
        }
    )*};
}
integers!(i64, i32, i16, i8, u8);

/// A reduction of two accumulators.
trait Combine<A> {
    fn combine(a: A, b: A) -> A;
}

macro_rules! combinations {
    ($($name:ident: $bound:ident::$method:ident;)*) => {$(
        struct $name;
        impl<A: $bound> Combine<A> for $name {
            #[inline(always)]
            fn combine(a: A, b: A) -> A { a.$method(b) }
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

/// An element type: how a tile of it becomes accumulators and the other way round.
///
/// All methods take pointers that are aligned and valid for `acc.len()` elements.
trait Lane: Copy {
    type Acc: Accumulator;

    /// # Safety
    /// `from` is readable for `acc.len()` elements.
    unsafe fn load(from: *const Self, acc: &mut [Self::Acc]);
    /// # Safety
    /// `from` is readable for `acc.len()` elements.
    unsafe fn combine<C: Combine<Self::Acc>>(acc: &mut [Self::Acc], from: *const Self);
    /// [`load`](Self::load) of `a`, then [`combine`](Self::combine) with `b`.
    ///
    /// # Safety
    /// `a` and `b` are readable for `acc.len()` elements.
    #[inline(always)]
    unsafe fn load_two<C: Combine<Self::Acc>>(
        a: *const Self,
        b: *const Self,
        acc: &mut [Self::Acc],
    ) {
        // SAFETY: passed on.
        unsafe {
            Self::load(a, acc);
            Self::combine::<C>(acc, b);
        }
    }
    /// # Safety
    /// `to` is writable for `acc.len()` elements.
    unsafe fn store(acc: &[Self::Acc], to: *mut Self, streaming: bool);
}

macro_rules! plain_lanes {
    ($($t:ty),*) => {$(
        impl Lane for $t {
            type Acc = $t;

            #[inline(always)]
            unsafe fn load(from: *const $t, acc: &mut [$t]) {
                // SAFETY: readable for that many elements; the tile is this function's own.
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
            unsafe fn load_two<C: Combine<$t>>(a: *const $t, b: *const $t, acc: &mut [$t]) {
                for (i, acc) in acc.iter_mut().enumerate() {
                    // SAFETY: both are readable for `acc.len()` elements.
                    *acc = unsafe { C::combine(*a.add(i), *b.add(i)) };
                }
            }

            #[inline(always)]
            unsafe fn store(acc: &[$t], to: *mut $t, streaming: bool) {
                // SAFETY: writable for that many elements; the tile overlaps nothing.
                unsafe { put(acc.as_ptr().cast(), to.cast(), size_of_val(acc), streaming) }
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
            *a = widen_bf16(unsafe { *from.add(i) });
        }
    }

    #[inline(always)]
    unsafe fn combine<C: Combine<f32>>(acc: &mut [f32], from: *const bf16) {
        for (i, a) in acc.iter_mut().enumerate() {
            // SAFETY: readable for `acc.len()` elements.
            *a = C::combine(*a, widen_bf16(unsafe { *from.add(i) }));
        }
    }

    #[inline(always)]
    unsafe fn store(acc: &[f32], to: *mut bf16, streaming: bool) {
        let mut narrow = Tile([bf16::ZERO; TILE]);
        for (n, &a) in narrow.0.iter_mut().zip(acc) {
            *n = narrow_bf16(a);
        }
        // SAFETY: writable for that many elements; the tile overlaps nothing.
        unsafe { put(narrow.0.as_ptr().cast(), to.cast(), acc.len() * 2, streaming) }
    }
}

#[inline(always)]
fn widen_bf16(value: bf16) -> f32 {
    f32::from_bits(u32::from(value.to_bits()) << 16)
}

/// To the nearest, ties to even; NaN stays NaN. Without a branch, so that it vectorises.
#[inline(always)]
fn narrow_bf16(value: f32) -> bf16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let nan = bits >> 16 | 0x40;
    bf16::from_bits(if value.is_nan() { nan } else { rounded } as u16)
}

impl Lane for f16 {
    type Acc = f32;

    #[inline(always)]
    unsafe fn load(from: *const f16, acc: &mut [f32]) {
        // SAFETY: readable for `acc.len()` elements, and not written meanwhile.
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
    unsafe fn store(acc: &[f32], to: *mut f16, streaming: bool) {
        let mut narrow = Tile([f16::ZERO; TILE]);
        let narrow = &mut narrow.0[..acc.len()];
        narrow.convert_from_f32_slice(acc);
        // SAFETY: writable for that many elements; the tile overlaps nothing.
        unsafe { put(narrow.as_ptr().cast(), to.cast(), acc.len() * 2, streaming) }
    }
}

/// Copies `nbytes` from one buffer to another; with `streaming`, past the caches (the caller
/// fences).
///
/// # Safety
/// `from` is readable, `to` writable for `nbytes`, and they do not overlap.
#[inline(always)]
unsafe fn put(from: *const u8, to: *mut u8, nbytes: usize, streaming: bool) {
    #[cfg(target_arch = "x86_64")]
    if streaming {
        // SAFETY: passed on.
        return unsafe { stream(from, to, nbytes) };
    }
    let _ = streaming;
    // SAFETY: passed on.
    unsafe { from.copy_to_nonoverlapping(to, nbytes) }
}

/// # Safety
/// As [`put`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn stream(from: *const u8, to: *mut u8, nbytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    let head = to.align_offset(64).min(nbytes);
    let whole = head + (nbytes - head) / 64 * 64;
    // SAFETY: all offsets are at most `nbytes`; from `head` on `to` is aligned to 64 bytes. SSE2
    // is part of x86-64.
    unsafe {
        from.copy_to_nonoverlapping(to, head);
        for at in (head..whole).step_by(64) {
            for part in (at..at + 64).step_by(16) {
                let value = _mm_loadu_si128(from.add(part).cast::<__m128i>());
                _mm_stream_si128(to.add(part).cast::<__m128i>(), value);
            }
        }
        from.add(whole).copy_to_nonoverlapping(to.add(whole), nbytes - whole);
    }
}

/// Makes streamed stores visible before what this thread stores next.
#[inline(always)]
fn stream_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
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
        streaming: bool,
    ) -> Vec<Vec<T>> {
        let len = sources[0].len();
        let mut out = vec![vec![T::default(); len]; destinations];
        let from: Vec<_> = sources.iter().map(|s| s.as_ptr().cast()).collect();
        let to: Vec<_> = out.iter_mut().map(|d| d.as_mut_ptr().cast()).collect();
        // SAFETY: vectors of `len` elements each, distinct, of the dtype's type.
        unsafe { reduce(op, dtype, &from, &to, len, streaming) };
        out
    }

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
    }

    proptest! {
        #[test]
        fn floats_are_combined_in_order_and_rounded_once(
            ranks in 1usize..5, len in 0usize..2100, seed: u32, streaming: bool
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
                for out in run(op, Dtype::F32, &f32s, 2, streaming) {
                    prop_assert!(out.iter().enumerate().all(|(i, &v)| same(v, at(i, &|v| v))));
                }
                let halves: Vec<Vec<f16>> = (0..ranks).map(|r| rank(r).map(f16::from_f32).collect()).collect();
                for out in run(op, Dtype::F16, &halves, 1, streaming) {
                    let round = |v| f16::from_f32(v).to_f32();
                    prop_assert!(out.iter().enumerate().all(|(i, v)| same(v.to_f32(), at(i, &round))));
                }
                let brains: Vec<Vec<bf16>> = (0..ranks).map(|r| rank(r).map(bf16::from_f32).collect()).collect();
                for out in run(op, Dtype::BF16, &brains, 1, streaming) {
                    let round = |v| bf16::from_f32(v).to_f32();
                    prop_assert!(out.iter().enumerate().all(|(i, v)| same(v.to_f32(), at(i, &round))));
                }
            }
        }

        #[test]
        fn bf16_is_rounded_as_the_half_crate_rounds(bits: u32) {
            let value = f32::from_bits(bits);
            let (ours, theirs) = (narrow_bf16(value), bf16::from_f32(value));
            prop_assert!(ours == theirs || ours.is_nan() && theirs.is_nan());
        }
    }

    #[test]
    fn integers_wrap_and_bools_stay_bools() {
        let bytes = vec![vec![200u8, 1, 3, 0], vec![100, 1, 5, 0], vec![50, 0, 6, 0]];
        let out = |op| run(op, Dtype::U8, &bytes, 1, false).remove(0);
        assert_eq!(out(ReduceOp::Sum), [94, 2, 14, 0]);
        assert_eq!(out(ReduceOp::Product), [64, 0, 90, 0]);
        assert_eq!(out(ReduceOp::Min), [50, 0, 3, 0]);
        assert_eq!(out(ReduceOp::Max), [200, 1, 6, 0]);
        assert_eq!(out(ReduceOp::Band), [0, 0, 0, 0]);
        assert_eq!(out(ReduceOp::Bor), [254, 1, 7, 0]);
        assert_eq!(out(ReduceOp::Bxor), [158, 0, 0, 0]);
        let signed = vec![vec![i64::MAX, -5], vec![1, 3]];
        assert_eq!(run(ReduceOp::Sum, Dtype::I64, &signed, 1, false)[0], [i64::MIN, -2]);
        assert_eq!(run(ReduceOp::Min, Dtype::I64, &signed, 1, false)[0], [1, -5]);
        let bools = vec![vec![1u8, 1, 0], vec![1, 0, 0]];
        let out = |op| run(op, Dtype::Bool, &bools, 1, false).remove(0);
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
        unsafe { reduce(ReduceOp::Sum, Dtype::F32, &from, &to, 3000, false) };
        assert!(a.iter().zip(&b).enumerate().all(|(i, (a, b))| *a == 2.0 * i as f32 && a == b));
    }
}
