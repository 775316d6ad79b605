//! Gradients of a group's wholes on their way to its shards.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::group::{Member, Parts, Reducing, ShardGroup};
use super::present;
use crate::autograd::{if_backward_fails, queue_callback};
use crate::distributed::{ReduceOp, Scratch};
use crate::error::{Result, throw};
use crate::nn::parallel::ddp::GradBucket;
use crate::profiler::{self, Category, Phase};
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

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
        if self.switches.reshards_after_backward.load(Relaxed) {
            self.reshard();
        }
        if !self.switches.syncs.load(Relaxed) {
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
        let mut room = Room::of(self)?;
        let line = |parts: &Parts| {
            let grads: Vec<Option<Tensor>> = parts.members.iter().map(Member::take_grad).collect();
            let (own, home) = (parts.flat.dtype(), parts.flat.device());
            let dtype = self.reduce_dtype.unwrap_or(own);
            if world == 1 && self.replicas.is_none() {
                // A shard is the whole, and so is its gradient.
                for (member, grad) in parts.members.iter().zip(grads) {
                    let grad = grad.map(|grad| {
                        self.divided(grad.to_dtype(dtype)).to_dtype(own).to_device(home)
                    });
                    member.accumulate(grad.unwrap_or_else(|| member.shard.zeros_like()));
                }
                return Ok(None);
            }
            let (op, shape) = (self.op(), [world, parts.line.numel]);
            let output = Tensor::empty([parts.line.numel], (dtype, parts.device()));
            if output.device().is_meta() {
                return Ok(Some(Reducing { output, work: None }));
            }
            let origin = self.origin_of_gradients("the gradients of");
            if let Some(room) = &mut room {
                let input = room.take(shape, dtype)?;
                parts.scatter(&grads, &input, world);
                let readers = &room.scratch.readers;
                let reduce = || self.shards.reduce_in_place(&output, &input, op, readers);
                let work = origin.over(reduce)?;
                return Ok(Some(Reducing { output, work }));
            }
            let input = Tensor::empty([world * parts.line.numel], (dtype, parts.device()));
            parts.scatter(&grads, &input, world);
            drop(grads);
            if world == 1 {
                return Ok(Some(Reducing { output: input, work: None }));
            }
            let reduce = || self.shards.reduce_scatter_tensor_async(&output, &input, op);
            let work = Some(origin.over(reduce)?);
            Ok(Some(Reducing { output, work }))
        };
        let started: Result<Vec<_>> = self.lines.iter().map(line).collect();
        Ok(started?.into_iter().flatten().collect())
    }

    /// How ranks' gradients are combined.
    fn op(&self) -> ReduceOp {
        let is_own = self.switches.divides_by.lock().is_some();
        if is_own { ReduceOp::Sum } else { ReduceOp::Avg }
    }

    /// Gradients over the factor that the user has set, if so.
    fn divided(&self, grads: Tensor) -> Tensor {
        match *self.switches.divides_by.lock() {
            Some(factor) => grads / factor,
            None => grads,
        }
    }

    /// Gives the shards the gradients that are on their way, if some are.
    pub(super) fn settle(&self) -> Result<()> {
        let reducing = std::mem::take(&mut self.state.lock().reducing);
        if reducing.is_empty() {
            return Ok(());
        }
        let mut partial = std::mem::take(&mut *self.partial.lock()).into_iter();
        let all_reduces = self.switches.all_reduces.load(Relaxed);
        let mut later = Vec::new();
        self.without_modes(|| {
            for (place, Reducing { output, work }) in reducing.into_iter().enumerate() {
                let parts = &self.lines[place];
                work.map_or(Ok(()), |work| work.wait())?;
                let output = partial.next().map_or(output.clone(), |before| before + output);
                let is_meta = output.device().is_meta();
                if self.replicas.is_some() && !is_meta {
                    if !all_reduces {
                        later.push(output);
                        continue;
                    }
                    self.over_replicas(place, &output)?;
                }
                let home = parts.flat.device();
                parts
                    .accumulate(&self.divided(output).to_dtype(parts.flat.dtype()).to_device(home));
            }
            Result::Ok(())
        })?;
        *self.partial.lock() = later;
        Ok(())
    }

    /// Combines a line's gradients over replicas.
    fn over_replicas(&self, place: usize, gradients: &Tensor) -> Result<()> {
        let Some(replicas) = self.replicas.as_ref().filter(|group| group.world_size() > 1) else {
            return Ok(());
        };
        let (origin, op) =
            (self.origin_of_gradients("the gradients, over replicas, of"), self.op());
        let Some(hook) = self.hook.get() else {
            return origin.over(|| replicas.all_reduce(gradients, op));
        };
        self.lines[place].clear_gaps(gradients);
        let members = self.lines[place].members();
        let members = members.map(|(member, chunks)| (member.shard.clone(), chunks.start));
        let bucket = GradBucket {
            index: place,
            is_last: place + 1 == self.lines.len(),
            buffer: gradients.clone(),
            members: Arc::new(members.collect()),
            origin,
        };
        hook.call(replicas, &bucket)?;
        if op == ReduceOp::Sum {
            // A hook gives the mean.
            gradients.mul_(replicas.world_size() as f64);
        }
        Ok(())
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

/// Memory that all ranks can read, for the gradients of one group after the other.
struct Room {
    scratch: Arc<Scratch>,
    taken: usize,
}

impl Room {
    /// Once nobody reads the gradients that were there before; `None` where they travel.
    fn of(group: &ShardGroup) -> Result<Option<Room>> {
        let is_here = group.lines.iter().all(|parts| parts.device() == Device::Cpu);
        if !is_here || group.shards.world_size() == 1 || !group.shards.is_on_one_host() {
            return Ok(None);
        }
        let scratch = group.shards.scratch(0)?;
        scratch.readers.wait()?;
        Ok(Some(Room { scratch, taken: 0 }))
    }

    fn take(&mut self, shape: [usize; 2], dtype: Dtype) -> Result<Tensor> {
        let tensor = self.scratch.buffer.tensor(self.taken, &shape, dtype)?;
        self.taken += shape[0] * shape[1] * dtype.size();
        Ok(tensor)
    }
}

impl Parts {
    /// Writes zeros between the gradients in a line, for who looks at all of it.
    fn clear_gaps(&self, line: &Tensor) {
        let ends = self.members().map(|(member, chunks)| chunks.start + member.shard.numel());
        let starts = self.members().map(|(_, chunks)| chunks.start).skip(1);
        for (end, start) in ends.zip(starts.chain([line.numel()])) {
            line.narrow(0, end, start - end).fill_(0.0);
        }
    }

    /// Adds a line of gradients to those of the shards.
    fn accumulate(&self, line: &Tensor) {
        for (member, chunks) in self.members() {
            let grad = line.narrow(0, chunks.start, member.shard.numel());
            member.accumulate(grad.reshape_to(member.shard.shape()).detach());
        }
    }
}

impl Member {
    /// The whole's gradient, which is there no more.
    fn take_grad(&self) -> Option<Tensor> {
        let whole = self.whole.upgrade()?;
        let grad = whole.own_grad();
        whole.set_grad(None);
        grad
    }

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
