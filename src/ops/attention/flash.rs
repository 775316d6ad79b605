//! Attention of halves on a GPU by tiles that never leave a block of threads: `kernels/flash.cu`.

use crate::cuda::{Kernel, Program, launch::Argument, launch::Shape as Grid, sources::kernel_text};
use smallvec::smallvec;

use super::plan::Plan;
use crate::autograd::Grads;
use crate::cuda::cuda_args;
use crate::ops::{gpu::Gpu, gpu::address, random::Words, random::kept};
use crate::tensor::{Dtype, Shape, Tensor};

/// Batch dimensions that are left when neighbours are joined: what the kernels have room for.
const MOST_BATCH_DIMS: usize = 4;
/// Queries and keys of a tile.
const SIDE: usize = 64;
/// Threads of a block.
const THREADS: u32 = 128;

/// `Operand` of `kernels/flash.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Operand {
    at: *const u8,
    row: i64,
    batch: [i64; MOST_BATCH_DIMS],
}

/// `Attention` of `kernels/flash.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Attention {
    q: Operand,
    k: Operand,
    v: Operand,
    mask: Operand,
    out: *mut u8,
    logsum: *mut u8,
    dy: *const u8,
    along: *mut u8,
    dq: *mut u8,
    dk: *mut u8,
    dv: *mut u8,
    batch: i64,
    batch_sizes: [i64; MOST_BATCH_DIMS],
    queries: i64,
    keys: i64,
    depth: i64,
    width: i64,
    mask_column: i64,
    causal: i64,
    scale: f32,
    kept: f32,
    threshold: u64,
    seed: u64,
    stream: u64,
    place: *const u64,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Attention {}

/// The entry points for a dtype and a number of features.
struct Kernels {
    forward: Kernel,
    queries: Kernel,
    keys: Kernel,
}

macro_rules! kernels {
    ($($kernels:ident $element:literal $features:literal $drops:literal;)*) => {
        $(
        static $kernels: Kernels = {
            static PROGRAM: Program =
                Program::new(
                    "flash",
                    kernel_text!("prelude.cuh", "philox.cuh", "warp.cuh", "tile.cuh"),
                    kernel_text!("flash.cu"),
                )
                .options(&[
                    concat!("--define-macro=ELEMENT=", $element),
                    concat!("--define-macro=DIM=", $features),
                    concat!("--define-macro=DROPS=", $drops),
                ]);
            Kernels {
                forward: Kernel::new(&PROGRAM, "flash"),
                queries: Kernel::new(&PROGRAM, "flash_queries"),
                keys: Kernel::new(&PROGRAM, "flash_keys"),
            }
        };
    )*

    /// The programs of all that are told apart.
    pub(in crate::ops) fn programs() -> Vec<&'static Program> {
        vec![$($kernels.forward.program()),*]
    }
    };
}

kernels! {
    HALVES_64 "f16" "64" "0";
    HALVES_128 "f16" "128" "0";
    BRAIN_HALVES_64 "bf16" "64" "0";
    BRAIN_HALVES_128 "bf16" "128" "0";
    DROPPED_HALVES_64 "f16" "64" "1";
    DROPPED_BRAIN_HALVES_64 "bf16" "64" "1";
}

/// Dropout of the weights: forward and backward draw the same words again.
#[derive(Clone, Copy)]
pub(super) struct Dropout {
    pub(super) p: f64,
    pub(super) words: Words,
}

/// A call's operands, as the kernels want them.
pub(super) struct Call {
    /// Queries, keys, values and the mask, which the addresses are of.
    _operands: [Option<Tensor>; 4],
    told: Attention,
    kernels: &'static Kernels,
    /// Bytes of 64 rows of features.
    rows: usize,
}

/// The tensor, if its rows can be copied sixteen bytes at a time, or else a contiguous copy.
fn copied(t: &Tensor) -> Tensor {
    let t = t.detach();
    let n = t.dim();
    let steps =
        t.strides()[..n - 1].iter().zip(t.shape()).all(|(step, size)| *size == 1 || step % 8 == 0);
    let aligned = (t.device_ptr() as usize).is_multiple_of(16);
    if t.strides()[n - 1] == 1 && steps && aligned { t } else { t.clone_contiguous().detach() }
}

impl Call {
    /// A call of the kernels, of those that drop weights or of the others, if they take such.
    pub(super) fn new(
        plan: &Plan,
        [q, k, v]: [&Tensor; 3],
        mask: Option<&Tensor>,
        drops: bool,
    ) -> Option<Call> {
        let a = plan.attention;
        if !plan.fits_halves() {
            return None;
        }
        // For dropout of more than 64 features there are too few registers.
        let (kernels, dim) = match (q.dtype(), a.depth.max(a.width) <= 64, drops) {
            (Dtype::F16, true, false) => (&HALVES_64, 64),
            (Dtype::F16, true, true) => (&DROPPED_HALVES_64, 64),
            (Dtype::F16, false, false) => (&HALVES_128, 128),
            (Dtype::BF16, true, false) => (&BRAIN_HALVES_64, 64),
            (Dtype::BF16, true, true) => (&DROPPED_BRAIN_HALVES_64, 64),
            (Dtype::BF16, false, false) => (&BRAIN_HALVES_128, 128),
            _ => return None,
        };
        let wide = |t: &Tensor, rows: usize, columns: usize| {
            let mut shape = Shape::from_slice(&plan.batch);
            shape.extend([rows, columns]);
            t.expand(&shape)
        };
        let operands = [
            Some(wide(&copied(q), a.queries, a.depth)),
            Some(wide(&copied(k), a.keys, a.depth)),
            Some(wide(&copied(v), a.keys, a.width)),
            mask.map(|m| wide(&m.detach(), a.queries, a.keys)),
        ];
        let dims = joined(&plan.batch, &operands)?;
        let operand = |which: usize| {
            let mut batch = [0; MOST_BATCH_DIMS];
            batch.iter_mut().zip(&dims).for_each(|(step, (_, steps))| *step = steps[which]);
            let n = plan.batch.len();
            let t = operands[which].as_ref();
            let at = address(t);
            Operand { at, row: t.map_or(0, |t| t.strides()[n] as i64), batch }
        };
        let mut batch_sizes = [1; MOST_BATCH_DIMS];
        batch_sizes.iter_mut().zip(&dims).for_each(|(size, dim)| *size = dim.0);
        let nowhere = std::ptr::null_mut();
        let told = Attention {
            q: operand(0),
            k: operand(1),
            v: operand(2),
            mask: operand(3),
            out: nowhere,
            logsum: nowhere,
            dy: nowhere,
            along: nowhere,
            dq: nowhere,
            dk: nowhere,
            dv: nowhere,
            batch: plan.count() as i64,
            batch_sizes,
            queries: a.queries as i64,
            keys: a.keys as i64,
            depth: a.depth as i64,
            width: a.width as i64,
            mask_column: operands[3].as_ref().map_or(0, |m| m.strides()[m.dim() - 1] as i64),
            causal: i64::from(a.causal),
            scale: a.scale as f32,
            kept: 1.0,
            threshold: 0,
            seed: 0,
            stream: 0,
            place: std::ptr::null(),
        };
        Some(Call { _operands: operands, told, kernels, rows: SIDE * (dim + 8) * 2 })
    }

    /// The same, of kernels that drop weights, with this dropout.
    pub(super) fn with(mut self, dropout: Dropout) -> Call {
        let (threshold, kept) = kept(dropout.p);
        let Words { seed, stream, place } = dropout.words;
        let place = place as *const u64;
        self.told = Attention { kept: kept as f32, threshold, seed, stream, place, ..self.told };
        self
    }

    #[track_caller]
    fn launch(
        &self,
        gpu: Gpu,
        kernel: &'static Kernel,
        told: Attention,
        sides: i64,
        shared: usize,
    ) {
        let blocks = (told.batch * (sides as usize).div_ceil(SIDE) as i64).min(i64::from(i32::MAX));
        let grid = Grid::row(blocks as u32, THREADS).with_shared(shared);
        // SAFETY: the kernel takes one `Attention` of tensors on this GPU, whose sizes and distances it has; what it
        // writes is new and contiguous.
        unsafe { gpu.launch(kernel, grid, cuda_args!(told)) };
    }

    /// Y; the logarithms of the sums go to a dense tensor.
    #[track_caller]
    pub(super) fn forward(&self, gpu: Gpu, plan: &Plan, dtype: Dtype, logsum: &Tensor) -> Tensor {
        let a = plan.attention;
        let y =
            Tensor::uninitialised_on(&plan.with_batch([a.queries, a.width]), dtype, gpu.device());
        let told = Attention { out: y.device_ptr(), logsum: logsum.device_ptr(), ..self.told };
        let shared = 3 * self.rows + SIDE * ((SIDE + 8) * 2 + (SIDE + 4) * 4 + 4);
        self.launch(gpu, &self.kernels.forward, told, told.queries, shared);
        y
    }

    /// The gradients of queries, keys and values.
    #[track_caller]
    pub(super) fn backward(
        &self,
        gpu: Gpu,
        plan: &Plan,
        (y, logsum): (&Tensor, &Tensor),
        dy: &Tensor,
    ) -> Grads {
        let (a, dtype) = (plan.attention, y.dtype());
        let (y, dy) = (y.detach().contiguous(), copied(&dy.detach().contiguous()));
        let new = |rows, columns| {
            Tensor::uninitialised_on(&plan.with_batch([rows, columns]), dtype, gpu.device())
        };
        let (dq, dk, dv) = (new(a.queries, a.depth), new(a.keys, a.depth), new(a.keys, a.width));
        let along =
            Tensor::uninitialised_on(&plan.with_batch([a.queries, 1]), Dtype::F32, gpu.device());
        let told = Attention {
            out: y.device_ptr(),
            logsum: logsum.device_ptr(),
            dy: dy.device_ptr(),
            along: along.device_ptr(),
            dq: dq.device_ptr(),
            dk: dk.device_ptr(),
            dv: dv.device_ptr(),
            ..self.told
        };
        let weights = SIDE * (SIDE + 8) * 2;
        let shared = 4 * self.rows + weights + 2 * SIDE * 4;
        self.launch(gpu, &self.kernels.queries, told, told.queries, shared);
        self.launch(gpu, &self.kernels.keys, told, told.keys, shared + weights);
        smallvec![Some(dq), Some(dk), Some(dv), None]
    }
}

/// Batch dimensions of more than one item, neighbours joined where all operands allow it: sizes, and each operand's
/// distances. None if they are too many.
fn joined(batch: &[usize], operands: &[Option<Tensor>; 4]) -> Option<Vec<(i64, [i64; 4])>> {
    let mut dims: Vec<(i64, [i64; 4])> = Vec::new();
    for (d, &size) in batch.iter().enumerate().filter(|(_, size)| **size != 1) {
        let size = size as i64;
        let steps = operands.each_ref().map(|t| t.as_ref().map_or(0, |t| t.strides()[d] as i64));
        match dims.last_mut() {
            Some((count, last)) if (0..4).all(|k| last[k] == steps[k] * size) => {
                (*count, *last) = (*count * size, steps);
            }
            _ => dims.push((size, steps)),
        }
    }
    (dims.len() <= MOST_BATCH_DIMS).then_some(dims)
}
