//! Copies of strided elements without conversion. Dense copies are `memcpy`; a transposed source is
//! read in square blocks, so that every cache line that is touched on either side is used up.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::arch::cache::{LINE, is_beyond};
use crate::arch::prefetch::prefetch;
use crate::arch::vectorize::{Kernel, vectorize};
use crate::elementwise::reversed::{Reversed, Way};
use crate::elementwise::streaming::{copy_streaming, finish, is_for_copies};
use crate::numbers::vector::{Plain, Square, with_registers};
use crate::threads::{GRAIN, parallel_for};
use torchrs_loops::{Format, Operand, Plan};

/// Side of a block of a transposing copy: lines of 16 f32 fill a cache line.
const SIDE: usize = 16;
/// Lines of a transposed source that are asked for ahead of their use.
const AHEAD: isize = 2 * SIDE as isize;
/// Bytes of a row up to which it is copied without a call.
const SHORT: usize = 512;
/// Rows that are asked for ahead of their use.
const ROWS_AHEAD: isize = 8;
/// Equally distant rows from which a loop of their own pays.
const RUN: usize = 8;

/// Elements of a size, and where they are.
#[derive(Clone, Copy)]
pub struct Elements<'a> {
    /// The first element.
    pub ptr: *mut u8,
    /// Sizes of the dimensions.
    pub shape: &'a [usize],
    /// Strides in elements.
    pub strides: &'a [isize],
}

/// Copies elements of `size` bytes (1, 2, 4, 8 or 16); `from` broadcasts to `to`'s shape.
///
/// # Safety
/// All elements that shapes and strides name are valid, of that size and aligned to it (16 bytes: as two of 8); `to` names
/// none twice and overlaps nothing of `from`; nobody else writes either meanwhile.
pub unsafe fn copy(size: usize, to: Elements<'_>, from: Elements<'_>) {
    if to.shape.contains(&0) {
        return;
    }
    // SAFETY: this function's contract; each type has the size of its case.
    unsafe {
        match size {
            1 => typed::<u8>(Format::U8, to, from),
            2 => typed::<u16>(Format::I16, to, from),
            4 => typed::<u32>(Format::I32, to, from),
            8 => typed::<u64>(Format::I64, to, from),
            16 => typed::<[u64; 2]>(Format::Wide, to, from),
            _ => unreachable!("elements have 1, 2, 4, 8 or 16 bytes, not {size}"),
        }
    }
}

unsafe fn typed<T: Copy>(format: Format, to: Elements<'_>, from: Elements<'_>) {
    let operands = [to, from].map(|e| Operand::Memory {
        ptr: e.ptr,
        format,
        shape: e.shape,
        strides: e.strides,
    });
    let job = Job { plan: Plan::new(to.shape, &operands), to: to.ptr, from: from.ptr };
    let unit = size_of::<T>() as isize;
    // SAFETY: the contract of `copy`; the plan meets every element of `to` once.
    unsafe {
        if job.plan.inner_stride(0) == unit && job.plan.inner_stride(1) == unit {
            job.dense(size_of::<T>());
        } else if let Some(d) = job.transposed_dimension() {
            job.blocks::<T>(d);
        } else {
            job.strided::<T>();
        }
    }
}

struct Job {
    plan: Plan,
    to: *mut u8,
    from: *mut u8,
}

// SAFETY: threads copy disjoint elements.
unsafe impl Sync for Job {}

impl Job {
    /// Both sides have dense rows.
    unsafe fn dense(&self, size: usize) {
        let (plan, rows, inner) = (&self.plan, self.plan.rows(), self.plan.inner());
        let far = is_beyond(rows * inner * size) && inner * size > SHORT;
        // SAFETY: columns of a row on both sides.
        let row = |[to, from]: [isize; 2], columns: Range<usize>| unsafe {
            let skip = (columns.start * size) as isize;
            let (to, from) = (self.to.offset(to + skip), self.from.offset(from + skip));
            let copy = if far { copy_streaming } else { copy_bytes };
            copy(to, from, columns.len() * size);
        };
        if rows == 1 {
            return parallel_for(inner, GRAIN, |columns| {
                row([0, 0], columns);
                if far {
                    finish();
                }
            });
        }
        // Rows of the last dimension but one are equally far apart: a loop without a walk.
        let last = plan.dims.len() - 2;
        let run = plan.dims[last];
        parallel_for(rows, (GRAIN / inner).max(1), |mut rows| {
            if run < RUN || inner * size > SHORT {
                plan.for_rows(rows, |offsets| row(offsets, 0..inner));
                if far {
                    finish();
                }
                return;
            }
            while !rows.is_empty() {
                let count = rows.len().min(run - rows.start % run);
                let at = |k| plan.row_offset(rows.start, k);
                vectorize(Rows {
                    to: self.to.wrapping_offset(at(0)),
                    from: self.from.wrapping_offset(at(1)),
                    steps: [plan.stride(last, 0), plan.stride(last, 1)],
                    count,
                    len: inner * size,
                });
                rows.start += count;
            }
        });
    }

    /// Any strides, element by element.
    unsafe fn strided<T: Copy>(&self) {
        let (plan, rows, inner) = (&self.plan, self.plan.rows(), self.plan.inner());
        let (to_step, from_step) = (plan.inner_stride(0), plan.inner_stride(1));
        let reversed = to_step == size_of::<T>() as isize && from_step == -to_step;
        let bytes = rows * inner * size_of::<T>();
        let way = match is_beyond(2 * bytes) {
            false => Way::Near,
            // What does not fit in the caches beside its source.
            true if is_for_copies(bytes) => Way::Past,
            true => Way::Far,
        };
        // SAFETY: columns of a row on both sides.
        let row = |[to, from]: [isize; 2], columns: Range<usize>| unsafe {
            let (to, from) = (self.to.offset(to), self.from.offset(from));
            if reversed {
                let to = to.cast::<T>().add(columns.start);
                let from = from.cast::<T>().sub(columns.end - 1);
                return vectorize(Reversed { to, from, count: columns.len(), way });
            }
            if from_step == 0 && to_step == size_of::<T>() as isize {
                let to = to.cast::<MaybeUninit<T>>().add(columns.start);
                let value = MaybeUninit::new(from.cast::<T>().read());
                return std::slice::from_raw_parts_mut(to, columns.len()).fill(value);
            }
            for i in columns {
                let value = from.offset(i as isize * from_step).cast::<T>().read();
                to.offset(i as isize * to_step).cast::<T>().write(value);
            }
        };
        if rows == 1 {
            parallel_for(inner, GRAIN, |columns| row([0, 0], columns));
        } else {
            parallel_for(rows, (GRAIN / inner).max(1), |rows| {
                plan.for_rows(rows, |offsets| row(offsets, 0..inner));
            });
        }
    }

    /// The dimension along which the source is denser than along the innermost one, if there is one.
    fn transposed_dimension(&self) -> Option<usize> {
        let plan = &self.plan;
        let stride = |d: usize| plan.stride(d, 1).unsigned_abs();
        (0..plan.dims.len() - 1)
            .filter(|&d| stride(d) != 0 && stride(d) < plan.inner_stride(1).unsigned_abs())
            .min_by_key(|&d| stride(d))
    }

    /// Square blocks of dimension `d` and the innermost one. A block is read line by line into a
    /// buffer and written line by line: with power-of-two strides its lines would push each other
    /// out of the cache.
    unsafe fn blocks<T: Copy>(&self, d: usize) {
        let plan = &self.plan;
        let last = plan.dims.len() - 1;
        let (height, width) = (plan.dims[d], plan.dims[last]);
        let bands = height.div_ceil(SIDE);
        let others: usize = plan.rows() / height;
        parallel_for(others * bands, (GRAIN / (SIDE * width)).max(1), |range| {
            for unit in range {
                let (mut other, band) = (unit / bands, unit % bands);
                let (mut to, mut from) = (self.to, self.from);
                for e in (0..last).rev().filter(|&e| e != d) {
                    let index = (other % plan.dims[e]) as isize;
                    to = to.wrapping_offset(index * plan.stride(e, 0));
                    from = from.wrapping_offset(index * plan.stride(e, 1));
                    other /= plan.dims[e];
                }
                let first = band * SIDE;
                to = to.wrapping_offset(first as isize * plan.stride(d, 0));
                from = from.wrapping_offset(first as isize * plan.stride(d, 1));
                let high = SIDE.min(height - first);
                let steps = |k: usize| (plan.stride(d, k), plan.stride(last, k));
                let of = PhantomData::<T>;
                vectorize(Band {
                    to,
                    to_step: steps(0),
                    from,
                    from_step: steps(1),
                    high,
                    width,
                    of,
                });
            }
        });
    }
}

/// A few rows of the result, across which the source is read; steps are (down, across) in bytes.
struct Band<T> {
    to: *mut u8,
    to_step: (isize, isize),
    from: *const u8,
    from_step: (isize, isize),
    /// At most [`SIDE`].
    high: usize,
    width: usize,
    of: PhantomData<T>,
}

impl<T: Copy> Kernel for Band<T> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Band { to, to_step, from, from_step, high, width, .. } = self;
        let unit = size_of::<T>() as isize;
        let lines = high == SIDE && (to_step.1, from_step.0) == (unit, unit);
        for left in (0..width).step_by(SIDE) {
            let to = to.wrapping_offset(left as isize * to_step.1);
            let from = from.wrapping_offset(left as isize * from_step.1);
            let wide = SIDE.min(width - left);
            // SAFETY: a block inside the plan.
            unsafe {
                if lines && wide == SIDE {
                    square::<T, FMA>(to, to_step.0, from, from_step.1);
                } else {
                    block::<T>(to, to_step, from, from_step, high, wide);
                }
            }
        }
    }
}

/// A whole block of [`block`] whose lines are dense on both sides.
///
/// # Safety
/// As for [`block`], and the processor has AVX2 if `FMA`.
#[inline(always)]
unsafe fn square<T: Copy, const FMA: bool>(
    to: *mut u8,
    to_step: isize,
    from: *const u8,
    from_step: isize,
) {
    for j in 0..SIDE as isize {
        // Lines of a source are often pages apart, which the processor does not foresee.
        for line in (0..SIDE * size_of::<T>()).step_by(LINE) {
            prefetch(from.wrapping_offset((j + AHEAD) * from_step).wrapping_add(line));
        }
    }
    // SAFETY: lines of the caller's block; registers of f32 carry any bits.
    unsafe {
        if size_of::<T>() == size_of::<f32>() {
            return with_registers!(FMA, V = Plain<f32> => words::<V>(to, to_step, from, from_step));
        }
        let mut buffer = [[MaybeUninit::<T>::uninit(); SIDE]; SIDE];
        for (j, line) in buffer.iter_mut().enumerate() {
            *line = from.offset(j as isize * from_step).cast::<[_; SIDE]>().read_unaligned();
        }
        for i in 0..SIDE {
            let mut line = [MaybeUninit::<T>::uninit(); SIDE];
            for j in 0..SIDE {
                line[j] = buffer[j][i];
            }
            to.offset(i as isize * to_step).cast::<[_; SIDE]>().write_unaligned(line);
        }
    }
}

/// [`square`] of numbers of four bytes.
///
/// # Safety
/// As for [`square`], and the processor has the registers.
#[inline(always)]
unsafe fn words<V: Square<Number = f32>>(
    to: *mut u8,
    to_step: isize,
    from: *const u8,
    from_step: isize,
) {
    // SAFETY: the square's numbers are there by this function's contract; `Vector`'s *Instructions*
    // too.
    unsafe {
        for i in (0..SIDE).step_by(V::LANES) {
            for j in (0..SIDE).step_by(V::LANES) {
                let from =
                    |k: usize| from.offset((j + k) as isize * from_step).cast::<f32>().add(i);
                let mut rows = [V::splat(0.0); 8];
                for k in 0..V::LANES {
                    rows[k] = V::load(from(k));
                }
                let rows = V::transpose(rows);
                for k in 0..V::LANES {
                    let to = to.offset((i + k) as isize * to_step).cast::<f32>().add(j);
                    rows[k].store(to);
                }
            }
        }
    }
}

/// Short rows, equally far apart.
struct Rows {
    to: *mut u8,
    from: *const u8,
    /// Bytes from one row to the next.
    steps: [isize; 2],
    count: usize,
    /// Bytes of a row.
    len: usize,
}

impl Kernel for Rows {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for i in 0..self.count as isize {
            let (to, from) = (
                self.to.wrapping_offset(i * self.steps[0]),
                self.from.wrapping_offset(i * self.steps[1]),
            );
            // The processor foresees the next lines of a row, not the next rows.
            for line in (0..self.len.min(SHORT)).step_by(LINE) {
                prefetch(from.wrapping_offset(ROWS_AHEAD * self.steps[1]).wrapping_add(line));
            }
            // SAFETY: `dense` gives rows inside the plan, which has them on both sides, apart.
            unsafe { copy_bytes(to, from, self.len) };
        }
    }
}

/// Copies all of `from`, a few numbers without a call; inside the loops of an instruction set.
#[inline(always)]
pub fn copy_short<T: Copy>(from: &[T], to: &mut [T]) {
    assert!(from.len() == to.len());
    // SAFETY: both have so many bytes, and one of them is borrowed to be written.
    unsafe { copy_bytes(to.as_mut_ptr().cast(), from.as_ptr().cast(), size_of_val(from)) };
}

/// Copies `len` bytes; a few of them without a call, which would cost more than the copy.
///
/// # Safety
/// Both have so many bytes and do not overlap.
#[inline(always)]
unsafe fn copy_bytes(to: *mut u8, from: *const u8, len: usize) {
    type Block = [u64; 4];
    const BLOCK: usize = size_of::<Block>();
    // SAFETY: blocks inside both; no alignment is assumed.
    unsafe {
        if !(BLOCK..=SHORT).contains(&len) {
            return to.copy_from_nonoverlapping(from, len);
        }
        let block = |at: usize| {
            let block = from.add(at).cast::<Block>().read_unaligned();
            to.add(at).cast::<Block>().write_unaligned(block);
        };
        let mut at = 0;
        while at + BLOCK <= len {
            block(at);
            at += BLOCK;
        }
        if at < len {
            // The last one overlaps what is done.
            block(len - BLOCK);
        }
    }
}

/// Copies `high` x `wide` elements; steps are (down, across) in bytes.
#[inline(always)]
unsafe fn block<T: Copy>(
    to: *mut u8,
    to_step: (isize, isize),
    from: *const u8,
    from_step: (isize, isize),
    high: usize,
    wide: usize,
) {
    let mut buffer = [[MaybeUninit::<T>::uninit(); SIDE]; SIDE];
    // SAFETY: the caller's block has these elements on both sides; what is read from the buffer was
    // written to it.
    unsafe {
        for (j, line) in buffer.iter_mut().enumerate().take(wide) {
            let from = from.offset(j as isize * from_step.1);
            for (i, slot) in line.iter_mut().enumerate().take(high) {
                slot.write(from.offset(i as isize * from_step.0).cast::<T>().read());
            }
        }
        for i in 0..high {
            let to = to.offset(i as isize * to_step.0);
            for (j, line) in buffer.iter().enumerate().take(wide) {
                to.offset(j as isize * to_step.1).cast::<T>().write(line[i].assume_init());
            }
        }
    }
}
