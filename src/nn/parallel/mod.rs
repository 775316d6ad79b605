//! Training of one model by many processes (`torch.nn.parallel`): [`DistributedDataParallel`] averages
//! gradients while backward computes them, [`comm_hooks`] say how, and `SyncBatchNorm` takes its statistics
//! over all ranks.
//!
//! Made of process groups and modules; [`distributed`](crate::distributed), which has the former and knows
//! nothing of the latter, re-exports it.

pub mod comm_hooks;
mod ddp;
mod fsdp;
mod sync_batch_norm;
mod verify;

pub use ddp::{CommHook, DDPOptions, DistributedDataParallel, GradBucket};
pub use fsdp::{
    CpuOffloadPolicy, FullyShard, FullyShardOptions, GroupMemory, MemoryPlan, MemoryPlanOptions,
    MixedPrecisionPolicy, OptimizerStates, ReshardAfterForward, Unshard, fully_shard, memory_plan,
};
pub(super) use sync_batch_norm::sync_batch_norm;
pub(crate) use verify::verify;
