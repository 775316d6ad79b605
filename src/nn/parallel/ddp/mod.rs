//! Data-parallel training: every rank has the whole model and its share of the batch; gradients are
//! averaged over the ranks while backward runs.
//! (Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.)

mod buckets;
mod hook;
mod options;
mod reducer;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::verify::{broadcast_all, verify};
pub(super) use hook::Registered;
pub use hook::{CommHook, GradBucket};
pub use options::DDPOptions;
use reducer::Reducer;

use crate::autograd::HookHandle;
use crate::distributed::{Origin, ProcessGroup};
use crate::error::{Error, Result};
use crate::nn::Module;
use crate::tensor::Tensor;

/// A model whose gradients are averaged over the ranks of a process group during backward
/// (`torch.nn.parallel.DistributedDataParallel`). It dereferences to the model: call, save and
/// optimise that as ever.
///
/// After `backward`, every rank has the same `.grad`: the mean over ranks. Gradients live in buckets
/// in shared memory, or on the parameters' GPU; `zero_grad` in either form keeps them there.
///
/// An error during backward (a peer died, ranks differ) panics there with a typed
/// [`Error`](crate::Error), as tensor operations do.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Tensor, distributed::DistributedDataParallel, nn::{self, Forward}};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let model = DistributedDataParallel::new(nn::Linear::new(1, 1), &group)?;
/// // Rank 0 has 1, rank 1 has 2.
/// let x = Tensor::from([[group.rank() as f32 + 1.0]]);
/// model.forward(&x).sum().backward();
/// assert_eq!(model.weight.grad().unwrap().item(), 1.5);
/// # Ok(())
/// # })
/// # }
/// ```
pub struct DistributedDataParallel<M> {
    module: M,
    /// `None` in a world of one.
    reducer: Option<Arc<Reducer>>,
    hooks: Vec<HookHandle>,
}

impl<M: Module> DistributedDataParallel<M> {
    /// Wraps `module`, with default options. Collective: all ranks of the group call it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{distributed::DistributedDataParallel, nn};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// torchrs::manual_seed(group.rank() as u64);
    /// let model = DistributedDataParallel::new(nn::Linear::new(2, 2), &group)?;
    /// // All have rank 0's parameters now.
    /// let weights = group.all_gather(&model.weight.detach())?;
    /// assert!(weights[0].equal(&weights[1]));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch), on all ranks, naming the first parameter or
    /// buffer that differs in name, shape or dtype between ranks; [`Error::Argument`](crate::Error::Argument)
    /// where no parameter requires a gradient, or a bucket's size is no number.
    #[track_caller]
    pub fn new(module: M, group: &ProcessGroup) -> Result<Self> {
        Self::with_options(module, group, DDPOptions::default())
    }

    /// Wraps `module`: verifies that all ranks have the same parameters and buffers, gives all of
    /// them rank 0's values, and hooks the gradients.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    #[track_caller]
    pub fn with_options(module: M, group: &ProcessGroup, options: DDPOptions) -> Result<Self> {
        Origin::here().over(|| Self::wrap(module, group, &options))
    }

    fn wrap(module: M, group: &ProcessGroup, options: &DDPOptions) -> Result<Self> {
        options.check()?;
        if !module.parameters().iter().any(|parameter| parameter.requires_grad()) {
            let what =
                "has no parameter that requires a gradient: there would be nothing to average";
            return Err(Error::argument("DistributedDataParallel", "module", what));
        }
        if let Some((name, _)) =
            module.named_parameters().iter().find(|(_, p)| p.together().is_some())
        {
            let what = format!(
                "has parameter `{name}`, which `fully_shard` has sharded, and which averages its gradients already; use \
                 the module as it is, or a mesh of two dimensions for replicas"
            );
            return Err(Error::argument("DistributedDataParallel", "module", what));
        }
        let named = module.named_parameters().into_iter().chain(module.named_buffers());
        if let Some((name, _)) = named.into_iter().find(|(_, t)| t.device().is_meta()) {
            let what = format!(
                "has `{name}` on meta, without values; give the module memory with `to_empty(device)` and values with \
                 `reset_parameters()` first"
            );
            return Err(Error::argument("DistributedDataParallel", "module", what));
        }
        if group.world_size() == 1 {
            return Ok(DistributedDataParallel { module, reducer: None, hooks: Vec::new() });
        }
        let params: Vec<(String, Tensor)> = module.named_parameters();
        let buffers: Vec<(String, Tensor)> = module.named_buffers();
        verify("DistributedDataParallel", group, "parameter", &params)?;
        verify("DistributedDataParallel", group, "buffer", &buffers)?;
        let values =
            |named: &[(String, Tensor)]| named.iter().map(|(_, t)| t.clone()).collect::<Vec<_>>();
        broadcast_all(group, &values(&params))?;
        broadcast_all(group, &values(&buffers))?;
        let sent = if options.broadcast_buffers { values(&buffers) } else { Vec::new() };
        let reducer = Reducer::new(group, params, sent, options)?;
        let hooks = reducer.install();
        Ok(DistributedDataParallel { module, reducer: Some(reducer), hooks })
    }

    /// The model.
    pub fn module(&self) -> &M {
        &self.module
    }

    /// Has `hook` average the gradients from the next backward on, in place of an all-reduce
    /// (`DistributedDataParallel.register_comm_hook`). All ranks register the same one. A world of one
    /// has nothing to average: there it is not called.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Tensor, distributed::{DistributedDataParallel, comm_hooks}, nn::{self, Forward}};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let model = DistributedDataParallel::new(nn::Linear::new(1, 1), &group)?;
    /// model.register_comm_hook(comm_hooks::bf16_compress)?;
    /// model.forward(&Tensor::from([[group.rank() as f32 + 1.0]])).sum().backward();
    /// assert_eq!(model.weight.grad().unwrap().item(), 1.5);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) where the model has one already.
    pub fn register_comm_hook(&self, hook: impl CommHook + 'static) -> Result<()> {
        self.reducer.as_ref().map_or(Ok(()), |reducer| reducer.register(Box::new(hook)))
    }

    /// Runs `f` with gradients adding up locally; the next backward outside sends the sum
    /// (`DistributedDataParallel.no_sync`, for gradient accumulation).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Tensor, distributed::DistributedDataParallel, nn::{self, Forward}};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let model = DistributedDataParallel::new(nn::Linear::new(1, 1), &group)?;
    /// let x = Tensor::from([[group.rank() as f32 + 1.0]]);
    /// model.no_sync(|| model.forward(&x).sum().backward());
    /// assert_eq!(model.weight.grad().unwrap().item(), group.rank() as f64 + 1.0);
    /// model.forward(&x).sum().backward();
    /// assert_eq!(model.weight.grad().unwrap().item(), 3.0);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn no_sync<T>(&self, f: impl FnOnce() -> T) -> T {
        /// Switches back also when `f` panics.
        struct Restore<'a>(&'a Reducer, bool);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.sync.store(self.1, Relaxed);
            }
        }
        let _restore = self.reducer.as_deref().map(|r| Restore(r, r.sync.swap(false, Relaxed)));
        f()
    }
}

impl<M> Drop for DistributedDataParallel<M> {
    fn drop(&mut self) {
        self.hooks.drain(..).for_each(HookHandle::remove);
        if let Some(reducer) = self.reducer.take() {
            reducer.uninstall();
        }
    }
}

impl<M> Deref for DistributedDataParallel<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.module
    }
}
