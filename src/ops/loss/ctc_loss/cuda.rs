//! The loss of sequences of labels on a GPU: `kernels/ctc_loss.cu`.

use std::ptr::null_mut;

use smallvec::smallvec;

use super::span::Span;
use crate::autograd::record;
use crate::cuda::{
    family::Family, family::REALS, launch::Argument, launch::Shape, refusal::Refusal,
    refusal::Rule, sources::family,
};
use crate::error::{Error, throw};
use crate::ops::{compute_type, compute_type::dense, gpu::Gpu, gpu::format_of};
use crate::tensor::{Dtype, Scalar, Tensor};

pub(in crate::ops) static CTC: Family =
    family!("ctc_loss": "refusal.cuh", "ctc_loss.cu").with(&[(REALS, &["Ctc"])]);

/// Threads of a block: as in the kernels.
const THREADS: u32 = 256;

/// `Ctc` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Ctc {
    x: *mut u8,
    targets: *mut u8,
    spans: *mut u8,
    alphas: *mut u8,
    betas: *mut u8,
    losses: *mut u8,
    g: *mut u8,
    dx: *mut u8,
    links: *mut u8,
    steps: i64,
    samples: i64,
    classes: i64,
    width: i64,
    most: i64,
    blank: i64,
    zero_infinity: i32,
    reserved: i32,
    refusal: Refusal,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Ctc {}

/// One loss per sample; `x` is `[T, N, C]`. Classes among the targets are checked by the kernels.
#[track_caller]
pub(super) fn losses(
    gpu: Gpu,
    x: &Tensor,
    targets: &Tensor,
    spans: &[Span],
    blank: usize,
    zero_infinity: bool,
) -> Tensor {
    let (dtype, wide, device) = (x.dtype(), compute_type::widen(x), x.device());
    let [steps, samples, classes] = [x.shape()[0], x.shape()[1], x.shape()[2]];
    let targets = dense(&targets.to_device(device), Dtype::I64);
    let of = |number: fn(&Span) -> usize| spans.iter().map(move |span| number(span) as i64);
    let numbers: Vec<i64> =
        of(|s| s.steps).chain(of(|s| s.labels)).chain(of(|s| s.first)).collect();
    let numbers = Tensor::from(numbers).to_device(device);
    let most = spans.iter().map(|span| span.labels).max().unwrap_or(0);
    let width = 2 * most + 1;
    let ways = || Tensor::empty([samples, steps, width], (wide.dtype(), device));
    let (alphas, losses) = (ways(), Tensor::empty([samples], (wide.dtype(), device)));
    let task = Ctc {
        x: wide.device_ptr(),
        targets: targets.device_ptr(),
        spans: numbers.device_ptr(),
        alphas: alphas.device_ptr(),
        betas: null_mut(),
        losses: losses.device_ptr(),
        g: null_mut(),
        dx: null_mut(),
        links: null_mut(),
        steps: steps as i64,
        samples: samples as i64,
        classes: classes as i64,
        width: width as i64,
        most: most as i64,
        blank: blank as i64,
        zero_infinity: i32::from(zero_infinity),
        reserved: 0,
        refusal: gpu.refusal("ctc_loss", "targets", Rule::Class),
    };
    let format = format_of(wide.dtype());
    let shared = width * (2 * wide.dtype().size() + 4);
    let walk = Shape::row(samples as u32, THREADS).with_shared(shared);
    let start = move |entry, shape, task: Ctc| {
        // SAFETY: the kernel's parameter; dense tensors of these types and sizes.
        unsafe {
            gpu.launch(CTC.kernel(format, "Ctc", entry), shape, crate::cuda::cuda_args!(task))
        };
    };
    start("ctc_alphas", walk, task);
    let mut out = losses.clone();
    if zero_infinity {
        out = losses.masked_fill(&losses.eq(f64::INFINITY), Scalar::F(0.0));
    }
    record("ctc_loss", &[x], compute_type::narrow(out, dtype), |saver| {
        let saved = [&wide, &targets, &numbers, &alphas, &losses].map(|t| saver.save(t));
        move |ctx| {
            if ctx.create_graph() {
                throw(Error::Autograd("ctc_loss cannot be differentiated twice".into()));
            }
            let [x, targets, numbers, alphas, losses] = saved.each_ref().map(|t| ctx.get(t));
            let betas = Tensor::empty(alphas.shape(), (alphas.dtype(), device));
            let g = dense(&ctx.grad(0), x.dtype());
            let dx = Tensor::empty(x.shape(), (x.dtype(), device));
            let links = Tensor::empty([2, samples, most], (Dtype::I32, device));
            let task = Ctc {
                x: x.device_ptr(),
                targets: targets.device_ptr(),
                spans: numbers.device_ptr(),
                alphas: alphas.device_ptr(),
                betas: betas.device_ptr(),
                losses: losses.device_ptr(),
                g: g.device_ptr(),
                dx: dx.device_ptr(),
                links: links.device_ptr(),
                ..task
            };
            start("ctc_betas", walk, task);
            start("ctc_links", gpu.for_each(samples * most), task);
            start("ctc_gradient", Shape::plane(steps, samples, THREADS), task);
            smallvec![Some(compute_type::narrow(dx, dtype))]
        }
    })
}
