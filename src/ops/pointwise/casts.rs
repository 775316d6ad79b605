//! Casts of many tensors at once: as a whole model's parameters to half precision, and their gradients back. On a GPU a few
//! launches do what would be one for each.

use smallvec::{SmallVec, smallvec};

use crate::amp::Place;
use crate::autograd::{BackwardCtx, Grads, no_grad, record, record_many};
use crate::cuda::{Kernel, Program, cuda_args, launch::Argument, launch::Shape, sources::program};
use crate::ops::{MemoryFormat, gpu::Gpu};
use crate::tensor::{Dtype, Layout, Tensor};

pub(in crate::ops) static PROGRAM: Program = program!("casts": "pieces.cuh", "casts.cu");
static TO_F16: Kernel = Kernel::new(&PROGRAM, "cast_to_f16");
static TO_BF16: Kernel = Kernel::new(&PROGRAM, "cast_to_bf16");
static OF_F16: Kernel = Kernel::new(&PROGRAM, "cast_of_f16");
static OF_BF16: Kernel = Kernel::new(&PROGRAM, "cast_of_bf16");

/// Elements of a block's piece, tensors of a launch: as in `kernels/casts.cu`.
const PIECE: usize = 8192;
const MOST_TENSORS: usize = 96;

/// `Casts` of `kernels/casts.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Casts {
    from: [*mut u8; MOST_TENSORS],
    to: [*mut u8; MOST_TENSORS],
    counts: [i64; MOST_TENSORS],
    blocks: [i32; MOST_TENSORS],
    outer: [i32; MOST_TENSORS],
    inner: [i32; MOST_TENSORS],
    tensors: i32,
    reserved: i32,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Casts {}

fn kernel(from: Dtype, to: Dtype) -> Option<&'static Kernel> {
    Some(match (from, to) {
        (Dtype::F32, Dtype::F16) => &TO_F16,
        (Dtype::F32, Dtype::BF16) => &TO_BF16,
        (Dtype::F16, Dtype::F32) => &OF_F16,
        (Dtype::BF16, Dtype::F32) => &OF_BF16,
        _ => return None,
    })
}

/// Elements that keep what lies behind them as aligned as a new tensor.
const ALIGNED: usize = 256;

impl Tensor {
    /// The tensors as `dtype`, each as [`Tensor::to_dtype`] makes it, but that they lie as is said, where they are cast
    /// together. Gradients of those that nobody watches are cast together too, when all are there. They lie row by row.
    #[track_caller]
    pub(crate) fn to_dtype_each(tensors: &[Tensor], dtype: Dtype, places: &[Place]) -> Vec<Tensor> {
        let Some((gpu, kernel)) = together(tensors, dtype, false) else {
            return tensors.iter().map(|t| t.to_dtype(dtype)).collect();
        };
        let outputs = cast(gpu, kernel, tensors, dtype, places);
        let inputs: Vec<&Tensor> = tensors.iter().collect();
        if inputs.iter().any(|t| t.is_watched()) {
            // As of a model that sends each gradient on its way when it is there.
            let each = tensors.iter().zip(outputs);
            return each.map(|(t, output)| alone(t, output)).collect();
        }
        let own = tensors[0].dtype();
        record_many("to_dtype", &inputs, &outputs, |_| move |ctx: &BackwardCtx| back(ctx, own));
        outputs
    }
}

/// A cast that is recorded by itself; its gradient comes back row by row.
#[track_caller]
fn alone(t: &Tensor, output: Tensor) -> Tensor {
    let own = t.dtype();
    record("to_dtype", &[t], output, |_| {
        move |ctx: &BackwardCtx| {
            let g = ctx.grad(0);
            let grad = match ctx.create_graph() || g.is_contiguous() {
                true => g.to_dtype(own),
                false => no_grad(|| {
                    Tensor::uninitialised_on(g.shape(), own, g.device()).copy_(&g).clone()
                }),
            };
            smallvec![Some(grad)]
        }
    })
}

/// Those gradients that are there, as `dtype`.
fn back(ctx: &BackwardCtx, dtype: Dtype) -> Grads {
    let inputs = ctx.grads.len();
    let there: Vec<usize> =
        (0..inputs).filter(|&i| ctx.grads[i].is_some() && ctx.needs(i)).collect();
    let grads: Vec<Tensor> = there.iter().map(|&i| ctx.grad(i)).collect();
    let mut all: Grads = SmallVec::from_elem(None, inputs);
    let cast: Vec<Tensor> = match ctx.create_graph() {
        true => grads.iter().map(|grad| grad.to_dtype(dtype)).collect(),
        false => no_grad(|| {
            let dense = |t: &Tensor| if turned(t).is_some() { t.clone() } else { t.contiguous() };
            let grads: Vec<Tensor> = grads.iter().map(dense).collect();
            match together(&grads, dtype, true) {
                Some((gpu, kernel)) => cast(gpu, kernel, &grads, dtype, &[]),
                None => grads.iter().map(|t| t.contiguous().to_dtype(dtype)).collect(),
            }
        }),
    };
    for (i, grad) in there.into_iter().zip(cast) {
        all[i] = Some(grad);
    }
    all
}

/// What the channels change places with, of a tensor of which they lie last though they are its second dimension: their
/// number and that of places.
fn turned(t: &Tensor) -> Option<[usize; 2]> {
    let lies_last = !t.is_contiguous() && t.dim() > 2 && t.is_contiguous_in(last(t)?);
    lies_last.then(|| planes(t))
}

fn last(t: &Tensor) -> Option<MemoryFormat> {
    match t.dim() {
        4 => Some(MemoryFormat::ChannelsLast),
        5 => Some(MemoryFormat::ChannelsLast3d),
        _ => None,
    }
}

/// Channels, and places of each.
fn planes(t: &Tensor) -> [usize; 2] {
    [t.shape()[1], t.shape()[2..].iter().product()]
}

/// The GPU and the kernel for all, where they are dense, or may lie with channels last, and there are several.
fn together(tensors: &[Tensor], dtype: Dtype, lies: bool) -> Option<(Gpu, &'static Kernel)> {
    let [first, _, ..] = tensors else { return None };
    let (device, from) = (first.device(), first.dtype());
    let fits = |t: &Tensor| {
        t.device() == device
            && t.dtype() == from
            && (t.is_contiguous() || (lies && turned(t).is_some()))
            && t.numel() / PIECE < i32::MAX as usize / MOST_TENSORS
    };
    let gpu = Gpu { index: device.kernels()? };
    tensors.iter().all(fits).then_some((gpu, kernel(from, dtype)?))
}

/// New tensors for the casts, which lie as is said.
#[track_caller]
fn new_places(gpu: Gpu, tensors: &[Tensor], dtype: Dtype, places: &[Place]) -> Vec<Tensor> {
    let place = |i: usize| places.get(i).copied().unwrap_or_default();
    let mut outputs = Vec::with_capacity(tensors.len());
    while let Some(t) = tensors.get(outputs.len()) {
        let first = outputs.len();
        if let (true, Some(last)) = (place(first).channels_last, last(t)) {
            outputs.push(Tensor::empty_in(t.shape(), (dtype, gpu.device()), last));
            continue;
        }
        let mut end = first + 1;
        while end < tensors.len()
            && place(end).follows
            && tensors[end - 1].numel().is_multiple_of(ALIGNED)
        {
            end += 1;
        }
        let count = tensors[first..end].iter().map(Tensor::numel).sum();
        let all = Tensor::uninitialised_on(&[count], dtype, gpu.device());
        let mut offset = 0;
        for t in &tensors[first..end] {
            let layout = Layout { offset, ..Layout::contiguous(t.shape()) };
            outputs.push(Tensor::from_parts(all.storage().clone(), layout, dtype));
            offset += t.numel();
        }
    }
    outputs
}

/// The casts, new tensors that lie as is said.
#[track_caller]
fn cast(
    gpu: Gpu,
    kernel: &'static Kernel,
    tensors: &[Tensor],
    dtype: Dtype,
    places: &[Place],
) -> Vec<Tensor> {
    let _span = crate::profiler::op("copy");
    let outputs = new_places(gpu, tensors, dtype, places);
    let pairs: Vec<(&Tensor, &Tensor)> =
        tensors.iter().zip(&outputs).filter(|(t, _)| t.numel() > 0).collect();
    for some in pairs.chunks(MOST_TENSORS) {
        let mut all = Casts {
            from: [std::ptr::null_mut(); MOST_TENSORS],
            to: [std::ptr::null_mut(); MOST_TENSORS],
            counts: [0; MOST_TENSORS],
            blocks: [0; MOST_TENSORS],
            outer: [0; MOST_TENSORS],
            inner: [0; MOST_TENSORS],
            tensors: some.len() as i32,
            reserved: 0,
        };
        let mut blocks = 0;
        for (k, (from, to)) in some.iter().enumerate() {
            (all.from[k], all.to[k]) = (from.device_ptr(), to.device_ptr());
            (all.counts[k], all.blocks[k]) = (from.numel() as i64, blocks as i32);
            let places = match (turned(from), turned(to)) {
                (None, Some([channels, places])) => [places, channels],
                (Some([channels, places]), None) => [channels, places],
                _ => [0, 0],
            };
            [all.outer[k], all.inner[k]] = places.map(|size| size as i32);
            blocks += from.numel().div_ceil(PIECE);
        }
        // SAFETY: dense tensors of these types and sizes, of which the results are new.
        unsafe { gpu.launch(kernel, Shape::row(blocks as u32, 256), cuda_args!(all)) };
    }
    outputs
}
