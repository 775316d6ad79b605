//! `A = P L U` with row exchanges. For square matrices
//!
//! ```text
//! dA = P L^-T (strict lower triangle of L^T dL + upper triangle of dU U^T) U^-T
//! ```
//!
//! What rows or columns there are beyond the square are products of those inside.

use smallvec::smallvec;

use super::batch::{Batch, each};
use super::checks::{check_matrices, check_rows, check_square};
use super::options::TriangularOptions;
use super::{cuda, solve_triangular};
use crate::amp::cast_op;
use crate::autograd::record;
use crate::cpu::linalg;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::ops::gpu;
use crate::tensor::{Dtype, Tensor};

/// The factors of `m x n` matrices in one: L without its diagonal of ones below, U above; and the
/// pivots, `[.., min(m, n)]` of i32: step k exchanged rows k and `pivots[k]`, counted from 1
/// (`torch.linalg.lu_factor`).
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let (lu, pivots) = linalg::lu_factor(&Tensor::from([[1f64, 2.], [2., 2.]]));
/// assert_eq!(lu.to_vec::<f64>(), [2.0, 2.0, 0.5, 1.0]);
/// assert_eq!(pivots.to_vec::<i64>(), [2, 2]);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] for fewer than two dimensions, [`Error::Dtype`] for types other than f32 and
/// f64, and [`Error::Argument`] that names the first matrix with a pivot that is zero.
#[track_caller]
pub fn lu_factor(a: &Tensor) -> (Tensor, Tensor) {
    let (lu, pivots, batch) = factors("linalg.lu_factor", a);
    batch.expect("linalg.lu_factor", |pivot| {
        format!("has no factors to solve with: pivot {pivot} is zero; lu and lu_factor_ex take it")
    });
    (lu, pivots)
}

/// [`lu_factor`] of any matrices: `info` has the number, counted from 1, of the first pivot that is
/// zero, or 0 (`torch.linalg.lu_factor_ex`).
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let (lu, _, info) = linalg::lu_factor_ex(&Tensor::from([[1f64, 2.], [2., 4.]]));
/// assert_eq!((lu.to_vec::<f64>(), info.item()), (vec![2.0, 4.0, 0.5, 0.0], 2.0));
/// ```
///
/// # Panics
/// As [`lu_factor`] for shapes and types.
#[track_caller]
pub fn lu_factor_ex(a: &Tensor) -> (Tensor, Tensor, Tensor) {
    let (lu, pivots, batch) = factors("linalg.lu_factor_ex", a);
    (lu, pivots, batch.info)
}

/// P, L and U with `A = P L U`: a permutation matrix, ones on the diagonal of L (`torch.linalg.lu`).
///
/// # Panics
/// As [`lu_factor`] for shapes and types.
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let a = Tensor::from([[1f64, 2.], [4., 4.]]);
/// let (p, l, u) = linalg::lu(&a);
/// assert_eq!(p.matmul(&l).matmul(&u).to_vec::<f64>(), a.to_vec::<f64>());
/// ```
#[track_caller]
pub fn lu(a: &Tensor) -> (Tensor, Tensor, Tensor) {
    cast_op!("lu", [x = a] => lu(&x));
    let (lu, pivots, _) = factors("linalg.lu", a);
    unpacked("linalg.lu", &lu, &pivots)
}

/// P, L and U of factors in one.
#[track_caller]
pub(super) fn unpacked(op: &str, lu: &Tensor, pivots: &Tensor) -> (Tensor, Tensor, Tensor) {
    let (m, k) = (lu.size(-2), lu.size(-1).min(lu.size(-2)));
    let p = permutation(op, pivots, m, lu.dtype());
    let l = lu.narrow(-1, 0, k).tril(-1) + Tensor::eye_of(m, k, (lu.dtype(), lu.device()));
    (p, l, lu.narrow(-2, 0, k).triu(0))
}

#[track_caller]
fn factors(op: &str, a: &Tensor) -> (Tensor, Tensor, Batch) {
    check_matrices(op, a);
    let (m, n) = (a.size(-2), a.size(-1));
    let mut batch = match gpu::of(op, &[a]) {
        Some(gpu) => cuda::lu(gpu, a),
        None => each(&[a], &[&[m, n], &[m.min(n)]], &|inputs, out| {
            out[0].copy_from_slice(inputs[0]);
            let mut pivots = vec![0; m.min(n)];
            let info = linalg::lu(out[0], m, n, &mut pivots);
            out[1].iter_mut().zip(pivots).for_each(|(x, p)| *x = (p + 1) as f64);
            info
        }),
    };
    let pivots = batch.outputs.pop().expect("two outputs").to_dtype(Dtype::I32);
    let lu = batch.outputs.pop().expect("two outputs");
    let lu = record("lu_factor", &[a], lu, |saver| {
        let (lu, pivots) = (saver.save_output(0), pivots.clone());
        move |ctx| {
            let inner = backward(&ctx.get(&lu), &ctx.grad(0));
            let p = permutation("linalg.lu_factor", &pivots, m, inner.dtype());
            smallvec![Some(p.matmul(&inner))]
        }
    });
    (lu, pivots, batch)
}

/// The permutation matrix P, `m x m`, of row exchanges.
#[track_caller]
fn permutation(op: &str, pivots: &Tensor, m: usize, dtype: Dtype) -> Tensor {
    if let Some(gpu) = gpu::of(op, &[pivots]) {
        return cuda::permutation(gpu, pivots, m, dtype);
    }
    let k = pivots.size(-1);
    let rows = pivots.to_vec::<i64>();
    let count: usize = pivots.shape()[..pivots.dim() - 1].iter().product();
    let mut data = vec![0u8; count * m * m];
    for i in 0..count {
        let mut order: Vec<usize> = (0..m).collect();
        for (step, &pivot) in rows[i * k..(i + 1) * k].iter().enumerate() {
            if pivot < 1 || pivot > m as i64 {
                let message = format!("{pivot}; must be from 1 to {m}");
                throw(Error::argument(op, "pivots", message));
            }
            order.swap(step, pivot as usize - 1);
        }
        for (column, row) in order.into_iter().enumerate() {
            data[i * m * m + row * m + column] = 1;
        }
    }
    let shape = [&pivots.shape()[..pivots.dim() - 1], &[m, m]].concat();
    Tensor::from_slice(&data, shape).to_dtype(dtype)
}

/// The gradient by `L U` of both factors in one.
fn backward(lu: &Tensor, g: &Tensor) -> Tensor {
    let (m, n) = (lu.size(-2), lu.size(-1));
    let k = m.min(n);
    let unit = TriangularOptions { upper: true, left: true, unitriangular: true };
    let right = TriangularOptions { left: false, ..Default::default() };
    let corner = |x: &Tensor| x.narrow(-2, 0, k).narrow(-1, 0, k);
    // What lies below the square of a tall matrix, or right of that of a wide one.
    let below = |x: &Tensor| x.narrow(-2, k, m - k);
    let beside = |x: &Tensor| x.narrow(-1, k, n - k);
    let square = corner(lu);
    let (l, u) = (square.tril(-1) + Tensor::eye(k, (lu.dtype(), lu.device())), square.triu(0));
    let (dl, du) = (corner(g).tril(-1), corner(g).triu(0));
    let mut by_l = l.mt().matmul(&dl);
    let mut by_u = du.matmul(&u.mt());
    if m > n {
        by_u = by_u - below(lu).mt().matmul(&below(g));
    }
    if n > m {
        by_l = by_l - beside(g).matmul(&beside(lu).mt());
    }
    let inner = solve_triangular(&l.mt(), &(by_l.tril(-1) + by_u.triu(0)), unit);
    let mut whole = solve_triangular(&u.mt(), &inner, right);
    if m > n {
        whole = Tensor::cat(&[whole, solve_triangular(&u.mt(), &below(g), right)], -2);
    }
    if n > m {
        whole = Tensor::cat(&[whole, solve_triangular(&l.mt(), &beside(g), unit)], -1);
    }
    whole
}

/// Which equation [`lu_solve`] solves.
///
/// ```
/// use torchrs::{linalg, Tensor};
/// use torchrs::linalg::LuSolveOptions;
/// let (lu, pivots) = linalg::lu_factor(&Tensor::from([[1f64, 2.], [0., 1.]]));
/// let options = LuSolveOptions { adjoint: true, ..Default::default() };
/// let expected = Tensor::from([[1.0], [3.0]]);
/// let y = linalg::lu_solve(&lu, &pivots, &Tensor::from([[1f64], [5.]]), options);
/// assert!(y.allclose(&expected, Default::default()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LuSolveOptions {
    /// Solve `A X = B`, else `X A = B`.
    pub left: bool,
    /// With the transpose of A.
    pub adjoint: bool,
}

impl Default for LuSolveOptions {
    fn default() -> Self {
        LuSolveOptions { left: true, adjoint: false }
    }
}

/// X with `A X = B` (or as `options` say), for matrices `B` and the factors that [`lu_factor`] gave of
/// square matrices A (`torch.linalg.lu_solve`); batches broadcast.
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let (lu, pivots) = linalg::lu_factor(&Tensor::from([[1f64, 2.], [2., 2.]]));
/// let x = linalg::lu_solve(&lu, &pivots, &Tensor::from([[3f64], [4.]]), Default::default());
/// assert!(x.allclose(&Tensor::from([[1.0], [1.0]]), Default::default()));
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when shapes do not fit, [`Error::Dtype`] for types other than f32 and f64, or
/// two types, and [`Error::Argument`] for pivots that are no rows.
#[track_caller]
pub fn lu_solve(lu: &Tensor, pivots: &Tensor, b: &Tensor, options: LuSolveOptions) -> Tensor {
    cast_op!("lu_solve", [f = lu, y = b] => lu_solve(&f, pivots, &y, options));
    let op = "linalg.lu_solve";
    check_square(op, lu);
    check_matrices(op, b);
    if pivots.shape() != &lu.shape()[..lu.dim() - 1] {
        let (p, a) = (pivots.shape(), lu.shape());
        let message = format!("pivots of shape {p:?} for factors of shape {a:?}; one per row");
        throw(Error::shape(op, message));
    }
    let LuSolveOptions { left, adjoint } = options;
    if !left {
        let options = LuSolveOptions { left: true, adjoint: !adjoint };
        return lu_solve(lu, pivots, &b.mt(), options).mt();
    }
    check_rows(op, lu, b);
    let p = permutation(op, pivots, lu.size(-1), b.dtype());
    let lower = TriangularOptions { unitriangular: true, ..Default::default() };
    let upper = TriangularOptions { upper: true, ..Default::default() };
    if adjoint {
        let half = solve_triangular(&lu.mt(), b, Default::default());
        let upper = TriangularOptions { unitriangular: true, ..upper };
        p.matmul(&solve_triangular(&lu.mt(), &half, upper))
    } else {
        let half = solve_triangular(lu, &p.mt().matmul(b), lower);
        solve_triangular(lu, &half, upper)
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::{heavy, sample};
    vec![
        sample("lu_factor", &[&[2, 3, 3]], |x| lu_factor(&x[0]).0),
        sample("lu_factor, tall", &[&[4, 2]], |x| lu_factor(&x[0]).0),
        sample("lu_factor, wide", &[&[2, 4]], |x| lu_factor(&x[0]).0),
        sample("lu_factor, empty", &[&[0, 2]], |x| lu_factor(&x[0]).0),
        sample("lu", &[&[3, 2]], |x| {
            let (p, l, u) = lu(&x[0]);
            (p.matmul(&l).sin().sum_dim(&[-2], false) * u.cos()).sum()
        }),
        sample("lu_solve", &[&[3, 3], &[2, 3, 2]], |x| {
            let (lu, pivots) = lu_factor(&heavy(&x[0]));
            lu_solve(&lu, &pivots, &x[1], Default::default())
        }),
        sample("lu_solve, right, adjoint", &[&[3, 3], &[2, 3]], |x| {
            let (lu, pivots) = lu_factor(&x[0]);
            lu_solve(&lu, &pivots, &x[1], LuSolveOptions { left: false, adjoint: true })
        }),
    ]
}
