//! Matrix products on a GPU against the CPU: shapes, strides, batches, dtypes, gradients.

use torchrs::{Device, Dtype, Tensor};

const GPU: Device = Device::Cuda(0);

/// Numbers of which products and their sums are exact in every dtype, so that no order of sums matters.
pub fn whole(shape: &[usize], seed: usize, dtype: Dtype) -> Tensor {
    let n: usize = shape.iter().product();
    let value = |i: usize| ((i * 7919 + seed * 104729 + i * i % 13) % 5) as f64 - 2.0;
    Tensor::from_slice(&(0..n).map(value).collect::<Vec<f64>>(), shape).to_dtype(dtype)
}

/// How far results of a dtype may be from each other.
pub fn tolerance(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F16 => 1e-3,
        Dtype::BF16 => 8e-3,
        Dtype::F32 => 1e-5,
        _ => 1e-12,
    }
}

/// Asserts that two tensors are near each other.
#[track_caller]
pub fn assert_near(got: &Tensor, expected: &Tensor, what: &str) {
    assert_within(got, expected, what, 1.0);
}

#[track_caller]
fn assert_within(got: &Tensor, expected: &Tensor, what: &str, factor: f64) {
    assert_eq!((got.dtype(), got.shape()), (expected.dtype(), expected.shape()), "{what}");
    let slack = factor * tolerance(got.dtype());
    let pairs = got.to_vec::<f64>().into_iter().zip(expected.to_vec::<f64>());
    for (i, (a, b)) in pairs.enumerate() {
        let near = a == b || (a - b).abs() <= slack * (1.0 + b.abs());
        assert!(near, "{what}: element {i} is {a}, not {b}");
    }
}

/// The op's result and its gradients on a device.
pub fn run(
    op: &dyn Fn(&[Tensor]) -> Tensor,
    inputs: &[Tensor],
    device: Device,
    gradients: bool,
) -> Vec<Tensor> {
    let differentiates = gradients && inputs.iter().all(|x| x.dtype().is_floating_point());
    let leaves: Vec<Tensor> = inputs
        .iter()
        .map(|x| x.to_device(device))
        .map(|x| if differentiates { x.detach().requires_grad_(true) } else { x })
        .collect();
    let y = op(&leaves);
    assert_eq!(y.device(), device);
    let mut out = vec![y.detach().cpu()];
    if y.requires_grad() {
        let seed = whole(y.shape(), 9, y.dtype()).to_device(device);
        torchrs::autograd::backward(&[&y], &[Some(&seed)], torchrs::autograd::GraphMode::Free);
        out.extend(leaves.iter().filter_map(Tensor::grad).map(|g| g.cpu()));
    }
    out
}

/// Asserts that an op gives on the GPU what it gives on the CPU.
#[track_caller]
pub fn compare(what: &str, op: &dyn Fn(&[Tensor]) -> Tensor, inputs: &[Tensor]) {
    compare_with(what, op, inputs, true);
}

/// [`compare`] with or without gradients.
#[track_caller]
pub fn compare_with(
    what: &str,
    op: &dyn Fn(&[Tensor]) -> Tensor,
    inputs: &[Tensor],
    gradients: bool,
) {
    compare_within(what, op, inputs, gradients, 1.0);
}

/// [`compare_with`] where results may be so many times farther from each other than usual.
#[track_caller]
pub fn compare_within(
    what: &str,
    op: &dyn Fn(&[Tensor]) -> Tensor,
    inputs: &[Tensor],
    gradients: bool,
    factor: f64,
) {
    let what = format!("{what} of {}", inputs[0].dtype());
    let (got, expected) =
        (run(op, inputs, GPU, gradients), run(op, inputs, Device::Cpu, gradients));
    assert_eq!(got.len(), expected.len(), "{what}");
    for (k, (got, expected)) in got.iter().zip(&expected).enumerate() {
        assert_within(got, expected, &format!("{what}, result {k}"), factor);
    }
}

fn matmuls(dtype: Dtype, shapes: &[(&[usize], &[usize])]) {
    for &(a, b) in shapes {
        let inputs = [whole(a, 1, dtype), whole(b, 2, dtype)];
        // Gradients of what is broadcast are sums over batches, which are no products.
        let batch = |t: &[usize]| t[..t.len().saturating_sub(2)].to_vec();
        let gradients = batch(a) == batch(b);
        compare_with(&format!("matmul({a:?}, {b:?})"), &|x| x[0].matmul(&x[1]), &inputs, gradients);
        if a.len() > 1 && b.len() > 1 {
            // The same operands with the depth across, and with a distance between elements.
            let turned = inputs.each_ref().map(|t| t.transpose(-1, -2).contiguous());
            let op = |x: &[Tensor]| x[0].transpose(-1, -2).matmul(&x[1].transpose(-1, -2));
            compare_with(&format!("matmul of turned ({a:?}, {b:?})"), &op, &turned, gradients);
            let op = |x: &[Tensor]| x[0].transpose(-1, -2).matmul(&x[1]);
            let mixed = [turned[0].clone(), inputs[1].clone()];
            compare_with(&format!("matmul of half turned ({a:?}, {b:?})"), &op, &mixed, gradients);
        }
    }
}

const SMALL: &[(&[usize], &[usize])] = &[
    (&[3, 4], &[4, 5]),
    (&[1, 7], &[7, 1]),
    (&[9, 70], &[70, 1]),
    (&[1, 70], &[70, 9]),
    (&[7], &[7]),
    (&[5, 7], &[7]),
    (&[7], &[2, 7, 3]),
    (&[2, 3, 4], &[4, 5]),
    (&[2, 1, 3, 4], &[3, 4, 2]),
    (&[2, 3, 65, 33], &[3, 33, 66]),
    (&[2, 0], &[0, 3]),
    (&[0, 4], &[4, 3]),
    (&[2, 4, 0], &[2, 0, 3]),
    (&[64, 64], &[64, 64]),
];

fn others(dtype: Dtype) {
    let input = |shape: &[usize], seed| whole(shape, seed, dtype);
    let op = |x: &[Tensor]| x[0].addmm(&x[1], &x[2], 2.0, 3.0);
    compare("addmm", &op, &[input(&[5, 6], 3), input(&[5, 8], 1), input(&[8, 6], 2)]);
    compare_with("addmm", &op, &[input(&[5, 1], 3), input(&[5, 8], 1), input(&[8, 6], 2)], false);
    let op = |x: &[Tensor]| x[0].addmm(&x[1], &x[2], 0.0, 1.0);
    compare_with("addmm", &op, &[input(&[6], 3), input(&[5, 8], 1), input(&[8, 6], 2)], false);
    if !dtype.is_floating_point() {
        return;
    }
    let op = |x: &[Tensor]| x[0].linear(&x[1], Some(&x[2]));
    compare("linear", &op, &[input(&[2, 3, 8], 1), input(&[16, 8], 2), input(&[16], 3)]);
    compare("linear", &op, &[input(&[70, 9], 1), input(&[7, 9], 2), input(&[7], 3)]);
    compare("linear", &op, &[input(&[1, 16], 1), input(&[5, 16], 2), input(&[5], 3)]);
    let op = |x: &[Tensor]| x[0].bmm(&x[1]);
    compare("bmm", &op, &[input(&[3, 4, 5], 1), input(&[3, 5, 2], 2)]);
    let narrowed = |x: &[Tensor]| x[0].narrow(1, 1, 9).mm(&x[1].narrow(0, 2, 9).narrow(1, 1, 5));
    compare("narrowed", &narrowed, &[input(&[4, 12], 1), input(&[12, 8], 2)]);
}

/// Batches of two distances, of which one is gone through or the operands are copied; rows at no distance; rows,
/// columns and turned matrices that are added.
fn as_they_lie(dtype: Dtype) {
    for shape in [[2, 5, 3, 4], [9, 2, 8, 3]] {
        let inputs = [whole(&shape, 1, dtype), whole(&shape, 2, dtype)];
        let heads = |t: &Tensor| t.transpose(1, 2);
        compare("scores of heads", &|x| heads(&x[0]).matmul(&heads(&x[1]).mt()), &inputs);
        let op = |x: &[Tensor]| heads(&x[0]).mt().matmul(&heads(&x[1]));
        compare("products of turned heads", &op, &inputs);
    }
    let [a, b] = [whole(&[5, 8], 1, dtype), whole(&[8, 6], 2, dtype)];
    compare("mm of equal rows", &|x| x[0].i(0).expand(&[3, 8]).mm(&x[1]), &[a.clone(), b.clone()]);
    for (start, beta, alpha) in
        [(&[6][..], 1.0, 3.0), (&[6], 2.0, 1.0), (&[5, 1], 1.0, 1.0), (&[1], 2.0, 2.0)]
    {
        let inputs = [whole(start, 3, dtype), a.clone(), b.clone()];
        let op = |x: &[Tensor]| x[0].addmm(&x[1], &x[2], beta, alpha);
        compare_with(&format!("addmm of {start:?}"), &op, &inputs, false);
    }
    let inputs = [whole(&[6, 5], 3, dtype), a, b];
    compare("addmm of a turned matrix", &|x| x[0].t().addmm(&x[1], &x[2], 1.0, 1.0), &inputs);
}

simulated! {
    fn products_of_f32() ["TORCHRS_CUBLASLT" = "0"] {
        matmuls(Dtype::F32, SMALL);
        // Large tiles; parts of the depth; a part of a tile.
        matmuls(Dtype::F32, &[(&[130, 2060], &[2060, 100]), (&[20, 1500], &[1500, 3]), (&[3, 3000], &[3000]), (&[3000], &[3000])]);
        others(Dtype::F32);
    }
    fn products_of_f64() ["TORCHRS_CUBLASLT" = "0"] {
        matmuls(Dtype::F64, SMALL);
        others(Dtype::F64);
    }
    fn products_of_f16() ["TORCHRS_CUBLASLT" = "0"] {
        matmuls(Dtype::F16, SMALL);
        matmuls(Dtype::F16, &[(&[72, 40], &[40, 136]), (&[2, 3, 72, 16], &[2, 3, 16, 8])]);
        others(Dtype::F16);
    }
    fn products_of_bf16() ["TORCHRS_CUBLASLT" = "0"] {
        matmuls(Dtype::BF16, SMALL);
        // Large tiles of copied operands, in parts of the depth.
        matmuls(Dtype::BF16, &[(&[136, 2064], &[2064, 104]), (&[72, 40], &[40, 136])]);
        others(Dtype::BF16);
    }
    fn products_of_integers() ["TORCHRS_CUBLASLT" = "0"] {
        for dtype in [Dtype::I64, Dtype::I32, Dtype::I16, Dtype::I8, Dtype::U8] {
            let shapes: &[(&[usize], &[usize])] = if dtype == Dtype::I64 { SMALL } else { &[(&[70, 300], &[300, 3])] };
            matmuls(dtype, shapes);
            others(dtype);
        }
        let message = torchrs::catch(|| {
            let x = Tensor::zeros([2, 2], (Dtype::Bool, GPU));
            x.mm(&x)
        });
        assert!(message.unwrap_err().to_string().contains("bool"));
    }
    fn products_by_the_library() {
        for dtype in [Dtype::F32, Dtype::F64, Dtype::F16, Dtype::BF16] {
            matmuls(dtype, SMALL);
            others(dtype);
            as_they_lie(dtype);
        }
    }
    // The first kernel would fail.
    fn the_library_needs_no_kernel() ["TORCHRS_SIMULATED_FAULT" = "illegal-address@1"] {
        let [x, w, b] = [&[9, 16][..], &[24, 16], &[24]].map(|shape| whole(shape, 1, Dtype::BF16));
        let [a, v, c] = [&x, &w, &b].map(|t| t.to_device(GPU));
        assert_near(&a.linear(&v, Some(&c)).cpu(), &x.linear(&w, Some(&b)), "linear");
        let x = whole(&[2, 6, 4, 8], 1, Dtype::BF16);
        let scores = |x: &Tensor| x.transpose(1, 2).matmul(&x.transpose(1, 2).mt());
        assert_near(&scores(&x.to_device(GPU)).cpu(), &scores(&x), "scores of heads");
    }
    fn products_do_not_wait() {
        let (x, w) = (whole(&[40, 600], 1, Dtype::F32).to_device(GPU), whole(&[30, 600], 2, Dtype::F32).to_device(GPU));
        let w = w.requires_grad_(true);
        let waited = torchrs::cuda::synchronisations();
        let y = x.linear(&w, None);
        torchrs::autograd::backward(&[&y], &[Some(&y.ones_like())], torchrs::autograd::GraphMode::Free);
        assert_eq!(torchrs::cuda::synchronisations(), waited);
        assert_eq!(w.grad().unwrap().shape(), &[30, 600]);
    }
}
