//! The mean of numbers, each with a weight.

use serde::{Deserialize, Serialize};

use super::{Sums, share};
use crate::error::{Error, Result, throw};

/// The mean of numbers, each with a weight (`torchmetrics.MeanMetric`): a loss, with the samples of its batch.
///
/// ```
/// use torchrs::train::metrics::{Mean, Metric};
/// let mut loss = Mean::new();
/// loss.update(1.0, 32.0);
/// loss.update(4.0, 16.0); // the last batch is smaller
/// assert_eq!(loss.compute_local()?, 2.0);
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// A number that is not finite makes the mean so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    /// Of nothing so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a number that counts `weight` times.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for a weight that is negative or not finite.
    #[track_caller]
    pub fn update(&mut self, value: f64, weight: f64) {
        if !(weight >= 0.0 && weight.is_finite()) {
            throw(Error::argument(
                "Mean::update",
                "weight",
                format!("{weight}; must be 0 or more, and finite"),
            ));
        }
        // 0 times NaN would be NaN.
        if weight > 0.0 {
            self.sum += value * weight;
            self.weight += weight;
        }
    }

    /// The sum of the weights so far.
    pub fn weight(&self) -> f64 {
        self.weight
    }
}

impl Sums for Mean {
    type Value = f64;

    fn sums(&self) -> Vec<f64> {
        vec![self.sum, self.weight]
    }

    fn value_of(&self, sums: &[f64]) -> Result<f64> {
        share("Mean", sums[0], sums[1])
    }

    fn reset(&mut self) {
        *self = Self::default();
    }
}
