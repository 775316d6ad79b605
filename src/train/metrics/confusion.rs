//! The confusion matrix, and precision, recall, F1 and intersection over union from its counts.

use super::classes::{Pairs, check_class};
use super::{Sums, nothing};
use crate::error::{Error, Result, throw};
use crate::tensor::Tensor;

/// How often each class was taken for each other (`torchmetrics.ConfusionMatrix`).
///
/// ```
/// use torchrs::{Tensor, train::metrics::{Average, ConfusionMatrix, Metric}};
/// let mut matrix = ConfusionMatrix::new(2);
/// matrix.update(&Tensor::from([0i64, 1, 1, 1]), &Tensor::from([0i64, 0, 1, 1]));
/// let counts = matrix.compute_local()?;
/// assert_eq!(counts.matrix().to_vec::<i64>(), [1, 1, 0, 2]); // rows are the right classes
/// assert_eq!((counts.accuracy(), counts.recall(Average::Macro)), (0.75, 0.75));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ConfusionMatrix {
    classes: usize,
    counts: Vec<f64>,
    ignore_index: Option<i64>,
}

impl ConfusionMatrix {
    /// Of nothing so far, for classes from 0 to `num_classes - 1`.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for fewer than two classes.
    #[track_caller]
    pub fn new(num_classes: usize) -> Self {
        if num_classes < 2 {
            let what = format!("{num_classes}; must be at least 2 (yes and no are two classes)");
            throw(Error::argument("ConfusionMatrix::new", "num_classes", what));
        }
        let counts = vec![0.0; num_classes * num_classes];
        ConfusionMatrix { classes: num_classes, counts, ignore_index: None }
    }

    /// Leaves out the samples with this target.
    pub fn ignore_index(mut self, index: i64) -> Self {
        self.ignore_index = Some(index);
        self
    }

    /// Adds a batch: predictions and targets as those of [`Accuracy::update`](super::Accuracy::update).
    ///
    /// # Panics
    /// Throws as [`Accuracy::update`](super::Accuracy::update), and [`Error::Argument`] for a class that is not below
    /// `num_classes`.
    #[track_caller]
    pub fn update(&mut self, preds: &Tensor, target: &Tensor) {
        const CALL: &str = "ConfusionMatrix::update";
        let pairs = Pairs::new(CALL, preds, target, self.ignore_index);
        for (pred, target) in pairs.iter() {
            check_class(CALL, target, self.classes);
            if usize::try_from(pred).map_or(true, |pred| pred >= self.classes) {
                let what = format!("class {pred} of {} classes, from 0 on", self.classes);
                throw(Error::argument(CALL, "preds", what));
            }
            self.counts[target as usize * self.classes + pred as usize] += 1.0;
        }
    }
}

impl Sums for ConfusionMatrix {
    type Value = Confusion;

    fn sums(&self) -> Vec<f64> {
        self.counts.clone()
    }

    fn value_of(&self, sums: &[f64]) -> Result<Confusion> {
        if sums.iter().sum::<f64>() == 0.0 {
            return Err(nothing("ConfusionMatrix"));
        }
        Ok(Confusion { classes: self.classes, counts: sums.to_vec() })
    }

    fn reset(&mut self) {
        self.counts.fill(0.0);
    }
}

/// How numbers per class become one (`average` of `torchmetrics`).
///
/// ```
/// use torchrs::{Tensor, train::metrics::{Average, F1, Metric}};
/// let f1 = |average| {
///     let mut f1 = F1::new(3, average);
///     f1.update(&Tensor::from([0i64, 0, 1, 0]), &Tensor::from([0i64, 0, 1, 1]));
///     f1.compute_local().map(|f1| (f1 * 1000.0).round())
/// };
/// // Class 2 is nowhere, and left out.
/// assert_eq!([f1(Average::Micro)?, f1(Average::Macro)?, f1(Average::Weighted)?], [750.0, 733.0, 733.0]);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Average {
    /// From the counts of all classes together.
    Micro,
    /// The mean over the classes that were seen or predicted.
    Macro,
    /// The mean over the classes, by their number of samples.
    Weighted,
}

/// The counts of a [`ConfusionMatrix`]. A share of nothing is 0, as in `torchmetrics`.
#[derive(Debug, Clone, PartialEq)]
pub struct Confusion {
    classes: usize,
    counts: Vec<f64>,
}

/// True positives, false positives and false negatives of a class.
#[derive(Clone, Copy)]
struct Counts {
    tp: f64,
    fp: f64,
    fn_: f64,
}

fn ratio(part: f64, of: f64) -> f64 {
    if of == 0.0 { 0.0 } else { part / of }
}

type Score = fn(Counts) -> f64;

const PRECISION: Score = |c| ratio(c.tp, c.tp + c.fp);
const RECALL: Score = |c| ratio(c.tp, c.tp + c.fn_);
const F1_SCORE: Score = |c| ratio(2.0 * c.tp, 2.0 * c.tp + c.fp + c.fn_);
const JACCARD: Score = |c| ratio(c.tp, c.tp + c.fp + c.fn_);

impl Confusion {
    /// The counts as int64, `[classes, classes]`: a row for each right class, a column for each predicted one.
    pub fn matrix(&self) -> Tensor {
        let counts: Vec<i64> = self.counts.iter().map(|&count| count as i64).collect();
        Tensor::from_slice(&counts, [self.classes; 2])
    }

    /// The share of samples whose class is right.
    pub fn accuracy(&self) -> f64 {
        let right: f64 = (0..self.classes).map(|c| self.counts[c * self.classes + c]).sum();
        ratio(right, self.counts.iter().sum())
    }

    /// Of what was taken for a class, the share that is of it.
    pub fn precision(&self, average: Average) -> f64 {
        self.average(PRECISION, average)
    }

    /// Of the samples of a class, the share that was found.
    pub fn recall(&self, average: Average) -> f64 {
        self.average(RECALL, average)
    }

    /// The harmonic mean of precision and recall.
    pub fn f1(&self, average: Average) -> f64 {
        self.average(F1_SCORE, average)
    }

    /// Intersection over union.
    pub fn jaccard(&self, average: Average) -> f64 {
        self.average(JACCARD, average)
    }

    /// [`precision`](Self::precision) of each class.
    pub fn precision_per_class(&self) -> Vec<f64> {
        self.per_class(PRECISION)
    }

    /// [`recall`](Self::recall) of each class.
    pub fn recall_per_class(&self) -> Vec<f64> {
        self.per_class(RECALL)
    }

    /// [`f1`](Self::f1) of each class.
    pub fn f1_per_class(&self) -> Vec<f64> {
        self.per_class(F1_SCORE)
    }

    /// [`jaccard`](Self::jaccard) of each class.
    pub fn jaccard_per_class(&self) -> Vec<f64> {
        self.per_class(JACCARD)
    }

    fn counts(&self) -> Vec<Counts> {
        let (n, at) =
            (self.classes, |row: usize, column: usize| self.counts[row * self.classes + column]);
        let others = |c: usize| (0..n).filter(move |&other| other != c);
        let of = |c: usize| Counts {
            tp: at(c, c),
            fp: others(c).map(|other| at(other, c)).sum(),
            fn_: others(c).map(|other| at(c, other)).sum(),
        };
        (0..n).map(of).collect()
    }

    fn per_class(&self, score: Score) -> Vec<f64> {
        self.counts().into_iter().map(score).collect()
    }

    fn average(&self, score: Score, average: Average) -> f64 {
        let counts = self.counts();
        let weight = |c: &Counts| match average {
            Average::Weighted => c.tp + c.fn_,
            _ => f64::from(c.tp + c.fp + c.fn_ > 0.0),
        };
        if average == Average::Micro {
            let sum = |part: fn(&Counts) -> f64| counts.iter().map(part).sum();
            return score(Counts { tp: sum(|c| c.tp), fp: sum(|c| c.fp), fn_: sum(|c| c.fn_) });
        }
        let weights: f64 = counts.iter().map(weight).sum();
        ratio(counts.iter().map(|c| weight(c) * score(*c)).sum(), weights)
    }
}

macro_rules! averaged {
    ($($name:ident $method:ident $like:literal $what:literal;)*) => {$(
        #[doc = concat!($what, " (`torchmetrics.", $like, "`).\n")]
        /// ```
        #[doc = concat!("use torchrs::{Tensor, train::metrics::{Average, Metric, ", stringify!($name), "}};")]
        #[doc = concat!("let mut metric = ", stringify!($name), "::new(2, Average::Macro);")]
        /// metric.update(&Tensor::from([0i64, 1]), &Tensor::from([0i64, 1]));
        /// assert_eq!(metric.compute_local()?, 1.0);
        /// # Ok::<(), torchrs::Error>(())
        /// ```
        #[derive(Debug, Clone)]
        pub struct $name {
            matrix: ConfusionMatrix,
            average: Average,
        }

        impl $name {
            /// Of nothing so far, for classes from 0 to `num_classes - 1`.
            ///
            /// # Panics
            /// Throws as [`ConfusionMatrix::new`].
            #[track_caller]
            pub fn new(num_classes: usize, average: Average) -> Self {
                $name { matrix: ConfusionMatrix::new(num_classes), average }
            }

            /// Leaves out the samples with this target.
            pub fn ignore_index(mut self, index: i64) -> Self {
                self.matrix = self.matrix.ignore_index(index);
                self
            }

            /// Adds a batch.
            ///
            /// # Panics
            /// Throws as [`ConfusionMatrix::update`].
            #[track_caller]
            pub fn update(&mut self, preds: &Tensor, target: &Tensor) {
                self.matrix.update(preds, target);
            }
        }

        impl Sums for $name {
            type Value = f64;

            fn sums(&self) -> Vec<f64> {
                self.matrix.sums()
            }

            fn value_of(&self, sums: &[f64]) -> Result<f64> {
                Ok(self.matrix.value_of(sums)?.$method(self.average))
            }

            fn reset(&mut self) {
                Sums::reset(&mut self.matrix);
            }
        }
    )*};
}

averaged! {
    Precision precision "Precision" "Of what was taken for a class, the share that is of it";
    Recall recall "Recall" "Of the samples of a class, the share that was found";
    F1 f1 "F1Score" "The harmonic mean of precision and recall";
    Jaccard jaccard "JaccardIndex" "Intersection over union, as for segmentation";
}
