//! Max pooling in one, two and three dimensions, with windows of a given size or as many as are wanted.
//!
//! ```text
//! y[i] = max over t of x[i * stride + t * dilation - padding]      (positions outside do not count)
//! out  = (in + 2 padding - dilation (kernel - 1) - 1) / stride + 1 (rounded down, or up in ceil_mode,
//!        but then the last window must still start inside the input or its left padding)
//! ```
//!
//! Of equal numbers the first counts; a NaN wins, as in PyTorch. The gradient goes to the place of
//! the maximum, which is kept as a 32-bit position in the plane (or line, or volume); it is linear in
//! dy, and its own gradient reads the same places, so both are recorded ops for second derivatives.
//! One kernel does all: dimensions that are missing in front have one position.

mod cpu;
mod lanes;
mod places;
mod small_windows;
mod steps;
mod stride_two;

use smallvec::smallvec;

use crate::autograd::{is_differentiated, no_grad, record};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::{
    compute_type, gpu, pool::cuda, pool::cuda::Dim, pool::cuda::Window, pool::integer,
    windows::taps::adaptive_ranges, windows::taps::window_room, windows::taps::window_span,
};
use crate::tensor::{Dtype, Shape, Tensor, dispatch};
use steps::{Sliding, Steps};

/// Window and rules of a pooling in `D` dimensions.
///
/// ```
/// use torchrs::ops::Pool2dOptions;
/// let halves = Pool2dOptions::new([2, 2]);
/// let overlapping = Pool2dOptions { stride: Some([2, 2]), padding: [1, 1], ..Pool2dOptions::new([3, 3]) };
/// assert_eq!(halves.stride, None);
/// # let _ = overlapping;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolOptions<const D: usize> {
    /// Size of the window.
    pub kernel_size: [usize; D],
    /// Distance between windows; `None`: the window's size.
    pub stride: Option<[usize; D]>,
    /// Positions added on each side, at most half a window.
    pub padding: [usize; D],
    /// Distance between the elements of a window (max pooling only).
    pub dilation: [usize; D],
    /// Also windows that reach over the end of the padded input.
    pub ceil_mode: bool,
    /// Whether padding counts as zeros in averages (average pooling only).
    pub count_include_pad: bool,
    /// Divides sums instead of the window's size (average pooling only).
    pub divisor_override: Option<i64>,
}

/// Options of [`Tensor::max_pool1d`] and [`Tensor::avg_pool1d`].
pub type Pool1dOptions = PoolOptions<1>;
/// Options of [`Tensor::max_pool2d`] and [`Tensor::avg_pool2d`].
pub type Pool2dOptions = PoolOptions<2>;
/// Options of [`Tensor::max_pool3d`] and [`Tensor::avg_pool3d`].
pub type Pool3dOptions = PoolOptions<3>;

impl<const D: usize> PoolOptions<D> {
    /// Windows side by side.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::PoolOptions;
    /// let x = Tensor::from([[[[1f32, 4., 2.], [3., 0., 5.]]]]);
    /// assert_eq!(x.max_pool2d(PoolOptions::new([2, 2])).item(), 4.0);
    /// let y = x.max_pool2d(PoolOptions { stride: Some([1, 1]), ..PoolOptions::new([2, 2]) });
    /// assert_eq!(y.to_vec::<f32>(), [4.0, 5.0]);
    /// ```
    pub fn new(kernel_size: [usize; D]) -> Self {
        PoolOptions {
            kernel_size,
            stride: None,
            padding: [0; D],
            dilation: [1; D],
            ceil_mode: false,
            count_include_pad: true,
            divisor_override: None,
        }
    }

    pub(in crate::ops) fn strides(&self) -> [usize; D] {
        self.stride.unwrap_or(self.kernel_size)
    }

    /// The output's sizes, after checking the input and the options.
    #[track_caller]
    pub(in crate::ops) fn output(&self, op: &str, x: &Tensor) -> [usize; D] {
        check_sizes::<D>(op, x);
        let n = x.dim();
        let strides = self.strides();
        let positive =
            [("kernel_size", self.kernel_size), ("stride", strides), ("dilation", self.dilation)];
        for (name, values) in positive {
            if values.contains(&0) {
                throw(Error::argument(op, name, format!("{values:?}; each must be at least 1")));
            }
        }
        if self.divisor_override == Some(0) {
            throw(Error::argument(op, "divisor_override", "0; cannot divide by it"));
        }
        std::array::from_fn(|d| {
            let (size, k, pad) = (x.shape()[n - D + d], self.kernel_size[d], self.padding[d]);
            let span = window_span(k, self.dilation[d]);
            if pad > span / 2 {
                throw(Error::argument(
                    op,
                    "padding",
                    format!(
                        "{:?} is more than half of the window {:?}",
                        self.padding, self.kernel_size
                    ),
                ));
            }
            let Some(room) = window_room(size, k, pad, self.dilation[d]) else {
                throw(Error::shape(
                    op,
                    format!(
                        "the window covers {span} in dimension {}, more than the padded input (input \
                         {:?}, kernel_size {:?}, padding {:?}, dilation {:?})",
                        n - D + d,
                        x.shape(),
                        self.kernel_size,
                        self.padding,
                        self.dilation
                    ),
                ))
            };
            let stride = strides[d];
            if !self.ceil_mode {
                return room / stride + 1;
            }
            let out = room.div_ceil(stride) + 1;
            if (out - 1) * stride >= size + pad { out - 1 } else { out }
        })
    }
}

impl<const D: usize> PoolOptions<D> {
    /// Dilated windows may step over a small input: such a one has no maximum.
    #[track_caller]
    pub(in crate::ops) fn check_windows(&self, op: &str, x: &Tensor, out: [usize; D]) {
        for (d, out) in out.into_iter().enumerate() {
            let size = x.shape()[x.dim() - D + d];
            let inside = |i: usize, t: usize| {
                let at = i * self.strides()[d] + t * self.dilation[d];
                at >= self.padding[d] && at - self.padding[d] < size
            };
            if let Some(i) = (0..out).find(|&i| !(0..self.kernel_size[d]).any(|t| inside(i, t))) {
                throw(Error::argument(
                    op,
                    "padding",
                    format!("window {i} of dimension {} lies in the padding only", x.dim() - D + d),
                ));
            }
        }
    }
}

/// Floating-point numbers `[N, C, ..]` or `[C, ..]` with `D` dimensions more, which are not empty.
#[track_caller]
pub(in crate::ops) fn check_dims<const D: usize>(op: &str, x: &Tensor) {
    check_sizes::<D>(op, x);
    if !x.dtype().is_floating_point() {
        crate::tensor::dtype::not_floating(op, x.dtype())
    }
}

#[track_caller]
fn check_sizes<const D: usize>(op: &str, x: &Tensor) {
    let n = x.dim();
    if !(n == D + 1 || n == D + 2) || x.shape()[n - D - 1..].contains(&0) {
        throw(Error::shape(
            op,
            format!(
                "input {:?} must have {} dimensions or {} (no batch), not be empty but for the batch",
                x.shape(),
                D + 2,
                D + 1
            ),
        ));
    }
}

impl Tensor {
    /// The maximum of each window (`torch.nn.functional.max_pool2d`) of `[N, C, H, W]` or
    /// `[C, H, W]`.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] or [`Error::Argument`] for windows that do not fit, and
    /// [`Error::Dtype`] for bools and complex numbers.
    ///
    /// ```
    /// use torchrs::{Tensor, ops::Pool2dOptions};
    /// let x = Tensor::from([[[1f32, 2., 5.], [3., 4., 0.]]]);
    /// assert_eq!(x.max_pool2d(Pool2dOptions::new([2, 2])).to_vec::<f32>(), [4.]);
    /// ```
    #[track_caller]
    pub fn max_pool2d(&self, options: Pool2dOptions) -> Tensor {
        pool("max_pool2d", self, options).values()
    }

    /// [`Tensor::max_pool2d`] and where each maximum is: its position in the plane `H * W`, as i64
    /// (`return_indices=True`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::PoolOptions;
    /// let x = Tensor::from([[[[1f32, 4.], [3., 2.]]]]);
    /// let (y, places) = x.max_pool2d_with_indices(PoolOptions::new([2, 2]));
    /// assert_eq!((y.item(), places.item()), (4.0, 1.0));
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::max_pool2d`].
    #[track_caller]
    pub fn max_pool2d_with_indices(&self, options: Pool2dOptions) -> (Tensor, Tensor) {
        pool("max_pool2d", self, options).with_indices()
    }
}

/// The maxima of windows of a given size.
#[track_caller]
pub(in crate::ops) fn pool<'a, const D: usize>(
    name: &'static str,
    x: &'a Tensor,
    options: PoolOptions<D>,
) -> Maxima<'a> {
    let out = options.output(name, x);
    options.check_windows(name, x, out);
    if x.dtype().is_integral() && x.dtype() != Dtype::Bool {
        let (y, places) = integer::maxima(x, out, &options);
        return Maxima::Integers(y, places);
    }
    if !x.dtype().is_floating_point() {
        crate::tensor::dtype::not_floating(name, x.dtype())
    }
    let steps: [_; D] = std::array::from_fn(|d| {
        Steps::Sliding(Sliding {
            size: x.shape()[x.dim() - D + d],
            out: out[d],
            kernel: options.kernel_size[d],
            stride: options.strides()[d],
            padding: options.padding[d],
            dilation: options.dilation[d],
        })
    });
    Maxima::Numbers(Pooling::new(name, x, steps))
}

/// The maxima of as many windows as are wanted.
#[track_caller]
pub(in crate::ops) fn adaptive_pool<'a, const D: usize>(
    name: &'static str,
    x: &'a Tensor,
    output_size: [Option<usize>; D],
) -> Maxima<'a> {
    check_dims::<D>(name, x);
    let steps: [_; D] = std::array::from_fn(|d| {
        let size = x.shape()[x.dim() - D + d];
        Steps::Ranges(adaptive_ranges(size, output_size[d].unwrap_or(size)))
    });
    Maxima::Numbers(Pooling::new(name, x, steps))
}

/// The maxima of windows, and their places.
#[allow(clippy::large_enum_variant, reason = "lives for one call")]
pub(in crate::ops) enum Maxima<'a> {
    Numbers(Pooling<'a>),
    Integers(Tensor, Tensor),
}

impl Maxima<'_> {
    /// The maxima alone. Their places are not computed where no gradient is wanted.
    pub fn values(self) -> Tensor {
        match self {
            Maxima::Numbers(pooling) => {
                let wanted = is_differentiated(&[pooling.x]);
                pooling.compute(wanted).0
            }
            Maxima::Integers(y, _) => y,
        }
    }

    /// The maxima, and their places in the plane as i64.
    pub fn with_indices(self) -> (Tensor, Tensor) {
        match self {
            Maxima::Numbers(pooling) => {
                let (y, places) = pooling.compute(true);
                let places = places.expect("places were asked for");
                (y, no_grad(|| places.to_dtype(Dtype::I64)))
            }
            Maxima::Integers(y, places) => (y, places),
        }
    }
}

/// A pooling that is checked and not yet computed.
pub(in crate::ops) struct Pooling<'a> {
    name: &'static str,
    x: &'a Tensor,
    /// Of three dimensions; those that are missing in front have one position.
    sizes: [usize; 3],
    windows: [Steps; 3],
    dims: usize,
}

impl<'a> Pooling<'a> {
    #[track_caller]
    fn new<const D: usize>(name: &'static str, x: &'a Tensor, steps: [Steps; D]) -> Self {
        let input = &x.shape()[x.dim() - D..];
        if input.iter().product::<usize>() > i32::MAX as usize {
            throw(Error::shape(
                name,
                format!("{input:?} has too many elements: more than 2^31 - 1"),
            ));
        }
        let mut windows = std::array::from_fn(|_| Steps::one());
        let mut sizes = [1; 3];
        for (d, steps) in steps.into_iter().enumerate() {
            (windows[3 - D + d], sizes[3 - D + d]) = (steps, input[d]);
        }
        Pooling { name, x, sizes, windows, dims: D }
    }

    /// The maxima, and their places as i32.
    fn compute(self, with_places: bool) -> (Tensor, Option<Tensor>) {
        let Pooling { name, x, sizes, windows, dims } = self;
        let n = x.dim() - dims;
        let mut shape = Shape::from_slice(&x.shape()[..n]);
        shape.extend(windows[3 - dims..].iter().map(Steps::len));
        let reach: [Dim; 3] = std::array::from_fn(|d| windows[d].on_gpu(sizes[d]));
        let window = Window::new(&reach, x.shape()[..n].iter().product(), None);
        let (y, places) = match gpu::of(name, &[x]) {
            Some(gpu) => cuda::maxima(gpu, x, dims, &shape, with_places, window),
            None => {
                let places = with_places.then(|| Tensor::empty(&shape, Dtype::I32.on_host()));
                (maxima(name, x, &shape, (sizes, &windows), places.as_ref()), places)
            }
        };
        let Some(places) = places else { return (y, None) };
        let y = record(name, &[x], y, |saver| {
            let places = saver.save(&places);
            let shape = x.layout().shape.clone();
            move |ctx| smallvec![Some(scatter(&ctx.grad(0), &ctx.get(&places), &shape, n, window))]
        });
        (y, Some(places))
    }
}

/// The maxima on the host, and their places where there is a new tensor for them.
fn maxima(
    name: &'static str,
    x: &Tensor,
    shape: &[usize],
    (sizes, windows): ([usize; 3], &[Steps; 3]),
    places: Option<&Tensor>,
) -> Tensor {
    let (dtype, wide) = (x.dtype(), compute_type::widen(x));
    let y = Tensor::empty(shape, wide.dtype().on_host());
    dispatch!(compute wide.dtype(), name, T => {
        // SAFETY: `widen` gives a contiguous tensor of this type; the outputs are new.
        let (x, y) = unsafe { (wide.as_slice::<T>(), y.as_mut_slice::<T>()) };
        // SAFETY: the places are new, contiguous and i32.
        let places = places.map(|places| unsafe { places.as_mut_slice::<i32>() });
        cpu::all_maxima(x, sizes, windows, y, places);
    });
    compute_type::narrow(y, dtype)
}

/// dx: each number of dy added where its maximum was.
/// Planes are the first `n` dimensions.
fn scatter(dy: &Tensor, places: &Tensor, shape: &[usize], n: usize, window: Window) -> Tensor {
    let dx = match gpu::of("max_pool_backward", &[dy, places]) {
        Some(gpu) => cuda::maxima_backward(gpu, dy, places, shape.len() - n, shape, window),
        None => scattered(dy, places, shape, n),
    };
    record("max_pool_backward", &[dy], dx, |saver| {
        let places = saver.save(places);
        move |ctx| smallvec![Some(pick(&ctx.grad(0), &ctx.get(&places), n, window))]
    })
}

/// [`scatter`] on the host.
fn scattered(dy: &Tensor, places: &Tensor, shape: &[usize], n: usize) -> Tensor {
    let dtype = dy.dtype();
    let g = compute_type::widen(dy);
    let dx = Tensor::empty(shape, g.dtype().on_host());
    dispatch!(compute g.dtype(), "max_pool", T => {
        // SAFETY: contiguous tensors of these types; the output is new.
        let (g, places, dx) = unsafe { (g.as_slice::<T>(), places.as_slice::<i32>(), dx.as_mut_slice::<T>()) };
        places::scatter(g, places, shape[..n].iter().product(), dx);
    });
    compute_type::narrow(dx, dtype)
}

/// The numbers of `x` where the maxima were.
fn pick(x: &Tensor, places: &Tensor, n: usize, window: Window) -> Tensor {
    let y = match gpu::of("max_pool_pick", &[x, places]) {
        Some(gpu) => cuda::pick(gpu, x, places, x.dim() - n, window),
        None => picked(x, places, n),
    };
    let shape = x.layout().shape.clone();
    record("max_pool_pick", &[x], y, |saver| {
        let places = saver.save(places);
        move |ctx| smallvec![Some(scatter(&ctx.grad(0), &ctx.get(&places), &shape, n, window))]
    })
}

/// [`pick`] on the host.
fn picked(x: &Tensor, places: &Tensor, n: usize) -> Tensor {
    let (dtype, wide) = (x.dtype(), compute_type::widen(x));
    let y = Tensor::empty(places.shape(), wide.dtype().on_host());
    dispatch!(compute wide.dtype(), "max_pool", T => {
        // SAFETY: contiguous tensors of these types; the output is new.
        let (x, places, y) = unsafe { (wide.as_slice::<T>(), places.as_slice::<i32>(), y.as_mut_slice::<T>()) };
        places::pick(x, places, wide.shape()[..n].iter().product(), y);
    });
    compute_type::narrow(y, dtype)
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let sample = |name: &str, shape: &[usize], options: Pool2dOptions| {
        OpSample::new(format!("max_pool2d({name})"), [values(shape, 1)], move |x| {
            x[0].max_pool2d(options)
        })
    };
    let three =
        Pool2dOptions { stride: Some([2, 2]), padding: [1, 1], ..Pool2dOptions::new([3, 3]) };
    vec![
        sample("2x2", &[2, 3, 6, 7], Pool2dOptions::new([2, 2])),
        sample("3x3 stride 2 padding 1", &[2, 2, 7, 9], three),
        sample("ceil_mode", &[1, 2, 6, 8], Pool2dOptions { ceil_mode: true, ..three }),
        sample(
            "dilation",
            &[2, 9, 10],
            Pool2dOptions { dilation: [2, 3], stride: Some([1, 3]), ..three },
        ),
    ]
}

/// Maxima by their definition, which the kernel is tested against.
#[cfg(test)]
fn reference(
    x: &[f64],
    [h, w]: [usize; 2],
    options: &Pool2dOptions,
    [oh, ow]: [usize; 2],
) -> Vec<(f64, usize)> {
    let (s, p, d) = (options.strides(), options.padding, options.dilation);
    let mut out = Vec::new();
    for plane in x.chunks(h * w) {
        for (i, j) in (0..oh).flat_map(|i| (0..ow).map(move |j| (i, j))) {
            let mut best: Option<(f64, usize)> = None;
            for r in 0..options.kernel_size[0] {
                for c in 0..options.kernel_size[1] {
                    let a = (i * s[0] + r * d[0]).wrapping_sub(p[0]);
                    let b = (j * s[1] + c * d[1]).wrapping_sub(p[1]);
                    if a < h && b < w {
                        let v = plane[a * w + b];
                        if best.is_none_or(|(m, _)| v > m || v.is_nan()) {
                            best = Some((v, a * w + b));
                        }
                    }
                }
            }
            out.push(best.expect("every window has an element"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_equals_the_definition() {
        let base = Pool2dOptions::new([3, 2]);
        for (shape, options) in [
            ([2, 3, 9, 40], Pool2dOptions::new([2, 2])),
            (
                [2, 3, 9, 41],
                Pool2dOptions {
                    stride: Some([2, 2]),
                    padding: [1, 1],
                    ..Pool2dOptions::new([3, 3])
                },
            ),
            ([1, 2, 10, 37], Pool2dOptions { stride: Some([1, 1]), padding: [1, 1], ..base }),
            ([1, 2, 11, 36], Pool2dOptions { stride: Some([3, 5]), ceil_mode: true, ..base }),
            ([1, 2, 11, 12], Pool2dOptions { dilation: [2, 3], stride: Some([2, 1]), ..base }),
            (
                [1, 2, 12, 48],
                Pool2dOptions {
                    dilation: [2, 3],
                    stride: Some([2, 2]),
                    padding: [1, 1],
                    ..Pool2dOptions::new([3, 3])
                },
            ),
        ] {
            // Halves: nearly every window has equal numbers.
            let mut data = values(shape, 3).to_vec::<f64>();
            data.iter_mut().for_each(|v| *v = (*v * 2.0).round() / 2.0);
            data[5] = f64::NAN;
            data[20..23].fill(f64::NEG_INFINITY);
            // All that a window in the corner has.
            data[..2].fill(f64::NEG_INFINITY);
            data[shape[3]..][..2].fill(f64::NEG_INFINITY);
            let x = Tensor::from_slice(&data, shape);
            let (y, places) = x.max_pool2d_with_indices(options);
            let out = [y.shape()[2], y.shape()[3]];
            let want = reference(&data, [shape[2], shape[3]], &options, out);
            let x32 = x.to_dtype(Dtype::F32);
            let (y32, places32) = x32.max_pool2d_with_indices(options);
            let (y, y32, places) = (y.to_vec::<f64>(), y32.to_vec::<f32>(), places.to_vec::<i64>());
            assert_eq!(places32.to_vec::<i64>(), places, "{options:?}");
            // Without places, another loop.
            let alone = x32.max_pool2d(options).to_vec::<f32>();
            for (i, &(v, place)) in want.iter().enumerate() {
                assert!(y[i] == v || v.is_nan() && y[i].is_nan(), "{} {v} {options:?}", y[i]);
                for y in [y32[i], alone[i]] {
                    assert!(y == v as f32 || v.is_nan() && y.is_nan(), "{y} {v} {options:?}");
                }
                assert_eq!(places[i], place as i64, "{options:?}");
            }
        }
    }

    /// Planes that come from memory are read otherwise.
    #[test]
    fn far_planes_have_the_same_maxima() {
        let planes = values([3, 1024, 1024], 4).to_dtype(Dtype::F32);
        for kernel in [2, 3] {
            let two = Pool2dOptions { stride: Some([2, 2]), ..Pool2dOptions::new([kernel; 2]) };
            let all = planes.max_pool2d(two);
            for p in 0..3 {
                let one = planes.narrow(0, p, 1).max_pool2d(two);
                assert!(all.narrow(0, p, 1).equal(&one), "plane {p}, {kernel}");
            }
        }
    }

    #[test]
    fn windows_that_do_not_fit_are_named() {
        let x = values([1, 1, 4, 4], 1);
        let text = |o| crate::error::catch(|| x.max_pool2d(o)).unwrap_err().to_string();
        assert!(text(Pool2dOptions::new([5, 2])).contains("covers 5"));
        let padded = Pool2dOptions { padding: [2, 0], ..Pool2dOptions::new([3, 3]) };
        assert!(text(padded).contains("more than half"));
    }
}
