//! Fully sharded data parallel training (`torch.distributed.fsdp.fully_shard`): each rank keeps a part of every parameter,
//! of its gradient and of its optimizer's state. A module's parameters are gathered when it needs them.
//! (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020; Zhao et al.,
//! "PyTorch FSDP", VLDB 2023.)
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`options`] | what a user may say |
//! | [`layout`] | which rows are whose, and where they lie |
//! | [`build`] | parameters become parts of a group |
//! | [`group`] | the parameters of one module: whole, and given back |
//! | [`gather`] | wholes from the parts of all ranks |
//! | [`materialise`] | memory and values for what was sharded on the meta device |
//! | [`reduce`] | their gradients |
//! | [`advice`] | what is told of ways that save little |
//! | [`plan`] | how much memory all that is going to take |
//! | [`present`] | which groups take memory at the moment |
//! | [`order`] | which group comes next, and is gathered ahead |
//! | [`handle`] | what a user changes while training |

mod advice;
mod build;
mod gather;
mod group;
mod handle;
mod layout;
mod materialise;
mod options;
mod order;
mod plan;
mod present;
mod reduce;

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

pub use handle::{FullyShard, Unshard};
pub use options::{CpuOffloadPolicy, FullyShardOptions, MixedPrecisionPolicy, ReshardAfterForward};
pub use plan::{GroupMemory, MemoryPlan, MemoryPlanOptions, OptimizerStates, memory_plan};

use self::build::Plan;
use self::group::ShardGroup;
use super::verify::{broadcast_all, verify};
use crate::distributed::{DeviceMesh, Origin, ProcessGroup};
use crate::error::{Error, Result};
use crate::nn::Module;
use crate::nn::walk::{Entry, walk};
use crate::tensor::Tensor;

/// Shards the parameters of `module` over the ranks of `mesh` (`torch.distributed.fsdp.fully_shard`).
///
/// Called from the inside out: first for each block of a model, then for the model. A call takes the parameters that no
/// call before it has taken; they are gathered together when an op needs one of them, in forward and again in backward,
/// and their gradients are reduced together. Types and names of the modules stay.
///
/// | | what it is |
/// | --- | --- |
/// | a field, such as `linear.weight` | the whole parameter, with its values where they are read |
/// | [`Module::parameters`] | this rank's rows of each, with the gradient: what an optimizer takes |
/// | [`Module::state_dict`] | the whole parameters, to be read or loaded by all ranks |
///
/// A mesh of one dimension, or a [`ProcessGroup`], shards over all its ranks. One of two dimensions shards over the last
/// and keeps replicas along the first. All ranks start with the values of the first.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::nn::{Forward, Linear, Module, ReLU, Sequential, parallel::fully_shard};
/// use torchrs::optim::{Adam, Optimizer};
/// use torchrs::{Dtype, Tensor};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let mut model = Sequential::new().append(Linear::new(4, 6)).append(ReLU).append(Linear::new(6, 1));
/// fully_shard(&mut model, &group, Default::default())?;
/// // Three of six rows are here.
/// assert_eq!(model.parameters()[0].shape(), [3, 4]);
/// let mut optimizer = Adam::new(model.parameters(), Default::default());
/// let x = Tensor::ones([2, 4], Dtype::F32);
/// model.forward(&x).square().mean().backward();
/// optimizer.step();
/// # Ok(())
/// # })
/// # }
/// ```
///
/// # Errors
/// [`Error::Argument`] for a module without parameters of its own, a parameter that is a scalar or not contiguous, complex
/// ones where `mp_policy` has a dtype, and a mesh of more than two dimensions; [`Error::Mismatch`] when ranks have other parameters; otherwise as a collective.
#[track_caller]
pub fn fully_shard<M: Module + ?Sized>(
    module: &mut M,
    mesh: impl Into<DeviceMesh>,
    options: FullyShardOptions,
) -> Result<FullyShard> {
    let origin = Origin::here();
    let mesh = mesh.into();
    options.mp_policy.check()?;
    let (shards, replicas) = origin.over(|| groups_of(&mesh))?;
    let fewer = options.reshard_after_forward.map_or(Ok(None), |to| to.fewer(&shards))?;
    let mut found = Found::default();
    walk(module, "", &mut |path, entry| {
        if let Entry::Parameter(parameter) = entry {
            found.add(path, parameter.tensor(), &options.ignored_params);
        }
    });
    found.check()?;
    if let Some(place) = options.ignored_params.iter().position(|param| param.together().is_some())
    {
        let what = format!(
            "has tensor {place}, which an earlier call has sharded: leave it out of all calls"
        );
        return Err(Error::argument("fully_shard", "ignored_params", what));
    }
    let Found { params, inner, .. } = found;
    options.mp_policy.check_params(&params)?;
    let by_default = || ReshardAfterForward::from(inner.is_empty());
    let to = options.reshard_after_forward.unwrap_or_else(by_default);
    let offload = options.offload_policy.map(|policy| policy.pin_memory);
    let on_meta = params.iter().find(|(_, param)| param.device().is_meta());
    if let Some((name, _)) = on_meta.filter(|_| offload.is_some()) {
        let what = format!(
            "keeps shards on the host, but `{name}` is on the meta device: call `to_empty` with the device to compute on, and \
             initialise, before `fully_shard`"
        );
        return Err(Error::argument("fully_shard", "offload_policy", what));
    }
    options.mp_policy.cast_around(module)?;
    let values: Vec<Tensor> = params.iter().map(|(_, param)| param.clone()).collect();
    // Those who have the other shards, and then those who have the same: all have the values of the first.
    for group in [Some(&shards), replicas.as_ref()].into_iter().flatten() {
        origin.over(|| {
            verify("fully_shard", group, "parameter", &params)?;
            // On the meta device they come later.
            let values: Vec<Tensor> =
                values.iter().filter(|t| !t.device().is_meta()).cloned().collect();
            broadcast_all(group, &values)
        })?;
    }
    let small = fewer.map(|ranks| origin.over(|| shards.within_worlds_of(ranks))).transpose()?;
    let inner = present::numbered(&inner);
    let sharded: Vec<Arc<ShardGroup>> = inner.iter().filter_map(Weak::upgrade).collect();
    let call = described(module, &params, &sharded, &options);
    let plan = Plan {
        shards,
        replicas,
        params,
        param_dtype: options.mp_policy.param_dtype,
        reduce_dtype: options.mp_policy.reduce_dtype,
        inner,
        reshards_after_forward: to != ReshardAfterForward::No,
        small,
        offload,
        number: next_number(),
    };
    let group = origin.over(|| ShardGroup::new(plan))?;
    advice::called(&call, &group);
    Ok(FullyShard::new(group))
}

/// What a call does, in bytes, for [`advice`].
fn described<M: Module + ?Sized>(
    module: &M,
    params: &[(String, Tensor)],
    inner: &[Arc<ShardGroup>],
    options: &FullyShardOptions,
) -> advice::Call {
    let size = |t: &Tensor| t.numel() * t.dtype().size();
    let of_child = |name: &str| {
        let inside = |path: &str| path.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        params.iter().filter(|(path, _)| inside(path)).map(|(_, t)| size(t)).sum()
    };
    let children = module.named_children().into_iter().map(|(name, _)| name);
    advice::Call {
        module: module.name().to_owned(),
        own: params.iter().map(|(_, t)| size(t)).sum(),
        ignored: options.ignored_params.iter().map(size).sum(),
        inner: inner.iter().map(|group| (group.names(), group.whole_bytes())).collect(),
        children: children.map(|name| (name.clone(), of_child(&name))).collect(),
        is_kept_on_purpose: options.reshard_after_forward == Some(ReshardAfterForward::No),
    }
}

fn next_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// The group between whose ranks parameters are cut, and that of the ranks with the same part.
fn groups_of(mesh: &DeviceMesh) -> Result<(ProcessGroup, Option<ProcessGroup>)> {
    match &mesh.names()[..] {
        [shard] => Ok((mesh.group(shard)?, None)),
        [replicate, shard] => Ok((mesh.group(shard)?, Some(mesh.group(replicate)?))),
        names => {
            let names = names.join("`, `");
            let what = format!(
                "has the dimensions `{names}`: one, over which parameters are sharded, or two, of which the first has \
                 replicas; take them with `mesh.slice`"
            );
            Err(Error::argument("fully_shard", "mesh", what))
        }
    }
}

/// The parameters of a module that are not sharded yet, and the groups of those that are.
#[derive(Default)]
struct Found {
    params: Vec<(String, Tensor)>,
    inner: Vec<usize>,
    wrong: Option<String>,
}

impl Found {
    fn add(&mut self, name: String, param: &Tensor, ignored: &[Tensor]) {
        if ignored.iter().any(|other| other.ptr_eq(param)) {
            return;
        }
        if let Some(group) = param.together() {
            let number = group.number();
            if !self.inner.contains(&number) {
                self.inner.push(number);
            }
            return;
        }
        if self.params.iter().any(|(_, other)| other.ptr_eq(param)) {
            return;
        }
        let wrong = match param.shape() {
            [] => Some("is a scalar; give it one dimension of size 1"),
            _ if !param.is_contiguous() => {
                Some("is not contiguous; make it so before it becomes a parameter")
            }
            _ if !param.is_leaf() => Some("was computed from other tensors; `detach()` it first"),
            _ => None,
        };
        if let Some(wrong) = wrong.filter(|_| self.wrong.is_none()) {
            self.wrong = Some(format!("has parameter `{name}`, which {wrong}"));
        }
        param.hint_name(&name);
        self.params.push((name, param.clone()));
    }

    fn check(&self) -> Result<()> {
        let none = || {
            let what = match self.inner.is_empty() {
                true => "has no parameters",
                false => {
                    "has no parameters that an earlier call has not sharded; shard each module once, those inside before \
                     the one around them"
                }
            };
            self.params.is_empty().then(|| what.to_owned())
        };
        match self.wrong.clone().or_else(none) {
            Some(what) => Err(Error::argument("fully_shard", "module", what)),
            None => Ok(()),
        }
    }
}
