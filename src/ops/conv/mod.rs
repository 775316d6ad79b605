//! Convolution in one, two and three dimensions, with stride, padding, dilation and groups.
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
//! correlation of dy with step 1: so the drivers of `cpu::convolution::direct` do all three without a scatter.
//! 3x3 filters in f32 are mostly computed by minimal filtering, which rounds two to three times as much as
//! a direct sum, up to twice as much at stride 2; where its result is not finite, the direct sum is taken.
//! Under `create_graph` dx and dw are recorded as ops themselves, whose gradients are again these
//! three, because each is linear in each operand. Three dimensions are done by the same drivers, see
//! `volume`.

mod bf16;
mod cpu;
pub(super) mod cuda;
mod cudnn;
mod geometry;
mod integer;
mod one_by_one;
mod options;
mod products;
#[cfg(test)]
mod properties;
mod scratch;
mod shape;
mod stack;
#[cfg(test)]
mod tests;
pub(in crate::ops) mod transpose;
mod volume;

pub use options::{Conv1dOptions, Conv2dOptions, Conv3dOptions, ConvOptions};

use smallvec::{SmallVec, smallvec};

use crate::amp::{self, cast_op};
use crate::autograd::{no_grad, record};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::{gpu, windows::taps::window_span};
use crate::profiler::flops;
use crate::tensor::{Dtype, Tensor};
use cpu::{bias_gradient, data_gradient, forward, weight_gradient};
use products::Products;
use shape::Shape;
use volume::Volume;

impl Tensor {
    /// Two-dimensional convolution (`torch.nn.functional.conv2d`) of `[N, C, H, W]` or `[C, H, W]`
    /// with `weight` `[O, C / groups, KH, KW]` and `bias` `[O]`.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when shapes do not fit or the filter is larger than the padded input,
    /// [`Error::Argument`] for a stride, dilation or number of groups of 0, [`Error::Dtype`] for
    /// different dtypes, for bool and complex numbers. Integers have no gradient.
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
        if amp::is_active()
            && let Some(x) = cudnn::cast_image("conv2d", self)
        {
            return x.conv2d(weight, bias, options);
        }
        cast_op!("conv2d", [x = self, w = weight, b = bias] => x.conv2d(&w, b.as_ref(), options));
        if self.dim() == 3 {
            return self.unsqueeze(0).conv2d(weight, bias, options).squeeze_dim(0);
        }
        check("conv2d", self, weight, bias, &options);
        if is_integer(self.dtype()) {
            return integer::convolved(self, weight, bias, &options);
        }
        convolved(Shape::new(self.shape(), weight.shape(), options), self, weight, bias)
    }

    /// One-dimensional convolution (`torch.nn.functional.conv1d`) of `[N, C, L]` or `[C, L]` with
    /// `weight` `[O, C / groups, K]` and `bias` `[O]`.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::Conv1dOptions;
    /// let (x, w) = (Tensor::from([[[1f32, 2., 4.]]]), Tensor::from([[[-1f32, 1.]]]));
    /// let y = x.conv1d(&w, Some(&Tensor::from([10f32])), Default::default());
    /// assert_eq!(y.to_vec::<f32>(), [11.0, 12.0]);
    /// let options = Conv1dOptions { padding: [1], ..Default::default() };
    /// assert_eq!(x.conv1d(&w, None, options).to_vec::<f32>(), [1.0, 1.0, 2.0, -4.0]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::conv2d`].
    #[track_caller]
    pub fn conv1d(&self, weight: &Tensor, bias: Option<&Tensor>, options: Conv1dOptions) -> Tensor {
        cast_op!("conv1d", [x = self, w = weight, b = bias] => x.conv1d(&w, b.as_ref(), options));
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

    /// Three-dimensional convolution (`torch.nn.functional.conv3d`) of `[N, C, D, H, W]` or
    /// `[C, D, H, W]` with `weight` `[O, C / groups, KD, KH, KW]` and `bias` `[O]`.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::ones([1, 1, 3, 3, 3], Dtype::F32);
    /// let y = x.conv3d(&Tensor::ones([1, 1, 2, 2, 2], Dtype::F32), None, Default::default());
    /// assert_eq!((y.shape(), y.max().item()), (&[1, 1, 2, 2, 2][..], 8.0));
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::conv2d`].
    #[track_caller]
    pub fn conv3d(&self, weight: &Tensor, bias: Option<&Tensor>, options: Conv3dOptions) -> Tensor {
        if amp::is_active()
            && let Some(x) = cudnn::cast_image("conv3d", self)
        {
            return x.conv3d(weight, bias, options);
        }
        cast_op!("conv3d", [x = self, w = weight, b = bias] => x.conv3d(&w, b.as_ref(), options));
        if self.dim() == 4 {
            return self.unsqueeze(0).conv3d(weight, bias, options).squeeze_dim(0);
        }
        check("conv3d", self, weight, bias, &options);
        if is_integer(self.dtype()) {
            return integer::convolved(self, weight, bias, &options);
        }
        convolved(Volume::new(self.shape(), weight.shape(), options), self, weight, bias)
    }
}

fn is_integer(dtype: Dtype) -> bool {
    dtype.is_integral() && dtype != Dtype::Bool
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
    } else if let Some(d) =
        (0..D).find(|&d| options.count(d, x.shape()[d + 2], weight.shape()[d + 2]).is_none())
    {
        format!(
            "in dimension {} the dilated filter covers {}, more than the input of {} with a padding of {}",
            d + 2,
            window_span(weight.shape()[d + 2], options.dilation[d]),
            x.shape()[d + 2],
            options.padding[d]
        )
    } else {
        for t in [Some(weight), bias].into_iter().flatten() {
            if t.dtype() != x.dtype() {
                throw(Error::dtype(
                    op,
                    format!(
                        "input {}, weight or bias {}: must be equal; convert with `.to_dtype`",
                        x.dtype(),
                        t.dtype()
                    ),
                ));
            }
        }
        return;
    };
    throw(Error::shape(op, format!("{} do not fit: {rule}", shapes())))
}

impl Products for Shape {
    const NAMES: [&'static str; 3] = ["conv2d", "conv2d_data", "conv2d_weight"];

    fn flops(&self) -> u64 {
        flops_of(&self.y(), &self.weight())
    }

    fn output(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        if let Some(gpu) = gpu::of("conv2d", &[x, weight, bias.unwrap_or(x)]) {
            return no_grad(|| cuda::forward(gpu, &self.into(), &self.y(), x, weight, bias));
        }
        bf16::forward(self, x, weight, bias).unwrap_or_else(|| forward(self, x, weight, bias))
    }

    fn data(&self, dy: &Tensor, weight: &Tensor) -> Tensor {
        if let Some(gpu) = gpu::of("conv2d", &[dy, weight]) {
            return no_grad(|| cuda::data(gpu, &self.into(), &self.x(), dy, weight));
        }
        bf16::data_gradient(self, dy, weight).unwrap_or_else(|| data_gradient(self, dy, weight))
    }

    fn filters(&self, dy: &Tensor, x: &Tensor, place: Option<Tensor>) -> Tensor {
        if let Some(gpu) = gpu::of("conv2d", &[dy, x]) {
            return no_grad(|| cuda::filters(gpu, &self.into(), &self.weight(), dy, x));
        }
        weight_gradient(self, dy, x, place)
    }
}

/// An output element is a sum of products with all weights of its channel.
fn flops_of(y: &[usize], weight: &[usize]) -> u64 {
    let sizes = y.iter().chain(&weight[1..]);
    sizes.map(|&size| size as u64).product::<u64>() * 2
}

fn convolved<S: Products>(shape: S, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    flops(S::NAMES[0], || shape.flops());
    let inputs: SmallVec<[&Tensor; 3]> =
        [Some(x), Some(weight), bias].into_iter().flatten().collect();
    record(S::NAMES[0], &inputs, shape.output(x, weight, bias), |saver| {
        let w = x.requires_grad().then(|| saver.save(weight));
        let x = weight.requires_grad().then(|| saver.save(x));
        let with_bias = bias.is_some();
        // The gradient lies as the weight does.
        let is_contiguous = weight.is_contiguous();
        move |ctx| {
            let g = ctx.grad(0);
            let dx = ctx.get_for(0, &w).map(|w| data_op(shape, &g, &w));
            let dw = ctx.get_for(1, &x).map(|x| match ctx.place(1) {
                Some(place) => {
                    flops(S::NAMES[2], || shape.flops());
                    shape.filters(&g, &x, Some(place))
                }
                None if is_contiguous => weight_op(shape, &g, &x).contiguous(),
                None => weight_op(shape, &g, &x),
            });
            let mut grads: SmallVec<[Option<Tensor>; 3]> = smallvec![dx, dw];
            if with_bias {
                grads.push(ctx.needs(2).then(|| {
                    if ctx.create_graph() {
                        let mut sums = vec![1; g.dim()];
                        sums[1] = g.shape()[1];
                        g.sum_to(&sums).reshape_to(&sums[1..2])
                    } else {
                        bias_gradient(&g)
                    }
                }));
            }
            grads
        }
    })
}

/// dx as an op of dy and w, for second derivatives.
fn data_op<S: Products>(shape: S, dy: &Tensor, weight: &Tensor) -> Tensor {
    flops(S::NAMES[1], || shape.flops());
    record(S::NAMES[1], &[dy, weight], shape.data(dy, weight), |saver| {
        let (dy, w) = (saver.save(dy), saver.save(weight));
        move |ctx| {
            let g = ctx.grad(0);
            let d_dy = ctx.needs(0).then(|| convolved(shape, &g, &ctx.get(&w), None));
            let dw = ctx.needs(1).then(|| weight_op(shape, &ctx.get(&dy), &g));
            smallvec![d_dy, dw]
        }
    })
}

/// dw as an op of dy and x.
fn weight_op<S: Products>(shape: S, dy: &Tensor, x: &Tensor) -> Tensor {
    flops(S::NAMES[2], || shape.flops());
    record(S::NAMES[2], &[dy, x], shape.filters(dy, x, None), |saver| {
        let (dy, x) = (saver.save(dy), saver.save(x));
        move |ctx| {
            let g = ctx.grad(0);
            let d_dy = ctx.needs(0).then(|| convolved(shape, &ctx.get(&x), &g, None));
            let dx = ctx.needs(1).then(|| data_op(shape, &ctx.get(&dy), &g));
            smallvec![d_dy, dx]
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
    data_op(Shape { batch, input: output, output: [channels, h, w], kernel, options }, x, weight)
}

/// [`transposed`] in three dimensions.
pub(super) fn transposed3d(
    x: &Tensor,
    weight: &Tensor,
    [channels, depth, height, width]: [usize; 4],
    options: Conv3dOptions,
) -> Tensor {
    let &[batch, outputs, d, h, w] = x.shape() else { unreachable!("checked") };
    let &[_, _, kd, kh, kw] = weight.shape() else { unreachable!("checked") };
    let (input, output, kernel) = ([depth, height, width], [d, h, w], [kd, kh, kw]);
    data_op(Volume { batch, channels, outputs, input, output, kernel, options }, x, weight)
}

crate::ops::table::ops! {
    self { samples, kernels: [cuda::programs] }
    transpose { samples }
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
        OpSample::new(
            "conv3d(padding 1, groups 2)",
            [values([1, 4, 3, 3, 4], 1), values([2, 2, 2, 2, 3], 2), values([2], 3)],
            |x| {
                let options = Conv3dOptions { padding: [1, 0, 1], groups: 2, ..Default::default() };
                x[0].conv3d(&x[1], Some(&x[2]), options)
            },
        )
        .slack(4.0),
        OpSample::new(
            "conv3d(strides, dilation, uneven)",
            [values([2, 2, 7, 4, 5], 1), values([3, 2, 2, 2, 2], 2), values([3], 3)],
            |x| {
                let (stride, dilation) = ([3, 2, 1], [2, 1, 2]);
                let options =
                    Conv3dOptions { stride, padding: [2, 0, 1], dilation, ..Default::default() };
                x[0].conv3d(&x[1], Some(&x[2]), options)
            },
        )
        .slack(4.0),
        OpSample::new(
            "conv3d(1x1x1, stride 2 in depth)",
            [values([2, 3, 3, 2, 2], 1), values([2, 3, 1, 1, 1], 2)],
            |x| {
                let options = Conv3dOptions { stride: [2, 1, 1], ..Default::default() };
                x[0].conv3d(&x[1], None, options)
            },
        )
        .slack(4.0),
    ]
}
