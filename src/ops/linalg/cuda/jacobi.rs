//! Singular values, and eigenvalues of symmetric matrices, by rotations (`kernels/linalg_jacobi.cu`).
//!
//! The rows of a square G are made orthogonal, `J G = S W^T` with J orthogonal, so that `G = J^T S W^T`. A tall matrix is
//! first made square, `A = Q R`. A symmetric matrix is shifted until it has no negative eigenvalue: then its
//! eigenvectors are J's rows.

use super::matrices::{batch, blocks, fine, identities, launch, shared_room, stack};
use super::qr::{stacked, thin};
use crate::cuda::cuda_args;
use crate::cuda::{family::Family, family::REALS, sources::family};
use crate::ops::{gpu::Gpu, linalg::batch::Batch, linalg::options::Uplo};
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static JACOBI: Family =
    family!("linalg_jacobi": "linalg.cuh", "linalg_jacobi.cu").with(&[(REALS, &["any"])]);

/// The most sweeps; six to ten are usual.
const SWEEPS: usize = 40;

/// Rotates the rows of a stack of square matrices in place: J, and 1 for each matrix that did not converge.
#[track_caller]
fn orthogonalise(gpu: Gpu, g: &Tensor) -> (Tensor, Tensor) {
    let (count, n) = (g.size(0), g.size(-1));
    let (turns, info) = (identities(g, n, n), fine(g));
    if g.numel() == 0 {
        return (turns, info);
    }
    let epsilon = if g.dtype() == Dtype::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    let tolerance = epsilon * (2.0 + (n as f64).sqrt());
    let (at, to) = (g.device_ptr(), turns.device_ptr());
    let pairs = n.div_ceil(2);
    let shared = 2 * n * n * g.dtype().size();
    let (items, size) = (count as i64, n as i32);
    if shared <= shared_room(gpu) {
        let width = n.next_power_of_two().clamp(8, 32);
        let threads = (pairs * width).next_multiple_of(32).min(512);
        let shape = blocks(count, threads).with_shared(shared);
        let (found, width, sweeps) = (info.device_ptr(), width as i32, SWEEPS as i32);
        let args = cuda_args!(at, to, found, items, size, width, sweeps, tolerance);
        // SAFETY: the kernel's parameters, of new stacks of this GPU with these sizes.
        unsafe { launch(gpu, (&JACOBI, "jacobi_block"), g, shape, args) };
        return (turns, info);
    }
    let threads = (n / 4).next_power_of_two().clamp(32, 256);
    let shape = blocks(count * pairs, threads);
    for _ in 0..SWEEPS {
        let rotated = Tensor::zeros([1], (Dtype::I32, gpu.device()));
        let flag = rotated.device_ptr();
        for round in 0..2 * pairs as i32 - 1 {
            let args = cuda_args!(at, to, flag, items, size, round, tolerance);
            // SAFETY: the kernel's parameters: stacks of `count` square matrices, and a flag of
            // this GPU.
            unsafe { launch(gpu, (&JACOBI, "jacobi_round"), g, shape, args) };
        }
        // The callers wait for their outcome anyway.
        if !rotated.is_true_or(false) {
            return (turns, info);
        }
    }
    (turns, info + 1i64)
}

/// The largest magnitude of each matrix of a stack, 1 for zeros: what they are divided by, so that squares neither
/// overflow nor vanish.
fn scales(x: &Tensor) -> Tensor {
    let most = x.abs().amax(&[-2, -1], true);
    most.masked_fill(&most.eq(0.0), 1.0)
}

/// The rows of each matrix of a stack in an order `[count, rows]`.
fn rows_of(x: &Tensor, order: &Tensor) -> Tensor {
    x.gather(1, &order.unsqueeze(-1).expand(x.shape()))
}

/// Eigenvalues in rising order, and eigenvectors as columns, or none. Not finite: all are NaN.
#[track_caller]
pub fn eigh(gpu: Gpu, a: &Tensor, uplo: Uplo, vectors: bool) -> Batch {
    let n = a.size(-1);
    let x = stack(a);
    let whole = match uplo {
        Uplo::L => x.tril(0) + x.tril(-1).mt(),
        Uplo::U => x.triu(0) + x.triu(1).mt(),
    };
    let rows = if vectors { n } else { 0 };
    if a.numel() == 0 {
        let new = |shape: &[usize]| Tensor::empty(shape, (a.dtype(), a.device()));
        let count = x.size(0);
        return batch(a, [new(&[count, n]), new(&[count, n, rows])], &fine(&x));
    }
    let scale = scales(&whole);
    let whole = whole / &scale;
    // No eigenvalue is larger than the largest sum of a row's magnitudes.
    let shift = whole.abs().sum_dim(&[-1], false).amax(&[-1], true).unsqueeze(-1);
    let g = &whole + Tensor::eye(n, (a.dtype(), a.device())) * shift;
    let (turns, info) = orthogonalise(gpu, &g);
    // v^T A v, which the shift has not touched.
    let values = (turns.matmul(&whole) * &turns).sum_dim(&[-1], false);
    let (values, order) = values.sort(-1, false);
    // 0, or NaN where the matrix is not finite.
    let poison = &scale * 0.0;
    let values = values * scale.squeeze_dim(-1) + poison.squeeze_dim(-1);
    let columns = match vectors {
        true => (rows_of(&turns, &order) + poison).mt().contiguous(),
        false => Tensor::empty([x.size(0), n, 0], (a.dtype(), a.device())),
    };
    batch(a, [values, columns], &info)
}

/// U, S and V^T with `columns` columns and `rows` rows, the smaller side of the matrices or all, or none. `info` is 1 for
/// matrices that are not finite, 2 where the rotations do not converge.
#[track_caller]
pub fn svd(gpu: Gpu, a: &Tensor, columns: usize, rows: usize) -> Batch {
    let x = stack(a);
    let (m, n) = (x.size(1), x.size(2));
    let ([u, s, vt], info) = if m >= n {
        tall(gpu, &x, columns, rows)
    } else {
        let ([u, s, vt], info) = tall(gpu, &x.mt().contiguous(), rows, columns);
        ([vt.mt().contiguous(), s, u.mt().contiguous()], info)
    };
    batch(a, [u, s, vt], &info)
}

#[track_caller]
fn tall(gpu: Gpu, a: &Tensor, columns: usize, rows: usize) -> ([Tensor; 3], Tensor) {
    let (count, m, n) = (a.size(0), a.size(1), a.size(2));
    if a.numel() == 0 {
        // What there are of vectors are those of identities.
        let s = Tensor::zeros([count, m.min(n)], (a.dtype(), a.device()));
        let [u, vt] = [identities(a, m, columns), identities(a, rows, n)];
        return ([u, s, vt], fine(a));
    }
    let scale = scales(a);
    let mut g = a / &scale;
    let mut q = None;
    if m > n {
        let (whole, r) = if columns > n { stacked(gpu, &g, columns) } else { thin(gpu, &g) };
        (g, q) = (r.narrow(1, 0, n).contiguous(), Some(whole));
    }
    let (turns, info) = orthogonalise(gpu, &g);
    let (s, order) = g.square().sum_dim(&[-1], false).sqrt().sort(-1, true);
    let scale = scale.squeeze_dim(-1);
    // Not finite: the scale is NaN or infinity.
    let bad = (&scale * 0.0).ne(0.0).squeeze_dim(-1);
    let info = (info * 2i64).masked_fill(&bad, 1i64);
    let values = &s * scale;
    if columns == 0 {
        let none = |rows, columns| Tensor::empty([count, rows, columns], (a.dtype(), a.device()));
        return ([none(m, 0), values, none(0, n)], info);
    }
    let length = s.masked_fill(&s.eq(0.0), 1.0).unsqueeze(-1);
    let right = rows_of(&g, &order) / length;
    // Rows of zeros become what is missing of a basis; the others stay, but for rounding.
    let (basis, r) = stacked(gpu, &right.mt().contiguous(), n);
    let negative = r.diagonal(0, -2, -1).lt(0.0).unsqueeze(-1);
    let vt = basis.mt();
    let vt = negative.where_(&-&vt, &vt).contiguous();
    let left = rows_of(&turns, &order).mt();
    let u = match q {
        None => left.contiguous(),
        Some(q) => {
            let inside = q.narrow(2, 0, n).matmul(&left);
            match columns > n {
                true => Tensor::cat(&[inside, q.narrow(2, n, columns - n)], 2),
                false => inside,
            }
        }
    };
    ([u, values, vt], info)
}
