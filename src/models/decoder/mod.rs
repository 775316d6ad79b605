//! What models of the next token share: keys and values that are kept, masks, generation, the loss.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`cache`] | keys and values of the tokens before |
//! | [`mask`] | which keys each query attends to |
//! | [`generate`] | tokens one after the other |
//! | [`checkpointing`] | what blocks keep for backward |

mod cache;
mod checkpointing;
mod generate;
mod mask;

pub use cache::KeyValueCache;
pub use checkpointing::ActivationCheckpointing;
pub use generate::GenerateOptions;
pub(super) use generate::{NextToken, generate};
pub(super) use mask::{attention, attention_to_all, lowest};

use crate::error::{Error, Result, throw};
use crate::nn::{Linear, functional::LinearCrossEntropyOptions};
use crate::onnx::Value;
use crate::tensor::{Dtype, Tensor};

/// What goes into a forward besides the tokens.
#[derive(Debug, Default)]
pub struct DecoderInputs<'a> {
    /// 0 (or false) at tokens that are padding, `[batch, length]`, with the tokens in the cache.
    pub attention_mask: Option<&'a Tensor>,
    /// Place of each token, `[batch, length]` or `[length]`; `None`: one after the other, behind those
    /// in the cache.
    pub position_ids: Option<&'a Tensor>,
    /// Keys and values of the tokens before these; those of these are added.
    pub cache: Option<&'a mut KeyValueCache>,
}

/// The number of tokens in the cache and of `input_ids`, `[batch, length]`, without explicit positions at most `longest`
/// together, the setting of that name.
#[track_caller]
pub(super) fn lengths(
    model: &str,
    input_ids: &Tensor,
    inputs: &DecoderInputs,
    (longest, setting): (usize, &str),
) -> (usize, usize) {
    let &[_, length] = input_ids.shape() else {
        let message = format!("input_ids is {:?}; must be [batch, length]", input_ids.shape());
        throw(Error::shape(model, message))
    };
    let past = inputs.cache.as_ref().map_or(0, |cache| cache.length());
    if inputs.position_ids.is_none() && past + length > longest {
        let message =
            format!("{length} tokens after {past} others are more than {setting}, {longest}");
        throw(Error::argument(model, "input_ids", message))
    }
    (past, length)
}

/// Token ids of a graph of ONNX must be whole numbers, `[batch, length]`.
pub(super) fn check_onnx(model: &str, input_ids: &Value) -> Result<()> {
    if input_ids.dtype() == Dtype::I64 && input_ids.dim() == 2 {
        return Ok(());
    }
    let message =
        format!("{:?} of {}; must be [batch, length] of i64", input_ids.shape(), input_ids.dtype());
    Err(Error::argument(model, "input_ids", message))
}

/// Places one after the other, on the tokens' device.
pub(super) fn positions(past: usize, length: usize, input_ids: &Tensor) -> Tensor {
    let (from, to) = (past as i64, (past + length) as i64);
    Tensor::arange(from, to, 1i64, (Dtype::I64, input_ids.device()))
}

/// Places that are given are one for each token, of all sequences or of each.
#[track_caller]
pub(super) fn check_positions(model: &str, positions: &Tensor, input_ids: &Tensor) {
    let tokens = input_ids.shape();
    if positions.shape() != tokens && positions.shape() != &tokens[1..] {
        let message = format!(
            "position_ids is {:?}; must be {tokens:?} or {:?}, as the tokens",
            positions.shape(),
            &tokens[1..]
        );
        throw(Error::shape(model, message));
    }
}

/// The mean cross-entropy of what `head` makes of each token's features against `targets`, of which those of -100 do not
/// count; `call` is for errors.
#[track_caller]
pub(super) fn token_loss(
    call: &str,
    head: &Linear,
    [input_ids, targets]: [&Tensor; 2],
    features: impl FnOnce() -> Tensor,
) -> Tensor {
    if targets.shape() != input_ids.shape() || targets.dim() != 2 {
        let (tokens, targets) = (input_ids.shape(), targets.shape());
        let message = format!(
            "input_ids is {tokens:?} and targets {targets:?}; both must be [batch, length]"
        );
        throw(Error::shape(call, message));
    }
    let options = LinearCrossEntropyOptions::default();
    head.cross_entropy(&features().flatten(0, 1), &targets.flatten(0, 1), options)
}

/// [`token_loss`] of each token's guess of the next one.
#[track_caller]
pub(super) fn next_token_loss(
    call: &str,
    head: &Linear,
    [input_ids, labels]: [&Tensor; 2],
    features: impl FnOnce() -> Tensor,
) -> Tensor {
    if labels.shape() != input_ids.shape() || labels.dim() != 2 || labels.size(1) < 2 {
        let message = format!(
            "input_ids is {:?} and labels {:?}; both must be [batch, length], length at least 2",
            input_ids.shape(),
            labels.shape()
        );
        throw(Error::shape(call, message));
    }
    // The last one guesses what is not there. Whole rows spare a copy of features.
    let [batch, length] = [labels.shape()[0], labels.shape()[1]];
    let next = labels.narrow(1, 1, length - 1).to_dtype(Dtype::I64);
    let none = Tensor::full([batch, 1], -100, (Dtype::I64, labels.device()));
    token_loss(call, head, [input_ids, &Tensor::cat(&[next, none], 1)], features)
}
