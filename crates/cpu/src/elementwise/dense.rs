//! Runs a kernel over dense operands of its own type, in one order: what most small ops are. There is no plan
//! and there are no ports, and for long ones [`tile`](crate::elementwise::tile) would do the same.

use smallvec::SmallVec;

use crate::arch::cache::is_beyond;
use crate::arch::isa;
use crate::elementwise::format::fill_constant;
use crate::elementwise::kernel::{Kernel, TileFn};
use crate::elementwise::streaming::{copy_streaming, finish};
use crate::elementwise::tile::{
    FAR_TILE_BYTES, MAX_OPERANDS, MAX_PARAMS, TILE_BYTES, Tiles, parameters,
};
use crate::threads::parts::Shared;
use crate::threads::{GRAIN, parallel_for};
use torchrs_loops::{Compute, Constant};

/// Most numbers among the inputs of [`execute_dense`].
pub const MOST_NUMBERS: usize = 3;
/// Elements of an output that is also an input which go without a tile.
const FEW: usize = 16;
/// Bytes of a tile of a short loop, where less is to be filled, and of such an output: `memcpy` starts more
/// slowly with more.
const SHORT_TILE_BYTES: usize = 2048;

/// [`execute`](crate::elementwise::tile::execute) for a kernel with one output where that and all inputs are dense, in the same order, and of
/// the compute type: what most small ops are, so that there is no plan and there are no ports. `pointers`
/// are those of the output and the inputs; an input that is a number has none, and is among `numbers` with
/// its place in `pointers`.
///
/// # Safety
/// As for [`execute`](crate::elementwise::tile::execute): all have `n` elements, and the output overlaps an input only when it is the same.
pub unsafe fn execute_dense(
    kernel: &Kernel,
    compute: Compute,
    params: &[Constant],
    n: usize,
    pointers: &[*mut u8],
    numbers: &[(usize, Constant)],
) {
    let tile = kernel.tile(compute, isa::current());
    let inputs = pointers.len() - 1;
    // All after the first.
    let are_numbers = kernel.takes_numbers([1, inputs, params.len()])
        && matches!((inputs, numbers), (2, [(2, _)]) | (3, [(2, _), (3, _)]));
    let params = parameters(compute, params);
    // The kernel's vector loop wants outputs apart from inputs.
    let mut rewrites = false;
    if n > FEW {
        for input in 1..pointers.len() {
            rewrites |= pointers[input] == pointers[0];
        }
    }
    let output = if rewrites {
        Output::Rewritten
    } else if kernel.is_light() && is_beyond(n * compute.size()) {
        Output::Far
    } else {
        Output::InPlace
    };
    let simple = numbers.is_empty() && output == Output::InPlace;
    if simple && n > 0 && n < 2 * GRAIN {
        // SAFETY: this function's contract is `TileFn`'s *Tile invariant* for all elements; the
        // level is the processor's.
        return unsafe { tile(pointers.as_ptr(), params.as_ptr().cast(), n) };
    }
    let shared = Shared::new(pointers);
    parallel_for(n, GRAIN, |range| {
        let skip = range.start * compute.size();
        let mut pointers: SmallVec<[*mut u8; 6]> = SmallVec::from_slice(shared.get());
        for pointer in &mut pointers {
            *pointer = pointer.wrapping_add(skip);
        }
        // SAFETY: elements `range` of every operand, by this function's contract.
        unsafe {
            if simple {
                tile(pointers.as_ptr(), params.as_ptr().cast(), range.len());
            } else {
                let params = if are_numbers { None } else { Some(&params) };
                by_tiles(tile, compute, params, range.len(), &mut pointers, numbers, output);
            }
        }
    });
}

/// How an output reaches its place.
#[derive(Clone, Copy, PartialEq)]
enum Output {
    /// As the kernel writes it.
    InPlace,
    /// From a tile, since it is also an input.
    Rewritten,
    /// From a tile, past the caches: an ordinary store first reads the line that it overwrites.
    Far,
}

/// [`execute_dense`] with tiles for numbers and for outputs that need one. Without parameters numbers need none.
///
/// # Safety
/// As for [`execute_dense`].
unsafe fn by_tiles(
    tile: TileFn,
    compute: Compute,
    params: Option<&[[u8; 8]; MAX_PARAMS]>,
    n: usize,
    pointers: &mut [*mut u8],
    numbers: &[(usize, Constant)],
    output: Output,
) {
    let mut tiles = Tiles::<{ MOST_NUMBERS + 1 }>::new();
    let size = compute.size();
    let most = match output {
        Output::Far => FAR_TILE_BYTES / size,
        Output::Rewritten => SHORT_TILE_BYTES / size,
        Output::InPlace if params.is_none() => n,
        Output::InPlace if n * size <= TILE_BYTES => SHORT_TILE_BYTES / size,
        Output::InPlace => TILE_BYTES / size,
    };
    let copies = if params.is_none() { 1 } else { n.min(most) };
    let params = params.map_or(std::ptr::null(), |params| params.as_ptr().cast());
    let mut steps = [size; MAX_OPERANDS];
    for (i, &(place, number)) in numbers.iter().enumerate() {
        pointers[place] = tiles.at(i + 1);
        steps[place] = 0;
        // SAFETY: a tile has room for that many.
        unsafe { fill_constant(number, compute, pointers[place], copies) };
    }
    let mut place = pointers[0];
    if output != Output::InPlace {
        pointers[0] = tiles.at(0);
        steps[0] = 0;
    }
    let mut start = 0;
    while start < n {
        let len = most.min(n - start);
        // SAFETY: `len` elements of each operand or of its tile; the output is no input, or has a tile.
        unsafe {
            tile(pointers.as_ptr(), params, len);
            match output {
                Output::InPlace => {}
                Output::Rewritten => place.copy_from_nonoverlapping(pointers[0], len * size),
                Output::Far => copy_streaming(place, pointers[0], len * size),
            }
        }
        place = place.wrapping_add(len * size);
        for k in 0..pointers.len() {
            pointers[k] = pointers[k].wrapping_add(len * steps[k]);
        }
        start += len;
    }
    if output == Output::Far {
        finish();
    }
}
