//! Shares of samples whose class is right, and what predictions and targets of classes look like.

use super::{Sums, share};
use crate::error::{Error, Result, throw};
use crate::tensor::{Dtype, Tensor};

/// The share of samples whose class is right (`torchmetrics.Accuracy` with `average="micro"`).
///
/// Predictions are classes in the shape of the targets, or scores with the classes as dimension 1: `[n, classes]`,
/// or `[n, classes, ...]` for targets `[n, ...]`.
///
/// ```
/// use torchrs::{Tensor, train::metrics::{Accuracy, Metric}};
/// let mut accuracy = Accuracy::new().ignore_index(-100);
/// accuracy.update(&Tensor::from([[0.1f32, 0.9], [0.8, 0.2]]), &Tensor::from([1i64, 1]));
/// accuracy.update(&Tensor::from([0i64, 1]), &Tensor::from([0i64, -100]));
/// assert_eq!(accuracy.compute_local()?, 2.0 / 3.0);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Accuracy {
    correct: f64,
    total: f64,
    ignore_index: Option<i64>,
}

impl Accuracy {
    /// Of nothing so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves out the samples with this target.
    pub fn ignore_index(mut self, index: i64) -> Self {
        self.ignore_index = Some(index);
        self
    }

    /// Adds a batch.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] or [`Error::Dtype`] where predictions do not fit the targets, [`Error::Argument`] for a
    /// score that is NaN and for a class that has no score.
    #[track_caller]
    pub fn update(&mut self, preds: &Tensor, target: &Tensor) {
        let pairs = Pairs::new("Accuracy::update", preds, target, self.ignore_index);
        self.correct += pairs.iter().filter(|(pred, target)| pred == target).count() as f64;
        self.total += pairs.iter().count() as f64;
    }
}

impl Sums for Accuracy {
    type Value = f64;

    fn sums(&self) -> Vec<f64> {
        vec![self.correct, self.total]
    }

    fn value_of(&self, sums: &[f64]) -> Result<f64> {
        share("Accuracy", sums[0], sums[1])
    }

    fn reset(&mut self) {
        (self.correct, self.total) = (0.0, 0.0);
    }
}

/// The share of samples whose class is among the `k` with the highest scores
/// (`torchmetrics.Accuracy` with `average="micro", top_k=k`).
///
/// ```
/// use torchrs::{Tensor, train::metrics::{Metric, TopK}};
/// let mut top2 = TopK::new(2);
/// top2.update(&Tensor::from([[0.5f32, 0.3, 0.2], [0.5, 0.3, 0.2]]), &Tensor::from([1i64, 2]));
/// assert_eq!(top2.compute_local()?, 0.5);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TopK {
    k: usize,
    correct: f64,
    total: f64,
}

impl TopK {
    /// Of nothing so far.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for `k` of 0.
    #[track_caller]
    pub fn new(k: usize) -> Self {
        if k == 0 {
            throw(Error::argument("TopK::new", "k", "0; must be at least 1"));
        }
        TopK { k, correct: 0.0, total: 0.0 }
    }

    /// Adds a batch: scores `[n, classes]` and classes `[n]`.
    ///
    /// # Panics
    /// Throws as [`Accuracy::update`], and [`Error::Argument`] for fewer than `k` classes.
    #[track_caller]
    pub fn update(&mut self, preds: &Tensor, target: &Tensor) {
        const CALL: &str = "TopK::update";
        if preds.dim() != 2 || target.dim() != 1 || preds.shape()[0] != target.shape()[0] {
            let (preds, target) = (preds.shape(), target.shape());
            let what =
                format!("scores are [n, classes] and targets [n], got {preds:?} and {target:?}");
            throw(Error::shape(CALL, what));
        }
        let classes = preds.shape()[1];
        if classes < self.k {
            let what =
                format!("{} of only {classes} classes: `preds` is {:?}", self.k, preds.shape());
            throw(Error::argument(CALL, "k", what));
        }
        check_scores(CALL, preds);
        let targets = indices(CALL, target);
        targets.iter().for_each(|&class| check_class(CALL, class, classes));
        let highest = preds.detach().topk(self.k, 1, true).1.to_vec::<i64>();
        let hits =
            highest.chunks(self.k).zip(&targets).filter(|(row, target)| row.contains(target));
        self.correct += hits.count() as f64;
        self.total += targets.len() as f64;
    }
}

impl Sums for TopK {
    type Value = f64;

    fn sums(&self) -> Vec<f64> {
        vec![self.correct, self.total]
    }

    fn value_of(&self, sums: &[f64]) -> Result<f64> {
        share("TopK", sums[0], sums[1])
    }

    fn reset(&mut self) {
        (self.correct, self.total) = (0.0, 0.0);
    }
}

/// Predicted classes and right ones.
pub(super) struct Pairs {
    preds: Vec<i64>,
    targets: Vec<i64>,
    ignore_index: Option<i64>,
}

impl Pairs {
    #[track_caller]
    pub(super) fn new(
        call: &str,
        preds: &Tensor,
        target: &Tensor,
        ignore_index: Option<i64>,
    ) -> Self {
        let targets = indices(call, target);
        let (shape, wanted) = (preds.shape(), target.shape());
        if shape == wanted {
            if preds.dtype().is_floating_point() {
                let what = "scores in the shape of the targets: are they of one class? give classes, such as \
                            `preds.gt(0.5).to_dtype(Dtype::I64)`, or scores per class in dimension 1";
                throw(Error::dtype(call, format!("`preds` is {}: {what}", preds.dtype())));
            }
            return Pairs { preds: indices(call, preds), targets, ignore_index };
        }
        let per_class = shape.len() == wanted.len() + 1
            && shape.first() == wanted.first()
            && shape[2..] == wanted[1..];
        if !per_class {
            let what = format!(
                "`preds` is {shape:?}, `target` {wanted:?}; give classes in the shape of `target`, or scores with the \
                 classes as dimension 1"
            );
            throw(Error::shape(call, what));
        }
        check_scores(call, preds);
        let is_counted = |target: &&i64| Some(**target) != ignore_index;
        targets.iter().filter(is_counted).for_each(|&class| check_class(call, class, shape[1]));
        let preds = preds.detach().argmax_dim(1, false).to_vec();
        Pairs { preds, targets, ignore_index }
    }

    /// Those that count.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, i64)> {
        let pairs = self.preds.iter().copied().zip(self.targets.iter().copied());
        pairs.filter(|(_, target)| Some(*target) != self.ignore_index)
    }
}

/// Classes as numbers, at least one.
#[track_caller]
pub(super) fn indices(call: &str, t: &Tensor) -> Vec<i64> {
    if t.dtype().is_floating_point() || t.dtype().is_complex() {
        throw(Error::dtype(call, format!("classes are whole numbers (int64), got {}", t.dtype())));
    }
    if t.numel() == 0 {
        throw(Error::shape(
            call,
            format!("a batch has at least one sample, got shape {:?}", t.shape()),
        ));
    }
    t.to_vec()
}

/// Scores are numbers.
#[track_caller]
pub(super) fn check_scores(call: &str, scores: &Tensor) {
    if scores.numel() == 0 {
        throw(Error::shape(
            call,
            format!("a batch has at least one sample, got shape {:?}", scores.shape()),
        ));
    }
    let not_a_number = |t: &Tensor| t.isnan().any().to_dtype(Dtype::F32).item() != 0.0;
    if scores.dtype().is_floating_point() && not_a_number(&scores.detach()) {
        throw(Error::argument(call, "preds", "a score is NaN: the model's output is not finite"));
    }
}

#[track_caller]
pub(super) fn check_class(call: &str, class: i64, classes: usize) {
    if usize::try_from(class).is_ok_and(|class| class < classes) {
        return;
    }
    let hint = if class < 0 { "; name it by `ignore_index` to leave it out" } else { "" };
    throw(Error::argument(
        call,
        "target",
        format!("class {class} of {classes} classes, from 0 on{hint}"),
    ));
}
