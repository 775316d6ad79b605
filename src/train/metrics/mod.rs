//! Metrics that are collected batch by batch and are right over all ranks (`torchmetrics`).
//!
//! Each rank updates a metric with its own samples, as many as it has. [`compute`](Metric::compute) then gives the
//! metric of all ranks' samples: it adds counts, and never averages averages. A metric that has seen nothing on any
//! rank is an error.
//!
//! ```
//! use torchrs::Tensor;
//! use torchrs::train::metrics::{Accuracy, Mean, Metric};
//! let group = torchrs::distributed::init_process_group(Default::default())?;
//! let (mut loss, mut accuracy) = (Mean::new(), Accuracy::new());
//! let batches = [([[2.0f32, 1.0], [0.0, 3.0]], [0i64, 0], 0.7), ([[1.0, 0.0], [0.0, 1.0]], [0, 1], 0.3)];
//! for (logits, classes, batch_loss) in batches {
//!     loss.update(batch_loss, 2.0);
//!     accuracy.update(&Tensor::from(logits), &Tensor::from(classes));
//! }
//! assert_eq!((loss.compute(&group)?, accuracy.compute(&group)?), (0.5, 0.75));
//! # Ok::<(), torchrs::Error>(())
//! ```
//!
//! | metric | of | as |
//! | --- | --- | --- |
//! | [`Mean`] | numbers with weights | `MeanMetric` |
//! | [`Accuracy`], [`TopK`] | classes, or scores per class | `Accuracy(average="micro", top_k)` |
//! | [`ConfusionMatrix`], [`Precision`], [`Recall`], [`F1`], [`Jaccard`] | the same | those of `torchmetrics` |
//! | [`Auroc`], [`AveragePrecision`] | scores, exactly | `AUROC`, `AveragePrecision` |
//! | [`Perplexity`] | logits of tokens | `Perplexity` |
//! | [`Bleu`], [`WordErrorRate`] | texts | `BLEUScore`, `WordErrorRate` |
//! | [`MeanSquaredError`], [`MeanAbsoluteError`], [`R2Score`] | predicted numbers | those of `torchmetrics` |
//!
//! A metric of one's own implements [`Sums`].

mod classes;
mod confusion;
mod curves;
mod mean;
mod regression;
mod text;

pub use classes::{Accuracy, TopK};
pub use confusion::{Average, Confusion, ConfusionMatrix, F1, Jaccard, Precision, Recall};
pub use curves::{Auroc, AveragePrecision};
pub use mean::Mean;
pub use regression::{MeanAbsoluteError, MeanSquaredError, R2Score};
pub use text::{Bleu, Perplexity, WordErrorRate};

use crate::distributed::{ProcessGroup, ReduceOp};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// A metric that is collected batch by batch.
///
/// ```
/// use torchrs::train::metrics::{Mean, Metric};
/// let mut loss = Mean::new();
/// loss.update(2.0, 3.0);
/// assert_eq!(loss.compute_local()?, 2.0);
/// loss.reset();
/// assert!(loss.compute_local().unwrap_err().to_string().contains("nothing"));
/// # Ok::<(), torchrs::Error>(())
/// ```
pub trait Metric {
    /// What it gives.
    type Value;

    /// The metric of all ranks' samples, the same on all ranks. Collective: every rank calls it, also one that has
    /// no samples.
    ///
    /// # Errors
    /// [`Error::Argument`] on all ranks where none has seen a sample; otherwise as
    /// [`ProcessGroup::all_reduce`](crate::distributed::ProcessGroup::all_reduce).
    fn compute(&self, group: &ProcessGroup) -> Result<Self::Value>;

    /// The metric of this rank's samples alone.
    ///
    /// # Errors
    /// [`Error::Argument`] where it has seen no sample.
    fn compute_local(&self) -> Result<Self::Value>;

    /// Forgets all samples, for the next epoch.
    fn reset(&mut self);
}

/// A metric made of numbers that add up over samples, and therefore over ranks. It is a [`Metric`].
///
/// ```
/// use torchrs::train::metrics::{Metric, Sums};
/// /// The share of words that are unknown.
/// #[derive(Default)]
/// struct Unknown { unknown: f64, words: f64 }
/// impl Sums for Unknown {
///     type Value = f64;
///     fn sums(&self) -> Vec<f64> { vec![self.unknown, self.words] }
///     fn value_of(&self, sums: &[f64]) -> torchrs::Result<f64> { Ok(sums[0] / sums[1]) }
///     fn reset(&mut self) { *self = Self::default() }
/// }
/// assert_eq!(Unknown { unknown: 1.0, words: 4.0 }.compute_local()?, 0.25);
/// # Ok::<(), torchrs::Error>(())
/// ```
pub trait Sums {
    /// What it gives.
    type Value;

    /// The numbers so far, as many on all ranks.
    fn sums(&self) -> Vec<f64>;

    /// The metric of such numbers.
    ///
    /// # Errors
    /// [`Error::Argument`] where they are those of no sample.
    fn value_of(&self, sums: &[f64]) -> Result<Self::Value>;

    /// Sets them to those of no sample.
    fn reset(&mut self);
}

impl<M: Sums> Metric for M {
    type Value = M::Value;

    #[track_caller]
    fn compute(&self, group: &ProcessGroup) -> Result<M::Value> {
        let mine = self.sums();
        let sums = Tensor::from_slice(&mine, [mine.len()]);
        group.all_reduce(&sums, ReduceOp::Sum)?;
        self.value_of(&sums.to_vec::<f64>())
    }

    fn compute_local(&self) -> Result<M::Value> {
        self.value_of(&self.sums())
    }

    fn reset(&mut self) {
        Sums::reset(self);
    }
}

/// The error of a metric that has seen no sample.
fn nothing(metric: &str) -> Error {
    let what =
        "nothing was seen on any rank: call `update` with at least one sample that counts first";
    Error::argument(&format!("{metric}::compute"), "samples", what)
}

/// `sum / count`, where something was counted.
fn share(metric: &str, sum: f64, count: f64) -> Result<f64> {
    if count > 0.0 { Ok(sum / count) } else { Err(nothing(metric)) }
}
