//! Running sums, products and extremes.

use torchrs::{Dtype, Tensor};

use super::near::{FLOATS, numbers, same, with_gradients};

/// Short and long lines, few and many, inside and outside.
const CASES: [(&[usize], i64); 12] = [
    (&[], 0),
    (&[1], 0),
    (&[9, 5], 1),
    (&[9, 5], 0),
    (&[2, 300], 1),
    (&[3, 2500], -1),
    (&[1, 40_000], 1),
    (&[700, 3], 0),
    (&[2, 50, 4], 1),
    (&[130, 70], 1),
    (&[0, 4], 1),
    (&[3, 0], 1),
];

fn each(dtype: Dtype, tolerance: f64, f: impl Fn(&Tensor, i64) -> Vec<Tensor>) {
    for (shape, dim) in CASES {
        let x = numbers(shape, dtype);
        same(&format!("{dtype} {shape:?} {dim}"), tolerance, |device| f(&x.to_device(device), dim));
    }
}

simulated! {
    fn sums_and_products() {
        for (dtype, tolerance) in FLOATS {
            each(dtype, tolerance, |x, dim| vec![x.cumsum(dim), (x * 0.01 + 1.0).cumprod(dim)]);
        }
        for dtype in [Dtype::I64, Dtype::I8, Dtype::U8, Dtype::Bool] {
            each(dtype, 0.0, |x, dim| vec![x.cumsum(dim), x.cumprod(dim)]);
        }
        each(Dtype::F32, 1e-5, |x, dim| vec![x.logcumsumexp(dim)]);
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        same("special", 1e-12, |device| {
            vec![Tensor::from([-inf, -inf, 1.0, 900.0, inf, 2.0, nan, 1.0]).to_device(device).logcumsumexp(0)]
        });
    }

    fn extremes() {
        for dtype in [Dtype::F64, Dtype::BF16, Dtype::I64, Dtype::U8] {
            each(dtype, 0.0, |x, dim| {
                let ((a, b), (c, d)) = (x.cummax(dim), x.cummin(dim));
                vec![a, b, c, d]
            });
        }
        let x = Tensor::from([2f32, 2., f32::NAN, 5., f32::NAN, 1.]);
        same("NaN", 0.0, |device| {
            let ((a, b), (c, d)) = (x.to_device(device).cummax(0), x.to_device(device).cummin(0));
            vec![a, b, c, d]
        });
    }

    fn gradients_of_sums() {
        for (shape, dim) in CASES {
            same(&format!("{shape:?} {dim}"), 1e-11, |device| {
                with_gradients(&[numbers(shape, Dtype::F64).to_device(device)], |x| x[0].cumsum(dim))
            });
        }
    }

    fn gradients_of_products() {
        for (shape, dim) in CASES {
            same(&format!("{shape:?} {dim}"), 1e-10, |device| {
                let x = numbers(shape, Dtype::F64) * 0.01 + 1.0;
                with_gradients(&[x.to_device(device)], |x| x[0].cumprod(dim))
            });
        }
        same("zeros", 1e-12, |device| {
            let x = Tensor::from([[1.5f64, 0., -2., 0.], [0.5, 3., 0., 1.]]).to_device(device);
            with_gradients(&[x], |x| x[0].cumprod(1))
        });
        // Beside a zero the other factors may overflow; the zero wins.
        for dtype in [Dtype::F64, Dtype::F32] {
            let large = if dtype == Dtype::F64 { 1e200 } else { 1e25 };
            same("a zero beside an overflow", 1e-5, |device| {
                let x = Tensor::from([[0.0, large, large, 2.0], [large, 0.0, large, 0.0]]);
                with_gradients(&[x.to_dtype(dtype).to_device(device)], |x| x[0].cumprod(1))
            });
        }
    }

    fn strided_input() {
        same("strided", 1e-12, |device| {
            let x = numbers(&[20, 30], Dtype::F64).to_device(device);
            vec![x.t().cumsum(1), x.t().cumsum(0)]
        });
    }
}
