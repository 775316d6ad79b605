//! Cholesky and LU factors, and what is solved with them. Larger matrices are cut in halves until the blocks are as
//! `kernels/linalg_factors.cu` takes them, so that most of the work is in few large products.

use super::matrices::{
    Matrices, batch, blocks, fine, launch, middle, part, restacked, shared_room, stack,
};
use crate::cuda::cuda_args;
use crate::cuda::{family::Family, family::REALS, sources::family};
use crate::ops::{
    gpu::Gpu, linalg::batch::Batch, linalg::options::TriangularOptions,
    products::matmul::subtract::subtract_product,
};
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static FACTORS: Family =
    family!("linalg_factors": "linalg.cuh", "linalg_factors.cu").with(&[(REALS, &["any"])]);

/// The side of blocks for Cholesky and triangles: two rows for a lane.
const SIDE: usize = 64;

/// The lower factors, zeros above; `info` as the CPU's.
#[track_caller]
pub fn cholesky(gpu: Gpu, a: &Tensor) -> Batch {
    let mut l = restacked(&a.detach().tril(0));
    let info = fine(&l);
    cholesky_part(gpu, &l, &info, 0);
    if l.size(-1) > SIDE {
        // Products have written above the diagonal.
        l = l.tril(0);
    }
    batch(a, [l], &info)
}

#[track_caller]
fn cholesky_part(gpu: Gpu, a: &Tensor, info: &Tensor, first: usize) {
    let (count, n) = (a.size(0), a.size(-1));
    if n <= SIDE {
        let (matrices, at) = (Matrices::of(a), info.device_ptr());
        let shape = blocks(count, if n <= 16 { 64 } else { 256 }).with_shared(square(a));
        let (count, n, first) = (count as i64, n as i32, first as i32);
        let args = cuda_args!(matrices, at, count, n, first);
        // SAFETY: the kernel's parameters, of tensors of this GPU with these sizes.
        return unsafe { launch(gpu, (&FACTORS, "cholesky_block"), a, shape, args) };
    }
    let half = middle(n, SIDE);
    let (left, below) = (part(a, 0..half, 0..half), part(a, half..n, 0..half));
    let rest = part(a, half..n, half..n);
    cholesky_part(gpu, &left, info, first);
    // L21 L11^T = A21
    triangular_part(gpu, &left, &below.mt(), TriangularOptions::default());
    subtract_product(gpu, &rest, &below, &below.mt());
    cholesky_part(gpu, &rest, info, first + half);
}

/// Bytes of shared memory for a square matrix: `Rows` of the kernels.
fn square(x: &Tensor) -> usize {
    let n = x.size(-1);
    n * (n | 1) * x.dtype().size()
}

/// X with `T X = B`; both have the same batch.
#[track_caller]
pub fn solve_triangular(gpu: Gpu, t: &Tensor, b: &Tensor, options: TriangularOptions) -> Batch {
    let x = stack(b);
    triangular_part(gpu, &kept(t), &x, options);
    let info = fine(&x);
    batch(b, [x], &info)
}

/// The matrices as a stack, as they lie where that can be.
fn kept(t: &Tensor) -> Tensor {
    let t = t.detach();
    if t.dim() == 2 {
        t.unsqueeze(0)
    } else if t.dim() == 3 {
        t
    } else {
        stack(&t)
    }
}

/// Solves in place, for triangles and right sides that are parts of stacks.
#[track_caller]
fn triangular_part(gpu: Gpu, t: &Tensor, x: &Tensor, options: TriangularOptions) {
    let (count, n, columns) = (x.size(0), x.size(1), x.size(2));
    if x.numel() == 0 {
        return;
    }
    if n <= SIDE {
        /// Columns of a warp.
        const EACH: usize = 4;
        let warps = columns.div_ceil(EACH).min(8);
        let groups = columns.div_ceil(warps * EACH);
        let (triangles, all) = (Matrices::of(t), Matrices::of(x));
        let shape = blocks(groups * count, warps * 32).with_shared(square(t));
        let (columns, groups, count, n) = (columns as i64, groups as i64, count as i64, n as i32);
        let (upper, unit) = (i32::from(options.upper), i32::from(options.unitriangular));
        let args = cuda_args!(triangles, all, columns, groups, count, n, upper, unit);
        // SAFETY: the kernel's parameters: stacks of `count` triangles and right sides of these
        // sizes.
        return unsafe { launch(gpu, (&FACTORS, "solve_block"), x, shape, args) };
    }
    let half = middle(n, SIDE);
    let top = (part(t, 0..half, 0..half), part(x, 0..half, 0..columns));
    let bottom = (part(t, half..n, half..n), part(x, half..n, 0..columns));
    if options.upper {
        triangular_part(gpu, &bottom.0, &bottom.1, options);
        subtract_product(gpu, &top.1, &part(t, 0..half, half..n), &bottom.1);
        triangular_part(gpu, &top.0, &top.1, options);
    } else {
        triangular_part(gpu, &top.0, &top.1, options);
        subtract_product(gpu, &bottom.1, &part(t, half..n, 0..half), &top.1);
        triangular_part(gpu, &bottom.0, &bottom.1, options);
    }
}

/// The factors in one, and the pivots in i32; `info` as the CPU's.
#[track_caller]
pub fn lu(gpu: Gpu, a: &Tensor) -> Batch {
    let (factors, pivots, info) = eliminated(gpu, a);
    batch(a, [factors, pivots], &info)
}

/// The same as stacks.
#[track_caller]
fn eliminated(gpu: Gpu, a: &Tensor) -> (Tensor, Tensor, Tensor) {
    let factors = stack(a);
    let (count, m, n) = (factors.size(0), factors.size(1), factors.size(2));
    let pivots = Tensor::empty([count, m.min(n)], (Dtype::I32, a.device()));
    let info = fine(&factors);
    if factors.numel() > 0 {
        lu_part(gpu, &factors, &pivots, &info, 0);
    }
    (factors, pivots, info)
}

#[track_caller]
fn lu_part(gpu: Gpu, a: &Tensor, pivots: &Tensor, info: &Tensor, first: usize) {
    let (m, n) = (a.size(1), a.size(2));
    let (width, copied) = panel(gpu, a);
    if n <= width {
        return lu_block(gpu, a, pivots, info, first, copied);
    }
    // Of wide matrices the square is factored.
    let half = if n > m { m } else { middle(n, width).min(n - 1) };
    let (left, right) = (part(a, 0..m, 0..half), part(a, 0..m, half..n));
    let own = pivots.narrow(1, 0, half);
    lu_part(gpu, &left, &own, info, first);
    swap_rows(gpu, &right, &own, first, false);
    let unit = TriangularOptions { unitriangular: true, ..Default::default() };
    let above = part(&right, 0..half, 0..n - half);
    triangular_part(gpu, &part(&left, 0..half, 0..half), &above, unit);
    if half == m {
        return;
    }
    let (below, rest) = (part(&left, half..m, 0..half), part(&right, half..m, 0..n - half));
    subtract_product(gpu, &rest, &below, &above);
    let other = pivots.narrow(1, half, n - half);
    lu_part(gpu, &rest, &other, info, first + half);
    swap_rows(gpu, &below, &other, first + half, false);
}

/// How many columns are factored at once, and whether in shared memory.
#[track_caller]
fn panel(gpu: Gpu, a: &Tensor) -> (usize, bool) {
    let m = a.size(1);
    let room = shared_room(gpu) / a.dtype().size() / (m | 1);
    let width = match m {
        ..=128 => 64,
        129..=512 => 32,
        513..=2048 => 16,
        _ => 8,
    };
    let fitting = [64, 32, 16, 8].into_iter().find(|&w| w <= width && w <= room);
    (fitting.unwrap_or(8), fitting.is_some())
}

#[track_caller]
fn lu_block(gpu: Gpu, a: &Tensor, pivots: &Tensor, info: &Tensor, first: usize, copied: bool) {
    let (count, m, n) = (a.size(0), a.size(1), a.size(2));
    let threads = (4 * m.next_power_of_two()).clamp(32, 256);
    let side = m.next_power_of_two().min(threads) as i32;
    let shared = if copied { (m | 1) * n * a.dtype().size() } else { 0 };
    let (matrices, places, at) = (Matrices::of(a), pivots.device_ptr(), info.device_ptr());
    let (pivot_batch, items, rows) = (pivots.strides()[0] as i64, count as i64, m as i32);
    let (n, first, copied) = (n as i32, first as i32, i32::from(copied));
    let args = cuda_args!(matrices, places, pivot_batch, at, items, rows, n, first, side, copied);
    let shape = blocks(count, threads).with_shared(shared);
    // SAFETY: the kernel's parameters, of tensors of this GPU with these sizes.
    unsafe { launch(gpu, (&FACTORS, "lu_block"), a, shape, args) };
}

/// Exchanges rows of a part of a stack as pivots, of the rows from number `first` on, say.
#[track_caller]
fn swap_rows(gpu: Gpu, x: &Tensor, pivots: &Tensor, first: usize, backwards: bool) {
    let (count, rows, columns) = (x.size(0), x.size(1), x.size(2));
    let threads = columns.next_multiple_of(32).min(128);
    if x.numel() == 0 {
        return;
    }
    let groups = columns.div_ceil(threads);
    let shape = blocks(groups * count, threads);
    let (matrices, places) = (Matrices::of(x), pivots.device_ptr());
    let (pivot_batch, steps) = (pivots.strides()[0] as i64, pivots.size(1) as i32);
    let (rows, columns, groups, count) = (rows as i64, columns as i64, groups as i64, count as i64);
    let (first, backwards) = (first as i32, i32::from(backwards));
    let args = cuda_args!(
        matrices,
        places,
        pivot_batch,
        rows,
        columns,
        groups,
        count,
        steps,
        first,
        backwards
    );
    // SAFETY: the kernel's parameters: a stack of `count` matrices and the pivots of each.
    unsafe { launch(gpu, (&FACTORS, "swap_rows"), x, shape, args) };
}

/// The matrices P, `m x m`, of row exchanges in i32, with `A = P L U`.
#[track_caller]
pub(crate) fn permutation(gpu: Gpu, pivots: &Tensor, m: usize, dtype: Dtype) -> Tensor {
    let shape = &pivots.shape()[..pivots.dim() - 1];
    let count: usize = shape.iter().product();
    let pivots = pivots.detach().to_dtype(Dtype::I32).contiguous();
    let pivots = pivots.reshape_to(&[count, pivots.size(-1)]);
    let one = Tensor::eye(m, (dtype, gpu.device()));
    let p = one.expand(&[count, m, m]).clone_contiguous();
    swap_rows(gpu, &p, &pivots, 0, true);
    p.reshape_to(&[shape, &[m, m]].concat())
}

/// X with `A X = B`, which have the same batch; `info` as of [`lu`].
#[track_caller]
pub fn solve(gpu: Gpu, a: &Tensor, b: &Tensor) -> Batch {
    let x = stack(b);
    let info = solve_in_place(gpu, a, &x);
    batch(b, [x], &info)
}

/// The inverses; `info` as of [`lu`].
#[track_caller]
pub(crate) fn inverse(gpu: Gpu, a: &Tensor) -> Batch {
    let n = a.size(-1);
    let count = a.shape()[..a.dim() - 2].iter().product();
    let one = Tensor::eye(n, (a.dtype(), a.device()));
    let x = one.expand(&[count, n, n]).clone_contiguous();
    let info = solve_in_place(gpu, a, &x);
    batch(a, [x], &info)
}

#[track_caller]
fn solve_in_place(gpu: Gpu, a: &Tensor, x: &Tensor) -> Tensor {
    let (factors, pivots, info) = eliminated(gpu, a);
    swap_rows(gpu, x, &pivots, 0, false);
    let unit = TriangularOptions { unitriangular: true, ..Default::default() };
    triangular_part(gpu, &factors, x, unit);
    let upper = TriangularOptions { upper: true, ..Default::default() };
    triangular_part(gpu, &factors, x, upper);
    info
}
