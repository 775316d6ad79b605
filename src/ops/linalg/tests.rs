//! What the samples do not show: factors multiplied out, conventions, errors, numbers known from
//! elsewhere.

use super::checks::eye_like;
use super::samples::{heavy, positive};
use super::*;
use crate::autograd;
use crate::error::catch;
use crate::ops::checks::samples::values;
use crate::tensor::{Dtype, Tensor};

#[track_caller]
fn assert_close(got: &Tensor, want: &Tensor, tolerance: f64) {
    assert_eq!(got.shape(), want.shape());
    let distance = (got.to_dtype(Dtype::F64) - want.to_dtype(Dtype::F64)).abs();
    let most = distance.to_vec::<f64>().into_iter().fold(0.0, |m, d| if d <= m { m } else { d });
    assert!(most <= tolerance, "{got:?} and {want:?} differ by {most}");
}

#[track_caller]
fn message(f: impl FnOnce() -> Tensor) -> String {
    catch(f).expect_err("must fail").to_string()
}

/// Batches of matrices of many shapes, transposed in memory too.
fn matrices(m: usize, n: usize) -> [Tensor; 3] {
    let batch = values([2, 3, m, n], 5);
    [values([m, n], 3), batch, values([2, n, m], 8).transpose(-1, -2)]
}

#[test]
fn factors_multiply_to_the_matrix() {
    for (m, n) in [(3, 3), (5, 2), (2, 4), (0, 3), (3, 0), (0, 0), (1, 1)] {
        for a in matrices(m, n) {
            for full in [false, true] {
                let k = m.min(n);
                let (u, s, vt) = svd(&a, full);
                assert_eq!(u.size(-1), if full { m } else { k });
                assert_eq!(vt.size(-2), if full { n } else { k });
                assert_close(
                    &u.mt().matmul(&u),
                    &eye_like(&u).expand_as(&u.mt().matmul(&u)),
                    1e-13,
                );
                let (u, vt) = (u.narrow(-1, 0, k), vt.narrow(-2, 0, k));
                assert_close(&(u * s.unsqueeze(-2)).matmul(&vt), &a, 1e-13);
                assert_close(&svdvals(&a), &s, 1e-13);
            }
            for mode in [QrMode::Reduced, QrMode::Complete] {
                let (q, r) = qr(&a, mode);
                assert_close(&q.matmul(&r), &a, 1e-13);
                assert!(r.equal(&r.triu(0)));
            }
            let (p, l, u) = lu(&a);
            assert_close(&p.matmul(&l).matmul(&u), &a, 1e-13);
            let inverse = pinv(&a, RankOptions::default());
            assert_close(&a.matmul(&inverse).matmul(&a), &a, 1e-12);
            assert_close(&inverse.matmul(&a).matmul(&inverse), &inverse, 1e-12);
        }
    }
}

#[test]
fn one_triangle_is_read() {
    let a = positive(&values([4, 4], 2));
    let noise = values([4, 4], 3);
    let (lower, upper) = (a.tril(0) + noise.triu(1), a.triu(0) + noise.tril(-1));
    let (w, v) = eigh(&a, Uplo::L);
    assert_close(&(&v * w.unsqueeze(-2)).matmul(&v.mt()), &a, 1e-13);
    assert!(eigvalsh(&lower, Uplo::L).equal(&eigvalsh(&a, Uplo::L)));
    assert!(eigvalsh(&upper, Uplo::U).equal(&eigvalsh(&a, Uplo::L)));
    assert!(cholesky(&lower, false).equal(&cholesky(&a, false)));
    assert!(cholesky(&lower, true).equal(&cholesky(&a, false).mt()));
}

#[test]
fn a_solution_takes_vectors_as_pytorch_does() {
    let a = heavy(&values([4, 3, 3], 1));
    assert_eq!(solve(&a, &values([3], 2)).shape(), [4, 3]);
    assert_eq!(solve(&a, &values([4, 3], 2)).shape(), [4, 3]);
    assert_eq!(solve(&a, &values([3, 2], 2)).shape(), [4, 3, 2]);
    assert_eq!(solve(&a.select(0, 0), &values([5, 3, 1], 2)).shape(), [5, 3, 1]);
    let b = values([2, 3], 4);
    assert_close(&solve_right(&a, &b).matmul(&a), &b.expand(&[4, 2, 3]), 1e-13);
    let message = message(|| solve(&a, &values([2, 2], 1)));
    assert!(message.contains("[4, 3, 3]") && message.contains("[2, 2]"), "{message}");
}

#[test]
fn errors_name_the_matrix() {
    let a = Tensor::stack(&[Tensor::eye(2, Dtype::F64), Tensor::zeros([2, 2], Dtype::F64)], 0);
    let inverse = message(|| inv(&a));
    assert!(inverse.starts_with("linalg.inv") && inverse.contains("matrix 1 of the batch"));
    assert!(message(|| solve(&a, &values([2], 1))).contains("pivot 1"));
    let root = message(|| cholesky(&-&a.select(0, 0), false));
    assert!(root.contains("the matrix is not positive definite"), "{root}");
    assert!(message(|| lu_factor(&a).0).contains("matrix 1"));
    assert!(message(|| svdvals(&(&a / 0.0))).contains("matrix 0 of the batch holds NaN"));
    assert!(message(|| inv(&values([2, 3], 1))).contains("square"));
    assert!(message(|| det(&values([2], 1))).contains("[2]"));
    assert!(message(|| inv(&Tensor::eye(2, Dtype::I64))).contains("i64"));
    let narrow = LstsqOptions { driver: LstsqDriver::Gels, ..Default::default() };
    let ones = Tensor::ones([3, 2], Dtype::F64);
    assert!(message(|| lstsq(&ones, &ones, narrow).solution).contains("full rank"));
    let complete = qr(&values([3, 2], 1).requires_grad_(true), QrMode::Complete).0;
    assert!(
        message(|| {
            complete.sum().backward();
            complete
        })
        .contains("more rows (3)")
    );
    assert!(message(|| matrix_norm(&ones, 3, [0, 1], false)).contains("ord"));
    assert!(message(|| matrix_norm(&ones, 2, [0, -2], false)).contains("one dimension"));
    assert!(message(|| norm(&values([2, 2, 2], 1), Some(2.into()), None, false)).contains("dim"));
    assert!(message(|| tensorinv(&ones, 0)).contains("ind"));
}

#[test]
fn forms_that_never_fail_tell_by_info() {
    let a = Tensor::from([[[1f64, 2.], [2., 4.]], [[2., 0.], [0., 4.]]]);
    let (inverse, info) = inv_ex(&a);
    assert_eq!(info.to_vec::<i32>(), [2, 0]);
    assert_eq!((info.dtype(), info.shape()), (Dtype::I32, &[2][..]));
    assert_eq!(inverse.select(0, 1).to_vec::<f64>(), [0.5, 0., 0., 0.25]);
    assert!(!inverse.select(0, 0).isfinite().any().item().eq(&1.0));
    assert_eq!(solve_ex(&a, &Tensor::from([1f64, 1.])).1.to_vec::<i32>(), [2, 0]);
    assert_eq!(cholesky_ex(&a, false).1.to_vec::<i32>(), [2, 0]);
    let (lu, pivots, info) = lu_factor_ex(&a);
    assert_eq!(info.to_vec::<i32>(), [2, 0]);
    assert_eq!(lu.select(0, 0).to_vec::<f64>(), [2., 4., 0.5, 0.]);
    assert_eq!(pivots.to_vec::<i32>(), [2, 2, 1, 2]);
}

#[test]
fn determinants_of_singular_and_negative_matrices() {
    let a = Tensor::from([[1f64, 2.], [2., 4.]]).requires_grad_(true);
    det(&a).backward();
    assert_close(&a.grad().unwrap(), &Tensor::from([[4f64, -2.], [-2., 1.]]), 1e-13);
    // Of rank 2; the determinant comes out as exactly 0.
    let rank_2 = Tensor::from([[1f64, 2., 3.], [2., 5., 1.], [2., 4., 6.]]).requires_grad_(true);
    assert_eq!(det(&rank_2).item(), 0.0);
    autograd::gradcheck(|x| det(&x[0]), &[&rank_2], Default::default()).unwrap();
    autograd::gradgradcheck(|x| det(&x[0]), &[&rank_2], Default::default()).unwrap();
    let (sign, logarithm) = slogdet(&a);
    assert_eq!((sign.item(), logarithm.item()), (0.0, f64::NEG_INFINITY));
    let negative = Tensor::from([[0f64, 2.], [3., 0.]]);
    let (sign, logarithm) = slogdet(&negative);
    assert_eq!((det(&negative).item(), sign.item()), (-6.0, -1.0));
    assert_close(&logarithm, &Tensor::scalar(6.0).to_dtype(Dtype::F64).log(), 1e-15);
    assert!(negative.logdet().item().is_nan());
    // In a range where the determinant itself overflows.
    let (_, logarithm) = slogdet(&(Tensor::eye(400, Dtype::F64) * 10.0));
    assert_close(&logarithm, &Tensor::full([], 400.0 * 10f64.ln(), Dtype::F64), 1e-10);
}

#[test]
fn cutoffs_of_ranks() {
    let a = Tensor::from([1f64, 1e-3, 0.]).diag(0);
    let atol = Tensor::from([1e-2f64, 1e-4]);
    let rank = |atol, rtol| {
        matrix_rank(&a, RankOptions { atol, rtol, ..Default::default() }).to_vec::<i64>()
    };
    assert_eq!(rank(Some((&atol).into()), None), [1, 2]);
    assert_eq!(rank(None, Some(1e-2.into())), [1]);
    assert_eq!(rank(None, None), [2]);
    assert_eq!(matrix_rank(&Tensor::zeros([2, 0, 3], Dtype::F64), Default::default()).shape(), [2]);
    let negative = Tensor::from([1f64, 1e-3, -2.]).diag(0);
    let options = RankOptions { rtol: Some(1e-2.into()), hermitian: true, ..Default::default() };
    let want = Tensor::from([1f64, 0., -0.5]).diag(0);
    assert_close(&pinv(&negative, options), &want, 1e-15);
    assert_close(&negative.pinverse(1e-2), &want, 1e-15);
}

#[test]
fn drivers_of_least_squares() {
    let (a, b) = (values([2, 5, 3], 1), values([2, 5, 2], 2));
    let shapes = |driver| {
        let found = lstsq(&a, &b, LstsqOptions { driver, ..Default::default() });
        // The residual is orthogonal to the columns.
        let residual = a.matmul(&found.solution) - &b;
        assert_close(&a.mt().matmul(&residual), &Tensor::zeros([2, 3, 2], Dtype::F64), 1e-12);
        [found.residuals, found.rank, found.singular_values].map(|t| t.shape().to_vec())
    };
    assert_eq!(shapes(LstsqDriver::Gels), [vec![2, 2], vec![0], vec![0]]);
    assert_eq!(shapes(LstsqDriver::Gelsy), [vec![0], vec![2], vec![0]]);
    assert_eq!(shapes(LstsqDriver::Gelsd), [vec![2, 2], vec![2], vec![2, 3]]);
    // Of all solutions the shortest.
    let ones = Tensor::ones([1, 4], Dtype::F64);
    let shortest = lstsq(&ones, &Tensor::from([2f64]), Default::default()).solution;
    assert_close(&shortest, &Tensor::full([4], 0.5, Dtype::F64), 1e-14);
}

#[test]
fn norms_and_condition_numbers() {
    let a = Tensor::from([[1f64, 2.], [3., 4.]]);
    let of = |ord: NormOrder| matrix_norm(&a, ord, [0, 1], false).item();
    let s = svdvals(&a).to_vec::<f64>();
    assert!((of(NormOrder::Nuc) - (s[0] + s[1])).abs() < 1e-14);
    assert!((of(NormOrder::P(2.0)) - 5.464985704219043).abs() < 1e-14);
    assert!((of(NormOrder::P(-2.0)) - 0.3659661906262578).abs() < 1e-14);
    assert_eq!((of(1.into()), of((-1).into())), (6.0, 4.0));
    assert_eq!((of(f64::INFINITY.into()), of(f64::NEG_INFINITY.into())), (7.0, 3.0));
    // PyTorch's numbers.
    for (ord, want) in
        [(NormOrder::Fro, 15.0), (1.into(), 21.0), ((-1).into(), 6.0), (2.into(), 14.93303437)]
    {
        assert!((cond(&a, ord).item() - want).abs() < 1e-6, "{ord:?}");
    }
    assert_eq!(cond(&Tensor::ones([2, 2], Dtype::F64), 1).item(), f64::INFINITY);
    assert_eq!(cond(&Tensor::zeros([3, 0, 0], Dtype::F64), 2).to_vec::<f64>(), [0.0; 3]);
    let empty = Tensor::zeros([3, 0], Dtype::F64);
    for ord in [NormOrder::Fro, NormOrder::Nuc, 1.into(), 2.into(), f64::INFINITY.into()] {
        assert_eq!(matrix_norm(&empty, ord, [0, 1], false).item(), 0.0, "{ord:?}");
    }
    let stack = values([2, 3, 4], 1);
    assert_eq!(matrix_norm(&stack, 2, [-1, 0], true).shape(), [1, 3, 1]);
    assert_close(
        &matrix_norm(&stack, 2, [2, 0], false),
        &matrix_norm(&stack.transpose(0, 1), 2, [1, 2], false),
        1e-14,
    );
}

#[test]
fn exponentials_of_rotations_and_of_very_different_sizes() {
    let turn = |angle: f64| Tensor::from([[0f64, angle], [-angle, 0.]]);
    let angles = [1e-9, 0.5, 30.0];
    let all = matrix_exp(&Tensor::stack(&angles.map(turn), 0));
    for (i, angle) in angles.into_iter().enumerate() {
        let (s, c) = angle.sin_cos();
        assert_close(&all.select(0, i as i64), &Tensor::from([[c, s], [-s, c]]), 1e-13);
    }
    assert!(matrix_exp(&Tensor::full([2, 2], f64::NAN, Dtype::F64)).isnan().all().item() == 1.0);
    assert_eq!(
        matrix_exp(&Tensor::full([2, 2], 1e30, Dtype::F32)).to_vec::<f32>(),
        [f32::INFINITY; 4]
    );
}

#[test]
fn values_that_are_equal_have_finite_gradients_themselves() {
    let a = Tensor::eye(3, Dtype::F64).requires_grad_(true);
    let grads = |y: Tensor| {
        autograd::grad(&[&y.sum()], &[&a], &[None], autograd::GraphMode::Free)[0].clone().unwrap()
    };
    assert_close(&grads(svdvals(&a)), &Tensor::eye(3, Dtype::F64), 1e-15);
    assert_close(&grads(eigvalsh(&a, Uplo::L)), &Tensor::eye(3, Dtype::F64), 1e-15);
}

/// Batches are computed on several threads: as each alone.
#[test]
fn large_batches_are_as_their_matrices() {
    let a = values([500, 8, 8], 1);
    let whole = inv(&heavy(&a));
    for i in [0, 250, 499] {
        assert!(whole.select(0, i).equal(&inv(&heavy(&a.select(0, i)))));
    }
}

#[test]
fn autocast_computes_in_f32() {
    let a = heavy(&values([3, 3], 1)).to_dtype(Dtype::F32);
    let inside = |f: fn(&Tensor) -> Tensor, x: &Tensor| {
        crate::amp::autocast(crate::storage::Device::Cpu, Dtype::BF16, || f(x))
    };
    // Products inside of an op stay in f32 too.
    for f in [inv, matrix_exp, |x| pinv(x, Default::default())] as [fn(&Tensor) -> Tensor; 3] {
        assert!(inside(f, &a).equal(&f(&a)));
    }
    let half = a.to_dtype(Dtype::BF16);
    assert!(inside(inv, &half).equal(&inv(&half.to_dtype(Dtype::F32))));
}
