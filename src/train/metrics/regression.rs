//! Metrics of predicted numbers.

use super::{Sums, nothing, share};
use crate::error::{Error, Result, throw};
use crate::tensor::Tensor;

/// Predicted and right numbers of a batch, which is not empty.
#[track_caller]
fn pairs(call: &str, preds: &Tensor, target: &Tensor) -> Vec<(f64, f64)> {
    if preds.shape() != target.shape() {
        // Shapes that broadcast would give a number, and a wrong one.
        let (preds, target) = (preds.shape(), target.shape());
        throw(Error::shape(
            call,
            format!("`preds` is {preds:?}, `target` {target:?}; must be of one shape"),
        ));
    }
    if preds.numel() == 0 {
        throw(Error::shape(
            call,
            format!("a batch has at least one sample, got shape {:?}", preds.shape()),
        ));
    }
    let (preds, target) = (preds.detach().to_vec::<f64>(), target.detach().to_vec::<f64>());
    preds.into_iter().zip(target).collect()
}

macro_rules! mean_error {
    ($($name:ident $like:literal $what:literal $value:literal $error:expr;)*) => {$(
        #[doc = concat!($what, " over all elements (`torchmetrics.", $like, "`).\n")]
        /// ```
        #[doc = concat!("use torchrs::{Tensor, train::metrics::{", stringify!($name), ", Metric}};")]
        #[doc = concat!("let mut error = ", stringify!($name), "::new();")]
        /// error.update(&Tensor::from([1f32, 5.]), &Tensor::from([3f32, 4.]));
        #[doc = concat!("assert_eq!(error.compute_local()?, ", $value, ");")]
        /// # Ok::<(), torchrs::Error>(())
        /// ```
        #[derive(Debug, Clone, Copy, Default)]
        pub struct $name {
            sum: f64,
            count: f64,
        }

        impl $name {
            /// Of nothing so far.
            pub fn new() -> Self {
                Self::default()
            }

            /// Adds a batch of predictions and targets of one shape.
            ///
            /// # Panics
            /// Throws [`Error::Shape`] where shapes differ or are empty.
            #[track_caller]
            pub fn update(&mut self, preds: &Tensor, target: &Tensor) {
                let pairs = pairs(concat!(stringify!($name), "::update"), preds, target);
                let error: fn(f64) -> f64 = $error;
                self.sum += pairs.iter().map(|(pred, target)| error(pred - target)).sum::<f64>();
                self.count += pairs.len() as f64;
            }
        }

        impl Sums for $name {
            type Value = f64;

            fn sums(&self) -> Vec<f64> {
                vec![self.sum, self.count]
            }

            fn value_of(&self, sums: &[f64]) -> Result<f64> {
                share(stringify!($name), sums[0], sums[1])
            }

            fn reset(&mut self) {
                *self = Self::default();
            }
        }
    )*};
}

mean_error! {
    MeanSquaredError "MeanSquaredError" "The mean squared error" "2.5" |error| error * error;
    MeanAbsoluteError "MeanAbsoluteError" "The mean absolute error" "1.5" f64::abs;
}

/// The share of the targets' variance that is predicted (`torchmetrics.R2Score`).
///
/// ```
/// use torchrs::{Tensor, train::metrics::{Metric, R2Score}};
/// let mut r2 = R2Score::new();
/// r2.update(&Tensor::from([1f32, 2., 3.]), &Tensor::from([1f32, 2., 6.]));
/// assert!((r2.compute_local()? - (1.0 - 9.0 / 14.0)).abs() < 1e-12);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct R2Score {
    residuals: f64,
    sum: f64,
    squares: f64,
    count: f64,
}

impl R2Score {
    /// Of nothing so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a batch of predictions and targets of one shape.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] where shapes differ or are empty.
    #[track_caller]
    pub fn update(&mut self, preds: &Tensor, target: &Tensor) {
        for (pred, target) in pairs("R2Score::update", preds, target) {
            self.residuals += (pred - target) * (pred - target);
            self.sum += target;
            self.squares += target * target;
            self.count += 1.0;
        }
    }
}

impl Sums for R2Score {
    type Value = f64;

    fn sums(&self) -> Vec<f64> {
        vec![self.residuals, self.sum, self.squares, self.count]
    }

    fn value_of(&self, sums: &[f64]) -> Result<f64> {
        let [residuals, sum, squares, count] = sums[..] else {
            unreachable!("as many as `sums` gives")
        };
        if count == 0.0 {
            return Err(nothing("R2Score"));
        }
        let variance = squares - sum * sum / count;
        // Sums in f64 leave no more digits than that.
        if variance <= 1e-14 * squares {
            let what =
                format!("{count} targets that do not differ: there is no variance to predict");
            return Err(Error::argument("R2Score::compute", "samples", what));
        }
        Ok(1.0 - residuals / variance)
    }

    fn reset(&mut self) {
        *self = Self::default();
    }
}
