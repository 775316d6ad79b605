//! How numbers that meet at one place are put together.

/// How [`Tensor::scatter_reduce`](crate::tensor::Tensor::scatter_reduce) puts elements together.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::ScatterReduce;
/// let (x, index) = (Tensor::from([1i64]), Tensor::from([0i64, 0]));
/// let of = |reduce| x.scatter_reduce(0, &index, &Tensor::from([4i64, 7]), reduce, true).item();
/// assert_eq!((of(ScatterReduce::Sum), of(ScatterReduce::Mean)), (12.0, 4.0));
/// assert_eq!((of(ScatterReduce::Amax), of(ScatterReduce::Prod)), (7.0, 28.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScatterReduce {
    /// Added up.
    Sum,
    /// Averaged; for integers rounded down.
    Mean,
    /// Multiplied.
    Prod,
    /// The largest.
    Amax,
    /// The smallest.
    Amin,
}
