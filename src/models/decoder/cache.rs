//! Keys and values that a decoder has computed already.

use crate::error::{Error, throw};
use crate::nn::llm::GrowingCache;
use crate::tensor::Tensor;

/// The keys and values of all blocks for the tokens so far, `[batch, heads, length, head width]` each:
/// with it a further token costs only its own part (`transformers.DynamicCache`).
#[derive(Clone, Debug, Default)]
pub struct KeyValueCache {
    layers: Vec<GrowingCache>,
}

impl KeyValueCache {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of tokens in it (`get_seq_length`).
    pub fn length(&self) -> usize {
        self.layers.first().map_or(0, GrowingCache::length)
    }

    /// Adds what comes next for a layer; gives all of it. Layers come one after the other.
    #[track_caller]
    pub(in crate::models) fn extend(
        &mut self,
        layer: usize,
        keys: Tensor,
        values: Tensor,
    ) -> (Tensor, Tensor) {
        if layer == self.layers.len() {
            self.layers.push(GrowingCache::default());
        }
        let all = self.layers[layer].extend(&keys, &values);
        let (own, first) = (self.layers[layer].length(), self.length());
        if own != first {
            let what = format!(
                "has {own} tokens in layer {layer} and {first} in the first: it is another model's, or of a forward that \
                 failed; begin with a new one"
            );
            throw(Error::argument("forward", "cache", what));
        }
        all
    }
}
