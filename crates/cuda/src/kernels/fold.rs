//! Folds on a GPU: how the threads of a kernel of `kernels/fold.cuh` share a fold's elements.

use crate::device;
use crate::kernels::family::Family;
use crate::kernels::launch::{self, Argument, Shape};
use crate::memory::Block;
use crate::work::stream::Stream;
use crate::work::traffic;
use torchrs_error::{Error, Result};
use torchrs_loops::Format;
use torchrs_loops::fold::Plan;

/// Threads of a block, and the most dimensions: as in `kernels/fold.cuh`.
const THREADS: u32 = 256;
const MOST_DIMS: usize = 8;
/// What an operation's `Acc` takes at most.
const ACC_BYTES: usize = 32;
/// Items that a thread should have at least before the items are split among blocks.
const LEAST_ITEMS: u64 = 16;

/// `FoldDims` on the other side.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Dims {
    sizes: [i64; MOST_DIMS],
    strides: [i64; MOST_DIMS],
    count: i32,
    reserved: i32,
}

/// `FoldPlan` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Task {
    kept: Dims,
    folded: Dims,
    outputs: i64,
    items: i64,
    items_per_split: i64,
    splits: i32,
    reserved: i32,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Task {}

/// An operation of `kernels/fold.cuh`: a family's program for a format, which has `kernels/fold_entries.cuh`.
#[derive(Clone, Copy)]
pub struct Operation {
    /// The family.
    pub family: &'static Family,
    /// The type of the elements.
    pub format: Format,
    /// Its name.
    pub variant: &'static str,
}

/// How threads share the work.
struct Share {
    entry: &'static str,
    block: [u32; 2],
    /// Outputs of a block, and threads on each.
    width: u32,
    lanes: u32,
}

/// Folds the elements of `inputs`, which all lie as the plan says, with the operation `op`.
///
/// # Errors
/// [`Error::Device`] where the driver refuses; [`Error::Shape`] for dimensions that cannot be joined to as few
/// as the kernels walk.
///
/// # Safety
/// `op` is the operation's structure on the other side; what it names is memory of the stream's device that
/// is valid until the stream has done this work; `inputs` are its addresses that are read by the plan.
pub unsafe fn fold<A: Argument>(
    operation: &Operation,
    plan: &Plan,
    inputs: &[*const u8],
    op: A,
    stream: Stream,
) -> Result<()> {
    let (outputs, device) = (plan.outputs(), stream.device());
    if outputs == 0 || stream.is_nowhere() {
        return Ok(());
    }
    let width = 16 / operation.format.size();
    // Neighbouring outputs are nearer in memory than neighbouring elements of one.
    let columns =
        outputs > 1 && (plan.count() <= 1 || plan.kept().0.1.abs() < plan.folded().0.1.abs());
    let wide = !columns && is_wide(plan, inputs, width);
    let mut task = Task {
        kept: dims(plan.kept())?,
        folded: dims(plan.folded())?,
        outputs: outputs as i64,
        items: plan.count() as i64,
        items_per_split: 0,
        splits: 1,
        reserved: 0,
    };
    if wide {
        let last = task.folded.count as usize - 1;
        task.folded.sizes[last] /= width as i64;
        task.folded.strides[last] *= width as i64;
        task.items /= width as i64;
    }
    let multiprocessors = u64::from(device::properties(device)?.multiprocessors);
    let share = match columns {
        true => share_columns(outputs as u64, task.items as u64),
        false => share_rows(outputs as u64, task.items as u64, wide, multiprocessors),
    };
    // SAFETY: the caller's promise.
    unsafe { start(operation, task, &share, 8 * multiprocessors, op, stream) }
}

/// Folds the columns of dense rows, `[how many, length]`, with an operation that has `fold_columns_wide`, for rows of
/// [`is_wide_row`].
///
/// # Errors
/// As [`fold`].
///
/// # Safety
/// As for [`fold`]; the rows begin where the operation says.
pub unsafe fn fold_wide_columns<A: Argument>(
    operation: &Operation,
    [rows, length]: [usize; 2],
    op: A,
    stream: Stream,
) -> Result<()> {
    if length == 0 || stream.is_nowhere() {
        return Ok(());
    }
    let task = Task {
        kept: Dims::default(),
        folded: Dims::default(),
        outputs: length as i64,
        items: rows as i64,
        items_per_split: 0,
        splits: 1,
        reserved: 0,
    };
    let of_thread = 16 / operation.format.size() as u32;
    let [threads, lanes] = columns_block((length as u32 / of_thread).into(), rows as u64);
    let (entry, block) = ("fold_columns_wide", [threads, lanes]);
    let share = Share { entry, block, width: threads * of_thread, lanes };
    let multiprocessors = u64::from(device::properties(stream.device())?.multiprocessors);
    // Twice what is there at a time.
    // SAFETY: the caller's promise.
    unsafe { start(operation, task, &share, 6 * multiprocessors, op, stream) }
}

/// Starts a fold with as many parts as it takes for so many blocks, while each thread has enough to do.
///
/// # Safety
/// As for [`fold`].
unsafe fn start<A: Argument>(
    operation: &Operation,
    mut task: Task,
    share: &Share,
    wanted: u64,
    op: A,
    stream: Stream,
) -> Result<()> {
    let (device, outputs) = (stream.device(), task.outputs as usize);
    let (items, blocks) = (task.items as u64, (outputs as u64).div_ceil(u64::from(share.width)));
    let most = items / (u64::from(share.lanes) * LEAST_ITEMS);
    let splits = wanted.div_ceil(blocks).min(most).clamp(1, 4096);
    let per_split = items.div_ceil(splits).max(1);
    task.items_per_split = per_split as i64;
    task.splits = items.div_ceil(per_split).max(1) as i32;
    let kernel = |entry| operation.family.kernel(operation.format, operation.variant, entry);
    let [x, y] = share.block;
    let shape =
        Shape { block: [x, y, 1], ..Shape::plane(blocks as usize, task.splits as usize, 1) };
    let parts = match task.splits {
        1 => None,
        splits => Some(Block::on(splits as usize * outputs * ACC_BYTES, stream)?),
    };
    let at = parts.as_ref().map_or(std::ptr::null_mut(), Block::as_ptr);
    if traffic::is_counted() && parts.is_some() {
        traffic::operand(at, task.splits as usize * outputs * ACC_BYTES);
    }
    // SAFETY: the entry points take these; the rest is the caller's promise. The parts' memory is used again
    // on the same stream only.
    unsafe {
        let function = kernel(share.entry).on(device)?;
        launch::launch(function, shape, stream, crate::cuda_args!(task, op, at))?;
        if parts.is_some() {
            let shape = Shape { block: [32, 8, 1], ..Shape::plane(outputs.div_ceil(8), 1, 1) };
            let function = kernel("fold_parts").on(device)?;
            let arguments = crate::cuda_args!(task, op, at);
            if traffic::is_counted() {
                // It reads the parts, not what they are of.
                traffic::forget_arguments();
                traffic::argument((&raw const at) as usize, size_of_val(&at));
            }
            launch::launch(function, shape, stream, arguments)?;
        }
    }
    Ok(())
}

/// Whether dense rows of this length, which begin at these addresses, can be read sixteen bytes at a time.
pub fn is_wide_row(length: usize, format: Format, inputs: &[*const u8]) -> bool {
    length.is_multiple_of(16 / format.size())
        && inputs.iter().all(|at| (*at as usize).is_multiple_of(16))
}

/// Whether the innermost folded dimension can be read sixteen bytes at a time everywhere.
fn is_wide(plan: &Plan, inputs: &[*const u8], width: usize) -> bool {
    let ((size, stride), outer) = plan.folded();
    let ((_, kept_stride), kept) = plan.kept();
    let fits = |stride: isize| stride % width as isize == 0;
    stride == 1
        && size > 1
        && size.is_multiple_of(width)
        && (plan.outputs() == 1 || fits(kept_stride))
        && outer.iter().chain(kept).all(|&(_, stride)| fits(stride))
        && inputs.iter().all(|at| (*at as usize).is_multiple_of(16))
}

fn dims((inner, outer): ((usize, isize), &[(usize, isize)])) -> Result<Dims> {
    let mut all = Dims { count: outer.len() as i32 + 1, ..Dims::default() };
    if outer.len() >= MOST_DIMS {
        let message = format!(
            "elements lie in more than {MOST_DIMS} dimensions that cannot be joined; make them contiguous"
        );
        return Err(Error::shape("cuda", message));
    }
    for (d, &(size, stride)) in outer.iter().chain([&inner]).enumerate() {
        (all.sizes[d], all.strides[d]) = (size as i64, stride as i64);
    }
    Ok(all)
}

/// The least power of two from `n` on, up to `most`, which is one.
fn power(n: u64, most: u32) -> u32 {
    n.max(1).next_power_of_two().min(u64::from(most)) as u32
}

/// A block's threads side by side, on neighbouring columns, and above each other, on the items of one: some, up to 8,
/// where there are as many.
fn columns_block(columns: u64, items: u64) -> [u32; 2] {
    let width = power(columns, THREADS / power(items, 8));
    [width, THREADS / width]
}

fn share_columns(outputs: u64, items: u64) -> Share {
    let [width, lanes] = columns_block(outputs, items);
    Share { entry: "fold_columns", block: [width, lanes], width, lanes }
}

fn share_rows(outputs: u64, items: u64, wide: bool, multiprocessors: u64) -> Share {
    let lanes = match items {
        0..=64 => power(items, 32),
        // A warp each, where that fills half of the device.
        65..=1024 if outputs * 32 >= multiprocessors * 1024 => 32,
        _ => THREADS,
    };
    let width = THREADS / lanes;
    let entry = if wide { "fold_rows_wide" } else { "fold_rows" };
    Share { entry, block: [lanes, width], width, lanes }
}

/// The entry point of `kernels/rows_entries.cuh`, and the shape, for `rows` dense rows of `n` elements of a
/// format, which begin at these addresses.
///
/// # Errors
/// [`Error::Shape`] for rows of 2^31 elements or more.
pub fn rows_shape(
    op: &str,
    rows: usize,
    n: usize,
    format: Format,
    addresses: &[*const u8],
) -> Result<(&'static str, Shape)> {
    if n > i32::MAX as usize {
        let message = format!("rows of {n} elements; on a GPU they have less than 2^31");
        return Err(Error::shape(op, message));
    }
    let wide = is_wide_row(n, format, addresses);
    // What a thread keeps at most: `KEPT` on the other side.
    let kept = if format == Format::F64 { 16 } else { 32 };
    let (entry, lanes) = if n <= 128 {
        // Up to four elements per thread.
        ("rows_short", n.div_ceil(4).max(1).next_power_of_two() as u32)
    } else if n <= kept * THREADS as usize {
        let lanes = if n <= kept * 32 { 32 } else { THREADS };
        (if wide { "rows_kept_wide" } else { "rows_kept" }, lanes)
    } else {
        (if wide { "rows_long_wide" } else { "rows_long" }, THREADS)
    };
    let height = THREADS / lanes;
    let blocks = rows.div_ceil(height as usize);
    Ok((entry, Shape { block: [lanes, height, 1], ..Shape::plane(blocks, 1, 1) }))
}

/// A shape for `columns` columns of `n` elements each: threads side by side have neighbouring columns.
pub fn columns_shape(columns: usize, n: usize) -> Shape {
    let [width, lanes] = columns_block(columns as u64, n as u64);
    let blocks = columns.div_ceil(width as usize);
    Shape { block: [width, lanes, 1], ..Shape::plane(blocks, 1, 1) }
}

/// Whether to go sixteen bytes at a time, and the shape, for work on all elements of `rows` dense rows of
/// `length`, which begin at these addresses. `along_columns` keeps threads on their columns from row to row.
pub fn planes_shape(
    rows: usize,
    length: usize,
    along_columns: bool,
    format: Format,
    addresses: &[*const u8],
    device: usize,
) -> Result<(bool, Shape)> {
    let wide = is_wide_row(length, format, addresses);
    let items = if wide { length / (16 / format.size()) } else { length };
    let lanes = items.max(1).next_power_of_two().min(THREADS as usize) as u32;
    let height = THREADS / lanes;
    let fill = device::properties(device)?.multiprocessors as usize * 16;
    let blocks = rows.div_ceil(height as usize);
    let across = items.div_ceil(lanes as usize).max(1);
    let (x, y) = if along_columns {
        // Few rows of blocks, each thread with many rows.
        (blocks.min(fill.div_ceil(across)), across)
    } else {
        // Each thread has some items of a row, unless there are few rows.
        (blocks, across.div_ceil(8).max(across.min(fill.div_ceil(blocks.max(1)))))
    };
    Ok((wide, Shape { block: [lanes, height, 1], ..Shape::plane(x, y, 1) }))
}
