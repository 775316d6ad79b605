//! Keys and values that a decoder has computed already.

use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// The keys and values of all blocks for the tokens so far, `[batch, heads, length, head width]` each:
/// with it a further token costs only its own part (`transformers.DynamicCache`).
#[derive(Clone, Debug, Default)]
pub struct KeyValueCache {
    layers: Vec<(Tensor, Tensor)>,
}

impl KeyValueCache {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of tokens in it (`get_seq_length`).
    pub fn length(&self) -> usize {
        self.layers.first().map_or(0, |(keys, _)| keys.size(2))
    }

    /// Adds what comes next for a layer; gives all of it. Layers come one after the other.
    #[track_caller]
    pub(in crate::models) fn extend(
        &mut self,
        layer: usize,
        keys: Tensor,
        values: Tensor,
    ) -> (Tensor, Tensor) {
        match self.layers.get_mut(layer) {
            Some(known) => {
                let (old_keys, old_values) = &*known;
                *known =
                    (Tensor::cat(&[old_keys, &keys], 2), Tensor::cat(&[old_values, &values], 2));
            }
            None => self.layers.push((keys, values)),
        }
        let (own, first) = (self.layers[layer].0.size(2), self.length());
        if own != first {
            let what = format!(
                "has {own} tokens in layer {layer} and {first} in the first: it is another model's, or of a forward that \
                 failed; begin with a new one"
            );
            throw(Error::argument("forward", "cache", what));
        }
        self.layers[layer].clone()
    }
}
