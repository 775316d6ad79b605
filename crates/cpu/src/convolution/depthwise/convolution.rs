//! Depthwise products by their fastest way.

use super::general;
use super::job::{Planes, SpreadPlanes, SquareFilters, SquarePlanes, grain};
use super::square::Square;
use crate::convolution::direct::Target;
use crate::convolution::field::Window;
use crate::numbers::float::{single, single_mut};
use crate::products::tiled::Tiled;
use crate::threads::parallel_for;
use crate::threads::parts::{Parts, Shared};

/// Result plane c is the sum over its source planes and the taps of source times filter, plus
/// `bias[c]`. `filters` are `[channels, inputs, taps]`.
pub fn correlate_planes<T: Tiled>(
    planes: Planes,
    window: &Window,
    source: &[T],
    filters: &[T],
    bias: Option<&[T]>,
    target: Target,
    out: &mut [T],
) {
    assert_inside(planes, target, window.grid, out.len());
    if let (Some(square), Some(source), Some(filters), Some(out)) =
        (Square::of(window), single(source), single(filters), single_mut(out))
        && planes.inputs == 1
        && (target.row, target.column) == (window.grid[1], 1)
    {
        let bias = bias.and_then(single);
        let (size, taps) = (window.source[0] * window.source[1], window.taps.len());
        let out = Shared::new(out.as_mut_ptr());
        let operands = |item: usize| {
            let (n, c) = (item / planes.channels, item % planes.channels);
            let source = &source[planes.first(n, c) * size..][..size];
            (source, &filters[c * taps..][..taps], bias.map_or(0.0, |b| b[c]))
        };
        // Inside the output by the assertion above.
        let result = |item| out.get().wrapping_add(place(planes, target, item));
        let work = taps * window.points();
        return parallel_for(planes.batch * planes.channels, grain(work), |items| {
            let job = SquarePlanes { square: &square, items, operands: &operands, result: &result };
            // SAFETY: each plane is one thread's.
            unsafe { job.run() }
        });
    }
    general::correlate_planes(planes, window, source, filters, bias, target, out)
}

/// The data gradient of a convolution of `window` at once, for all residues modulo its stride, to planes
/// of the window's source where `target` says; false, and nothing done, where there is no kernel for it.
/// Each channel has one plane of the gradient, `[batch, channels, grid]`; `filters` are
/// `[channels, taps]`.
pub fn spread_planes<T: Tiled>(
    planes: Planes,
    window: &Window,
    gradient: &[T],
    filters: &[T],
    target: Target,
    out: &mut [T],
) -> bool {
    let Some(square) = Square::of(window).filter(SpreadPlanes::does) else { return false };
    let (Some(gradient), Some(filters), true) =
        (single(gradient), single(filters), planes.inputs == 1)
    else {
        return false;
    };
    if (target.row, target.column) != (window.source[1], 1) {
        return false;
    }
    assert_inside(planes, target, window.source, out.len());
    let Some(out) = single_mut(out) else { return false };
    let (size, taps) = (window.points(), window.taps.len());
    let out = Shared::new(out.as_mut_ptr());
    let operands = |item: usize| {
        let c = item % planes.channels;
        (&gradient[item * size..][..size], &filters[c * taps..][..taps])
    };
    // Inside the output by the assertion above.
    let result = |item| out.get().wrapping_add(place(planes, target, item));
    parallel_for(planes.batch * planes.channels, grain(taps * size), |items| {
        let job = SpreadPlanes { square: &square, items, operands: &operands, result: &result };
        // SAFETY: each plane is one thread's.
        unsafe { job.run() }
    });
    true
}

/// The gradient of the filters: for channel c and tap t the sum over images and grid points of source
/// times `gradient` (`[batch, channels, grid]`), to `out` `[channels, taps]`. Each channel reads one
/// source plane.
pub fn correlate_plane_filters<T: Tiled>(
    planes: Planes,
    window: &Window,
    source: &[T],
    gradient: &[T],
    out: &mut [T],
) {
    let Some(square) = Square::of(window) else {
        return general::correlate_plane_filters(planes, window, source, gradient, out);
    };
    let (Some(x), Some(dy)) = (single(source), single(gradient)) else {
        return general::correlate_plane_filters(planes, window, source, gradient, out);
    };
    let Some(out) = single_mut(out) else { return };
    let (size, points) = (window.source[0] * window.source[1], window.points());
    let operands = |n: usize, c: usize| {
        (
            &x[planes.first(n, c) * size..][..size],
            &dy[(n * planes.channels + c) * points..][..points],
        )
    };
    let out = Parts::new(out);
    let work = window.taps.len() * points * planes.batch;
    parallel_for(planes.channels, grain(work), |channels| {
        let (square, batch) = (&square, planes.batch);
        let job = SquareFilters { square, channels, batch, operands: &operands, out: &out };
        // SAFETY: each channel is one thread's.
        unsafe { job.run() }
    });
}

/// Where a result plane begins.
fn place(planes: Planes, target: Target, item: usize) -> usize {
    let (n, c) = (item / planes.channels, item % planes.channels);
    target.first + n * target.image + c * target.channel
}

/// That all results, planes of `grid`, are in an output of `len` numbers.
fn assert_inside(planes: Planes, target: Target, grid: [usize; 2], len: usize) {
    let last = place(planes, target, planes.batch * planes.channels - 1);
    let reach = last + (grid[0] - 1) * target.row + (grid[1] - 1) * target.column;
    assert!(reach < len, "the target is outside the output");
}
