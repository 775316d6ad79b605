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
