//! The loops of grid sampling: a table of neighbours for an image's points, and groups of channels that
//! are brought side by side, so that a neighbour of all of them is read at once.
use std::ops::Range;

use super::axis::Axis;
use super::options::GridSampleMode;
use super::sizes::{GROUP, Sizes};
use super::transpose::{Places, Squares};
use super::weighted_sums::Reads;
use crate::cpu::arch::vectorize::vectorize;
use crate::cpu::numbers::float::{Float, simd_fn, single, single_mut};
use crate::cpu::threads::parallel_for;
use crate::cpu::threads::parts::Parts;

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

    #[inline(always)]
    fn near<T: Float>(&self, grid: T, near: &mut Near) {
        // In the grid's own type, as PyTorch.
        let (one, size) = (T::of(1.0), T::of(self.size as f64));
        let point = match self.options.align_corners {
            true => (grid + one) * T::of(self.scale()),
            false => ((grid + one) * size - one) * T::of(0.5),
        };
        let (p, scale) = (point.as_f64(), self.scale());
        match self.options.mode {
            GridSampleMode::Nearest => {
                near.at[0] = self.position(self.inside(p).0.round_ties_even());
                (near.weight[0], near.slope[0]) = (1.0, 0.0);
            }
            GridSampleMode::Bilinear => {
                let (p, slope) = self.inside(p);
                let t = p - p.floor();
                (near.at[0], near.at[1]) =
                    (self.position(p.floor()), self.position(p.floor() + 1.0));
                (near.weight[0], near.weight[1]) = (1.0 - t, t);
                (near.slope[0], near.slope[1]) = (-slope * scale, slope * scale);
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

/// Neighbours of an image's points, point by point.
struct Table<T> {
    /// Neighbours of a point.
    taps: usize,
    /// Which neighbour it is in each dimension.
    corners: Vec<[usize; 3]>,
    /// Positions; one behind the image's for what is outside.
    at: Vec<u32>,
    weight: Vec<T>,
    /// Derivatives of the weights by the grid's numbers, one after the other; empty where not wanted.
    slope: Vec<T>,
}

impl<T: Float> Table<T> {
    fn new(axes: &[Axis]) -> Self {
        let (n, each) = (axes.len(), axes[0].taps());
        let taps = each.pow(n as u32);
        let corner = |k: usize| std::array::from_fn(|d| k * each.pow(d as u32 + 1) / taps % each);
        let corners = (0..taps).map(corner).collect();
        Table { taps, corners, at: Vec::new(), weight: Vec::new(), slope: Vec::new() }
    }

    /// For the points `grid`, each of as many numbers as there are `axes`, the last axis first.
    #[inline(always)]
    fn fill(&mut self, axes: &[Axis], grid: &[T], with_slopes: bool) {
        let (n, taps) = (axes.len(), self.taps);
        let outside = axes.iter().map(|axis| axis.size).product::<usize>() as u32;
        self.at.clear();
        self.weight.clear();
        self.slope.clear();
        let entries = grid.len() / n * taps;
        self.at.reserve(entries);
        self.weight.reserve(entries);
        self.slope.reserve(if with_slopes { n * entries } else { 0 });
        let mut near = [Near::default(); 3];
        for point in grid.chunks_exact(n) {
            for d in 0..n {
                axes[d].near(point[n - 1 - d], &mut near[d]);
            }
            for corner in &self.corners {
                let (mut at, mut inside, mut weight) = (0, true, 1.0);
                for d in 0..n {
                    let place = near[d].at[corner[d]];
                    inside &= place.is_some();
                    at = at * axes[d].size + place.unwrap_or(0);
                    weight *= near[d].weight[corner[d]];
                }
                self.at.push(if inside { at as u32 } else { outside });
                self.weight.push(T::of(weight));
            }
            for d in (0..if with_slopes { n } else { 0 }).rev() {
                for corner in &self.corners[..taps] {
                    let mut slope = near[d].slope[corner[d]];
                    for e in 0..n {
                        slope *= if e == d { 1.0 } else { near[e].weight[corner[e]] };
                    }
                    self.slope.push(T::of(slope));
                }
            }
        }
    }
}

/// Calls `body` with ranges of the channels' groups of all images, on several threads.
fn for_groups(sizes: Sizes, body: impl Fn(Range<usize>) + Sync) {
    let Sizes { batch, channels, volume, points } = sizes;
    let grain = (32 << 10) / (GROUP * (points + volume)).max(1) + 1;
    parallel_for(batch * channels.div_ceil(GROUP), grain, body);
}

/// Image and channels of a group.
fn group(sizes: Sizes, item: usize) -> (usize, Range<usize>) {
    let groups = sizes.channels.div_ceil(GROUP);
    let first = item % groups * GROUP;
    (item / groups, first..(first + GROUP).min(sizes.channels))
}

/// y `[N, C, points]` from x `[N, C, volume]` and the grid `[N, points, dimensions]`.
pub(crate) fn forward<T: Float>(sizes: Sizes, axes: &[Axis], x: &[T], grid: &[T], y: &mut [T]) {
    let Sizes { channels, volume, points, .. } = sizes;
    let (parts, dims) = (Parts::new(y), axes.len());
    for_groups(sizes, |items| {
        let (mut table, mut filled) = (Table::new(axes), usize::MAX);
        let mut packed = vec![T::ZERO; (volume + 1) * GROUP];
        let mut results = vec![T::ZERO; points * GROUP];
        for item in items {
            let (n, group) = group(sizes, item);
            if filled != n {
                fill(&mut table, axes, &grid[n * points * dims..][..points * dims], false);
                filled = n;
            }
            let of =
                |len: usize| (n * channels + group.start) * len..(n * channels + group.end) * len;
            pack(&x[of(volume)], volume, &mut packed);
            sums(&packed, &table, &mut results);
            // SAFETY: each group is one thread's.
            unpack(&results, points, unsafe { parts.slice(of(points)) });
        }
    });
}

/// The gradients that are wanted: that of x `[N, C, volume]` and that of the grid
/// `[N, points, dimensions]`.
pub(crate) fn gradients<T: Float>(
    sizes: Sizes,
    axes: &[Axis],
    (x, grid, dy): (&[T], &[T], &[T]),
    dx: Option<&mut [T]>,
    dgrid: Option<&mut [T]>,
) {
    let Sizes { channels, volume, points, .. } = sizes;
    let (dims, groups) = (axes.len(), channels.div_ceil(GROUP));
    // Each group's share of the grid's gradient, added up below.
    let mut shares = vec![T::ZERO; if dgrid.is_some() { groups * grid.len() } else { 0 }];
    let (dx, shared) = (dx.map(Parts::new), dgrid.is_some().then(|| Parts::new(&mut shares)));
    for_groups(sizes, |items| {
        let (mut table, mut filled) = (Table::new(axes), usize::MAX);
        let room = |wanted: bool, len: usize| vec![T::ZERO; if wanted { len * GROUP } else { 0 }];
        let mut packed = room(shared.is_some(), volume + 1);
        let mut sums = room(dx.is_some(), volume + 1);
        let mut gradient = room(true, points);
        for item in items {
            let (n, group) = group(sizes, item);
            let part = n * points * dims..(n + 1) * points * dims;
            if filled != n {
                fill(&mut table, axes, &grid[part.clone()], shared.is_some());
                filled = n;
            }
            let of =
                |len: usize| (n * channels + group.start) * len..(n * channels + group.end) * len;
            pack(&dy[of(points)], points, &mut gradient);
            if let Some(dx) = &dx {
                sums.fill(T::ZERO);
                spread(&gradient, table.taps, &table.at, &table.weight, &mut sums);
                // SAFETY: each group is one thread's.
                unpack(&sums, volume, unsafe { dx.slice(of(volume)) });
            }
            if let Some(shares) = &shared {
                pack(&x[of(volume)], volume, &mut packed);
                let first = item % groups * grid.len();
                // SAFETY: each group of an image is one thread's.
                let out = unsafe { shares.slice(first + part.start..first + part.end) };
                slopes(&packed, &gradient, dims, table.taps, &table.at, &table.slope, out);
            }
        }
    });
    if let Some(dgrid) = dgrid {
        dgrid.fill(T::ZERO);
        for share in shares.chunks_exact(dgrid.len().max(1)) {
            for i in 0..dgrid.len() {
                dgrid[i] += share[i];
            }
        }
    }
}

/// A square of a transposition.
type Square<T> = [[T; GROUP]; GROUP];

/// Squares of `[GROUP, len]`.
fn channel_lines(len: usize) -> Places {
    Places { line: len, square: GROUP }
}

/// Squares of `[len, GROUP]`.
const POINT_LINES: Places = Places { line: GROUP, square: GROUP * GROUP };

/// Transposes all whole squares of `len` points of f32; false for other types.
fn transposed<T: Float>(
    from: &[T],
    from_places: Places,
    to: &mut [T],
    to_places: Places,
    len: usize,
) -> bool {
    let (Some(from), Some(to)) = (single(from), single_mut(to)) else { return false };
    vectorize(Squares { count: len / GROUP, from, from_places, to, to_places });
    true
}

/// `[channels, len]` as `[len, GROUP]`, with zeros for channels that are missing.
fn pack<T: Float>(x: &[T], len: usize, out: &mut [T]) {
    let in_registers =
        x.len() / len == GROUP && transposed(x, channel_lines(len), out, POINT_LINES, len);
    let (rows, _) = out.as_chunks_mut::<GROUP>();
    let (squares, rest) = rows[..len].as_chunks_mut::<GROUP>();
    let (channels, done) = (x.len() / len, squares.len() * GROUP);
    for (i, square) in squares.iter_mut().enumerate().filter(|_| !in_registers) {
        if channels < GROUP {
            *square = [[T::ZERO; GROUP]; GROUP];
        }
        for c in 0..channels {
            let line = x[c * len + i * GROUP..].first_chunk().expect("a square's line");
            set_column(line, c, square);
        }
    }
    for (k, row) in rest.iter_mut().enumerate() {
        for c in 0..GROUP {
            row[c] = x.get(c * len + done + k).copied().unwrap_or(T::ZERO);
        }
    }
}

#[inline(always)]
fn set_column<T: Copy>(line: &[T; GROUP], c: usize, square: &mut Square<T>) {
    assert!(c < GROUP);
    for k in 0..GROUP {
        square[k][c] = line[k];
    }
}

/// `[len, GROUP]` as `[channels, len]`.
fn unpack<T: Float>(x: &[T], len: usize, out: &mut [T]) {
    let (rows, _) = x.as_chunks::<GROUP>();
    let (squares, rest) = rows[..len].as_chunks::<GROUP>();
    let done = squares.len() * GROUP;
    for c in 0..out.len() / len {
        for k in 0..rest.len() {
            out[c * len + done + k] = rest[k][c];
        }
    }
    if out.len() / len == GROUP && transposed(x, POINT_LINES, out, channel_lines(len), len) {
        return;
    }
    for (i, square) in squares.iter().enumerate() {
        for c in 0..out.len() / len {
            let line = out[c * len + i * GROUP..].first_chunk_mut().expect("a square's line");
            column(square, c, line);
        }
    }
}

#[inline(always)]
fn column<T: Copy>(square: &Square<T>, c: usize, line: &mut [T; GROUP]) {
    assert!(c < GROUP);
    for k in 0..GROUP {
        line[k] = square[k][c];
    }
}

/// The channels at position `i`.
#[inline(always)]
fn at<T>(x: &[T], i: usize) -> &[T; GROUP] {
    x[i * GROUP..].first_chunk().expect("a position")
}

/// The sum of the neighbours `places` with weights. Sums go through memory, two neighbours at a time:
/// sums that the compiler holds in registers it does not always make vectors.
#[inline(always)]
fn blend<T: Float, const FMA: bool>(x: &[T], places: &[u32], weights: &[T], out: &mut [T; GROUP]) {
    let (a, v) = (at(x, places[0] as usize), weights[0]);
    if places.len() == 1 {
        for k in 0..GROUP {
            out[k] = v * a[k];
        }
        return;
    }
    // Bilinear, trilinear and bicubic have an even number.
    let (b, w) = (at(x, places[1] as usize), weights[1]);
    for k in 0..GROUP {
        out[k] = w.fma::<FMA>(b[k], v * a[k]);
    }
    for t in (2..places.len() - 1).step_by(2) {
        let (a, v) = (at(x, places[t] as usize), weights[t]);
        let (b, w) = (at(x, places[t + 1] as usize), weights[t + 1]);
        for k in 0..GROUP {
            out[k] = w.fma::<FMA>(b[k], v.fma::<FMA>(a[k], out[k]));
        }
    }
}

/// y `[points, GROUP]` = sum over the neighbours of weight times number.
fn sums<T: Float>(x: &[T], table: &Table<T>, y: &mut [T]) {
    let (taps, places) = (table.taps, &table.at[..]);
    match (single(x), single(&table.weight), single_mut(y)) {
        (Some(x), Some(weights), Some(y)) => vectorize(Reads { x, taps, places, weights, y }),
        _ => read(x, taps, places, &table.weight, y),
    }
}

simd_fn! {
    /// [`Table::fill`], where rounding is an instruction.
    fn fill<T, FMA>(table: &mut Table<T>, axes: &[Axis], grid: &[T], with_slopes: bool) {
        let _ = FMA;
        table.fill(axes, grid, with_slopes);
    }

    /// [`sums`] of any type.
    fn read<T, FMA>(x: &[T], taps: usize, places: &[u32], weights: &[T], y: &mut [T]) {
        let (ys, _) = y.as_chunks_mut::<GROUP>();
        for p in 0..ys.len() {
            let mine = p * taps;
            blend::<T, FMA>(x, &places[mine..][..taps], &weights[mine..][..taps], &mut ys[p]);
        }
    }

    /// For each point and dimension, the sum over channels and neighbours of dy times slope times number.
    fn slopes<T, FMA>(
        x: &[T],
        dy: &[T],
        dims: usize,
        taps: usize,
        places: &[u32],
        slope: &[T],
        out: &mut [T],
    ) {
        let mut sums = [T::ZERO; GROUP];
        for i in 0..out.len() {
            let p = i / dims;
            blend::<T, FMA>(x, &places[p * taps..][..taps], &slope[i * taps..][..taps], &mut sums);
            let dy = at(dy, p);
            for k in 0..GROUP {
                sums[k] = sums[k] * dy[k];
            }
            let mut half = GROUP / 2;
            while half > 0 {
                for k in 0..half {
                    sums[k] += sums[k + half];
                }
                half /= 2;
            }
            out[i] = sums[0];
        }
    }

    /// Adds weight times dy `[points, GROUP]` at the neighbours.
    fn spread<T, FMA>(dy: &[T], taps: usize, places: &[u32], weights: &[T], dx: &mut [T]) {
        let (dxs, _) = dx.as_chunks_mut::<GROUP>();
        let (dys, _) = dy.as_chunks::<GROUP>();
        for i in 0..places.len() {
            let (dy, w, dx) = (&dys[i / taps], weights[i], &mut dxs[places[i] as usize]);
            for k in 0..GROUP {
                dx[k] = w.fma::<FMA>(dy[k], dx[k]);
            }
        }
    }
}
