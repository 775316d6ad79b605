//! Numbers of which all must lie in a range, such as probabilities: on the CPU an op looks before it computes; on a GPU
//! a kernel looks, and what it finds is told by whoever next waits for the device.

use crate::cuda::cuda_args;
use crate::cuda::{Program, refusal::Rule, sources::kernels_by, sources::program};
use crate::error::{Error, throw};
use crate::ops::gpu::{self, Gpu, kernel_of};
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static PROGRAM: Program = program!("limits": "refusal.cuh", "limits.cu");

kernels_by! {
    numbers of PROGRAM:
    WITHIN "within";
}

/// Refuses what is not between 0 and 1, NaN included.
#[track_caller]
pub(crate) fn assert_probabilities(op: &str, argument: &'static str, t: &Tensor) {
    assert_within(op, argument, t, [0.0, 1.0], Rule::Probability);
}

/// Refuses indices that are neither 0 to `n` - 1 nor, where they may be `signed`, -`n` to -1.
#[track_caller]
pub(crate) fn assert_indices(op: &str, argument: &'static str, t: &Tensor, n: usize, signed: bool) {
    let least = if signed { -(n as f64) } else { 0.0 };
    assert_within(op, argument, t, [least, n as f64 - 1.0], Rule::Index);
}

#[track_caller]
fn assert_within(op: &str, argument: &'static str, t: &Tensor, limits: [f64; 2], rule: Rule) {
    match gpu::of(op, &[t]) {
        Some(gpu) => look(gpu, op, argument, t, limits, rule),
        None => {
            let t = t.detach();
            let [low, high] = limits;
            let outside = !(t.ge(low) & t.le(high));
            if outside.any().item() != 0.0 {
                let all = outside.ravel().to_vec::<bool>();
                let position = all.iter().position(|&bad| bad).unwrap_or(0);
                let value = t.ravel().i(position as i64).item();
                let complaint = rule.complaint(value, position as i64, high as i64 + 1);
                throw(Error::argument(op, argument, complaint));
            }
        }
    }
}

#[track_caller]
fn look(gpu: Gpu, op: &str, argument: &'static str, t: &Tensor, [low, high]: [f64; 2], rule: Rule) {
    if t.numel() == 0 {
        return;
    }
    let t = t.detach().contiguous();
    let t = if t.dtype() == Dtype::Bool { t.to_dtype(Dtype::U8) } else { t };
    let (from, n, refusal) = (t.device_ptr(), t.numel() as i64, gpu.refusal(op, argument, rule));
    let kernel = kernel_of(op, &WITHIN, t.dtype());
    // SAFETY: a dense tensor of this type, which is only read.
    unsafe {
        gpu.launch(kernel, gpu.for_each(t.numel()), cuda_args!(from, n, low, high, refusal));
    }
}
