//! Convolution in one and two dimensions, with stride, padding, dilation and groups.
//!
//! ```text
//! y[n, o, i] = bias[o] + sum over c, t of x[n, c, i * stride + t * dilation - padding] w[o, c, t]
//! out = (in + 2 padding - dilation (kernel - 1) - 1) / stride + 1        (for each dimension)
//! ```
//!
//! x is `[N, C, H, W]` (or without N), w is `[O, C / groups, KH, KW]`; output channel o belongs to
//! group `o / (O / groups)` and reads that group's C / groups channels. The gradients are the same
//! kind of sum:
//!
//! ```text
//! dx[n, c, j] = sum over o, t with j = i * stride + t * dilation - padding of dy[n, o, i] w[o, c, t]
//! dw[o, c, t] = sum over n, i of dy[n, o, i] x[n, c, i * stride + t * dilation - padding]
//! ```
//!
//! Those j with the same remainder modulo the stride have the same taps, and for them dx is a plain
//! correlation of dy with step 1: so the drivers of `cpu::conv` do all three without a scatter.
//! Under `create_graph` dx and dw are recorded as ops themselves, whose gradients are again these
//! three, because each is linear in each operand.

use smallvec::{SmallVec, smallvec};

use super::compute;
#[cfg(test)]
use super::samples::{OpSample, values};
use crate::Tensor;
use crate::autograd::record;
use crate::cpu::conv::{
    Sizes, Target, correlate, correlate_filters, filter_sums_len, pack_filters, packed_filters_len,
};
use crate::cpu::depthwise::{Planes, correlate_plane_filters, correlate_planes};
use crate::cpu::field::{Field, Window};
use crate::cpu::float::Float;
use crate::cpu::isa;
use crate::error::{Error, throw};
use crate::tensor::dispatch;

/// Stride, padding (of zeros, on both sides), dilation per dimension, and groups of a convolution.
///
/// ```
/// use torchrs::ops::Conv2dOptions;
/// let same = Conv2dOptions { padding: [1, 1], ..Default::default() };
/// assert_eq!(same.stride, [1, 1]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvOptions<const D: usize> {
    /// Distance between the input positions of neighbouring outputs.
    pub stride: [usize; D],
    /// Zeros added on each side.
    pub padding: [usize; D],
    /// Distance between the input positions of neighbouring filter taps.
    pub dilation: [usize; D],
    /// Groups into which input and output channels are divided.
    pub groups: usize,
}

/// Options of [`Tensor::conv1d`].
pub type Conv1dOptions = ConvOptions<1>;
/// Options of [`Tensor::conv2d`].
pub type Conv2dOptions = ConvOptions<2>;
/// Options of [`Tensor::conv3d`].
pub type Conv3dOptions = ConvOptions<3>;

impl<const D: usize> Default for ConvOptions<D> {
    fn default() -> Self {
        ConvOptions { stride: [1; D], padding: [0; D], dilation: [1; D], groups: 1 }
    }
}

impl Tensor {
    /// Two-dimensional convolution (`torch.nn.functional.conv2d`) of `[N, C, H, W]` or `[C, H, W]`
    /// with `weight` `[O, C / groups, KH, KW]` and `bias` `[O]`.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when shapes do not fit or the filter is larger than the padded input,
    /// [`Error::Argument`] for a stride, dilation or number of groups of 0, [`Error::Dtype`] for
    /// different dtypes or one that is not floating-point.
    ///
    /// ```
    /// use torchrs::{Tensor, Dtype::F32, ops::Conv2dOptions};
    /// let (x, w) = (Tensor::ones([1, 1, 4, 4], F32), Tensor::ones([2, 1, 3, 3], F32));
    /// let y = x.conv2d(&w, None, Conv2dOptions { padding: [1, 1], ..Default::default() });
    /// assert_eq!(y.shape(), &[1, 2, 4, 4]);
    /// assert_eq!(y.i((0, 0, 0)).to_vec::<f32>(), [4., 6., 6., 4.]);
    /// ```
    #[track_caller]
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, options: Conv2dOptions) -> Tensor {
        if self.dim() == 3 {
            return self.unsqueeze(0).conv2d(weight, bias, options).squeeze_dim(0);
        }
        check("conv2d", self, weight, bias, &options);
        let shape = Shape::new(self.shape(), weight.shape(), options);
        let out = forward(&shape, self, weight, bias);
        record_conv(&shape, self, weight, bias, out)
    }

    /// One-dimensional convolution (`torch.nn.functional.conv1d`) of `[N, C, L]` or `[C, L]` with
    /// `weight` `[O, C / groups, K]` and `bias` `[O]`.
    ///
    /// # Panics
    /// As [`Tensor::conv2d`].
    #[track_caller]
    pub fn conv1d(&self, weight: &Tensor, bias: Option<&Tensor>, options: Conv1dOptions) -> Tensor {
        if self.dim() == 2 {
            return self.unsqueeze(0).conv1d(weight, bias, options).squeeze_dim(0);
        }
        check("conv1d", self, weight, bias, &options);
        let options = Conv2dOptions {
            stride: [1, options.stride[0]],
            padding: [0, options.padding[0]],
            dilation: [1, options.dilation[0]],
            groups: options.groups,
        };
        self.unsqueeze(2).conv2d(&weight.unsqueeze(2), bias, options).squeeze_dim(2)
    }
}

impl<const D: usize> ConvOptions<D> {
    /// The padding that keeps the sizes of `input` at stride 1 (`padding='same'`): these options with
    /// it, and the input with the zero that is missing at its end where the padding is odd.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for a stride other than 1, and [`Error::Shape`] when the weight has
    /// other than D + 2 dimensions or the input too few.
    ///
    /// ```
    /// use torchrs::{Tensor, Dtype::F32, ops::Conv1dOptions};
    /// let (x, w) = (Tensor::ones([1, 1, 5], F32), Tensor::ones([1, 1, 4], F32));
    /// let (x, options) = Conv1dOptions::default().same(&x, &w);
    /// assert_eq!(x.conv1d(&w, None, options).shape(), &[1, 1, 5]);
    /// ```
    #[track_caller]
    pub fn same(self, input: &Tensor, weight: &Tensor) -> (Tensor, Self) {
        if self.stride != [1; D] {
            throw(Error::argument("conv", "padding", "'same' needs a stride of 1"));
        }
        if weight.dim() != D + 2 || input.dim() < D + 1 || weight.numel() == 0 {
            throw(Error::shape(
                "conv",
                format!("input {:?}, weight {:?} do not fit", input.shape(), weight.shape()),
            ));
        }
        let total: [usize; D] =
            std::array::from_fn(|d| self.dilation[d] * (weight.shape()[d + 2] - 1));
        let mut x = input.clone();
        for (d, total) in total.into_iter().enumerate() {
            if total % 2 == 1 {
                let d = x.dim() - D + d;
                let mut shape = x.layout().shape.clone();
                shape[d] = 1;
                x = Tensor::cat(&[&x, &Tensor::zeros(&shape, x.dtype())], d as i64);
            }
        }
        (x, ConvOptions { padding: total.map(|t| t / 2), ..self })
    }
}

#[track_caller]
pub(super) fn check<const D: usize>(
    op: &str,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: &ConvOptions<D>,
) {
    let shapes = || {
        let bias = bias.map_or(String::new(), |b| format!(", bias {:?}", b.shape()));
        format!("input {:?}, weight {:?}{bias}", x.shape(), weight.shape())
    };
    for (name, values) in [("stride", options.stride), ("dilation", options.dilation)] {
        if values.contains(&0) {
            throw(Error::argument(op, name, format!("{values:?}; each must be at least 1")));
        }
    }
    let groups = options.groups;
    if groups == 0 {
        throw(Error::argument(op, "groups", "0; must be at least 1"));
    }
    let dims = format!("[N, C, {}]", ["L", "H, W", "D, H, W"][D - 1]);
    let rule = if x.dim() != D + 2 || weight.dim() != D + 2 {
        format!("the input must be {dims} (N may be absent), the weight have {} dimensions", D + 2)
    } else if x.shape()[1] != weight.shape()[1] * groups {
        format!(
            "with groups {groups} the weight takes {} input channels, the input has {}",
            weight.shape()[1] * groups,
            x.shape()[1]
        )
    } else if !weight.shape()[0].is_multiple_of(groups) || weight.numel() == 0 {
        format!("the weight must not be empty, its first size a multiple of groups {groups}")
    } else if bias.is_some_and(|b| b.shape() != &weight.shape()[..1]) {
        format!("the bias must have one number for each of {} output channels", weight.shape()[0])
    } else if let Some(d) = (0..D).find(|&d| {
        let kernel = options.dilation[d] * (weight.shape()[d + 2] - 1) + 1;
        x.shape()[d + 2] + 2 * options.padding[d] < kernel
    }) {
        format!(
            "in dimension {} the dilated filter covers {}, more than the padded input's {}",
            d + 2,
            options.dilation[d] * (weight.shape()[d + 2] - 1) + 1,
            x.shape()[d + 2] + 2 * options.padding[d]
        )
    } else {
        for t in [Some(weight), bias].into_iter().flatten() {
            if t.dtype() != x.dtype() {
                throw(Error::dtype(
                    op,
                    format!("input {}, weight or bias {}: must be equal", x.dtype(), t.dtype()),
                ));
            }
        }
        return;
    };
    throw(Error::shape(op, format!("{} do not fit: {rule}", shapes())))
}

/// All sizes of one convolution.
#[derive(Clone, Copy, Debug)]
struct Shape {
    batch: usize,
    /// Channels, height, width.
    input: [usize; 3],
    output: [usize; 3],
    kernel: [usize; 2],
    options: Conv2dOptions,
}

impl Shape {
    fn new(x: &[usize], w: &[usize], options: Conv2dOptions) -> Self {
        let size = |d: usize| {
            let span = options.dilation[d] * (w[d + 2] - 1) + 1;
            (x[d + 2] + 2 * options.padding[d] - span) / options.stride[d] + 1
        };
        Shape {
            batch: x[0],
            input: [x[1], x[2], x[3]],
            output: [w[0], size(0), size(1)],
            kernel: [w[2], w[3]],
            options,
        }
    }

    fn x(&self) -> [usize; 4] {
        [self.batch, self.input[0], self.input[1], self.input[2]]
    }

    fn y(&self) -> [usize; 4] {
        [self.batch, self.output[0], self.output[1], self.output[2]]
    }

    fn weight(&self) -> [usize; 4] {
        let inputs = self.input[0] / self.options.groups;
        [self.output[0], inputs, self.kernel[0], self.kernel[1]]
    }

    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// One input channel per group, and so few output channels that matrix tiles do not pay.
    fn is_depthwise(&self) -> bool {
        self.input[0] == self.options.groups && self.output[0] / self.options.groups < 4
    }

    /// What the output points read. A 1x1 filter at stride 1 sees its planes as one long row.
    fn window(&self) -> Window {
        let o = &self.options;
        if self.taps() == 1 && o.stride == [1, 1] && o.padding == [0, 0] {
            let points = self.input[1] * self.input[2];
            let (source, grid) = ([1, points], [1, points]);
            return Window { source, grid, step: [1, 1], taps: vec![[0, 0]] };
        }
        let tap = |d: usize, t: usize| (t * o.dilation[d]) as isize - o.padding[d] as isize;
        let taps = (0..self.kernel[0])
            .flat_map(|r| (0..self.kernel[1]).map(move |s| [tap(0, r), tap(1, s)]))
            .collect();
        let (source, grid) = ([self.input[1], self.input[2]], [self.output[1], self.output[2]]);
        Window { source, grid, step: o.stride, taps }
    }

    /// The input points by remainder modulo the stride: what of dy they read, through which taps
    /// of the filter, and where the results go.
    fn residues(&self) -> Vec<(Window, Vec<usize>, Target)> {
        let [channels, h, w] = self.input;
        let [_, oh, ow] = self.output;
        let o = &self.options;
        let image = channels * h * w;
        if self.taps() == 1 && o.stride == [1, 1] && o.padding == [0, 0] {
            let target = Target { first: 0, image, channel: h * w, row: h * w, column: 1 };
            return vec![(self.window(), vec![0], target)];
        }
        // The offset in dy of filter row (or column) t for the points with remainder `rest`.
        let offset = |d: usize, t: usize, rest: usize| {
            let at = (rest + o.padding[d]) as isize - (t * o.dilation[d]) as isize;
            (at.rem_euclid(o.stride[d] as isize) == 0).then(|| at.div_euclid(o.stride[d] as isize))
        };
        let mut out = Vec::new();
        for (y, x) in
            (0..o.stride[0].min(h)).flat_map(|y| (0..o.stride[1].min(w)).map(move |x| (y, x)))
        {
            let grid = [(h - y).div_ceil(o.stride[0]), (w - x).div_ceil(o.stride[1])];
            let (mut taps, mut which) = (Vec::new(), Vec::new());
            for t in 0..self.taps() {
                let (r, s) = (t / self.kernel[1], t % self.kernel[1]);
                if let (Some(dy), Some(dx)) = (offset(0, r, y), offset(1, s, x)) {
                    taps.push([dy, dx]);
                    which.push(t);
                }
            }
            let window = Window { source: [oh, ow], grid, step: [1, 1], taps };
            let (row, column) = (o.stride[0] * w, o.stride[1]);
            out.push((
                window,
                which,
                Target { first: y * w + x, image, channel: h * w, row, column },
            ));
        }
        out
    }

    fn sizes(&self, grid: [usize; 2]) -> Sizes {
        let groups = self.options.groups;
        let (inputs, outputs) = (self.input[0] / groups, self.output[0] / groups);
        Sizes { batch: self.batch, groups, inputs, outputs, grid }
    }
}

fn scratch<T: Float + crate::tensor::Element>(len: usize) -> Tensor {
    Tensor::empty([len], T::DTYPE)
}

/// The field of a window for tiles of this type.
fn field_of<T: Float>(window: &Window) -> Field {
    Field::new(window, T::tile(isa::current()).columns)
}

/// The source as its field wants it: a prepared copy in `copy`, or as it is.
fn prepared<'a, T: Float>(
    field: &Field,
    source: &'a [T],
    size: [usize; 2],
    copy: &'a mut [T],
) -> &'a [T] {
    if field.direct {
        return source;
    }
    field.fill(source, size, copy);
    copy
}

#[track_caller]
fn forward(shape: &Shape, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let dtype = x.dtype();
    let (x, w, bias) = (compute::widen(x), compute::widen(weight), bias.map(compute::widen));
    let out = Tensor::empty(shape.y(), x.dtype());
    if out.numel() == 0 {
        return compute::narrow(out, dtype);
    }
    dispatch!(compute x.dtype(), "conv2d", T => {
        // SAFETY: `widen` gives contiguous tensors of this type; `out` is new.
        let (x, w, out) = unsafe { (x.as_slice::<T>(), w.as_slice::<T>(), out.as_mut_slice::<T>()) };
        // SAFETY: as above.
        let bias = bias.as_ref().map(|b| unsafe { b.as_slice::<T>() });
        forward_kernel(shape, x, w, bias, out);
    });
    compute::narrow(out, dtype)
}

fn forward_kernel<T: Float + crate::tensor::Element>(
    shape: &Shape,
    x: &[T],
    w: &[T],
    bias: Option<&[T]>,
    out: &mut [T],
) {
    let (window, taps) = (shape.window(), shape.taps());
    let [channels, oh, ow] = shape.output;
    let target = Target {
        first: 0,
        image: channels * oh * ow,
        channel: oh * ow,
        row: window.grid[1],
        column: 1,
    };
    if shape.is_depthwise() {
        let planes = Planes { batch: shape.batch, channels, sources: shape.input[0], inputs: 1 };
        let filter = |c: usize| w[c * taps..(c + 1) * taps].to_vec();
        return correlate_planes(planes, &window, x, filter, bias, target, out);
    }
    let (sizes, field) = (shape.sizes(window.grid), field_of::<T>(&window));
    let group = sizes.outputs * sizes.inputs * taps;
    let filters = scratch::<T>(packed_filters_len::<T>(sizes, taps));
    let copy = scratch::<T>(field.len(shape.batch * shape.input[0]));
    // SAFETY: new tensors that nobody else has.
    let (filters, copy) = unsafe { (filters.as_mut_slice::<T>(), copy.as_mut_slice::<T>()) };
    pack_filters(sizes, taps, |g| &w[g * group..(g + 1) * group], filters);
    let source = prepared(&field, x, window.source, copy);
    correlate(sizes, &field, source, filters, bias, target, out);
}

/// dx, from dy and the weight.
fn data_gradient(shape: &Shape, dy: &Tensor, weight: &Tensor) -> Tensor {
    let dtype = dy.dtype();
    let (dy, w) = (compute::widen(dy), compute::widen(weight));
    let residues = shape.residues();
    let covered = residues.iter().all(|(window, ..)| !window.taps.is_empty());
    let out = if covered && shape.batch > 0 {
        Tensor::empty(shape.x(), dy.dtype())
    } else {
        Tensor::zeros(shape.x(), dy.dtype())
    };
    if out.numel() == 0 {
        return compute::narrow(out, dtype);
    }
    dispatch!(compute dy.dtype(), "conv2d", T => {
        // SAFETY: `widen` gives contiguous tensors of this type; `out` is new.
        let (dy, w, out) = unsafe { (dy.as_slice::<T>(), w.as_slice::<T>(), out.as_mut_slice::<T>()) };
        for (window, which, target) in &residues {
            if !which.is_empty() {
                data_kernel(shape, window, which, *target, dy, w, out);
            }
        }
    });
    compute::narrow(out, dtype)
}

/// One residue class of dx; `which` are the taps of the filter that it sees.
fn data_kernel<T: Float + crate::tensor::Element>(
    shape: &Shape,
    window: &Window,
    which: &[usize],
    target: Target,
    dy: &[T],
    w: &[T],
    out: &mut [T],
) {
    let taps = shape.taps();
    let Sizes { batch, groups, inputs, outputs, grid } = shape.sizes(window.grid);
    if shape.is_depthwise() {
        let planes =
            Planes { batch, channels: shape.input[0], sources: shape.output[0], inputs: outputs };
        let filter = |c: usize| {
            let of = |o: usize| which.iter().map(move |t| w[(c * outputs + o) * taps + t]);
            (0..outputs).flat_map(of).collect()
        };
        return correlate_planes(planes, window, dy, filter, None, target, out);
    }
    // The roles of the channels are exchanged.
    let sizes = Sizes { batch, groups, inputs: outputs, outputs: inputs, grid };
    let (field, k) = (field_of::<T>(window), outputs * which.len());
    let turned = scratch::<T>(groups * inputs * k);
    let filters = scratch::<T>(packed_filters_len::<T>(sizes, which.len()));
    let copy = scratch::<T>(field.len(batch * shape.output[0]));
    // SAFETY: new tensors that nobody else has.
    let (turned, filters, copy) = unsafe {
        (turned.as_mut_slice::<T>(), filters.as_mut_slice::<T>(), copy.as_mut_slice::<T>())
    };
    // [group, o, c, t] becomes [group, c, o, t].
    for (g, turned) in turned.chunks_exact_mut(inputs * k).enumerate() {
        for o in 0..outputs {
            for c in 0..inputs {
                let from = &w[((g * outputs + o) * inputs + c) * taps..][..taps];
                let to = &mut turned[c * k + o * which.len()..][..which.len()];
                to.iter_mut().zip(which).for_each(|(to, &t)| *to = from[t]);
            }
        }
    }
    pack_filters(sizes, which.len(), |g| &turned[g * inputs * k..(g + 1) * inputs * k], filters);
    let source = prepared(&field, dy, window.source, copy);
    correlate(sizes, &field, source, filters, None, target, out);
}

/// dw, from dy and the input.
fn weight_gradient(shape: &Shape, dy: &Tensor, x: &Tensor) -> Tensor {
    let dtype = dy.dtype();
    let (dy, x) = (compute::widen(dy), compute::widen(x));
    if dy.numel() == 0 {
        return compute::narrow(Tensor::zeros(shape.weight(), dy.dtype()), dtype);
    }
    let out = Tensor::empty(shape.weight(), dy.dtype());
    dispatch!(compute dy.dtype(), "conv2d", T => {
        // SAFETY: `widen` gives contiguous tensors of this type; `out` is new.
        let (dy, x, out) = unsafe { (dy.as_slice::<T>(), x.as_slice::<T>(), out.as_mut_slice::<T>()) };
        let (window, taps) = (shape.window(), shape.taps());
        if shape.is_depthwise() {
            let planes = Planes { batch: shape.batch, channels: shape.output[0], sources: shape.input[0], inputs: 1 };
            correlate_plane_filters(planes, &window, x, dy, out);
        } else {
            let (sizes, field) = (shape.sizes(window.grid), field_of::<T>(&window));
            let sums = scratch::<T>(filter_sums_len(sizes, taps));
            let copy = scratch::<T>(field.len(shape.batch * shape.input[0]));
            // SAFETY: new tensors that nobody else has.
            let (sums, copy) = unsafe { (sums.as_mut_slice::<T>(), copy.as_mut_slice::<T>()) };
            let source = prepared(&field, x, window.source, copy);
            correlate_filters(sizes, &field, source, dy, sums, out);
        }
    });
    compute::narrow(out, dtype)
}

/// The sum of `[N, C, ..]` over all dimensions but the second.
fn bias_gradient(dy: &Tensor) -> Tensor {
    let (dtype, dy) = (dy.dtype(), compute::widen(dy));
    let (batch, channels) = (dy.shape()[0], dy.shape()[1]);
    let out = Tensor::empty([channels], dy.dtype());
    dispatch!(compute dy.dtype(), "conv2d", T => {
        // SAFETY: `widen` gives a contiguous tensor of this type; `out` is new.
        let (dy, out) = unsafe { (dy.as_slice::<T>(), out.as_mut_slice::<T>()) };
        compute::sum_channels(dy, batch, out);
    });
    compute::narrow(out, dtype)
}

fn record_conv(
    shape: &Shape,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    out: Tensor,
) -> Tensor {
    let inputs: SmallVec<[&Tensor; 3]> =
        [Some(x), Some(weight), bias].into_iter().flatten().collect();
    let shape = *shape;
    record("conv2d", &inputs, out, |saver| {
        let x = weight.requires_grad().then(|| saver.save(x));
        let w = inputs[0].requires_grad().then(|| saver.save(weight));
        let with_bias = bias.is_some();
        move |ctx| {
            let g = ctx.grad(0);
            let dx = w.as_ref().map(|w| data_op(&shape, &g, &ctx.get(w)));
            let dw = x.as_ref().map(|x| weight_op(&shape, &g, &ctx.get(x)));
            let mut grads: SmallVec<[Option<Tensor>; 3]> = smallvec![dx, dw];
            if with_bias {
                grads.push(ctx.needs(2).then(|| {
                    if ctx.create_graph() {
                        let c = g.shape()[1];
                        g.sum_to_size(&[1, c, 1, 1]).reshape_to(&[c])
                    } else {
                        bias_gradient(&g)
                    }
                }));
            }
            grads
        }
    })
}

/// dx as an op of dy and w, for second derivatives: it is linear in both, and its own gradients are
/// a convolution and a weight gradient.
fn data_op(shape: &Shape, dy: &Tensor, weight: &Tensor) -> Tensor {
    let shape = *shape;
    record("conv2d_data", &[dy, weight], data_gradient(&shape, dy, weight), |saver| {
        let (dy, w) = (saver.save(dy), saver.save(weight));
        move |ctx| {
            let g = ctx.grad(0);
            let d_dy = ctx.needs(0).then(|| g.conv2d(&ctx.get(&w), None, shape.options));
            let dw = ctx.needs(1).then(|| weight_op(&shape, &ctx.get(&dy), &g));
            smallvec![d_dy, dw]
        }
    })
}

/// A transposed convolution of `x` to `[N, output..]`: the gradient of the convolution that turns the
/// output into `x`.
pub(super) fn transposed(
    x: &Tensor,
    weight: &Tensor,
    output: [usize; 3],
    options: Conv2dOptions,
) -> Tensor {
    let &[batch, channels, h, w] = x.shape() else { unreachable!("checked") };
    let kernel = [weight.shape()[2], weight.shape()[3]];
    let shape = Shape { batch, input: output, output: [channels, h, w], kernel, options };
    data_op(&shape, x, weight)
}

/// dw as an op of dy and x.
fn weight_op(shape: &Shape, dy: &Tensor, x: &Tensor) -> Tensor {
    let shape = *shape;
    record("conv2d_weight", &[dy, x], weight_gradient(&shape, dy, x), |saver| {
        let (dy, x) = (saver.save(dy), saver.save(x));
        move |ctx| {
            let g = ctx.grad(0);
            let d_dy = ctx.needs(0).then(|| ctx.get(&x).conv2d(&g, None, shape.options));
            let dx = ctx.needs(1).then(|| data_op(&shape, &ctx.get(&dy), &g));
            smallvec![d_dy, dx]
        }
    })
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    let sample = |name: &str, x: &[usize], w: &[usize], options: Conv2dOptions| {
        let inputs = [values(x, 1), values(w, 2), values([w[0]], 3)];
        let call = move |x: &[Tensor]| x[0].conv2d(&x[1], Some(&x[2]), options);
        OpSample::new(format!("conv2d({name})"), inputs, call).slack(4.0)
    };
    let plain = Conv2dOptions::default();
    vec![
        sample(
            "3x3 padding 1",
            &[2, 3, 5, 8],
            &[4, 3, 3, 3],
            Conv2dOptions { padding: [1, 1], ..plain },
        ),
        sample("1x1", &[2, 3, 2, 4], &[5, 3, 1, 1], plain),
        sample(
            "no batch, stride 2",
            &[2, 6, 7],
            &[3, 2, 3, 2],
            Conv2dOptions { stride: [2, 2], ..plain },
        ),
        sample(
            "groups, dilation, uneven",
            &[1, 4, 7, 6],
            &[10, 2, 2, 3],
            Conv2dOptions { stride: [3, 1], padding: [1, 2], dilation: [2, 1], groups: 2 },
        ),
        sample(
            "depthwise",
            &[2, 3, 6, 5],
            &[6, 1, 3, 3],
            Conv2dOptions { stride: [2, 1], padding: [1, 1], groups: 3, ..plain },
        ),
        OpSample::new("conv1d(stride 2)", [values([2, 3, 9], 1), values([4, 3, 3], 2)], |x| {
            let options = Conv1dOptions { stride: [2], padding: [1], ..Default::default() };
            x[0].conv1d(&x[1], None, options)
        })
        .slack(4.0),
    ]
}

/// y, dx and dw by their definitions, for `dy` given: the loops that the kernels are tested against.
#[cfg(test)]
fn reference(shape: &Shape, x: &[f64], w: &[f64], dy: &[f64]) -> [Vec<f64>; 3] {
    let ([channels, h, width], [outputs, oh, ow]) = (shape.input, shape.output);
    let (o, [kh, kw]) = (shape.options, shape.kernel);
    let (ci, co) = (channels / o.groups, outputs / o.groups);
    let (mut y, mut dx, mut dw) = (vec![0.0; dy.len()], vec![0.0; x.len()], vec![0.0; w.len()]);
    for n in 0..shape.batch {
        for out in 0..outputs {
            for (i, j) in (0..oh).flat_map(|i| (0..ow).map(move |j| (i, j))) {
                for c in 0..ci {
                    for (r, s) in (0..kh).flat_map(|r| (0..kw).map(move |s| (r, s))) {
                        let a = (i * o.stride[0] + r * o.dilation[0]).wrapping_sub(o.padding[0]);
                        let b = (j * o.stride[1] + s * o.dilation[1]).wrapping_sub(o.padding[1]);
                        if a >= h || b >= width {
                            continue;
                        }
                        let at_x = ((n * channels + out / co * ci + c) * h + a) * width + b;
                        let at_w = ((out * ci + c) * kh + r) * kw + s;
                        let at_y = ((n * outputs + out) * oh + i) * ow + j;
                        y[at_y] += x[at_x] * w[at_w];
                        dx[at_x] += dy[at_y] * w[at_w];
                        dw[at_w] += dy[at_y] * x[at_x];
                    }
                }
            }
        }
    }
    [y, dx, dw]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;
    use crate::catch;

    fn numbers(shape: &[usize], seed: usize) -> Tensor {
        let n = shape.iter().product::<usize>();
        let v: Vec<f64> =
            (0..n).map(|i| ((i * 7919 + seed * 131) % 1009) as f64 / 504.5 - 1.0).collect();
        Tensor::from_slice(&v, shape)
    }

    fn compare(x: [usize; 4], w: [usize; 4], options: Conv2dOptions, dtype: Dtype, tolerance: f64) {
        let (x, w, bias) = (numbers(&x, 1), numbers(&w, 2), numbers(&[w[0]], 3));
        let shape = Shape::new(x.shape(), w.shape(), options);
        let dy = numbers(&shape.y(), 4);
        let leaf = |t: &Tensor| t.to_dtype(dtype).requires_grad_(true);
        let (lx, lw, lb) = (leaf(&x), leaf(&w), leaf(&bias));
        let y = lx.conv2d(&lw, Some(&lb), options);
        crate::autograd::backward(&[&y], &[Some(&dy.to_dtype(dtype))], false, false);
        let [mut want_y, dx, dw] =
            reference(&shape, &x.to_vec::<f64>(), &w.to_vec::<f64>(), &dy.to_vec::<f64>());
        let (points, channels) = (shape.output[1] * shape.output[2], shape.output[0]);
        let mut db = vec![0.0; channels];
        for (i, (y, g)) in want_y.iter_mut().zip(dy.to_vec::<f64>()).enumerate() {
            *y += bias.to_vec::<f64>()[i / points % channels];
            db[i / points % channels] += g;
        }
        let grads = [&lx, &lw, &lb].map(|t| t.grad().expect("a gradient"));
        let pairs = [
            ("y", &y, want_y),
            ("dx", &grads[0], dx),
            ("dw", &grads[1], dw),
            ("db", &grads[2], db),
        ];
        for (name, got, want) in pairs {
            let scale = want.iter().fold(1.0f64, |m, v| m.max(v.abs()));
            for (i, (got, want)) in got.to_vec::<f64>().iter().zip(&want).enumerate() {
                let error = (got - want).abs() / scale;
                assert!(error <= tolerance, "{name}[{i}] = {got}, not {want}: {shape:?} {dtype}");
            }
        }
    }

    fn options(
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        groups: usize,
    ) -> Conv2dOptions {
        Conv2dOptions { stride, padding, dilation, groups }
    }

    #[test]
    fn kernels_equal_the_definition() {
        let plain = Conv2dOptions::default();
        for (x, w, o) in [
            ([1, 1, 1, 1], [1, 1, 1, 1], plain),
            ([2, 1, 8, 8], [32, 1, 3, 3], options([1, 1], [1, 1], [1, 1], 1)),
            ([3, 32, 8, 8], [20, 32, 3, 3], options([1, 1], [1, 1], [1, 1], 1)),
            ([2, 3, 16, 10], [5, 3, 3, 3], plain),
            ([2, 3, 13, 16], [7, 3, 5, 5], options([2, 2], [2, 2], [1, 1], 1)),
            ([2, 4, 9, 11], [6, 2, 3, 2], options([2, 3], [1, 0], [2, 1], 2)),
            ([1, 2, 12, 7], [3, 2, 4, 3], options([3, 1], [3, 2], [1, 2], 1)),
            ([2, 20, 7, 7], [9, 20, 1, 1], plain),
            ([2, 9, 8, 8], [20, 9, 1, 1], plain),
            ([2, 5, 9, 9], [4, 5, 1, 1], options([2, 2], [0, 0], [1, 1], 1)),
            ([2, 5, 5, 5], [4, 5, 1, 1], options([1, 1], [2, 1], [1, 1], 1)),
            ([2, 6, 9, 20], [6, 1, 3, 3], options([1, 1], [1, 1], [1, 1], 6)),
            ([2, 6, 10, 37], [12, 1, 3, 3], options([2, 2], [1, 1], [1, 1], 6)),
            ([1, 3, 40, 16], [15, 1, 3, 3], options([1, 2], [1, 2], [2, 1], 3)),
            ([1, 300, 4, 4], [10, 300, 2, 2], plain),
            ([40, 8, 8, 16], [300, 8, 3, 3], options([1, 1], [1, 1], [1, 1], 1)),
            ([1, 2, 3, 3], [2, 2, 2, 2], options([4, 4], [0, 0], [1, 1], 1)),
        ] {
            compare(x, w, o, Dtype::F64, 1e-12);
            compare(x, w, o, Dtype::F32, 2e-6);
            compare(x, w, o, Dtype::BF16, 2e-2);
        }
    }

    #[test]
    fn one_dimension_and_no_batch_are_views_of_the_same() {
        let (x, w) = (numbers(&[3, 9], 1), numbers(&[4, 3, 3], 2));
        let o = Conv1dOptions { stride: [2], padding: [1], ..Default::default() };
        let y = x.conv1d(&w, None, o);
        let o2 = options([1, 2], [0, 1], [1, 1], 1);
        let want = x.unsqueeze(1).conv2d(&w.unsqueeze(2), None, o2);
        assert_eq!(y.shape(), &[4, 5]);
        assert_eq!(y.to_vec::<f64>(), want.to_vec::<f64>());
    }

    #[test]
    fn an_empty_batch_has_zero_weight_gradient() {
        let w = numbers(&[4, 3, 3, 3], 2).requires_grad_(true);
        let y = Tensor::zeros([0, 3, 8, 8], Dtype::F64).conv2d(&w, None, Conv2dOptions::default());
        assert_eq!(y.shape(), &[0, 4, 6, 6]);
        y.sum().backward();
        assert_eq!(w.grad().unwrap().to_vec::<f64>(), vec![0.0; 108]);
    }

    #[test]
    fn misuse_names_the_shapes_and_the_rule() {
        let x = numbers(&[1, 3, 8, 8], 1);
        let message = |w: &Tensor, b: Option<&Tensor>, o: Conv2dOptions| {
            catch(|| x.conv2d(w, b, o)).unwrap_err().to_string()
        };
        let plain = Conv2dOptions::default();
        let text = message(&numbers(&[4, 2, 3, 3], 2), None, plain);
        assert!(text.contains("[1, 3, 8, 8]") && text.contains("takes 2 input channels"), "{text}");
        let text = message(&numbers(&[4, 3, 9, 3], 2), None, plain);
        assert!(text.contains("covers 9"), "{text}");
        let text = message(&numbers(&[4, 3, 3, 3], 2), Some(&numbers(&[3], 3)), plain);
        assert!(text.contains("bias"), "{text}");
        let text = message(&numbers(&[4, 3, 3, 3], 2), None, options([0, 1], [0, 0], [1, 1], 1));
        assert!(text.contains("stride"), "{text}");
    }
}
