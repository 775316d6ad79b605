//! What a decoder's blocks keep for backward.

use serde::{Deserialize, Serialize};

use crate::autograd::{checkpoint, checkpoint_selective};
use crate::tensor::Tensor;

/// What blocks keep of their results for backward; the rest is computed again when backward needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivationCheckpointing {
    /// All: the fastest.
    #[default]
    None,
    /// Their inputs alone: forward is computed twice.
    Full,
    /// Their inputs, and results of matrix products and attention: norms, rotations and gates are computed twice.
    Selective,
}

impl ActivationCheckpointing {
    /// A block of `x`.
    #[track_caller]
    pub(in crate::models) fn run(
        self,
        block: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
        x: &Tensor,
    ) -> Tensor {
        match self {
            ActivationCheckpointing::None => block(x),
            ActivationCheckpointing::Full => checkpoint(move |x| block(&x[0]), &[x]),
            ActivationCheckpointing::Selective => checkpoint_selective(move |x| block(&x[0]), &[x]),
        }
    }
}
