//! Attention on a GPU: of halves by [`cudnn`](super::cudnn), and of all types by tiles ([`flash`](super::flash)), where
//! those take the sizes and [`backends::cuda`] lets them; else by products of queries and keys in the compute type, whose
//! rows become weights in place, and products of the weights and values.

use crate::cuda::{Kernel, Program, launch::Argument, launch::Shape as Grid, sources::program};
use smallvec::smallvec;

use super::cudnn;
use super::flash::{Call, Dropout};
use super::plan::{OP, Plan};
use crate::autograd::Grads;
use crate::backends;
use crate::cuda::cuda_args;
use crate::error::{Error, throw};
use crate::ops::{
    compute_type, gpu::Gpu, gpu::address, products::matmul::cuda::products, random::Words,
};
use crate::tensor::{Dtype, Tensor};

/// `Scores` of `kernels/attention.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Scores {
    scores: *mut u8,
    weights_gradient: *mut u8,
    logsum: *mut u8,
    mask: *const u8,
    rows: i64,
    queries: i64,
    keys: i64,
    low: i64,
    high: i64,
    scale: f64,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Scores {}

/// The entry points for a compute type.
struct Kernels {
    weights: Kernel,
    weights_backward: Kernel,
}

macro_rules! kernels {
    ($($kernels:ident $element:literal;)*) => {
        $(
        static $kernels: Kernels = {
            static PROGRAM: Program = program!("attention": "attention.cu")
            .options(&[concat!("--define-macro=ELEMENT=", $element)]);
            Kernels {
                weights: Kernel::new(&PROGRAM, "weights"),
                weights_backward: Kernel::new(&PROGRAM, "weights_backward"),
            }
        };
    )*

    /// The programs of all that are told apart.
    pub(in crate::ops) fn programs() -> Vec<&'static Program> {
        vec![$($kernels.weights.program()),*]
    }
    };
}

kernels! {
    SINGLES "float";
    DOUBLES "double";
}

#[track_caller]
fn kernels(dtype: Dtype) -> &'static Kernels {
    match dtype {
        Dtype::F32 => &SINGLES,
        Dtype::F64 => &DOUBLES,
        _ => throw(Error::dtype(
            "scaled_dot_product_attention",
            format!("{dtype} is not a floating-point dtype; convert with `.to_dtype`"),
        )),
    }
}

/// The operands in the compute type.
fn wide<const N: usize>(tensors: [&Tensor; N]) -> [Tensor; N] {
    tensors.map(compute_type::widen)
}

/// The products of queries and keys, and what the kernels are told of them.
#[track_caller]
fn scores(
    gpu: Gpu,
    plan: &Plan,
    q: &Tensor,
    k: &Tensor,
    mask: Option<&Tensor>,
    logsum: &Tensor,
) -> (Tensor, Option<Tensor>, Scores) {
    let a = plan.attention;
    let scores = products(gpu, q, &k.mt(), &plan.batch, (a.queries, a.keys, a.depth));
    let mask = mask.map(|m| compute_type::widen(&m.expand(scores.shape())));
    let told = Scores {
        scores: scores.device_ptr(),
        weights_gradient: std::ptr::null_mut(),
        logsum: logsum.device_ptr(),
        mask: address(mask.as_ref()),
        rows: (plan.count() * a.queries) as i64,
        queries: a.queries as i64,
        keys: a.keys as i64,
        low: a.band.low,
        high: a.band.high,
        scale: a.scale,
    };
    (scores, mask, told)
}

fn grid(rows: i64) -> Grid {
    Grid::row(rows.min(i64::from(i32::MAX)) as u32, 256)
}

/// A call of the kernels that go by tiles, if they take such.
pub(super) fn tiles(
    gpu: Gpu,
    plan: &Plan,
    qkv: [&Tensor; 3],
    mask: Option<&Tensor>,
) -> Option<Call> {
    backends::cuda::flash_sdp_enabled().then(|| Call::new(gpu, plan, qkv, mask))?
}

/// Throws where products of matrices are left to compute attention, and are forbidden.
#[track_caller]
pub(super) fn allow_products() {
    if !backends::cuda::math_sdp_enabled() {
        throw(Error::Device(format!(
            "{OP}: only products of matrices compute this here, and `backends::cuda::enable_math_sdp(false)` forbids them"
        )));
    }
}

/// Y of weights that are dropped with a probability, the logarithms of the sums, and what backward is to know. None
/// where the weights have to be there for it.
#[track_caller]
pub(super) fn dropped(
    gpu: Gpu,
    plan: &Plan,
    qkv: [&Tensor; 3],
    mask: Option<&Tensor>,
    p: f64,
) -> Option<(Tensor, Tensor, Dropout)> {
    let call = tiles(gpu, plan, qkv, mask)?;
    let rows = plan.with_batch([plan.attention.queries, 1]);
    let logsum = Tensor::uninitialised_on(&rows, qkv[0].dtype().compute(), gpu.device());
    let dropout = Dropout { p, words: Words::of_default(gpu) };
    let y = call.with(dropout).forward(gpu, plan, qkv[0].dtype(), &logsum);
    Some((y, logsum, dropout))
}

/// The gradients for [`dropped`].
#[track_caller]
pub(super) fn dropped_backward(
    gpu: Gpu,
    plan: &Plan,
    qkv: [&Tensor; 3],
    mask: Option<&Tensor>,
    (y, logsum): (&Tensor, &Tensor),
    dy: &Tensor,
    dropout: Dropout,
) -> Grads {
    let logsum = logsum.detach().contiguous();
    let call = Call::new(gpu, plan, qkv, mask).expect("forward made such a call");
    call.with(dropout).backward(gpu, plan, (y, &logsum), dy)
}

/// Y and the logarithms of the sums.
#[track_caller]
pub(super) fn forward(
    gpu: Gpu,
    plan: &Plan,
    [q, k, v]: [&Tensor; 3],
    mask: Option<&Tensor>,
) -> (Tensor, Tensor) {
    let (a, dtype) = (plan.attention, q.dtype());
    let logsum =
        Tensor::uninitialised_on(&plan.with_batch([a.queries, 1]), dtype.compute(), gpu.device());
    let of_cudnn = cudnn::Call::new(gpu, plan, [q, k, v], mask);
    if let Some(y) = of_cudnn.and_then(|call| call.forward(&logsum)) {
        return (y, logsum);
    }
    if let Some(call) = tiles(gpu, plan, [q, k, v], mask) {
        return (call.forward(gpu, plan, dtype, &logsum), logsum);
    }
    allow_products();
    let [q, k, v] = wide([q, k, v]);
    let (scores, _mask, told) = scores(gpu, plan, &q, &k, mask, &logsum);
    // SAFETY: the kernel takes one `Scores` of contiguous tensors on this GPU, whose sizes it has.
    unsafe { gpu.launch(&kernels(q.dtype()).weights, grid(told.rows), cuda_args!(told)) };
    let y = products(gpu, &scores, &v, &plan.batch, (a.queries, a.width, a.keys));
    (compute_type::narrow(y, dtype), logsum)
}

/// The gradients of queries, keys and values.
#[track_caller]
pub(super) fn backward(
    gpu: Gpu,
    plan: &Plan,
    [q, k, v]: [&Tensor; 3],
    mask: Option<&Tensor>,
    (y, logsum): (&Tensor, &Tensor),
    dy: &Tensor,
) -> Grads {
    let (a, dtype) = (plan.attention, q.dtype());
    let logsum = logsum.detach().contiguous();
    let of_cudnn = cudnn::Call::new(gpu, plan, [q, k, v], mask);
    if let Some(grads) = of_cudnn.and_then(|call| call.backward(y, &logsum, dy)) {
        return grads;
    }
    if let Some(call) = tiles(gpu, plan, [q, k, v], mask) {
        return call.backward(gpu, plan, (y, &logsum), dy);
    }
    let [q, k, v, dy] = wide([q, k, v, dy]);
    let (weights, _mask, mut told) = scores(gpu, plan, &q, &k, mask, &logsum);
    let gradient = products(gpu, &dy, &v.mt(), &plan.batch, (a.queries, a.keys, a.width));
    told.weights_gradient = gradient.device_ptr();
    // SAFETY: as for Y.
    unsafe { gpu.launch(&kernels(q.dtype()).weights_backward, grid(told.rows), cuda_args!(told)) };
    let product = |a: &Tensor, b: &Tensor, size| {
        Some(compute_type::narrow(products(gpu, a, b, &plan.batch, size), dtype))
    };
    smallvec![
        product(&gradient, &k, (a.queries, a.depth, a.keys)),
        product(&gradient.mt(), &q, (a.keys, a.depth, a.queries)),
        product(&weights.mt(), &dy, (a.keys, a.width, a.queries)),
        None
    ]
}
