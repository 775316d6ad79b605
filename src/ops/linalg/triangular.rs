//! `T X = B` with a triangular matrix T.
//!
//! ```text
//! dB = T^-T dX        dT = -(triangle of dB X^T)
//! ```
use smallvec::smallvec;

use super::batch::each;
use super::checks::{check_matrices, check_rows, check_square, common_batch};
use super::cuda;
use super::options::TriangularOptions;
use crate::amp::cast_op;
use crate::autograd::record;
use crate::cpu::linalg;
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::ops::gpu;
use crate::tensor::Tensor;

/// X with `A X = B`, or `X A = B`, for triangular matrices `A` `[.., n, n]` and matrices `B`
/// `[.., n, k]` or `[.., k, n]` (`torch.linalg.solve_triangular`); batches broadcast. A zero on the
/// diagonal gives infinities.
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) when shapes do not fit and
/// [`Error::Dtype`](crate::Error::Dtype) for types other than f32 and f64, or two types.
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let a = Tensor::from([[2f64, 0.], [1., 4.]]);
/// let x = linalg::solve_triangular(&a, &Tensor::from([[2f64], [9.]]), Default::default());
/// assert_eq!(x.to_vec::<f64>(), [1., 2.]);
/// ```
#[track_caller]
pub fn solve_triangular(a: &Tensor, b: &Tensor, options: TriangularOptions) -> Tensor {
    cast_op!("solve_triangular", [x = a, y = b] => solve_triangular(&x, &y, options));
    let op = "linalg.solve_triangular";
    check_square(op, a);
    let TriangularOptions { upper, left, unitriangular } = options;
    if !left {
        let options = TriangularOptions { upper: !upper, left: true, unitriangular };
        check_matrices(op, b);
        return solve_triangular(&a.mt(), &b.mt(), options).mt();
    }
    check_rows(op, a, b);
    let (a, b) = common_batch(op, a, b);
    let (n, k) = (b.size(-2), b.size(-1));
    let x = match gpu::of(op, &[&a, &b]) {
        Some(gpu) => cuda::solve_triangular(gpu, &a, &b, options),
        None => each(&[&a, &b], &[&[n, k]], &|inputs, out| {
            out[0].copy_from_slice(inputs[1]);
            linalg::solve_triangular(inputs[0], n, upper, unitriangular, out[0], k);
            0
        }),
    };
    record("solve_triangular", &[&a, &b], x.single(), |saver| {
        let (a, x) = (saver.save(&a), saver.save_output(0));
        move |ctx| {
            let transposed = TriangularOptions { upper: !upper, ..options };
            let db = solve_triangular(&ctx.get(&a).mt(), &ctx.grad(0), transposed);
            let da = ctx.needs(0).then(|| {
                let whole = -db.matmul(&ctx.get(&x).mt());
                let above = i64::from(unitriangular);
                if upper { whole.triu(above) } else { whole.tril(-above) }
            });
            smallvec![da, Some(db)]
        }
    })
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::{heavy, sample};
    vec![
        sample("solve_triangular", &[&[3, 3], &[2, 3, 2]], |x| {
            solve_triangular(&heavy(&x[0]), &x[1], Default::default())
        }),
        sample("solve_triangular, upper, right, one", &[&[2, 3, 3], &[2, 3]], |x| {
            let options = TriangularOptions { upper: true, left: false, unitriangular: true };
            solve_triangular(&heavy(&x[0]), &x[1], options)
        }),
        sample("solve_triangular, empty", &[&[0, 0], &[0, 2]], |x| {
            solve_triangular(&x[0], &x[1], Default::default())
        }),
    ]
}
