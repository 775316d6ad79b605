//! Labels of classifiers, and the losses that `transformers` chooses by them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::layers::linear;
use crate::error::{Error, throw};
use crate::models::pretrained::settings::Table;
use crate::models::{BertConfig, ViTConfig};
use crate::nn::{Linear, functional as F};
use crate::tensor::Tensor;

/// Names by number (`id2label`).
type Labels = BTreeMap<usize, String>;

/// What a classifier's labels are (`problem_type`), which decides the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemType {
    /// Numbers: the mean squared error.
    Regression,
    /// One class for each sample: cross-entropy.
    SingleLabelClassification,
    /// A 0 or 1 for each class: binary cross-entropy.
    MultiLabelClassification,
}

/// As many names as `transformers` gives.
pub(in crate::models) fn numbered(count: usize) -> Labels {
    (0..count).map(|i| (i, format!("LABEL_{i}"))).collect()
}

/// The names' numbers, which files have beside `id2label`.
pub(in crate::models) fn label2id(labels: &Labels) -> Value {
    let numbers: BTreeMap<&String, &usize> = labels.iter().map(|(i, label)| (label, i)).collect();
    json!(numbers)
}

/// The methods of settings that have names of classes.
macro_rules! labelled {
    ($($config:ident)*) => {$(
        impl $config {
            /// With classes of these names.
            #[must_use]
            pub fn with_labels<S: Into<String>>(
                mut self,
                labels: impl IntoIterator<Item = S>,
            ) -> Self {
                self.id2label = labels.into_iter().map(Into::into).enumerate().collect();
                self
            }

            /// With so many classes.
            #[must_use]
            pub fn with_num_labels(mut self, count: usize) -> Self {
                self.id2label = numbered(count);
                self
            }

            /// How many classes a classifier has.
            pub fn num_labels(&self) -> usize {
                self.id2label.len()
            }
        }
    )*};
}
labelled! { BertConfig ViTConfig }

/// The layer from features to a score for each label; `config` is the settings' name in errors.
#[track_caller]
pub(in crate::models) fn classifier(
    config: &str,
    range: f64,
    width: usize,
    labels: &Labels,
) -> Linear {
    if labels.is_empty() {
        let message = "is empty; must name at least one class";
        throw(Error::argument(config, "id2label", message));
    }
    linear(range, width, labels.len(), true)
}

/// Brings `num_labels` of older files to `id2label`.
///
/// # Errors
/// In words, for two numbers that differ.
pub(in crate::models) fn read_labels(table: &mut Table) -> Result<(), String> {
    table.remove("label2id");
    let Some(count) = table.remove("num_labels").filter(|count| !count.is_null()) else {
        return Ok(());
    };
    match (count.as_u64(), table.get("id2label").and_then(Value::as_object)) {
        (Some(count), Some(labels)) if labels.len() as u64 == count => {}
        (Some(count), None) => _ = table.insert("id2label".into(), json!(numbered(count as usize))),
        (None, _) => return Err(format!("`num_labels` is {count}; must be a number")),
        (Some(count), Some(labels)) => {
            return Err(format!("`num_labels` is {count}, but `id2label` has {}", labels.len()));
        }
    }
    Ok(())
}

/// The loss of a classifier's scores, `[batch, classes]`; `call` is for errors. Without a problem type, one score means
/// regression, whole numbers mean classes, and other numbers shares of each class.
#[track_caller]
pub(in crate::models) fn classification_loss(
    call: &str,
    logits: &Tensor,
    labels: &Tensor,
    problem: Option<ProblemType>,
) -> Tensor {
    let (batch, classes) = (logits.size(0), logits.size(1));
    let problem = problem.unwrap_or(match (classes, labels.dtype().is_floating_point()) {
        (1, _) => ProblemType::Regression,
        (_, false) => ProblemType::SingleLabelClassification,
        (_, true) => ProblemType::MultiLabelClassification,
    });
    let refuse = |wanted: String| -> ! {
        let message = format!("labels is {:?}; must be {wanted} for {problem:?}", labels.shape());
        throw(Error::shape(call, message))
    };
    let as_logits = || labels.to_dtype(logits.dtype());
    match problem {
        ProblemType::SingleLabelClassification => {
            if labels.shape() != [batch] {
                refuse(format!("[{batch}], a class for each sample,"));
            }
            logits.cross_entropy(labels)
        }
        ProblemType::Regression if classes == 1 => {
            if labels.numel() != batch || labels.shape().first() != Some(&batch) {
                refuse(format!("[{batch}]"));
            }
            F::mse_loss(&logits.flatten(0, 1), &as_logits().reshape([batch as i64]))
        }
        _ if labels.shape() != logits.shape() => refuse(format!("{:?}", logits.shape())),
        ProblemType::Regression => F::mse_loss(logits, &as_logits()),
        ProblemType::MultiLabelClassification => {
            F::binary_cross_entropy_with_logits(logits, &as_logits())
        }
    }
}
