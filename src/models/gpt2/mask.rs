//! Which keys each query of GPT-2 attends to.

use crate::error::{Error, throw};
use crate::{Dtype, Tensor, no_grad};

/// The same for all blocks of one forward.
pub enum Mask {
    /// Each query sees all keys.
    None,
    /// Query i sees keys 0 to i.
    Causal,
    /// What is added to the scores; broadcasts to `[batch, heads, queries, keys]`.
    Added(Tensor),
}

impl Mask {
    /// For `queries` tokens behind `past` others. `padding`, `[batch, past + queries]`, is 0 (or
    /// false) at tokens that nobody sees.
    #[track_caller]
    pub fn new(
        batch: usize,
        past: usize,
        queries: usize,
        padding: Option<&Tensor>,
        dtype: Dtype,
    ) -> Self {
        let keys = past + queries;
        match padding {
            None if queries == 1 => Mask::None,
            None if past == 0 => Mask::Causal,
            None => Mask::Added(added(&causal(queries, keys), dtype)),
            Some(padding) => {
                if padding.shape() != [batch, keys] {
                    let message = format!(
                        "attention_mask is {:?}; must be [{batch}, {keys}]: batch, and all tokens \
                         with those in the cache",
                        padding.shape()
                    );
                    throw(Error::shape("GPT2", message));
                }
                let seen = padding.ne(0).view([batch as i64, 1, 1, keys as i64]);
                Mask::Added(added(&seen.logical_and(&causal(queries, keys)), dtype))
            }
        }
    }

    /// As numbers to add to scores `[.., queries, keys]`.
    pub fn added(&self, queries: usize, keys: usize, dtype: Dtype) -> Option<Tensor> {
        match self {
            Mask::None => None,
            Mask::Causal => Some(added(&causal(queries, keys), dtype)),
            Mask::Added(mask) => Some(mask.clone()),
        }
    }
}

/// True where a query sees a key; the last query sees all.
fn causal(queries: usize, keys: usize) -> Tensor {
    Tensor::ones([queries, keys], Dtype::Bool).tril((keys - queries) as i64)
}

/// 0 where `seen` holds, else the lowest number: a query that sees nothing (one of padding) then sees
/// everything, which harms nobody, where minus infinity would give NaN.
fn added(seen: &Tensor, dtype: Dtype) -> Tensor {
    let lowest = match dtype {
        Dtype::F64 => f64::MIN,
        Dtype::F16 => -65504.0,
        // Also a number of bfloat16, rounded towards 0.
        _ => -3.3e38,
    };
    no_grad(|| Tensor::zeros(seen.shape(), dtype).masked_fill(&seen.logical_not(), lowest))
}
