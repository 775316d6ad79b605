//! Cross entropy of a linear layer's scores, of which only a chunk of rows is in memory at a time.
//!
//! For a loss that is one number, forward makes the gradients as well: each chunk of scores is the product of its rows,
//! becomes the gradient of the scores in place, and is multiplied into those of input, weight and bias. So there are
//! three products of this size, as without chunks. Backward only multiplies by the loss's own gradient. With losses per
//! row that is not known before backward, which computes the chunks again.
//!
//! Gradients of weight and bias are summed over chunks in the type that is computed in. Rounding: the scores and their
//! gradients are of the input's type, as without chunks.

mod chunks;
mod options;
mod recorded;
#[cfg(test)]
mod tests;

pub use options::{Chunks, LinearCrossEntropyOptions};

#[cfg(test)]
use super::Reduction;
use super::{CrossEntropyOptions, batch::check_smoothing, batch::no_class_to_ignore};
use crate::amp::{self, Region};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, Order, positive, values};
use crate::tensor::{Dtype, Tensor};
use recorded::{Layer, in_chunks};

/// The name in errors.
const OP: &str = "linear_cross_entropy";
/// Scores up to so many are made as a whole, unless chunks are asked for.
const WHOLE: usize = 1 << 24;

/// Cross entropy of the scores `input linear_weight^T + linear_bias` against `target`
/// (`torch.nn.functional.linear_cross_entropy`), without all scores in memory at once.
///
/// `input` is `[N, in]` or `[in]`, `linear_weight` `[C, in]` and `target` has the class of each row, `[N]` or `[]`, or
/// class probabilities, `[N, C]` or `[C]`. With `linear_weight` of `[C, d.., in]`, `input` is `[N, in]` and `target`
/// `[N, d..]` or `[N, C, d..]`. More dimensions of samples are to be flattened.
///
/// [`Chunks`] says when it works in chunks. Class probabilities and weights of more than two dimensions never do.
/// In autocast the product is of the half type and the loss f32. In chunks the gradient of an f32 weight or bias is summed
/// in f32 and never rounded; of all scores at once it is a half, as a linear layer's.
///
/// ```
/// use torchrs::{Dtype, Tensor};
/// use torchrs::nn::functional::{Chunks, LinearCrossEntropyOptions, cross_entropy, linear_cross_entropy};
/// let (x, weight) = (Tensor::randn([6, 4], Dtype::F64), Tensor::randn([9, 4], Dtype::F64));
/// let target = Tensor::from([1i64, 8, 0, 3, -100, 2]);
/// let options = LinearCrossEntropyOptions { chunks: Chunks::Rows(4), ..Default::default() };
/// let loss = linear_cross_entropy(&x, &weight, &target, options);
/// assert!((loss.item() - cross_entropy(&x.linear(&weight, None), &target).item()).abs() < 1e-12);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when sizes do not fit, [`Error::Dtype`] when dtypes differ, and [`Error::Argument`] for
/// chunks without rows, for an `ignore_index` beside probabilities, and as [`Tensor::cross_entropy`].
#[track_caller]
pub fn linear_cross_entropy(
    input: &Tensor,
    linear_weight: &Tensor,
    target: &Tensor,
    options: LinearCrossEntropyOptions,
) -> Tensor {
    check(input, linear_weight, target, &options);
    let bias = options.linear_bias.as_ref();
    let rows = chunk_rows(input, linear_weight, target, &options);
    if amp::is_active()
        && let Some(region) = Region::enter("linear", &[Some(input)])
    {
        let (x, w, b) = (region.cast(input), region.cast(linear_weight), region.cast(bias));
        // f64 is a wish for precision, and is not cast.
        let result = if x.dtype() == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
        return region.run(|_| match rows {
            Some(rows) => {
                let layer = Layer { weight: linear_weight, bias, used: (w, b) };
                in_chunks(&x, layer, target, &options, rows, result)
            }
            None => whole(&x, &w, b.as_ref(), target, &options, result),
        });
    }
    match rows {
        Some(rows) => {
            let used = (linear_weight.clone(), bias.cloned());
            let layer = Layer { weight: linear_weight, bias, used };
            in_chunks(input, layer, target, &options, rows, input.dtype())
        }
        None => whole(input, linear_weight, bias, target, &options, input.dtype()),
    }
}

#[track_caller]
fn check(input: &Tensor, weight: &Tensor, target: &Tensor, options: &LinearCrossEntropyOptions) {
    let bad = |message: String| throw(Error::shape(OP, message));
    let (x, w) = (input.shape(), weight.shape());
    if w.len() < 2 || !matches!(x.len(), 1 | 2) {
        bad(format!(
            "input {x:?} and linear_weight {w:?} do not fit: they are [N, in] or [in], and [C, in] or [C, d.., in]; \
             flatten more dimensions of samples"
        ))
    }
    if x.last() != w.last() {
        bad(format!("input {x:?} and linear_weight {w:?} must be equal in the last dimension"))
    }
    if w.len() > 2 && x.len() == 1 {
        bad(format!("with linear_weight {w:?} the input must be [N, {}], not {x:?}", x[0]))
    }
    if let Some(bias) = &options.linear_bias
        && bias.shape() != &w[..w.len() - 1]
    {
        bad(format!(
            "linear_bias is {:?}; with linear_weight {w:?} it must be {:?}",
            bias.shape(),
            &w[..w.len() - 1]
        ))
    }
    if options.ignore_index.is_some() && target.dtype().is_floating_point() {
        no_class_to_ignore(OP);
    }
    if options.chunks == Chunks::Rows(0) {
        throw(Error::argument(OP, "chunks", "Rows(0); a chunk has at least one row"));
    }
    check_smoothing(OP, options.label_smoothing);
}

/// The rows of a chunk; none where all scores are made.
fn chunk_rows(
    input: &Tensor,
    weight: &Tensor,
    target: &Tensor,
    options: &LinearCrossEntropyOptions,
) -> Option<usize> {
    let (classes, features) = (weight.shape()[0], input.size(-1));
    let n = if input.dim() == 2 { input.shape()[0] } else { 1 };
    let fits = weight.dim() == 2
        && !target.dtype().is_floating_point()
        && input.dtype().is_floating_point()
        && n * classes > 0;
    let rows = match options.chunks {
        Chunks::Whole => None,
        Chunks::Rows(rows) => Some(rows),
        Chunks::Auto if n * classes <= WHOLE || classes <= features => None,
        Chunks::Auto if input.device().kernels().is_some() => Some(4096),
        Chunks::Auto => Some(256),
    };
    rows.filter(|_| fits)
}

/// [`Tensor::linear`] and [`Tensor::cross_entropy`], of operands of one type.
#[track_caller]
fn whole(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    target: &Tensor,
    options: &LinearCrossEntropyOptions,
    result: Dtype,
) -> Tensor {
    let (outputs, features) = weight.shape().split_at(weight.dim() - 1);
    let flat = [outputs.iter().product(), features[0]];
    let bias = bias.map(|bias| bias.reshape_to(&flat[..1]));
    let mut scores = input.linear(&weight.reshape_to(&flat), bias.as_ref());
    if outputs.len() > 1 {
        let shape: Vec<usize> = input.shape()[..1].iter().chain(outputs).copied().collect();
        scores = scores.reshape_to(&shape);
    }
    let options = CrossEntropyOptions {
        weight: options.weight.clone(),
        ignore_index: options.ignore_index.unwrap_or(-100),
        reduction: options.reduction,
        label_smoothing: options.label_smoothing,
    };
    if target.dtype().is_floating_point() {
        return scores.to_dtype(result).cross_entropy_with(target, options);
    }
    scores.cross_entropy_as(target, &options, result)
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let operands = || vec![values([5, 3], 1), values([4, 3], 2), values([4], 3)];
    let sample = |name: &str, target: Tensor, options: LinearCrossEntropyOptions| {
        OpSample::new(name, operands(), move |x| {
            let like = |t: &Tensor| t.to_dtype(x[0].dtype()).to_device(x[0].device());
            let options = LinearCrossEntropyOptions {
                linear_bias: Some(x[2].clone()),
                weight: options.weight.as_ref().map(like),
                ..options.clone()
            };
            linear_cross_entropy(&x[0], &x[1], &target.to_device(x[0].device()), options)
        })
    };
    let classes = || Tensor::from([3i64, 0, -100, 2, 1]);
    let chunks = Chunks::Rows(2);
    let plain = LinearCrossEntropyOptions { chunks, ..Default::default() };
    let weighted = |reduction, label_smoothing| LinearCrossEntropyOptions {
        weight: Some(positive([4], 5)),
        reduction,
        label_smoothing,
        chunks,
        ..Default::default()
    };
    vec![
        sample("linear_cross_entropy", classes(), plain.clone()),
        sample(
            "linear_cross_entropy, sum, smoothing",
            Tensor::from([0i64, 1, 2, 3, 1]),
            LinearCrossEntropyOptions { ignore_index: Some(1), ..weighted(Reduction::Sum, 0.2) },
        ),
        sample("linear_cross_entropy, weights", classes(), weighted(Reduction::Mean, 0.0)),
        sample(
            "linear_cross_entropy, weights, smoothing",
            classes(),
            weighted(Reduction::Mean, 0.3),
        ),
        sample("linear_cross_entropy, none", classes(), weighted(Reduction::None, 0.1)),
        sample(
            "linear_cross_entropy, all ignored",
            Tensor::from([-100i64; 5]),
            LinearCrossEntropyOptions { reduction: Reduction::Sum, ..plain.clone() },
        )
        .order(Order::First),
        OpSample::new(
            "linear_cross_entropy, [in]",
            [values([3], 1), values([4, 3], 2)],
            move |x| {
                let target = Tensor::scalar(3i64).to_device(x[0].device());
                let options = LinearCrossEntropyOptions { chunks, ..Default::default() };
                linear_cross_entropy(&x[0], &x[1], &target, options)
            },
        ),
        OpSample::new(
            "linear_cross_entropy, [C, d, in]",
            [values([2, 3], 1), values([4, 2, 3], 2)],
            |x| {
                let target = Tensor::from([[3i64, 0], [1, 1]]).to_device(x[0].device());
                linear_cross_entropy(&x[0], &x[1], &target, Default::default())
            },
        ),
    ]
}
