//! What a user changes while a sharded model trains.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use super::group::ShardGroup;
use super::order::{BACKWARD, FORWARD};
use crate::error::{Error, Result};
use crate::nn::parallel::ddp::{CommHook, Registered};

/// The parameters that one call of [`fully_shard`](super::fully_shard) has sharded (`torch.distributed.fsdp.FSDPModule`).
/// Dropping it changes nothing. All ranks set the same.
#[derive(Clone)]
pub struct FullyShard {
    group: Arc<ShardGroup>,
}

/// Parameters that [`FullyShard::unshard_async`] gathers (`torch.distributed.fsdp.UnshardHandle`). Whoever uses the
/// parameters waits by itself, so it may be dropped.
#[derive(Debug)]
#[must_use = "`wait` for it, or drop it: the parameters come all the same"]
pub struct Unshard {
    of: FullyShard,
}

impl Unshard {
    /// Waits until the parameters are there.
    ///
    /// # Errors
    /// Those of a collective.
    pub fn wait(self) -> Result<()> {
        self.of.group.unshard()
    }
}

impl FullyShard {
    pub(super) fn new(group: Arc<ShardGroup>) -> FullyShard {
        FullyShard { group }
    }

    /// Gathers the parameters now. All ranks call it. They stay until those of another module come, or for as long as
    /// they would after forward.
    ///
    /// # Errors
    /// Those of a collective.
    #[track_caller]
    pub fn unshard(&self) -> Result<()> {
        self.group.unshard()
    }

    /// Starts to gather the parameters, in the background. All ranks call it. They stay until they are used.
    ///
    /// # Errors
    /// Those of a collective.
    #[track_caller]
    pub fn unshard_async(&self) -> Result<Unshard> {
        self.group.start_ahead()?;
        Ok(Unshard { of: self.clone() })
    }

    /// Gives the memory of the whole parameters back. What was written to them goes to the shards.
    pub fn reshard(&self) {
        self.group.reshard();
    }

    /// What is gathered ahead, in this order, when forward comes to this module. Without a call it is the module that
    /// followed in the last forward; of an empty list nothing is.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::nn::{Linear, parallel::fully_shard};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let mut layers = [Linear::new(4, 4), Linear::new(4, 4), Linear::new(4, 4)];
    /// let handles = layers.iter_mut().map(|layer| fully_shard(layer, &group, Default::default()));
    /// let handles = handles.collect::<torchrs::Result<Vec<_>>>()?;
    /// // Two ahead.
    /// handles[0].set_modules_to_forward_prefetch(&[&handles[1], &handles[2]])?;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when a module is there twice, is this one, or is sharded over other ranks.
    pub fn set_modules_to_forward_prefetch(&self, modules: &[&FullyShard]) -> Result<()> {
        self.ask("set_modules_to_forward_prefetch", FORWARD, modules)
    }

    /// [`set_modules_to_forward_prefetch`](Self::set_modules_to_forward_prefetch) for backward.
    ///
    /// # Errors
    /// As there.
    pub fn set_modules_to_backward_prefetch(&self, modules: &[&FullyShard]) -> Result<()> {
        self.ask("set_modules_to_backward_prefetch", BACKWARD, modules)
    }

    fn ask(&self, call: &str, direction: usize, modules: &[&FullyShard]) -> Result<()> {
        for (place, module) in modules.iter().enumerate() {
            let is_same = |other: &&FullyShard| Arc::ptr_eq(&other.group, &module.group);
            let wrong = if is_same(&self) {
                "is this module itself"
            } else if modules[..place].iter().any(is_same) {
                "is there twice"
            } else if !self.group.shards.is_same(&module.group.shards) {
                "is sharded over another process group, whose ranks may gather in another order"
            } else {
                continue;
            };
            let what = format!("has module {place}, with {}, which {wrong}", module.group.names());
            return Err(Error::argument(call, "modules", what));
        }
        let asked = modules.iter().map(|module| Arc::downgrade(&module.group)).collect();
        self.group.next[direction].lock().asked = Some(asked);
        Ok(())
    }

    /// Whether backward reduces gradients, here and in the modules inside; without, they add up whole, for accumulation
    /// over several batches.
    pub fn set_requires_gradient_sync(&self, sync: bool) {
        self.switch(sync, |group| &group.switches.syncs);
    }

    /// Whether backward also averages over replicas what it has reduced over shards, here and in the modules inside.
    /// Without, that is kept for the next backward that does. No effect on a mesh without replicas.
    pub fn set_requires_all_reduce(&self, all_reduce: bool) {
        self.switch(all_reduce, |group| &group.switches.all_reduces);
    }

    /// Whether the parameters are given back after forward, here and in the modules inside: to as few ranks as
    /// [`ReshardAfterForward::To`](super::ReshardAfterForward::To) has said, if it has.
    pub fn set_reshard_after_forward(&self, reshard: bool) {
        self.switch(reshard, |group| &group.switches.reshards_after_forward);
    }

    /// Whether the parameters are given back after backward, here and in the modules inside.
    pub fn set_reshard_after_backward(&self, reshard: bool) {
        self.switch(reshard, |group| &group.switches.reshards_after_backward);
    }

    /// By what the sum of all ranks' gradients is divided, here and in the modules inside, in place of the number of
    /// ranks.
    ///
    /// # Errors
    /// [`Error::Argument`] unless it is positive and finite.
    pub fn set_gradient_divide_factor(&self, factor: f64) -> Result<()> {
        if !(factor > 0.0 && factor.is_finite()) {
            let what = format!("is {factor}: gradients are divided by a positive number");
            return Err(Error::argument("set_gradient_divide_factor", "factor", what));
        }
        self.each(|group| *group.switches.divides_by.lock() = Some(factor));
        Ok(())
    }

    /// Has `hook` average this module's gradients over replicas, in place of an all-reduce. A bucket has the gradients of
    /// its shards; modules inside have hooks of their own. Over the network between hosts, [`comm_hooks`] send less. All
    /// ranks register the same one. One replica has nothing to average: there it is not called.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::distributed::{DeviceMesh, comm_hooks};
    /// use torchrs::nn::{Linear, parallel::fully_shard};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let mesh = DeviceMesh::new(&group, [("replicate", 2), ("shard", 1)])?;
    /// let handle = fully_shard(&mut Linear::new(4, 4), &mesh, Default::default())?;
    /// handle.register_comm_hook(comm_hooks::bf16_compress)?;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// [`comm_hooks`]: crate::distributed::comm_hooks
    ///
    /// # Errors
    /// [`Error::Argument`] on a mesh without replicas, and where the module has a hook already.
    pub fn register_comm_hook(&self, hook: impl CommHook + 'static) -> Result<()> {
        let wrong = |what: &str| Error::argument("register_comm_hook", "hook", what);
        if self.group.replicas.is_none() {
            let what = "averages over replicas, and the module's mesh has one dimension, of shards; between those, \
                        `MixedPrecisionPolicy::reduce_dtype` says in which dtype gradients travel";
            return Err(wrong(what));
        }
        let devices = self.group.lines.iter().map(|parts| parts.device());
        let registered = Arc::new(Registered::new(Box::new(hook), devices)?);
        let is_new = self.group.hook.set(registered);
        is_new.map_err(|_| wrong("another one is registered: a module has one hook"))
    }

    /// Forgets what a forward or backward that failed has left, here and in the modules inside: parameters are given
    /// back, gradients of wholes dropped. All ranks call it. A failed backward needs it only where forward failed too.
    pub fn reset_iter_state(&self) {
        self.each(ShardGroup::reset);
    }

    fn switch(&self, on: bool, which: impl Fn(&ShardGroup) -> &AtomicBool) {
        self.each(|group| which(group).store(on, Relaxed));
    }

    fn each(&self, f: impl Fn(&ShardGroup)) {
        f(&self.group);
        self.group.inner.iter().filter_map(Weak::upgrade).for_each(|group| f(&group));
    }
}

impl fmt::Debug for FullyShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("FullyShard");
        shown.field("group", &self.group.place).field("parameters", &self.group.names()).finish()
    }
}
