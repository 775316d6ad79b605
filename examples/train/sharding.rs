//! `--shard`: what of a model, its gradients and its optimizer's state each rank has.

use torchrs::distributed::{DeviceMesh, ProcessGroup, WorkerEnv};
use torchrs::nn::Module;
use torchrs::nn::parallel::{FullyShard, FullyShardOptions, fully_shard};
use torchrs::optim::{Optimizer, ZeroRedundancyOptimizer};
use torchrs::{Error, Result, Tensor};

use crate::args::{Args, ModelKind};
use crate::models::{self, Network};
use crate::settings::{Settings, Shard};

/// Options that do not go together, said before anything is built.
pub fn check(args: &Args, settings: &Settings, world: usize) -> Result<()> {
    let wrong = |option: &str, message: String| Err(Error::config(option, message));
    let shard = settings.shard;
    if args.shard_size.is_some() && shard != Shard::Hybrid {
        return wrong("--shard-size", format!("is for --shard hybrid, not {shard}"));
    }
    if !shard.cuts_parameters() {
        return Ok(());
    }
    if !matches!(settings.model, ModelKind::Gpt | ModelKind::Llama) {
        let message = format!(
            "{shard} cuts the blocks of --model gpt or llama; use --shard zero1 or none with {}",
            settings.model.name()
        );
        return wrong("--shard", message);
    }
    if settings.ema.is_some() {
        let message =
            format!("cannot average what --shard {shard} cuts; use --shard zero1 or none");
        return wrong("--ema", message);
    }
    if shard == Shard::Hybrid {
        let size = shard_size(args)?;
        if size == 0 || !world.is_multiple_of(size) {
            let message = format!("{size} does not divide the {world} workers");
            return wrong("--shard-size", message);
        }
    }
    Ok(())
}

/// Ranks that share the parameters of a replica: those of a host.
fn shard_size(args: &Args) -> Result<usize> {
    match args.shard_size {
        Some(size) => Ok(size),
        None => Ok(WorkerEnv::from_env()?.local_world_size),
    }
}

/// Cuts the parameters, if they are to be cut: of each block, and then of the rest.
pub fn shard(
    network: &mut Box<dyn Network>,
    args: &Args,
    settings: &Settings,
    group: &ProcessGroup,
) -> Result<Option<FullyShard>> {
    let mesh = match settings.shard {
        Shard::None | Shard::Zero1 => return Ok(None),
        Shard::Full | Shard::Zero2 => DeviceMesh::from(group),
        Shard::Hybrid => {
            let size = shard_size(args)? as isize;
            DeviceMesh::new(group, [("replicate", -1), ("shard", size)])?
        }
    };
    let kept = (settings.shard == Shard::Zero2).then_some(false.into());
    let options = FullyShardOptions { reshard_after_forward: kept, ..Default::default() };
    network.shard_blocks(&mesh, &options)?;
    fully_shard(network, mesh, options).map(Some)
}

/// The optimizer, whose state is of all parameters or of this rank's.
pub fn optimizer(
    settings: &Settings,
    parameters: Vec<Tensor>,
    group: &ProcessGroup,
) -> Result<Box<dyn Optimizer>> {
    let groups = models::decaying(parameters);
    Ok(match settings.shard {
        Shard::Zero1 => {
            let own = |own: Vec<Vec<Tensor>>| models::optimizer(settings, own);
            Box::new(ZeroRedundancyOptimizer::with_groups(groups, group, own)?)
        }
        _ => models::optimizer(settings, groups),
    })
}

/// Cuts the parameters of each block.
pub fn shard_each<M: Module>(
    blocks: &mut [M],
    mesh: &DeviceMesh,
    options: &FullyShardOptions,
) -> Result<()> {
    blocks.iter_mut().try_for_each(|block| fully_shard(block, mesh, options.clone()).map(drop))
}
