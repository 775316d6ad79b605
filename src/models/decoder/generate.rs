//! Text from a model of the next token, token by token.

use super::KeyValueCache;
use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::nn::llm::{LogitsOptions, filter_logits};
use crate::tensor::{Dtype, Tensor};

/// How a model's `generate` goes on (`transformers.GenerationConfig`).
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// Tokens to add at most.
    pub max_new_tokens: usize,
    /// Draws tokens at random; otherwise takes the likeliest.
    pub do_sample: bool,
    /// Divides the logits, if tokens are drawn: below 1 likely tokens get likelier.
    pub temperature: f64,
    /// Draws among this many of the likeliest tokens only; 0: among all. The default is 50, as in `transformers`.
    pub top_k: usize,
    /// Draws among the likeliest tokens only, as long as those before sum to no more than this (the nucleus); 1: among all.
    pub top_p: f64,
    /// Draws among tokens only of at least this share of the likeliest one's probability; 0: among all.
    pub min_p: f64,
    /// Divides the logits of tokens that are in the sequence already, and multiplies those below 0, whether tokens are drawn or not;
    /// 1: none.
    pub repetition_penalty: f64,
    /// The tokens that end a sequence, each of them; empty: it goes on to the last.
    pub eos_token_id: Vec<i64>,
    /// Fills up a sequence that has ended while others go on; `None`: the first of `eos_token_id`.
    pub pad_token_id: Option<i64>,
    /// Keeps keys and values of earlier tokens, instead of computing them for each new one.
    pub use_cache: bool,
}

impl GenerateOptions {
    fn of_logits(&self) -> LogitsOptions {
        LogitsOptions {
            repetition_penalty: self.repetition_penalty,
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
        }
    }
}

impl Default for GenerateOptions {
    /// 20 tokens, each the likeliest; when drawing, among 50.
    fn default() -> Self {
        GenerateOptions {
            max_new_tokens: 20,
            do_sample: false,
            temperature: 1.0,
            top_k: 50,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            eos_token_id: Vec::new(),
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
    options.of_logits().check("generate");
    let defaults = GenerateOptions::default();
    let top_k = if options.top_k == 0 { defaults.top_k } else { options.top_k };
    let drawing = [
        ("temperature", options.temperature, defaults.temperature),
        ("top_k", top_k as f64, defaults.top_k as f64),
        ("top_p", options.top_p, defaults.top_p),
        ("min_p", options.min_p, defaults.min_p),
    ];
    if let Some((name, value, _)) = drawing.iter().find(|(_, value, none)| value != none)
        && !options.do_sample
    {
        let message = format!("{value} without `do_sample`, which alone draws tokens");
        throw(Error::argument("generate", name, message));
    }
    let ends = options.eos_token_id.iter().map(|&id| ("eos_token_id", id));
    let fills = options.pad_token_id.filter(|_| !options.eos_token_id.is_empty());
    if let Some((name, id)) =
        ends.chain(fills.map(|id| ("pad_token_id", id))).find(|(_, id)| *id < 0)
    {
        let message = format!("{id} is no token; tokens are 0 and more");
        throw(Error::argument("generate", name, message));
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
        let mut next: Vec<i64> = next_tokens(&logits, &tokens, options);
        let ends = &options.eos_token_id;
        if let Some(first) = ends.first() {
            for (token, ended) in next.iter_mut().zip(&mut ended) {
                if *ended {
                    *token = options.pad_token_id.unwrap_or(*first);
                }
                *ended |= ends.contains(token);
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

/// A token for each row of logits, behind `tokens`.
fn next_tokens(logits: &Tensor, tokens: &Tensor, options: &GenerateOptions) -> Vec<i64> {
    let filters = options.of_logits();
    if !options.do_sample {
        let penalty =
            LogitsOptions { repetition_penalty: filters.repetition_penalty, ..Default::default() };
        return filter_logits(logits, &penalty, Some(tokens)).argmax_dim(-1, false).to_vec();
    }
    let logits = filter_logits(&logits.to_dtype(Dtype::F32), &filters, Some(tokens));
    logits.softmax(-1).multinomial(1, true).to_vec()
}
