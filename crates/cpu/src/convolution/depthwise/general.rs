//! Depthwise products of any window: each plane is done a piece of a row at a time, from its [`Field`].

use super::job::{Planes, grain};
use crate::arch::isa;
use crate::convolution::direct::Target;
use crate::convolution::field::{Field, Window};
use crate::numbers::float::simd_fn;
use crate::products::micro::Product;
use crate::products::tiled::Tiled;
use crate::threads::parallel_for;
use crate::threads::parts::{Parts, Shared, with_scratch};

/// Partial sums of a product of slices.
const LANES: usize = 32;

/// Result plane c is the sum over its source planes and the taps of source times filter.
/// `filters` are `[channels, inputs, taps]`, and the caller has checked that the target is in `out`.
pub fn correlate_planes<T: Tiled>(
    planes: Planes,
    window: &Window,
    source: &[T],
    filters: &[T],
    bias: Option<&[T]>,
    target: Target,
    out: &mut [T],
) {
    let tile = T::tile(isa::current());
    let wide = tile.columns;
    let field = Field::new(window, wide);
    let [h, w] = window.source;
    let rows: Vec<usize> = (0..planes.inputs)
        .flat_map(|i| field.taps.iter().map(move |t| (i, t)))
        .map(|(i, t)| i * field.plane + t)
        .collect();
    let last = rows.iter().max().copied().unwrap_or(0);
    let shared = Shared::new(out.as_mut_ptr());
    let work = rows.len() * window.points();
    parallel_for(planes.batch * planes.channels, grain(work), |range| {
        for item in range {
            let (n, c) = (item / planes.channels, item % planes.channels);
            let first = planes.first(n, c);
            let filter = &filters[c * rows.len()..(c + 1) * rows.len()];
            let start = bias.map_or(T::ZERO, |b| b[c]);
            let size = planes.inputs * field.plane + Field::SLACK;
            with_scratch(size + wide, |scratch: &mut [T]| {
                let (copy, line) = scratch.split_at_mut(size);
                for i in 0..planes.inputs {
                    let from = &source[(first + i) * h * w..][..h * w];
                    let plane = &mut copy[i * field.plane..(i + 1) * field.plane];
                    if field.direct {
                        plane.copy_from_slice(from)
                    } else {
                        field.fill_plane(from, [h, w], plane)
                    }
                }
                let base = target.first + n * target.image + c * target.channel;
                for i in 0..window.grid[0] {
                    for j in (0..window.grid[1]).step_by(wide) {
                        let count = wide.min(window.grid[1] - j);
                        let first = base + i * target.row + j * target.column;
                        let straight = target.column == 1;
                        let run = &copy[i * field.grid_row + j..];
                        assert!(last + wide <= run.len(), "the field's slack is too short");
                        // SAFETY: the rows are in the field, as just checked; C is a run of the output,
                        // inside by the caller's check, of a plane of this thread's own, or `line`.
                        unsafe {
                            (tile.run)(Product {
                                k: rows.len(),
                                a: filter.as_ptr(),
                                a_row: 0,
                                a_column: 1,
                                b: run.as_ptr(),
                                rows: rows.as_ptr(),
                                c: if straight {
                                    shared.get().add(first)
                                } else {
                                    line.as_mut_ptr()
                                },
                                c_row: 0,
                                m: 1,
                                n: if straight { count } else { wide },
                                start: &start,
                                ..Product::default()
                            });
                        }
                        for (x, &sum) in line[..if straight { 0 } else { count }].iter().enumerate()
                        {
                            // SAFETY: a place of the target, inside the output by the caller's
                            // check, in a plane of this thread's own.
                            unsafe { *shared.get().add(first + x * target.column) = sum };
                        }
                    }
                }
            });
        }
    });
}

/// The gradient of the filters: for channel c, source plane i and tap t the sum over images and
/// grid points of source times `gradient` (`[batch, channels, grid]`), to `out` `[channels, taps]`.
/// Each channel reads one source plane.
pub fn correlate_plane_filters<T: Tiled>(
    planes: Planes,
    window: &Window,
    source: &[T],
    gradient: &[T],
    out: &mut [T],
) {
    let field = Field::new(window, T::tile(isa::current()).columns);
    let ([h, w], points, taps) = (window.source, window.points(), field.taps.len());
    let parts = Parts::new(out);
    let work = taps * points * planes.batch;
    parallel_for(planes.channels, grain(work), |range| {
        for c in range {
            // SAFETY: each channel is one thread's.
            let out = unsafe { parts.slice(c * taps..(c + 1) * taps) };
            out.fill(T::ZERO);
            // The gradient with the field's distance between rows and zeros in the gaps makes every tap
            // one long product.
            let spread = window.grid[0] * field.grid_row;
            with_scratch(field.plane + Field::SLACK + spread, |scratch: &mut [T]| {
                let (copy, spread) = scratch.split_at_mut(field.plane + Field::SLACK);
                copy.fill(T::ZERO);
                spread.fill(T::ZERO);
                for n in 0..planes.batch {
                    let from = planes.first(n, c);
                    let from = &source[from * h * w..][..h * w];
                    let plane = &mut copy[..field.plane];
                    if field.direct {
                        plane.copy_from_slice(from)
                    } else {
                        field.fill_plane(from, [h, w], plane)
                    }
                    let gradient = &gradient[(n * planes.channels + c) * points..][..points];
                    let lines = gradient.chunks_exact(window.grid[1]);
                    for (to, line) in spread.chunks_exact_mut(field.grid_row).zip(lines) {
                        to[..line.len()].copy_from_slice(line);
                    }
                    // The last row's gap is not in the field.
                    let used = spread.len() - (field.grid_row - window.grid[1]);
                    for (&tap, out) in field.taps.iter().zip(&mut *out) {
                        let whole = dot(&spread[..used], &copy[tap..][..used]);
                        // An infinity that no grid point reads made NaN of a zero in the gaps.
                        *out += if whole.as_f64().is_finite() {
                            whole
                        } else {
                            without_gaps(
                                &spread[..used],
                                &copy[tap..],
                                field.grid_row,
                                window.grid[1],
                            )
                        };
                    }
                }
            });
        }
    });
}

/// The sum of the products of the first `width` elements of each row, of `row` elements.
fn without_gaps<T: Tiled>(a: &[T], b: &[T], row: usize, width: usize) -> T {
    let mut sum = T::ZERO;
    for (a, b) in a.chunks(row).zip(b.chunks(row)) {
        sum += dot(&a[..width], &b[..width]);
    }
    sum
}

simd_fn! {
    /// The sum of the products of the elements of two slices of equal length.
    fn dot<T, FMA>(a: &[T], b: &[T]) -> T {
        let mut sums = [T::ZERO; LANES];
        let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
        for (a, b) in a.iter().zip(b) {
            for j in 0..LANES {
                sums[j] = a[j].fma::<FMA>(b[j], sums[j]);
            }
        }
        for ((sum, &a), &b) in sums.iter_mut().zip(a_rest).zip(b_rest) {
            *sum = a.fma::<FMA>(b, *sum);
        }
        let mut total = T::ZERO;
        for sum in sums {
            total += sum;
        }
        total
    }
}
