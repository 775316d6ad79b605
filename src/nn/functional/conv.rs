//! Convolutions and their sliding windows.

use crate::ops::{
    Conv1dOptions, Conv2dOptions, Conv3dOptions, ConvTransposeOptions, UnfoldOptions,
};
use crate::tensor::Tensor;

methods! {
    conv1d(x, weight: &Tensor, bias: Option<&Tensor>, options: Conv1dOptions);
    conv2d(x, weight: &Tensor, bias: Option<&Tensor>, options: Conv2dOptions);
    conv3d(x, weight: &Tensor, bias: Option<&Tensor>, options: Conv3dOptions);
    conv_transpose1d(x, weight: &Tensor, bias: Option<&Tensor>, options: ConvTransposeOptions<1>);
    conv_transpose2d(x, weight: &Tensor, bias: Option<&Tensor>, options: ConvTransposeOptions<2>);
    conv_transpose3d(x, weight: &Tensor, bias: Option<&Tensor>, options: ConvTransposeOptions<3>);
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
