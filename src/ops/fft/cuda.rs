//! Fourier transforms on a GPU: `kernels/fft.cu`. A line of up to some thousand numbers is transformed by one
//! launch, wherever its numbers lie; longer ones by a launch for each factor of the length; those with a prime
//! factor above 7 by a convolution (Bluestein's way). Real lines of even length go as half as many pairs.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;

use super::direction::Direction;
use super::plan::{convenient, lengths, radices};
use crate::cuda::cuda_args;
use crate::cuda::{
    Event, Kernel, Stream, device, family::Family, family::REALS, launch::Argument,
    launch::Shape as Grid, sources::family,
};
use crate::error::{Result, throw};
use crate::ops::{gpu::Gpu, gpu::format_of, pointwise::complex, shape::around::around};
use crate::tensor::{Dtype, Shape, Tensor};

pub(in crate::ops) static TRANSFORMS: Family =
    family!("fft": "fft.cu").with(&[(REALS, &["Lines"])]);

/// Threads of a block, as in the kernels.
const THREADS: usize = 256;
/// As in the kernels.
const MOST_STAGES: usize = 13;

/// `Stage` on the other side.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Stage {
    radix: i32,
    each: u32,
    each_magic: u32,
    done: u32,
    done_magic: u32,
    step: u32,
}

/// `Pass` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Pass {
    from: *const u8,
    out: *mut u8,
    table: *const u8,
    lines: i64,
    width: i64,
    spread: i64,
    inner: i64,
    whole: i64,
    scale: f64,
    n: u32,
    n_magic: u32,
    half_magic: u32,
    block_bits: u32,
    pitch: u32,
    mode: Mode,
    swap_in: i32,
    swap_out: i32,
    stages: i32,
    stage: [Stage; MOST_STAGES],
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Pass {}

/// What a line is before and after: `Mode` on the other side.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
enum Mode {
    /// Complex numbers.
    Complex,
    /// Real numbers as pairs, which become the first half of their transform.
    ToHalf,
    /// The other way round.
    FromHalf,
}

/// The kernel for a complex type.
fn kernel(dtype: Dtype, entry: &'static str) -> &'static Kernel {
    TRANSFORMS.kernel(format_of(dtype.to_real()), "Lines", entry)
}

/// What small numbers are multiplied by, and then divided by 2^32, to divide them by `d`; 0 for 1.
fn magic(d: usize) -> u32 {
    if d == 1 { 0 } else { (1u64 << 32).div_ceil(d as u64) as u32 }
}

/// Numbers of a block at most: in shared memory they take 74 kB.
#[track_caller]
fn room(gpu: Gpu, dtype: Dtype) -> usize {
    let figures = device::properties(gpu.index).unwrap_or_else(|error| throw(error));
    let room = if dtype == Dtype::C64 { 4096 } else { 2048 };
    if figures.shared_memory_per_block_optin < 74 << 10 { room / 2 } else { room }
}

/// The longest line that one launch transforms; where lines lie side by side, four at a time.
#[track_caller]
fn most(gpu: Gpu, dtype: Dtype, inner: usize) -> usize {
    if inner == 1 { room(gpu, dtype) } else { room(gpu, dtype) / 4 }
}

/// Whether one launch transforms a dense line.
#[track_caller]
fn is_short(gpu: Gpu, dtype: Dtype, n: usize) -> bool {
    n <= most(gpu, dtype, 1)
}

/// Roots of unity, and until they have been computed the stream and event of that.
struct Table {
    roots: Tensor,
    under_way: Option<(Stream, Event)>,
}

impl Table {
    /// The roots for work on a stream, which may have to wait; `None` where that is captured and must not.
    fn on(&mut self, stream: Stream) -> Result<Option<Tensor>> {
        if let Some((maker, event)) = &self.under_way {
            if stream.is_capturing()? {
                return Ok(None);
            }
            if event.query()? {
                self.under_way = None;
            } else if *maker != stream {
                stream.wait_event(event)?;
            }
        }
        Ok(Some(self.roots.clone()))
    }
}

/// The roots of unity of an order: computed once for all streams, and anew for each captured graph before that is
/// done.
#[track_caller]
fn table(gpu: Gpu, dtype: Dtype, order: usize) -> Tensor {
    type Key = (usize, Dtype, usize);
    static TABLES: LazyLock<Mutex<HashMap<Key, Table>>> = LazyLock::new(Mutex::default);
    let (key, stream) = ((gpu.index, dtype, order), gpu.stream());
    let or_throw = |error| -> ! { throw(error) };
    if let Some(known) = TABLES.lock().get_mut(&key)
        && let Some(roots) = known.on(stream).unwrap_or_else(|error| or_throw(error))
    {
        return roots;
    }
    let roots = Tensor::empty([order], (dtype, gpu.device()));
    if gpu.is_nowhere() {
        return roots;
    }
    let (at, n) = (roots.device_ptr(), order as i64);
    // SAFETY: the kernel's parameters, and a new tensor.
    unsafe { gpu.launch(kernel(dtype, "table"), gpu.for_each(order), cuda_args!(at, n)) };
    let event = stream.is_capturing().and_then(|captured| match captured {
        true => Ok(None),
        false => stream.record_event().map(Some),
    });
    // What a graph captures is written when that is replayed.
    if let Some(event) = event.unwrap_or_else(|error| or_throw(error)) {
        let under_way = Some((stream, event));
        TABLES.lock().insert(key, Table { roots: roots.clone(), under_way });
    }
    roots
}

/// One launch: lines of `n` numbers of a dense array of `n * width` for each outer item.
struct Launch {
    mode: Mode,
    outer: usize,
    n: usize,
    width: usize,
    spread: usize,
    inner: usize,
    /// The product of the lengths up to this one.
    whole: usize,
    swap_in: bool,
    swap_out: bool,
    scale: f64,
}

impl Launch {
    /// Of `from` into `out`, which is of this complex type, or real with its parts.
    #[track_caller]
    fn run(self, gpu: Gpu, dtype: Dtype, from: &Tensor, out: &Tensor) {
        let Launch { n, mode, .. } = self;
        let order = if mode == Mode::Complex { n } else { 2 * n };
        let table = table(gpu, dtype, order);
        let (mut stage, mut done, mut stages) = ([Stage::default(); MOST_STAGES], 1, 0);
        for radix in radices(n).unwrap_or_default() {
            stage[stages] = Stage {
                radix: radix as i32,
                each: (n / radix) as u32,
                each_magic: magic(n / radix),
                done: done as u32,
                done_magic: magic(done),
                step: (order / (done * radix)) as u32,
            };
            done *= radix;
            stages += 1;
        }
        let lines = self.outer * self.width;
        let size = dtype.size();
        let bank_bits = if dtype == Dtype::C64 { 4 } else { 3 };
        let pitch = (n + (n >> bank_bits)) | 1;
        // Few lines are shared by more blocks; neighbours that lie side by side stay together.
        let side_by_side = self.width > 1;
        let room = room(gpu, dtype);
        let numbers = if side_by_side { room } else { room.min(2048) };
        let least = if side_by_side { 64 / size } else { 1 };
        let figures = device::properties(gpu.index).unwrap_or_else(|error| throw(error));
        let wanted = 2 * figures.multiprocessors as usize;
        let mut in_block = (numbers / n).clamp(1, THREADS);
        in_block = 1 << in_block.ilog2();
        while in_block > least && lines.div_ceil(in_block) < wanted {
            in_block /= 2;
        }
        let pass = Pass {
            from: from.device_ptr(),
            out: out.device_ptr(),
            table: table.device_ptr(),
            lines: lines as i64,
            width: self.width as i64,
            spread: self.spread as i64,
            inner: self.inner as i64,
            whole: if self.whole > n { self.whole as i64 } else { 0 },
            scale: self.scale,
            n: n as u32,
            n_magic: magic(n),
            half_magic: magic(n + 1),
            block_bits: in_block.ilog2(),
            pitch: pitch as u32,
            mode,
            swap_in: i32::from(self.swap_in),
            swap_out: i32::from(self.swap_out),
            stages: stages as i32,
            stage,
        };
        let grid = Grid::plane(lines.div_ceil(in_block), 1, THREADS as u32)
            .with_shared(2 * in_block * pitch * size);
        // SAFETY: the kernel's parameter, of dense tensors with as many numbers as the lines have; the result is
        // new.
        unsafe { gpu.launch(kernel(dtype, "lines"), grid, cuda_args!(pass)) };
    }
}

/// The transform of a dense complex tensor along a dimension, scaled: a new dense tensor.
#[track_caller]
pub(super) fn transform(gpu: Gpu, x: &Tensor, dim: usize, to: Direction, scale: f64) -> Tensor {
    if x.numel() == 0 {
        return x.empty_like();
    }
    let (dtype, [outer, n, inner]) = (x.dtype(), around(x.shape(), dim));
    let backward = to == Direction::Backward;
    if radices(n).is_none() {
        let lines = x.movedim(dim as i64, -1).contiguous();
        return convolved(gpu, &lines, backward, scale).movedim(-1, dim as i64).contiguous();
    }
    let parts = match n <= most(gpu, dtype, inner) {
        true => lengths(n, n),
        false => lengths(n, most(gpu, dtype, 2)),
    };
    let (mut from, mut done) = (x.detach(), 1);
    for (i, &part) in parts.iter().enumerate() {
        let out = x.empty_like();
        let last = i + 1 == parts.len();
        Launch {
            mode: Mode::Complex,
            outer,
            n: part,
            width: n / part * inner,
            spread: done * inner,
            inner,
            whole: done * part,
            swap_in: backward && i == 0,
            swap_out: backward && last,
            scale: if last { scale } else { 1.0 },
        }
        .run(gpu, dtype, &from, &out);
        done *= part;
        from = out;
    }
    from
}

/// Blocks for lines of `n` numbers.
fn plane(n: usize, lines: usize) -> Grid {
    Grid::plane(n.div_ceil(THREADS), lines, THREADS as u32)
}

/// The transform of dense lines of any length in the last dimension, as a convolution.
#[track_caller]
fn convolved(gpu: Gpu, x: &Tensor, backward: bool, scale: f64) -> Tensor {
    let (dtype, n) = (x.dtype(), x.size(-1));
    let lines = x.numel() / n;
    let m = convenient(2 * n - 1);
    let (x, out) = (x.detach(), x.empty_like());
    let on = (dtype, gpu.device());
    let (padded, chirps) = (Tensor::empty([lines, m], on), Tensor::empty([m], on));
    let (from, to, filter) = (x.device_ptr(), padded.device_ptr(), chirps.device_ptr());
    let (count, short, long) = (lines as i64, n as i64, m as i64);
    let swap = i32::from(backward);
    // SAFETY: the kernels' parameters, of dense tensors with these sizes; what is written is new.
    unsafe {
        let kernel = |entry| kernel(dtype, entry);
        let args = cuda_args!(from, to, count, short, long, swap);
        gpu.launch(kernel("chirped"), plane(m, lines), args);
        gpu.launch(kernel("chirps"), plane(m, 1), cuda_args!(filter, short, long));
    }
    let spectrum = transform(gpu, &padded, 1, Direction::Forward, 1.0);
    let filter = transform(gpu, &chirps, 0, Direction::Forward, 1.0 / m as f64);
    let product = complex::product_of(&spectrum, &filter);
    let product = transform(gpu, &product, 1, Direction::Backward, 1.0);
    let (from, to) = (product.device_ptr(), out.device_ptr());
    // SAFETY: the kernel's parameters; dense tensors of these sizes, of which the result is new.
    unsafe {
        let args = cuda_args!(from, to, count, short, long, swap, scale);
        gpu.launch(kernel(dtype, "unchirped"), plane(n, lines), args);
    }
    out
}

/// The last dimension with another size.
fn with_last(x: &Tensor, n: usize) -> Shape {
    let mut shape: Shape = x.shape().into();
    *shape.last_mut().expect("lines are the last dimension") = n;
    shape
}

/// Whether real lines are transformed as pairs.
fn goes_in_pairs(n: usize) -> bool {
    n.is_multiple_of(2) && radices(n / 2).is_some()
}

/// A launch for dense lines of `n` numbers.
fn whole_lines(mode: Mode, lines: usize, n: usize, scale: f64) -> Launch {
    let backward = mode == Mode::FromHalf;
    Launch {
        mode,
        outer: lines,
        n,
        width: 1,
        spread: 1,
        inner: 1,
        whole: n,
        swap_in: backward,
        swap_out: backward,
        scale,
    }
}

/// The first half of the forward transform of dense real lines in the last dimension.
#[track_caller]
pub(super) fn transform_real(gpu: Gpu, lines: &Tensor, scale: f64) -> Tensor {
    let n = lines.size(-1);
    let shape = with_last(lines, n / 2 + 1);
    let dtype = lines.dtype().to_complex();
    if lines.numel() == 0 {
        return Tensor::empty(&shape, (dtype, gpu.device()));
    }
    if !goes_in_pairs(n) {
        let last = lines.dim() - 1;
        let full = transform(gpu, &lines.to_complex(), last, Direction::Forward, scale);
        return full.narrow(-1, 0, n / 2 + 1).contiguous();
    }
    let out = Tensor::empty(&shape, (dtype, gpu.device()));
    let (half, count) = (n / 2, lines.numel() / n);
    // Pairs begin at even places of the storage.
    let lines = match lines.storage_offset().is_multiple_of(2) {
        true => lines.clone(),
        false => lines.clone_contiguous(),
    };
    if is_short(gpu, dtype, half) {
        whole_lines(Mode::ToHalf, count, half, scale).run(gpu, dtype, &lines, &out);
        return out;
    }
    let pairs = lines.reshape_to(&[count, half, 2]).view_as_complex();
    let z = transform(gpu, &pairs, 1, Direction::Forward, 1.0);
    let (from, to, count, n) = (z.device_ptr(), out.device_ptr(), count as i64, half as i64);
    // SAFETY: the kernel's parameters, of dense tensors with so many lines; the result is new.
    unsafe {
        let (grid, args) = (plane(half + 1, count as usize), cuda_args!(from, to, count, n, scale));
        gpu.launch(kernel(dtype, "halves"), grid, args);
    }
    out
}

/// The backward transform to `n` real numbers of dense lines in the last dimension, which have its first half.
#[track_caller]
pub(super) fn transform_half(gpu: Gpu, lines: &Tensor, n: usize, scale: f64) -> Tensor {
    let (dtype, shape) = (lines.dtype(), with_last(lines, n));
    let out = Tensor::empty(&shape, (dtype.to_real(), gpu.device()));
    if out.numel() == 0 {
        return out;
    }
    if !goes_in_pairs(n) {
        let (last, m) = (lines.dim() - 1, n / 2 + 1);
        // What imaginary parts that do not count give is imaginary.
        let others = lines.narrow(-1, 1, n - m).flip(&[-1]).conj();
        let full = Tensor::cat(&[lines, &others], -1);
        let all = transform(gpu, &full, last, Direction::Backward, scale);
        return all.real().contiguous();
    }
    let (half, count) = (n / 2, out.numel() / n);
    if is_short(gpu, dtype, half) {
        whole_lines(Mode::FromHalf, count, half, scale).run(gpu, dtype, lines, &out);
        return out;
    }
    let pairs = Tensor::empty([count, half], (dtype, gpu.device()));
    let (from, to, lines, size) =
        (lines.device_ptr(), pairs.device_ptr(), count as i64, half as i64);
    // SAFETY: the kernel's parameters; dense tensors of these sizes, of which the pairs are new.
    unsafe {
        let args = cuda_args!(from, to, lines, size);
        gpu.launch(kernel(dtype, "wholes"), plane(half, count), args);
    }
    let z = transform(gpu, &pairs, 1, Direction::Backward, scale);
    z.view_as_real().reshape_to(&shape)
}
