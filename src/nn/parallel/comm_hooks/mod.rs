//! Communication hooks for [`DistributedDataParallel`](super::DistributedDataParallel): how its gradients
//! are averaged (`torch.distributed.algorithms.ddp_comm_hooks`).
//!
//! ```
//! use torchrs::distributed::{DistributedDataParallel, comm_hooks, init_process_group};
//! let group = init_process_group(Default::default())?;
//! let model = DistributedDataParallel::new(torchrs::nn::Linear::new(3, 2), &group)?;
//! model.register_comm_hook(comm_hooks::bf16_compress)?;
//! # Ok::<(), torchrs::Error>(())
//! ```

mod power_sgd;

pub use power_sgd::{PowerSgd, PowerSgdOptions};

use super::{CommHook, GradBucket};
use crate::distributed::{ProcessGroup, ReduceOp};
use crate::error::Result;
use crate::tensor::{Dtype, Tensor};

/// The mean by an all-reduce: what happens without a hook, for hooks that do something beside it
/// (`allreduce_hook`).
///
/// ```
/// use torchrs::distributed::{DistributedDataParallel, comm_hooks, init_process_group};
/// # let group = init_process_group(Default::default())?;
/// let model = DistributedDataParallel::new(torchrs::nn::Linear::new(3, 2), &group)?;
/// model.register_comm_hook(comm_hooks::allreduce)?;
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// As [`ProcessGroup::all_reduce`].
pub fn allreduce(bucket: &GradBucket, group: &ProcessGroup) -> Result<Tensor> {
    group.all_reduce(bucket.buffer(), ReduceOp::Avg)?;
    Ok(bucket.buffer().clone())
}

/// The mean of gradients rounded to f16: half the bytes of f32 (`fp16_compress_hook`).
///
/// # Errors
/// As [`ProcessGroup::all_reduce`].
pub fn fp16_compress(bucket: &GradBucket, group: &ProcessGroup) -> Result<Tensor> {
    compressed(bucket, group, Dtype::F16)
}

/// The mean of gradients rounded to bf16: half the bytes of f32, and its range (`bf16_compress_hook`).
///
/// # Errors
/// As [`ProcessGroup::all_reduce`].
pub fn bf16_compress(bucket: &GradBucket, group: &ProcessGroup) -> Result<Tensor> {
    compressed(bucket, group, Dtype::BF16)
}

/// Each rank's share first and then their sum, so that the sum overflows only where the mean does.
fn compressed(bucket: &GradBucket, group: &ProcessGroup, dtype: Dtype) -> Result<Tensor> {
    let own = bucket.buffer().dtype();
    let narrow = bucket.buffer() / group.world_size() as f64;
    let narrow = narrow.to_dtype(dtype);
    group.all_reduce(&narrow, ReduceOp::Sum)?;
    Ok(narrow.to_dtype(own))
}

/// `hook` on gradients rounded to f16 (`fp16_compress_wrapper`).
///
/// ```
/// use torchrs::distributed::{DistributedDataParallel, comm_hooks, init_process_group};
/// # let group = init_process_group(Default::default())?;
/// let model = DistributedDataParallel::new(torchrs::nn::Linear::new(3, 2), &group)?;
/// let power_sgd = comm_hooks::PowerSgd::new(Default::default())?;
/// model.register_comm_hook(comm_hooks::fp16_compress_wrapper(power_sgd))?;
/// # Ok::<(), torchrs::Error>(())
/// ```
pub fn fp16_compress_wrapper(hook: impl CommHook) -> impl CommHook {
    wrapper(hook, Dtype::F16)
}

/// `hook` on gradients rounded to bf16 (`bf16_compress_wrapper`).
pub fn bf16_compress_wrapper(hook: impl CommHook) -> impl CommHook {
    wrapper(hook, Dtype::BF16)
}

fn wrapper(mut hook: impl CommHook, dtype: Dtype) -> impl CommHook {
    move |bucket: &GradBucket, group: &ProcessGroup| {
        let own = bucket.buffer().dtype();
        let narrow = bucket.with_buffer(bucket.buffer().to_dtype(dtype));
        Ok(hook.reduce(&narrow, group)?.to_dtype(own))
    }
}
