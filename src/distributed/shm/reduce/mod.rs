//! Combining the same elements of several ranks' buffers, in rank order, and writing the result to
//! one or more places.
//!
//! With two sources a block of elements goes from both through registers to all destinations. With
//! more, work goes in tiles that stay in the L1 cache: all but the last source are combined in an
//! accumulator tile, which then takes the place of the first source. f16 and bf16 always pass
//! through a tile, of f32, so they are rounded once. The result of an element depends on nothing
//! but the sources' values at that element: not on tile, slice, chunk or instruction set.

mod lanes;

use std::marker::PhantomData;

use half::{bf16, f16};

use crate::cpu::arch::vectorize::{Kernel, vectorize};
use crate::distributed::Dtype;
use crate::distributed::collective::ReduceOp;
use lanes::{
    Arithmetic, Band, Bor, Bxor, Combine, Finish, Float, Keep, Lane, Max, Min, Over, Product, Sum,
    TILE, Tile, Times,
};

/// Combines `len` elements of `dtype` at each of `sources` and writes the result to each of
/// `destinations`.
///
/// With plain stores: in an all-reduce the lines that are written have just been read, and
/// streaming stores took twice as long for 100 MiB.
///
/// # Safety
/// *Reduce invariant*: all pointers are aligned for `dtype`, the sources readable and the destinations writable for
/// `len` elements, and nobody else writes the sources or uses the destinations meanwhile. A
/// destination may be one of the sources; other overlaps are not allowed. There is a source.
pub(in crate::distributed) unsafe fn reduce(
    op: ReduceOp,
    dtype: Dtype,
    sources: &[*const u8],
    destinations: &[*mut u8],
    len: usize,
) {
    assert!(!sources.is_empty());
    if let [source] = sources
        && destinations.iter().all(|destination| destination.cast_const() == *source)
    {
        // Alone, and in its place: the mean of one is itself, too.
        return;
    }
    // A complex number is two real ones: `ReduceOp::check` lets sums and means through.
    let len = if dtype.is_complex() { 2 * len } else { len };
    let job = Job { sources, destinations, len };
    // SAFETY: the *Reduce invariant*, with the element type of `dtype`.
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

/// Divides `len` elements of a floating-point `dtype` at `at` by `count`: what `Avg` does at its end.
///
/// # Safety
/// The *Reduce invariant*, for the one place that is source and destination.
pub(in crate::distributed) unsafe fn divide(dtype: Dtype, at: *mut u8, count: usize, len: usize) {
    let len = if dtype.is_complex() { 2 * len } else { len };
    let job = Job { sources: &[at.cast_const()], destinations: &[at], len };
    // SAFETY: the *Reduce invariant*, with the element type of `dtype`.
    unsafe {
        match dtype {
            Dtype::C128 | Dtype::F64 => job.over::<f64>(count),
            Dtype::C64 | Dtype::F32 => job.over::<f32>(count),
            Dtype::F16 => job.over::<f16>(count),
            Dtype::BF16 => job.over::<bf16>(count),
            _ => unreachable!("checked by ReduceOp::check"),
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
        // SAFETY: the *Reduce invariant*, which each of them has.
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
    unsafe fn over<T: Lane<Acc: Float>>(&self, count: usize) {
        // SAFETY: the *Reduce invariant*.
        unsafe { self.widest::<T, Sum, _>(Over(T::Acc::from_count(count))) };
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
        // SAFETY: the *Reduce invariant*, with elements that are bytes.
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
        // SAFETY: the *Reduce invariant*, with elements that are bytes.
        unsafe { self.logic(logic) }
    }

    /// At the processor's level. For what trains: sums and means of floating-point numbers. Everything else runs
    /// [`tiles`](Self::tiles) as it is, because each copy of this loop costs compile time.
    ///
    /// # Safety
    /// As [`reduce`], with elements of type `T`.
    unsafe fn widest<T: Lane, C: Combine<T::Acc>, F: Finish<T::Acc>>(&self, finish: F) {
        vectorize(Widest::<T, C, F> { job: self, finish, kinds: PhantomData });
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
            // SAFETY: `start + acc.len()` elements are inside each buffer, by the *Reduce invariant*.
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

/// A job for [`vectorize`]: who makes one keeps the promises of [`Job::tiles`].
struct Widest<'a, T, C, F> {
    job: &'a Job<'a>,
    finish: F,
    kinds: PhantomData<(T, C)>,
}

impl<T: Lane, C: Combine<T::Acc>, F: Finish<T::Acc>> Kernel for Widest<'_, T, C, F> {
    type Output = ();
    const WIDE: bool = true;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        // SAFETY: the *Reduce invariant*, which whoever makes this has.
        unsafe { self.job.tiles::<T, C, F, true>(self.finish) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cpu::numbers::widen::Widen;

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
