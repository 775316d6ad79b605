//! Chunks against all scores at once, and what backward does with what forward has made.

use super::*;
use crate::autograd::{self, GraphMode};
use crate::cuda::simulated_test::on_gpu;
use crate::storage::Device;
use crate::{fork_rng, manual_seed};

/// Loss and gradients of input, weight and bias, of a loss that is scaled.
fn both(
    operands: &[Tensor; 3],
    target: &Tensor,
    options: &LinearCrossEntropyOptions,
    chunks: Chunks,
) -> Vec<Tensor> {
    let [x, w, b] = operands.each_ref().map(|t| t.detach().requires_grad_(true));
    let options =
        LinearCrossEntropyOptions { linear_bias: Some(b.clone()), chunks, ..options.clone() };
    let loss = linear_cross_entropy(&x, &w, target, options);
    (&loss * 3.0).sum().backward();
    std::iter::once(loss.detach()).chain([x, w, b].map(|t| t.grad().unwrap())).collect()
}

fn near(a: &Tensor, b: &Tensor, tolerance: f64) -> bool {
    let [a, b] = [a, b].map(|t| t.cpu().to_dtype(Dtype::F64));
    let most = b.abs().max().item().max(1e-3);
    (&a - &b).abs().max().item() <= tolerance * most
}

fn chunks_are_the_whole(device: Device) {
    fork_rng(|| {
        manual_seed(4);
        let of = |shape: &[usize]| Tensor::randn(shape, Dtype::F64);
        let operands = [of(&[11, 6]), of(&[21, 6]), of(&[21])];
        let target = Tensor::from([3i64, 20, 0, 3, 7, 7, 12, 19, 1, 0, 5]).to_device(device);
        let weight = Tensor::rand([21], Dtype::F64) + 0.5;
        for (dtype, tolerance) in
            [(Dtype::F64, 1e-12), (Dtype::F32, 1e-5), (Dtype::F16, 4e-3), (Dtype::BF16, 3e-2)]
        {
            let operands = operands.each_ref().map(|t| t.to_dtype(dtype).to_device(device));
            let weight = weight.to_dtype(dtype.compute()).to_device(device);
            for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
                for (weight, label_smoothing) in [(None, 0.0), (Some(weight.clone()), 0.2)] {
                    let options = LinearCrossEntropyOptions {
                        weight,
                        reduction,
                        label_smoothing,
                        ignore_index: Some(7),
                        ..Default::default()
                    };
                    let whole = both(&operands, &target, &options, Chunks::Whole);
                    for rows in [1, 4, 11, 100] {
                        let some = both(&operands, &target, &options, Chunks::Rows(rows));
                        for (i, (a, b)) in some.iter().zip(&whole).enumerate() {
                            let same = (a.shape(), a.dtype()) == (b.shape(), b.dtype());
                            let what = format!(
                                "{dtype} {reduction:?} {label_smoothing} {rows} {i}: {a:?} {b:?}"
                            );
                            assert!(same && near(a, b, tolerance), "{what}");
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn chunks_give_what_all_scores_give() {
    chunks_are_the_whole(Device::Cpu);
    let test = "ops::loss::cross_entropy::linear::tests::chunks_give_what_all_scores_give";
    on_gpu(test, || chunks_are_the_whole(Device::Cuda(0)));
}

/// A graph that is kept gives the same again, also after the first gradients were changed.
fn a_kept_graph(device: Device) {
    let x = Tensor::from([[1f32, -2.], [0.5, 3.], [2., 1.]]).to_device(device).requires_grad_(true);
    let w =
        Tensor::from([[1f32, 0.], [0.25, 1.], [-1., 1.]]).to_device(device).requires_grad_(true);
    let target = Tensor::from([2i64, 0, 1]).to_device(device);
    let options = LinearCrossEntropyOptions { chunks: Chunks::Rows(2), ..Default::default() };
    let loss = linear_cross_entropy(&x, &w, &target, options);
    let gradients = |mode, scale: f32| {
        let g = Tensor::scalar(scale).to_device(device);
        let grads = autograd::grad(&[&loss], &[&x, &w], &[Some(&g)], mode);
        grads.into_iter().flatten().collect::<Vec<_>>()
    };
    let first = gradients(GraphMode::Retain, 1.0);
    let before: Vec<_> = first.iter().map(Tensor::clone_contiguous).collect();
    first.iter().for_each(|t| _ = t.mul_(5.0));
    let second = gradients(GraphMode::Retain, 2.0);
    let third = gradients(GraphMode::Free, 1.0);
    for ((first, second), third) in before.iter().zip(&second).zip(&third) {
        assert!(
            (first * 2.0).equal(second) && first.equal(third),
            "{first:?} {second:?} {third:?}"
        );
    }
    assert!(crate::catch(|| gradients(GraphMode::Free, 1.0)).is_err());
}

#[test]
fn a_graph_may_be_walked_twice() {
    a_kept_graph(Device::Cpu);
    let test = "ops::loss::cross_entropy::linear::tests::a_graph_may_be_walked_twice";
    on_gpu(test, || a_kept_graph(Device::Cuda(0)));
}

/// In f16 the gradients of many rows are small: the loss's scale must come before what rounds them to 0.
fn small_gradients(device: Device) {
    let n = 40_000;
    let x = Tensor::full([n, 2], 0.01, (Dtype::F16, device)).requires_grad_(true);
    let w = Tensor::zeros([40, 2], (Dtype::F16, device)).requires_grad_(true);
    let target = Tensor::zeros([n], (Dtype::I64, device));
    let options = LinearCrossEntropyOptions { chunks: Chunks::Rows(n / 2), ..Default::default() };
    let loss = linear_cross_entropy(&x, &w, &target, options);
    (loss.to_dtype(Dtype::F32) * 32768.0).backward();
    let found = w.grad().unwrap().to_dtype(Dtype::F64).select(0, 1).cpu();
    let want = Tensor::full([2], 0.01 * 32768.0 / 40.0, Dtype::F64);
    assert!(near(&found, &want, 1e-2), "{found:?} {want:?}");
}

#[test]
fn small_gradients_of_f16_are_not_lost() {
    small_gradients(Device::Cpu);
    let test = "ops::loss::cross_entropy::linear::tests::small_gradients_of_f16_are_not_lost";
    on_gpu(test, || small_gradients(Device::Cuda(0)));
}

/// In autocast a weight of f32 gets its gradient in f32, with nothing rounded to the half type.
fn in_autocast(device: Device) {
    let f32 = |t: Tensor| t.to_dtype(Dtype::F32).to_device(device);
    // Sums of these are no numbers of eight bits, of a chunk neither.
    let x = f32(Tensor::from([[1.0f64, 0.5], [1.0 / 512.0, 2.0], [1.0, 1.0]])).requires_grad_(true);
    let w = f32(Tensor::zeros([2, 2], Dtype::F64)).requires_grad_(true);
    let b = f32(Tensor::zeros([2], Dtype::F64)).requires_grad_(true);
    let target = Tensor::from([0i64, 0, 0]).to_device(device);
    let options = LinearCrossEntropyOptions {
        linear_bias: Some(b.clone()),
        chunks: Chunks::Rows(2),
        reduction: Reduction::Sum,
        ..Default::default()
    };
    let loss = crate::amp::autocast(device, Dtype::BF16, || {
        linear_cross_entropy(&x, &w, &target, options)
    });
    assert_eq!(loss.dtype(), Dtype::F32);
    loss.backward();
    let (dx, dw) = (x.grad().unwrap(), w.grad().unwrap());
    assert_eq!((dx.dtype(), dw.dtype()), (Dtype::F32, Dtype::F32));
    let want = -(2.0 + 1.0 / 512.0) / 2.0;
    assert_eq!(dw.cpu().to_vec::<f32>()[0], want, "{dw:?}");
    assert_eq!(b.grad().unwrap().cpu().to_vec::<f32>(), [-1.5, 1.5]);
    // f64 is not cast.
    let [x, w] = [&x, &w].map(|t| t.detach().to_dtype(Dtype::F64));
    for chunks in [Chunks::Rows(2), Chunks::Whole] {
        let options = LinearCrossEntropyOptions { chunks, ..Default::default() };
        let loss = crate::amp::autocast(device, Dtype::BF16, || {
            linear_cross_entropy(&x, &w, &target, options)
        });
        assert_eq!(loss.dtype(), Dtype::F64);
    }
}

#[test]
fn a_weight_of_f32_gets_sums_of_f32() {
    in_autocast(Device::Cpu);
    let test = "ops::loss::cross_entropy::linear::tests::a_weight_of_f32_gets_sums_of_f32";
    on_gpu(test, || in_autocast(Device::Cuda(0)));
}

#[test]
fn what_does_not_fit_is_named() {
    let (x, w) = (Tensor::zeros([2, 3], Dtype::F32), Tensor::zeros([4, 3], Dtype::F32));
    let target = Tensor::from([1i64, 3]);
    let message = |x: &Tensor, w: &Tensor, target: &Tensor, options: LinearCrossEntropyOptions| {
        crate::catch(|| linear_cross_entropy(x, w, target, options)).unwrap_err().to_string()
    };
    let chunked = || LinearCrossEntropyOptions { chunks: Chunks::Rows(1), ..Default::default() };
    let narrow = Tensor::zeros([4, 2], Dtype::F32);
    let deep = Tensor::zeros([2, 2, 3], Dtype::F32);
    let probabilities = Tensor::zeros([2, 4], Dtype::F32);
    for (message, parts) in [
        (message(&x, &narrow, &target, chunked()), &["[2, 3]", "[4, 2]"][..]),
        (message(&deep, &w, &target, chunked()), &["[2, 2, 3]", "flatten"]),
        (message(&x.select(0, 0), &deep, &target, chunked()), &["[N, 3]", "[2, 2, 3]"]),
        (message(&x, &w, &Tensor::from([1i64, 4]), chunked()), &["class 4", "position 1"]),
        (message(&x, &w, &Tensor::from([1i64]), chunked()), &["target [1]", "[2]"]),
        (message(&x, &w.to_dtype(Dtype::F64), &target, chunked()), &["f64", "f32", "to_dtype"]),
        (
            message(
                &x,
                &w,
                &target,
                LinearCrossEntropyOptions { chunks: Chunks::Rows(0), ..Default::default() },
            ),
            &["Rows(0)"],
        ),
        (
            message(
                &x,
                &w,
                &probabilities,
                LinearCrossEntropyOptions { ignore_index: Some(0), ..Default::default() },
            ),
            &["ignore_index", "probabilities"],
        ),
        (
            message(
                &x,
                &w,
                &target,
                LinearCrossEntropyOptions {
                    linear_bias: Some(target.clone()),
                    ..Default::default()
                },
            ),
            &["linear_bias", "[2]", "[4]"],
        ),
    ] {
        assert!(parts.iter().all(|part| message.contains(part)), "{message}: {parts:?}");
    }
}

/// What hooks of saved tensors keep is theirs; a loss of which no row counts has gradients of 0, also recorded ones.
fn others_tensors_and_no_rows(device: Device) {
    let leaf = |shape: &[usize]| Tensor::ones(shape, (Dtype::F32, device)).requires_grad_(true);
    let (x, w) = (leaf(&[3, 2]), leaf(&[4, 2]));
    let options = || LinearCrossEntropyOptions { chunks: Chunks::Rows(2), ..Default::default() };
    let target = Tensor::from([2i64, 0, 1]).to_device(device);
    let kept = std::sync::Arc::new(parking_lot::Mutex::new(Vec::<(Tensor, Tensor)>::new()));
    let pack = {
        let kept = kept.clone();
        move |t: &Tensor| {
            kept.lock().push((t.clone(), t.clone_contiguous()));
            t.clone()
        }
    };
    let loss = autograd::saved_tensors_hooks(
        pack,
        |t: &Tensor| t.clone(),
        || linear_cross_entropy(&x, &w, &target, options()),
    );
    (loss * 2.0).backward();
    assert!(!kept.lock().is_empty());
    assert!(kept.lock().iter().all(|(theirs, before)| theirs.equal(before)));
    let none = Tensor::from([-100i64; 3]).to_device(device);
    for mode in [GraphMode::Free, GraphMode::Create] {
        let plain = x.linear(&w, None).cross_entropy(&none);
        for loss in [linear_cross_entropy(&x, &w, &none, options()), plain] {
            assert!(loss.item().is_nan(), "a mean of none");
            for grad in autograd::grad(&[&loss], &[&x, &w], &[None], mode).into_iter().flatten() {
                assert_eq!(grad.abs().sum().item(), 0.0, "{mode:?} {grad:?}");
            }
        }
    }
}

#[test]
fn hooks_keep_their_own_and_no_rows_give_zeros() {
    others_tensors_and_no_rows(Device::Cpu);
    let test =
        "ops::loss::cross_entropy::linear::tests::hooks_keep_their_own_and_no_rows_give_zeros";
    on_gpu(test, || others_tensors_and_no_rows(Device::Cuda(0)));
}
