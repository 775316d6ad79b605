//! Attention on a GPU against the CPU: results and gradients, masks, batches, dtypes.

use super::products::compare_within;
use torchrs::autograd::{GraphMode, grad};
use torchrs::backends::{cuda, cudnn};
use torchrs::cuda::memory::{memory_allocated, reset_peak, statistics};
use torchrs::ops::AttentionOptions;
use torchrs::{Device, Dtype, Tensor, catch};

/// Numbers between -1 and 1.
fn numbers(shape: &[usize], seed: usize, dtype: Dtype) -> Tensor {
    let n: usize = shape.iter().product();
    let value = |i: usize| (((i + 1) * 7919 + seed * 104_729) % 211) as f64 / 105.0 - 1.0;
    Tensor::from_slice(&(0..n).map(value).collect::<Vec<f64>>(), shape).to_dtype(dtype)
}

/// Weights are rounded at other places than on the CPU.
#[track_caller]
fn compare(what: &str, op: &dyn Fn(&[Tensor]) -> Tensor, inputs: &[Tensor]) {
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

/// Dropout needs no memory for the weights, and gradients of gradients see the same ones.
fn dropped_without_weights() {
    let [q, k, v] =
        [1, 2, 3].map(|seed| numbers(&[256, 8], seed, Dtype::F16).to_device(Device::Cuda(0)));
    let options = AttentionOptions { dropout_p: 0.5, ..Default::default() };
    reset_peak(0).unwrap();
    let before = memory_allocated(0).unwrap();
    let q = q.requires_grad_(true);
    let y = q.scaled_dot_product_attention_with(&k, &v, &options);
    let [plain, again] = [false, true].map(|create_graph| {
        let dq = grad(
            &[&y.sum()],
            &[&q],
            &[None],
            if create_graph { GraphMode::Create } else { GraphMode::Retain },
        )
        .remove(0)
        .unwrap();
        if !create_graph {
            let more = statistics(0).unwrap().allocated.peak - before;
            assert!(more < 256 * 256 * 2, "{more} bytes");
        }
        dq.detach().to_vec::<f64>()
    });
    let near = plain.iter().zip(&again).all(|(a, b)| (a - b).abs() < 0.02);
    assert!(near, "{plain:?} {again:?}");
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
    }
    fn attention_with_dropout() {
        dropped_without_weights();
        dropped(Dtype::F32, [9, 7, 8, 8]);
        dropped(Dtype::F16, [70, 67, 16, 24]);
        dropped(Dtype::F16, [9, 136, 8, 8]);
    }
    fn attention_by_products() {
        cuda::enable_cudnn_sdp(false);
        cuda::enable_flash_sdp(false);
        lies(false);
        heads(Dtype::F16);
    }
    fn attention_by_products_only_where_they_are_allowed() {
        cuda::enable_math_sdp(false);
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
