//! Which keys each query of a decoder attends to.

use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::nn::llm::attention_mask;
use crate::ops::AttentionOptions;
use crate::tensor::{Dtype, Tensor};

/// The attention of `queries` tokens to themselves and `past` others before them, the same in all
/// blocks, for features `x`, `[batch, queries, ..]`. `padding`, `[batch, past + queries]`, is 0 (or false) at tokens that nobody sees.
#[track_caller]
pub(in crate::models) fn attention(
    model: &str,
    past: usize,
    queries: usize,
    padding: Option<&Tensor>,
    x: &Tensor,
) -> AttentionOptions {
    let (keys, batch) = (past + queries, x.size(0));
    let causal = || attention_mask(queries, keys, None, true, x.device());
    let options = AttentionOptions::default();
    let seen = match padding {
        None if queries == 1 => return options,
        None if past == 0 => return AttentionOptions { is_causal: true, ..options },
        None => causal(),
        Some(padding) if padding.shape() == [batch, keys] => {
            let seen = padding.ne(0).view([batch as i64, 1, 1, keys as i64]);
            seen.logical_and(&causal())
        }
        Some(padding) => {
            let message = format!(
                "attention_mask is {:?}; must be [{batch}, {keys}]: batch, and all tokens with those \
                 in the cache",
                padding.shape()
            );
            throw(Error::shape(model, message))
        }
    };
    AttentionOptions { attn_mask: Some(added(&seen, x.dtype())), ..options }
}

/// The attention of all tokens to all, for features `x`, `[batch, length, ..]`. `padding`, `[batch, length]`, is 0 (or
/// false) at tokens that nobody sees.
#[track_caller]
pub(in crate::models) fn attention_to_all(
    model: &str,
    padding: Option<&Tensor>,
    x: &Tensor,
) -> AttentionOptions {
    let Some(padding) = padding else { return AttentionOptions::default() };
    let (batch, length) = (x.size(0), x.size(1));
    if padding.shape() != [batch, length] {
        let message = format!(
            "attention_mask is {:?}; must be [{batch}, {length}], as the tokens",
            padding.shape()
        );
        throw(Error::shape(model, message))
    }
    let seen = padding.ne(0).view([batch as i64, 1, 1, length as i64]);
    let seen = seen.expand(&[batch, 1, length, length]);
    AttentionOptions { attn_mask: Some(added(&seen, x.dtype())), ..AttentionOptions::default() }
}

/// What is added to the score of a place that is not seen: the lowest number. A query that sees nothing (one of padding) gets
/// the mean of all values, and no NaN.
pub(in crate::models) fn lowest(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F64 => f64::MIN,
        Dtype::F16 => -65504.0,
        // Also a number of bfloat16, rounded towards 0.
        _ => -3.3e38,
    }
}

/// 0 where `seen` holds, else the lowest number.
fn added(seen: &Tensor, dtype: Dtype) -> Tensor {
    let zeros = Tensor::zeros(seen.shape(), (dtype, seen.device()));
    no_grad(|| zeros.masked_fill(&seen.logical_not(), lowest(dtype)))
}
