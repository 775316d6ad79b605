//! Metrics of texts and of models of text.

use std::collections::HashMap;

use super::classes::{check_class, check_scores, indices};
use super::{Sums, nothing, share};
use crate::error::{Error, Result, throw};
use crate::tensor::{Dtype, Tensor};

/// `exp` of the mean negative log-likelihood of a token (`torchmetrics.text.Perplexity`).
///
/// ```
/// use torchrs::{Tensor, train::metrics::{Metric, Perplexity}};
/// let mut perplexity = Perplexity::new().ignore_index(-100);
/// // Of four tokens none is likelier than another.
/// let logits = Tensor::from([[[0f32, 0., 0., 0.], [1., 0., 0., 0.]]]);
/// perplexity.update(&logits, &Tensor::from([[2i64, -100]]));
/// assert!((perplexity.compute_local()? - 4.0).abs() < 1e-6);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Perplexity {
    nll: f64,
    tokens: f64,
    ignore_index: Option<i64>,
}

impl Perplexity {
    /// Of nothing so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves out the tokens with this target.
    pub fn ignore_index(mut self, index: i64) -> Self {
        self.ignore_index = Some(index);
        self
    }

    /// Adds a batch: logits `[..., vocabulary]` for tokens `[...]`.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] or [`Error::Dtype`] where logits do not fit the targets, [`Error::Argument`] for a logit
    /// that is NaN and for a token outside the vocabulary.
    #[track_caller]
    pub fn update(&mut self, logits: &Tensor, target: &Tensor) {
        const CALL: &str = "Perplexity::update";
        let targets = indices(CALL, target);
        let Some((&vocabulary, rows)) =
            logits.shape().split_last().filter(|(_, rows)| *rows == target.shape())
        else {
            let (logits, target) = (logits.shape(), target.shape());
            let what = format!(
                "logits are [..., vocabulary] for targets [...], got {logits:?} and {target:?}"
            );
            throw(Error::shape(CALL, what));
        };
        check_scores(CALL, logits);
        let is_counted = |target: &i64| Some(*target) != self.ignore_index;
        targets.iter().filter(|t| is_counted(t)).for_each(|&t| check_class(CALL, t, vocabulary));
        let n: usize = rows.iter().product();
        let logits = logits.detach().reshape([n as i64, vocabulary as i64]);
        // A place that is looked up, and left out.
        let places: Vec<i64> =
            targets.iter().map(|&t| if is_counted(&t) { t } else { 0 }).collect();
        let places = Tensor::from_slice(&places, [n, 1]).to_device(logits.device());
        let likelihoods = logits.log_softmax_as(-1, Dtype::F32).gather(1, &places).to_vec::<f64>();
        for (log, _) in likelihoods.iter().zip(&targets).filter(|(_, target)| is_counted(target)) {
            self.nll -= log;
            self.tokens += 1.0;
        }
    }

    /// Adds `tokens` tokens whose mean negative log-likelihood, the cross entropy in nats, is `loss`.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for a loss that is NaN.
    #[track_caller]
    pub fn update_loss(&mut self, loss: f64, tokens: usize) {
        if loss.is_nan() {
            throw(Error::argument("Perplexity::update_loss", "loss", "NaN; must be a number"));
        }
        if tokens > 0 {
            self.nll += loss * tokens as f64;
            self.tokens += tokens as f64;
        }
    }
}

impl Sums for Perplexity {
    type Value = f64;

    fn sums(&self) -> Vec<f64> {
        vec![self.nll, self.tokens]
    }

    fn value_of(&self, sums: &[f64]) -> Result<f64> {
        share("Perplexity", sums[0], sums[1]).map(f64::exp)
    }

    fn reset(&mut self) {
        (self.nll, self.tokens) = (0.0, 0.0);
    }
}

/// Longest run of words that [`Bleu`] counts.
const ORDER: usize = 4;

/// BLEU of a corpus, of runs of up to four words between blanks (`torchmetrics.text.BLEUScore`).
///
/// ```
/// use torchrs::train::metrics::{Bleu, Metric};
/// let mut bleu = Bleu::new();
/// bleu.update(&["the cat is on the mat"], &[&["there is a cat on the mat", "a cat is on the mat"]]);
/// assert!((bleu.compute_local()? - 0.7598).abs() < 1e-4);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Bleu {
    matches: [f64; ORDER],
    possible: [f64; ORDER],
    words: f64,
    reference_words: f64,
    texts: f64,
    smooth: bool,
}

impl Bleu {
    /// Of nothing so far. Without a run of four words in common BLEU is 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one to the counts of runs of two to four words, as `torchmetrics` does. A corpus without a common run of
    /// four words has a BLEU of 0 nevertheless.
    pub fn smooth(mut self, smooth: bool) -> Self {
        self.smooth = smooth;
        self
    }

    /// Adds texts, each with one or more references.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] unless each text has at least one reference.
    #[track_caller]
    pub fn update<P: AsRef<str>, R: AsRef<[T]>, T: AsRef<str>>(
        &mut self,
        preds: &[P],
        target: &[R],
    ) {
        const CALL: &str = "Bleu::update";
        same_number(CALL, preds.len(), target.len());
        for (i, (pred, references)) in preds.iter().zip(target).enumerate() {
            let words: Vec<&str> = pred.as_ref().split_whitespace().collect();
            let references: Vec<Vec<&str>> = references
                .as_ref()
                .iter()
                .map(|text| text.as_ref().split_whitespace().collect())
                .collect();
            let distance = |r: &usize| r.abs_diff(words.len());
            let Some(nearest) = references.iter().map(Vec::len).min_by_key(distance) else {
                throw(Error::argument(
                    CALL,
                    "target",
                    format!("text {i} has no reference; must have one or more"),
                ));
            };
            self.texts += 1.0;
            self.words += words.len() as f64;
            self.reference_words += nearest as f64;
            for n in 1..=ORDER {
                let mut most: HashMap<&[&str], usize> = HashMap::new();
                for reference in &references {
                    for (run, count) in runs(reference, n) {
                        let most = most.entry(run).or_default();
                        *most = count.max(*most);
                    }
                }
                for (run, count) in runs(&words, n) {
                    self.matches[n - 1] += count.min(most.get(run).copied().unwrap_or(0)) as f64;
                    self.possible[n - 1] += count as f64;
                }
            }
        }
    }
}

/// How often each run of `n` words is in a text.
fn runs<'a>(words: &'a [&'a str], n: usize) -> HashMap<&'a [&'a str], usize> {
    let mut counts = HashMap::new();
    words.windows(n).for_each(|run| *counts.entry(run).or_default() += 1);
    counts
}

impl Sums for Bleu {
    type Value = f64;

    fn sums(&self) -> Vec<f64> {
        let rest = [self.words, self.reference_words, self.texts];
        [&self.matches[..], &self.possible, &rest].concat()
    }

    fn value_of(&self, sums: &[f64]) -> Result<f64> {
        let (matches, rest) = sums.split_at(ORDER);
        let (possible, rest) = rest.split_at(ORDER);
        let [words, reference_words, texts] = rest[..] else {
            unreachable!("as many as `sums` gives")
        };
        if texts == 0.0 {
            return Err(nothing("Bleu"));
        }
        if matches.contains(&0.0) {
            return Ok(0.0);
        }
        let precision = |n: usize| match self.smooth && n > 0 {
            true => (matches[n] + 1.0) / (possible[n] + 1.0),
            false => matches[n] / possible[n],
        };
        let logs: f64 = (0..ORDER).map(|n| precision(n).ln() / ORDER as f64).sum();
        let brevity =
            if words > reference_words { 1.0 } else { (1.0 - reference_words / words).exp() };
        Ok(brevity * logs.exp())
    }

    fn reset(&mut self) {
        *self = Bleu { smooth: self.smooth, ..Self::default() };
    }
}

/// Words to change, insert or leave out, over the words of the references (`torchmetrics.text.WordErrorRate`).
///
/// ```
/// use torchrs::train::metrics::{Metric, WordErrorRate};
/// let mut errors = WordErrorRate::new();
/// errors.update(&["this is the prediction"], &["this is the reference"]);
/// assert_eq!(errors.compute_local()?, 0.25);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct WordErrorRate {
    errors: f64,
    words: f64,
}

impl WordErrorRate {
    /// Of nothing so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds texts, each with its reference.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] unless there is a reference for each text.
    #[track_caller]
    pub fn update<P: AsRef<str>, T: AsRef<str>>(&mut self, preds: &[P], target: &[T]) {
        same_number("WordErrorRate::update", preds.len(), target.len());
        for (pred, target) in preds.iter().zip(target) {
            let pred: Vec<&str> = pred.as_ref().split_whitespace().collect();
            let target: Vec<&str> = target.as_ref().split_whitespace().collect();
            self.errors += distance(&pred, &target) as f64;
            self.words += target.len() as f64;
        }
    }
}

impl Sums for WordErrorRate {
    type Value = f64;

    fn sums(&self) -> Vec<f64> {
        vec![self.errors, self.words]
    }

    fn value_of(&self, sums: &[f64]) -> Result<f64> {
        share("WordErrorRate", sums[0], sums[1])
    }

    fn reset(&mut self) {
        *self = Self::default();
    }
}

#[track_caller]
fn same_number(call: &str, preds: usize, target: usize) {
    if preds != target || preds == 0 {
        let what =
            format!("{preds} texts and references for {target}; must be as many, and at least one");
        throw(Error::argument(call, "target", what));
    }
}

/// The edit distance of two texts in words (Levenshtein).
fn distance(a: &[&str], b: &[&str]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
