//! Attention on a GPU against the CPU: results and gradients, masks, batches, dtypes.

use super::products::compare_within;
use torchrs::{Device, Dtype, Tensor};

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

simulated! {
    fn attention_of_heads() {
        heads(Dtype::F32);
        heads(Dtype::BF16);
    }
    fn attention_of_f32() { cases(Dtype::F32); }
    fn attention_of_f64() { cases(Dtype::F64); }
    fn attention_of_f16() { cases(Dtype::F16); }
    fn attention_of_bf16() { cases(Dtype::BF16); }
}
