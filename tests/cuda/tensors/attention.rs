//! Attention on a GPU against the CPU: results and gradients, masks, batches, dtypes.

use super::products::compare_within;
use torchrs::autograd::{GraphMode, grad};
use torchrs::backends::{cuda, cudnn};
use torchrs::cuda::memory::{memory_allocated, reset_peak, statistics};
use torchrs::ops::AttentionOptions;
use torchrs::{Device, Dtype, Tensor, catch};

/// Numbers between -1 and 1.
pub fn numbers(shape: &[usize], seed: usize, dtype: Dtype) -> Tensor {
    let n: usize = shape.iter().product();
    let value = |i: usize| (((i + 1) * 7919 + seed * 104_729) % 211) as f64 / 105.0 - 1.0;
    Tensor::from_slice(&(0..n).map(value).collect::<Vec<f64>>(), shape).to_dtype(dtype)
}

/// Weights are rounded at other places than on the CPU.
#[track_caller]
pub fn compare(what: &str, op: &dyn Fn(&[Tensor]) -> Tensor, inputs: &[Tensor]) {
    let factor = if inputs[0].dtype().size() == 2 { 6.0 } else { 1.0 };
    compare_within(what, op, inputs, true, factor);
}

fn attention(dtype: Dtype, batch: &[usize], [l, s, e, d]: [usize; 4]) {
    let input = |rows, columns, seed| numbers(&[batch, &[rows, columns]].concat(), seed, dtype);
    let inputs = [input(l, e, 1), input(s, e, 2), input(s, d, 3)];
    let what = format!("attention({batch:?}, {l}, {s}, {e}, {d})");
    for causal in [false, true] {
        let op =
            |x: &[Tensor]| x[0].scaled_dot_product_attention(&x[1], &x[2], None, causal, Some(0.7));
        compare(&format!("{what}, causal: {causal}"), &op, &inputs);
    }
    // Query 1 sees nothing.
    let seen: Vec<bool> = (0..l * s).map(|i| i % 3 != 0 && i / s != 1).collect();
    let seen = Tensor::from_slice(&seen, [l, s]);
    let on = |device: Device| seen.to_device(device);
    let op = |x: &[Tensor]| {
        x[0].scaled_dot_product_attention(&x[1], &x[2], Some(&on(x[0].device())), false, None)
    };
    compare(&format!("{what}, masked"), &op, &inputs);
    let more = numbers(&[l, s], 4, dtype);
    let op = |x: &[Tensor]| {
        let more = more.to_device(x[0].device());
        x[0].scaled_dot_product_attention(&x[1], &x[2], Some(&more), false, None)
    };
    compare(&format!("{what}, with added scores"), &op, &inputs);
}

fn cases(dtype: Dtype) {
    attention(dtype, &[2, 2], [5, 7, 4, 3]);
    attention(dtype, &[3], [70, 67, 16, 24]);
    attention(dtype, &[1, 2], [130, 64, 64, 64]);
    if dtype.size() == 2 {
        attention(dtype, &[2], [65, 130, 80, 96]);
    }
}

/// Heads as models have them: features of all heads side by side, and keys and values that all heads share.
fn heads(dtype: Dtype) {
    let inputs = [numbers(&[2, 9, 3 * 16], 1, dtype), numbers(&[2, 1, 11, 16], 2, dtype)];
    let op = |x: &[Tensor]| {
        let q = x[0].view([2, 9, 3, 16]).transpose(1, 2);
        q.scaled_dot_product_attention(&x[1], &x[1], None, true, None)
    };
    let what = "attention of heads";
    compare_within(what, &op, &inputs, false, 6.0);
    let inputs = [numbers(&[2, 9, 3 * 16], 1, dtype), numbers(&[2, 11, 3 * 16], 2, dtype)];
    let op = |x: &[Tensor]| {
        let [q, k] = [0, 1].map(|i| x[i].view([2, -1, 3, 16]).transpose(1, 2));
        q.scaled_dot_product_attention(&k, &k, None, false, None)
    };
    compare(what, &op, &inputs);
}

/// Keys and values whose heads each serve several of the queries'.
fn shared_heads(dtype: Dtype) {
    let inputs = [
        numbers(&[2, 6, 9, 16], 1, dtype),
        numbers(&[2, 2, 11, 16], 2, dtype),
        numbers(&[2, 2, 11, 24], 3, dtype),
    ];
    for is_causal in [false, true] {
        let options = AttentionOptions { is_causal, enable_gqa: true, ..Default::default() };
        let op = |x: &[Tensor]| x[0].scaled_dot_product_attention_with(&x[1], &x[2], &options);
        compare("attention of shared heads", &op, &inputs);
    }
    let mask = numbers(&[6, 9, 11], 4, dtype);
    let op = |x: &[Tensor]| {
        let attn_mask = Some(mask.to_device(x[0].device()));
        let options = AttentionOptions { attn_mask, enable_gqa: true, ..Default::default() };
        x[0].scaled_dot_product_attention_with(&x[1], &x[2], &options)
    };
    compare("attention of shared heads, masked", &op, &inputs);
}

/// The same weights are dropped on a GPU as on the CPU, forward and backward.
fn dropped(dtype: Dtype, [l, s, e, d]: [usize; 4]) {
    let input = |rows, columns, seed| numbers(&[2, 2, rows, columns], seed, dtype);
    let inputs = [input(l, e, 1), input(s, e, 2), input(s, d, 3)];
    for is_causal in [false, true] {
        let options = AttentionOptions { is_causal, dropout_p: 0.3, ..Default::default() };
        let op = |x: &[Tensor]| {
            torchrs::manual_seed(5);
            x[0].scaled_dot_product_attention_with(&x[1], &x[2], &options)
        };
        compare(&format!("attention with dropout, causal: {is_causal}"), &op, &inputs);
    }
}

/// The most bytes that a call takes at a time beside what is there.
pub fn peak_of(call: impl FnOnce()) -> usize {
    reset_peak(0).unwrap();
    let before = memory_allocated(0).unwrap();
    call();
    statistics(0).unwrap().allocated.peak - before
}

/// Neither the scores nor their gradients are ever in memory, and gradients of gradients see the same weights dropped.
fn without_scores(dtype: Dtype, [n, features]: [usize; 2], dropout_p: f64) {
    let [q, k, v] =
        [1, 2, 3].map(|seed| numbers(&[n, features], seed, dtype).to_device(Device::Cuda(0)));
    let options = AttentionOptions { dropout_p, ..Default::default() };
    let q = q.requires_grad_(true);
    let (mut plain, mut y) = (Vec::new(), None);
    let peak = peak_of(|| {
        let y = y.insert(q.scaled_dot_product_attention_with(&k, &v, &options));
        let dq = grad(&[&y.sum()], &[&q], &[None], GraphMode::Retain).remove(0).unwrap();
        plain = dq.to_vec::<f64>();
    });
    assert!(peak < n * n * dtype.size(), "{dtype}, {features}: {peak} bytes");
    if dropout_p > 0.0 {
        let y = y.unwrap().sum();
        let dq = grad(&[&y], &[&q], &[None], GraphMode::Create).remove(0).unwrap();
        let again = dq.detach().to_vec::<f64>();
        let near = plain.iter().zip(&again).all(|(a, b)| (a - b).abs() < 0.02);
        assert!(near, "{plain:?} {again:?}");
    }
}

/// Windows, alone, with heads that share keys, a mask or dropout.
fn windows(dtype: Dtype, features: [usize; 2]) {
    for (lengths, window_size) in [
        ([70, 70], (9, 0)),
        ([150, 67], (3, 5)),
        ([9, 140], (-1, 2)),
        ([67, 9], (20, -1)),
        ([5, 5], (0, 0)),
    ] {
        let input = |heads, rows, columns, seed| numbers(&[2, heads, rows, columns], seed, dtype);
        let [l, s] = lengths;
        let inputs =
            [input(4, l, features[0], 1), input(2, s, features[0], 2), input(2, s, features[1], 3)];
        let mask = numbers(&[l, s], 4, dtype);
        for (dropout_p, masked) in [(0.0, false), (0.0, true), (0.3, false)] {
            let op = |x: &[Tensor]| {
                torchrs::manual_seed(5);
                let attn_mask = masked.then(|| mask.to_device(x[0].device()));
                let options = AttentionOptions {
                    attn_mask,
                    dropout_p,
                    window_size,
                    enable_gqa: true,
                    ..Default::default()
                };
                x[0].scaled_dot_product_attention_with(&x[1], &x[2], &options)
            };
            compare(
                &format!("window {window_size:?} of {lengths:?}, {dropout_p}, {masked}"),
                &op,
                &inputs,
            );
        }
    }
}

/// What lies outside a window is not even read, forward and backward: there are NaN.
fn outside_of_windows(dtype: Dtype) {
    let n = 600;
    let far = |from: usize, to: usize, seed| {
        let x = numbers(&[n, 16], seed, dtype).to_device(Device::Cuda(0));
        x.narrow(0, from, to - from).fill_(f64::NAN);
        x.requires_grad_(true)
    };
    let options = AttentionOptions { window_size: (3, 3), ..Default::default() };
    // Of the last queries, the first keys.
    let (q, k, v) = (far(0, 0, 1), far(0, 300, 2), far(0, 300, 3));
    let y = q.scaled_dot_product_attention_with(&k, &v, &options).narrow(0, 500, 100);
    let dq = grad(&[&y], &[&q], &[Some(&y.ones_like())], GraphMode::Free).remove(0).unwrap();
    for seen in [y.detach(), dq.narrow(0, 500, 100)] {
        assert!(seen.to_vec::<f64>().iter().all(|x| x.is_finite()), "{seen:?}");
    }
    // Of the last keys, the first queries.
    let (q, k) = (far(0, 300, 1), far(0, 0, 2));
    let y = q.scaled_dot_product_attention_with(&k, &k, &options);
    let dk = grad(&[&y], &[&k], &[Some(&y.ones_like())], GraphMode::Free).remove(0).unwrap();
    assert!(dk.narrow(0, 500, 100).to_vec::<f64>().iter().all(|x| x.is_finite()), "{dk:?}");
    assert!(dk.narrow(0, 0, 100).to_vec::<f64>().iter().any(|x| x.is_nan()));
}

/// The results lie as the queries do where cuDNN computes them, which reads them there; else row by row.
fn lies(by_cudnn: bool) {
    let q = numbers(&[2, 5, 3 * 16], 1, Dtype::BF16).to_device(Device::Cuda(0));
    let q = q.view([2, 5, 3, 16]).transpose(1, 2).requires_grad_(true);
    let y = q.scaled_dot_product_attention(&q, &q, None, true, None);
    assert_eq!(y.transpose(1, 2).is_contiguous(), by_cudnn);
    assert_eq!(y.is_contiguous(), !by_cudnn);
}

simulated! {
    fn attention_of_heads() {
        heads(Dtype::F32);
        heads(Dtype::BF16);
    }
    fn attention_of_shared_heads() {
        shared_heads(Dtype::F32);
        shared_heads(Dtype::F16);
        cuda::enable_cudnn_sdp(false);
        shared_heads(Dtype::F16);
    }
    fn attention_by_cudnn() {
        lies(true);
        cudnn::set_deterministic(true);
        heads(Dtype::F16);
        attention(Dtype::F16, &[2, 2], [1, 40, 8, 128]);
        attention(Dtype::BF16, &[], [33, 20, 24, 8]);
    }
    fn attention_by_own_kernels() {
        cuda::enable_cudnn_sdp(false);
        lies(false);
        heads(Dtype::F16);
        attention(Dtype::F16, &[1, 2], [130, 64, 64, 64]);
        for dtype in [Dtype::F32, Dtype::BF16] {
            for empty in [[0, 5, 8, 8], [5, 0, 8, 8], [0, 0, 8, 8]] {
                let [l, s, e, d] = empty;
                let input = |rows, columns, seed| numbers(&[2, rows, columns], seed, dtype);
                let inputs = [input(l, e, 1), input(s, e, 2), input(s, d, 3)];
                let op = |x: &[Tensor]| x[0].scaled_dot_product_attention(&x[1], &x[2], None, false, None);
                compare(&format!("attention({empty:?})"), &op, &inputs);
            }
        }
    }
    fn attention_with_dropout() {
        dropped(Dtype::F32, [9, 7, 8, 8]);
        dropped(Dtype::F64, [9, 7, 5, 70]);
        dropped(Dtype::F16, [70, 67, 16, 24]);
        dropped(Dtype::F16, [9, 136, 8, 8]);
        dropped(Dtype::BF16, [33, 40, 72, 200]);
    }
    fn attention_holds_no_scores() {
        cuda::enable_math_sdp(false);
        cuda::enable_cudnn_sdp(false);
        for dtype in [Dtype::F32, Dtype::F64, Dtype::F16, Dtype::BF16] {
            without_scores(dtype, [256, 8], 0.0);
            without_scores(dtype, [256, 8], 0.5);
            // Of no whole number of vectors.
            without_scores(dtype, [256, 5], 0.0);
        }
    }
    fn attention_of_many_features() {
        cuda::enable_math_sdp(false);
        attention(Dtype::F32, &[2], [37, 35, 256, 130]);
        attention(Dtype::F32, &[2], [40, 35, 100, 70]);
        attention(Dtype::F64, &[1], [20, 35, 129, 256]);
        attention(Dtype::F64, &[1], [20, 35, 65, 128]);
        attention(Dtype::BF16, &[1], [70, 67, 256, 200]);
        attention(Dtype::F16, &[1], [70, 67, 136, 256]);
    }
    fn attention_by_products_beyond_what_tiles_have() {
        attention(Dtype::F16, &[], [5, 7, 264, 8]);
        attention(Dtype::F32, &[], [5, 7, 3, 257]);
    }
    fn attention_in_windows() {
        windows(Dtype::F32, [16, 24]);
        windows(Dtype::F16, [16, 72]);
        outside_of_windows(Dtype::F32);
        outside_of_windows(Dtype::BF16);
    }
    fn attention_in_windows_by_products() {
        cuda::enable_flash_sdp(false);
        windows(Dtype::F32, [5, 3]);
        windows(Dtype::F64, [5, 3]);
    }
    fn attention_by_products() {
        cuda::enable_cudnn_sdp(false);
        cuda::enable_flash_sdp(false);
        lies(false);
        heads(Dtype::F16);
    }
    fn attention_by_products_only_where_they_are_allowed() {
        cuda::enable_math_sdp(false);
        cuda::enable_flash_sdp(false);
        let x = numbers(&[9, 8], 1, Dtype::F32).to_device(Device::Cuda(0));
        for dropout_p in [0.0, 0.5] {
            let options = AttentionOptions { dropout_p, ..Default::default() };
            let y = catch(|| x.scaled_dot_product_attention_with(&x, &x, &options));
            assert!(y.unwrap_err().to_string().contains("enable_math_sdp"), "{dropout_p}");
        }
    }
    fn attention_of_f32() { cases(Dtype::F32); }
    fn attention_of_f64() { cases(Dtype::F64); }
    fn attention_of_f16() { cases(Dtype::F16); }
    fn attention_of_bf16() { cases(Dtype::BF16); }
}
