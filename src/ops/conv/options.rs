//! Options of convolutions, and the sizes that follow from them.

use crate::error::{Error, throw};
use crate::ops::windows::taps::window_count;
use crate::tensor::Tensor;

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

impl<const D: usize> ConvOptions<D> {
    /// How many output points dimension `d` of that size has; `None` when the filter does not fit.
    pub(super) fn count(&self, d: usize, size: usize, kernel: usize) -> Option<usize> {
        window_count(size, kernel, [self.stride[d], self.padding[d], self.dilation[d]])
    }

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
                x = Tensor::cat(&[&x, &Tensor::zeros(&shape, (x.dtype(), x.device()))], d as i64);
            }
        }
        (x, ConvOptions { padding: total.map(|t| t / 2), ..self })
    }
}
