//! Sizes given once for all dimensions or one by one.

/// A number for each of `D` dimensions: `3` stands for `[3, 3]`.
///
/// ```
/// use torchrs::nn::{Conv2d, PerDim};
/// assert_eq!(PerDim::from(3usize), PerDim([3, 3]));
/// assert_eq!(Conv2d::new(1, 1, (3, 5)).weight.shape(), Conv2d::new(1, 1, [3, 5]).weight.shape());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerDim<const D: usize>(pub [usize; D]);

impl<const D: usize> From<usize> for PerDim<D> {
    fn from(size: usize) -> Self {
        PerDim([size; D])
    }
}

impl<const D: usize> From<[usize; D]> for PerDim<D> {
    fn from(sizes: [usize; D]) -> Self {
        PerDim(sizes)
    }
}

impl From<(usize, usize)> for PerDim<2> {
    fn from((height, width): (usize, usize)) -> Self {
        PerDim([height, width])
    }
}

/// The shape over which a layer normalises: `8` stands for `[8]`.
///
/// ```
/// use torchrs::nn::NormalizedShape;
/// assert_eq!(NormalizedShape::from(8), NormalizedShape(vec![8]));
/// assert_eq!(NormalizedShape::from([4, 8]), NormalizedShape(vec![4, 8]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalizedShape(pub Vec<usize>);

impl From<usize> for NormalizedShape {
    fn from(size: usize) -> Self {
        NormalizedShape(vec![size])
    }
}

impl<const D: usize> From<[usize; D]> for NormalizedShape {
    fn from(shape: [usize; D]) -> Self {
        NormalizedShape(shape.to_vec())
    }
}

impl From<&[usize]> for NormalizedShape {
    fn from(shape: &[usize]) -> Self {
        NormalizedShape(shape.to_vec())
    }
}
