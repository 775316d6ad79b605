//! Normalisations: over a batch, over rows, over groups of channels, and softmax.
//!
//! Running statistics and their exchange between ranks are a module's. Knows nothing of `nn`.

pub(in crate::ops) mod batch_norm;
pub(in crate::ops) mod group_norm;
pub(in crate::ops) mod layer_norm;
pub(in crate::ops) mod softmax;

crate::ops::table::ops! {
    batch_norm { samples, kernels: [cuda::EACH, cuda::FOLDS] }
    group_norm { samples }
    layer_norm { samples, kernels: [cuda::BOTH, cuda::FOLDS, cuda::ROWS] }
    softmax { samples, kernels: [cuda::SOFTMAX] }
}
