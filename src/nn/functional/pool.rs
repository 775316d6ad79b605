//! Pooling and its reverse.

use crate::error::{Error, throw};
use crate::ops::{Pool1dOptions, Pool2dOptions, Pool3dOptions, PoolOptions};
use crate::tensor::Tensor;

methods! {
    /// See [`Tensor::max_pool2d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool2dOptions};
    /// let x = Tensor::from([[[[1f32, 2.], [3., 4.]]]]);
    /// assert_eq!(F::max_pool2d(&x, Pool2dOptions::new([2, 1])).to_vec::<f32>(), [3.0, 4.0]);
    /// ```
    max_pool2d(x, options: Pool2dOptions);
    /// See [`Tensor::avg_pool2d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool2dOptions};
    /// let x = Tensor::from([[[[1f32, 2.], [3., 4.]]]]);
    /// assert_eq!(F::avg_pool2d(&x, Pool2dOptions::new([2, 1])).to_vec::<f32>(), [2.0, 3.0]);
    /// ```
    avg_pool2d(x, options: Pool2dOptions);
    /// See [`Tensor::adaptive_avg_pool2d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let x = Tensor::from([[[[1f32, 2.], [3., 4.]]]]);
    /// assert_eq!(F::adaptive_avg_pool2d(&x, [Some(1), None]).to_vec::<f32>(), [2.0, 3.0]);
    /// ```
    adaptive_avg_pool2d(x, output_size: [Option<usize>; 2]);
    /// See [`Tensor::max_pool1d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool1dOptions};
    /// let x = Tensor::from([[[1f32, 3., 2., 5.]]]);
    /// assert_eq!(F::max_pool1d(&x, Pool1dOptions::new([2])).to_vec::<f32>(), [3.0, 5.0]);
    /// ```
    max_pool1d(x, options: Pool1dOptions);
    /// See [`Tensor::max_pool1d_with_indices`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool1dOptions};
    /// let x = Tensor::from([[[1f32, 3., 2., 5.]]]);
    /// let (largest, places) = F::max_pool1d_with_indices(&x, Pool1dOptions::new([2]));
    /// assert_eq!((largest.to_vec::<f32>(), places.to_vec::<i64>()), (vec![3.0, 5.0], vec![1, 3]));
    /// ```
    max_pool1d_with_indices(x, options: Pool1dOptions) -> (Tensor, Tensor);
    /// See [`Tensor::max_pool2d_with_indices`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool2dOptions};
    /// let x = Tensor::from([[[[1f32, 2.], [4., 3.]]]]);
    /// let (largest, places) = F::max_pool2d_with_indices(&x, Pool2dOptions::new([2, 2]));
    /// assert_eq!((largest.item(), places.item()), (4.0, 2.0));
    /// ```
    max_pool2d_with_indices(x, options: Pool2dOptions) -> (Tensor, Tensor);
    /// See [`Tensor::max_pool3d_with_indices`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F, ops::Pool3dOptions};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// let (largest, places) = F::max_pool3d_with_indices(&(x * 10.0), Pool3dOptions::new([2, 2, 2]));
    /// assert_eq!((largest.item(), places.item()), (70.0, 7.0));
    /// ```
    max_pool3d_with_indices(x, options: Pool3dOptions) -> (Tensor, Tensor);
    /// See [`Tensor::adaptive_max_pool1d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let (largest, places) = F::adaptive_max_pool1d(&Tensor::from([[[1f32, 3., 2., 5.]]]), 2);
    /// assert_eq!((largest.to_vec::<f32>(), places.to_vec::<i64>()), (vec![3.0, 5.0], vec![1, 3]));
    /// ```
    adaptive_max_pool1d(x, output_size: usize) -> (Tensor, Tensor);
    /// See [`Tensor::adaptive_max_pool2d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let x = Tensor::from([[[[1f32, 2.], [4., 3.]]]]);
    /// let (largest, places) = F::adaptive_max_pool2d(&x, [Some(1), None]);
    /// assert_eq!((largest.to_vec::<f32>(), places.to_vec::<i64>()), (vec![4.0, 3.0], vec![2, 3]));
    /// ```
    adaptive_max_pool2d(x, output_size: [Option<usize>; 2]) -> (Tensor, Tensor);
    /// See [`Tensor::adaptive_max_pool3d`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// let (largest, places) = F::adaptive_max_pool3d(&(x * 10.0), [Some(1); 3]);
    /// assert_eq!((largest.item(), places.item()), (70.0, 7.0));
    /// ```
    adaptive_max_pool3d(x, output_size: [Option<usize>; 3]) -> (Tensor, Tensor);
    /// See [`Tensor::max_pool3d`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F, ops::Pool3dOptions};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// assert_eq!(F::max_pool3d(&x, Pool3dOptions::new([2, 2, 1])).to_vec::<f32>(), [6.0, 7.0]);
    /// ```
    max_pool3d(x, options: Pool3dOptions);
    /// See [`Tensor::avg_pool1d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool1dOptions};
    /// let x = Tensor::from([[[1f32, 3., 2., 6.]]]);
    /// assert_eq!(F::avg_pool1d(&x, Pool1dOptions::new([2])).to_vec::<f32>(), [2.0, 4.0]);
    /// ```
    avg_pool1d(x, options: Pool1dOptions);
    /// See [`Tensor::avg_pool3d`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F, ops::Pool3dOptions};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// assert_eq!(F::avg_pool3d(&x, Pool3dOptions::new([2, 2, 1])).to_vec::<f32>(), [3.0, 4.0]);
    /// ```
    avg_pool3d(x, options: Pool3dOptions);
    /// See [`Tensor::adaptive_avg_pool1d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let x = Tensor::from([[[1f32, 3., 2., 6.]]]);
    /// assert_eq!(F::adaptive_avg_pool1d(&x, 2).to_vec::<f32>(), [2.0, 4.0]);
    /// ```
    adaptive_avg_pool1d(x, output_size: usize);
    /// See [`Tensor::adaptive_avg_pool3d`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// assert_eq!(F::adaptive_avg_pool3d(&x, [Some(1), Some(1), None]).to_vec::<f32>(), [3.0, 4.0]);
    /// ```
    adaptive_avg_pool3d(x, output_size: [Option<usize>; 3]);
    /// See [`Tensor::lp_pool1d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool1dOptions};
    /// let y = F::lp_pool1d(&Tensor::from([[[3f64, 4.]]]), 2.0, Pool1dOptions::new([2]));
    /// assert!((y.item() - 5.0).abs() < 1e-9);
    /// ```
    lp_pool1d(x, norm_type: f64, options: Pool1dOptions);
    /// See [`Tensor::lp_pool2d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::Pool2dOptions};
    /// let y = F::lp_pool2d(&Tensor::from([[[[1f64, 1.], [1., 1.]]]]), 2.0, Pool2dOptions::new([2, 2]));
    /// assert!((y.item() - 2.0).abs() < 1e-9);
    /// ```
    lp_pool2d(x, norm_type: f64, options: Pool2dOptions);
    /// See [`Tensor::lp_pool3d`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F, ops::Pool3dOptions};
    /// let y = F::lp_pool3d(&Tensor::ones([1, 1, 2, 2, 2], Dtype::F64), 3.0, Pool3dOptions::new([2, 2, 2]));
    /// assert!((y.item() - 2.0).abs() < 1e-9);
    /// ```
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
