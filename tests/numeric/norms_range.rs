//! Second derivatives of the norms of rows whose squares leave f32's range, against f64's.

use torchrs::nn::functional as F;
use torchrs::{Dtype, Tensor, autograd};

type Norm = fn(&Tensor, f64) -> Tensor;

const NORMS: [(&str, Norm); 5] = [
    ("layer_norm", |x, eps| x.layer_norm(&[8], None, None, eps)),
    ("rms_norm", |x, eps| x.rms_norm(&[8], None, Some(eps))),
    ("group_norm", |x, eps| x.group_norm(2, None, None, eps)),
    ("batch_norm", by_batch),
    ("instance_norm", |x, eps| {
        let rows = x.reshape([1, 12, 8]);
        by_batch(&rows, eps).reshape_as(x)
    }),
];

/// Normalised by the statistics of each channel, to which it wants something to be added.
fn by_batch(x: &Tensor, eps: f64) -> Tensor {
    let eps = eps.max(1e-300);
    F::batch_norm(x, F::BatchNormOptions { training: true, eps, ..Default::default() })
}

/// Numbers of both signs, not in a row.
fn numbers(seed: f64) -> Tensor {
    let at = Tensor::arange(0, 96, 1, Dtype::F64).reshape([3, 4, 8]);
    ((&at * 1.7 + seed).sin() * 2.0 + (&at * 0.31).cos()).to_dtype(Dtype::F64)
}

/// The gradient of the input, and that of it in a direction as long as the input.
fn derivatives(norm: Norm, x: &Tensor, scale: f64, eps: f64) -> [Tensor; 2] {
    let dtype = x.dtype();
    let x = x.detach().requires_grad_(true);
    let y = norm(&x, eps);
    let dy = numbers(2.0).to_dtype(dtype);
    let first =
        autograd::grad(&[&y], &[&x], &[Some(&dy)], autograd::GraphMode::Create)[0].clone().unwrap();
    let direction = (numbers(5.0) * scale).to_dtype(dtype);
    let second = autograd::grad(&[&first], &[&x], &[Some(&direction)], autograd::GraphMode::Free);
    [first.detach(), second[0].clone().unwrap()]
}

#[test]
fn second_derivatives_are_right_where_squares_overflow_or_vanish() {
    let mut wrong = Vec::new();
    for (name, norm) in NORMS {
        for (scale, eps) in [(1.0, 1e-5), (1e19, 1e-5), (3e30, 1e-5), (1e-25, 0.0), (1e-25, 1e-60)]
        {
            let x = (numbers(0.5) * scale).to_dtype(Dtype::F32);
            let found = derivatives(norm, &x, scale, eps);
            let right = derivatives(norm, &x.to_dtype(Dtype::F64), scale, eps);
            for (order, (found, right)) in found.iter().zip(&right).enumerate() {
                let error = (found.to_dtype(Dtype::F64) - right).abs().max() / right.abs().max();
                // NaN is wrong, too.
                if error.item().is_nan() || error.item() >= 2e-5 {
                    let order = order + 1;
                    wrong.push(format!("{name} of {scale:e}, {order}: off by {:e}", error.item()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One row is out of range and its neighbours are not.
#[test]
fn a_row_out_of_range_is_right_beside_ordinary_ones() {
    for (name, norm) in &NORMS[..2] {
        let scales = Tensor::from([[[1f64]], [[1e19]], [[1.0]]]);
        let x = (numbers(0.5) * &scales).to_dtype(Dtype::F32);
        let found = derivatives(*norm, &x, 1.0, 1e-5);
        let right = derivatives(*norm, &x.to_dtype(Dtype::F64), 1.0, 1e-5);
        for row in [0, 2] {
            let [found, right] = [&found[1], &right[1]].map(|t| t.select(0, row));
            let error = (found.to_dtype(Dtype::F64) - &right).abs().max() / right.abs().max();
            assert!(error.item() < 2e-5, "{name}, {row}: off by {error:?}");
        }
        let row = found[0].select(0, 1).to_dtype(Dtype::F64);
        let right = right[0].select(0, 1);
        let error = (row - &right).abs().max() / right.abs().max();
        assert!(error.item() < 2e-5, "{name}: off by {error:?}");
    }
}
