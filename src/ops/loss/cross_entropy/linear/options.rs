//! How the loss is computed.

use super::super::Reduction;
use crate::tensor::Tensor;

/// How many rows of scores [`linear_cross_entropy`](super::linear_cross_entropy) makes at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Chunks {
    /// All rows while there are at most 16 Mi scores, or no more classes than features; else 4096 rows on a GPU and 256
    /// elsewhere.
    #[default]
    Auto,
    /// All rows: [`Tensor::linear`], then [`Tensor::cross_entropy`].
    Whole,
    /// So many rows. A small number saves memory; each chunk reads and writes the weight's gradient once.
    Rows(usize),
}

/// Options of [`linear_cross_entropy`](super::linear_cross_entropy); the defaults are PyTorch's, but for
/// [`Chunks::Auto`] (there `options=None` makes all scores).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::nn::functional::{LinearCrossEntropyOptions, linear_cross_entropy};
/// let (x, weight) = (Tensor::from([[1f64, 0.]]), Tensor::from([[0f64, 5.], [0., 5.]]));
/// let options = LinearCrossEntropyOptions {
///     linear_bias: Some(Tensor::from([1f64, 1.])),
///     label_smoothing: 0.1,
///     ..Default::default()
/// };
/// let loss = linear_cross_entropy(&x, &weight, &Tensor::from([0i64]), options);
/// assert!((loss.item() - 2f64.ln()).abs() < 1e-12);
/// ```
#[derive(Clone, Debug, Default)]
pub struct LinearCrossEntropyOptions {
    /// Added to the scores: `[C]`, or `[C, d..]`.
    pub linear_bias: Option<Tensor>,
    /// A weight per class.
    pub weight: Option<Tensor>,
    /// What is returned.
    pub reduction: Reduction,
    /// Targets of this value are left out; -100 if not given. Not for class probabilities.
    pub ignore_index: Option<i64>,
    /// In 0..=1: how much of the target is spread evenly over all classes.
    pub label_smoothing: f64,
    /// How many rows at a time.
    pub chunks: Chunks,
}
