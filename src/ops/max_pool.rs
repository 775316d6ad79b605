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

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::compute;
#[cfg(test)]
use super::samples::{OpSample, values};
use super::windows::{adaptive_ranges, window_room, window_span};
use crate::autograd::{no_grad, record};
use crate::cpu::float::{Float, simd_fn};
use crate::cpu::parts::Parts;
use crate::cpu::threads::parallel_for;
use crate::error::{Error, throw};
use crate::tensor::{Shape, dispatch};
use crate::{Dtype, Tensor};

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

    pub(super) fn strides(&self) -> [usize; D] {
        self.stride.unwrap_or(self.kernel_size)
    }

    /// The output's sizes, after checking the input and the options.
    #[track_caller]
    pub(super) fn output(&self, op: &str, x: &Tensor) -> [usize; D] {
        check_dims::<D>(op, x);
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
    pub(super) fn check_windows(&self, op: &str, x: &Tensor, out: [usize; D]) {
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

/// `[N, C, ..]` or `[C, ..]` with `D` dimensions more, which are not empty.
#[track_caller]
pub(super) fn check_dims<const D: usize>(op: &str, x: &Tensor) {
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
    if !x.dtype().is_floating_point() {
        crate::tensor::dtype::not_floating(op, x.dtype())
    }
}

impl Tensor {
    /// The maximum of each window (`torch.nn.functional.max_pool2d`) of `[N, C, H, W]` or
    /// `[C, H, W]`.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] or [`Error::Argument`] for windows that do not fit, and
    /// [`Error::Dtype`] when the tensor is not floating-point.
    ///
    /// ```
    /// use torchrs::{Tensor, ops::Pool2dOptions};
    /// let x = Tensor::from([[[1f32, 2., 5.], [3., 4., 0.]]]);
    /// assert_eq!(x.max_pool2d(Pool2dOptions::new([2, 2])).to_vec::<f32>(), [4.]);
    /// ```
    #[track_caller]
    pub fn max_pool2d(&self, options: Pool2dOptions) -> Tensor {
        pool("max_pool2d", self, options).0
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
        let (y, places) = pool("max_pool2d", self, options);
        (y, no_grad(|| places.to_dtype(Dtype::I64)))
    }
}

/// The maxima of windows of a given size, and their places as i32.
#[track_caller]
pub(super) fn pool<const D: usize>(
    name: &'static str,
    x: &Tensor,
    options: PoolOptions<D>,
) -> (Tensor, Tensor) {
    let out = options.output(name, x);
    options.check_windows(name, x, out);
    let size = |d: usize| x.shape()[x.dim() - D + d];
    let steps = std::array::from_fn(|d| Steps::Sliding(taps(&options, d, out[d], size(d))));
    maxima::<D>(name, x, steps)
}

/// The maxima of as many windows as are wanted, and their places as i32.
#[track_caller]
pub(super) fn adaptive_pool<const D: usize>(
    name: &'static str,
    x: &Tensor,
    output_size: [Option<usize>; D],
) -> (Tensor, Tensor) {
    check_dims::<D>(name, x);
    let steps = std::array::from_fn(|d| {
        let size = x.shape()[x.dim() - D + d];
        Steps::Ranges(adaptive_ranges(size, output_size[d].unwrap_or(size)))
    });
    maxima::<D>(name, x, steps)
}

#[track_caller]
fn maxima<const D: usize>(name: &'static str, x: &Tensor, steps: [Steps; D]) -> (Tensor, Tensor) {
    let n = x.dim() - D;
    let mut shape = Shape::from_slice(&x.shape()[..n]);
    shape.extend(steps.iter().map(Steps::len));
    let input = &x.shape()[n..];
    let volume: usize = input.iter().product();
    if volume > i32::MAX as usize {
        throw(Error::shape(name, format!("{input:?} has too many elements: more than 2^31 - 1")));
    }
    let mut all = [const { Steps::One }; 3];
    let mut sizes = [1; 3];
    for (d, steps) in steps.into_iter().enumerate() {
        (all[3 - D + d], sizes[3 - D + d]) = (steps, input[d]);
    }
    let (dtype, wide) = (x.dtype(), compute::widen(x));
    let y = Tensor::empty(&shape, wide.dtype());
    let places = Tensor::empty(&shape, Dtype::I32);
    dispatch!(compute wide.dtype(), name, T => {
        // SAFETY: `widen` gives a contiguous tensor of this type; the outputs are new.
        let (x, y, places) = unsafe { (wide.as_slice::<T>(), y.as_mut_slice::<T>(), places.as_mut_slice::<i32>()) };
        all_maxima(x, sizes, &all, y, places);
    });
    let y = record(name, &[x], compute::narrow(y, dtype), |saver| {
        let places = saver.save(&places);
        let shape = x.layout().shape.clone();
        move |ctx| smallvec![Some(scatter::<D>(&ctx.grad(0), &ctx.get(&places), &shape))]
    });
    (y, places)
}

/// dx: each number of dy added where its maximum was.
fn scatter<const D: usize>(dy: &Tensor, places: &Tensor, shape: &[usize]) -> Tensor {
    let dtype = dy.dtype();
    let g = compute::widen(dy);
    let dx = Tensor::empty(shape, g.dtype());
    dispatch!(compute g.dtype(), "max_pool", T => {
        // SAFETY: contiguous tensors of these types; the output is new.
        let (g, places, dx) = unsafe { (g.as_slice::<T>(), places.as_slice::<i32>(), dx.as_mut_slice::<T>()) };
        let planes = shape[..shape.len() - D].iter().product::<usize>();
        let (parts, size) = (Parts::new(dx), g.len() / planes.max(1));
        per_plane(planes, g.len(), |p| {
            // SAFETY: each plane is one thread's.
            let dx = unsafe { plane(&parts, p, planes) };
            dx.fill(T::ZERO);
            for (&g, &place) in g[p * size..][..size].iter().zip(&places[p * size..]) {
                dx[place as usize] += g;
            }
        });
    });
    record("max_pool_backward", &[dy], compute::narrow(dx, dtype), |saver| {
        let places = saver.save(places);
        move |ctx| smallvec![Some(pick::<D>(&ctx.grad(0), &ctx.get(&places)))]
    })
}

/// The numbers of `x` where the maxima were.
fn pick<const D: usize>(x: &Tensor, places: &Tensor) -> Tensor {
    let (dtype, wide) = (x.dtype(), compute::widen(x));
    let y = Tensor::empty(places.shape(), wide.dtype());
    dispatch!(compute wide.dtype(), "max_pool", T => {
        // SAFETY: contiguous tensors of these types; the output is new.
        let (x, places, y) = unsafe { (wide.as_slice::<T>(), places.as_slice::<i32>(), y.as_mut_slice::<T>()) };
        let planes = wide.shape()[..wide.dim() - D].iter().product::<usize>();
        let (volume, size) = (x.len() / planes.max(1), y.len() / planes.max(1));
        let parts = Parts::new(y);
        per_plane(planes, places.len(), |p| {
            // SAFETY: each plane is one thread's.
            let y = unsafe { plane(&parts, p, planes) };
            for (y, &place) in y.iter_mut().zip(&places[p * size..]) {
                *y = x[p * volume + place as usize];
            }
        });
    });
    let shape = x.layout().shape.clone();
    record("max_pool_pick", &[x], compute::narrow(y, dtype), |saver| {
        let places = saver.save(places);
        move |ctx| smallvec![Some(scatter::<D>(&ctx.grad(0), &ctx.get(&places), &shape))]
    })
}

/// Calls `body` with each plane's number; all planes together are `work` elements.
fn per_plane(planes: usize, work: usize, body: impl Fn(usize) + Sync) {
    let size = work / planes.max(1);
    parallel_for(planes, (16 << 10) / size.max(1) + 1, |range| range.for_each(&body));
}

/// Plane `p` of `planes` equal parts.
///
/// # Safety
/// No other thread uses the same plane.
#[allow(clippy::mut_from_ref, reason = "parts are handed out mutably, see `Parts`")]
unsafe fn plane<T>(parts: &Parts<T>, p: usize, planes: usize) -> &mut [T] {
    let size = parts.len() / planes;
    // SAFETY: the caller's promise.
    unsafe { parts.slice(p * size..(p + 1) * size) }
}

/// Maxima and their places for contiguous planes of `sizes`.
fn all_maxima<T: Float>(
    x: &[T],
    sizes: [usize; 3],
    windows: &[Steps; 3],
    y: &mut [T],
    places: &mut [i32],
) {
    let volume = sizes.iter().product::<usize>();
    let planes = x.len() / volume;
    let (ys, places) = (Parts::new(y), Parts::new(places));
    let [_, h, w] = sizes;
    let rows = windows[0].len() * windows[1].len();
    let most = |d: usize| windows[d].most();
    let work = planes * rows * (w * most(0) * most(1) + windows[2].len() * most(2));
    per_plane(planes, work, |p| {
        // SAFETY: each plane is one thread's.
        let (y, places) = unsafe { (plane(&ys, p, planes), plane(&places, p, planes)) };
        let mut column = SmallVec::<[T; 128]>::from_elem(T::ZERO, w);
        let mut from = SmallVec::<[i32; 128]>::from_elem(0, w);
        let x = &x[p * volume..(p + 1) * volume];
        plane_maxima(x, h, windows, &mut column, &mut from, y, places);
    });
}

/// The windows of one dimension.
enum Steps {
    Sliding(Taps),
    Ranges(Vec<Range<usize>>),
    /// One window of the only position.
    One,
}

impl Steps {
    fn len(&self) -> usize {
        match self {
            Steps::Sliding(taps) => taps.out,
            Steps::Ranges(ranges) => ranges.len(),
            Steps::One => 1,
        }
    }

    /// Positions of the largest window.
    fn most(&self) -> usize {
        match self {
            Steps::Sliding(taps) => taps.taps.len(),
            Steps::Ranges(ranges) => ranges.iter().map(Range::len).max().unwrap_or(0),
            Steps::One => 1,
        }
    }

    /// Calls `body` with the input positions of window `i`, which rise.
    fn each(&self, i: usize, body: impl FnMut(usize)) {
        match self {
            Steps::Sliding(taps) => taps.of(i).for_each(body),
            Steps::Ranges(ranges) => ranges[i].clone().for_each(body),
            Steps::One => (0..1).for_each(body),
        }
    }
}

/// One dimension of the windows: tap t of output `from..to` reads input `first_input`,
/// `first_input + stride`, ..; the outputs outside have the tap in the padding.
struct Tap {
    from: usize,
    to: usize,
    first_input: usize,
}

struct Taps {
    taps: Vec<Tap>,
    stride: usize,
    /// How many outputs there are.
    out: usize,
    /// Those that have no tap in the padding.
    inner: Range<usize>,
}

impl Taps {
    /// The input positions of output `i`'s window.
    fn of(&self, i: usize) -> impl Iterator<Item = usize> + '_ {
        let inside = move |tap: &&Tap| tap.from <= i && i < tap.to;
        let stride = self.stride;
        self.taps.iter().filter(inside).map(move |tap| tap.first_input + (i - tap.from) * stride)
    }
}

fn taps<const D: usize>(options: &PoolOptions<D>, d: usize, out: usize, size: usize) -> Taps {
    let (stride, pad) = (options.strides()[d], options.padding[d]);
    let tap = |t: usize| {
        let offset = t * options.dilation[d];
        // Outputs i with 0 <= i * stride + offset - pad < size.
        let from = pad.saturating_sub(offset).div_ceil(stride).min(out);
        let to = (size + pad).saturating_sub(offset).div_ceil(stride).clamp(from, out);
        Tap { from, to, first_input: (from * stride + offset).saturating_sub(pad).min(size) }
    };
    let taps: Vec<Tap> = (0..options.kernel_size[d]).map(tap).collect();
    let from = taps.iter().map(|tap| tap.from).max().unwrap_or(0);
    let to = taps.iter().map(|tap| tap.to).min().unwrap_or(0);
    Taps { taps, stride, out, inner: from..to.max(from) }
}

simd_fn! {
    /// One plane (or volume, whose planes have `h` rows). Each row of windows is done in two steps: the
    /// maxima of the columns, side by side, then those of the window's columns. `column` and `from` (a
    /// place) are scratch for the first.
    fn plane_maxima<T, FMA>(
        x: &[T],
        h: usize,
        windows: &[Steps; 3],
        column: &mut [T],
        from: &mut [i32],
        y: &mut [T],
        places: &mut [i32],
    ) {
        let _ = FMA;
        let [deep, down, across] = windows;
        let (w, high, ow) = (column.len(), down.len(), across.len());
        if ow == 0 {
            return;
        }
        // Where the lines of the input start that a row of windows reads.
        let mut lines = SmallVec::<[usize; 32]>::new();
        for (i, (y, places)) in y.chunks_exact_mut(ow).zip(places.chunks_exact_mut(ow)).enumerate() {
            lines.clear();
            deep.each(i / high, |d| down.each(i % high, |row| lines.push((d * h + row) * w)));
            // Blocks of columns; the last may overlap the one before.
            if w < LANES {
                (0..w).for_each(|c| highest::<T, 1>(x, &lines, c, column, from));
            } else {
                for c in (0..w).step_by(LANES) {
                    highest::<T, LANES>(x, &lines, c.min(w - LANES), column, from);
                }
            }
            match across {
                Steps::Sliding(taps) => match taps.inner.len() {
                    LANES.. => wide_row::<T, LANES>(taps, (column, from), y, places),
                    4..LANES => wide_row::<T, 4>(taps, (column, from), y, places),
                    _ => wide_row::<T, 1>(taps, (column, from), y, places),
                },
                _ => {
                    for (j, (y, place)) in y.iter_mut().zip(places).enumerate() {
                        (*y, *place) = (T::LOWEST, i32::MAX);
                        across.each(j, |c| {
                            if wins(column[c], from[c], *y, *place) {
                                (*y, *place) = (column[c], from[c]);
                            }
                        });
                    }
                }
            }
        }
    }
}

/// Whether a number is to take the place of the best so far. Of equal numbers the first place counts,
/// of NaNs the last: the order in which a window is read row by row.
#[inline(always)]
fn wins<T: Float>(v: T, place: i32, best: T, at: i32) -> bool {
    #[allow(clippy::eq_op, reason = "only NaN differs from itself")]
    let (nan, was_nan) = (v != v, best != best);
    (v > best) | ((v == best) & (place < at)) | (nan & (!was_nan | (place > at)))
}

/// Outputs of a block.
const LANES: usize = 8;

/// Maxima of `N` columns from `c` on over the lines that start at `lines`. Of equal numbers the first
/// counts, of NaNs the last.
#[inline(always)]
fn highest<T: Float, const N: usize>(
    x: &[T],
    lines: &[usize],
    c: usize,
    column: &mut [T],
    from: &mut [i32],
) {
    let Some((&first, lines)) = lines.split_first() else { return };
    let load = |line: usize| -> [T; N] { x[line + c..][..N].try_into().expect("N numbers") };
    let place = |line: usize| -> [i32; N] { std::array::from_fn(|k| (line + c + k) as i32) };
    let (mut best, mut at) = (load(first), place(first));
    for &line in lines {
        let (v, place) = (load(line), place(line));
        for k in 0..N {
            #[allow(clippy::eq_op, reason = "only NaN differs from itself")]
            let better = (v[k] > best[k]) | (v[k] != v[k]);
            best[k] = if better { v[k] } else { best[k] };
            at[k] = if better { place[k] } else { at[k] };
        }
    }
    column[c..c + N].copy_from_slice(&best);
    from[c..c + N].copy_from_slice(&at);
}

/// A row of outputs in blocks of `N`, of which the last may overlap the one before; those with taps in
/// the padding one by one.
#[inline(always)]
fn wide_row<T: Float, const N: usize>(
    across: &Taps,
    columns: (&[T], &[i32]),
    y: &mut [T],
    places: &mut [i32],
) {
    let Range { start, end } = across.inner;
    for j in (start..end).step_by(N) {
        let j = j.min(end - N);
        match across.stride {
            1 => widest::<T, N>(across, 1, j, columns, y, places),
            2 => widest::<T, N>(across, 2, j, columns, y, places),
            step => widest::<T, N>(across, step, j, columns, y, places),
        }
    }
    for j in (0..start).chain(end..y.len()) {
        widest::<T, 1>(across, across.stride, j, columns, y, places);
    }
}

/// Outputs `j..j + N` of a row from the columns' maxima.
#[inline(always)]
fn widest<T: Float, const N: usize>(
    across: &Taps,
    step: usize,
    j: usize,
    (column, from): (&[T], &[i32]),
    y: &mut [T],
    places: &mut [i32],
) {
    // The first tap takes over from the start, since it is at least the lowest number: no window has
    // all its taps in the padding.
    let (mut best, mut at) = ([T::LOWEST; N], [i32::MAX; N]);
    for tap in across.taps.iter().filter(|tap| tap.from <= j && j + N <= tap.to) {
        let first = tap.first_input + (j - tap.from) * step;
        let reach = first + (N - 1) * step + 1;
        let (column, from) = (&column[first..reach], &from[first..reach]);
        let v: [T; N] = std::array::from_fn(|k| column[k * step]);
        let place: [i32; N] = std::array::from_fn(|k| from[k * step]);
        for k in 0..N {
            let better = wins(v[k], place[k], best[k], at[k]);
            best[k] = if better { v[k] } else { best[k] };
            at[k] = if better { place[k] } else { at[k] };
        }
    }
    y[j..j + N].copy_from_slice(&best);
    places[j..j + N].copy_from_slice(&at);
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
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
        ] {
            // Halves: nearly every window has equal numbers.
            let mut data = values(shape, 3).to_vec::<f64>();
            data.iter_mut().for_each(|v| *v = (*v * 2.0).round() / 2.0);
            data[5] = f64::NAN;
            data[20..23].fill(f64::NEG_INFINITY);
            let x = Tensor::from_slice(&data, shape);
            let (y, places) = x.max_pool2d_with_indices(options);
            let out = [y.shape()[2], y.shape()[3]];
            let want = reference(&data, [shape[2], shape[3]], &options, out);
            let (y32, _) = x.to_dtype(Dtype::F32).max_pool2d_with_indices(options);
            let (y, y32, places) = (y.to_vec::<f64>(), y32.to_vec::<f32>(), places.to_vec::<i64>());
            for (i, &(v, place)) in want.iter().enumerate() {
                assert!(y[i] == v || v.is_nan() && y[i].is_nan(), "{} {v} {options:?}", y[i]);
                assert!(y32[i] == v as f32 || v.is_nan() && y32[i].is_nan());
                assert_eq!(places[i], place as i64, "{options:?}");
            }
        }
    }

    #[test]
    fn windows_that_do_not_fit_are_named() {
        let x = values([1, 1, 4, 4], 1);
        let text = |o| crate::catch(|| x.max_pool2d(o)).unwrap_err().to_string();
        assert!(text(Pool2dOptions::new([5, 2])).contains("covers 5"));
        let padded = Pool2dOptions { padding: [2, 0], ..Pool2dOptions::new([3, 3]) };
        assert!(text(padded).contains("more than half"));
    }
}
