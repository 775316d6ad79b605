//! Attention as language models vary it: queries that share keys (Ainslie et al., "GQA", 2023), windows, caps of scores (Gemma 2),
//! biases that grow with the distance (ALiBi).

use super::alibi_slopes;
use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::ops::AttentionOptions;
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

/// Options of [`grouped_query_attention`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupedQueryOptions {
    /// Whether queries see no later keys. The last query stands at the last key.
    pub causal: bool,
    /// Number of keys that a query sees at most, back from its own place.
    pub window: Option<usize>,
    /// Factor of the scores; `None`: 1 / sqrt(width).
    pub scale: Option<f64>,
    /// Bound of the scores: [`softcap`] of them.
    pub softcap: Option<f64>,
    /// Whether scores fall with the distance, by [`alibi_slopes`].
    pub alibi: bool,
}

impl Default for GroupedQueryOptions {
    /// Causal attention to all earlier keys.
    fn default() -> Self {
        GroupedQueryOptions { causal: true, window: None, scale: None, softcap: None, alibi: false }
    }
}

/// Values bounded by `cap`: cap tanh(x / cap), as Gemma 2 has its logits.
///
/// ```
/// use torchrs::{Tensor, nn::llm::softcap};
/// let y = softcap(&Tensor::from([0f64, 1e6]), 30.0);
/// assert_eq!(y.to_vec::<f64>(), [0.0, 30.0]);
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] unless `cap` is positive.
#[track_caller]
pub fn softcap(x: &Tensor, cap: f64) -> Tensor {
    if !(cap > 0.0 && cap.is_finite()) {
        throw(Error::argument("softcap", "cap", format!("{cap}; must be positive and finite")));
    }
    (x / cap).tanh() * cap
}

/// gelu(gate) up, with the tangent's approximation: the gated layer of Gemma, where [`Tensor::swiglu`] is Llama's.
///
/// ```
/// use torchrs::{Tensor, nn::llm::geglu};
/// let (gate, up) = (Tensor::from([0.5f64]), Tensor::from([2f64]));
/// assert!(geglu(&gate, &up).equal(&(gate.gelu_tanh() * &up)));
/// ```
#[track_caller]
pub fn geglu(gate: &Tensor, up: &Tensor) -> Tensor {
    gate.gelu_tanh() * up
}

#[track_caller]
fn check_window(op: &str, window: Option<usize>) {
    if window == Some(0) {
        throw(Error::argument(op, "window", "0; must be at least 1: a query sees its own place"));
    }
}

/// Which keys queries see, `[queries, keys]`, true where allowed. The last query stands at the last key; one at place p sees keys up
/// to p where `causal`, and the last `window` of those up to p where one is given.
///
/// ```
/// use torchrs::{Device, nn::llm::attention_mask};
/// let mask = attention_mask(2, 3, Some(2), true, Device::Cpu);
/// assert_eq!(mask.to_vec::<bool>(), [true, true, false, false, true, true]);
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] for a window of 0.
#[track_caller]
pub fn attention_mask(
    queries: usize,
    keys: usize,
    window: Option<usize>,
    causal: bool,
    device: Device,
) -> Tensor {
    check_window("attention_mask", window);
    let past = keys as i64 - queries as i64;
    let all = Tensor::ones([queries, keys], (Dtype::Bool, device));
    let seen = if causal { all.tril(past) } else { all };
    match window {
        Some(window) => seen.triu(past.saturating_add(1).saturating_sub_unsigned(window as u64)),
        None => seen,
    }
}

/// slope (key - query), `[heads, queries, keys]`.
fn biases(heads: usize, queries: usize, keys: usize, like: &Tensor) -> Tensor {
    let options = (Dtype::F64, like.device());
    let places = |from: i64, to: i64| Tensor::arange(from, to, 1i64, options);
    let past = keys as i64 - queries as i64;
    let distance = places(0, keys as i64) - places(past, keys as i64).unsqueeze(-1);
    let slopes = alibi_slopes(heads).to_device(like.device()).view([heads as i64, 1, 1]);
    (slopes * distance).to_dtype(like.dtype())
}

/// Attention of queries `[batch, heads, queries, width]` to keys and values `[batch, groups, keys, width]`: neighbouring heads share
/// a group. Kinds without a cap are [`Tensor::scaled_dot_product_attention_with`], whose memory does not grow with the product
/// of the lengths but for ALiBi's biases.
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::llm::{GroupedQueryOptions, grouped_query_attention}};
/// let q = Tensor::zeros([1, 4, 2, 8], Dtype::F32);
/// let kv = Tensor::ones([1, 2, 3, 8], Dtype::F32);
/// let options = GroupedQueryOptions { window: Some(2), ..Default::default() };
/// assert!(grouped_query_attention(&q, &kv, &kv, &options).equal(&q.ones_like()));
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] unless all have four dimensions and the heads are a multiple of the groups, [`Error::Argument`] for a
/// window of 0 and a cap that is not positive.
#[track_caller]
pub fn grouped_query_attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    options: &GroupedQueryOptions,
) -> Tensor {
    const OP: &str = "grouped_query_attention";
    check_window(OP, options.window);
    let [q, k, v] = [query, key, value].map(Tensor::shape);
    let fits = q.len() == 4
        && k.len() == 4
        && v.len() == 4
        && k[..3] == v[..3]
        && q[0] == k[0]
        && q[3] == k[3]
        && k[1] > 0
        && q[1].is_multiple_of(k[1]);
    if !fits {
        let message = format!(
            "query is {q:?}, key {k:?}, value {v:?}; must be [batch, heads, queries, width], [batch, groups, keys, width] \
             and [batch, groups, keys, any], with heads a multiple of groups"
        );
        throw(Error::shape(OP, message));
    }
    let (heads, queries, groups, keys) = (q[1], q[2], k[1], k[2]);
    if queries > keys && (options.causal || options.window.is_some()) {
        let message = format!(
            "{queries} queries for {keys} keys; the last query stands at the last key, so there must be as many"
        );
        throw(Error::shape(OP, message));
    }
    let bias = options.alibi.then(|| no_grad(|| biases(heads, queries, keys, query)));
    let Some(cap) = options.softcap else {
        let left = options.window.map_or(-1, |window| window as i64 - 1);
        let options = AttentionOptions {
            attn_mask: bias.map(|bias| bias.unsqueeze(0)),
            scale: options.scale,
            enable_gqa: true,
            window_size: (left, if options.causal { 0 } else { -1 }),
            ..Default::default()
        };
        return query.scaled_dot_product_attention_with(key, value, &options);
    };
    let scale = options.scale.unwrap_or(1.0 / (q[3] as f64).sqrt());
    // Heads that share keys are a dimension of their own.
    let apart = query.unflatten(1, &[groups as i64, -1]);
    let scores = apart.matmul(&key.unsqueeze(2).transpose(-1, -2)) * scale;
    let mut scores = softcap(&scores, cap);
    if let Some(bias) = bias {
        scores = scores + bias.unflatten(0, &[groups as i64, -1]);
    }
    if options.causal || options.window.is_some() {
        let seen = attention_mask(queries, keys, options.window, options.causal, query.device());
        scores = scores.masked_fill(&seen.logical_not(), f64::NEG_INFINITY);
    }
    scores.softmax(-1).matmul(&value.unsqueeze(2)).flatten(1, 2)
}
