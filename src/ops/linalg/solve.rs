//! Solutions of square systems: `A X = B`, `dB = A^-T dX`, `dA = -dB X^T`.

use smallvec::smallvec;

use super::batch::{Batch, each};
use super::checks::{check_matrices, check_rows, check_square, common_batch, is_vector};
use super::{complex, cuda};
use crate::amp::cast_op;
use crate::autograd::record;
use crate::cpu::linalg;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::ops::gpu;
use crate::tensor::Tensor;

/// X with `A X = B` for square matrices `A` (`torch.linalg.solve`); batches broadcast. `b` is taken
/// for vectors if it has one dimension, or the shape of `a` but for the last dimension; else for
/// matrices `[.., n, k]`. Both may be complex.
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) when shapes do not fit,
/// [`Error::Dtype`](crate::Error::Dtype) for integers, bools and half types, or two types, and
/// [`Error::Argument`](crate::Error::Argument) that names the first matrix that is singular.
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let a = Tensor::from([[2f64, 0.], [0., 4.]]);
/// assert_eq!(linalg::solve(&a, &Tensor::from([2f64, 2.])).to_vec::<f64>(), [1., 0.5]);
/// ```
#[track_caller]
pub fn solve(a: &Tensor, b: &Tensor) -> Tensor {
    cast_op!("solve", [x = a, y = b] => solve(&x, &y));
    if a.is_complex() {
        return complex::solve_systems("linalg.solve", a, b);
    }
    let (x, batch) = solutions("linalg.solve", a, b);
    batch.expect("linalg.solve", singular);
    x
}

/// X with `X A = B`: [`solve`] with `left=False`. `b` is vectors as there, or matrices `[.., k, n]`.
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let (a, b) = (Tensor::from([[2f64, 1.], [0., 4.]]), Tensor::from([[2f64, 9.]]));
/// assert!(linalg::solve_right(&a, &b).allclose(&Tensor::from([[1.0, 2.0]]), Default::default()));
/// ```
///
/// # Panics
/// As [`solve`].
#[track_caller]
pub fn solve_right(a: &Tensor, b: &Tensor) -> Tensor {
    cast_op!("solve", [x = a, y = b] => solve_right(&x, &y));
    check_square("linalg.solve", a);
    if is_vector(a, b) {
        return solve(&a.mt(), b);
    }
    check_matrices("linalg.solve", b);
    solve(&a.mt(), &b.mt()).mt()
}

/// [`solve`] for matrices that may be singular: the solution is then infinite or NaN, and `info` has
/// the number, counted from 1, of the pivot that is zero (`torch.linalg.solve_ex`).
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let (a, b) = (Tensor::from([[2f64, 0.], [0., 4.]]), Tensor::from([2f64, 8.]));
/// let (x, info) = linalg::solve_ex(&a, &b);
/// assert_eq!((x.to_vec::<f64>(), info.item()), (vec![1.0, 2.0], 0.0));
/// assert_eq!(linalg::solve_ex(&a.zeros_like(), &b).1.item(), 1.0);
/// ```
///
/// # Panics
/// As [`solve`] for shapes and types.
#[track_caller]
pub fn solve_ex(a: &Tensor, b: &Tensor) -> (Tensor, Tensor) {
    cast_op!("solve", [x = a, y = b] => solve_ex(&x, &y));
    let (x, batch) = solutions("linalg.solve_ex", a, b);
    (x, batch.info)
}

/// What `info` means.
pub(super) fn singular(info: i32) -> String {
    format!("is singular: pivot {info} of its elimination is zero")
}

/// Solves for the `n x k` matrix `x` in place; the result is the first pivot that is zero.
pub(super) fn solve_one(a: &[f64], n: usize, x: &mut [f64], k: usize) -> usize {
    let mut factors = a.to_vec();
    let mut pivots = vec![0; n];
    let info = linalg::lu(&mut factors, n, n, &mut pivots);
    for (i, &p) in pivots.iter().enumerate() {
        (0..k).for_each(|j| x.swap(i * k + j, p * k + j));
    }
    linalg::solve_triangular(&factors, n, false, true, x, k);
    linalg::solve_triangular(&factors, n, true, false, x, k);
    info
}

#[track_caller]
fn solutions(op: &str, a: &Tensor, b: &Tensor) -> (Tensor, Batch) {
    check_square(op, a);
    if b.dim() == 0 {
        throw(Error::shape(op, "B has no dimension; takes vectors or matrices"));
    }
    if is_vector(a, b) {
        let (x, batch) = solutions(op, a, &b.unsqueeze(-1));
        return (x.squeeze_dim(-1), batch);
    }
    check_rows(op, a, b);
    let (a, b) = common_batch(op, a, b);
    let (n, k) = (b.size(-2), b.size(-1));
    let mut batch = match gpu::of(op, &[&a, &b]) {
        Some(gpu) => cuda::solve(gpu, &a, &b),
        None => each(&[&a, &b], &[&[n, k]], &|inputs, out| {
            out[0].copy_from_slice(inputs[1]);
            solve_one(inputs[0], n, out[0], k)
        }),
    };
    let x = record("solve", &[&a, &b], batch.outputs.remove(0), |saver| {
        let (a, x) = (saver.save(&a), saver.save_output(0));
        move |ctx| {
            let (db, _) = solve_ex(&ctx.get(&a).mt(), &ctx.grad(0));
            let da = ctx.needs(0).then(|| -db.matmul(&ctx.get(&x).mt()));
            smallvec![da, Some(db)]
        }
    });
    (x, batch)
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::{heavy, sample};
    vec![
        sample("solve", &[&[3, 3], &[2, 3, 2]], |x| solve(&heavy(&x[0]), &x[1])),
        sample("solve, vectors", &[&[2, 3, 3], &[3]], |x| solve(&heavy(&x[0]), &x[1])),
        sample("solve, right", &[&[3, 3], &[2, 3]], |x| solve_right(&heavy(&x[0]), &x[1])),
        sample("solve, empty", &[&[0, 0], &[0, 2]], |x| solve(&x[0], &x[1])),
    ]
}
