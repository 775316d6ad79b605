//! Areas under curves over all thresholds, exactly: every score is kept, and all ranks' scores are gathered.

use super::classes::{check_class, check_scores, indices};
use super::{Metric, nothing};
use crate::distributed::ProcessGroup;
use crate::error::{Error, Result, throw};
use crate::tensor::Tensor;

/// Scores of samples, one for each class, and their right classes.
#[derive(Debug, Clone)]
struct Scores {
    /// Scores of a sample; 1 where there are two classes and the score is that of class 1.
    columns: usize,
    scores: Vec<f64>,
    targets: Vec<i64>,
}

impl Scores {
    fn new(columns: usize) -> Self {
        Scores { columns, scores: Vec::new(), targets: Vec::new() }
    }

    #[track_caller]
    fn update(&mut self, call: &str, preds: &Tensor, target: &Tensor) {
        let targets = indices(call, target);
        let rows = target.shape();
        let fits = match self.columns {
            1 => preds.shape() == rows,
            columns => preds.shape() == [targets.len(), columns] && rows.len() == 1,
        };
        if !fits {
            let wanted = match self.columns {
                1 => format!("{rows:?}, as `target` is"),
                columns => format!("[n, {columns}] for a `target` of shape [n]"),
            };
            let what =
                format!("`preds` is {:?}, `target` {rows:?}; scores are {wanted}", preds.shape());
            throw(Error::shape(call, what));
        }
        check_scores(call, preds);
        targets.iter().for_each(|&class| check_class(call, class, self.columns.max(2)));
        self.scores.extend(preds.detach().to_vec::<f64>());
        self.targets.extend(targets);
    }

    /// Those of all ranks.
    #[track_caller]
    fn gather(&self, group: &ProcessGroup) -> Result<Scores> {
        let mut all = Scores::new(self.columns);
        for (rank, (columns, scores, targets)) in group
            .all_gather_object(&(self.columns, self.scores.clone(), self.targets.clone()))?
            .into_iter()
            .enumerate()
        {
            if columns != self.columns {
                let what = format!(
                    "rank {rank} has scores of {columns} classes, this rank of {}",
                    self.columns
                );
                return Err(Error::Mismatch(what));
            }
            all.scores.extend(scores);
            all.targets.extend(targets);
        }
        Ok(all)
    }

    /// The mean over the classes, each against all others, of the area that `area` gives for (score, is of the class)
    /// from the highest score to the lowest.
    fn area(&self, metric: &str, area: fn(&[(f64, bool)]) -> f64) -> Result<f64> {
        if self.targets.is_empty() {
            return Err(nothing(metric));
        }
        let classes: Vec<usize> =
            if self.columns == 1 { vec![1] } else { (0..self.columns).collect() };
        let mut sum = 0.0;
        for &class in &classes {
            let column = if self.columns == 1 { 0 } else { class };
            let scores = self.scores.iter().skip(column).step_by(self.columns);
            let of_class = |target: &i64| *target == class as i64;
            let mut rows: Vec<(f64, bool)> =
                scores.copied().zip(self.targets.iter().map(of_class)).collect();
            let positives = rows.iter().filter(|row| row.1).count();
            if positives == 0 || positives == rows.len() {
                let what = format!(
                    "class {class} has {positives} of {} samples: the curve needs samples of it and of others",
                    rows.len()
                );
                return Err(Error::argument(&format!("{metric}::compute"), "samples", what));
            }
            rows.sort_by(|a, b| b.0.total_cmp(&a.0));
            sum += area(&rows);
        }
        Ok(sum / classes.len() as f64)
    }
}

/// Calls `f` with true and false positives, above each threshold that is a score.
fn at_thresholds(rows: &[(f64, bool)], mut f: impl FnMut(f64, f64)) {
    let (mut tp, mut fp) = (0.0, 0.0);
    for (i, (score, positive)) in rows.iter().enumerate() {
        if *positive {
            tp += 1.0
        } else {
            fp += 1.0
        }
        // -0.0 is 0.0.
        if rows.get(i + 1).is_none_or(|next| next.0 != *score) {
            f(tp, fp);
        }
    }
}

fn area_under_roc(rows: &[(f64, bool)]) -> f64 {
    let (mut last, mut area) = ((0.0, 0.0), 0.0);
    at_thresholds(rows, |tp, fp| {
        area += (fp - last.1) * (tp + last.0) / 2.0;
        last = (tp, fp);
    });
    area / (last.0 * last.1)
}

fn average_precision(rows: &[(f64, bool)]) -> f64 {
    let (mut found, mut area) = (0.0, 0.0);
    at_thresholds(rows, |tp, fp| {
        area += (tp - found) * tp / (tp + fp);
        found = tp;
    });
    area / found
}

macro_rules! curve {
    ($($name:ident $area:ident $like:literal $what:literal $value:literal;)*) => {$(
        #[doc = concat!($what, " (`torchmetrics.", $like, "`), exactly.\n")]
        /// Scores are kept until [`compute`](Metric::compute) gathers those of all ranks: 16 bytes a sample and rank, and
        /// 8 more for each further class.
        ///
        /// ```
        #[doc = concat!("use torchrs::{Tensor, train::metrics::{", stringify!($name), ", Metric}};")]
        #[doc = concat!("let mut area = ", stringify!($name), "::new();")]
        /// area.update(&Tensor::from([0.1f64, 0.4, 0.35, 0.8]), &Tensor::from([0i64, 0, 1, 1]));
        #[doc = concat!("assert!((area.compute_local()? - ", $value, ").abs() < 1e-12);")]
        /// # Ok::<(), torchrs::Error>(())
        /// ```
        #[derive(Debug, Clone)]
        pub struct $name(Scores);

        impl $name {
            /// Of two classes: a score is that of class 1.
            #[expect(clippy::new_without_default, reason = "`multiclass` stands beside it")]
            pub fn new() -> Self {
                $name(Scores::new(1))
            }

            /// The mean over the classes, each against all others (`average="macro"`).
            ///
            /// # Panics
            /// Throws [`Error::Argument`] for fewer than two classes.
            #[track_caller]
            pub fn multiclass(num_classes: usize) -> Self {
                if num_classes < 2 {
                    let call = concat!(stringify!($name), "::multiclass");
                    throw(Error::argument(call, "num_classes", format!("{num_classes}; must be at least 2")));
                }
                $name(Scores::new(num_classes))
            }

            /// Adds a batch: scores in the shape of the classes; of several classes `[n, classes]` and `[n]`.
            ///
            /// # Panics
            /// Throws as [`Accuracy::update`](super::Accuracy::update).
            #[track_caller]
            pub fn update(&mut self, preds: &Tensor, target: &Tensor) {
                self.0.update(concat!(stringify!($name), "::update"), preds, target);
            }
        }

        impl Metric for $name {
            type Value = f64;

            #[track_caller]
            fn compute(&self, group: &ProcessGroup) -> Result<f64> {
                self.0.gather(group)?.area(stringify!($name), $area)
            }

            fn compute_local(&self) -> Result<f64> {
                self.0.area(stringify!($name), $area)
            }

            fn reset(&mut self) {
                self.0 = Scores::new(self.0.columns);
            }
        }
    )*};
}

curve! {
    Auroc area_under_roc "AUROC" "The area under the receiver operating characteristic" "0.75";
    AveragePrecision average_precision "AveragePrecision" "The area under the curve of precision over recall"
        "0.8333333333333333";
}
