//! Weights, smoothing, and what a loss gives.

use crate::tensor::Tensor;

/// What a loss gives: one value per sample, their mean, or their sum (PyTorch's `reduction`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::{NLLLossOptions, Reduction};
/// let x = Tensor::from([[-1f64, -2.], [-3., -4.]]);
/// let loss = |reduction| {
///     x.nll_loss_with(&Tensor::from([1i64, 0]), NLLLossOptions { reduction, ..Default::default() })
/// };
/// assert_eq!(loss(Reduction::None).to_vec::<f64>(), [2.0, 3.0]);
/// assert_eq!((loss(Reduction::Mean).item(), loss(Reduction::Sum).item()), (2.5, 5.0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Reduction {
    /// One value per sample.
    None,
    /// The mean.
    #[default]
    Mean,
    /// The sum.
    Sum,
}

/// Options of [`Tensor::cross_entropy_with`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::CrossEntropyOptions;
/// let x = Tensor::from([[0f64, 0.], [0., 9.]]);
/// let options = CrossEntropyOptions { ignore_index: 1, label_smoothing: 0.5, ..Default::default() };
/// assert!((x.cross_entropy_with(&Tensor::from([0i64, 1]), options).item() - 2f64.ln()).abs() < 1e-6);
/// ```
#[derive(Clone, Debug)]
pub struct CrossEntropyOptions {
    /// A weight per class.
    pub weight: Option<Tensor>,
    /// Targets of this value are left out.
    pub ignore_index: i64,
    /// What is returned.
    pub reduction: Reduction,
    /// In 0..=1: how much of the target is spread evenly over all classes.
    pub label_smoothing: f64,
}

impl Default for CrossEntropyOptions {
    fn default() -> Self {
        CrossEntropyOptions {
            weight: None,
            ignore_index: -100,
            reduction: Reduction::Mean,
            label_smoothing: 0.0,
        }
    }
}
