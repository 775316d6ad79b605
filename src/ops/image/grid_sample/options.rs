//! How images are read: between points, outside, and what the corners are.

/// How [`Tensor::grid_sample`](crate::tensor::Tensor::grid_sample) finds numbers between those that it has.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::{GridSampleMode, GridSampleOptions};
/// let (x, at) = (Tensor::from([[[[1f32, 3.]]]]), Tensor::from([[[[0.5f32, 0.]]]]));
/// let of = |mode| {
///     let options = GridSampleOptions { mode, align_corners: true, ..Default::default() };
///     x.grid_sample(&at, options).item()
/// };
/// assert_eq!((of(GridSampleMode::Bilinear), of(GridSampleMode::Nearest)), (2.5, 3.0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GridSampleMode {
    /// Lines between neighbours (in volumes too).
    #[default]
    Bilinear,
    /// The nearest one.
    Nearest,
    /// Cubic splines (in volumes too).
    Bicubic,
}

/// What [`Tensor::grid_sample`](crate::tensor::Tensor::grid_sample) reads outside.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::{GridSampleOptions, GridSamplePadding};
/// let (x, at) = (Tensor::from([[[[1f32, 3.]]]]), Tensor::from([[[[-3f32, 0.]]]]));
/// let of = |padding_mode| {
///     let options = GridSampleOptions { padding_mode, align_corners: true, ..Default::default() };
///     x.grid_sample(&at, options).item()
/// };
/// assert_eq!((of(GridSamplePadding::Zeros), of(GridSamplePadding::Border)), (0.0, 1.0));
/// assert_eq!(of(GridSamplePadding::Reflection), 3.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GridSamplePadding {
    /// Zeros.
    #[default]
    Zeros,
    /// The number at the edge.
    Border,
    /// The image mirrored in its edge.
    Reflection,
}

/// Options of [`Tensor::grid_sample`](crate::tensor::Tensor::grid_sample).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::GridSampleOptions;
/// let (x, edge) = (Tensor::from([[[[1f32, 3.]]]]), Tensor::from([[[[-1f32, 0.]]]]));
/// let corner = GridSampleOptions { align_corners: true, ..Default::default() };
/// assert_eq!(x.grid_sample(&edge, corner).item(), 1.0);
/// assert_eq!(x.grid_sample(&edge, GridSampleOptions::default()).item(), 0.5);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GridSampleOptions {
    /// What is computed.
    pub mode: GridSampleMode,
    /// What is outside.
    pub padding_mode: GridSamplePadding,
    /// Whether -1 and 1 are the centres of the outermost numbers, or their outer edges.
    pub align_corners: bool,
}
