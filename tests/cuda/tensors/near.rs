//! The same work on a GPU and on the CPU, compared.

use torchrs::{Device, Dtype, Tensor};

/// Element types of floating-point tests, and how far results may be apart.
pub const FLOATS: [(Dtype, f64); 4] =
    [(Dtype::F64, 1e-12), (Dtype::F32, 2e-5), (Dtype::F16, 2e-3), (Dtype::BF16, 1.6e-2)];

/// Numbers around zero, no two of which are alike nearby.
pub fn numbers(shape: &[usize], dtype: Dtype) -> Tensor {
    let count: usize = shape.iter().product();
    let value = |i: usize| ((i * 7919 + 13) % 1009) as f64 / 252.0 - 2.0;
    let list: Vec<f64> = (0..count).map(value).collect();
    Tensor::from_slice(&list, shape).to_dtype(dtype)
}

/// Asserts that `f` gives tensors of the same types and shapes, on the same devices, with nearly the same
/// elements; NaN equals NaN.
#[track_caller]
pub fn same(what: &str, tolerance: f64, f: impl Fn(Device) -> Vec<Tensor>) {
    let (got, expected) = (f(Device::Cuda(0)), f(Device::Cpu));
    assert_eq!(got.len(), expected.len(), "{what}");
    for (k, (got, expected)) in got.iter().zip(&expected).enumerate() {
        assert_eq!(got.device(), Device::Cuda(0), "{what}, {k}");
        assert_eq!((got.dtype(), got.shape()), (expected.dtype(), expected.shape()), "{what}, {k}");
        let (a, b) = (got.to_vec::<f64>(), expected.to_vec::<f64>());
        let near = |(a, b): (&f64, &f64)| {
            a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance * (1.0 + b.abs())
        };
        if let Some(i) = a.iter().zip(&b).position(|pair| !near(pair)) {
            panic!("{what}, result {k}, element {i}: {} on the GPU, {} on the CPU", a[i], b[i]);
        }
    }
}

/// A result and the gradients of the leaves, for a gradient of the result that differs from element to element.
pub fn with_gradients(leaves: &[Tensor], f: impl Fn(&[Tensor]) -> Tensor) -> Vec<Tensor> {
    let leaves: Vec<Tensor> = leaves.iter().map(|x| x.detach().requires_grad_(true)).collect();
    let y = f(&leaves);
    let g = numbers(y.shape(), y.dtype()).to_device(y.device());
    torchrs::autograd::backward(&[&y], &[Some(&g)], torchrs::autograd::GraphMode::Free);
    let mut all = vec![y.detach()];
    all.extend(leaves.iter().map(|x| x.grad().expect("a gradient of every leaf")));
    all
}
