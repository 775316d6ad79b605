//! Parts of language models that PyTorch leaves to the models' own code: positions, masks and options of attention, caches of keys
//! and values, mixtures of experts, filters of logits, losses. All are made of recorded ops, so they run on all devices and have
//! derivatives.
//!
//! | file | what it has |
//! | --- | --- |
//! | `positions` | rotary embeddings, sinusoidal positions, ALiBi's slopes |
//! | `attention` | masks, attention with windows, caps and shared keys |
//! | `cache` | keys and values of earlier tokens, growing or in buffers |
//! | `experts` | routers and mixtures of experts |
//! | `sampling` | what is left of logits before a token is drawn |
//! | `losses` | losses of pretraining, preferences and distillation |
//!
//! Adapters of low rank are in [`nn::lora`](crate::nn::lora), whole models in [`models`](crate::models).

mod attention;
mod cache;
mod experts;
mod losses;
mod positions;
mod sampling;

pub use attention::{GroupedQueryOptions, attention_mask, geglu, grouped_query_attention, softcap};
pub use cache::{GrowingCache, StaticCache};
pub use experts::{
    MixtureOptions, Routed, RouterOptions, mixture_of_experts, route, router_z_loss,
};
pub use losses::{
    CrossEntropyZ, CrossEntropyZOptions, cross_entropy_z, distillation_loss, dpo_loss,
    gather_log_probs,
};
pub use positions::{RotaryOptions, alibi_slopes, rotary, rotary_tables, sinusoidal_positions};
pub use sampling::{LogitsOptions, filter_logits, sample_by};

#[cfg(test)]
mod tests;
