//! Windows of an image as columns, and columns added back to an image.
//!
//! ```text
//! unfold: y[n, (c, r, s), (i, j)] = x[n, c, i * stride + r * dilation - padding, (the same of j and s)]
//! fold:   the transpose: each number of a column is added where unfold reads it
//! ```

use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::windows::taps::{Windows, window_count};
use crate::tensor::Tensor;

/// Windows of [`Tensor::unfold2d`] and [`Tensor::fold`].
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::UnfoldOptions;
/// let options = UnfoldOptions { padding: [0, 1], stride: [1, 2], ..UnfoldOptions::new([1, 2]) };
/// let y = Tensor::from([[[[1f32, 2., 3., 4.]]]]).unfold2d(options);
/// assert_eq!((y.shape(), y.to_vec::<f32>()), (&[1, 2, 3][..], vec![0.0, 2.0, 4.0, 1.0, 3.0, 0.0]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnfoldOptions {
    /// Height and width of the window.
    pub kernel_size: [usize; 2],
    /// Distance between the elements of a window.
    pub dilation: [usize; 2],
    /// Zeros added on each side.
    pub padding: [usize; 2],
    /// Distance between windows.
    pub stride: [usize; 2],
}

impl UnfoldOptions {
    /// All windows of this size, without padding.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::UnfoldOptions;
    /// let y = Tensor::from([[[[1f32, 2., 3.]]]]).unfold2d(UnfoldOptions::new([1, 2]));
    /// assert_eq!((y.shape(), y.to_vec::<f32>()), (&[1, 2, 2][..], vec![1.0, 2.0, 2.0, 3.0]));
    /// ```
    pub fn new(kernel_size: [usize; 2]) -> Self {
        UnfoldOptions { kernel_size, dilation: [1, 1], padding: [0, 0], stride: [1, 1] }
    }

    /// The windows of an image of `size`, rows and columns.
    #[track_caller]
    fn windows(&self, op: &str, size: [usize; 2]) -> [Windows; 2] {
        let positive = [
            ("kernel_size", self.kernel_size),
            ("stride", self.stride),
            ("dilation", self.dilation),
        ];
        for (name, values) in positive {
            if values.contains(&0) {
                throw(Error::argument(op, name, format!("{values:?}; each must be at least 1")));
            }
        }
        self.counts(op, size);
        std::array::from_fn(|d| {
            let steps = [self.stride[d], self.padding[d], self.dilation[d]];
            Windows::sliding(size[d], self.counts(op, size)[d], self.kernel_size[d], steps)
        })
    }

    /// How many windows there are, in rows and columns.
    #[track_caller]
    fn counts(&self, op: &str, size: [usize; 2]) -> [usize; 2] {
        std::array::from_fn(|d| {
            let steps = [self.stride[d], self.padding[d], self.dilation[d]];
            window_count(size[d], self.kernel_size[d], steps).unwrap_or_else(|| {
                throw(Error::shape(
                    op,
                    format!("windows {self:?} are larger than the padded image of {size:?}"),
                ))
            })
        })
    }
}

impl Tensor {
    /// The windows of each image of `[N, C, H, W]` or `[C, H, W]` as columns: `[N, C KH KW, windows]`
    /// (`torch.nn.functional.unfold`).
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for other numbers of dimensions and windows that are too large,
    /// [`Error::Argument`] for sizes of 0.
    ///
    /// ```
    /// use torchrs::{Tensor, ops::UnfoldOptions};
    /// let x = Tensor::from([[[1f32, 2., 3.]]]);
    /// assert_eq!(x.unfold2d(UnfoldOptions::new([1, 2])).to_vec::<f32>(), [1., 2., 2., 3.]);
    /// ```
    #[track_caller]
    pub fn unfold2d(&self, options: UnfoldOptions) -> Tensor {
        if self.dim() == 3 {
            return self.unsqueeze(0).unfold2d(options).squeeze_dim(0);
        }
        let &[n, c, h, w] = self.shape() else {
            throw(Error::shape(
                "unfold",
                format!("input {:?} must be [N, C, H, W] or [C, H, W]", self.shape()),
            ))
        };
        let [rows, columns] = options.windows("unfold", [h, w]);
        let [kh, kw] = options.kernel_size;
        let [oh, ow] = options.counts("unfold", [h, w]);
        let y = columns.gather(&rows.gather(self, 2, 0), 4, 0);
        y.permute(&[0, 1, 3, 5, 2, 4]).reshape_to(&[n, c * kh * kw, oh * ow])
    }

    /// Columns `[N, C KH KW, windows]` or `[C KH KW, windows]` added up to images
    /// `[N, C, output_size]` (`torch.nn.functional.fold`).
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when the sizes are not those that [`Tensor::unfold2d`] would give.
    ///
    /// ```
    /// use torchrs::{Tensor, ops::UnfoldOptions};
    /// let y = Tensor::from([[1f32, 2.], [2., 3.]]).fold([1, 3], UnfoldOptions::new([1, 2]));
    /// assert_eq!(y.to_vec::<f32>(), [1., 4., 3.]);
    /// ```
    #[track_caller]
    pub fn fold(&self, output_size: [usize; 2], options: UnfoldOptions) -> Tensor {
        if self.dim() == 2 {
            return self.unsqueeze(0).fold(output_size, options).squeeze_dim(0);
        }
        let [rows, columns] = options.windows("fold", output_size);
        let [kh, kw] = options.kernel_size;
        let [oh, ow] = options.counts("fold", output_size);
        let c = match *self.shape() {
            [_, channels, windows] if channels % (kh * kw) == 0 && windows == oh * ow => {
                channels / (kh * kw)
            }
            _ => throw(Error::shape(
                "fold",
                format!(
                    "input {:?} must be [N, C {}, {}] for output_size {output_size:?} and {options:?}",
                    self.shape(),
                    kh * kw,
                    oh * ow
                ),
            )),
        };
        let y = self.reshape_to(&[self.shape()[0], c, kh, kw, oh, ow]);
        let y = columns.add_back(&y.permute(&[0, 1, 4, 2, 5, 3]), 4);
        rows.add_back(&y, 2)
    }
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let options = UnfoldOptions {
        dilation: [1, 2],
        padding: [1, 0],
        stride: [2, 1],
        ..UnfoldOptions::new([2, 3])
    };
    vec![
        OpSample::new("unfold", [values([2, 3, 5, 6], 1)], move |x| x[0].unfold2d(options)),
        OpSample::new("fold", [values([2, 12, 6], 1)], move |x| x[0].fold([5, 6], options)),
    ]
}
