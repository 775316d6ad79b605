//! Linear algebra: as on the CPU where results are unique, else by what they multiply to.

use torchrs::linalg::{
    self, LstsqDriver, LstsqOptions, LuSolveOptions, QrMode, TriangularOptions, Uplo,
};
use torchrs::{Device, Dtype, Tensor, catch};

use super::near::{same, with_gradients};

/// A name, and a computation.
type Case<'a> = (&'a str, &'a dyn Fn(&[Tensor]) -> Tensor);

const DEVICE: Device = Device::Cuda(0);
/// Types, and how far results may be apart.
const TYPES: [(Dtype, f64); 2] = [(Dtype::F64, 1e-11), (Dtype::F32, 1e-3)];
/// Batches and sides of square matrices.
const SQUARES: [(&[usize], usize); 8] =
    [(&[], 1), (&[3], 2), (&[2, 2], 5), (&[2], 31), (&[], 33), (&[2], 130), (&[0], 3), (&[2], 0)];
/// Batches, rows and columns.
const SHAPES: [(&[usize], usize, usize); 9] = [
    (&[], 1, 1),
    (&[3], 2, 2),
    (&[2], 7, 3),
    (&[2], 3, 7),
    (&[], 33, 31),
    (&[2], 31, 70),
    (&[], 130, 40),
    (&[2], 0, 3),
    (&[], 3, 0),
];

/// Numbers between -2 and 2 of which no rows are alike: regular ones make singular matrices.
fn numbers(shape: &[usize], dtype: Dtype) -> Tensor {
    let value = |i: usize| ((i as f64 * 12.9898 + 1.0).sin() * 43758.5453).fract() * 2.0;
    let list: Vec<f64> = (0..shape.iter().product()).map(value).collect();
    Tensor::from_slice(&list, shape).to_dtype(dtype)
}

fn shape(batch: &[usize], m: usize, n: usize) -> Vec<usize> {
    [batch, &[m, n]].concat()
}

/// Rows with no pattern in common, far from singular.
fn heavy(batch: &[usize], n: usize, dtype: Dtype) -> Tensor {
    numbers(&shape(batch, n, n), dtype) + Tensor::eye(n, dtype) * (1.5 * (n as f64).sqrt() + 1.0)
}

fn positive(batch: &[usize], n: usize, dtype: Dtype) -> Tensor {
    let x = numbers(&shape(batch, n, n), dtype) / (n.max(1) as f64).sqrt();
    x.matmul(&x.mt()) + Tensor::eye(n, dtype)
}

#[track_caller]
fn close(what: &str, got: &Tensor, want: &Tensor, tolerance: f64) {
    assert_eq!((got.device(), got.shape()), (want.device(), want.shape()), "{what}");
    let far = (got - want)
        .abs()
        .to_vec::<f64>()
        .into_iter()
        .fold(0.0, |m: f64, d| if d <= m { m } else { d });
    assert!(far <= tolerance, "{what}: {far} apart");
}

/// Columns of length one at right angles.
#[track_caller]
fn orthonormal(what: &str, q: &Tensor, tolerance: f64) {
    let product = q.mt().matmul(q);
    let one = Tensor::eye(q.size(-1), (q.dtype(), q.device())).expand_as(&product);
    close(what, &product, &one, tolerance);
}

simulated! {
    fn cholesky_factors_and_solutions() {
        for (dtype, tolerance) in TYPES {
            for (batch, n) in SQUARES {
                let (a, b) = (positive(batch, n, dtype), numbers(&shape(batch, n, 3), dtype));
                same(&format!("{dtype} {batch:?} {n}"), tolerance, |device| {
                    let (a, b) = (a.to_device(device), b.to_device(device));
                    let l = linalg::cholesky(&a, false);
                    let (upper, info) = linalg::cholesky_ex(&a, true);
                    vec![b.cholesky_solve(&l, false), upper.cholesky_inverse(true), l, upper, info]
                });
            }
        }
    }

    fn triangular_solutions() {
        for (dtype, tolerance) in TYPES {
            for (batch, n) in SQUARES {
                // Halves of what is beside the diagonal: powers of those of random numbers grow.
                let a = heavy(batch, n, dtype) * 0.5 + Tensor::eye(n, dtype) * (n as f64);
                let (b, wide) = (numbers(&shape(batch, n, 5), dtype), numbers(&shape(&[], 70, n), dtype));
                same(&format!("{dtype} {batch:?} {n}"), tolerance, |device| {
                    let (a, b, wide) = (a.to_device(device), b.to_device(device), wide.to_device(device));
                    let options = |upper, left, unitriangular| TriangularOptions { upper, left, unitriangular };
                    vec![
                        linalg::solve_triangular(&a, &b, options(false, true, false)),
                        linalg::solve_triangular(&a, &b, options(true, true, false)),
                        linalg::solve_triangular(&a.mt(), &wide, options(true, false, false)),
                        linalg::solve_triangular(&(&a / (n as f64 * 8.0)), &wide, options(false, false, true)),
                    ]
                });
            }
        }
    }

    fn lu_factors_and_solutions() {
        for (dtype, tolerance) in TYPES {
            for (batch, n) in SQUARES {
                let (a, b) = (heavy(batch, n, dtype), numbers(&shape(batch, n, 3), dtype));
                same(&format!("{dtype} {batch:?} {n}"), tolerance, |device| {
                    let (a, b) = (a.to_device(device), b.to_device(device));
                    let (lu, pivots, info) = linalg::lu_factor_ex(&a);
                    let adjoint = LuSolveOptions { adjoint: true, ..Default::default() };
                    vec![
                        linalg::lu_solve(&lu, &pivots, &b, Default::default()),
                        linalg::lu_solve(&lu, &pivots, &b, adjoint),
                        linalg::solve(&a, &b),
                        linalg::solve_right(&a, &b.mt()),
                        linalg::inv(&a),
                        linalg::slogdet(&a).0,
                        linalg::slogdet(&a).1,
                        lu,
                        pivots,
                        info,
                    ]
                });
            }
        }
    }

    fn lu_of_any_shape() {
        for (dtype, tolerance) in TYPES {
            for (batch, m, n) in SHAPES {
                let a = numbers(&shape(batch, m, n), dtype).to_device(DEVICE);
                let (p, l, u) = linalg::lu(&a);
                close(&format!("{dtype} {m} {n}"), &p.matmul(&l).matmul(&u), &a, tolerance);
                assert!(l.abs().le(1.0).all().item() == 1.0);
            }
        }
        // Panels that do not fit into shared memory, and wide ones.
        for (m, n) in [(2100, 20), (300, 300), (40_000, 9)] {
            let a = numbers(&[m, n], Dtype::F64).to_device(DEVICE);
            let (lu, pivots) = linalg::lu_factor(&a);
            let (expected, order) = linalg::lu_factor(&a.cpu());
            close(&format!("{m} {n}"), &lu.cpu(), &expected, 1e-8);
            assert!(pivots.cpu().equal(&order));
        }
    }

    fn determinants() {
        for (dtype, tolerance) in TYPES {
            let small = heavy(&[3], 4, dtype);
            let negative = Tensor::from([[0f64, 2.], [3., 0.]]).to_dtype(dtype);
            let singular = Tensor::from([[1f64, 2.], [2., 4.]]).to_dtype(dtype);
            for a in [small, negative, singular, Tensor::zeros([2, 0, 0], dtype)] {
                same(&format!("{dtype} {:?}", a.shape()), tolerance, |device| {
                    let a = a.to_device(device);
                    let (sign, logarithm) = linalg::slogdet(&a);
                    let mut all = with_gradients(&[a], |x| linalg::det(&x[0]));
                    all.extend([sign, logarithm]);
                    all
                });
            }
        }
    }

    fn what_has_no_factors_is_named() {
        let a = Tensor::stack(&[Tensor::eye(2, Dtype::F64), Tensor::zeros([2, 2], Dtype::F64)], 0).to_device(DEVICE);
        let message = |f: &dyn Fn() -> Tensor| catch(f).expect_err("must fail").to_string();
        assert!(message(&|| linalg::inv(&a)).contains("matrix 1 of the batch"));
        assert!(message(&|| linalg::solve(&a, &a)).contains("pivot 1"));
        assert!(message(&|| linalg::lu_factor(&a).0).contains("matrix 1"));
        assert!(message(&|| linalg::cholesky(&a, false)).contains("order 1"));
        assert!(message(&|| linalg::svdvals(&(&a / 0.0))).contains("matrix 0 of the batch holds NaN"));
        // Late minors and pivots, of blocks and of what is put together from them.
        for n in [5, 130] {
            let a = positive(&[2], n, Dtype::F64).to_device(DEVICE);
            a.i((1, n as i64 - 2, n as i64 - 2)).fill_(-1.0);
            assert_eq!(linalg::cholesky_ex(&a, false).1.to_vec::<i64>(), [0, n as i64 - 1]);
            let b = Tensor::eye(n, (Dtype::F64, DEVICE));
            b.i((n as i64 - 2, n as i64 - 2)).fill_(0.0);
            assert_eq!(linalg::inv_ex(&b).1.item(), n as f64 - 1.0);
        }
        let (l, info) = linalg::cholesky_ex(&a, false);
        assert_eq!((l.device(), info.to_vec::<i64>()), (DEVICE, vec![0, 1]));
        let nan = Tensor::full([3, 3], f64::NAN, (Dtype::F64, DEVICE));
        assert_eq!(linalg::cholesky_ex(&nan, false).1.item(), 1.0);
        assert!(linalg::inv_ex(&nan).0.isnan().all().item() == 1.0);
        assert!(linalg::eigvalsh(&nan, Uplo::L).isnan().all().item() == 1.0);
    }

    fn qr_factors() {
        for (dtype, tolerance) in TYPES {
            for (batch, m, n) in SHAPES {
                let a = numbers(&shape(batch, m, n), dtype);
                let what = format!("{dtype} {batch:?} {m} {n}");
                for mode in [QrMode::Reduced, QrMode::Complete] {
                    let (q, r) = linalg::qr(&a.to_device(DEVICE), mode);
                    orthonormal(&what, &q, tolerance);
                    close(&what, &q.matmul(&r), &a.to_device(DEVICE), tolerance);
                    assert!(r.equal(&r.triu(0)), "{what}");
                    // Signs are LAPACK's on both; what is beyond full rank is rounding.
                    let (_, expected) = linalg::qr(&a, mode);
                    if m >= n && m < 100 {
                        close(&what, &r.cpu(), &expected, tolerance * 10.0);
                    }
                }
            }
            let a = numbers(&[8000, 3], dtype).to_device(DEVICE);
            let (q, r) = linalg::qr(&a, QrMode::Reduced);
            close("tall", &q.matmul(&r), &a, tolerance);
            let zero = Tensor::from([[0f64, 1.], [0., 2.]]).to_dtype(dtype);
            same("zeros", tolerance, |device| {
                let (q, r) = linalg::qr(&zero.to_device(device), QrMode::Reduced);
                vec![q, r]
            });
        }
    }

    /// Sizes at which a panel and what the kernel declares pass 48 KiB only together.
    fn qr_at_the_limit_of_shared_memory() {
        for (m, n, dtype, tolerance) in [(180, 64, Dtype::F64, 1e-10), (372, 32, Dtype::F32, 1e-4)] {
            let a = numbers(&[m, n], dtype).to_device(DEVICE);
            let (q, r) = linalg::qr(&a, QrMode::Reduced);
            close("panel", &q.matmul(&r), &a, tolerance);
        }
    }

    fn eigenvalues() {
        for (dtype, tolerance) in TYPES {
            for (batch, n) in SQUARES {
                // The simulated GPU takes seconds for a large one.
                let batch = match (n, dtype) {
                    (130, Dtype::F64) => continue,
                    (130, _) => &[],
                    _ => batch,
                };
                let a = numbers(&shape(batch, n, n), dtype);
                let what = format!("{dtype} {batch:?} {n}");
                let (expected, _) = linalg::eigh(&a, Uplo::L);
                let on = a.to_device(DEVICE);
                let (w, v) = linalg::eigh(&on, Uplo::L);
                let whole = on.tril(0) + on.tril(-1).mt();
                close(&what, &w.cpu(), &expected, tolerance * 3.0);
                orthonormal(&what, &v, tolerance);
                close(&what, &(&v * w.unsqueeze(-2)).matmul(&v.mt()), &whole, tolerance * 3.0);
                if n < 100 {
                    let upper = linalg::eigvalsh(&on.mt(), Uplo::U);
                    close(&what, &upper, &w, tolerance * 3.0);
                }
            }
            let equal = Tensor::from([[2f64, 0., 0.], [0., -2., 0.], [0., 0., 2.]]).to_dtype(dtype);
            same("equal values", tolerance, |device| vec![linalg::eigvalsh(&equal.to_device(device), Uplo::L)]);
        }
    }

    fn singular_values() {
        for (dtype, tolerance) in TYPES {
            for (batch, m, n) in SHAPES {
                let a = numbers(&shape(batch, m, n), dtype);
                check_svd(&format!("{dtype} {batch:?} {m} {n}"), &a, tolerance);
            }
            // Of parts that are factored at the same time, with a rest and without.
            for shape in [&[2usize, 4200, 3][..], &[4096, 5]] {
                let a = numbers(shape, dtype).to_device(DEVICE);
                let (u, s, vt) = linalg::svd(&a, false);
                orthonormal("tall", &u, tolerance);
                close("tall", &(u * s.unsqueeze(-2)).matmul(&vt), &a, tolerance);
            }
            let ones = Tensor::ones([2, 5, 3], dtype);
            check_svd("of rank one", &ones, tolerance);
            check_svd("zeros", &(&ones * 0.0), tolerance);
            check_svd("huge", &(numbers(&[4, 4], dtype) * 1e-25), tolerance);
        }
    }

    /// More than fits into shared memory: a launch for each round.
    fn singular_values_of_large_matrices() {
        let a = numbers(&[125, 125], Dtype::F64);
        check_svd("large", &a, 1e-10);
    }

    fn ranks_and_pseudoinverses() {
        for (dtype, tolerance) in TYPES {
            let a = numbers(&[2, 6, 3], dtype);
            let low = a.narrow(1, 0, 4).matmul(&numbers(&[3, 5], dtype));
            let (b, square) = (numbers(&[2, 6, 2], dtype), heavy(&[2], 4, dtype));
            same(&dtype.to_string(), tolerance * 10.0, |device| {
                let [a, low, b, square] = [&a, &low, &b, &square].map(|x| x.to_device(device));
                let options = LstsqOptions { driver: LstsqDriver::Gelsd, ..Default::default() };
                let fit = linalg::lstsq(&a, &b, options);
                let symmetric = &square + square.mt();
                let hermitian = linalg::RankOptions { hermitian: true, ..Default::default() };
                let mut all = vec![
                    linalg::pinv(&a, Default::default()),
                    linalg::pinv(&symmetric, hermitian),
                    linalg::matrix_rank(&a, Default::default()),
                    linalg::matrix_rank(&low, linalg::RankOptions { rtol: Some(1e-4.into()), ..Default::default() }),
                    fit.solution,
                    fit.residuals,
                    fit.rank,
                    fit.singular_values,
                    linalg::matrix_power(&square, -2),
                    linalg::matrix_exp(&(&square * 0.3)),
                    linalg::tensorinv(&square.select(0, 0).reshape([2, 2, 4]), 2),
                    linalg::tensorsolve(&square.select(0, 0).reshape([2, 2, 4]), &b.select(0, 0).narrow(0, 0, 2), &[]),
                ];
                let (inf, nuclear) = (f64::INFINITY, linalg::NormOrder::Nuc);
                for ord in [linalg::NormOrder::Fro, nuclear, 1.into(), (-1).into(), 2.into(), (-2).into(), inf.into()] {
                    all.push(linalg::matrix_norm(&square, ord, [-2, -1], false));
                    all.push(linalg::cond(&square, ord));
                }
                all
            });
        }
    }

    fn gradients_of_solutions() {
        let (a, b) = (heavy(&[2], 4, Dtype::F64), numbers(&[4, 3], Dtype::F64));
        let spd = |x: &Tensor| x.matmul(&x.mt()) + Tensor::eye(4, (x.dtype(), x.device()));
        let tests: [Case; 14] = [
            ("cholesky", &|x| linalg::cholesky(&spd(&x[0]), false).matmul(&x[1])),
            ("cholesky_solve", &|x| x[1].cholesky_solve(&linalg::cholesky(&spd(&x[0]), true), true)),
            ("triangular", &|x| linalg::solve_triangular(&x[0], &x[1], Default::default())),
            ("lu_factor", &|x| linalg::lu_factor(&x[0]).0.matmul(&x[1])),
            ("lu_factor, tall", &|x| linalg::lu_factor(&x[0].narrow(-1, 0, 3)).0.matmul(&x[1].narrow(0, 0, 3))),
            ("lu_factor, wide", &|x| linalg::lu_factor(&x[0].narrow(-2, 0, 3)).0.matmul(&x[1])),
            ("lu", &|x| {
                let (p, l, u) = linalg::lu(&x[0]);
                (p.matmul(&l).sin() + u.cos()).matmul(&x[1])
            }),
            ("lu_solve", &|x| {
                let (lu, pivots) = linalg::lu_factor(&x[0]);
                linalg::lu_solve(&lu, &pivots, &x[1], Default::default())
            }),
            ("solve", &|x| linalg::solve(&x[0], &x[1])),
            ("inv", &|x| linalg::inv(&x[0]).matmul(&x[1])),
            ("slogdet", &|x| linalg::slogdet(&x[0]).1.unsqueeze(-1) * x[1].sum()),
            ("lstsq", &|x| linalg::lstsq(&x[0].narrow(-1, 0, 2), &x[1], Default::default()).solution),
            ("pinv", &|x| linalg::pinv(&x[0].narrow(-1, 0, 2), Default::default()).matmul(&x[1])),
            ("matrix_exp", &|x| linalg::matrix_exp(&(&x[0] * 0.2)).matmul(&x[1])),
        ];
        for (what, f) in tests {
            same(what, 1e-9, |device| with_gradients(&[a.to_device(device), b.to_device(device)], f));
        }
    }

    fn gradients_of_decompositions() {
        let (a, tall) = (heavy(&[2], 4, Dtype::F64), numbers(&[5, 3], Dtype::F64));
        let tests: [Case; 7] = [
            ("qr", &|x| {
                let (q, r) = linalg::qr(&x[0], QrMode::Reduced);
                q.sin() + r.cos()
            }),
            ("qr, tall", &|x| {
                let (q, r) = linalg::qr(&x[1], QrMode::Reduced);
                q.sin().sum() + r.cos()
            }),
            ("qr, wide", &|x| {
                let (q, r) = linalg::qr(&x[0].narrow(-2, 0, 2), QrMode::Complete);
                q.sin().sum() + r.cos()
            }),
            ("eigh", &|x| {
                let (w, v) = linalg::eigh(&(&x[0] + x[0].mt()), Uplo::L);
                v.square() * w.unsqueeze(-2)
            }),
            ("eigvalsh", &|x| linalg::eigvalsh(&(&x[0] + x[0].mt()), Uplo::U)),
            ("svd", &|x| {
                let (u, s, vt) = linalg::svd(&x[1], false);
                u.square().matmul(&(vt.square() * s.unsqueeze(-1)))
            }),
            ("svdvals", &|x| linalg::svdvals(&x[1])),
        ];
        for (what, f) in tests {
            same(what, 1e-8, |device| {
                let leaves = [a.to_device(device), tall.to_device(device)];
                // Both take part.
                with_gradients(&leaves, |x| f(x) + (x[0].sum() + x[1].sum()) * 0.5)
            });
        }
    }

    /// A call that does not say whether it went well does not wait.
    fn factors_by_themselves_do_not_wait() {
        let a = heavy(&[3], 70, Dtype::F32).to_device(DEVICE);
        let factor = || {
            let _ = linalg::cholesky_ex(&a, false);
            let _ = linalg::inv_ex(&a);
            let _ = linalg::lu_factor_ex(&a);
            let _ = linalg::det(&a);
            let _ = linalg::qr(&a, QrMode::Reduced);
        };
        factor();
        let before = torchrs::cuda::synchronisations();
        factor();
        assert_eq!(torchrs::cuda::synchronisations(), before);
    }
}

/// What the decomposition multiplies to, and its values beside the CPU's.
#[track_caller]
fn check_svd(what: &str, a: &Tensor, tolerance: f64) {
    let on = a.to_device(DEVICE);
    let expected = linalg::svdvals(a);
    let k = a.size(-1).min(a.size(-2));
    for full in [false, true] {
        let (u, s, vt) = linalg::svd(&on, full);
        close(what, &s.cpu(), &expected, tolerance);
        orthonormal(what, &u, tolerance);
        orthonormal(what, &vt.mt(), tolerance);
        let product = (u.narrow(-1, 0, k) * s.unsqueeze(-2)).matmul(&vt.narrow(-2, 0, k));
        close(what, &product, &on, tolerance);
        if a.numel() > 10_000 {
            return;
        }
    }
    close(what, &linalg::svdvals(&on).cpu(), &expected, tolerance);
}
