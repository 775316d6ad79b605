//! Images resized, padded, sampled and rearranged.

use crate::ops::{GridSampleOptions, InterpolateOptions, PadMode};
use crate::tensor::Tensor;

methods! {
    /// See [`Tensor::pad`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::PadMode};
    /// let y = F::pad(&Tensor::from([[1f32, 2.]]), &[1, 2], PadMode::Constant(9.into()));
    /// assert_eq!(y.to_vec::<f32>(), [9.0, 1.0, 2.0, 9.0, 9.0]);
    /// ```
    pad(x, padding: &[i64], mode: PadMode);
    /// See [`Tensor::interpolate`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::{InterpolateMode, InterpolateOptions}};
    /// let options = InterpolateOptions::scale(2.0, InterpolateMode::Nearest);
    /// let y = F::interpolate(&Tensor::from([[[1f32, 2.]]]), options);
    /// assert_eq!(y.to_vec::<f32>(), [1.0, 1.0, 2.0, 2.0]);
    /// ```
    interpolate(x, options: InterpolateOptions);
    /// See [`Tensor::grid_sample`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F, ops::GridSampleOptions};
    /// let (x, grid) = (Tensor::from([[[[1f32, 2.], [3., 4.]]]]), Tensor::from([[[[1f32, -1.], [0., 0.]]]]));
    /// let y = F::grid_sample(&x, &grid, GridSampleOptions { align_corners: true, ..Default::default() });
    /// assert_eq!(y.to_vec::<f32>(), [2.0, 2.5]);
    /// ```
    grid_sample(x, grid: &Tensor, options: GridSampleOptions);
    /// See [`Tensor::affine_grid`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let identity = Tensor::from([[[1f32, 0., 0.], [0., 1., 0.]]]);
    /// let grid = F::affine_grid(&identity, &[1, 1, 2, 2], true);
    /// assert_eq!(grid.to_vec::<f32>(), [-1.0, -1.0, 1.0, -1.0, -1.0, 1.0, 1.0, 1.0]);
    /// ```
    affine_grid(x, size: &[usize], align_corners: bool);
    /// See [`Tensor::pixel_shuffle`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let y = F::pixel_shuffle(&Tensor::from([1f32, 2., 3., 4.]).view([1, 4, 1, 1]), 2);
    /// assert_eq!((y.shape(), y.to_vec::<f32>()), (&[1, 1, 2, 2][..], vec![1.0, 2.0, 3.0, 4.0]));
    /// ```
    pixel_shuffle(x, upscale_factor: usize);
    /// See [`Tensor::pixel_unshuffle`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let y = F::pixel_unshuffle(&Tensor::from([[[[1f32, 2.], [3., 4.]]]]), 2);
    /// assert_eq!((y.shape(), y.to_vec::<f32>()), (&[1, 4, 1, 1][..], vec![1.0, 2.0, 3.0, 4.0]));
    /// ```
    pixel_unshuffle(x, downscale_factor: usize);
    /// See [`Tensor::channel_shuffle`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let y = F::channel_shuffle(&Tensor::from([0f32, 1., 2., 3.]).view([1, 4, 1, 1]), 2);
    /// assert_eq!(y.to_vec::<f32>(), [0.0, 2.0, 1.0, 3.0]);
    /// ```
    channel_shuffle(x, groups: usize);
}
