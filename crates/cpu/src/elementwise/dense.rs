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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elementwise::kernel::Formula;
    use crate::numbers::lane::Number;

    /// `x + y p`.
    struct Scaled;
    impl<S: Number> Formula<S, 2, 1, 1> for Scaled {
        #[inline(always)]
        fn eval([x, y]: [S; 2], [p]: [S; 1]) -> [S; 1] {
            [x + y * p]
        }
    }
    static SCALED: Kernel = Kernel::number::<Scaled, 2, 1, 1>();

    #[test]
    fn dense_operands_need_no_plan() {
        // One element, a vector's rest, several tiles, several threads.
        for n in [0, 1, 16, 17, 600, 3000, 3 * GRAIN + 5] {
            let x: Vec<f64> = (0..n).map(|i| i as f64).collect();
            let params = [Constant::F(0.5)];
            let run = |out: &mut [f64], x: Option<&[f64]>, y: Option<f64>| {
                let out = out.as_mut_ptr().cast::<u8>();
                let x = x.map_or(out, |x| x.as_ptr().cast_mut().cast());
                let other = if y.is_some() { std::ptr::null_mut() } else { x };
                let numbers: Vec<(usize, Constant)> =
                    y.iter().map(|&y| (2, Constant::F(y))).collect();
                // SAFETY: `out` and `x` have n values; they are the same or apart.
                unsafe {
                    execute_dense(&SCALED, Compute::F64, &params, n, &[out, x, other], &numbers)
                };
            };
            for y in [None, Some(4.0)] {
                let want: Vec<f64> = x.iter().map(|x| x + 0.5 * y.unwrap_or(*x)).collect();
                let mut out = vec![-1.0; n + 1];
                run(&mut out, Some(&x), y);
                assert_eq!((&out[..n], out[n]), (&want[..], -1.0), "{n} elements");
                let mut own = x.clone();
                run(&mut own, None, y);
                assert_eq!(own, want, "{n} elements in place");
            }
        }
    }

    /// `x - y`.
    struct Less;
    impl<S: Number> Formula<S, 2, 0, 1> for Less {
        const LIGHT: bool = true;
        #[inline(always)]
        fn eval([x, y]: [S; 2], []: [S; 0]) -> [S; 1] {
            [x - y]
        }
    }
    static LESS: Kernel = Kernel::number::<Less, 2, 0, 1>();

    #[test]
    fn without_parameters_a_number_needs_no_tile() {
        for n in [0, 1, 16, 17, 600, 3000, 3 * GRAIN + 5] {
            let mut own: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let want: Vec<f32> = own.iter().map(|x| x - 3.0).collect();
            let mut out = vec![-1.0; n + 1];
            let x = own.as_mut_ptr().cast::<u8>();
            for place in [out.as_mut_ptr().cast(), x] {
                let pointers = [place, x, std::ptr::null_mut()];
                let numbers = [(2, Constant::F(3.0))];
                // SAFETY: both have n values; they are the same or apart.
                unsafe { execute_dense(&LESS, Compute::F32, &[], n, &pointers, &numbers) };
            }
            assert_eq!((&out[..n], out[n]), (&want[..], -1.0), "{n} elements");
            assert_eq!(own, want, "{n} elements in place");
        }
    }

    #[test]
    fn large_results_go_past_the_caches_to_their_places() {
        assert!(LESS.is_light() && !SCALED.is_light());
        let n = (8 << 20) + 5;
        assert!(is_beyond(4 * n));
        let mut x: Vec<f32> = (0..n).map(|i| (i % 1001) as f32).collect();
        let mut y: Vec<f32> = (0..n).map(|i| (i % 7) as f32).collect();
        let (x, y) = (x.as_mut_ptr().cast::<u8>(), y.as_mut_ptr().cast::<u8>());
        // Not at a boundary of what is stored at once, too.
        for start in [0, 3] {
            let mut out = vec![-1f32; n + 8];
            let to = out[start..].as_mut_ptr().cast::<u8>();
            for numbers in [&[][..], &[(2, Constant::F(3.0))]] {
                let other = if numbers.is_empty() { y } else { std::ptr::null_mut() };
                // SAFETY: all have n values, apart from each other.
                unsafe { execute_dense(&LESS, Compute::F32, &[], n, &[to, x, other], numbers) };
                let want = |i: usize| {
                    (i % 1001) as f32 - if numbers.is_empty() { (i % 7) as f32 } else { 3.0 }
                };
                assert!((0..n).all(|i| out[start + i] == want(i)), "{start} {numbers:?}");
                assert!(out[..start].iter().chain(&out[start + n..]).all(|&v| v == -1.0));
            }
        }
    }

    /// `y` where `x` is less than it, `z` where it is more than that.
    struct Between;
    impl<S: Number> Formula<S, 3, 0, 1> for Between {
        #[inline(always)]
        fn eval([x, y, z]: [S; 3], []: [S; 0]) -> [S; 1] {
            [z.minimum(y.maximum(x))]
        }
    }
    static BETWEEN: Kernel = Kernel::number::<Between, 3, 0, 1>();

    #[test]
    fn two_numbers_need_no_tile_either() {
        for n in [1, 16, 17, 3000, 3 * GRAIN + 5] {
            let mut own: Vec<f32> = (0..n).map(|i| (i % 100) as f32).collect();
            own[n / 2] = f32::NAN;
            let limited = |x: &f32| if x.is_nan() { *x } else { x.clamp(20.0, 60.0) };
            let want: Vec<u32> = own.iter().map(|x| limited(x).to_bits()).collect();
            let mut out = vec![-1.0; n];
            let x = own.as_mut_ptr().cast::<u8>();
            for place in [out.as_mut_ptr().cast(), x] {
                let pointers = [place, x, std::ptr::null_mut(), std::ptr::null_mut()];
                let numbers = [(2, Constant::F(20.0)), (3, Constant::F(60.0))];
                // SAFETY: both have n values; they are the same or apart.
                unsafe { execute_dense(&BETWEEN, Compute::F32, &[], n, &pointers, &numbers) };
            }
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!((bits(&out), bits(&own)), (want.clone(), want), "{n} elements");
        }
    }
}
