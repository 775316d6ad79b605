//! Order along a dimension.

use torchrs::{Dtype, Tensor};

use super::near::{numbers, same, with_gradients};

simulated! {
    fn sort() {
        let cases: [(&[usize], i64); 12] = [
            (&[], 0), (&[1], 0), (&[5, 7], 1), (&[5, 7], 0), (&[300, 2], 1), (&[3, 2048], 1), (&[2, 2049], 1),
            (&[1, 9001], 1), (&[4097, 3], 0), (&[2, 100, 4], 1), (&[0, 3], 1), (&[3, 0], 1),
        ];
        for dtype in [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::I64, Dtype::I32, Dtype::I8, Dtype::U8, Dtype::Bool] {
            for (shape, dim) in cases {
                let x = numbers(shape, dtype);
                for descending in [false, true] {
                    same(&format!("{dtype} {shape:?} {dim} {descending}"), 0.0, |device| {
                        let x = x.to_device(device);
                        let (values, places) = x.sort(dim, descending);
                        vec![values, places, x.argsort(dim, descending)]
                    });
                }
            }
        }
    }

    fn nans_zeros_and_infinities() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let x = Tensor::from([0f32, -0.0, nan, inf, -inf, 1.0, nan, -0.0, 0.0, -1.0]);
        for dtype in [Dtype::F32, Dtype::F64, Dtype::BF16] {
            same("special", 0.0, |device| {
                let x = x.to_dtype(dtype).to_device(device);
                let ((a, b), (c, d)) = (x.sort(0, false), x.sort(0, true));
                vec![a, b, c, d]
            });
        }
    }

    fn the_first_ones() {
        for shape in [[3, 50], [2, 3000]] {
            same("topk", 1e-12, |device| {
                let x = numbers(&shape, Dtype::F64).to_device(device);
                let (values, places) = x.topk(5, 1, true);
                let (least, at) = x.topk(3, 1, false);
                vec![values, places, least, at, x.topk(2, 0, true).0]
            });
        }
    }

    fn the_first_ones_of_long_lines() {
        // Some alike, many alike, almost all alike; in each of two directions.
        let line = |n: usize, distinct: usize, dtype| {
            let values: Vec<f64> = (0..n).map(|i| ((i * 7919 + 13) % distinct) as f64 - distinct as f64 / 2.0).collect();
            Tensor::from_slice(&values, [n]).to_dtype(dtype)
        };
        for dtype in [Dtype::F32, Dtype::BF16, Dtype::F64, Dtype::I64, Dtype::U8] {
            for (n, distinct) in [(6001, 5003), (6001, 40), (5000, 1)] {
                let x = line(n, distinct, dtype);
                for k in [1, 100, 2048] {
                    same(&format!("{dtype} {n} {distinct} {k}"), 0.0, |device| {
                        let x = x.to_device(device);
                        let ((a, b), (c, d)) = (x.topk(k, 0, true), x.topk(k, 0, false));
                        vec![a, b, c, d]
                    });
                }
            }
        }
        let x = line(2 * 3 * 2500, 9001, Dtype::F32);
        x.narrow(0, 300, 7).fill_(f64::NAN);
        same("in the middle", 0.0, |device| {
            let x = x.to_device(device).reshape([2, 2500, 3]);
            let ((a, b), (c, d)) = (x.topk(9, 1, true), x.topk(9, 1, false));
            vec![a, b, c, d]
        });
        // In parts.
        let x = line(2 * 66_000, 40_009, Dtype::F32);
        same("parts", 0.0, |device| {
            let x = x.to_device(device).reshape([2, 66_000]);
            let ((a, b), (c, d)) = (x.topk(6, 1, true), x.topk(6, 1, false));
            vec![a, b, c, d]
        });
    }

    fn gradients() {
        same("gradients", 1e-12, |device| {
            let x = [numbers(&[4, 30], Dtype::F64).to_device(device)];
            let mut all = with_gradients(&x, |x| x[0].sort(1, true).0);
            all.extend(with_gradients(&x, |x| x[0].topk(7, 1, true).0));
            all.extend(with_gradients(&x, |x| x[0].sort(0, false).0));
            all
        });
    }
}
