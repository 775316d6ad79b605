//! Convolutions whose groups have one input channel each (depthwise): too little arithmetic for
//! matrix tiles, so each plane is done directly, a piece of a row at a time, from its [`Field`].

use super::conv::Target;
use super::field::{Field, Window};
use super::float::{Float, simd_fn};
use super::parts::{Parts, Shared, with_scratch};
use super::threads::parallel_for;

/// Elements of a row done at a time: they and the sums stay in registers.
const WIDE: usize = 16;

/// Sizes of a depthwise product: `[batch, channels]` result planes, each from `inputs` planes.
#[derive(Clone, Copy, Debug)]
pub struct Planes {
    /// Images.
    pub batch: usize,
    /// Result planes of an image.
    pub channels: usize,
    /// Source planes of an image.
    pub sources: usize,
    /// Source planes that add up to a result plane: `inputs` ones from `first` on, where `first` is
    /// `channel * sources / channels`.
    pub inputs: usize,
}

/// Result plane c is the sum over its source planes and the taps of source times filter.
/// `filter(c)` gives channel c's numbers `[inputs, taps]`.
pub fn correlate_planes<T: Float>(
    planes: Planes,
    window: &Window,
    source: &[T],
    filter: impl Fn(usize) -> Vec<T> + Sync,
    bias: Option<&[T]>,
    target: Target,
    out: &mut [T],
) {
    let field = Field::new(window);
    let [h, w] = window.source;
    let rows: Vec<usize> = (0..planes.inputs)
        .flat_map(|i| field.taps.iter().map(move |t| (i, t)))
        .map(|(i, t)| i * field.plane + t)
        .collect();
    let reach = target.first
        + (planes.batch - 1) * target.image
        + (planes.channels - 1) * target.channel
        + (window.grid[0] - 1) * target.row
        + (window.grid[1] - 1) * target.column;
    assert!(reach < out.len(), "the target is outside the output");
    let shared = Shared::new(out.as_mut_ptr());
    let work = rows.len() * window.points();
    parallel_for(planes.batch * planes.channels, (512 << 10) / work.max(1) + 1, |range| {
        for item in range {
            let (n, c) = (item / planes.channels, item % planes.channels);
            let first = n * planes.sources + c * planes.sources / planes.channels;
            let (filter, start) = (filter(c), bias.map_or(T::ZERO, |b| b[c]));
            let size = planes.inputs * field.plane + Field::SLACK;
            with_scratch(size + WIDE, |scratch: &mut [T]| {
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
                    for j in (0..window.grid[1]).step_by(WIDE) {
                        let at = i * field.grid_row + j;
                        weigh(&copy[at..], &rows, &filter, start, line);
                        let count = WIDE.min(window.grid[1] - j);
                        let first = base + i * target.row + j * target.column;
                        for (x, &sum) in line[..count].iter().enumerate() {
                            // SAFETY: inside the output by the assertion; planes are disjoint.
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
pub fn correlate_plane_filters<T: Float>(
    planes: Planes,
    window: &Window,
    source: &[T],
    gradient: &[T],
    out: &mut [T],
) {
    let field = Field::new(window);
    let ([h, w], points, taps) = (window.source, window.points(), field.taps.len());
    let parts = Parts::new(out);
    let work = taps * points * planes.batch;
    parallel_for(planes.channels, (512 << 10) / work.max(1) + 1, |range| {
        for c in range {
            // SAFETY: each channel is one thread's.
            let out = unsafe { parts.slice(c * taps..(c + 1) * taps) };
            out.fill(T::ZERO);
            with_scratch(field.plane + Field::SLACK, |copy: &mut [T]| {
                for n in 0..planes.batch {
                    let from = n * planes.sources + c * planes.sources / planes.channels;
                    let from = &source[from * h * w..][..h * w];
                    let plane = &mut copy[..field.plane];
                    if field.direct {
                        plane.copy_from_slice(from)
                    } else {
                        field.fill_plane(from, [h, w], plane)
                    }
                    let gradient = &gradient[(n * planes.channels + c) * points..][..points];
                    overlap(copy, field.grid_row, &field.taps, gradient, window.grid[1], out);
                }
            });
        }
    });
}

simd_fn! {
    /// `WIDE` sums over `rows` of the source displaced by the row times the row's filter.
    fn weigh<T, FMA>(source: &[T], rows: &[usize], filter: &[T], start: T, out: &mut [T]) {
        let mut sums = [start; WIDE];
        for (&row, &f) in rows.iter().zip(filter) {
            let run: &[T; WIDE] = source[row..row + WIDE].try_into().expect("WIDE elements");
            for j in 0..WIDE {
                sums[j] = run[j].fma::<FMA>(f, sums[j]);
            }
        }
        out.copy_from_slice(&sums);
    }

    /// Adds to `out[t]` the sum over the grid of the source displaced by tap t times the gradient.
    fn overlap<T, FMA>(source: &[T], grid_row: usize, taps: &[usize], gradient: &[T], width: usize, out: &mut [T]) {
        for (&tap, out) in taps.iter().zip(out) {
            let mut sums = [T::ZERO; WIDE];
            let mut rest = T::ZERO;
            for (i, line) in gradient.chunks_exact(width).enumerate() {
                let run = &source[tap + i * grid_row..][..width];
                let (pieces, last) = line.as_chunks::<WIDE>();
                let (runs, last_run) = run.as_chunks::<WIDE>();
                for (piece, run) in pieces.iter().zip(runs) {
                    for j in 0..WIDE {
                        sums[j] = piece[j].fma::<FMA>(run[j], sums[j]);
                    }
                }
                for (&g, &s) in last.iter().zip(last_run) {
                    rest = g.fma::<FMA>(s, rest);
                }
            }
            for sum in sums {
                rest += sum;
            }
            *out += rest;
        }
    }
}
