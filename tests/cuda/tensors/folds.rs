//! Reductions.

use torchrs::{Device, Dtype, Tensor};

use super::near::{FLOATS, numbers, same, with_gradients};

const INTEGERS: [Dtype; 6] =
    [Dtype::I64, Dtype::I32, Dtype::I16, Dtype::I8, Dtype::U8, Dtype::Bool];

/// Shapes and dimensions whose folds take all paths: rows, packs, columns, both, splits, single elements,
/// nothing.
const CASES: [(&[usize], &[i64]); 20] = [
    (&[], &[]),
    (&[1], &[0]),
    (&[5, 3], &[1]),
    (&[5, 3], &[0]),
    (&[7, 64], &[-1]),
    (&[6, 2], &[1]),
    (&[6, 4], &[1]),
    (&[6, 8], &[1]),
    (&[3, 1000], &[1]),
    (&[2, 1001], &[1]),
    (&[1000, 3], &[0]),
    (&[300, 40], &[0]),
    (&[3, 4, 5, 6], &[0, 2]),
    (&[3, 4, 5, 8], &[1, 3]),
    (&[2, 3, 70], &[0, 2]),
    (&[20000], &[]),
    (&[20003], &[]),
    (&[4, 0], &[1]),
    (&[0, 4], &[1]),
    (&[2, 2, 2, 2, 2, 2], &[0, 2, 4]),
];

/// The input as it is, transposed, and every second element of its last dimension.
fn layouts(x: &Tensor) -> Vec<Tensor> {
    let mut all = vec![x.clone()];
    if x.dim() > 1 && x.numel() > 0 {
        let order: Vec<i64> = (0..x.dim() as i64).rev().collect();
        all.push(x.permute(&order).contiguous().permute(&order));
        all.push(Tensor::stack(&[x.clone(), x.clone()], -1).select(-1, 0));
        all.push(x.narrow(0, 0, 1).expand(x.shape()));
    }
    all
}

fn each(dtype: Dtype, tolerance: f64, f: impl Fn(&Tensor, &[i64]) -> Vec<Tensor>) {
    for (shape, dims) in CASES {
        for (k, x) in layouts(&numbers(shape, dtype)).iter().enumerate() {
            same(&format!("{dtype} {shape:?} {dims:?} layout {k}"), tolerance, |device| {
                f(&x.to_device(device), dims)
            });
        }
    }
}

simulated! {
    fn sums_and_means() {
        for (dtype, tolerance) in FLOATS {
            each(dtype, tolerance, |x, dims| vec![x.sum_dim(dims, false), x.mean_dim(dims, true)]);
        }
        for dtype in INTEGERS {
            each(dtype, 0.0, |x, dims| vec![x.sum_dim(dims, true)]);
        }
    }

    fn gradients_of_sums() {
        for (shape, dims) in CASES {
            same(&format!("{shape:?} {dims:?}"), 1e-12, |device| {
                let x = [numbers(shape, Dtype::F64).to_device(device)];
                let mut all = with_gradients(&x, |x| x[0].sum_dim(dims, false));
                all.extend(with_gradients(&x, |x| x[0].mean_dim(dims, true)));
                all
            });
        }
        // Broadcasting adds gradients up.
        same("broadcasting", 1e-12, |device| {
            let x = |shape: &[usize]| numbers(shape, Dtype::F64).to_device(device);
            let leaves = [x(&[3, 1, 5]), x(&[4, 1]), x(&[5]), x(&[])];
            with_gradients(&leaves, |x| &x[0] * &x[1] * &x[2] * &x[3])
        });
    }

    fn a_long_sum_is_exact_to_the_last_digits() {
        let x = Tensor::full([3, 400_000], 0.1, (Dtype::F32, Device::Cuda(0)));
        for sum in x.sum_dim(&[1], false).to_vec::<f64>() {
            assert!((sum / 400_000.0 - f64::from(0.1f32)).abs() < 5e-8, "{sum}");
        }
    }

    fn extremes() {
        for dtype in [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::I64, Dtype::U8, Dtype::I8] {
            let own = |x: &Tensor, dims: &[i64]| {
                if x.numel() == 0 {
                    return vec![];
                }
                let mut all = vec![x.amax(dims, false), x.amin(dims, true), x.argmax(), x.min()];
                if let [dim] = *dims {
                    all.extend(<[Tensor; 2]>::from(x.max_dim(dim, false)));
                    all.extend(<[Tensor; 2]>::from(x.min_dim(dim, true)));
                    all.push(x.argmin_dim(dim, false));
                }
                all
            };
            each(dtype, 0.0, own);
        }
    }

    fn nans_and_infinities_in_extremes() {
        let nan = f32::NAN;
        let x = Tensor::from([[1f32, nan, 3., nan], [f32::NEG_INFINITY; 4], [2., 2., f32::INFINITY, 2.]]);
        same("special", 0.0, |device| {
            let x = x.to_device(device);
            let (a, b) = x.max_dim(1, false);
            let (c, d) = x.min_dim(0, false);
            vec![a, b, c, d, x.amax(&[0], false), x.amin(&[1], false), x.logsumexp(&[1], false), x.argmax()]
        });
    }

    fn gradients_of_extremes() {
        let ties = Tensor::from([[1f64, 3., 3.], [2., 2., 2.]]);
        same("ties", 1e-12, |device| {
            let x = [ties.to_device(device)];
            let mut all = with_gradients(&x, |x| x[0].amax(&[1], false));
            all.extend(with_gradients(&x, |x| x[0].min()));
            all.extend(with_gradients(&x, |x| x[0].max_dim(1, false).0));
            all.extend(with_gradients(&x, |x| x[0].min_dim(0, true).0));
            all
        });
    }

    fn products() {
        for (dtype, tolerance) in FLOATS {
            // Around one, so that products stay in range.
            each(dtype, tolerance * 8.0, |x, dims| match dims {
                [dim] => vec![(x * 0.01 + 1.0).prod_dim(*dim, false)],
                _ => vec![],
            });
        }
        for dtype in [Dtype::I64, Dtype::U8, Dtype::Bool] {
            each(dtype, 0.0, |x, _| vec![x.prod()]);
        }
        same("gradient", 1e-11, |device| {
            with_gradients(&[(numbers(&[3, 7], Dtype::F64) + 2.5).to_device(device)], |x| x[0].prod_dim(1, false))
        });
    }

    fn variances_and_norms() {
        for (dtype, tolerance) in FLOATS {
            each(dtype, tolerance * 4.0, |x, dims| {
                vec![
                    x.var_dim(dims, 1, false),
                    x.std_dim(dims, 0, true),
                    x.norm_dim(2, dims, false),
                    x.norm_dim(1, dims, false),
                ]
            });
        }
        each(Dtype::F64, 1e-12, |x, dims| {
            [0.0, 3.0, f64::INFINITY, f64::NEG_INFINITY].map(|p| x.norm_dim(p, dims, false)).to_vec()
        });
        // A large mean does not spoil the variance.
        let x = Tensor::from((0..5000).map(|i| 1000.0 + (i % 2) as f32).collect::<Vec<_>>());
        assert!((x.cuda(0).var_dim(&[], 0, false).item() - 0.25).abs() < 1e-4);
        same("gradients", 1e-11, |device| {
            let x = [numbers(&[4, 30], Dtype::F64).to_device(device)];
            let mut all = with_gradients(&x, |x| x[0].var_dim(&[1], 1, false));
            all.extend(with_gradients(&x, |x| x[0].std_dim(&[0], 0, true)));
            all.extend(with_gradients(&x, |x| x[0].norm_dim(2, &[1], false)));
            all.extend(with_gradients(&x, |x| x[0].norm_dim(1, &[0], false)));
            all.extend(with_gradients(&x, |x| x[0].norm_dim(f64::INFINITY, &[0], false)));
            all
        });
    }

    fn truth() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::I64, Dtype::I32, Dtype::U8, Dtype::Bool] {
            for value in [0.0, 1.0, 2.0] {
                each(dtype, 0.0, |x, dims| {
                    let x = x.eq(value).to_dtype(x.dtype());
                    vec![x.any_dim(dims, false), x.all_dim(dims, true), x.ne(9.0).all()]
                });
            }
        }
        assert_eq!(Tensor::from([f32::NAN]).cuda(0).any().to_vec::<bool>(), [true]);
    }

    fn logarithms_of_sums_of_exponentials() {
        for (dtype, tolerance) in FLOATS {
            each(dtype, tolerance, |x, dims| vec![(x * 30.0).logsumexp(dims, false)]);
        }
        same("gradient", 1e-11, |device| {
            with_gradients(&[numbers(&[3, 50], Dtype::F64).to_device(device)], |x| x[0].logsumexp(&[1], true))
        });
    }

    fn nothing_waits_for_the_gpu() {
        let x = numbers(&[300, 40], Dtype::F32).cuda(0).requires_grad_(true);
        let waited = torchrs::cuda::synchronisations();
        let y = x.sum() + x.var_dim(&[0], 1, false).mean() + x.amax(&[1], false).sum() + x.norm();
        y.backward();
        assert_eq!(torchrs::cuda::synchronisations(), waited);
    }
}
