//! The loops that bring elements into a tile of a compute type and back. Everything about strides, broadcasting and narrow types is here, so that kernels see contiguous
//! f32, f64 or i64 only.

use half::{bf16, f16};

use crate::arch::isa::{self, COUNT, Isa};
#[cfg(target_arch = "x86_64")]
use crate::numbers::halves;
use crate::numbers::lane::{F32, F64, I64};
use crate::numbers::widen::Widen;
#[cfg(target_arch = "x86_64")]
use crate::numbers::widen::widen_f16;
use torchrs_loops::{Compute, Constant, Format};

/// Formats that are converted: all but [`Format::Wide`].
const FORMATS: usize = 11;

/// A block of elements: `outer` rows of `inner` elements, strides in bytes.
#[derive(Clone, Copy)]
pub struct Block {
    /// Elements per row.
    pub inner: usize,
    /// Bytes between neighbours in a row.
    pub inner_stride: isize,
    /// Rows.
    pub outer: usize,
    /// Bytes between neighbouring rows.
    pub outer_stride: isize,
}

/// Reads a block into a dense tile of the compute type, or writes a tile into a block.
///
/// # Safety
/// *Block invariant*: the memory side has every element of the block, the tile `outer * inner` values; they do not
/// overlap. Only reads and writes those. The processor has the level's instructions.
pub type Move = unsafe fn(tile: *mut u8, memory: *mut u8, block: Block);

/// An element in memory and its conversions. The tile's side is the plain number type.
trait Stored<L>: Copy {
    fn load(self) -> L;
    fn store(value: L) -> Self;

    /// Loads the first of `n` that follow one another, by instructions of the level that the compiler does not find, and
    /// says how many.
    ///
    /// # Safety
    /// There are `n` on both sides; the processor has the level.
    #[inline(always)]
    unsafe fn load_run<const LEVEL: u8>(_: *const Self, _: *mut L, _: usize) -> usize {
        0
    }

    /// [`load_run`](Self::load_run) for storing.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn store_run<const LEVEL: u8>(_: *const L, _: *mut Self, _: usize) -> usize {
        0
    }
}

const BASELINE: u8 = Isa::Baseline as u8;
const AVX2: u8 = Isa::Avx2 as u8;
const AVX512: u8 = Isa::Avx512 as u8;

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Truth(u8);
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Bit(u8);

macro_rules! halves {
    ($($t:ty: [$($runs:item)*];)*) => {$(
        impl Stored<f32> for $t {
            #[inline(always)]
            fn load(self) -> f32 {
                self.widen()
            }
            #[inline(always)]
            fn store(value: f32) -> Self {
                <$t>::narrow(value)
            }
            $(
                #[cfg(target_arch = "x86_64")]
                #[inline(always)]
                $runs
            )*
        }
    )*};
}
halves! {
    f16: [
        unsafe fn load_run<const LEVEL: u8>(from: *const f16, to: *mut f32, n: usize) -> usize {
            // SAFETY: `load_run`'s contract: `n` numbers on both sides; F16C belongs to the level.
            if LEVEL >= AVX2 { unsafe { widen_f16(from, to, n) } } else { 0 }
        }
        unsafe fn store_run<const LEVEL: u8>(from: *const f32, to: *mut f16, n: usize) -> usize {
            // SAFETY: `store_run`'s contract: `n` numbers on both sides; F16C belongs to the level.
            if LEVEL >= AVX2 { unsafe { halves::narrow_f16(from, to, n) } } else { 0 }
        }
    ];
    bf16: [
        // With registers twice as wide what the compiler makes is as fast.
        unsafe fn store_run<const LEVEL: u8>(from: *const f32, to: *mut bf16, n: usize) -> usize {
            // SAFETY: `store_run`'s contract: `n` numbers on both sides; AVX2 is the level.
            if LEVEL == AVX2 { unsafe { halves::narrow_bf16(from, to, n) } } else { 0 }
        }
    ];
}

macro_rules! through_f32 {
    ($($t:ty)*) => {$(
        impl Stored<f64> for $t {
            #[inline(always)]
            fn load(self) -> f64 { Stored::<f32>::load(self) as f64 }
            #[inline(always)]
            fn store(value: f64) -> Self { Stored::<f32>::store(value as f32) }
        }
        impl Stored<i64> for $t {
            #[inline(always)]
            fn load(self) -> i64 { Stored::<f32>::load(self) as i64 }
            #[inline(always)]
            fn store(value: i64) -> Self { Stored::<f32>::store(value as f32) }
        }
    )*};
}
through_f32!(f16 bf16);

macro_rules! by_cast {
    ($($t:tt: $($lane:ty),*;)*) => {$($(
        impl Stored<$lane> for $t {
            #[inline(always)]
            fn load(self) -> $lane { self as $lane }
            // Floats go to narrow integers by way of i64, whose low bits are kept.
            #[inline(always)]
            fn store(value: $lane) -> Self { by_cast!(@store $t, value) }
        }
    )*)*};
    (@store f32, $v:ident) => { $v as f32 };
    (@store f64, $v:ident) => { $v as f64 };
    (@store $t:ty, $v:ident) => { $v as i64 as $t };
}
by_cast! {
    f64: f32, f64, i64;
    f32: f32, f64, i64;
    i64: f32, f64, i64;
    i32: f32, f64, i64;
    i16: f32, f64, i64;
    i8: f32, f64, i64;
    u8: f32, f64, i64;
}

macro_rules! truth {
    ($($lane:ty: $zero:literal),*) => {$(
        impl Stored<$lane> for Truth {
            #[inline(always)]
            fn load(self) -> $lane { self.0 as $lane }
            #[inline(always)]
            fn store(value: $lane) -> Self { Truth((value != $zero) as u8) }
        }
        impl Stored<$lane> for Bit {
            #[inline(always)]
            fn load(self) -> $lane { self.0 as $lane }
            #[inline(always)]
            fn store(value: $lane) -> Self { Bit(value as i64 as u8 & 1) }
        }
    )*};
}
truth!(f32: 0.0, f64: 0.0, i64: 0);

/// Rows shorter than this are not worth the vector loop's start.
const SHORT: usize = 8;

#[inline(always)]
unsafe fn load<L: Copy, M: Stored<L>, const LEVEL: u8>(
    tile: *mut u8,
    memory: *mut u8,
    block: Block,
) {
    let mut out = tile.cast::<L>();
    for row in 0..block.outer {
        // SAFETY: by the *Block invariant* block and tile have all these elements.
        unsafe {
            let row = memory.offset(row as isize * block.outer_stride);
            if block.inner_stride == size_of::<M>() as isize && block.inner >= SHORT {
                let row = row.cast::<M>();
                for i in M::load_run::<LEVEL>(row, out, block.inner)..block.inner {
                    out.add(i).write(row.add(i).read().load());
                }
            } else if block.inner_stride == 0 {
                let value = row.cast::<M>().read().load();
                for i in 0..block.inner {
                    out.add(i).write(value);
                }
            } else {
                for i in 0..block.inner {
                    let at = row.offset(i as isize * block.inner_stride).cast::<M>();
                    out.add(i).write(at.read().load());
                }
            }
            out = out.add(block.inner);
        }
    }
}

#[inline(always)]
unsafe fn store<L: Copy, M: Stored<L>, const LEVEL: u8>(
    tile: *mut u8,
    memory: *mut u8,
    block: Block,
) {
    let mut values = tile.cast_const().cast::<L>();
    for row in 0..block.outer {
        // SAFETY: by the *Block invariant* block and tile have all these elements.
        unsafe {
            let row = memory.offset(row as isize * block.outer_stride);
            if block.inner_stride == size_of::<M>() as isize && block.inner >= SHORT {
                let row = row.cast::<M>();
                for i in M::store_run::<LEVEL>(values, row, block.inner)..block.inner {
                    row.add(i).write(M::store(values.add(i).read()));
                }
            } else {
                for i in 0..block.inner {
                    let at = row.offset(i as isize * block.inner_stride).cast::<M>();
                    at.write(M::store(values.add(i).read()));
                }
            }
            values = values.add(block.inner);
        }
    }
}

/// The same loop for each level.
macro_rules! compiled {
    ($loop:ident: $($(#[$attribute:meta])* $name:ident $level:ident;)*) => {$(
        $(#[$attribute])*
        unsafe fn $name<L: Copy, M: Stored<L>>(tile: *mut u8, memory: *mut u8, block: Block) {
            // SAFETY: the *Block invariant*; the instructions are those of the level.
            unsafe { $loop::<L, M, $level>(tile, memory, block) }
        }
    )*};
    ($($loop:ident: $baseline:ident $avx2:ident $avx512:ident;)*) => {$(
        compiled! { $loop:
            $baseline BASELINE;
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c"))]
            $avx2 AVX2;
            #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma,f16c"))]
            $avx512 AVX512;
        }
    )*};
}
compiled! {
    load: load_baseline load_avx2 load_avx512;
    store: store_baseline store_avx2 store_avx512;
}

/// By compute type, format and level. Of AVX-512 there are loops for f32 only, as of kernels.
type Moves = [[[Move; COUNT]; FORMATS]; 3];

macro_rules! moves {
    ($name:ident: $baseline:ident $avx2:ident $avx512:ident) => {
        static $name: Moves = [
            moves!(@lane f32: $baseline $avx2 $avx512),
            moves!(@lane f64: $baseline $avx2 $avx2),
            moves!(@lane i64: $baseline $avx2 $avx2),
        ];
    };
    (@lane $lane:ty: $($level:ident)*) => {
        moves!(@formats $lane: [$($level)*] f64 f32 f16 bf16 i64 i32 i16 i8 u8 Truth Bit)
    };
    (@formats $lane:ty: $levels:tt $($m:ty)*) => {
        [$(moves!(@levels $lane: $levels $m)),*]
    };
    (@levels $lane:ty: [$($level:ident)*] $m:ty) => {
        [$($level::<$lane, $m>),*]
    };
}
moves!(LOADS: load_baseline load_avx2 load_avx512);
moves!(STORES: store_baseline store_avx2 store_avx512);

/// The loop that reads elements of `format` into tiles of `compute`.
#[inline]
pub fn loader(format: Format, compute: Compute) -> Move {
    LOADS[compute as usize][format as usize][isa::current() as usize]
}

/// The loop that writes tiles of `compute` as elements of `format`. Rows with an inner stride of 0
/// keep their last value.
#[inline]
pub fn storer(compute: Compute, format: Format) -> Move {
    STORES[compute as usize][format as usize][isa::current() as usize]
}

/// Writes a number as `n` values of the compute type.
///
/// # Safety
/// `tile` has room for them.
pub unsafe fn fill_constant(value: Constant, compute: Compute, tile: *mut u8, n: usize) {
    // SAFETY: this function's contract; tiles are aligned for every compute type.
    unsafe {
        match (compute, value) {
            (Compute::F32, Constant::F(v)) => fill(tile.cast(), v as f32, n),
            (Compute::F32, Constant::I(v)) => fill(tile.cast(), v as f32, n),
            (Compute::F64, Constant::F(v)) => fill(tile.cast(), v, n),
            (Compute::F64, Constant::I(v)) => fill(tile.cast(), v as f64, n),
            (Compute::I64, Constant::F(v)) => fill(tile.cast(), v as i64, n),
            (Compute::I64, Constant::I(v)) => fill(tile.cast(), v, n),
        }
    }
}

/// # Safety
/// `tile` has room for `n` values.
unsafe fn fill<T: Copy>(tile: *mut T, value: T, n: usize) {
    for i in 0..n {
        // SAFETY: this function's contract: room for `n` values.
        unsafe { tile.add(i).write(value) };
    }
}

// Tiles are read and written as plain numbers and as lanes alike.
const _: () =
    assert!(size_of::<F32<true>>() == 4 && size_of::<F64<true>>() == 8 && size_of::<I64>() == 8);
