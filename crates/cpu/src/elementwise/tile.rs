//! Runs a kernel over strided, broadcasting operands of any element type. The work is cut into dense
//! tiles that stay in the first-level cache; an operand that already lies as the kernel wants it is
//! used in place, the others are brought into a tile and back.

use smallvec::SmallVec;

use crate::arch::cache::is_beyond;
use crate::arch::isa;
use crate::elementwise::format::{Block, Move, fill_constant, loader, storer};
use crate::elementwise::kernel::{Kernel, TileFn};
use crate::elementwise::numbered::{execute_numbered, is_numbered};
use crate::elementwise::streaming::{copy_streaming, finish};
use crate::threads::parts::Shared;
use crate::threads::{GRAIN, parallel_for};
use torchrs_loops::{Compute, Constant, Operand, Plan};

/// Most operands of one kernel, outputs included.
pub const MAX_OPERANDS: usize = 12;
/// Most parameters of one kernel.
pub const MAX_PARAMS: usize = 16;
/// Bytes of an operand's tile.
pub(super) const TILE_BYTES: usize = 4096;
/// Bytes of a tile that is written past the caches: so many wait to be written while what is read next comes in
/// already. With 4096 on Zen 4 a sum of 64 MB takes half as long again.
pub(super) const FAR_TILE_BYTES: usize = 512;
/// Innermost runs at least this long are tiled one by one; shorter ones share tiles.
const LONG: usize = 256;
/// Rows that take turns when an operand is read across its rows, so that each cache line that it
/// touches is used up.
const BAND: usize = 16;
/// Columns per turn in that case: so many cache lines stay in the first-level cache.
const BAND_COLUMNS: usize = 256;

#[repr(C, align(64))]
pub(super) struct Tiles<const N: usize = MAX_OPERANDS>(
    [[std::mem::MaybeUninit<u8>; TILE_BYTES]; N],
);

impl<const N: usize> Tiles<N> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Tiles([const { [std::mem::MaybeUninit::uninit(); TILE_BYTES] }; N])
    }

    #[inline(always)]
    pub(super) fn at(&mut self, k: usize) -> *mut u8 {
        self.0[k].as_mut_ptr().cast()
    }
}

/// How an operand reaches the kernel.
#[derive(Clone, Copy)]
enum Way {
    /// In place: dense, of the compute type, and not both read and written by a kernel that minds.
    Direct,
    /// One value for all elements; its tile is filled once.
    Constant,
    /// Through a tile, by this loop (from memory for inputs, to memory for outputs).
    Moved(Move),
}

#[derive(Clone, Copy)]
struct Port {
    ptr: *mut u8,
    way: Way,
}

struct Run<'a> {
    tile: TileFn,
    params: [[u8; 8]; MAX_PARAMS],
    compute: Compute,
    in_place: bool,
    outputs: usize,
    ports: SmallVec<[Port; 6]>,
    operands: &'a [Operand<'a>],
}

// SAFETY: threads work on disjoint elements of the outputs; inputs are only read.
unsafe impl Sync for Run<'_> {}

/// Runs `kernel` in `compute` for all elements of `shape`. `operands` are the outputs (as many as
/// the kernel has), then the inputs. An output may be the same view as an input.
///
/// # Safety
/// *Elements invariant*: every operand's memory is valid for the elements that its shape and strides name, and its shape
/// broadcasts to `shape`; outputs have exactly that shape, name no element twice, and overlap each
/// other or an input only when it is the very same view of that input. The kernel takes these
/// numbers of operands and parameters. Nobody else writes this memory meanwhile, or reads outputs.
pub unsafe fn execute(
    kernel: &Kernel,
    compute: Compute,
    params: &[Constant],
    shape: &[usize],
    outputs: usize,
    operands: &[Operand<'_>],
) {
    let n: usize = shape.iter().product();
    if n == 0 {
        return;
    }
    assert!(operands.len() <= MAX_OPERANDS);
    let mut run = Run {
        tile: kernel.tile(compute, isa::current()),
        params: parameters(compute, params),
        compute,
        in_place: kernel.works_in_place(),
        outputs,
        ports: SmallVec::new(),
        operands,
    };
    // SAFETY: the *Elements invariant*, which this function's contract gives for all operands.
    unsafe {
        if operands.iter().all(|o| o.fills(shape)) {
            for k in 0..operands.len() {
                run.ports.push(run.port(k, true));
            }
            let far = kernel.is_light() && is_beyond(n * compute.size()) && run.store_past_caches();
            run.flat(n, if far { FAR_TILE_BYTES } else { TILE_BYTES });
        } else {
            let plan = Plan::new(shape, operands);
            if let Some(pointers) = run.numbered(kernel, params.len(), &plan) {
                return execute_numbered(run.tile, &plan, pointers);
            }
            let long = plan.inner() >= LONG || plan.dims.len() == 1;
            for k in 0..operands.len() {
                let unit = run.element_size(k) as isize == plan.inner_stride(k);
                run.ports.push(run.port(k, unit && (long || plan.is_linear(k))));
            }
            for k in outputs..operands.len() {
                // One element for all: read it once.
                if plan.inner_stride(k) == 0 && plan.repeats_rows(k) {
                    run.ports[k].way = Way::Constant;
                }
            }
            if long { run.rows(&plan) } else { run.packed(&plan) }
        }
    }
}

/// Parameters in the compute type, as kernels take them.
#[inline]
pub(super) fn parameters(compute: Compute, params: &[Constant]) -> [[u8; 8]; MAX_PARAMS] {
    assert!(params.len() <= MAX_PARAMS);
    let mut out = [[0; 8]; MAX_PARAMS];
    let first = out.as_mut_ptr().cast::<u8>();
    for i in 0..params.len() {
        // SAFETY: room for `MAX_PARAMS` values of up to 8 bytes; parameter i of a 4-byte type lies at 4 i.
        unsafe { fill_constant(params[i], compute, first.add(i * compute.size()), 1) };
    }
    out
}

/// Converts dense elements by way of `compute`, in one loop, if one side is of that type; whether it was.
///
/// # Safety
/// As for [`execute`], with `to` the output.
pub unsafe fn convert(
    compute: Compute,
    shape: &[usize],
    to: &Operand<'_>,
    from: &Operand<'_>,
) -> bool {
    let (
        &Operand::Memory { ptr: to_ptr, format: to_format, .. },
        &Operand::Memory { ptr: from_ptr, format: from_format, .. },
    ) = (to, from)
    else {
        return false;
    };
    let storing = from_format.is(compute);
    if !(to.fills(shape) && from.fills(shape) && (storing || to_format.is(compute))) {
        return false;
    }
    let pointers = Shared::new([to_ptr, from_ptr]);
    let sizes = [to_format.size(), from_format.size()];
    parallel_for(shape.iter().product(), GRAIN, |range| {
        let [to, from] = pointers.get();
        let to = to.wrapping_add(range.start * sizes[0]);
        let from = from.wrapping_add(range.start * sizes[1]);
        let block = |size: usize| Block {
            inner: range.len(),
            inner_stride: size as isize,
            outer: 1,
            outer_stride: 0,
        };
        // SAFETY: elements `range` of both, of which the one in place of a tile is of its type.
        unsafe {
            if storing {
                storer(compute, to_format)(from, to, block(sizes[0]));
            } else {
                loader(from_format, compute)(to, from, block(sizes[1]));
            }
        }
    });
    true
}

/// Stores a dense tile as it is, by stores that take [`finish`].
///
/// # Safety
/// As a [`storer`]'s, of an operand of the compute type.
unsafe fn past_caches(tile: *mut u8, memory: *mut u8, block: Block) {
    // SAFETY: the *Block invariant*; elements are as far apart as they are large.
    unsafe { copy_streaming(memory, tile, block.inner * block.inner_stride as usize) };
}

impl Run<'_> {
    fn element_size(&self, k: usize) -> usize {
        match self.operands[k] {
            Operand::Memory { format, .. } => format.size(),
            Operand::Constant(_) => 0,
        }
    }

    /// How operand `k` travels; `dense` says that what the kernel sees at once lies densely.
    #[inline]
    fn port(&self, k: usize, dense: bool) -> Port {
        let Operand::Memory { ptr, format, .. } = self.operands[k] else {
            return Port { ptr: std::ptr::null_mut(), way: Way::Constant };
        };
        // Unless the kernel works in place, its outputs must not be its inputs (the vector loop assumes
        // so): an output that is also read goes through a tile.
        let read_too = k < self.outputs
            && !self.in_place
            && self.operands[self.outputs..]
                .iter()
                .any(|o| matches!(o, Operand::Memory { ptr: p, .. } if *p == ptr));
        let way = if dense && format.is(self.compute) && !read_too {
            Way::Direct
        } else if k < self.outputs {
            Way::Moved(storer(self.compute, format))
        } else {
            Way::Moved(loader(format, self.compute))
        };
        Port { ptr, way }
    }

    /// The operands' first elements, if each row's second input is one number, and the rows can be used in place.
    fn numbered(&self, kernel: &Kernel, params: usize, plan: &Plan) -> Option<[*mut u8; 3]> {
        let counts = [self.outputs, self.operands.len() - self.outputs, params];
        if counts[1] != 2
            || !kernel.takes_numbers(counts)
            || !is_numbered(plan, self.compute.size())
        {
            return None;
        }
        let mut pointers = [std::ptr::null_mut(); 3];
        for k in 0..3 {
            match self.port(k, true) {
                Port { ptr, way: Way::Direct } => pointers[k] = ptr,
                _ => return None,
            }
        }
        Some(pointers)
    }

    /// Dense results that would be written in place go by way of tiles past the caches, unless they are inputs too:
    /// an ordinary store first reads the line that it overwrites. Whether there are such results.
    fn store_past_caches(&mut self) -> bool {
        let mut any = false;
        let (outputs, inputs) = self.ports.split_at_mut(self.outputs);
        for output in outputs {
            let is_read = inputs.iter().any(|input| input.ptr == output.ptr);
            if matches!(output.way, Way::Direct) && !is_read {
                output.way = Way::Moved(past_caches);
                any = true;
            }
        }
        any
    }

    /// Fills the tiles of operands that are one number, with `n` copies.
    unsafe fn fill_constants(&self, tiles: &mut Tiles, n: usize) {
        for (k, port) in self.ports.iter().enumerate() {
            if let Way::Constant = port.way {
                // SAFETY: a tile has room for `n` values; the operand has an element at `ptr`.
                unsafe {
                    match self.operands[k] {
                        Operand::Constant(c) => fill_constant(c, self.compute, tiles.at(k), n),
                        Operand::Memory { format, .. } => {
                            let block =
                                Block { inner: n, inner_stride: 0, outer: 1, outer_stride: 0 };
                            loader(format, self.compute)(tiles.at(k), port.ptr, block);
                        }
                    }
                }
            }
        }
    }

    /// # Safety
    /// The *Elements invariant*; `pointers` are to tiles of `n` values, or to as many elements of operands in place.
    unsafe fn call(&self, pointers: &[*mut u8], n: usize) {
        // SAFETY: pointers and parameters are as the kernel wants them, by the *Elements invariant*.
        unsafe { (self.tile)(pointers.as_ptr(), self.params.as_ptr().cast(), n) }
    }

    /// All operands lie densely in the same order.
    unsafe fn flat(&self, n: usize, tile_bytes: usize) {
        let size = self.compute.size();
        if self.ports.iter().all(|p| matches!(p.way, Way::Direct)) {
            parallel_for(n, GRAIN, |range| {
                let mut pointers = [std::ptr::null_mut(); MAX_OPERANDS];
                for (pointer, port) in pointers.iter_mut().zip(&self.ports) {
                    *pointer = port.ptr.wrapping_add(range.start * size);
                }
                // SAFETY: elements `range` of dense operands of the compute type.
                unsafe { self.call(&pointers, range.len()) };
            });
            return;
        }
        let tile = tile_bytes / size;
        parallel_for(n, GRAIN, |range| {
            let mut tiles = <Tiles>::new();
            // SAFETY: at most a tile's length.
            unsafe { self.fill_constants(&mut tiles, range.len().min(tile)) };
            let mut start = range.start;
            while start < range.end {
                let len = tile.min(range.end - start);
                // SAFETY: elements `start..start + len` of dense operands.
                unsafe {
                    self.one_tile(&mut tiles, len, |k| {
                        let unit = self.element_size(k);
                        let block = Block {
                            inner: len,
                            inner_stride: unit as isize,
                            outer: 1,
                            outer_stride: 0,
                        };
                        (self.ports[k].ptr.wrapping_add(start * unit), block)
                    });
                }
                start += len;
            }
            finish();
        });
    }

    /// Loads, runs and stores one tile of `len` elements; `place` says where operand `k`'s part is.
    #[inline(always)]
    unsafe fn one_tile(
        &self,
        tiles: &mut Tiles,
        len: usize,
        place: impl Fn(usize) -> (*mut u8, Block),
    ) {
        let mut pointers = [std::ptr::null_mut(); MAX_OPERANDS];
        // SAFETY: `place` names elements of the operand, at most a tile's length.
        unsafe {
            for (k, port) in self.ports.iter().enumerate() {
                pointers[k] = match port.way {
                    Way::Direct => place(k).0,
                    Way::Constant => tiles.at(k),
                    Way::Moved(load) => {
                        if k >= self.outputs {
                            let (ptr, block) = place(k);
                            load(tiles.at(k), ptr, block);
                        }
                        tiles.at(k)
                    }
                };
            }
            self.call(&pointers, len);
            for k in 0..self.outputs {
                if let Way::Moved(store) = self.ports[k].way {
                    let (ptr, block) = place(k);
                    store(tiles.at(k), ptr, block);
                }
            }
        }
    }

    /// Long innermost runs: tiles within a row.
    unsafe fn rows(&self, plan: &Plan) {
        let (rows, inner) = (plan.rows(), plan.inner());
        let across = (0..self.ports.len()).any(|k| {
            let stride = plan.inner_stride(k).unsigned_abs();
            stride != 0 && stride != self.element_size(k)
        });
        let tile = if across { BAND_COLUMNS } else { TILE_BYTES / self.compute.size() };
        let band = if across { BAND.min(rows) } else { 1 };
        let columns = |rows: std::ops::Range<usize>, columns: std::ops::Range<usize>| {
            let mut tiles = <Tiles>::new();
            // SAFETY: at most a tile's length.
            unsafe { self.fill_constants(&mut tiles, tile.min(columns.len())) };
            let mut first = rows.start;
            while first < rows.end {
                let band = band.min(rows.end - first);
                // SAFETY: these rows and columns are inside the plan.
                unsafe { self.band(&mut tiles, plan, first..first + band, columns.clone(), tile) };
                first += band;
            }
        };
        if rows >= 2 * crate::threads::get_num_threads() {
            let bands = rows.div_ceil(band);
            parallel_for(bands, (GRAIN / (band * inner)).max(1), |range| {
                columns(range.start * band..(range.end * band).min(rows), 0..inner)
            });
        } else {
            parallel_for(inner, (GRAIN / rows).max(1), |range| columns(0..rows, range));
        }
    }

    /// A few rows, tile of columns by tile of columns.
    unsafe fn band(
        &self,
        tiles: &mut Tiles,
        plan: &Plan,
        rows: std::ops::Range<usize>,
        columns: std::ops::Range<usize>,
        tile: usize,
    ) {
        let operands = self.ports.len();
        let mut starts: SmallVec<[*mut u8; BAND * 4]> = SmallVec::new();
        for row in rows.clone() {
            let start = |k: usize| self.ports[k].ptr.wrapping_offset(plan.row_offset(row, k));
            starts.extend((0..operands).map(start));
        }
        let mut column = columns.start;
        while column < columns.end {
            let len = tile.min(columns.end - column);
            for row in starts.chunks_exact(operands) {
                // SAFETY: `len` elements from `column` on, of a row of each operand.
                unsafe {
                    self.one_tile(tiles, len, |k| {
                        let stride = plan.inner_stride(k);
                        let block =
                            Block { inner: len, inner_stride: stride, outer: 1, outer_stride: 0 };
                        (row[k].wrapping_offset(column as isize * stride), block)
                    });
                }
            }
            column += len;
        }
    }

    /// Short innermost runs: a tile takes many of them. Operands that are not linear over all
    /// elements are gathered run by run.
    unsafe fn packed(&self, plan: &Plan) {
        let (rows, inner) = (plan.rows(), plan.inner());
        let rows_per_tile = (TILE_BYTES / self.compute.size() / inner).max(1);
        let tiles_in_all = rows.div_ceil(rows_per_tile);
        let grain = (GRAIN / (rows_per_tile * inner)).max(1);
        parallel_for(tiles_in_all, grain, |range| {
            let mut tiles = <Tiles>::new();
            let mut first = range.start * rows_per_tile;
            let end = (range.end * rows_per_tile).min(rows);
            // SAFETY: a tile has room for `rows_per_tile` rows.
            unsafe { self.fill_constants(&mut tiles, rows_per_tile.min(rows) * inner) };
            let mut repeated = 0;
            while first < end {
                let count = rows_per_tile.min(end - first);
                // SAFETY: these rows are inside the plan.
                unsafe { self.packed_tile(&mut tiles, plan, first, count, &mut repeated) };
                first += count;
            }
        });
    }

    /// `repeated` is the number of rows for which tiles of operands that repeat every row are filled.
    unsafe fn packed_tile(
        &self,
        tiles: &mut Tiles,
        plan: &Plan,
        first: usize,
        count: usize,
        repeated: &mut usize,
    ) {
        let inner = plan.inner();
        let mut pointers = [std::ptr::null_mut(); MAX_OPERANDS];
        // SAFETY: rows `first..first + count` are inside the plan and fit in a tile.
        unsafe {
            for (k, port) in self.ports.iter().enumerate() {
                pointers[k] = match port.way {
                    Way::Direct => port.ptr.wrapping_add(first * inner * self.element_size(k)),
                    Way::Constant => tiles.at(k),
                    Way::Moved(load) => {
                        if k >= self.outputs && !(plan.repeats_rows(k) && *repeated >= count) {
                            self.move_rows(load, tiles.at(k), plan, k, first, count);
                        }
                        tiles.at(k)
                    }
                };
            }
            *repeated = (*repeated).max(count);
            self.call(&pointers, count * inner);
            for k in 0..self.outputs {
                if let Way::Moved(store) = self.ports[k].way {
                    self.move_rows(store, tiles.at(k), plan, k, first, count);
                }
            }
        }
    }

    /// Moves whole rows between operand `k` and its tile, as blocks of the two innermost dimensions.
    ///
    /// # Safety
    /// The *Elements invariant*; the rows are the plan's, `step` moves operand `k`, and the tile has room for them.
    unsafe fn move_rows(
        &self,
        step: Move,
        tile: *mut u8,
        plan: &Plan,
        k: usize,
        first: usize,
        count: usize,
    ) {
        let (inner, last) = (plan.inner(), plan.dims.len() - 1);
        let (block_rows, outer_stride) = (plan.dims[last - 1], plan.stride(last - 1, k));
        let mut done = 0;
        while done < count {
            let row = first + done;
            // Up to the end of the second-innermost dimension.
            let rows = (block_rows - row % block_rows).min(count - done);
            let block =
                Block { inner, inner_stride: plan.inner_stride(k), outer: rows, outer_stride };
            // SAFETY: the *Block invariant*: the rows are the operand's, and the tile has room, by this function's contract.
            unsafe {
                let memory = self.ports[k].ptr.wrapping_offset(plan.row_offset(row, k));
                step(tile.add(done * inner * self.compute.size()), memory, block);
            }
            done += rows;
        }
    }
}
