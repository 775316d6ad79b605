//! A histogram with buckets that grow by a tenth, as TensorFlow's and PyTorch's have.

use crate::error::{Error, Result};
use crate::protobuf::Message;
use crate::tensor::Tensor;

/// Upper ends of the buckets, ascending: negative ones, 0, positive ones.
fn limits() -> Vec<f64> {
    let grow = |v: &f64| Some(v * 1.1);
    let positive: Vec<f64> =
        std::iter::successors(Some(1e-12), grow).take_while(|v| *v < 1e20).collect();
    let negative = positive.iter().rev().map(|v| -v);
    negative.chain([0.0]).chain(positive.iter().copied()).chain([f64::MAX]).collect()
}

/// `HistogramProto` of a tensor's elements.
pub(super) fn histogram(call: &str, values: &Tensor) -> Result<Message> {
    let wrong = |what: String| Err(Error::argument(call, "values", what));
    let values = values.detach().to_vec::<f64>();
    if values.is_empty() {
        return wrong("has no elements; must have at least one".to_owned());
    }
    let not_finite = values.iter().filter(|v| !v.is_finite()).count();
    if not_finite > 0 {
        return wrong(format!(
            "{not_finite} of {} elements are not finite; none may be",
            values.len()
        ));
    }
    let limits = limits();
    let mut counts = vec![0.0; limits.len()];
    for value in &values {
        // A bucket holds what is below its end and not below that of the one before.
        let place = limits.partition_point(|limit| limit <= value);
        counts[place.min(limits.len() - 1)] += 1.0;
    }
    let is_used = |count: &f64| *count > 0.0;
    let first = counts.iter().position(is_used).unwrap_or(0);
    let last = counts.iter().rposition(is_used).unwrap_or(0);
    // An empty one before them says where the first begins.
    let first = first.saturating_sub(1);
    let fold = |f: fn(f64, f64) -> f64, start| values.iter().copied().fold(start, f);
    Ok(Message::new()
        .double(1, fold(f64::min, f64::INFINITY))
        .double(2, fold(f64::max, f64::NEG_INFINITY))
        .double(3, values.len() as f64)
        .double(4, values.iter().sum())
        .double(5, values.iter().map(|v| v * v).sum())
        .doubles(6, &limits[first..=last])
        .doubles(7, &counts[first..=last]))
}
