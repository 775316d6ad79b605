//! What a user may say to `fully_shard`.

use crate::distributed::ProcessGroup;
use crate::error::{Error, Result};
use crate::nn::Module;
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
    /// The dtype of what forward gives, for a module in [`Hooked`](crate::nn::Hooked); by default as it comes.
    pub output_dtype: Option<Dtype>,
    /// Whether floating-point inputs of forward become `param_dtype`, for a module in [`Hooked`](crate::nn::Hooked).
    /// PyTorch's default is to do so, where every module has hooks.
    pub cast_forward_inputs: bool,
}

impl MixedPrecisionPolicy {
    pub(super) fn check(&self) -> Result<()> {
        let all = [
            ("param_dtype", self.param_dtype),
            ("reduce_dtype", self.reduce_dtype),
            ("output_dtype", self.output_dtype),
        ];
        for (name, dtype) in all {
            if let Some(dtype) = dtype.filter(|dtype| !dtype.is_floating_point()) {
                let what = format!(
                    "has {name} {dtype}: parameters, gradients and outputs are floating-point"
                );
                return Err(Error::argument("fully_shard", "mp_policy", what));
            }
        }
        if self.cast_forward_inputs && self.param_dtype.is_none() {
            let what = "has cast_forward_inputs without param_dtype, to which they would be cast";
            return Err(Error::argument("fully_shard", "mp_policy", what));
        }
        Ok(())
    }

    /// Refuses to make real numbers of complex ones.
    pub(super) fn check_params(&self, params: &[(String, Tensor)]) -> Result<()> {
        let casts = [("param_dtype", self.param_dtype), ("reduce_dtype", self.reduce_dtype)];
        let Some((option, dtype)) = casts.into_iter().find_map(|(o, d)| Some((o, d?))) else {
            return Ok(());
        };
        match params.iter().find(|(_, param)| param.dtype().is_complex()) {
            None => Ok(()),
            Some((name, param)) => {
                let what = format!(
                    "has {option} {dtype}, but `{name}` is {}, which would lose its imaginary parts: give it to \
                     `ignored_params`, or keep two real numbers in its place",
                    param.dtype()
                );
                Err(Error::argument("fully_shard", "mp_policy", what))
            }
        }
    }

    /// Has the module's forward cast what goes in and comes out.
    pub(super) fn cast_around<M: Module + ?Sized>(&self, module: &M) -> Result<()> {
        let input = self.param_dtype.filter(|_| self.cast_forward_inputs);
        let option = match (input, self.output_dtype) {
            (None, None) => return Ok(()),
            (Some(_), _) => "cast_forward_inputs",
            (None, Some(_)) => "output_dtype",
        };
        if module.cast_around(input, self.output_dtype) {
            return Ok(());
        }
        let what = format!(
            "has {option}, but forward of `{}` has no hooks by which anything could be cast: give `nn::Hooked::new(module)` \
             in its place, or call `to_dtype` in its forward",
            module.name()
        );
        Err(Error::argument("fully_shard", "mp_policy", what))
    }
}

/// What happens to a module's parameters between its forward and its backward.
///
/// ```
/// use torchrs::nn::parallel::{FullyShardOptions, ReshardAfterForward};
/// let options = FullyShardOptions { reshard_after_forward: Some(false.into()), ..Default::default() };
/// assert_eq!(options.reshard_after_forward, Some(ReshardAfterForward::No));
/// assert_eq!(ReshardAfterForward::from(8), ReshardAfterForward::To(8));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReshardAfterForward {
    /// They stay whole: the most memory, the least communication.
    No,
    /// They are given back, and gathered again from all ranks.
    Yes,
    /// They are cut over so many neighbouring ranks, such as those of a host, and gathered again from those: backward
    /// communicates within a host only (Wang et al., "ZeRO++", 2023).
    To(usize),
}

impl From<bool> for ReshardAfterForward {
    fn from(reshards: bool) -> Self {
        if reshards { ReshardAfterForward::Yes } else { ReshardAfterForward::No }
    }
}

impl From<usize> for ReshardAfterForward {
    fn from(ranks: usize) -> Self {
        ReshardAfterForward::To(ranks)
    }
}

impl ReshardAfterForward {
    /// How many ranks the wholes are cut over, if not over all of them or none.
    pub(super) fn fewer(self, shards: &ProcessGroup) -> Result<Option<usize>> {
        let ReshardAfterForward::To(ranks) = self else { return Ok(None) };
        fewer(ranks, shards.world_size()).map(Some)
    }
}

fn fewer(ranks: usize, world: usize) -> Result<usize> {
    if ranks > 1 && ranks < world && world.is_multiple_of(ranks) {
        return Ok(ranks);
    }
    let divisors: Vec<String> = (2..world)
        .filter(|&ranks| world.is_multiple_of(ranks))
        .map(|ranks| ranks.to_string())
        .collect();
    let why = match ranks {
        0 => "no ranks have nothing".to_owned(),
        1 => "one rank has the whole, which is `No`".to_owned(),
        _ if ranks == world => format!("those are all {world} ranks, which is `Yes`"),
        _ if ranks > world => format!("the mesh shards over {world} ranks only"),
        _ => {
            format!("{world} ranks are {} times {ranks} and {} more", world / ranks, world % ranks)
        }
    };
    let right = match &divisors[..] {
        [] => format!("no number between 1 and {world} divides {world}; use `Yes` or `No`"),
        divisors => format!("it can be {}", divisors.join(", ")),
    };
    let what = format!("is To({ranks}): {why}; {right}");
    Err(Error::argument("fully_shard", "reshard_after_forward", what))
}

/// Shards, gradients and an optimizer's states are in the host's memory, and gathered to the GPU
/// (`torch.distributed.fsdp.CPUOffloadPolicy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuOffloadPolicy {
    /// Whether the shards' memory is pinned, so that the GPU copies it by itself while the host goes on.
    pub pin_memory: bool,
}

impl Default for CpuOffloadPolicy {
    fn default() -> Self {
        CpuOffloadPolicy { pin_memory: true }
    }
}

/// How [`fully_shard`](super::fully_shard) shards a module.
#[derive(Debug, Clone, Default)]
pub struct FullyShardOptions {
    /// Whether the module's parameters are given back after its forward, and gathered again for backward: less memory,
    /// and half as much communication more. By default they are, except for those of a module with sharded modules
    /// inside, which are mostly needed at forward's end and backward's beginning.
    pub reshard_after_forward: Option<ReshardAfterForward>,
    /// Dtypes.
    pub mp_policy: MixedPrecisionPolicy,
    /// Where shards are when the module is on a GPU; by default there too.
    pub offload_policy: Option<CpuOffloadPolicy>,
    /// Parameters that stay whole on every rank, such as small ones. Nobody reduces their gradients.
    pub ignored_params: Vec<Tensor>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_world_divides_the_ranks() {
        let message = |ranks, world| fewer(ranks, world).unwrap_err().to_string();
        assert_eq!(fewer(2, 8).unwrap(), 2);
        let three = message(3, 8);
        assert!(
            three.contains("To(3): 8 ranks are 2 times 3 and 2 more; it can be 2, 4"),
            "{three}"
        );
        assert!(message(1, 8).contains("which is `No`"));
        assert!(message(8, 8).contains("which is `Yes`"));
        assert!(message(16, 8).contains("over 8 ranks only"));
        assert!(message(2, 3).contains("no number between 1 and 3 divides 3"));
        assert!(message(0, 4).contains("no ranks"));
    }
}
