//! Text from a model of the next token, token by token.

use super::KeyValueCache;
use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Tensor};

/// How a model's `generate` goes on (`transformers.GenerationConfig`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerateOptions {
    /// Tokens to add at most.
    pub max_new_tokens: usize,
    /// Draws tokens at random; otherwise takes the likeliest.
    pub do_sample: bool,
    /// Divides the logits, if tokens are drawn: below 1 likely tokens get likelier.
    pub temperature: f64,
    /// Draws among this many of the likeliest tokens only; 0: among all.
    pub top_k: usize,
    /// Ends a sequence.
    pub eos_token_id: Option<i64>,
    /// Fills up a sequence that has ended; `None`: the token that ended it.
    pub pad_token_id: Option<i64>,
    /// Keeps keys and values of earlier tokens, instead of computing them for each new one.
    pub use_cache: bool,
}

impl Default for GenerateOptions {
    /// 20 tokens, each the likeliest; when drawing, among 50.
    fn default() -> Self {
        GenerateOptions {
            max_new_tokens: 20,
            do_sample: false,
            temperature: 1.0,
            top_k: 50,
            eos_token_id: None,
            pad_token_id: None,
            use_cache: true,
        }
    }
}

/// What generation asks of a model.
pub(in crate::models) trait NextToken {
    /// The length of the longest sequence, and the name of the setting that says it.
    fn longest(&self) -> (usize, &'static str);
    /// The logits, `[batch, vocabulary]`, of what follows the last of `tokens`, which come behind those in the cache.
    fn next_logits(&self, tokens: &Tensor, cache: Option<&mut KeyValueCache>) -> Tensor;
}

/// `input_ids` with what the model makes of them.
#[track_caller]
pub(in crate::models) fn generate(
    model: &dyn NextToken,
    input_ids: &Tensor,
    options: &GenerateOptions,
) -> Tensor {
    if input_ids.dim() != 2 || input_ids.size(1) == 0 {
        let message = format!("input_ids is {:?}; must be [batch, length]", input_ids.shape());
        throw(Error::shape("generate", message));
    }
    let (longest, setting) = model.longest();
    if input_ids.size(1) + options.max_new_tokens > longest {
        let message = format!(
            "{}, after {} tokens of input, goes beyond the model's {setting}, {longest}",
            options.max_new_tokens,
            input_ids.size(1),
        );
        throw(Error::argument("generate", "max_new_tokens", message));
    }
    if options.do_sample && (options.temperature.is_nan() || options.temperature <= 0.0) {
        let message = format!("{}; must be positive", options.temperature);
        throw(Error::argument("generate", "temperature", message));
    }
    no_grad(|| extend(model, input_ids, options))
}

fn extend(model: &dyn NextToken, input_ids: &Tensor, options: &GenerateOptions) -> Tensor {
    let mut tokens = input_ids.to_dtype(Dtype::I64);
    let mut cache = options.use_cache.then(KeyValueCache::new);
    let mut ended = vec![false; tokens.size(0)];
    for _ in 0..options.max_new_tokens {
        let known = cache.as_ref().map_or(0, KeyValueCache::length);
        let unknown = tokens.narrow(1, known, tokens.size(1) - known);
        let logits = model.next_logits(&unknown, cache.as_mut());
        let mut next: Vec<i64> = match options.do_sample {
            true => draw(&logits, options),
            false => logits.argmax_dim(-1, false).to_vec(),
        };
        if let Some(eos) = options.eos_token_id {
            for (token, ended) in next.iter_mut().zip(&mut ended) {
                if *ended {
                    *token = options.pad_token_id.unwrap_or(eos);
                }
                *ended |= *token == eos;
            }
        }
        let next = Tensor::from_slice(&next, [next.len(), 1]).to_device(tokens.device());
        tokens = Tensor::cat(&[tokens, next], 1);
        if ended.iter().all(|&ended| ended) {
            break;
        }
    }
    tokens
}

/// A token for each row of logits.
fn draw(logits: &Tensor, options: &GenerateOptions) -> Vec<i64> {
    let logits = logits.to_dtype(Dtype::F32) / options.temperature;
    let classes = logits.size(-1);
    if options.top_k == 0 || options.top_k >= classes {
        return logits.softmax(-1).multinomial(1, true).to_vec();
    }
    let (largest, places) = logits.topk(options.top_k, -1, true);
    let chosen = largest.softmax(-1).multinomial(1, true);
    places.gather(1, &chosen).to_vec()
}
