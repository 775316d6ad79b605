//! Losses of language models.

use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::ops::CrossEntropyOptions;
use crate::tensor::Tensor;

/// Options of [`cross_entropy_z`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropyZOptions {
    /// Factor of the z-loss.
    pub z_weight: f64,
    /// How much of the target is spread over all classes, from 0 to 1.
    pub label_smoothing: f64,
    /// Rows of this target do not count.
    pub ignore_index: i64,
}

impl Default for CrossEntropyZOptions {
    /// A z-loss of 1e-4, no smoothing, rows of -100 left out.
    fn default() -> Self {
        CrossEntropyZOptions { z_weight: 1e-4, label_smoothing: 0.0, ignore_index: -100 }
    }
}

/// What [`cross_entropy_z`] gives: means over the rows that count.
#[derive(Clone, Debug)]
pub struct CrossEntropyZ {
    /// The cross entropy and `z_weight` times the z-loss.
    pub loss: Tensor,
    /// The cross entropy.
    pub cross_entropy: Tensor,
    /// The mean square of the logarithm of the sum of exponentials.
    pub z: Tensor,
}

/// Cross entropy of `logits`, `[rows, classes]`, with a z-loss that keeps the sums of exponentials near 1 (Chowdhery et al., "PaLM",
/// 2022).
///
/// ```
/// use torchrs::{Tensor, nn::llm::{CrossEntropyZOptions, cross_entropy_z}};
/// let (logits, targets) = (Tensor::from([[0f64, 0.], [9., 9.]]), Tensor::from([1i64, -100]));
/// let options = CrossEntropyZOptions { z_weight: 0.5, ..Default::default() };
/// let (loss, ln2) = (cross_entropy_z(&logits, &targets, &options).loss, 2f64.ln());
/// assert!((loss.item() - (ln2 + 0.5 * ln2 * ln2)).abs() < 1e-12);
/// ```
///
/// # Panics
/// As [`Tensor::cross_entropy`]; throws [`Error::Shape`] unless `logits` is `[rows, classes]`, [`Error::Argument`] for a `z_weight`
/// below 0.
#[track_caller]
pub fn cross_entropy_z(
    logits: &Tensor,
    targets: &Tensor,
    options: &CrossEntropyZOptions,
) -> CrossEntropyZ {
    const OP: &str = "cross_entropy_z";
    if logits.dim() != 2 || targets.shape() != [logits.size(0)] {
        let (logits, targets) = (logits.shape(), targets.shape());
        let message = format!(
            "logits are {logits:?} and targets {targets:?}; must be [rows, classes] and [rows]"
        );
        throw(Error::shape(OP, message));
    }
    if options.z_weight.is_nan() || options.z_weight < 0.0 {
        let message = format!("{}; must be 0 or more", options.z_weight);
        throw(Error::argument(OP, "z_weight", message));
    }
    let &CrossEntropyZOptions { z_weight, label_smoothing, ignore_index } = options;
    let of_classes = CrossEntropyOptions { ignore_index, label_smoothing, ..Default::default() };
    let cross_entropy = logits.cross_entropy_with(targets, of_classes);
    let kept = no_grad(|| targets.ne(ignore_index).to_dtype(logits.dtype()));
    let z = (logits.logsumexp(&[-1], false).square() * &kept).sum() / kept.sum();
    let loss = &cross_entropy + &z * z_weight;
    CrossEntropyZ { loss, cross_entropy, z }
}

/// The logarithms of the probabilities that `logits`, `[.., classes]`, give to `tokens`, `[..]`.
///
/// ```
/// use torchrs::{Tensor, nn::llm::gather_log_probs};
/// let y = gather_log_probs(&Tensor::from([[0f64, 0.]]), &Tensor::from([1i64]));
/// assert!((y.item() + 2f64.ln()).abs() < 1e-12);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] unless `tokens` has the shape of `logits` without the last dimension.
#[track_caller]
pub fn gather_log_probs(logits: &Tensor, tokens: &Tensor) -> Tensor {
    if logits.shape().split_last().map(|(_, outer)| outer) != Some(tokens.shape()) {
        let (logits, tokens) = (logits.shape(), tokens.shape());
        let message =
            format!("logits are {logits:?} and tokens {tokens:?}; must be [.., classes] and [..]");
        throw(Error::shape("gather_log_probs", message));
    }
    logits.log_softmax(-1).gather(-1, &tokens.unsqueeze(-1)).squeeze_dim(-1)
}

/// The loss of preferences without a reward model (Rafailov et al., "Direct Preference Optimization", 2023): the mean of
/// -log sigmoid(beta ((policy_chosen - policy_rejected) - (reference_chosen - reference_rejected))), of the logarithms of
/// the sequences' probabilities.
///
/// ```
/// use torchrs::{Tensor, nn::llm::dpo_loss};
/// let (chosen, rejected) = (Tensor::from([-1f64]), Tensor::from([-1f64]));
/// let loss = dpo_loss([&chosen, &rejected], [&chosen, &rejected], 0.1);
/// assert!((loss.item() - 2f64.ln()).abs() < 1e-12);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] unless all have one shape, [`Error::Argument`] unless `beta` is positive.
#[track_caller]
pub fn dpo_loss(policy: [&Tensor; 2], reference: [&Tensor; 2], beta: f64) -> Tensor {
    let all = [policy[0], policy[1], reference[0], reference[1]].map(Tensor::shape);
    if all.iter().any(|shape| *shape != all[0]) {
        let message = format!(
            "chosen and rejected of policy and reference are {all:?}; must be of one shape"
        );
        throw(Error::shape("dpo_loss", message));
    }
    if !(beta > 0.0 && beta.is_finite()) {
        throw(Error::argument("dpo_loss", "beta", format!("{beta}; must be positive and finite")));
    }
    let margin = (policy[0] - policy[1]) - (reference[0] - reference[1]);
    -(margin * beta).logsigmoid().mean()
}

/// The loss of a student that learns another model's probabilities (Hinton et al., 2015): T^2 times the mean over rows of the divergence
/// of softmax(teacher / T) from softmax(student / T). Detach the teacher's logits where it is not to learn.
///
/// ```
/// use torchrs::{Tensor, nn::llm::distillation_loss};
/// let logits = Tensor::from([[1f64, 2., 3.]]);
/// assert!(distillation_loss(&logits, &logits, 2.0).item().abs() < 1e-12);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] unless both have one shape, [`Error::Argument`] unless `temperature` is positive.
#[track_caller]
pub fn distillation_loss(student: &Tensor, teacher: &Tensor, temperature: f64) -> Tensor {
    const OP: &str = "distillation_loss";
    if student.shape() != teacher.shape() || student.dim() == 0 {
        let (student, teacher) = (student.shape(), teacher.shape());
        let message =
            format!("student is {student:?} and teacher {teacher:?}; must both be [.., classes]");
        throw(Error::shape(OP, message));
    }
    if !(temperature > 0.0 && temperature.is_finite()) {
        let message = format!("{temperature}; must be positive and finite");
        throw(Error::argument(OP, "temperature", message));
    }
    let [p, q] = [teacher, student].map(|logits| (logits / temperature).log_softmax(-1));
    (p.exp() * (p - q)).sum_dim(&[-1], false).mean() * (temperature * temperature)
}
