//! Stacks of matrices as the kernels of linear algebra take them, and how those are started.

use crate::cuda::{device, family::Family, launch::Arg, launch::Argument, launch::Shape};
use crate::error::throw;
use crate::ops::{gpu::Gpu, gpu::format_of, linalg::batch::Batch};
use crate::tensor::{Dtype, Tensor};
use std::ops::Range;

/// `Matrices` of `kernels/linalg.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Matrices {
    pub(super) at: *mut u8,
    pub(super) row: i64,
    pub(super) column: i64,
    pub(super) batch: i64,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Matrices {}

impl Matrices {
    /// A stack, or a part of one.
    pub(super) fn of(x: &Tensor) -> Matrices {
        let &[batch, row, column] = x.strides() else { unreachable!("a stack of matrices") };
        Matrices { at: x.device_ptr(), row: row as i64, column: column as i64, batch: batch as i64 }
    }
}

/// Starts a kernel of a family for the type of `x`.
///
/// # Safety
/// As [`Gpu::launch`].
#[track_caller]
pub(super) unsafe fn launch(
    gpu: Gpu,
    (family, entry): (&'static Family, &'static str),
    x: &Tensor,
    shape: Shape,
    args: &mut [Arg<'_>],
) {
    let kernel = family.kernel(format_of(x.dtype()), "any", entry);
    // SAFETY: the contract of `Gpu::launch`, which this function has too.
    unsafe { gpu.launch(kernel, shape, args) };
}

/// A grid of so many blocks, or fewer where that is beyond what one can have.
pub(super) fn blocks(count: usize, threads: usize) -> Shape {
    Shape::row(count.min(i32::MAX as usize) as u32, threads as u32)
}

/// How much dynamic shared memory a block can have beside what the kernels declare.
#[track_caller]
pub(super) fn shared_room(gpu: Gpu) -> usize {
    /// More than any of them.
    const DECLARED: usize = 12 << 10;
    let figures = device::properties(gpu.index).unwrap_or_else(|error| throw(error));
    figures.shared_memory_per_block_optin.saturating_sub(DECLARED)
}

/// A copy of a batch as a stack.
pub(super) fn stack(x: &Tensor) -> Tensor {
    restacked(&x.detach().clone_contiguous())
}

/// A contiguous batch as a stack.
pub(super) fn restacked(x: &Tensor) -> Tensor {
    let &[ref batch @ .., rows, columns] = x.shape() else { unreachable!("matrices") };
    x.reshape_to(&[batch.iter().product(), rows, columns])
}

/// Results of matrices like those of `a`, from stacks.
pub(super) fn batch(a: &Tensor, outputs: impl IntoIterator<Item = Tensor>, info: &Tensor) -> Batch {
    let shape = &a.shape()[..a.dim() - 2];
    let unstacked = |x: Tensor| x.reshape_to(&[shape, &x.shape()[1..]].concat());
    Batch { outputs: outputs.into_iter().map(unstacked).collect(), info: info.reshape_to(shape) }
}

/// A number for each matrix of a stack, 0 for the time being.
pub(super) fn fine(x: &Tensor) -> Tensor {
    Tensor::zeros([x.size(0)], (Dtype::I32, x.device()))
}

/// Some rows and columns of each matrix of a stack.
pub(super) fn part(x: &Tensor, rows: Range<usize>, columns: Range<usize>) -> Tensor {
    x.narrow(1, rows.start, rows.len()).narrow(2, columns.start, columns.len())
}

/// Identities, or the first columns of such, like the matrices of `x`.
pub(super) fn identities(x: &Tensor, rows: usize, columns: usize) -> Tensor {
    let one = Tensor::eye_of(rows, columns, (x.dtype(), x.device()));
    one.expand(&[x.size(0), rows, columns]).clone_contiguous()
}

/// Where to cut `n` rows or columns in two, at a multiple of `unit`.
pub(super) fn middle(n: usize, unit: usize) -> usize {
    n.div_ceil(2).next_multiple_of(unit)
}
