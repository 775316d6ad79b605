//! Linear algebra on a GPU, in the type of the matrices. A batch becomes a stack `[count, rows, columns]` that is
//! factored in place: blocks by kernels (`kernels/linalg*.cu`), a block of threads for each matrix of the stack, and what
//! is around them by products.

pub(in crate::ops) mod factors;
pub(in crate::ops) mod jacobi;
pub(in crate::ops) mod qr;

pub(super) use factors::{cholesky, inverse, lu, permutation, solve, solve_triangular};
pub(super) use jacobi::{eigh, svd};
pub(super) use qr::qr;

use std::ops::Range;

use super::batch::Batch;
use crate::cuda::device;
use crate::cuda::family::Family;
use crate::cuda::launch::{Arg, Argument, Shape};
use crate::error::throw;
use crate::ops::gpu::{Gpu, format_of};
use crate::{Dtype, Tensor};

/// `Matrices` of `kernels/linalg.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Matrices {
    at: *mut u8,
    row: i64,
    column: i64,
    batch: i64,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Matrices {}

impl Matrices {
    /// A stack, or a part of one.
    fn of(x: &Tensor) -> Matrices {
        let &[batch, row, column] = x.strides() else { unreachable!("a stack of matrices") };
        Matrices { at: x.device_ptr(), row: row as i64, column: column as i64, batch: batch as i64 }
    }
}

/// Starts a kernel of a family for the type of `x`.
///
/// # Safety
/// As [`Gpu::launch`].
#[track_caller]
unsafe fn launch(
    gpu: Gpu,
    (family, entry): (&'static Family, &'static str),
    x: &Tensor,
    shape: Shape,
    args: &mut [Arg<'_>],
) {
    let kernel = family.kernel(format_of(x.dtype()), "any", entry);
    // SAFETY: the caller's promise.
    unsafe { gpu.launch(kernel, shape, args) };
}

/// A grid of so many blocks, or fewer where that is beyond what one can have.
fn blocks(count: usize, threads: usize) -> Shape {
    Shape::row(count.min(i32::MAX as usize) as u32, threads as u32)
}

/// How much dynamic shared memory a block can have beside what the kernels declare.
#[track_caller]
fn shared_room(gpu: Gpu) -> usize {
    /// More than any of them.
    const DECLARED: usize = 12 << 10;
    let figures = device::properties(gpu.index).unwrap_or_else(|error| throw(error));
    figures.shared_memory_per_block_optin.saturating_sub(DECLARED)
}

/// A copy of a batch as a stack.
fn stack(x: &Tensor) -> Tensor {
    restacked(&x.detach().clone_contiguous())
}

/// A contiguous batch as a stack.
fn restacked(x: &Tensor) -> Tensor {
    let &[ref batch @ .., rows, columns] = x.shape() else { unreachable!("matrices") };
    x.reshape_to(&[batch.iter().product(), rows, columns])
}

/// Results of matrices like those of `a`, from stacks.
fn batch(a: &Tensor, outputs: impl IntoIterator<Item = Tensor>, info: &Tensor) -> Batch {
    let shape = &a.shape()[..a.dim() - 2];
    let unstacked = |x: Tensor| x.reshape_to(&[shape, &x.shape()[1..]].concat());
    Batch { outputs: outputs.into_iter().map(unstacked).collect(), info: info.reshape_to(shape) }
}

/// A number for each matrix of a stack, 0 for the time being.
fn fine(x: &Tensor) -> Tensor {
    Tensor::zeros([x.size(0)], (Dtype::I32, x.device()))
}

/// Some rows and columns of each matrix of a stack.
fn part(x: &Tensor, rows: Range<usize>, columns: Range<usize>) -> Tensor {
    x.narrow(1, rows.start, rows.len()).narrow(2, columns.start, columns.len())
}

/// Identities, or the first columns of such, like the matrices of `x`.
fn identities(x: &Tensor, rows: usize, columns: usize) -> Tensor {
    let one = Tensor::eye_of(rows, columns, (x.dtype(), x.device()));
    one.expand(&[x.size(0), rows, columns]).clone_contiguous()
}

/// Where to cut `n` rows or columns in two, at a multiple of `unit`.
fn middle(n: usize, unit: usize) -> usize {
    n.div_ceil(2).next_multiple_of(unit)
}
