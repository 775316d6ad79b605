//! Average pooling in two dimensions, with windows of a given size or as many as are wanted.
//!
//! ```text
//! y[i, j] = (sum of x over the window's part inside the input) / divisor[i, j]
//! avg_pool2d:          window i starts at i * stride - padding; the divisor is the window's size with
//!                      or without padding (count_include_pad), or divisor_override
//! adaptive_avg_pool2d: window i is in * i / out (rounded down) to in * (i + 1) / out (rounded up)
//! ```
//!
//! Both are a list of ranges per dimension. The rows of a window are added first, then its columns;
//! the gradient goes the same way back. Each is the other's gradient.

mod stride_two;

use std::ops::Range;
use std::sync::Arc;

use smallvec::smallvec;

use stride_two::{Planes, Twos};

use super::composed::assert_no_dilation;
use super::max::{Pool2dOptions, check_dims};
use crate::autograd::record;
use crate::cpu::{
    arch::cache::is_far, arch::vectorize::vectorize, folds::moments, numbers::float::Float,
    numbers::float::simd_fn, numbers::float::single, numbers::float::single_mut,
    numbers::widen::Real, threads::parallel_for, threads::parts::Parts,
    threads::parts::with_scratch,
};
#[cfg(doc)]
use crate::error::Error;
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::{
    compute_type, gpu, pool::cuda, pool::cuda::Dim, pool::cuda::Window, pool::integer,
    windows::taps::adaptive_ranges,
};
use crate::tensor::{Shape, Tensor, dispatch};

impl Tensor {
    /// The mean of each window (`torch.nn.functional.avg_pool2d`) of `[N, C, H, W]` or `[C, H, W]`.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] or [`Error::Argument`] for windows that do not fit or a dilation, and
    /// [`Error::Dtype`] when the tensor is neither floating-point nor i64, whose means are rounded towards zero.
    ///
    /// ```
    /// use torchrs::{Tensor, ops::Pool2dOptions};
    /// let x = Tensor::from([[[1f32, 2., 5.], [3., 4., 0.]]]);
    /// assert_eq!(x.avg_pool2d(Pool2dOptions::new([2, 2])).to_vec::<f32>(), [2.5]);
    /// ```
    #[track_caller]
    pub fn avg_pool2d(&self, options: Pool2dOptions) -> Tensor {
        assert_no_dilation("avg_pool2d", &options);
        let out = options.output("avg_pool2d", self);
        if !self.dtype().is_floating_point() {
            return integer::means("avg_pool2d", self, out, &options);
        }
        let dimension = |d: usize| {
            let size = self.shape()[self.dim() - 2 + d];
            let (kernel, pad) = (options.kernel_size[d], options.padding[d]);
            let windows = (0..out[d]).map(|i| {
                let start = i * options.strides()[d];
                let end = (start + kernel).min(size + 2 * pad);
                let inside = start.saturating_sub(pad)..(end - pad).min(size);
                let count = if options.count_include_pad { end - start } else { inside.len() };
                (inside, count)
            });
            windows.unzip()
        };
        let ((rows, high), (columns, wide)) = (dimension(0), dimension(1));
        let divisor = options.divisor_override;
        let equal = Some(Equal {
            kernel: options.kernel_size[1],
            stride: options.strides()[1],
            padding: options.padding[1],
        });
        let dim = |d: usize| {
            let size = self.shape()[self.dim() - 2 + d];
            let (kernel, pad) = (options.kernel_size[d], options.padding[d]);
            Dim::sliding(size, out[d], [kernel, options.strides()[d], pad, 1])
                .counting_padding(options.count_include_pad)
        };
        let dims = [dim(0), dim(1)];
        average("avg_pool2d", self, Windows { rows, columns, high, wide, divisor, equal, dims })
    }

    /// The means of `output_size` windows of nearly equal size that cover the input
    /// (`torch.nn.functional.adaptive_avg_pool2d`); `None` keeps a dimension's size.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when the input has other than 3 or 4 dimensions or an empty plane,
    /// and [`Error::Dtype`] when it is not floating-point.
    ///
    /// ```
    /// use torchrs::{Tensor, Dtype::F32};
    /// let x = Tensor::ones([2, 3, 7, 5], F32);
    /// assert_eq!(x.adaptive_avg_pool2d([Some(1), None]).shape(), &[2, 3, 1, 5]);
    /// ```
    #[track_caller]
    pub fn adaptive_avg_pool2d(&self, output_size: [Option<usize>; 2]) -> Tensor {
        check_dims::<2>("adaptive_avg_pool2d", self);
        let n = self.dim();
        let dimension = |d: usize| {
            let size = self.shape()[n - 2 + d];
            let out = output_size[d].unwrap_or(size);
            adaptive_ranges(size, out).into_iter().map(|w| (w.clone(), w.len())).unzip()
        };
        let ((rows, high), (columns, wide)) = (dimension(0), dimension(1));
        let dims = [0, 1].map(|d| {
            let size = self.shape()[n - 2 + d];
            Dim::adaptive(size, output_size[d].unwrap_or(size))
        });
        let windows = Windows { rows, columns, high, wide, divisor: None, equal: None, dims };
        average("adaptive_avg_pool2d", self, windows)
    }
}

/// The windows of one pooling.
struct Windows {
    rows: Vec<Range<usize>>,
    columns: Vec<Range<usize>>,
    /// Rows and columns of each window as the divisor counts them.
    high: Vec<usize>,
    wide: Vec<usize>,
    divisor: Option<i64>,
    /// How the columns come about, where they are windows at equal distances.
    equal: Option<Equal>,
    /// The same for a GPU's kernels.
    dims: [Dim; 2],
}

/// Column window `j` is `j * stride - padding` and the next `kernel - 1`, as far as they are inside.
#[derive(Clone, Copy)]
struct Equal {
    kernel: usize,
    stride: usize,
    padding: usize,
}

impl Windows {
    /// What each window's sum is multiplied by, row by row.
    fn shares<T: Float>(&self) -> Vec<T> {
        let share = |high: usize, wide: usize| {
            T::of(1.0 / self.divisor.map_or((high * wide) as f64, |d| d as f64))
        };
        self.high
            .iter()
            .flat_map(|&high| self.wide.iter().map(move |&wide| share(high, wide)))
            .collect()
    }

    /// Whether the only window is the whole plane of `size` numbers.
    fn is_whole(&self, size: usize) -> bool {
        self.rows.len() == 1
            && self.columns.len() == 1
            && self.rows[0].len() * self.columns[0].len() == size
    }

    /// The windows of rows of `width` numbers as the loop for a stride of 2 wants them, if it takes them.
    fn twos<'a>(
        &'a self,
        e: Equal,
        shares: &'a [f32],
        width: usize,
        far: bool,
    ) -> Option<Twos<'a>> {
        let Equal { kernel, stride, padding } = e;
        let out = self.columns.len();
        let windows = Twos { rows: &self.rows, shares, kernel, padding, width, out, far };
        (stride == 2 && windows.fits()).then_some(windows)
    }

    /// Zeros before a row of `width` numbers, and numbers of the row with zeros on both sides as far as
    /// windows reach.
    fn room(&self, width: usize) -> (usize, usize) {
        let Some(e) = self.equal else { return (0, width) };
        let reach = (self.columns.len() - 1) * e.stride + e.kernel;
        (e.padding, reach.max(e.padding + width))
    }
}

#[track_caller]
fn average(name: &'static str, x: &Tensor, windows: Windows) -> Tensor {
    if !x.dtype().is_floating_point() {
        crate::tensor::dtype::not_floating(name, x.dtype())
    }
    pool(name, x, Arc::new(windows))
}

fn pool(name: &'static str, x: &Tensor, windows: Arc<Windows>) -> Tensor {
    let n = x.dim();
    let mut shape = Shape::from_slice(&x.shape()[..n - 2]);
    shape.extend([windows.rows.len(), windows.columns.len()]);
    let y = planes(x, &shape, &windows, false);
    let shape = x.layout().shape.clone();
    record(name, &[x], y, |_| {
        move |ctx| smallvec![Some(spread(name, &ctx.grad(0), &shape, windows.clone()))]
    })
}

/// dx: each number of dy divided over its window.
fn spread(name: &'static str, dy: &Tensor, shape: &[usize], windows: Arc<Windows>) -> Tensor {
    let dx = planes(dy, shape, &windows, true);
    record("avg_pool2d_backward", &[dy], dx, |_| {
        move |ctx| smallvec![Some(pool(name, &ctx.grad(0), windows.clone()))]
    })
}

/// Plane by plane the means of `x`, or (`back`) its shares.
fn planes(x: &Tensor, shape: &[usize], windows: &Windows, back: bool) -> Tensor {
    if let Some(gpu) = gpu::of("avg_pool2d", &[x]) {
        let planes = shape[..shape.len() - 2].iter().product();
        let window = Window::new(&windows.dims, planes, windows.divisor);
        let kernel = if back { cuda::means_backward } else { cuda::means };
        return kernel(gpu, x, shape, window);
    }
    let (dtype, wide) = (x.dtype(), compute_type::widen(x));
    let y = Tensor::empty(shape, wide.dtype().on_host());
    if y.numel() == 0 || wide.numel() == 0 {
        y.fill_contiguous(0i64.into(), 0);
        return compute_type::narrow(y, dtype);
    }
    let count: usize = shape[..shape.len() - 2].iter().product();
    dispatch!(compute wide.dtype(), "avg_pool2d", T => {
        // SAFETY: `widen` gives a contiguous tensor of this type; the output is new.
        let (x, y) = unsafe { (wide.as_slice::<T>(), y.as_mut_slice::<T>()) };
        let (from, to) = (x.len() / count, y.len() / count);
        let far = is_far(x);
        let shares = windows.shares::<T>();
        let parts = Parts::new(y);
        let width = if back { shape[shape.len() - 1] } else { wide.shape()[wide.dim() - 1] };
        let (left, room) = windows.room(width);
        parallel_for(count, (64 << 10) / from.max(to) + 1, |range| {
            let x = &x[range.start * from..range.end * from];
            // SAFETY: each plane is one thread's.
            let y = unsafe { parts.slice(range.start * to..range.end * to) };
            if windows.is_whole(from.max(to)) {
                return if back { spread_whole(x, shares[0], y) } else { whole_means(x, shares[0], y) };
            }
            if let (Some(e), Some(x), Some(shares)) = (windows.equal, single(x), single(&shares))
                && let Some(windows) = windows.twos(e, shares, width, far)
            {
                let to = single_mut(y).expect("of the input's type");
                return with_scratch(windows.room(), |line: &mut [f32]| {
                    line.fill(0.0);
                    vectorize(Planes { windows, back, count: range.len(), from: x, to, line });
                });
            }
            with_scratch(room, |line: &mut [T]| {
                line.fill(T::ZERO);
                for (x, y) in x.chunks_exact(from).zip(y.chunks_exact_mut(to)) {
                    if back {
                        spread_plane(x, y, line, [left, width], windows, &shares)
                    } else {
                        means(x, y, line, [left, width], windows, &shares)
                    }
                }
            });
        });
    });
    compute_type::narrow(y, dtype)
}

fn spread_whole<T: Float>(dy: &[T], share: T, dx: &mut [T]) {
    let size = dx.len() / dy.len();
    for (dx, &g) in dx.chunks_exact_mut(size).zip(dy) {
        dx.fill(g * share);
    }
}

/// Numbers that are done at once: a register of f32.
const WIDE: usize = 8;

/// y += x.
#[inline(always)]
fn add<T: Float>(x: &[T], y: &mut [T]) {
    let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<WIDE>(), y.as_chunks_mut::<WIDE>());
    for i in 0..ys.len() {
        for k in 0..WIDE {
            ys[i][k] += xs[i][k];
        }
    }
    for k in 0..y_rest.len() {
        y_rest[k] += x_rest[k];
    }
}

/// y[j] += x[j * stride].
#[inline(always)]
fn add_strided<T: Float>(x: &[T], stride: usize, y: &mut [T]) {
    let (ys, y_rest) = y.as_chunks_mut::<WIDE>();
    let done = ys.len() * WIDE;
    for i in 0..ys.len() {
        let x = &x[i * WIDE * stride..][..(WIDE - 1) * stride + 1];
        for k in 0..WIDE {
            ys[i][k] += x[k * stride];
        }
    }
    for k in 0..y_rest.len() {
        y_rest[k] += x[(done + k) * stride];
    }
}

simd_fn! {
    /// The mean of each plane, of which there are as many as `y` has numbers.
    fn whole_means<T, FMA>(x: &[T], share: T, y: &mut [T]) {
        let _ = FMA;
        let size = x.len() / y.len();
        if (moments::REGISTER..=moments::SHORT).contains(&size) {
            let taken = moments::last_of(size);
            for i in 0..y.len() {
                y[i] = T::of(moments::short_sum(&x[i * size..][..size], &taken)) * share;
            }
            return;
        }
        for i in 0..y.len() {
            y[i] = T::of(moments::sum(&x[i * size..][..size])) * share;
        }
    }

    /// One plane of means; `line` has a row of x and zeros around it; `at` is where the row starts, and its
    /// width.
    fn means<T, FMA>(
        x: &[T],
        y: &mut [T],
        line: &mut [T],
        at: [usize; 2],
        windows: &Windows,
        shares: &[T],
    ) {
        let (_, [left, width]) = (FMA, at);
        let out = windows.columns.len();
        for i in 0..windows.rows.len() {
            let rows = &windows.rows[i];
            let sums = &mut line[left..][..width];
            sums.fill(T::ZERO);
            for row in rows.start..rows.end {
                add(&x[row * width..][..width], sums);
            }
            let y = &mut y[i * out..][..out];
            y.fill(T::ZERO);
            if let Some(e) = windows.equal {
                for t in 0..e.kernel {
                    // A constant, so that the numbers are taken by shuffles.
                    match e.stride {
                        1 => add_strided(&line[t..], 1, y),
                        2 => add_strided(&line[t..], 2, y),
                        stride => add_strided(&line[t..], stride, y),
                    }
                }
            } else {
                for j in 0..out {
                    let columns = &windows.columns[j];
                    for c in columns.start..columns.end {
                        y[j] += line[c];
                    }
                }
            }
            let shares = &shares[i * out..][..out];
            for j in 0..out {
                y[j] = y[j] * shares[j];
            }
        }
    }

    /// One plane of shares of dy; `line` as in `means`.
    fn spread_plane<T, FMA>(
        dy: &[T],
        dx: &mut [T],
        line: &mut [T],
        at: [usize; 2],
        windows: &Windows,
        shares: &[T],
    ) {
        let (_, [left, width]) = (FMA, at);
        let out = windows.columns.len();
        dx.fill(T::ZERO);
        for i in 0..windows.rows.len() {
            let sums = &mut line[left..][..width];
            sums.fill(T::ZERO);
            let (dy, shares) = (&dy[i * out..][..out], &shares[i * out..][..out]);
            for j in 0..out {
                let (share, columns) = (dy[j] * shares[j], &windows.columns[j]);
                for c in columns.start..columns.end {
                    sums[c] += share;
                }
            }
            let rows = &windows.rows[i];
            for row in rows.start..rows.end {
                add(sums, &mut dx[row * width..][..width]);
            }
        }
    }
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let sample = |name: &str, shape: &[usize], options: Pool2dOptions| {
        OpSample::new(format!("avg_pool2d({name})"), [values(shape, 1)], move |x| {
            x[0].avg_pool2d(options)
        })
    };
    let three =
        Pool2dOptions { stride: Some([2, 2]), padding: [1, 1], ..Pool2dOptions::new([3, 3]) };
    let adaptive = |name: &str, shape: &[usize], size: [Option<usize>; 2]| {
        OpSample::new(format!("adaptive_avg_pool2d({name})"), [values(shape, 2)], move |x| {
            x[0].adaptive_avg_pool2d(size)
        })
    };
    vec![
        sample("2x2", &[2, 3, 6, 7], Pool2dOptions::new([2, 2])),
        sample("3x3 stride 2 padding 1", &[2, 2, 7, 9], three),
        sample("ceil_mode", &[2, 2, 6, 8], Pool2dOptions { ceil_mode: true, ..three }),
        sample(
            "padding not counted",
            &[2, 7, 9],
            Pool2dOptions { count_include_pad: false, ..three },
        ),
        sample("divisor", &[1, 2, 6, 6], Pool2dOptions { divisor_override: Some(5), ..three }),
        adaptive("to one", &[2, 3, 4, 5], [Some(1), Some(1)]),
        adaptive("overlapping, to more", &[1, 2, 7, 3], [Some(3), Some(5)]),
        adaptive("kept", &[2, 7, 3], [None, Some(2)]),
    ]
}

/// Means by their definition, which the kernel is tested against.
#[cfg(test)]
fn reference(
    x: &[f64],
    [h, w]: [usize; 2],
    options: &Pool2dOptions,
    [oh, ow]: [usize; 2],
) -> Vec<f64> {
    let (s, p, k) = (options.strides(), options.padding, options.kernel_size);
    let mut out = Vec::new();
    for plane in x.chunks(h * w) {
        for (i, j) in (0..oh).flat_map(|i| (0..ow).map(move |j| (i, j))) {
            let (mut sum, mut inside, mut padded) = (0.0, 0, 0);
            for (r, c) in (0..k[0]).flat_map(|r| (0..k[1]).map(move |c| (r, c))) {
                let (a, b) = (i * s[0] + r, j * s[1] + c);
                padded += (a < h + 2 * p[0] && b < w + 2 * p[1]) as usize;
                let (a, b) = (a.wrapping_sub(p[0]), b.wrapping_sub(p[1]));
                if a < h && b < w {
                    sum += plane[a * w + b];
                    inside += 1;
                }
            }
            let count = if options.count_include_pad { padded } else { inside };
            out.push(sum / options.divisor_override.map_or(count as f64, |d| d as f64));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Dtype::F32;

    #[test]
    fn the_kernel_equals_the_definition() {
        let base = Pool2dOptions { padding: [1, 1], ..Pool2dOptions::new([3, 2]) };
        for options in [
            Pool2dOptions::new([2, 2]),
            Pool2dOptions { stride: Some([2, 3]), ..base },
            Pool2dOptions { stride: Some([2, 3]), ceil_mode: true, ..base },
            Pool2dOptions { count_include_pad: false, ceil_mode: true, ..base },
            Pool2dOptions { divisor_override: Some(7), stride: Some([1, 1]), ..base },
            Pool2dOptions { stride: Some([2, 2]), ..base },
            Pool2dOptions { stride: Some([3, 2]), ceil_mode: true, ..Pool2dOptions::new([2, 3]) },
            Pool2dOptions { stride: Some([2, 2]), ..Pool2dOptions::new([5, 5]) },
        ] {
            for width in [20, 21, 37] {
                let x = values([2, 3, 9, width], 1);
                let x32 = x.to_dtype(F32).requires_grad_(true);
                let x = x.requires_grad_(true);
                let (y, y32) = (x.avg_pool2d(options), x32.avg_pool2d(options));
                let out = [y.shape()[2], y.shape()[3]];
                let want = reference(&x.to_vec::<f64>(), [9, width], &options, out);
                for ((y, y32), want) in y.to_vec::<f64>().iter().zip(y32.to_vec::<f64>()).zip(want)
                {
                    assert!((y - want).abs() < 1e-12, "{y} {want} {options:?}");
                    assert!((y32 - want).abs() < 1e-5, "{y32} {want} {options:?}");
                }
                // The gradients of two loops.
                let g = values(y.shape(), 2);
                let gradient = |y: &Tensor, x: &Tensor, g: &Tensor| {
                    let grads = crate::autograd::grad(
                        &[y],
                        &[x],
                        &[Some(g)],
                        crate::autograd::GraphMode::Free,
                    );
                    grads[0].as_ref().expect("a gradient").to_vec::<f64>()
                };
                let (dx, dx32) = (gradient(&y, &x, &g), gradient(&y32, &x32, &g.to_dtype(F32)));
                for (d, d32) in dx.iter().zip(dx32) {
                    assert!((d - d32).abs() < 1e-5, "{d} {d32} {options:?}");
                }
            }
        }
    }

    /// Planes that come from memory are read otherwise.
    #[test]
    fn far_planes_have_the_same_means() {
        let planes = values([3, 1024, 1024], 4).to_dtype(F32);
        let two = Pool2dOptions::new([2, 2]);
        let all = planes.avg_pool2d(two);
        for p in 0..3 {
            let one = planes.narrow(0, p, 1).avg_pool2d(two);
            assert!(all.narrow(0, p, 1).equal(&one), "plane {p}");
        }
    }

    #[test]
    fn dilation_is_refused() {
        let o = Pool2dOptions { dilation: [2, 2], ..Pool2dOptions::new([2, 2]) };
        let text =
            crate::error::catch(|| values([1, 4, 4], 1).avg_pool2d(o)).unwrap_err().to_string();
        assert!(text.contains("dilation"), "{text}");
    }
}
