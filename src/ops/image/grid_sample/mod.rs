//! Images and volumes read at any points, and the points of an affine map.
//!
//! ```text
//! y[n, c, i] = sum over the neighbours t of p = grid[n, i] of w(p - t) x[n, c, t]
//! p in -1..1 is mapped to 0..size-1 (align_corners) or -1/2..size-1/2, last dimension of x first
//! ```
//!
//! The weights are products of one weight per dimension: a hat (bilinear), the cubic spline with
//! A = -0.75 (bicubic), or 1 (nearest). Values and first derivatives, by x and by the grid, are loops
//! over tables of neighbours (`kernels`). Under `create_graph` the gradients are composed of recorded ops,
//! from which derivatives of any order follow: which neighbours are read is a table of positions without
//! a record, weights and numbers are recorded.

mod axis;
mod cpu;
pub(in crate::ops) mod cuda;
mod options;
mod sizes;
mod transpose;
mod weighted_sums;

pub use options::{GridSampleMode, GridSampleOptions, GridSamplePadding};

use smallvec::smallvec;

use crate::amp::cast_op;
use crate::autograd::{BackwardCtx, Grads, no_grad, record};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::{compute_type, gpu, windows::taps::in_compute_type};
use crate::tensor::{Dtype, Tensor, dispatch};
use axis::Axis;
use sizes::Sizes;

/// A neighbour of all points in some dimensions.
struct Neighbour {
    weight: Tensor,
    /// Derivatives of the weight by the grid's numbers, for each of the dimensions.
    slopes: Vec<Tensor>,
    /// Positions; -1 outside.
    at: Tensor,
}

impl Axis {
    /// [`inside`](Self::inside) of all points, in f64.
    fn all_inside(&self, p: &Tensor) -> (Tensor, Tensor) {
        let border = self.options.padding_mode == GridSamplePadding::Border;
        let known = if border { p.isnan().logical_not() } else { p.isfinite() };
        let (p, last) = (p.masked_fill(&known.logical_not(), 0.0), (self.size - 1) as f64);
        let outside = |place: Tensor, slope: Tensor| {
            (known.where_(&place, -100.0), slope * known.to_dtype(Dtype::F64))
        };
        let (place, slope) = match self.options.padding_mode {
            GridSamplePadding::Zeros => return outside(p.clone(), p.ones_like()),
            GridSamplePadding::Border => (p.clone(), p.ones_like()),
            GridSamplePadding::Reflection => {
                let (low, span) =
                    if self.options.align_corners { (0.0, last) } else { (-0.5, last + 1.0) };
                if span == 0.0 {
                    return outside(p.zeros_like(), p.zeros_like());
                }
                let (distance, sign) =
                    ((&p - low).abs(), p.lt(low).where_(&p.full_like(-1.0), 1.0));
                let (extra, flips) = (distance.fmod(span), (&distance / span).floor());
                let even = flips.remainder(2.0).eq(0.0);
                let place = even.where_(&(&extra + low), &(span - &extra + low));
                (place, even.where_(&sign, &-&sign))
            }
        };
        let beyond = place.le(0.0).logical_or(&place.ge(last));
        outside(place.clamp(0.0, last), slope.masked_fill(&beyond, 0.0))
    }

    /// [`position`](Self::position) of all places; -1 where there is none.
    fn positions(&self, p: &Tensor) -> Tensor {
        let here = p.ge(0.0).logical_and(&p.lt(self.size as f64));
        here.where_(&p.masked_fill(&here.logical_not(), 0.0).to_dtype(Dtype::I64), -1i64)
    }

    /// The neighbours of points given in -1..1.
    fn neighbours(&self, grid: &Tensor) -> Vec<Neighbour> {
        let last = (self.size - 1) as f64;
        let points = match self.options.align_corners {
            true => (grid + 1.0) * (last / 2.0),
            false => ((grid + 1.0) * self.size as f64 - 1.0) * 0.5,
        };
        let scale = if self.options.align_corners { last } else { self.size as f64 } / 2.0;
        let one = |weight: Tensor, slope: Tensor, at| Neighbour { weight, slopes: vec![slope], at };
        let numbers = no_grad(|| points.detach().to_dtype(Dtype::F64));
        let constant = |values: &Tensor| values.to_dtype(points.dtype());
        if self.options.mode == GridSampleMode::Bicubic {
            let floors = numbers.floor();
            let t = &points - constant(&floors);
            return (-1..=2)
                .map(|k| {
                    let at = self.positions(&self.all_inside(&(&floors + f64::from(k))).0);
                    let (weight, slope) = spline(&t, k);
                    one(weight, slope * scale, at)
                })
                .collect();
        }
        let (places, slope) = self.all_inside(&numbers);
        if self.options.mode == GridSampleMode::Nearest {
            let at = self.positions(&places.round());
            return vec![one(points.ones_like(), points.zeros_like(), at)];
        }
        // The place as a function of the point: slope times the point, and a rest.
        let floors = places.floor();
        let finite = |p: &Tensor| p.masked_fill(&p.detach().isfinite().logical_not(), 0.0);
        let rest = &places - &slope * finite(&numbers) - &floors;
        let slope = constant(&slope);
        let t = finite(&points) * &slope + constant(&rest);
        let at = |k: f64| self.positions(&(&floors + k));
        vec![one(1.0 - &t, &slope * -scale, at(0.0)), one(t, slope * scale, at(1.0))]
    }
}

/// The weight of neighbour `k` of a point that is `t` after neighbour 0, and its derivative by t.
fn spline(t: &Tensor, k: i32) -> (Tensor, Tensor) {
    const A: f64 = -0.75;
    let (x, sign) = if k <= 0 { (t - f64::from(k), 1.0) } else { (f64::from(k) - t, -1.0) };
    match k {
        0 | 1 => (
            ((&x * (A + 2.0) - (A + 3.0)) * &x * &x) + 1.0,
            (&x * (3.0 * (A + 2.0)) - 2.0 * (A + 3.0)) * &x * sign,
        ),
        _ => {
            ((((&x - 5.0) * &x + 8.0) * &x - 4.0) * A, ((&x * 3.0 - 10.0) * &x + 8.0) * (A * sign))
        }
    }
}

impl Tensor {
    /// The image `[N, C, H, W]` (or volume `[N, C, D, H, W]`) read at the points of `grid`
    /// (`torch.nn.functional.grid_sample`): `[N, .., 2]` with x before y in -1..1 (or `[N, .., 3]`).
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when shapes do not fit, [`Error::Dtype`] when dtypes differ or are not
    /// floating-point.
    ///
    /// ```
    /// use torchrs::{Tensor, ops::GridSampleOptions};
    /// let x = Tensor::from([[[[1f32, 3.]]]]);
    /// let grid = Tensor::from([[[[0f32, 0.]]]]);
    /// assert_eq!(x.grid_sample(&grid, GridSampleOptions::default()).to_vec::<f32>(), [2.]);
    /// ```
    #[track_caller]
    pub fn grid_sample(&self, grid: &Tensor, options: GridSampleOptions) -> Tensor {
        cast_op!("grid_sample", [x = self, at = grid] => x.grid_sample(&at, options));
        let n = self.dim().saturating_sub(2);
        let fits = (2..=3).contains(&n)
            && grid.dim() == n + 2
            && grid.shape()[0] == self.shape()[0]
            && grid.shape()[n + 1] == n
            && !self.shape()[2..].contains(&0);
        if !fits {
            throw(Error::shape(
                "grid_sample",
                format!(
                    "input {:?}, grid {:?} do not fit: they must be [N, C, H, W] and [N, .., 2], or \
                     [N, C, D, H, W] and [N, .., 3]",
                    self.shape(),
                    grid.shape()
                ),
            ));
        }
        if self.dtype() != grid.dtype() || !self.dtype().is_floating_point() {
            throw(Error::dtype(
                "grid_sample",
                format!(
                    "input {}, grid {}: must be equal and floating-point",
                    self.dtype(),
                    grid.dtype()
                ),
            ));
        }
        in_compute_type(self, |x| fused(x, &grid.to_dtype(x.dtype()), options))
    }

    /// The points of `size` (`[N, C, H, W]` or `[N, C, D, H, W]`) under the affine maps of this tensor,
    /// `[N, 2, 3]` or `[N, 3, 4]`, for [`Tensor::grid_sample`] (`torch.nn.functional.affine_grid`).
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when `size` and this tensor's shape do not fit.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let same = Tensor::from([[[1f32, 0., 0.], [0., 1., 0.]]]);
    /// assert_eq!(same.affine_grid(&[1, 1, 1, 2], true).to_vec::<f32>(), [-1., 0., 1., 0.]);
    /// ```
    #[track_caller]
    pub fn affine_grid(&self, size: &[usize], align_corners: bool) -> Tensor {
        let n = size.len().saturating_sub(2);
        if !(2..=3).contains(&n) || self.shape() != [size[0], n, n + 1] || size[1..].contains(&0) {
            throw(Error::shape(
                "affine_grid",
                format!(
                    "maps {:?} do not fit size {size:?}: they must be [N, 2, 3] for [N, C, H, W] or \
                     [N, 3, 4] for [N, C, D, H, W]",
                    self.shape()
                ),
            ));
        }
        let outputs = &size[2..];
        let count: usize = outputs.iter().product();
        let point = |d: usize, i: usize| match (outputs[d], align_corners) {
            (1, _) => 0.0,
            (size, true) => 2.0 * i as f64 / (size - 1) as f64 - 1.0,
            (size, false) => (2.0 * i as f64 + 1.0) / size as f64 - 1.0,
        };
        let mut base = Vec::with_capacity(count * (n + 1));
        for i in 0..count {
            let mut rest = i;
            // The last dimension is the first coordinate.
            for d in (0..n).rev() {
                base.push(point(d, rest % outputs[d]));
                rest /= outputs[d];
            }
            base.push(1.0);
        }
        let base = Tensor::from_slice(&base, [1, count, n + 1]).to_dtype(self.dtype());
        let base = base.to_device(self.device());
        let points = base.expand(&[size[0], count, n + 1]).bmm(&self.transpose(1, 2));
        let shape: Vec<usize> =
            [&size[..1], outputs, &[n]].into_iter().flatten().copied().collect();
        points.reshape_to(&shape)
    }
}

fn sizes_of(x: &Tensor, grid: &Tensor) -> (Sizes, Vec<usize>) {
    let n = x.dim() - 2;
    let (batch, channels) = (x.shape()[0], x.shape()[1]);
    let volume: usize = x.shape()[2..].iter().product();
    if volume >= u32::MAX as usize {
        throw(Error::shape("grid_sample", format!("input {:?} has too large channels", x.shape())));
    }
    let points = grid.shape()[1..n + 1].iter().product();
    let shape = [&x.shape()[..2], &grid.shape()[1..n + 1]].concat();
    (Sizes { batch, channels, volume, points }, shape)
}

fn axes(x: &Tensor, options: GridSampleOptions) -> Vec<Axis> {
    x.shape()[2..].iter().map(|&size| Axis { size, options }).collect()
}

/// By the kernels; f32 and f64.
#[track_caller]
fn fused(x: &Tensor, grid: &Tensor, options: GridSampleOptions) -> Tensor {
    let (sizes, shape) = sizes_of(x, grid);
    let y = Tensor::empty(&shape, (x.dtype(), x.device()));
    let (wide, points) = (compute_type::widen(x), compute_type::widen(grid));
    if let Some(gpu) = gpu::of("grid_sample", &[x, grid]) {
        cuda::forward(gpu, sizes, [&wide, &points, &y], options);
    } else {
        dispatch!(compute x.dtype(), "grid_sample", T => {
            // SAFETY: `widen` gives contiguous tensors of this type; the output is new.
            let (x, grid, y) = unsafe { (wide.as_slice::<T>(), points.as_slice::<T>(), y.as_mut_slice::<T>()) };
            cpu::forward(sizes, &axes(&wide, options), x, grid, y);
        });
    }
    record("grid_sample", &[x, grid], y, |saver| {
        let (x, grid) = (saver.save(x), saver.save(grid));
        move |ctx| gradients(ctx, &ctx.get(&x), &ctx.get(&grid), options)
    })
}

fn gradients(ctx: &BackwardCtx, x: &Tensor, grid: &Tensor, options: GridSampleOptions) -> Grads {
    let dy = ctx.grad(0);
    if ctx.create_graph() {
        return composed_gradients(&dy, x, grid, options, [ctx.needs(0), ctx.needs(1)]);
    }
    let sizes = sizes_of(x, grid).0;
    let (dy, x, grid) =
        (compute_type::widen(&dy), compute_type::widen(x), compute_type::widen(grid));
    if let Some(gpu) = gpu::of("grid_sample", &[&dy, &x, &grid]) {
        let dx = ctx.needs(0).then(|| x.zeros_like());
        let dgrid = ctx.needs(1).then(|| Tensor::empty(grid.shape(), (x.dtype(), x.device())));
        cuda::backward(gpu, sizes, [&x, &grid, &dy], [dx.as_ref(), dgrid.as_ref()], options);
        return smallvec![dx, dgrid];
    }
    let dx = ctx.needs(0).then(|| Tensor::empty(x.shape(), x.dtype().on_host()));
    let dgrid = ctx.needs(1).then(|| Tensor::empty(grid.shape(), x.dtype().on_host()));
    dispatch!(compute x.dtype(), "grid_sample", T => {
        let axes = axes(&x, options);
        // SAFETY: `widen` gives contiguous tensors of this type.
        let (x, grid, dy) = unsafe { (x.as_slice::<T>(), grid.as_slice::<T>(), dy.as_slice::<T>()) };
        // SAFETY: a new tensor.
        let dx = dx.as_ref().map(|dx| unsafe { dx.as_mut_slice::<T>() });
        // SAFETY: a new tensor.
        let dgrid = dgrid.as_ref().map(|dgrid| unsafe { dgrid.as_mut_slice::<T>() });
        cpu::gradients(sizes, &axes, (x, grid, dy), dx, dgrid);
    });
    smallvec![dx, dgrid]
}

/// The neighbours of all points `[batch, points]` in all dimensions.
fn all_neighbours(x: &Tensor, grid: &Tensor, options: GridSampleOptions) -> Vec<Neighbour> {
    let Sizes { batch, points, .. } = sizes_of(x, grid).0;
    let axes = axes(x, options);
    let coordinates = grid.reshape_to(&[batch, points, axes.len()]);
    let near = |d: usize| axes[d].neighbours(&coordinates.select(2, (axes.len() - 1 - d) as i64));
    (1..axes.len()).fold(near(0), |all, d| {
        let near = near(d);
        let join = |a: &Neighbour, b: &Neighbour| {
            let slopes = a.slopes.iter().map(|slope| slope * &b.weight);
            Neighbour {
                weight: &a.weight * &b.weight,
                slopes: slopes.chain([&a.weight * &b.slopes[0]]).collect(),
                at: a
                    .at
                    .ge(0i64)
                    .logical_and(&b.at.ge(0i64))
                    .where_(&(&a.at * axes[d].size as i64 + &b.at), -1i64),
            }
        };
        all.iter().flat_map(|a| near.iter().map(move |b| join(a, b))).collect()
    })
}

impl Neighbour {
    /// Positions `[batch, channels, points]` in a channel with a 0 at its end for what is outside.
    fn index(&self, Sizes { batch, channels, volume, points }: Sizes) -> Tensor {
        let at = self.at.masked_fill(&self.at.lt(0i64), volume as i64);
        at.reshape_to(&[batch, 1, points]).expand(&[batch, channels, points])
    }
}

/// `[batch, channels, volume + 1]`, with a 0 at the end.
fn closed(x: &Tensor, Sizes { batch, channels, volume, .. }: Sizes) -> Tensor {
    let zero = Tensor::zeros([batch, channels, 1], (x.dtype(), x.device()));
    Tensor::cat(&[&x.reshape_to(&[batch, channels, volume]), &zero], 2)
}

/// The gradients by x and the grid, of recorded ops.
fn composed_gradients(
    dy: &Tensor,
    x: &Tensor,
    grid: &Tensor,
    options: GridSampleOptions,
    [by_x, by_grid]: [bool; 2],
) -> Grads {
    let sizes = sizes_of(x, grid).0;
    let Sizes { batch, channels, volume, points } = sizes;
    let all = all_neighbours(x, grid, options);
    let dy = dy.reshape_to(&[batch, channels, points]);
    let dx = by_x.then(|| {
        let zeros = Tensor::zeros([batch, channels, volume + 1], (x.dtype(), x.device()));
        let sums = all.iter().fold(zeros, |sums, near| {
            sums.scatter_add(2, &near.index(sizes), &(&dy * near.weight.unsqueeze(1)))
        });
        sums.narrow(2, 0, volume).reshape_to(x.shape())
    });
    let dgrid = by_grid.then(|| {
        let closed = closed(x, sizes);
        let zeros = Tensor::zeros([batch, points], (x.dtype(), x.device()));
        let mut sums = vec![zeros; x.dim() - 2];
        for near in &all {
            let read = (&dy * closed.gather(2, &near.index(sizes))).sum_dim(&[1], false);
            // The last dimension is the grid's first number.
            for (sum, slope) in sums.iter_mut().rev().zip(&near.slopes) {
                *sum = &*sum + &read * slope;
            }
        }
        Tensor::stack(&sums, 2).reshape_to(grid.shape())
    });
    smallvec![dx, dgrid]
}

/// The value, of recorded ops: what the kernels are tested against.
#[cfg(test)]
fn composed(x: &Tensor, grid: &Tensor, options: GridSampleOptions) -> Tensor {
    let (sizes, shape) = sizes_of(x, grid);
    let closed = closed(x, sizes);
    let all = all_neighbours(x, grid, options);
    let terms = all.iter().map(|n| closed.gather(2, &n.index(sizes)) * n.weight.unsqueeze(1));
    terms.reduce(|a, b| a + b).expect("at least one neighbour").reshape_to(&shape)
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    use GridSampleMode::*;
    use GridSamplePadding::*;
    let sample = |name: &str, mode, padding_mode, align_corners| {
        let options = GridSampleOptions { mode, padding_mode, align_corners };
        let inputs = [values([2, 2, 3, 4], 1), values([2, 3, 2, 2], 7)];
        let call = move |x: &[Tensor]| x[0].grid_sample(&(&x[1] * 1.3), options);
        OpSample::new(format!("grid_sample({name})"), inputs, call).no_half().slack(8.0)
    };
    let volume = |name: &str, mode, padding_mode, align_corners| {
        let options = GridSampleOptions { mode, padding_mode, align_corners };
        let inputs = [values([1, 2, 3, 2, 4], 1), values([1, 2, 1, 3, 3], 7)];
        let call = move |x: &[Tensor]| x[0].grid_sample(&(&x[1] * 1.3), options);
        OpSample::new(format!("grid_sample(volume, {name})"), inputs, call).no_half().slack(8.0)
    };
    vec![
        sample("bilinear, zeros", Bilinear, Zeros, false),
        sample("bilinear, border", Bilinear, Border, true),
        sample("bilinear, reflection", Bilinear, Reflection, false),
        sample("bicubic, zeros", Bicubic, Zeros, true),
        sample("bicubic, reflection", Bicubic, Reflection, false),
        sample("nearest, zeros", Nearest, Zeros, false),
        sample("nearest, border", Nearest, Border, true),
        volume("bilinear, zeros", Bilinear, Zeros, true),
        volume("bilinear, reflection", Bilinear, Reflection, false),
        volume("nearest, reflection", Nearest, Reflection, true),
        OpSample::new("affine_grid", [values([2, 2, 3], 1)], |x| {
            x[0].affine_grid(&[2, 1, 3, 4], false)
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd::{GraphMode, grad};

    /// The kernels against the composition, in every mode, with points far outside, not finite ones, and
    /// more of them than a block has.
    #[test]
    fn the_kernels_equal_the_composition() {
        use GridSampleMode::*;
        use GridSamplePadding::*;
        for (x, grid) in
            [(&[2, 3, 5, 6][..], &[2, 11, 13, 2][..]), (&[2, 2, 3, 4, 2], &[2, 3, 7, 8, 3])]
        {
            for mode in [Bilinear, Nearest, Bicubic] {
                if mode == Bicubic && x.len() == 5 {
                    continue;
                }
                for padding_mode in [Zeros, Border, Reflection] {
                    for align_corners in [false, true] {
                        let options = GridSampleOptions { mode, padding_mode, align_corners };
                        let mut points = (values(grid, 3) * 1.7).to_vec::<f64>();
                        points[5] = f64::NAN;
                        points[9] = f64::INFINITY;
                        points[14] = f64::NEG_INFINITY;
                        let x = values(x, 1).requires_grad_(true);
                        let grid = Tensor::from_slice(&points, grid).requires_grad_(true);
                        let (got, want) = (fused(&x, &grid, options), composed(&x, &grid, options));
                        let dy = values(want.shape(), 2);
                        let grads =
                            |y: &Tensor| grad(&[y], &[&x, &grid], &[Some(&dy)], GraphMode::Retain);
                        let zeros =
                            |g: Option<Tensor>, t: &Tensor| g.unwrap_or_else(|| t.zeros_like());
                        let (a, b) = (grads(&got), grads(&want));
                        let mut pairs = vec![(got, want)];
                        for ((a, b), t) in a.into_iter().zip(b).zip([&x, &grid]) {
                            pairs.push((zeros(a, t), zeros(b, t)));
                        }
                        for (k, (got, want)) in pairs.iter().enumerate() {
                            let all = got.to_vec::<f64>().into_iter().zip(want.to_vec::<f64>());
                            for (i, (a, b)) in all.enumerate() {
                                let same = (a - b).abs() < 1e-11 || a.is_nan() && b.is_nan();
                                assert!(same, "{k} {i}: {a} {b} {options:?}");
                            }
                        }
                    }
                }
            }
        }
    }
}
