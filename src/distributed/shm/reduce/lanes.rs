//! What elements of each type are combined by, a tile at a time: in their own type, halves in f32.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::cpu::numbers::widen::Widen;

/// Elements per tile: 4 KiB of f32.
pub(super) const TILE: usize = 1024;
/// Elements that pass through registers at once: 4 AVX2 registers of f32.
const BLOCK: usize = 32;

/// 64-byte aligned, so that vector stores to it never straddle lines.
#[repr(align(64))]
pub(super) struct Tile<A>(pub(super) [A; TILE]);

/// A floating-point type that elements are combined in.
pub(super) trait Float:
    Arithmetic + std::ops::Mul<Output = Self> + std::ops::Div<Output = Self>
{
    fn from_count(count: usize) -> Self;
    /// 1 / `count`, exact if `count` is a power of two.
    fn inverse(count: usize) -> Self;
}

pub(super) trait Arithmetic: Copy {
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
}

pub(super) trait Logic: Copy {
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
pub(super) trait Combine<A> {
    fn combine(a: A, b: A) -> A;
}

macro_rules! combinations {
    ($($name:ident: $bound:ident::$method:ident;)*) => {$(
        pub(super) struct $name;
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
pub(super) trait Finish<A>: Copy {
    fn finish(self, a: A) -> A;
}

#[derive(Clone, Copy)]
pub(super) struct Keep;
impl<A> Finish<A> for Keep {
    #[inline(always)]
    fn finish(self, a: A) -> A {
        a
    }
}

#[derive(Clone, Copy)]
pub(super) struct Times<A>(pub(super) A);
impl<A: Float> Finish<A> for Times<A> {
    #[inline(always)]
    fn finish(self, a: A) -> A {
        a * self.0
    }
}

#[derive(Clone, Copy)]
pub(super) struct Over<A>(pub(super) A);
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
pub(super) trait Lane: Copy {
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
        // SAFETY: this function's contract: `last` is readable, the destinations are writable.
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
        // SAFETY: this function's contract: both are readable, the destinations are writable.
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
                // SAFETY: this function's contract: both are readable, the destinations are
                // writable.
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
        // SAFETY: `combine`'s contract: `acc.len()` elements are readable.
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
