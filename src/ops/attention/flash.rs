//! Attention on a GPU by tiles that never leave a block of threads: `kernels/flash.cu`, for all floating-point types and up
//! to 256 features.

use crate::cuda::{
    Kernel, Program, device, launch::Argument, launch::Shape as Grid, sources::kernel_text,
};
use smallvec::smallvec;

use super::plan::Plan;
use super::varlen::Lengths;
use crate::autograd::{Grads, no_grad};
use crate::cuda::cuda_args;
use crate::error::throw;
use crate::ops::{gpu::Gpu, gpu::address, random::Words, random::kept};
use crate::tensor::{Dtype, Shape, Tensor};

/// Batch dimensions that are left when neighbours are joined: what the kernels have room for.
const MOST_BATCH_DIMS: usize = 4;
/// Bytes that one instruction copies: features are a multiple of so many.
const VECTOR: usize = 16;

/// `Operand` of `kernels/flash.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Operand {
    at: *const u8,
    row: i64,
    batch: [i64; MOST_BATCH_DIMS],
}

/// `Lies` of `kernels/flash.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Lies {
    item: i64,
    row: i64,
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
    of_y: Lies,
    of_q: Lies,
    of_k: Lies,
    of_v: Lies,
    batch: i64,
    batch_sizes: [i64; MOST_BATCH_DIMS],
    queries: i64,
    keys: i64,
    depth: i64,
    width: i64,
    mask_column: i64,
    low: i64,
    high: i64,
    q_starts: *const u8,
    k_starts: *const u8,
    sequences: i64,
    query_blocks: i64,
    key_blocks: i64,
    scale: f64,
    kept: f64,
    threshold: u64,
    seed: u64,
    stream: u64,
    place: *const u64,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Attention {}

/// The entry points for a dtype and a number of features, and their tiles.
struct Kernels {
    dtype: Dtype,
    features: usize,
    /// Rows of a block, those of the other side that it takes at a time, and its threads.
    rows: usize,
    step: usize,
    threads: u32,
    forward: Kernel,
    queries: Kernel,
    keys: Kernel,
}

macro_rules! kernels {
    ($($kernels:ident $dtype:ident $element:literal $features:literal: $rows:literal $step:literal $threads:literal;)*) => {
        $(
        static $kernels: Kernels = {
            static PROGRAM: Program =
                Program::new(
                    "flash",
                    kernel_text!("prelude.cuh", "philox.cuh", "warp.cuh", "tile.cuh", "flash_tile.cuh"),
                    kernel_text!("flash.cu"),
                )
                .options(&[
                    concat!("--define-macro=ELEMENT=", $element),
                    concat!("--define-macro=DIM=", $features),
                    concat!("--define-macro=TILE_ROWS=", $rows),
                    concat!("--define-macro=TILE_STEP=", $step),
                    concat!("--define-macro=TILE_THREADS=", $threads),
                ]);
            Kernels {
                dtype: Dtype::$dtype,
                features: $features,
                rows: $rows,
                step: $step,
                threads: $threads,
                forward: Kernel::new(&PROGRAM, "flash"),
                queries: Kernel::new(&PROGRAM, "flash_queries"),
                keys: Kernel::new(&PROGRAM, "flash_keys"),
            }
        };
    )*

    /// All that are told apart; of a type, those for fewer features first.
    static ALL: &[&Kernels] = &[$(&$kernels),*];
    };
}

// `kernels/flash.cu` says what these tiles need of a multiprocessor.
kernels! {
    HALVES_64 F16 "f16" 64: 64 64 128;
    HALVES_128 F16 "f16" 128: 64 32 128;
    HALVES_256 F16 "f16" 256: 64 32 256;
    BRAIN_HALVES_64 BF16 "bf16" 64: 64 64 128;
    BRAIN_HALVES_128 BF16 "bf16" 128: 64 32 128;
    BRAIN_HALVES_256 BF16 "bf16" 256: 64 32 256;
    SINGLES_64 F32 "float" 64: 64 32 128;
    SINGLES_128 F32 "float" 128: 32 16 128;
    SINGLES_256 F32 "float" 256: 32 16 128;
    DOUBLES_64 F64 "double" 64: 32 16 128;
    DOUBLES_128 F64 "double" 128: 16 16 128;
    DOUBLES_256 F64 "double" 256: 16 8 128;
}

/// Their programs.
pub(in crate::ops) fn programs() -> Vec<&'static Program> {
    ALL.iter().map(|kernels| kernels.forward.program()).collect()
}

impl Kernels {
    /// Bytes of dynamic shared memory of the three kernels.
    fn shared(&self) -> [usize; 3] {
        let (size, wide) = (self.dtype.size(), self.dtype.compute().size());
        // Two stages of two operands.
        let line = self.features * size + VECTOR;
        let parts = 4 * self.step * line;
        let by_keys = self.rows * (self.step * size + VECTOR);
        let by_queries = self.step * (self.rows * size + VECTOR);
        [
            self.rows * (line + self.step * wide + VECTOR + wide) + parts,
            2 * self.rows * (line + wide) + parts + by_keys,
            2 * self.rows * line + parts + 2 * by_queries + 2 * self.step * wide,
        ]
    }

    /// Whether a block has its shared memory on a GPU.
    #[track_caller]
    fn fits(&self, gpu: Gpu) -> bool {
        /// What warps show each other on GPUs without tensor cores for these types: `kernels/warp.cuh`.
        const SHOWN: usize = 8 * 32 * 7 * 8;
        let figures = device::properties(gpu.index).unwrap_or_else(|error| throw(error));
        let shown = if figures.capability.0 < 8 { SHOWN } else { 0 };
        let most = self.shared().into_iter().max().unwrap_or(0);
        most + shown <= figures.shared_memory_per_block_optin
    }
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
    /// Features of queries and keys, and of values, as the kernels have them: a multiple of [`VECTOR`].
    features: [usize; 2],
    packed: Option<Lengths>,
}

/// Features, so many that their bytes are a multiple of [`VECTOR`].
fn padded(features: usize, dtype: Dtype) -> usize {
    features.next_multiple_of(VECTOR / dtype.size())
}

/// The tensor, if its rows can be copied sixteen bytes at a time, or else a contiguous copy, with zeros at the rows' ends.
fn copied(t: &Tensor) -> Tensor {
    let t = t.detach();
    let (n, each) = (t.dim(), VECTOR / t.dtype().size());
    let features = t.shape()[n - 1];
    let more = padded(features, t.dtype()) - features;
    if more > 0 {
        return t.constant_pad_nd(&[0, more as i64], 0).contiguous().detach();
    }
    let steps = t.strides()[..n - 1]
        .iter()
        .zip(t.shape())
        .all(|(step, size)| *size == 1 || step % each as isize == 0);
    let aligned = (t.device_ptr() as usize).is_multiple_of(VECTOR);
    if t.strides()[n - 1] == 1 && steps && aligned { t } else { t.clone_contiguous().detach() }
}

/// Without the zeros at the rows' ends.
fn cut(t: Tensor, features: usize) -> Tensor {
    let n = t.dim();
    if t.shape()[n - 1] == features {
        return t;
    }
    t.narrow(n as i64 - 1, 0, features).clone_contiguous().detach()
}

impl Call {
    /// A call of the kernels, if they take such.
    #[track_caller]
    pub(super) fn new(
        gpu: Gpu,
        plan: &Plan,
        [q, k, v]: [&Tensor; 3],
        mask: Option<&Tensor>,
    ) -> Option<Call> {
        let (a, dtype) = (plan.attention, q.dtype());
        if plan.count() * a.depth * a.width == 0 {
            return None;
        }
        let features = [a.depth, a.width].map(|n| padded(n, dtype));
        let most = features[0].max(features[1]);
        let kernels = *ALL.iter().find(|k| k.dtype == dtype && k.features >= most)?;
        if !kernels.fits(gpu) {
            return None;
        }
        let wide = |t: &Tensor, rows: usize, columns: usize| {
            let mut shape = Shape::from_slice(&plan.batch);
            shape.extend([rows, columns]);
            t.expand(&shape)
        };
        let operands = no_grad(|| {
            [
                Some(wide(&copied(q), a.queries, features[0])),
                Some(wide(&copied(k), a.keys, features[0])),
                Some(wide(&copied(v), a.keys, features[1])),
                mask.map(|m| wide(&m.detach(), a.queries, a.keys)),
            ]
        });
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
        let dense = |rows: usize, columns: usize| Lies {
            item: (rows * columns) as i64,
            row: columns as i64,
        };
        let blocks = |n: usize| n.div_ceil(kernels.rows) as i64;
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
            of_y: dense(a.queries, features[1]),
            of_q: dense(a.queries, features[0]),
            of_k: dense(a.keys, features[0]),
            of_v: dense(a.keys, features[1]),
            batch: plan.count() as i64,
            batch_sizes,
            queries: a.queries as i64,
            keys: a.keys as i64,
            depth: features[0] as i64,
            width: features[1] as i64,
            mask_column: operands[3].as_ref().map_or(0, |m| m.strides()[m.dim() - 1] as i64),
            low: a.band.low,
            high: a.band.high,
            q_starts: nowhere,
            k_starts: nowhere,
            sequences: 1,
            query_blocks: blocks(a.queries),
            key_blocks: blocks(a.keys),
            scale: a.scale,
            kept: 1.0,
            threshold: 0,
            seed: 0,
            stream: 0,
            place: std::ptr::null(),
        };
        Some(Call { _operands: operands, told, kernels, features, packed: None })
    }

    /// The same with this dropout.
    pub(super) fn with(mut self, dropout: Dropout) -> Call {
        let (threshold, kept) = kept(dropout.p);
        let Words { seed, stream, place } = dropout.words;
        let place = place as *const u64;
        self.told = Attention { kept, threshold, seed, stream, place, ..self.told };
        self
    }

    /// The same of sequences that lie one after the other, whose results lie with the items between rows and features.
    pub(super) fn packed(mut self, packed: Lengths) -> Call {
        let [queries, keys] = packed.longest.map(|n| n.div_ceil(self.kernels.rows) as i64);
        let items = self.told.batch;
        let apart = |features: usize| Lies { item: features as i64, row: items * features as i64 };
        let [of_q, of_y] = self.features.map(apart);
        self.told = Attention {
            of_y,
            of_q,
            of_k: of_q,
            of_v: of_y,
            q_starts: packed.starts[0].device_ptr(),
            k_starts: packed.starts[1].device_ptr(),
            sequences: packed.starts[0].numel() as i64 - 1,
            query_blocks: queries,
            key_blocks: keys,
            ..self.told
        };
        self.packed = Some(packed);
        self
    }

    #[track_caller]
    fn launch(&self, gpu: Gpu, kernel: &'static Kernel, told: Attention, side: i64, shared: usize) {
        let blocks = (told.batch * told.sequences * side).min(i64::from(i32::MAX));
        let grid = Grid::row(blocks as u32, self.kernels.threads).with_shared(shared);
        // SAFETY: the kernel takes one `Attention` of tensors on this GPU, whose sizes and distances it has; what it
        // writes is new and lies as it is told.
        unsafe { gpu.launch(kernel, grid, cuda_args!(told)) };
    }

    /// A new result: row by row for each item, or with the items between rows and features.
    fn result(&self, gpu: Gpu, plan: &Plan, rows: usize, features: usize, dtype: Dtype) -> Tensor {
        let shape = match self.packed {
            Some(_) => Shape::from_slice(&[rows, plan.count(), features]),
            None => plan.with_batch([rows, features]),
        };
        Tensor::uninitialised_on(&shape, dtype, gpu.device())
    }

    /// Y; the logarithms of the sums go to a dense tensor.
    #[track_caller]
    pub(super) fn forward(&self, gpu: Gpu, plan: &Plan, dtype: Dtype, logsum: &Tensor) -> Tensor {
        let a = plan.attention;
        let y = self.result(gpu, plan, a.queries, self.features[1], dtype);
        let told = Attention { out: y.device_ptr(), logsum: logsum.device_ptr(), ..self.told };
        self.launch(gpu, &self.kernels.forward, told, told.query_blocks, self.kernels.shared()[0]);
        no_grad(|| cut(y, a.width))
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
        let (a, dtype, [depth, width]) = (plan.attention, y.dtype(), self.features);
        let [y, dy] = no_grad(|| [y, dy].map(|t| copied(&t.detach().contiguous())));
        let new = |rows, features| self.result(gpu, plan, rows, features, dtype);
        let (dq, dk, dv) = (new(a.queries, depth), new(a.keys, depth), new(a.keys, width));
        let along = logsum.empty_like();
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
        let [_, queries, keys] = self.kernels.shared();
        self.launch(gpu, &self.kernels.queries, told, told.query_blocks, queries);
        self.launch(gpu, &self.kernels.keys, told, told.key_blocks, keys);
        let [dq, dk] = [dq, dk].map(|t| no_grad(|| cut(t, a.depth)));
        smallvec![Some(dq), Some(dk), Some(no_grad(|| cut(dv, a.width))), None]
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
