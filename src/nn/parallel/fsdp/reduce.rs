//! Gradients of a group's wholes on their way to its shards.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::group::{Member, Parts, Reducing, ShardGroup};
use super::present;
use crate::autograd::{if_backward_fails, queue_callback};
use crate::distributed::ReduceOp;
use crate::error::{Result, throw};
use crate::profiler::{self, Category, Phase};
use crate::tensor::Tensor;

impl ShardGroup {
    /// A whole has a gradient of this backward.
    pub(super) fn gradient_is_there(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if !state.in_backward {
            (state.in_backward, state.missing) = (true, self.trained());
            let (group, same) = (self.clone(), self.clone());
            queue_callback(move || group.end_of_backward());
            // What it has left is no part of the next one.
            if_backward_fails(move || same.state.lock().forget_backward());
        }
        state.missing = state.missing.saturating_sub(1);
        if state.missing == 0 {
            drop(state);
            self.all_are_there().unwrap_or_else(|error| throw(error));
        }
    }

    /// Backward is through the group's parameters.
    fn all_are_there(self: &Arc<Self>) -> Result<()> {
        if self.reshards_after_backward.load(Relaxed) {
            self.reshard();
        }
        if !self.syncs.load(Relaxed) {
            return Ok(());
        }
        // Not more than one group's gradients are on their way.
        self.settle()?;
        present::reduces(self).map_or(Ok(()), |before| before.settle())?;
        let reducing = self.without_modes(|| self.start())?;
        self.state.lock().reducing = reducing;
        Ok(())
    }

    /// Starts to reduce what the wholes have.
    fn start(&self) -> Result<Vec<Reducing>> {
        let world = self.shards.world_size();
        let line = |parts: &Parts| {
            let take = |member: &Member| {
                let whole = member.whole.upgrade()?;
                let grad = whole.own_grad();
                whole.set_grad(None);
                grad
            };
            let grads: Vec<Option<Tensor>> = parts.members.iter().map(take).collect();
            let dtype = self.reduce_dtype.unwrap_or(parts.flat.dtype());
            if world == 1 && self.replicas.is_none() {
                // A shard is the whole, and so is its gradient.
                for (member, grad) in parts.members.iter().zip(grads) {
                    let grad = grad.map(|grad| grad.to_dtype(dtype).to_dtype(parts.flat.dtype()));
                    member.accumulate(grad.unwrap_or_else(|| member.shard.zeros_like()));
                }
                return Ok(None);
            }
            let input = parts.scatter(&grads, world, dtype);
            drop(grads);
            if world == 1 {
                return Ok(Some(Reducing { output: input, work: None }));
            }
            let output = Tensor::empty([parts.line.numel], (dtype, parts.flat.device()));
            if output.device().is_meta() {
                return Ok(Some(Reducing { output, work: None }));
            }
            let work = self
                .origin("the gradients of")
                .over(|| self.shards.reduce_scatter_tensor_async(&output, &input, ReduceOp::Avg))?;
            Ok(Some(Reducing { output, work: Some(work) }))
        };
        let started: Result<Vec<_>> = self.lines.iter().map(line).collect();
        Ok(started?.into_iter().flatten().collect())
    }

    /// Gives the shards the gradients that are on their way, if some are.
    pub(super) fn settle(&self) -> Result<()> {
        let reducing = std::mem::take(&mut self.state.lock().reducing);
        self.without_modes(|| {
            for (parts, Reducing { output, work }) in self.lines.iter().zip(reducing) {
                work.map_or(Ok(()), |work| work.wait())?;
                if let Some(replicas) =
                    self.replicas.as_ref().filter(|_| !output.device().is_meta())
                {
                    let origin = self.origin("the gradients, over replicas, of");
                    origin.over(|| replicas.all_reduce(&output, ReduceOp::Avg))?;
                }
                parts.accumulate(&output.to_dtype(parts.flat.dtype()));
            }
            Ok(())
        })
    }

    /// Runs when backward has made all gradients.
    fn end_of_backward(self: &Arc<Self>) {
        let _span = profiler::span(profiler::END_OF_BACKWARD, Category::Communication);
        let _phase = Phase::work();
        let is_through = {
            let mut state = self.state.lock();
            state.in_backward = false;
            std::mem::take(&mut state.missing) == 0
        };
        let rest = if is_through { Ok(()) } else { self.all_are_there() };
        rest.and_then(|()| self.settle()).unwrap_or_else(|error| throw(error));
    }
}

impl Parts {
    /// Adds a line of gradients to those of the shards.
    fn accumulate(&self, line: &Tensor) {
        for (member, chunks) in self.members() {
            let grad = line.narrow(0, chunks.start, member.shard.numel());
            member.accumulate(grad.reshape_to(member.shard.shape()).detach());
        }
    }
}

impl Member {
    /// Adds a gradient to that of the shard.
    fn accumulate(&self, grad: Tensor) {
        if !self.shard.requires_grad() {
            return;
        }
        match self.shard.grad() {
            Some(sum) => _ = sum.add_(&grad),
            None => self.shard.set_grad(Some(grad)),
        }
    }
}
