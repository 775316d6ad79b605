//! The element of a rank without sorting: `kernels/rank.cu`.

use crate::cuda::{
    family::Family, family::NUMBERS, launch::Argument, launch::Shape, sources::family,
};
use crate::ops::{gpu::Gpu, gpu::format_of, shape::around::around};
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static RANK: Family =
    family!("rank": "order.cuh", "before.cuh", "rank.cu").with(&[(NUMBERS, &["Rank"])]);

/// Threads of a block: as in the kernel.
const THREADS: u32 = 256;

/// `Rank` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct RankTask {
    x: *const u8,
    places: *mut u8,
    lines: i64,
    n: i64,
    k: i64,
    mode: i32,
    reserved: i32,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for RankTask {}

/// The element that is looked for in a line.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops::reduce::sort) enum Rank {
    /// That of a rank, counted from 0.
    Number(usize),
    /// The middle, or the first NaN.
    Middle,
    /// The middle of those that are not NaN.
    NumbersMiddle,
}

/// The places along `d` of the elements of a rank, of size 1 there; none where sorting is quicker, which has several
/// short lines or parts of long ones in a block.
#[track_caller]
pub(in crate::ops::reduce::sort) fn place_of_rank(
    gpu: Gpu,
    x: &Tensor,
    d: usize,
    rank: Rank,
) -> Option<Tensor> {
    /// Elements that are more than a block's threads, and those that are too many for one block where there are
    /// few lines.
    const SHORT: usize = 256;
    const LONG: usize = 1 << 14;
    /// Lines that keep a device busy.
    const MANY: usize = 64;
    let [outer, n, inner] = around(x.shape(), d);
    let lines = outer * inner;
    if lines == 0 || n <= SHORT || (n > LONG && lines < MANY) || n > u32::MAX as usize / 2 {
        return None;
    }
    let dense = x.detach().movedim(d as i64, -1).contiguous();
    let mut shape = dense.layout().shape.clone();
    *shape.last_mut()? = 1;
    let places = Tensor::empty(&shape, (Dtype::I64, x.device()));
    let (mode, k) = match rank {
        Rank::Number(k) => (0, k),
        Rank::Middle => (1, 0),
        Rank::NumbersMiddle => (2, 0),
    };
    let task = RankTask {
        x: dense.device_ptr(),
        places: places.device_ptr(),
        lines: lines as i64,
        n: n as i64,
        k: k as i64,
        mode,
        reserved: 0,
    };
    let kernel = RANK.kernel(format_of(x.dtype()), "Rank", "place_of_rank");
    // SAFETY: the kernel's parameter; dense tensors of these types and sizes, the result is new.
    unsafe { gpu.launch(kernel, Shape::plane(lines, 1, THREADS), crate::cuda::cuda_args!(task)) };
    Some(places.movedim(-1, d as i64).contiguous())
}
