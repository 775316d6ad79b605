//! What a user may say to `fully_shard`.

use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

/// Dtypes of a sharded model (`torch.distributed.fsdp.MixedPrecisionPolicy`).
///
/// Shards stay in the dtype that the parameters had, and so do an optimizer's states and the gradients that it sees.
///
/// ```
/// use torchrs::{Dtype, nn::parallel::{FullyShardOptions, MixedPrecisionPolicy}};
/// let mp_policy = MixedPrecisionPolicy { param_dtype: Some(Dtype::BF16), ..Default::default() };
/// let options = FullyShardOptions { mp_policy, ..Default::default() };
/// assert_eq!(options.mp_policy.reduce_dtype, None);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MixedPrecisionPolicy {
    /// The dtype in which parameters are gathered and used; by default their own.
    pub param_dtype: Option<Dtype>,
    /// The dtype in which gradients are reduced; by default that of the shards.
    pub reduce_dtype: Option<Dtype>,
}

impl MixedPrecisionPolicy {
    pub(super) fn check(&self) -> Result<()> {
        for (name, dtype) in
            [("param_dtype", self.param_dtype), ("reduce_dtype", self.reduce_dtype)]
        {
            if let Some(dtype) = dtype.filter(|dtype| !dtype.is_floating_point()) {
                let what =
                    format!("has {name} {dtype}: parameters and gradients are floating-point");
                return Err(Error::argument("fully_shard", "mp_policy", what));
            }
        }
        Ok(())
    }
}

/// How [`fully_shard`](super::fully_shard) shards a module.
#[derive(Debug, Clone, Default)]
pub struct FullyShardOptions {
    /// Whether the module's parameters are given back after its forward, and gathered again for backward: less memory,
    /// and half as much communication more. By default they are, except for those of a module with sharded modules
    /// inside, which are mostly needed at forward's end and backward's beginning.
    pub reshard_after_forward: Option<bool>,
    /// Dtypes.
    pub mp_policy: MixedPrecisionPolicy,
    /// Parameters that stay whole on every rank, such as small ones. Nobody reduces their gradients.
    pub ignored_params: Vec<Tensor>,
}
