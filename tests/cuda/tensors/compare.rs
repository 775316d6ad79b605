//! The same computation on a GPU and on the CPU, forward and backward.

use torchrs::{Device, Dtype, Tensor};

pub const FLOATS: [Dtype; 4] = [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16];
pub const INTEGERS: [Dtype; 5] = [Dtype::I64, Dtype::I32, Dtype::I16, Dtype::I8, Dtype::U8];
pub const ALL: [Dtype; 10] = [
    Dtype::F64,
    Dtype::F32,
    Dtype::F16,
    Dtype::BF16,
    Dtype::I64,
    Dtype::I32,
    Dtype::I16,
    Dtype::I8,
    Dtype::U8,
    Dtype::Bool,
];

/// Different numbers between -3 and 3, or small integers, or truth values.
pub fn numbers(shape: &[usize], seed: usize, dtype: Dtype) -> Tensor {
    let count = shape.iter().product::<usize>();
    let values = (0..count).map(|i| {
        let step = (i * 37 + seed * 101) % 97;
        match dtype {
            Dtype::Bool => step.is_multiple_of(3) as i64 as f64,
            Dtype::U8 => (step % 23) as f64,
            _ if dtype.is_floating_point() => step as f64 / 16.0 - 3.0,
            _ => (step % 23) as f64 - 11.0,
        }
    });
    Tensor::from_slice(&values.collect::<Vec<f64>>(), shape).to_dtype(dtype)
}

/// What `compute` gives, and the gradients of the floating-point inputs by results weighted unevenly.
pub fn results(
    inputs: &[Tensor],
    device: Device,
    compute: &dyn Fn(&[Tensor]) -> Vec<Tensor>,
) -> Vec<Tensor> {
    let leaves: Vec<Tensor> = inputs
        .iter()
        .map(|x| {
            let x = x.to_device(device).detach();
            if x.dtype().is_floating_point() { x.requires_grad_(true) } else { x }
        })
        .collect();
    let outputs = compute(&leaves);
    assert!(outputs.iter().all(|y| y.device() == device));
    let recorded: Vec<&Tensor> = outputs.iter().filter(|y| y.requires_grad()).collect();
    let weights: Vec<Tensor> = recorded
        .iter()
        .enumerate()
        .map(|(k, y)| numbers(y.shape(), k + 5, y.dtype()).to_device(device))
        .collect();
    if !recorded.is_empty() {
        let weights: Vec<Option<&Tensor>> = weights.iter().map(Some).collect();
        torchrs::autograd::backward(&recorded, &weights, torchrs::autograd::GraphMode::Free);
    }
    let grads = leaves.iter().filter_map(Tensor::grad);
    outputs.iter().map(Tensor::detach).chain(grads).map(|t| t.cpu()).collect()
}

/// Asserts that a GPU gives what the CPU gives, to a relative and absolute tolerance.
#[track_caller]
pub fn agree(inputs: &[Tensor], tolerance: f64, compute: impl Fn(&[Tensor]) -> Vec<Tensor>) {
    let expected = results(inputs, Device::Cpu, &compute);
    let got = results(inputs, Device::Cuda(0), &compute);
    assert_eq!(got.len(), expected.len());
    for (k, (got, expected)) in got.iter().zip(&expected).enumerate() {
        assert_eq!((got.shape(), got.dtype()), (expected.shape(), expected.dtype()), "result {k}");
        let (a, b) = (got.to_vec::<f64>(), expected.to_vec::<f64>());
        let near = |(a, b): (&f64, &f64)| {
            a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance * (1.0 + b.abs())
        };
        assert!(
            a.iter().zip(&b).all(near),
            "result {k} of {:?}:\n{got}\nexpected\n{expected}",
            inputs.iter().map(|x| (x.shape(), x.dtype())).collect::<Vec<_>>()
        );
    }
}
