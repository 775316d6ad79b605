//! Pooling in one and three dimensions, adaptive maxima, power means and unpooling, by the kernels of
//! [`max_pool`](super::max), [`avg_pool`](super::average) and [`resample`].
//!
//! ```text
//! average:    the mean over a box is the mean over each dimension in turn, with any number of them
//! lp_pool:    (sum over the window of x^p)^(1/p)
//! max_unpool: zeros, with x at the places given
//! ```

use super::max::{Pool1dOptions, Pool2dOptions, Pool3dOptions, PoolOptions};
use super::max::{adaptive_pool, check_dims, pool};
use crate::amp::cast_op;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::{
    pool::integer, windows::resample::resample, windows::taps::Windows,
    windows::taps::adaptive_ranges,
};
use crate::tensor::{Dtype, Tensor};

/// Window i of `out` nearly equal ones that cover `size`.
fn adaptive(size: usize, out: usize) -> Windows {
    Windows::ranges(size, &adaptive_ranges(size, out))
}

/// The same options for a plane of height 1.
fn flat(o: Pool1dOptions) -> Pool2dOptions {
    Pool2dOptions {
        kernel_size: [1, o.kernel_size[0]],
        stride: o.stride.map(|s| [1, s[0]]),
        padding: [0, o.padding[0]],
        dilation: [1, o.dilation[0]],
        ceil_mode: o.ceil_mode,
        count_include_pad: o.count_include_pad,
        divisor_override: o.divisor_override,
    }
}

impl<const D: usize> PoolOptions<D> {
    /// How many of `size` numbers, or of them and their padding, lie in each of the windows of dimension `d`.
    pub(super) fn counts(&self, d: usize, size: usize, windows: &Windows) -> Vec<usize> {
        if !self.count_include_pad {
            return windows.counts();
        }
        let end = size + 2 * self.padding[d];
        let padded = |i: usize| self.kernel_size[d].min(end - i * self.strides()[d]);
        (0..windows.len()).map(padded).collect()
    }
}

#[track_caller]
pub(super) fn assert_no_dilation<const D: usize>(op: &str, options: &PoolOptions<D>) {
    if options.dilation != [1; D] {
        let message = format!("{:?}; average pooling has no dilation", options.dilation);
        throw(Error::argument(op, "dilation", message));
    }
}

/// Means over `windows` of the last dimensions, each counted as so many numbers.
fn means<const D: usize>(
    name: &'static str,
    x: &Tensor,
    windows: [(Windows, Vec<usize>); D],
) -> Tensor {
    resample(name, x, x.dim() - D, windows.map(|(windows, counts)| windows.means(&counts)))
}

impl Tensor {
    /// The maximum of each window (`torch.nn.functional.max_pool1d`) of `[N, C, L]` or `[C, L]`.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::PoolOptions;
    /// let y = Tensor::from([[[1f32, 4., 2., 3.]]]).max_pool1d(PoolOptions::new([2]));
    /// assert_eq!(y.to_vec::<f32>(), [4.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::max_pool2d`].
    #[track_caller]
    pub fn max_pool1d(&self, options: Pool1dOptions) -> Tensor {
        pool("max_pool1d", self, options).values()
    }

    /// [`Tensor::max_pool1d`] and the position of each maximum (`return_indices=True`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::PoolOptions;
    /// let x = Tensor::from([[[1f32, 4., 2., 3.]]]);
    /// let (y, places) = x.max_pool1d_with_indices(PoolOptions::new([2]));
    /// assert_eq!((y.to_vec::<f32>(), places.to_vec::<i64>()), (vec![4.0, 3.0], vec![1, 3]));
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::max_pool2d`].
    #[track_caller]
    pub fn max_pool1d_with_indices(&self, options: Pool1dOptions) -> (Tensor, Tensor) {
        pool("max_pool1d", self, options).with_indices()
    }

    /// The maximum of each window (`torch.nn.functional.max_pool3d`) of `[N, C, D, H, W]` or
    /// `[C, D, H, W]`.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// use torchrs::ops::PoolOptions;
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 2, 2, 2]);
    /// assert_eq!(x.max_pool3d(PoolOptions::new([1, 2, 2])).to_vec::<f32>(), [3.0, 7.0]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::max_pool2d`].
    #[track_caller]
    pub fn max_pool3d(&self, options: Pool3dOptions) -> Tensor {
        cast_op!("max_pool3d", [x = self] => x.max_pool3d(options));
        pool("max_pool3d", self, options).values()
    }

    /// [`Tensor::max_pool3d`] and where each maximum is: its position in the volume `D * H * W`
    /// (`return_indices=True`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// use torchrs::ops::PoolOptions;
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 2, 2, 2]);
    /// let (y, places) = x.max_pool3d_with_indices(PoolOptions::new([2, 2, 1]));
    /// assert_eq!((y.to_vec::<f32>(), places.to_vec::<i64>()), (vec![6.0, 7.0], vec![6, 7]));
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::max_pool2d`].
    #[track_caller]
    pub fn max_pool3d_with_indices(&self, options: Pool3dOptions) -> (Tensor, Tensor) {
        cast_op!("max_pool3d", [x = self] => x.max_pool3d_with_indices(options));
        pool("max_pool3d", self, options).with_indices()
    }

    /// The maxima of `output_size` windows of nearly equal size that cover the input, and their
    /// positions (`torch.nn.functional.adaptive_max_pool1d` with `return_indices`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (y, places) = Tensor::from([[[1f32, 4., 2., 3.]]]).adaptive_max_pool1d(2);
    /// assert_eq!((y.to_vec::<f32>(), places.to_vec::<i64>()), (vec![4.0, 3.0], vec![1, 3]));
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::adaptive_max_pool2d`].
    #[track_caller]
    pub fn adaptive_max_pool1d(&self, output_size: usize) -> (Tensor, Tensor) {
        adaptive_pool("adaptive_max_pool1d", self, [Some(output_size)]).with_indices()
    }

    /// The maxima of `output_size` windows of nearly equal size that cover the input, and their
    /// positions in the plane (`torch.nn.functional.adaptive_max_pool2d` with `return_indices`);
    /// `None` keeps a dimension's size.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for other numbers of dimensions or an empty plane, and
    /// [`Error::Dtype`] when the tensor is not floating-point.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (y, places) = Tensor::from([[[1f32, 4., 2.], [3., 0., 5.]]]).adaptive_max_pool2d([Some(1), Some(2)]);
    /// assert_eq!((y.to_vec::<f32>(), places.to_vec::<i64>()), (vec![4., 5.], vec![1, 5]));
    /// ```
    #[track_caller]
    pub fn adaptive_max_pool2d(&self, output_size: [Option<usize>; 2]) -> (Tensor, Tensor) {
        adaptive_pool("adaptive_max_pool2d", self, output_size).with_indices()
    }

    /// As [`Tensor::adaptive_max_pool2d`], in three dimensions
    /// (`torch.nn.functional.adaptive_max_pool3d` with `return_indices`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 2, 2, 2]);
    /// let (y, places) = x.adaptive_max_pool3d([Some(1), Some(1), None]);
    /// assert_eq!((y.to_vec::<f32>(), places.to_vec::<i64>()), (vec![6.0, 7.0], vec![6, 7]));
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::adaptive_max_pool2d`].
    #[track_caller]
    pub fn adaptive_max_pool3d(&self, output_size: [Option<usize>; 3]) -> (Tensor, Tensor) {
        cast_op!("adaptive_max_pool3d", [x = self] => x.adaptive_max_pool3d(output_size));
        adaptive_pool("adaptive_max_pool3d", self, output_size).with_indices()
    }

    /// The mean of each window (`torch.nn.functional.avg_pool1d`) of `[N, C, L]` or `[C, L]`.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::PoolOptions;
    /// let y = Tensor::from([[[1f32, 4., 2., 3.]]]).avg_pool1d(PoolOptions::new([2]));
    /// assert_eq!(y.to_vec::<f32>(), [2.5, 2.5]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::avg_pool2d`].
    #[track_caller]
    pub fn avg_pool1d(&self, options: Pool1dOptions) -> Tensor {
        let out = options.output("avg_pool1d", self);
        if !self.dtype().is_floating_point() {
            assert_no_dilation("avg_pool1d", &options);
            return integer::means("avg_pool1d", self, out, &options);
        }
        self.unsqueeze(-2).avg_pool2d(flat(options)).squeeze_dim(-2)
    }

    /// The mean of each window (`torch.nn.functional.avg_pool3d`) of `[N, C, D, H, W]` or
    /// `[C, D, H, W]`.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// use torchrs::ops::PoolOptions;
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 2, 2, 2]);
    /// assert_eq!(x.avg_pool3d(PoolOptions::new([1, 2, 2])).to_vec::<f32>(), [1.5, 5.5]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::avg_pool2d`].
    #[track_caller]
    pub fn avg_pool3d(&self, options: Pool3dOptions) -> Tensor {
        cast_op!("avg_pool3d", [x = self] => x.avg_pool3d(options));
        let out = options.output("avg_pool3d", self);
        let (o, strides) = (options, options.strides());
        assert_no_dilation("avg_pool3d", &o);
        if !self.dtype().is_floating_point() {
            return integer::means("avg_pool3d", self, out, &o);
        }
        let y = means::<3>(
            "avg_pool3d",
            self,
            std::array::from_fn(|d| {
                let size = self.shape()[self.dim() - 3 + d];
                let (kernel, pad) = (o.kernel_size[d], o.padding[d]);
                let windows = Windows::sliding(size, out[d], kernel, [strides[d], pad, 1]);
                let counts = match o.divisor_override {
                    Some(_) => vec![1; out[d]],
                    None => o.counts(d, size, &windows),
                };
                (windows, counts)
            }),
        );
        match o.divisor_override {
            Some(divisor) => y / divisor as f64,
            None => y,
        }
    }

    /// As [`Tensor::adaptive_avg_pool2d`], in one dimension
    /// (`torch.nn.functional.adaptive_avg_pool1d`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([[[1f32, 4., 2., 3.]]]).adaptive_avg_pool1d(2);
    /// assert_eq!(y.to_vec::<f32>(), [2.5, 2.5]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::adaptive_avg_pool2d`].
    #[track_caller]
    pub fn adaptive_avg_pool1d(&self, output_size: usize) -> Tensor {
        check_dims::<1>("adaptive_avg_pool1d", self);
        self.unsqueeze(-2).adaptive_avg_pool2d([Some(1), Some(output_size)]).squeeze_dim(-2)
    }

    /// As [`Tensor::adaptive_avg_pool2d`], in three dimensions
    /// (`torch.nn.functional.adaptive_avg_pool3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 2, 2, 2]);
    /// assert_eq!(x.adaptive_avg_pool3d([None, Some(1), Some(1)]).to_vec::<f32>(), [1.5, 5.5]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::adaptive_avg_pool2d`].
    #[track_caller]
    pub fn adaptive_avg_pool3d(&self, output_size: [Option<usize>; 3]) -> Tensor {
        cast_op!("adaptive_avg_pool3d", [x = self] => x.adaptive_avg_pool3d(output_size));
        check_dims::<3>("adaptive_avg_pool3d", self);
        means::<3>(
            "adaptive_avg_pool3d",
            self,
            std::array::from_fn(|d| {
                let size = self.shape()[self.dim() - 3 + d];
                let windows = adaptive(size, output_size[d].unwrap_or(size));
                let counts = windows.counts();
                (windows, counts)
            }),
        )
    }

    /// The `norm_type` norm of each window, (sum of x^p)^(1/p) (`torch.nn.functional.lp_pool1d`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::PoolOptions;
    /// let y = Tensor::from([[[3f32, 4., 6., 8.]]]).lp_pool1d(2.0, PoolOptions::new([2]));
    /// assert_eq!(y.to_vec::<f32>(), [5.0, 10.0]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::avg_pool2d`].
    #[track_caller]
    pub fn lp_pool1d(&self, norm_type: f64, options: Pool1dOptions) -> Tensor {
        power_mean(self, norm_type, &options, |x| x.avg_pool1d(options))
    }

    /// The `norm_type` norm of each window, (sum of x^p)^(1/p) (`torch.nn.functional.lp_pool2d`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::PoolOptions;
    /// let x = Tensor::from([[[[1f32, 1.], [1., 1.]]]]);
    /// assert_eq!(x.lp_pool2d(2.0, PoolOptions::new([2, 2])).item(), 2.0);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::avg_pool2d`].
    #[track_caller]
    pub fn lp_pool2d(&self, norm_type: f64, options: Pool2dOptions) -> Tensor {
        power_mean(self, norm_type, &options, |x| x.avg_pool2d(options))
    }

    /// The `norm_type` norm of each window, (sum of x^p)^(1/p) (`torch.nn.functional.lp_pool3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// use torchrs::ops::PoolOptions;
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 2, 2, 2]);
    /// assert_eq!(x.lp_pool3d(1.0, PoolOptions::new([1, 2, 2])).to_vec::<f32>(), [6.0, 22.0]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::avg_pool2d`].
    #[track_caller]
    pub fn lp_pool3d(&self, norm_type: f64, options: Pool3dOptions) -> Tensor {
        power_mean(self, norm_type, &options, |x| x.avg_pool3d(options))
    }

    /// Zeros of `output_size`, the last sizes of the result, with the numbers of this tensor at
    /// `indices`, their positions in them (`torch.nn.functional.max_unpool1d`, `max_unpool2d`,
    /// `max_unpool3d`, by the number of sizes). [`max_unpool_of`](Self::max_unpool_of) finds the sizes.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when shapes do not fit, [`Error::Dtype`] when `indices` are not i64.
    ///
    /// ```
    /// use torchrs::{Tensor, ops::Pool1dOptions};
    /// let options = Pool1dOptions::new([2]);
    /// let (y, places) = Tensor::from([[1f32, 3., 4., 2.]]).max_pool1d_with_indices(options);
    /// assert_eq!(y.max_unpool(&places, [4]).to_vec::<f32>(), [0., 3., 4., 0.]);
    /// ```
    #[track_caller]
    pub fn max_unpool<const D: usize>(&self, indices: &Tensor, output_size: [usize; D]) -> Tensor {
        cast_op!("max_unpool", [x = self] => x.max_unpool(indices, output_size));
        let n = self.dim();
        if !(n == D + 1 || n == D + 2) || indices.shape() != self.shape() {
            throw(Error::shape(
                "max_unpool",
                format!(
                    "input {:?} must have {} dimensions or {} (no batch), indices {:?} the same shape",
                    self.shape(),
                    D + 2,
                    D + 1,
                    indices.shape()
                ),
            ));
        }
        if indices.dtype() != Dtype::I64 {
            throw(Error::dtype("max_unpool", format!("indices are {}, not i64", indices.dtype())));
        }
        let plane = |t: &Tensor| {
            let mut shape = t.shape()[..n - D].to_vec();
            shape.push(t.shape()[n - D..].iter().product());
            t.reshape_to(&shape)
        };
        let mut shape = self.shape()[..n - D].to_vec();
        shape.push(output_size.iter().product());
        let y = Tensor::zeros(&shape, (self.dtype(), self.device())).scatter(
            -1,
            &plane(indices),
            &plane(self),
        );
        shape.truncate(n - D);
        shape.extend(output_size);
        y.reshape_to(&shape)
    }
}

impl Tensor {
    /// [`max_unpool`](Self::max_unpool) of what a pooling with `options` gave: the sizes are
    /// [`PoolOptions::unpooled`], or `output_size`, where several would be pooled to this tensor's.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::PoolOptions;
    /// let (x, options) = (Tensor::from([[[1f32, 4., 2., 3.]]]), PoolOptions::new([2]));
    /// let (y, places) = x.max_pool1d_with_indices(options);
    /// assert_eq!(y.max_unpool_of(&places, options, None).to_vec::<f32>(), [0.0, 4.0, 0.0, 3.0]);
    /// assert_eq!(y.max_unpool_of(&places, options, Some([5])).shape(), &[1, 1, 5]);
    /// ```
    ///
    /// # Panics
    /// As [`max_unpool`](Self::max_unpool), and throws [`Error::Argument`] when `output_size` is a
    /// stride or more away from the usual sizes.
    #[track_caller]
    pub fn max_unpool_of<const D: usize>(
        &self,
        indices: &Tensor,
        options: PoolOptions<D>,
        output_size: Option<[usize; D]>,
    ) -> Tensor {
        let Some(front) = self.dim().checked_sub(D) else {
            return self.max_unpool(indices, [0; D]);
        };
        let usual = options.unpooled(std::array::from_fn(|d| self.shape()[front + d]));
        let size = output_size.unwrap_or(usual);
        let strides = options.strides();
        if (0..D).any(|d| size[d].abs_diff(usual[d]) >= strides[d].max(1)) && size != usual {
            throw(Error::argument(
                "max_unpool",
                "output_size",
                format!(
                    "{size:?}; sizes less than a stride {strides:?} from {usual:?} are possible"
                ),
            ));
        }
        self.max_unpool(indices, size)
    }
}

impl<const D: usize> PoolOptions<D> {
    /// The sizes whose pooling gives `sizes`, if there is nothing left over: what
    /// [`Tensor::max_unpool`] makes when nothing else is asked for.
    ///
    /// ```
    /// use torchrs::ops::PoolOptions;
    /// let options = PoolOptions { padding: [1, 1], ..PoolOptions::new([3, 3]) };
    /// assert_eq!(options.unpooled([2, 4]), [4, 10]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for a stride of 0 or sizes that would be negative.
    #[track_caller]
    pub fn unpooled(&self, sizes: [usize; D]) -> [usize; D] {
        let strides = self.strides();
        if strides.contains(&0) {
            throw(Error::argument("max_unpool", "stride", "0; must be at least 1"));
        }
        std::array::from_fn(|d| {
            let full = (sizes[d].saturating_sub(1)) * strides[d] + self.kernel_size[d];
            full.checked_sub(2 * self.padding[d]).unwrap_or_else(|| {
                throw(Error::argument("max_unpool", "padding", "is more than the output"))
            })
        })
    }
}

#[track_caller]
fn power_mean<const D: usize>(
    x: &Tensor,
    p: f64,
    options: &PoolOptions<D>,
    average: impl Fn(&Tensor) -> Tensor,
) -> Tensor {
    if options.divisor_override.is_some() || options.padding != [0; D] {
        let message = "norms of windows know neither padding nor divisor_override";
        throw(Error::argument("lp_pool", "options", message));
    }
    let count: usize = options.kernel_size.iter().product();
    let mean = average(&x.pow(p));
    (mean.sign() * mean.abs() * count as f64).pow(1.0 / p)
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let o3 = Pool3dOptions {
        stride: Some([2, 1, 2]),
        padding: [1, 0, 1],
        ceil_mode: true,
        ..Pool3dOptions::new([3, 2, 2])
    };
    let o1 = Pool1dOptions { padding: [1], stride: Some([2]), ..Pool1dOptions::new([3]) };
    let x3 = || [values([2, 2, 4, 3, 5], 1)];
    vec![
        OpSample::new("max_pool1d", [values([2, 3, 7], 1)], move |x| x[0].max_pool1d(o1)),
        OpSample::new("avg_pool1d", [values([3, 7], 1)], move |x| x[0].avg_pool1d(o1)),
        OpSample::new("max_pool3d(padding, ceil_mode)", x3(), move |x| x[0].max_pool3d(o3)),
        OpSample::new("avg_pool3d(padding, ceil_mode)", x3(), move |x| x[0].avg_pool3d(o3)),
        OpSample::new("avg_pool3d(count_include_pad=False)", x3(), move |x| {
            x[0].avg_pool3d(Pool3dOptions { count_include_pad: false, ..o3 })
        }),
        OpSample::new("adaptive_avg_pool1d(3)", [values([2, 3, 7], 1)], |x| {
            x[0].adaptive_avg_pool1d(3)
        }),
        OpSample::new("adaptive_avg_pool3d([3, keep, 2])", x3(), |x| {
            x[0].adaptive_avg_pool3d([Some(3), None, Some(2)])
        }),
        OpSample::new("adaptive_max_pool2d([2, 3])", [values([2, 3, 5, 4], 1)], |x| {
            x[0].adaptive_max_pool2d([Some(2), Some(3)]).0
        }),
        OpSample::new("adaptive_max_pool3d([2, keep, 3])", x3(), |x| {
            x[0].adaptive_max_pool3d([Some(2), None, Some(3)]).0
        }),
        OpSample::new("max_unpool", [values([2, 3, 2], 1)], |x| {
            let places = Tensor::from([0i64, 3]).to_device(x[0].device()).expand(&[2, 3, 2]);
            x[0].max_unpool(&places, [5])
        }),
    ]
}
