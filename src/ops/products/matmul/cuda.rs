//! Matrix products on a GPU: by cuBLASLt where it is there and has the dtype ([`cublaslt`]), else by kernels of our own,
//! which take any strides and batches and every dtype that is multiplied on the CPU. Those compute few results of
//! long sums in parts of the depth, which are added in a fixed order.

use crate::cuda::cuda_args;
use crate::cuda::{
    Kernel, Program, device, launch::Argument, launch::Shape as Grid, sources::kernel_text,
};
use crate::error::{Error, throw};
use crate::ops::gpu::{Gpu, address};
use crate::tensor::{Dtype, Tensor};

use super::batch::joined;
use super::batch::of_batch;
use super::cublaslt;
use super::epilogue::Epilogue;

/// Batch dimensions that are left when neighbours are joined: what the kernels have room for.
const MOST_BATCH_DIMS: usize = 6;
/// Depth of which a part of a sum has at least so many terms.
const LEAST_PART: usize = 256;
/// Rows or columns from which a tile of 128 is not mostly empty.
pub(in crate::ops) const LARGE: usize = 96;

/// `Finish` of `kernels/tile.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(in crate::ops) struct Finish {
    pub out: *mut u8,
    pub start: *const u8,
    pub partial: *mut u8,
    pub rows: i64,
    pub columns: i64,
    pub out_row: i64,
    pub out_column: i64,
    pub start_row: i64,
    pub start_column: i64,
    pub alpha: f64,
    pub beta: f64,
    pub integer_alpha: i64,
    pub integer_beta: i64,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Finish {}

impl Finish {
    /// Plain sums into a row-major matrix.
    pub fn new(out: &Tensor, rows: usize, columns: usize) -> Finish {
        Finish {
            out: out.device_ptr(),
            start: std::ptr::null(),
            partial: std::ptr::null_mut(),
            rows: rows as i64,
            columns: columns as i64,
            out_row: columns as i64,
            out_column: 1,
            start_row: 0,
            start_column: 0,
            alpha: 1.0,
            beta: 0.0,
            integer_alpha: 1,
            integer_beta: 0,
        }
    }

    /// The transposed matrix of results.
    fn turned(self) -> Finish {
        Finish {
            rows: self.columns,
            columns: self.rows,
            out_row: self.out_column,
            out_column: self.out_row,
            start_row: self.start_column,
            start_column: self.start_row,
            ..self
        }
    }
}

/// `Product` of `kernels/matmul.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Product {
    finish: Finish,
    left: *const u8,
    right: *const u8,
    depth: i64,
    left_row: i64,
    left_depth: i64,
    right_depth: i64,
    right_column: i64,
    part: i64,
    parts: i64,
    batch: i64,
    out_batch: i64,
    batch_dims: i64,
    batch_sizes: [i64; MOST_BATCH_DIMS],
    left_batch: [i64; MOST_BATCH_DIMS],
    right_batch: [i64; MOST_BATCH_DIMS],
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Product {}

/// The entry points for a dtype. Of four kernels with the same tile the first number says whether the left
/// operand's neighbours lie along the depth, the second that of the right one.
pub(in crate::ops) struct Kernels {
    plain_64: [Kernel; 4],
    /// Tiles of 128 by plain arithmetic.
    plain_128: Option<[Kernel; 4]>,
    /// Tiles of 64 and of 128 of operands that can be copied sixteen bytes at a time.
    copied: Option<[[Kernel; 4]; 2]>,
    column_along: Kernel,
    column_across: Kernel,
    pub add_parts: Kernel,
}

/// What comes before kernels that multiply tiles.
macro_rules! four {
    ($program:ident $name:literal) => {
        [
            Kernel::new(&$program, concat!($name, "_00")),
            Kernel::new(&$program, concat!($name, "_01")),
            Kernel::new(&$program, concat!($name, "_10")),
            Kernel::new(&$program, concat!($name, "_11")),
        ]
    };
}

macro_rules! kernels {
    ($($dtype:ident $kernels:ident $element:literal $more:literal
       $large:expr, $copied:expr;)*) => {
        $(static $kernels: Kernels = {
            static PROGRAM: Program =
                Program::new("matmul", kernel_text!("prelude.cuh", "warp.cuh", "tile.cuh"), kernel_text!("matmul.cu"))
                    .options(&[concat!("--define-macro=ELEMENT=", $element), $more]);
            Kernels {
                plain_64: four!(PROGRAM "plain_64"),
                plain_128: if $large { Some(four!(PROGRAM "plain_128")) } else { None },
                copied: if $copied {
                    Some([four!(PROGRAM "copied_64"), four!(PROGRAM "copied_128")])
                } else {
                    None
                },
                column_along: Kernel::new(&PROGRAM, "column_along"),
                column_across: Kernel::new(&PROGRAM, "column_across"),
                add_parts: Kernel::new(&PROGRAM, "add_parts"),
            }
        };)*

        /// The programs of all dtypes.
        pub(in crate::ops) fn programs() -> Vec<&'static Program> {
            vec![$($kernels.add_parts.program()),*]
        }

        /// The entry points for a dtype.
        #[track_caller]
        pub(in crate::ops) fn kernels(dtype: Dtype) -> &'static Kernels {
            match dtype {
                $(Dtype::$dtype => &$kernels,)*
                _ => throw(Error::dtype(
                    "matmul",
                    format!("{dtype} tensors cannot be multiplied as matrices on a GPU; convert with `.to_dtype`"),
                )),
            }
        }
    };
}

kernels! {
    F32 SINGLES "float" "--define-macro=SINGLE=1" true, false;
    F64 DOUBLES "double" "--define-macro=SINGLE=0" false, false;
    F16 HALVES "f16" "--define-macro=HALF=1" false, true;
    BF16 BRAIN_HALVES "bf16" "--define-macro=HALF=1" false, true;
    I64 I64S "i64" "--define-macro=SINGLE=0" false, false;
    I32 I32S "i32" "--define-macro=SINGLE=0" false, false;
    I16 I16S "i16" "--define-macro=SINGLE=0" false, false;
    I8 I8S "i8" "--define-macro=SINGLE=0" false, false;
    U8 U8S "u8" "--define-macro=SINGLE=0" false, false;
}

/// The type of sums of this one.
pub(in crate::ops) fn sum_dtype(dtype: Dtype) -> Dtype {
    if dtype.is_floating_point() { dtype.compute() } else { Dtype::I64 }
}

/// Room for partial sums.
pub(in crate::ops) fn room(gpu: Gpu, dtype: Dtype, parts: usize, count: usize) -> Tensor {
    Tensor::uninitialised_on(&[parts * count], sum_dtype(dtype), gpu.device())
}

/// The device's multiprocessors.
#[track_caller]
pub(in crate::ops) fn multiprocessors(gpu: Gpu) -> usize {
    let figures = device::properties(gpu.index).unwrap_or_else(|error| throw(error));
    figures.multiprocessors as usize
}

/// Into how many parts sums of `depth` terms are cut, and of how many terms (a multiple of 32) a part is, where
/// the results are `blocks` blocks' work and `most` parts are worth the room.
pub(in crate::ops) fn parts(
    gpu: Gpu,
    blocks: usize,
    depth: usize,
    least: usize,
    most: usize,
) -> (usize, usize) {
    let room = multiprocessors(gpu);
    if blocks >= room || depth < 2 * least {
        return (1, depth.max(1));
    }
    let wanted = (2 * room).div_ceil(blocks.max(1)).min(depth / least).min(most).max(1);
    let part = depth.div_ceil(wanted).next_multiple_of(32);
    (depth.div_ceil(part), part)
}

/// An operand: where it lies, the distance of its rows (the right one's columns), and that along the depth.
#[derive(Clone, Copy)]
struct Side {
    at: *const u8,
    rows: usize,
    row: usize,
    depth: usize,
}

impl Side {
    /// Whether neighbours in memory are neighbours along the depth, rather than across it.
    fn is_along(self) -> bool {
        self.depth == 1 || self.row != 1
    }

    /// Whether sixteen bytes at a time can be copied, of halves.
    fn is_copied(self, depth: usize, batches: &[i64]) -> bool {
        let (long, step) =
            if self.is_along() { (depth, self.row) } else { (self.rows, self.depth) };
        let dense = if self.is_along() { self.depth == 1 } else { self.row == 1 };
        let aligned = (self.at as usize).is_multiple_of(16) && batches.iter().all(|b| b % 8 == 0);
        dense && aligned && long.is_multiple_of(8) && step.is_multiple_of(8)
    }
}

/// The product of two matrices: `alpha a b`, plus `beta start`.
#[track_caller]
pub(super) fn product(
    gpu: Gpu,
    a: &Tensor,
    b: &Tensor,
    shape: &[usize; 2],
    epilogue: Option<Epilogue>,
) -> Tensor {
    let dtype = a.dtype();
    let out = Tensor::uninitialised_on(shape, dtype, gpu.device());
    let mut finish = Finish::new(&out, shape[0], shape[1]);
    let start = epilogue.as_ref().filter(|e| e.beta != 0.0);
    let start = start.map(|e| e.start.detach().expand(shape));
    if let Some(e) = epilogue {
        (finish.alpha, finish.integer_alpha) = (e.alpha, e.alpha as i64);
        (finish.beta, finish.integer_beta) = (e.beta, e.beta as i64);
    }
    if let Some(start) = &start {
        finish.start = start.device_ptr();
        (finish.start_row, finish.start_column) =
            (start.strides()[0] as i64, start.strides()[1] as i64);
    }
    let scales = (finish.alpha, finish.beta);
    if !cublaslt::product(gpu, &out, a, b, start.as_ref(), scales) {
        run(gpu, dtype, finish, a, b, &[], shape[0] * shape[1]);
    }
    out
}

/// Products of batches, which `a` and `b` broadcast to.
#[track_caller]
pub(in crate::ops) fn products(
    gpu: Gpu,
    a: &Tensor,
    b: &Tensor,
    batch: &[usize],
    (m, n, k): (usize, usize, usize),
) -> Tensor {
    let dtype = a.dtype();
    let stretch = |t: &Tensor, rows, columns| t.expand(&of_batch(batch, rows, columns));
    let out = Tensor::uninitialised_on(&of_batch(batch, m, n), dtype, gpu.device());
    let finish = Finish::new(&out, m, n);
    let (a, b) = (stretch(a, m, k), stretch(b, k, n));
    if !cublaslt::products(gpu, &out, &a, &b, batch) {
        run(gpu, dtype, finish, &a, &b, batch, m * n);
    }
    out
}

/// The product by our own kernels; `out_batch` is the distance of the results of a batch, and of what is added.
#[track_caller]
pub(super) fn run(
    gpu: Gpu,
    dtype: Dtype,
    finish: Finish,
    a: &Tensor,
    b: &Tensor,
    batch: &[usize],
    out_batch: usize,
) {
    let kernels = kernels(dtype);
    let (items, size) = (batch.iter().product::<usize>(), (finish.rows * finish.columns) as usize);
    if items * size == 0 {
        return;
    }
    let dims = joined(batch, a.strides(), b.strides());
    if dims.len() > MOST_BATCH_DIMS {
        return run(gpu, dtype, finish, &a.contiguous(), &b.contiguous(), batch, out_batch);
    }
    let n = a.dim();
    let depth = a.shape()[n - 1];
    let side = |t: &Tensor, rows: usize, along: usize| {
        let step = |d: usize| t.strides()[d] as usize;
        Side { at: t.device_ptr(), rows: t.shape()[rows], row: step(rows), depth: step(along) }
    };
    let (mut left, mut right) = (side(a, n - 2, n - 1), side(b, n - 1, n - 2));
    let column = |k: usize| {
        let mut out = [0; MOST_BATCH_DIMS];
        out.iter_mut().zip(&dims).for_each(|(out, dim)| *out = dim[k]);
        out
    };
    let (mut finish, mut batches) = (finish, (column(1), column(2)));
    if finish.rows == 1 && finish.columns > 1 {
        (finish, left, right) = (finish.turned(), right, left);
        batches = (batches.1, batches.0);
    }
    let (rows, columns) = (finish.rows as usize, finish.columns as usize);
    let along = 2 * usize::from(left.is_along()) + usize::from(right.is_along());
    let tiles = |side: usize| rows.div_ceil(side) * columns.div_ceil(side) * items;
    let large = rows >= LARGE
        && columns >= LARGE
        && (tiles(128) >= multiprocessors(gpu) || depth >= 8 * LEAST_PART);
    let copied = kernels
        .copied
        .as_ref()
        .filter(|_| left.is_copied(depth, &batches.0) && right.is_copied(depth, &batches.1));
    // The kernel, its blocks for each part, their shared memory and threads, and the most parts.
    let (kernel, blocks, shared, threads, most) = if columns == 1 && left.is_along() {
        (&kernels.column_along, (rows * items).div_ceil(8), 0, 256, 512)
    } else if columns == 1 {
        (&kernels.column_across, (rows * items).div_ceil(256), 0, 256, 512)
    } else if let Some(copied) = copied {
        let size = if large { 128 } else { 64 };
        let kernel = &copied[usize::from(large)][along];
        (kernel, tiles(size), half_shared(size, along, 4), 2 * size as u32, 64)
    } else if kernels.copied.is_some() {
        (&kernels.plain_64[along], tiles(64), half_shared(64, along, 2), 128, 64)
    } else if let (Some(plain), true) = (&kernels.plain_128, large) {
        (&plain[along], tiles(128), plain_shared(128, dtype), 256, 64)
    } else {
        (&kernels.plain_64[along], tiles(64), plain_shared(64, dtype), 256, 64)
    };
    let (parts, part) = parts(gpu, blocks, depth, LEAST_PART, most);
    let partial = (parts > 1).then(|| room(gpu, dtype, parts, items * size));
    finish.partial = address(partial.as_ref());
    let product = Product {
        finish,
        left: left.at,
        right: right.at,
        depth: depth as i64,
        left_row: left.row as i64,
        left_depth: left.depth as i64,
        right_depth: right.depth as i64,
        right_column: right.row as i64,
        part: part as i64,
        parts: parts as i64,
        batch: items as i64,
        out_batch: out_batch as i64,
        batch_dims: dims.len() as i64,
        batch_sizes: column(0),
        left_batch: batches.0,
        right_batch: batches.1,
    };
    let grid =
        Grid::row((blocks * parts).min(i32::MAX as usize) as u32, threads).with_shared(shared);
    // SAFETY: the kernel takes one `Product` of tensors of this GPU, whose sizes and strides it has; the results and
    // the partial sums are new.
    unsafe { gpu.launch(kernel, grid, cuda_args!(product)) };
    if parts > 1 {
        add_parts(gpu, kernels, finish, items, out_batch, parts);
    }
}

/// Adds partial sums and finishes them; `size` is the distance of an item's results from the next's.
#[track_caller]
pub(in crate::ops) fn add_parts(
    gpu: Gpu,
    kernels: &'static Kernels,
    finish: Finish,
    items: usize,
    size: usize,
    parts: usize,
) {
    let (grid, kernel) = (gpu.for_each(items * size), &kernels.add_parts);
    let (items, size, parts) = (items as i64, size as i64, parts as i64);
    // SAFETY: the parameters of the kernel; the partial sums were written by work on the same stream.
    unsafe { gpu.launch(kernel, grid, cuda_args!(finish, items, size, parts)) };
}

/// Bytes of shared memory of tiles by plain arithmetic: `PlainTile` of `kernels/tile.cuh`, two parts.
pub(in crate::ops) fn plain_shared(size: usize, dtype: Dtype) -> usize {
    let bytes = dtype.size();
    let (depth, room) = (if size == 128 { 8 } else { 16 }, if bytes == 8 { 2 } else { 4 });
    2 * 2 * depth * (size + room) * bytes
}

/// Bytes of shared memory of tiles of halves: `WarpTile` of `kernels/warp.cuh`.
pub(in crate::ops) fn half_shared(size: usize, along: usize, stages: usize) -> usize {
    let side = |along: bool| if along { size * 40 } else { 32 * (size + 8) };
    stages * (side(along & 2 != 0) + side(along & 1 != 0)) * 2
}
