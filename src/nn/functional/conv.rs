//! Convolutions and their sliding windows.

use crate::ops::{
    Conv1dOptions, Conv2dOptions, Conv3dOptions, ConvTransposeOptions, UnfoldOptions,
};
use crate::tensor::Tensor;

methods! {
    /// See [`Tensor::conv1d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let (x, weight) = (Tensor::from([[[1f32, 2., 4.]]]), Tensor::from([[[1f32, -1.]]]));
    /// assert_eq!(F::conv1d(&x, &weight, None, Default::default()).to_vec::<f32>(), [-1.0, -2.0]);
    /// ```
    conv1d(x, weight: &Tensor, bias: Option<&Tensor>, options: Conv1dOptions);
    /// See [`Tensor::conv2d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let x = Tensor::from([[[[1f32, 2.], [3., 4.]]]]);
    /// let weight = Tensor::from([[[[1f32, 0.], [0., 1.]]]]);
    /// assert_eq!(F::conv2d(&x, &weight, None, Default::default()).item(), 5.0);
    /// ```
    conv2d(x, weight: &Tensor, bias: Option<&Tensor>, options: Conv2dOptions);
    /// See [`Tensor::conv3d`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F};
    /// let x = Tensor::ones([1, 3, 4, 4, 4], Dtype::F32);
    /// let weight = Tensor::ones([1, 3, 2, 2, 2], Dtype::F32);
    /// let y = F::conv3d(&x, &weight, None, Default::default());
    /// assert_eq!((y.shape(), y.max().item()), (&[1, 1, 3, 3, 3][..], 24.0));
    /// ```
    conv3d(x, weight: &Tensor, bias: Option<&Tensor>, options: Conv3dOptions);
    /// See [`Tensor::conv_transpose1d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let (x, weight) = (Tensor::from([[[1f32, 2.]]]), Tensor::from([[[1f32, 10.]]]));
    /// let y = F::conv_transpose1d(&x, &weight, None, Default::default());
    /// assert_eq!(y.to_vec::<f32>(), [1.0, 12.0, 20.0]);
    /// ```
    conv_transpose1d(x, weight: &Tensor, bias: Option<&Tensor>, options: ConvTransposeOptions<1>);
    /// See [`Tensor::conv_transpose2d`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::functional as F};
    /// let (x, weight) = (Tensor::from([[[[2f32]]]]), Tensor::from([[[[1f32, 2.], [3., 4.]]]]));
    /// let y = F::conv_transpose2d(&x, &weight, None, Default::default());
    /// assert_eq!(y.to_vec::<f32>(), [2.0, 4.0, 6.0, 8.0]);
    /// ```
    conv_transpose2d(x, weight: &Tensor, bias: Option<&Tensor>, options: ConvTransposeOptions<2>);
    /// See [`Tensor::conv_transpose3d`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F};
    /// let x = Tensor::ones([1, 1, 3, 3, 3], Dtype::F32);
    /// let weight = Tensor::ones([1, 2, 2, 2, 2], Dtype::F32);
    /// let y = F::conv_transpose3d(&x, &weight, None, Default::default());
    /// assert_eq!((y.shape(), y.max().item()), (&[1, 2, 4, 4, 4][..], 8.0));
    /// ```
    conv_transpose3d(x, weight: &Tensor, bias: Option<&Tensor>, options: ConvTransposeOptions<3>);
    /// See [`Tensor::fold`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::functional as F, ops::UnfoldOptions};
    /// // Two windows of 2 x 2, which share the column in the middle.
    /// let y = F::fold(&Tensor::ones([1, 4, 2], Dtype::F32), [2, 3], UnfoldOptions::new([2, 2]));
    /// assert_eq!(y.to_vec::<f32>(), [1.0, 2.0, 1.0, 1.0, 2.0, 1.0]);
    /// ```
    fold(x, output_size: [usize; 2], options: UnfoldOptions);
}

/// Sliding windows of images as columns (`torch.nn.functional.unfold`); see [`Tensor::unfold2d`].
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::UnfoldOptions};
/// let y = F::unfold(&Tensor::from([[[[1f32, 2.], [3., 4.]]]]), UnfoldOptions::new([1, 2]));
/// assert_eq!((y.shape(), y.to_vec::<f32>()), (&[1, 2, 2][..], vec![1.0, 3.0, 2.0, 4.0]));
/// ```
///
/// # Panics
/// As there.
#[track_caller]
pub fn unfold(x: &Tensor, options: UnfoldOptions) -> Tensor {
    x.unfold2d(options)
}
