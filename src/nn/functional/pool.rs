//! Pooling and its reverse.

use crate::error::{Error, throw};
use crate::ops::{FractionalSize, Pool1dOptions, Pool2dOptions, Pool3dOptions, PoolOptions};
use crate::tensor::Tensor;

methods! {
    max_pool2d(x, options: Pool2dOptions);
    avg_pool2d(x, options: Pool2dOptions);
    adaptive_avg_pool2d(x, output_size: [Option<usize>; 2]);
    max_pool1d(x, options: Pool1dOptions);
    max_pool1d_with_indices(x, options: Pool1dOptions) -> (Tensor, Tensor);
    max_pool2d_with_indices(x, options: Pool2dOptions) -> (Tensor, Tensor);
    max_pool3d_with_indices(x, options: Pool3dOptions) -> (Tensor, Tensor);
    adaptive_max_pool1d(x, output_size: usize) -> (Tensor, Tensor);
    adaptive_max_pool2d(x, output_size: [Option<usize>; 2]) -> (Tensor, Tensor);
    adaptive_max_pool3d(x, output_size: [Option<usize>; 3]) -> (Tensor, Tensor);
    max_pool3d(x, options: Pool3dOptions);
    avg_pool1d(x, options: Pool1dOptions);
    avg_pool3d(x, options: Pool3dOptions);
    adaptive_avg_pool1d(x, output_size: usize);
    adaptive_avg_pool3d(x, output_size: [Option<usize>; 3]);
    lp_pool1d(x, norm_type: f64, options: Pool1dOptions);
    lp_pool2d(x, norm_type: f64, options: Pool2dOptions);
    lp_pool3d(x, norm_type: f64, options: Pool3dOptions);
}

macro_rules! unpool {
    ($($name:ident $dims:literal;)*) => {$(
        #[doc = concat!("The reverse of max pooling (`torch.nn.functional.", stringify!($name), "`): zeros, with the numbers")]
        /// of `x` at `indices`. The sizes are `output_size`, or those that `options` would have pooled
        /// without rest; see [`Tensor::max_unpool`].
        ///
        /// ```
        /// use torchrs::{Dtype, Tensor, nn::functional as F, ops::PoolOptions};
        #[doc = concat!("let pooled = Tensor::full([1; 2 + ", $dims, "], 5.0, Dtype::F32);")]
        #[doc = concat!("let places = Tensor::ones([1; 2 + ", $dims, "], Dtype::I64);")]
        #[doc = concat!("let options = PoolOptions::new([2; ", $dims, "]);")]
        #[doc = concat!("let y = F::", stringify!($name), "(&pooled, &places, options, None);")]
        /// assert_eq!((y.size(-1), y.sum().item(), y.to_vec::<f32>()[1]), (2, 5.0, 5.0));
        /// ```
        ///
        /// # Panics
        /// As there.
        #[track_caller]
        pub fn $name(
            x: &Tensor,
            indices: &Tensor,
            options: PoolOptions<$dims>,
            output_size: Option<[usize; $dims]>,
        ) -> Tensor {
            let sizes = output_size.unwrap_or_else(|| {
                if x.dim() < $dims {
                    let message = format!("{:?} is no image of {} dimensions", x.shape(), $dims);
                    throw(Error::shape(stringify!($name), message));
                }
                options.unpooled(std::array::from_fn(|d| x.size(d as i64 - $dims)))
            });
            x.max_unpool(indices, sizes)
        }
    )*};
}
unpool! {
    max_unpool1d 1;
    max_unpool2d 2;
    max_unpool3d 3;
}

macro_rules! fractional {
    ($($name:ident $with_indices:ident $dims:literal;)*) => {$(
        #[doc = concat!("The maxima of [`Tensor::", stringify!($name), "`], without their positions.")]
        ///
        /// # Panics
        /// As there.
        #[track_caller]
        pub fn $name(
            x: &Tensor,
            kernel_size: [usize; $dims],
            output: FractionalSize<$dims>,
            samples: Option<&Tensor>,
        ) -> Tensor {
            x.$name(kernel_size, output, samples).0
        }

        #[doc = concat!("[`Tensor::", stringify!($name), "`] as a function (`return_indices=True`).")]
        #[track_caller]
        pub fn $with_indices(
            x: &Tensor,
            kernel_size: [usize; $dims],
            output: FractionalSize<$dims>,
            samples: Option<&Tensor>,
        ) -> (Tensor, Tensor) {
            x.$name(kernel_size, output, samples)
        }
    )*};
}
fractional! {
    fractional_max_pool2d fractional_max_pool2d_with_indices 2;
    fractional_max_pool3d fractional_max_pool3d_with_indices 3;
}
