//! Masks on a GPU: `kernels/masks.cu`. How many elements are chosen is asked for where a result's shape depends
//! on it, and only there: that waits for the device.

use crate::cuda::cuda_args;
use crate::cuda::{
    Kernel, Program, launch::Argument, launch::Shape, refusal::Rule, sources::kernels_by,
    sources::program,
};
use crate::error::{Error, throw};
use crate::ops::gpu::Gpu;
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static PROGRAM: Program =
    program!("masks": "before.cuh", "refusal.cuh", "masks.cu");
static COUNT: Kernel = Kernel::new(&PROGRAM, "count_chosen");
static START: Kernel = Kernel::new(&PROGRAM, "start_chunks");
static COORDINATES: Kernel = Kernel::new(&PROGRAM, "coordinates");

kernels_by! {
    units of PROGRAM:
    SELECT "select";
    SPREAD "spread";
}

/// Threads of a block, and flags that it has at once: as in the kernels.
const THREADS: u32 = 256;
const TILE: usize = 4096;
/// Chunks into which a mask is cut at most: enough to fill a device a few times over.
const MOST_CHUNKS: usize = 2048;
/// Dimensions of a mask whose coordinates are told.
const MOST_DIMS: usize = 8;

/// `Mask` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Mask {
    at: *mut u8,
    starts: *mut u8,
    n: i64,
    chunk: i64,
    aligned: i32,
    reserved: i32,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Mask {}

/// A dense mask whose chosen elements are counted chunk by chunk.
pub(super) struct Counted {
    gpu: Gpu,
    mask: Tensor,
    /// Chosen ones before each chunk, and at the end in all.
    starts: Tensor,
    chunk: usize,
}

impl Counted {
    /// Counts, without waiting.
    #[track_caller]
    pub(super) fn new(gpu: Gpu, mask: &Tensor) -> Counted {
        let n = mask.numel();
        let chunk = n.div_ceil(MOST_CHUNKS).next_multiple_of(TILE).max(TILE);
        let chunks = n.div_ceil(chunk);
        let starts = Tensor::empty([chunks + 1], (Dtype::I64, gpu.device()));
        let all = Counted { gpu, mask: mask.clone(), starts, chunk };
        // SAFETY: the mask and a number for each chunk and one more.
        unsafe { gpu.launch(&COUNT, all.blocks(), cuda_args!(all.argument())) };
        let (starts, chunks) = (all.starts.device_ptr(), chunks as i64);
        // SAFETY: the kernel's parameters: a number for each chunk and one more.
        unsafe { gpu.launch(&START, Shape::row(1, THREADS), cuda_args!(starts, chunks)) };
        all
    }

    fn blocks(&self) -> Shape {
        Shape::row((self.starts.numel() - 1) as u32, THREADS)
    }

    fn argument(&self) -> Mask {
        let at = self.mask.device_ptr();
        Mask {
            at,
            starts: self.starts.device_ptr(),
            n: self.mask.numel() as i64,
            chunk: self.chunk as i64,
            aligned: i32::from((at as usize).is_multiple_of(16)),
            reserved: 0,
        }
    }

    /// How many elements are chosen. Waits for the device.
    pub(super) fn number(&self) -> usize {
        self.starts.select(0, -1).item_i64() as usize
    }

    /// The chosen elements' coordinates in an array of sizes `shape`, `[number, dimensions]`.
    #[track_caller]
    pub(super) fn coordinates(&self, shape: &[usize]) -> Tensor {
        if shape.len() > MOST_DIMS {
            let n = shape.len();
            throw(Error::shape(
                "nonzero",
                format!("at most {MOST_DIMS} dimensions on a GPU, not {n}"),
            ));
        }
        let out = Tensor::empty([self.number(), shape.len()], (Dtype::I64, self.gpu.device()));
        if out.numel() > 0 {
            let mut sizes = [1i64; MOST_DIMS];
            sizes.iter_mut().zip(shape).for_each(|(to, &n)| *to = n as i64);
            let (mask, to, dims) = (self.argument(), out.device_ptr(), shape.len() as i32);
            // SAFETY: a row for each of the chosen.
            unsafe {
                self.gpu.launch(&COORDINATES, self.blocks(), cuda_args!(mask, to, sizes, dims));
            }
        }
        out
    }

    /// Writes the chosen elements of the dense `x`, which has the mask's size, to the start of `out`, which has
    /// room for them.
    #[track_caller]
    pub(super) fn select(&self, x: &Tensor, out: &Tensor) {
        let (mask, to, from) = (self.argument(), out.device_ptr(), x.device_ptr());
        let kernel = &SELECT[x.dtype().size().trailing_zeros() as usize];
        // SAFETY: the kernel's parameters: `x` has the mask's size, and `out` room for the chosen.
        unsafe { self.gpu.launch(kernel, self.blocks(), cuda_args!(mask, to, from)) };
    }

    /// Writes the elements of the dense `list`, in order, to those of the dense `out` where the mask is true, and
    /// zeros elsewhere unless that is to `keep`. That there are enough elements, and none too many where it is
    /// `exact`, is left to the kernel.
    #[track_caller]
    pub(super) fn put(&self, list: &Tensor, out: &Tensor, keep: bool, exact: bool) {
        let (mask, to, from) = (self.argument(), out.device_ptr(), list.device_ptr());
        let refusal = self.gpu.refusal("masked_scatter", "source", Rule::Count);
        let (available, keep, exact) = (list.numel() as i64, i32::from(keep), i32::from(exact));
        let kernel = &SPREAD[list.dtype().size().trailing_zeros() as usize];
        let args = cuda_args!(mask, to, from, available, keep, exact, refusal);
        // SAFETY: an element for each of the mask's; the kernel does not read behind the list's end.
        unsafe { self.gpu.launch(kernel, self.blocks(), args) };
    }
}
