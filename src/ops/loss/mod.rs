//! Losses with kernels of their own. Losses of one element each are rows in `pointwise`.
//!
//! Knows nothing of `nn`.

pub(in crate::ops) mod cross_entropy;
pub(in crate::ops) mod ctc_loss;

crate::ops::table::ops! {
    cross_entropy { room }
    ctc_loss { samples, kernels: [cuda::CTC] }
}
