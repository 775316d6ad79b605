//! Normalisations: over a batch, over rows, over groups of channels, and softmax.
//!
//! Running statistics and their exchange between ranks are a module's. Knows nothing of `nn`.

pub(in crate::ops) mod batch_norm;
pub(in crate::ops) mod group_norm;
pub(in crate::ops) mod layer_norm;
pub(in crate::ops) mod softmax;
