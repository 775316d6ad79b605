//! Lists of gradients on a GPU, in a few launches and without waiting: unscaled, measured, scaled.

use crate::autograd::no_grad;
use crate::cuda::cuda_args;
use crate::cuda::{Kernel, Program, launch::Argument, launch::Shape, sources::program, traffic};
use crate::loops::Format;
use crate::ops::gpu::{Gpu, address};
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static PROGRAM: Program = program!("gradients": "pieces.cuh", "gradients.cu");
static UNSCALE: Kernel = Kernel::new(&PROGRAM, "unscale");
static SCALE: Kernel = Kernel::new(&PROGRAM, "scale_by_norm");
static SCALE_BY: Kernel = Kernel::new(&PROGRAM, "scale_by");
static MEASURE: Kernel = Kernel::new(&PROGRAM, "measure");
static NORM: Kernel = Kernel::new(&PROGRAM, "finish_norm");

/// Elements of a block's piece, tensors of a launch: as in `kernels/gradients.cu`.
const PIECE: usize = 16384;
const MOST_TENSORS: usize = 128;

/// `List` of `kernels/gradients.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct List {
    at: [*mut u8; MOST_TENSORS],
    counts: [i64; MOST_TENSORS],
    blocks: [i32; MOST_TENSORS],
    formats: [i32; MOST_TENSORS],
    tensors: i32,
    reserved: i32,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for List {}

impl List {
    /// Bytes of all, if they are f32.
    fn bytes(&self) -> usize {
        self.counts.iter().sum::<i64>() as usize * size_of::<f32>()
    }
}

fn format(dtype: Dtype) -> i32 {
    let format = match dtype {
        Dtype::F64 => Format::F64,
        Dtype::F32 => Format::F32,
        Dtype::F16 => Format::F16,
        _ => Format::BF16,
    };
    format as i32
}

/// The GPU that all of the tensors are on, where they are dense, of floating point, and there is one.
pub(crate) fn common_gpu(tensors: &[Tensor]) -> Option<Gpu> {
    let device = tensors.first()?.device();
    let fits = |t: &Tensor| {
        t.device() == device
            && t.dtype().is_floating_point()
            && t.layout().is_non_overlapping_and_dense()
            && t.numel() / PIECE < i32::MAX as usize
    };
    let index = device.kernels()?;
    tensors.iter().all(fits).then_some(Gpu { index })
}

/// Tensors by launches, each with its number of blocks.
fn lists(tensors: &[Tensor]) -> impl Iterator<Item = (List, u32)> {
    let mut left = tensors.iter().filter(|t| t.numel() > 0).peekable();
    std::iter::from_fn(move || {
        left.peek()?;
        let mut list = List {
            at: [std::ptr::null_mut(); MOST_TENSORS],
            counts: [0; MOST_TENSORS],
            blocks: [0; MOST_TENSORS],
            formats: [0; MOST_TENSORS],
            tensors: 0,
            reserved: 0,
        };
        let (mut k, mut blocks) = (0, 0usize);
        while k < MOST_TENSORS
            && let Some(t) =
                left.next_if(|t| blocks + t.numel().div_ceil(PIECE) <= i32::MAX as usize)
        {
            list.at[k] = t.device_ptr();
            (list.counts[k], list.blocks[k]) = (t.numel() as i64, blocks as i32);
            list.formats[k] = format(t.dtype());
            blocks += t.numel().div_ceil(PIECE);
            k += 1;
        }
        list.tensors = k as i32;
        Some((list, blocks as u32))
    })
}

/// Multiplies all by `factor`; a number on the GPU that is 1 where one was infinite or NaN, else 0.
#[track_caller]
pub(crate) fn unscale(gpu: Gpu, grads: &[Tensor], factor: f64) -> Tensor {
    grads.iter().for_each(|grad| grad.assert_writable("unscale_"));
    let found = Tensor::zeros([], (Dtype::F32, gpu.device()));
    let flag = found.device_ptr();
    for (list, blocks) in lists(grads) {
        let args = cuda_args!(list, factor, flag);
        traffic::rewritten(|| list.bytes());
        // SAFETY: dense tensors of these types and sizes, and a number; `common_gpu` looked.
        unsafe { gpu.launch(&UNSCALE, Shape::row(blocks, 256), args) };
    }
    grads.iter().for_each(|grad| grad.storage().bump_version());
    found
}

/// The norm of all taken together, of an order above 0, as a number of f64 on the GPU.
#[track_caller]
pub(crate) fn total_norm(gpu: Gpu, tensors: &[Tensor], order: f64) -> Tensor {
    // The kernels' sign for the largest.
    let order = if order.is_infinite() { 0.0 } else { order };
    let pieces: usize = lists(tensors).map(|(_, blocks)| blocks as usize).sum();
    let parts = Tensor::empty([pieces], (Dtype::F64, gpu.device()));
    let mut at = parts.device_ptr().cast::<f64>();
    for (list, blocks) in lists(tensors) {
        let args = cuda_args!(list, order, at);
        // SAFETY: dense tensors of these types and sizes, and a place for each block.
        unsafe { gpu.launch(&MEASURE, Shape::row(blocks, 256), args) };
        at = at.wrapping_add(blocks as usize);
    }
    let out = Tensor::empty([], (Dtype::F64, gpu.device()));
    let (from, count, to) = (parts.device_ptr(), pieces as i64, out.device_ptr());
    // SAFETY: all pieces, and one number.
    unsafe { gpu.launch(&NORM, Shape::row(1, 256), cuda_args!(from, count, order, to)) };
    out
}

/// Multiplies by `number`, over `divisor` if there is one, and by 0 where that is 0; both are numbers on the GPU.
#[track_caller]
pub(crate) fn scale_by(gpu: Gpu, tensors: &[Tensor], number: &Tensor, divisor: Option<&Tensor>) {
    let (from, from_format) = (number.device_ptr(), format(number.dtype()));
    let (over, over_format) = (address(divisor), divisor.map_or(0, |d| format(d.dtype())));
    for (list, blocks) in lists(tensors) {
        let args = cuda_args!(list, from, from_format, over, over_format);
        traffic::rewritten(|| list.bytes());
        // SAFETY: dense tensors of these types and sizes; two numbers at the most.
        unsafe { gpu.launch(&SCALE_BY, Shape::row(blocks, 256), args) };
    }
    tensors.iter().for_each(|t| t.storage().bump_version());
}

/// Multiplies by `most / (norm + 1e-6)` where that is below 1 or NaN; `norm` is a number on the GPU.
#[track_caller]
pub(crate) fn scale_by_norm(gpu: Gpu, grads: &[Tensor], most: f64, norm: &Tensor) {
    grads.iter().for_each(|grad| grad.assert_writable("clip_grad_norm_"));
    let norm = no_grad(|| norm.detach().to_dtype(Dtype::F64));
    let (number, format) = (norm.device_ptr(), format(Dtype::F64));
    for (list, blocks) in lists(grads) {
        let args = cuda_args!(list, most, number, format);
        traffic::rewritten(|| list.bytes());
        // SAFETY: dense tensors of these types and sizes; one number.
        unsafe { gpu.launch(&SCALE, Shape::row(blocks, 256), args) };
    }
    grads.iter().for_each(|grad| grad.storage().bump_version());
}
