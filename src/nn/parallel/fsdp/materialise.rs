//! Memory and values for a group that was sharded on the meta device: each rank gets memory for its part, and of the
//! values its share.

use std::cell::Cell;
use std::sync::Arc;

use super::build::{room, scratch_of};
use super::gather::runs;
use super::group::{Phase, ShardGroup, WholeSide};
use super::present;
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::storage::{Device, Storage};
use crate::tensor::Tensor;

impl ShardGroup {
    /// Gives the parts that are on the meta device memory on another, for all who hold the tensors.
    pub(super) fn materialise(&self, device: Device) -> Result<()> {
        let own = present::numbered(&[self.number]).into_iter().find_map(|group| group.upgrade());
        let own =
            own.ok_or_else(|| Error::Other("a group of sharded parameters is gone".to_owned()))?;
        let mut state = self.state.lock();
        state.forget_backward();
        state.phase = Phase::Away;
        state.counted.clear();
        let world = self.shards.world_size();
        let reads = device == Device::Cpu && world > 1 && self.shards.is_on_one_host();
        let mut scratch = 0;
        for parts in self.lines.iter().filter(|parts| parts.flat.device().is_meta()) {
            let dtype = parts.flat.dtype();
            let new = room(&self.shards, parts.line.numel, dtype, device, None)?;
            {
                let mut place = parts.place.lock();
                place.device = device;
                let in_place = reads && parts.dtype == dtype;
                place.runs = in_place.then(|| runs(&parts.line, world, dtype.size()));
            }
            if reads {
                scratch += scratch_of(&parts.line, world, self.reduce_dtype.unwrap_or(dtype));
            }
            let new = Cell::new(Some(new));
            let shards =
                Storage::on_demand(parts.line.numel * dtype.size(), device, parts.side.clone());
            // SAFETY: those who give a module memory have it for themselves, as those who move it have: no other thread
            // uses its tensors, and addresses are used no longer than an op runs.
            unsafe {
                parts.flat.set_data(&|old| new.take().unwrap_or_else(|| old.clone()));
                parts.shards.become_other(&shards);
                for (member, chunks) in parts.members() {
                    member.shard.change_storage(&shards);
                    let Some(whole) = member.whole.upgrade() else { continue };
                    let side = Arc::new(WholeSide(own.clone()));
                    let nbytes = chunks.numel() * whole.dtype().size();
                    let storage = Storage::on_demand(nbytes, device, side);
                    whole.change_storage(&storage);
                    *member.storage.lock() = Some(whole.storage().downgrade());
                }
            }
        }
        if scratch > 0 {
            self.shards.scratch(scratch)?;
        }
        Ok(())
    }

    /// Gives this rank's part of `whole` its share of these values.
    pub(super) fn keep(&self, whole: &Tensor, values: &Tensor) {
        let rank = self.shards.rank();
        for parts in &self.lines {
            for (member, chunks) in parts.members() {
                if !member.whole.upgrade().is_some_and(|own| own.ptr_eq(whole)) {
                    continue;
                }
                let (start, numel) = (chunks.offset_of(rank), chunks.numel_of(rank));
                let part = values.reshape_to(&[values.numel()]).narrow(0, start, numel);
                no_grad(|| _ = member.shard.copy_(&part.reshape_to(member.shard.shape())));
            }
        }
    }
}
