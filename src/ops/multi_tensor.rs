//! Elementwise updates of many tensors in one go: an optimizer's step reads and writes every
//! element once, whatever its formula, and large and small tensors share the threads evenly.
//!
//! f32 and f64 tensors are worked on in place. f16 and bf16 go through small f32 tiles, so formulas
//! run in f32 and round once, at the end.

use std::ops::{Add, Div, Mul, Neg, Range, Sub};
use std::slice;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::cpu::threads::{GRAIN, parallel_for};
use crate::cpu::vectorize::{Kernel, vectorize};
use crate::tensor::{Element, dispatch};
use crate::{Dtype, Tensor};

/// Elements per tile of a half type.
const TILE: usize = 256;

/// The types that formulas are computed in: f32 and f64.
pub trait Real:
    Element
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// Square root.
    fn sqrt(self) -> Self;
    /// The larger one; NaN if either is (`torch.maximum`).
    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        // A comparison with NaN is false.
        #[allow(clippy::neg_cmp_op_on_partial_ord, reason = "NaN must take the other branch")]
        let larger = if !(self <= other) { self } else { other };
        larger
    }
}

impl Real for f32 {
    #[inline(always)]
    fn sqrt(self) -> Self {
        self.sqrt()
    }
}
impl Real for f64 {
    #[inline(always)]
    fn sqrt(self) -> Self {
        self.sqrt()
    }
}

/// A formula over `W` tensors that it changes and `R` that it only reads, all of the same shape,
/// with its numbers.
pub trait Update<const W: usize, const R: usize>: Copy + Send + Sync {
    /// Updates the elements. Must be `#[inline(always)]` and a loop that vectorises.
    fn apply<T: Real>(self, written: [&mut [T]; W], read: [&[T]; R]);
}

/// A formula for certain tensors: contiguous, of one shape and one floating-point dtype.
pub struct Task<U, const W: usize, const R: usize> {
    /// The formula.
    pub update: U,
    /// What it changes, in the formula's order.
    pub written: [Tensor; W],
    /// What it reads, in the formula's order.
    pub read: [Tensor; R],
}

/// Runs all tasks. What one task writes no other one writes or reads.
///
/// # Panics
/// If the tensors of a task differ in dtype or length, or are not contiguous.
pub fn run<U: Update<W, R>, const W: usize, const R: usize>(tasks: &[Task<U, W, R>]) {
    let mut ends = Vec::with_capacity(tasks.len());
    let mut total = 0;
    for task in tasks {
        let (dtype, n) = (task.dtype(), task.len());
        let fits = |t: &Tensor| t.dtype() == dtype && t.numel() == n && t.is_contiguous();
        assert!(task.written.iter().chain(&task.read).all(fits), "operands of an update differ");
        total += n;
        ends.push(total);
    }
    parallel_for(total, GRAIN, |range| {
        let mut start = range.start;
        let first = ends.partition_point(|&end| end <= start);
        for (task, &end) in tasks.iter().zip(&ends).skip(first) {
            if start >= range.end {
                break;
            }
            let base = end - task.len();
            let stop = end.min(range.end);
            task.run(start - base..stop - base);
            start = stop;
        }
    });
    for tensor in tasks.iter().flat_map(|task| &task.written) {
        tensor.storage().bump_version();
    }
}

impl<U: Update<W, R>, const W: usize, const R: usize> Task<U, W, R> {
    fn dtype(&self) -> Dtype {
        self.written[0].dtype()
    }

    fn len(&self) -> usize {
        self.written[0].numel()
    }

    /// Runs the formula on the elements of a range.
    fn run(&self, range: Range<usize>) {
        let (start, n) = (range.start, range.len());
        dispatch!(float self.dtype(), "optimizer step", T => {
            let first = |t: &Tensor| t.data_ptr().cast::<T>().wrapping_add(start);
            // SAFETY: `run` above has checked types and lengths and that the range lies inside.
            // Ranges of different threads are disjoint, and nobody else writes gradients,
            // parameters and states while an optimizer steps.
            let (written, read) = unsafe {
                (
                    self.written.each_ref().map(|t| slice::from_raw_parts_mut(first(t), n)),
                    self.read.each_ref().map(|t| slice::from_raw_parts(first(t), n)),
                )
            };
            T::update(self.update, written, read)
        });
    }
}

/// How a formula is run on slices of an element type.
trait Updated: Element {
    fn update<U: Update<W, R>, const W: usize, const R: usize>(
        update: U,
        written: [&mut [Self]; W],
        read: [&[Self]; R],
    );
}

struct Direct<'a, U, T, const W: usize, const R: usize>(U, [&'a mut [T]; W], [&'a [T]; R]);

impl<U: Update<W, R>, T: Real, const W: usize, const R: usize> Kernel for Direct<'_, U, T, W, R> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        self.0.apply(self.1, self.2);
    }
}

macro_rules! in_place {
    ($($t:ty),*) => {$(
        impl Updated for $t {
            fn update<U: Update<W, R>, const W: usize, const R: usize>(
                update: U,
                written: [&mut [Self]; W],
                read: [&[Self]; R],
            ) {
                vectorize(Direct(update, written, read));
            }
        }
    )*};
}
in_place!(f32, f64);

macro_rules! through_tiles {
    ($($t:ty),*) => {$(
        impl Updated for $t {
            fn update<U: Update<W, R>, const W: usize, const R: usize>(
                update: U,
                written: [&mut [Self]; W],
                read: [&[Self]; R],
            ) {
                let (mut outputs, mut inputs) = ([[0f32; TILE]; W], [[0f32; TILE]; R]);
                let n = written[0].len();
                for start in (0..n).step_by(TILE) {
                    let (range, len) = (start..n.min(start + TILE), TILE.min(n - start));
                    for (tile, slice) in outputs.iter_mut().zip(&written) {
                        slice[range.clone()].convert_to_f32_slice(&mut tile[..len]);
                    }
                    for (tile, slice) in inputs.iter_mut().zip(&read) {
                        slice[range.clone()].convert_to_f32_slice(&mut tile[..len]);
                    }
                    f32::update(
                        update,
                        outputs.each_mut().map(|tile| &mut tile[..len]),
                        inputs.each_ref().map(|tile| &tile[..len]),
                    );
                    for k in 0..W {
                        written[k][range.clone()].convert_from_f32_slice(&outputs[k][..len]);
                    }
                }
            }
        }
    )*};
}
through_tiles!(f16, bf16);
