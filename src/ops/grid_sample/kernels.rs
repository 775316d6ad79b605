//! The loops of grid sampling: tables of neighbours for a block of points, read for one channel after
//! the other.

use super::{Axis, GridSampleMode};
use crate::cpu::float::{Float, simd_fn};
use crate::cpu::parts::Parts;
use crate::cpu::threads::parallel_for;

/// Points of a block: its tables stay in the first cache.
const BLOCK: usize = 128;

/// Stands for a neighbour outside: no volume has such a position.
const OUTSIDE: u32 = u32::MAX;

/// The sizes of one call.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub batch: usize,
    pub channels: usize,
    /// Numbers of a channel.
    pub volume: usize,
    /// Points of an image.
    pub points: usize,
}

/// The neighbours of one point in one dimension.
#[derive(Clone, Copy, Default)]
struct Near {
    at: [Option<usize>; 4],
    weight: [f64; 4],
    /// Derivatives of the weights by the grid's number.
    slope: [f64; 4],
}

impl Axis {
    fn taps(&self) -> usize {
        match self.options.mode {
            GridSampleMode::Nearest => 1,
            GridSampleMode::Bilinear => 2,
            GridSampleMode::Bicubic => 4,
        }
    }

    /// Positions per unit of the grid.
    fn scale(&self) -> f64 {
        let size = self.size as f64;
        (if self.options.align_corners { size - 1.0 } else { size }) / 2.0
    }

    fn near<T: Float>(&self, grid: T) -> Near {
        // In the grid's own type, as PyTorch.
        let (one, size) = (T::of(1.0), T::of(self.size as f64));
        let point = match self.options.align_corners {
            true => (grid + one) * T::of(self.scale()),
            false => ((grid + one) * size - one) * T::of(0.5),
        };
        let (p, scale) = (point.wide(), self.scale());
        let mut near = Near::default();
        match self.options.mode {
            GridSampleMode::Nearest => {
                near.at[0] = self.position(self.inside(p).0.round_ties_even());
                near.weight[0] = 1.0;
            }
            GridSampleMode::Bilinear => {
                let (p, slope) = self.inside(p);
                let t = p - p.floor();
                near.at[..2]
                    .copy_from_slice(&[self.position(p.floor()), self.position(p.floor() + 1.0)]);
                near.weight[..2].copy_from_slice(&[1.0 - t, t]);
                near.slope[..2].copy_from_slice(&[-slope * scale, slope * scale]);
            }
            GridSampleMode::Bicubic => {
                let t = p - p.floor();
                for k in 0..4 {
                    let offset = k as f64 - 1.0;
                    near.at[k] = self.position(self.inside(p.floor() + offset).0);
                    let (weight, slope) = spline(t - offset);
                    (near.weight[k], near.slope[k]) = (weight, slope * scale);
                }
            }
        }
        near
    }
}

/// Keys' cubic convolution kernel with A = -0.75, and its derivative.
fn spline(x: f64) -> (f64, f64) {
    const A: f64 = -0.75;
    let (x, sign) = (x.abs(), x.signum());
    if x <= 1.0 {
        let weight = ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
        (weight, sign * (3.0 * (A + 2.0) * x - 2.0 * (A + 3.0)) * x)
    } else {
        let weight = (((x - 5.0) * x + 8.0) * x - 4.0) * A;
        (weight, sign * ((3.0 * x - 10.0) * x + 8.0) * A)
    }
}

/// Neighbours of a block of points, neighbour by neighbour.
struct Table<T> {
    at: Vec<u32>,
    weight: Vec<T>,
    /// Derivatives of the weights, dimension by dimension of the grid; empty where not wanted.
    slope: Vec<T>,
}

impl<T: Float> Table<T> {
    fn new() -> Self {
        Table { at: Vec::new(), weight: Vec::new(), slope: Vec::new() }
    }

    /// For the points `grid`, each of as many numbers as there are `axes`, the last axis first.
    fn fill(&mut self, axes: &[Axis], grid: &[T], with_slopes: bool) {
        let (n, taps) = (axes.len(), axes[0].taps());
        let (points, all) = (grid.len() / n, taps.pow(n as u32));
        self.at.resize(all * points, OUTSIDE);
        self.weight.resize(all * points, T::ZERO);
        self.slope.resize(if with_slopes { n * all * points } else { 0 }, T::ZERO);
        for (i, point) in grid.chunks_exact(n).enumerate() {
            let mut near = [Near::default(); 3];
            for (d, axis) in axes.iter().enumerate() {
                near[d] = axis.near(point[n - 1 - d]);
            }
            for k in 0..all {
                let tap = |d: usize| k / taps.pow((n - 1 - d) as u32) % taps;
                let weight = |d: usize| near[d].weight[tap(d)];
                let at = (0..n).try_fold(0, |at, d| Some(at * axes[d].size + near[d].at[tap(d)]?));
                self.at[k * points + i] = at.map_or(OUTSIDE, |at| at as u32);
                self.weight[k * points + i] = T::of((0..n).map(weight).product());
                if with_slopes {
                    for (d, at) in near.iter().enumerate().take(n) {
                        let others = (0..n).filter(|&e| e != d).map(weight).product::<f64>();
                        self.slope[((n - 1 - d) * all + k) * points + i] =
                            T::of(at.slope[tap(d)] * others);
                    }
                }
            }
        }
    }
}

/// The blocks of an image's points.
fn blocks(points: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..points).step_by(BLOCK).map(move |from| from..(from + BLOCK).min(points))
}

/// Calls `body` with an image's number and a block of its points, on several threads.
fn for_blocks(sizes: Sizes, body: impl Fn(usize, std::ops::Range<usize>) + Sync) {
    let count = sizes.points.div_ceil(BLOCK);
    let grain = (64 << 10) / (BLOCK * (sizes.channels + 8)) + 1;
    parallel_for(sizes.batch * count, grain, |range| {
        for item in range {
            let from = item % count * BLOCK;
            body(item / count, from..(from + BLOCK).min(sizes.points));
        }
    });
}

/// y `[N, C, points]` from x `[N, C, volume]` and the grid `[N, points, dimensions]`.
pub fn forward<T: Float>(sizes: Sizes, axes: &[Axis], x: &[T], grid: &[T], y: &mut [T]) {
    let Sizes { channels, volume, points, .. } = sizes;
    let (parts, dims) = (Parts::new(y), axes.len());
    for_blocks(sizes, |n, block| {
        let mut table = Table::new();
        let first = n * points;
        table.fill(axes, &grid[(first + block.start) * dims..(first + block.end) * dims], false);
        for c in n * channels..(n + 1) * channels {
            // SAFETY: each block of points is one thread's, in every channel.
            let y = unsafe { parts.slice(c * points + block.start..c * points + block.end) };
            read(&x[c * volume..(c + 1) * volume], &table.at, &table.weight, y);
        }
    });
}

/// The grid's gradient `[N, points, dimensions]`.
pub fn grid_gradient<T: Float>(
    sizes: Sizes,
    axes: &[Axis],
    (x, grid, dy): (&[T], &[T], &[T]),
    out: &mut [T],
) {
    let Sizes { channels, volume, points, .. } = sizes;
    let (parts, dims) = (Parts::new(out), axes.len());
    for_blocks(sizes, |n, block| {
        let mut table = Table::new();
        let mine = (n * points + block.start) * dims..(n * points + block.end) * dims;
        table.fill(axes, &grid[mine.clone()], true);
        let mut sums = vec![T::ZERO; mine.len()];
        for c in n * channels..(n + 1) * channels {
            let dy = &dy[c * points + block.start..c * points + block.end];
            slopes(&x[c * volume..(c + 1) * volume], &table.at, &table.slope, dy, &mut sums);
        }
        // SAFETY: each block of points is one thread's.
        let out = unsafe { parts.slice(mine) };
        for (i, out) in out.chunks_exact_mut(dims).enumerate() {
            out.iter_mut().enumerate().for_each(|(d, out)| *out = sums[d * block.len() + i]);
        }
    });
}

/// The gradient of x, `[N, C, volume]`.
pub fn data_gradient<T: Float>(
    sizes: Sizes,
    axes: &[Axis],
    (grid, dy): (&[T], &[T]),
    out: &mut [T],
) {
    let Sizes { batch, channels, volume, points } = sizes;
    let (parts, dims) = (Parts::new(out), axes.len());
    // So many channels share a table.
    const SHARED: usize = 16;
    let groups = channels.div_ceil(SHARED);
    parallel_for(batch * groups, (64 << 10) / (SHARED * points).max(1) + 1, |range| {
        let mut table = Table::new();
        for item in range {
            let n = item / groups;
            let from = item % groups * SHARED;
            let mine = n * channels + from..n * channels + (from + SHARED).min(channels);
            // SAFETY: each channel is one thread's.
            let dx = unsafe { parts.slice(mine.start * volume..mine.end * volume) };
            dx.fill(T::ZERO);
            for block in blocks(points) {
                let first = n * points;
                let grid = &grid[(first + block.start) * dims..(first + block.end) * dims];
                table.fill(axes, grid, false);
                for (c, dx) in mine.clone().zip(dx.chunks_exact_mut(volume)) {
                    let dy = &dy[c * points + block.start..c * points + block.end];
                    spread(dy, &table.at, &table.weight, dx);
                }
            }
        }
    });
}

/// The number at a neighbour: 0 outside.
#[inline(always)]
fn number<T: Float>(x: &[T], at: u32) -> T {
    x.get(at as usize).copied().unwrap_or(T::ZERO)
}

simd_fn! {
    /// y = sum over the neighbours of weight times number.
    fn read<T, FMA>(x: &[T], at: &[u32], weight: &[T], y: &mut [T]) {
        let n = y.len();
        y.fill(T::ZERO);
        for (at, weight) in at.chunks_exact(n).zip(weight.chunks_exact(n)) {
            for ((y, &at), &w) in y.iter_mut().zip(at).zip(weight) {
                *y = w.fma::<FMA>(number(x, at), *y);
            }
        }
    }

    /// Adds, for each dimension, dy times the sum over the neighbours of slope times number.
    fn slopes<T, FMA>(x: &[T], all: &[u32], slope: &[T], dy: &[T], sums: &mut [T]) {
        let n = dy.len();
        let mut products = [T::ZERO; BLOCK];
        for (k, at) in all.chunks_exact(n).enumerate() {
            for ((p, &at), &dy) in products.iter_mut().zip(at).zip(dy) {
                *p = dy * number(x, at);
            }
            for (sums, slope) in sums.chunks_exact_mut(n).zip(slope.chunks_exact(all.len())) {
                for ((sum, &p), &s) in sums.iter_mut().zip(&products).zip(&slope[k * n..]) {
                    *sum = s.fma::<FMA>(p, *sum);
                }
            }
        }
    }

    /// Adds weight times dy at the neighbours.
    fn spread<T, FMA>(dy: &[T], at: &[u32], weight: &[T], dx: &mut [T]) {
        let n = dy.len();
        for (at, weight) in at.chunks_exact(n).zip(weight.chunks_exact(n)) {
            for ((&dy, &at), &w) in dy.iter().zip(at).zip(weight) {
                if let Some(dx) = dx.get_mut(at as usize) {
                    *dx = w.fma::<FMA>(dy, *dx);
                }
            }
        }
    }
}
