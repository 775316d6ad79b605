//! Random numbers on GPUs: the host's, made by the threads that write them.

use super::generator::GeneratorState;
use super::words::{Words, kept};
use crate::cuda::cuda_args;
use crate::cuda::{
    Kernel, Program, launch::Shape as Grid, refusal::Rule, sources::kernels_by, sources::program,
};
use crate::ops::gpu::{Gpu, address, kernel_of};
use crate::tensor::{Dtype, Tensor};

/// Products and sums are rounded one by one, as on the host.
pub(in crate::ops) static PROGRAM: Program =
    program!("random": "philox.cuh", "refusal.cuh", "random.cu").options(&["--fmad=false"]);

kernels_by! {
    floats of PROGRAM:
    UNIFORM "uniform";
    NORMAL "normal";
    DROPOUT "dropout";
    DROPOUT_BACKWARD "dropout_backward";
}
kernels_by! {
    numbers of PROGRAM:
    BERNOULLI "bernoulli";
    INTEGERS "integers";
}

static SET_PLACE: Kernel = Kernel::new(&PROGRAM, "set_place");

/// Writes where a generator stands to two numbers of 64 bits.
#[track_caller]
pub(super) fn set_place(gpu: Gpu, to: &Tensor, state: GeneratorState) {
    let GeneratorState { seed, offset } = state;
    let to = to.device_ptr();
    let args = cuda_args!(to, seed, offset);
    // SAFETY: 16 bytes that only kernels of the same stream read.
    unsafe { gpu.launch(&SET_PLACE, Grid::row(1, 1), args) };
}

/// Elements whose words are one block of Philox.
fn each(dtype: Dtype) -> usize {
    if dtype == Dtype::F64 { 2 } else { 4 }
}

/// A distribution of two parameters.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// Uniform from a number on over a span.
    Uniform(f64, f64),
    /// Normal with a mean and a standard deviation.
    Normal(f64, f64),
}

/// Overwrites the dense floating-point `x`.
#[track_caller]
pub(super) fn fill(gpu: Gpu, x: &Tensor, words: Words, shape: Shape) {
    let (kernels, a, b) = match shape {
        Shape::Uniform(low, span) => (&UNIFORM, low, span),
        Shape::Normal(mean, std) => (&NORMAL, mean, std),
    };
    let Words { seed, stream, place } = words;
    let (to, n) = (x.device_ptr(), x.numel());
    let threads = gpu.for_each(n.div_ceil(each(x.dtype())));
    let n = n as i64;
    let args = cuda_args!(to, n, seed, stream, place, a, b);
    // SAFETY: a dense tensor of this type, which the caller may overwrite.
    unsafe { gpu.launch(kernel_of("uniform_", kernels, x.dtype()), threads, args) };
}

/// Overwrites the dense `x` by ones with probability `p`, or that of `each`, which may be `x`; else zeros.
#[track_caller]
pub(super) fn bernoulli(gpu: Gpu, x: &Tensor, each: Option<&Tensor>, p: f64, words: Words) {
    let Words { seed, stream, place } = words;
    let (to, n) = (x.device_ptr(), x.numel() as i64);
    let own = address(each);
    let refusal = gpu.refusal("bernoulli", "p", Rule::Probability);
    let args = cuda_args!(to, own, p, n, seed, stream, place, refusal);
    let threads = gpu.for_each(x.numel().div_ceil(2));
    // SAFETY: dense tensors of one type; an element is read before it is written, by one thread.
    unsafe { gpu.launch(kernel_of("bernoulli_", &BERNOULLI, x.dtype()), threads, args) };
}

/// Overwrites the dense `x` by integers from `low` on, of which there are `span`.
#[track_caller]
pub(super) fn integers(gpu: Gpu, x: &Tensor, words: Words, low: i64, span: u64) {
    let Words { seed, stream, place } = words;
    let (to, n) = (x.device_ptr(), x.numel() as i64);
    let truth = i32::from(x.dtype() == Dtype::Bool);
    let args = cuda_args!(to, n, low, span, truth, seed, stream, place);
    let threads = gpu.for_each(x.numel().div_ceil(2));
    // SAFETY: a dense tensor of this type, which is new.
    unsafe { gpu.launch(kernel_of("randint", &INTEGERS, x.dtype()), threads, args) };
}

/// The result and the mask of dropout of the dense `x` with probability `p`.
#[track_caller]
pub(in crate::ops) fn dropout(gpu: Gpu, x: &Tensor, words: Words, p: f64) -> (Tensor, Tensor) {
    let (threshold, scale) = kept(p);
    let y = Tensor::empty(x.shape(), (x.dtype(), gpu.device()));
    let mask = Tensor::empty(x.shape(), (Dtype::Bool, gpu.device()));
    let Words { seed, stream, place } = words;
    let (to, kept, from) = (y.device_ptr(), mask.device_ptr(), x.device_ptr());
    let n = x.numel() as i64;
    let args = cuda_args!(to, kept, from, n, seed, stream, place, threshold, scale);
    let threads = gpu.for_each(x.numel().div_ceil(4));
    // SAFETY: dense tensors of one shape, of which two are new.
    unsafe { gpu.launch(kernel_of("dropout", &DROPOUT, x.dtype()), threads, args) };
    (y, mask)
}

/// `g mask scale` of dense tensors.
#[track_caller]
pub(super) fn apply_mask(gpu: Gpu, g: &Tensor, mask: &Tensor, scale: f64) -> Tensor {
    let out = Tensor::empty(g.shape(), (g.dtype(), gpu.device()));
    let (to, from, kept) = (out.device_ptr(), g.device_ptr(), mask.device_ptr());
    let n = g.numel() as i64;
    let args = cuda_args!(to, from, kept, n, scale);
    let threads = gpu.for_each(g.numel().div_ceil(4));
    // SAFETY: dense tensors of one shape, of which one is new.
    unsafe { gpu.launch(kernel_of("dropout", &DROPOUT_BACKWARD, g.dtype()), threads, args) };
    out
}
