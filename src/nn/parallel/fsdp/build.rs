//! A group is made: parameters are cut, and the leaves of the module become wholes.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::gather::{SmallWorld, runs};
use super::group::{Member, Parts, Place, ShardGroup, ShardSide, Switches, WholeSide};
use super::layout::{Chunks, Line};
use super::present;
use crate::autograd::no_grad;
use crate::distributed::{ProcessGroup, Readers};
use crate::error::Result;
use crate::storage::{Device, Storage};
use crate::tensor::{Dtype, Layout, Tensor, kinds_of};

/// What a group is made of.
pub(super) struct Plan {
    pub shards: ProcessGroup,
    pub replicas: Option<ProcessGroup>,
    /// Names and leaves.
    pub params: Vec<(String, Tensor)>,
    pub param_dtype: Option<Dtype>,
    pub reduce_dtype: Option<Dtype>,
    pub inner: Vec<Weak<ShardGroup>>,
    pub reshards_after_forward: bool,
    /// Fewer ranks, over which the wholes are cut between forward and backward.
    pub small: Option<ProcessGroup>,
    /// Whether shards are on the host, and whether they are pinned there.
    pub offload: Option<bool>,
    pub number: usize,
}

/// Memory for a rank's chunks, of zeros.
pub(super) fn room(
    shards: &ProcessGroup,
    numel: usize,
    dtype: Dtype,
    device: Device,
    offload: Option<bool>,
) -> Result<Tensor> {
    let is_shared = match offload {
        Some(pins) => pins,
        None => shards.world_size() > 1,
    };
    let flat = match device {
        Device::Cpu if is_shared => shards.empty_shared(&[numel], dtype)?,
        device => Tensor::empty([numel], (dtype, device)),
    };
    no_grad(|| flat.fill_(0.0));
    Ok(flat)
}

/// Bytes of the gradients of a line's wholes in memory that all ranks read.
pub(super) fn scratch_of(line: &Line, world: usize, dtype: Dtype) -> usize {
    world * line.numel * dtype.size()
}

impl ShardGroup {
    /// Cuts the parameters; the leaves become wholes. All ranks have the same values.
    pub fn new(plan: Plan) -> Result<Arc<ShardGroup>> {
        let (rank, world) = (plan.shards.rank(), plan.shards.world_size());
        let readers = Arc::new(Readers::new(&plan.shards));
        let is_shared = world > 1 && plan.shards.is_on_one_host();
        let (mut lines, mut sides) = (Vec::new(), Vec::new());
        let (mut small_lines, mut scratch) = (Vec::new(), 0);
        for (own, device) in kinds_of(plan.params.iter().map(|(_, param)| param)) {
            let of_kind = |p: &&(String, Tensor)| (p.1.dtype(), p.1.device()) == (own, device);
            let params: Vec<&(String, Tensor)> = plan.params.iter().filter(of_kind).collect();
            let shapes: Vec<&[usize]> = params.iter().map(|(_, p)| p.shape()).collect();
            let line = Line::new(&shapes, world, own);
            let dtype = plan.param_dtype.unwrap_or(own);
            let home = if plan.offload.is_some() { Device::Cpu } else { device };
            let flat = room(&plan.shards, line.numel, own, home, plan.offload)?;
            let reads = is_shared && device == Device::Cpu;
            if reads {
                scratch += scratch_of(&line, world, plan.reduce_dtype.unwrap_or(own));
            }
            let runs = (reads && dtype == own).then(|| runs(&line, world, own.size()));
            if let Some(small) = &plan.small {
                small_lines.push(Line::new(&shapes, small.world_size(), own));
            }
            let (group, readers) = (OnceLock::new(), readers.clone());
            let side = ShardSide { group, flat: flat.clone(), readers };
            let side = Arc::new(side);
            let nbytes = line.numel * own.size();
            let shards = Storage::on_demand(nbytes, home, side.clone());
            let member = |(chunks, (name, param)): (&Chunks, &&(String, Tensor))| {
                let (start, numel) = (chunks.offset_of(rank), chunks.numel_of(rank));
                let part = param.detach().reshape_to(&[param.numel()]).narrow(0, start, numel);
                let part = part.to_device(home);
                no_grad(|| _ = flat.narrow(0, chunks.start, numel).copy_(&part));
                let mut shape = param.shape().to_vec();
                shape[0] = chunks.rows_of(rank).len();
                let layout = Layout { offset: chunks.start, ..Layout::contiguous(&shape) };
                let shard = Tensor::from_parts(shards.clone(), layout, own);
                let shard = shard.requires_grad_(param.requires_grad());
                shard.hint_name(name);
                shard.keep_initial(param.initial(), false);
                let (name, whole) = (name.clone(), param.downgrade());
                Member { name, whole, storage: Mutex::default(), shard }
            };
            let members = line.chunks.iter().zip(&params).map(member).collect();
            let (side_of, place) = (side.clone(), Mutex::new(Place { device, runs }));
            lines.push(Parts { line, flat, shards, side: side_of, dtype, place, members });
            sides.push(side);
        }
        if scratch > 0 {
            plan.shards.scratch(scratch)?;
        }
        let others = present::over(&plan.shards);
        let switch = AtomicBool::new;
        let switches = Switches {
            reshards_after_forward: switch(plan.reshards_after_forward),
            reshards_after_backward: switch(true),
            syncs: switch(true),
            all_reduces: switch(true),
            divides_by: Mutex::new(None),
        };
        let small = plan.small.map(|group| SmallWorld { group, lines: small_lines });
        let group = Arc::new(ShardGroup {
            number: plan.number,
            place: plan.shards.next_number(),
            shards: plan.shards,
            replicas: plan.replicas,
            lines,
            reduce_dtype: plan.reduce_dtype,
            inner: plan.inner,
            small,
            readers,
            switches,
            hook: OnceLock::new(),
            pass: ShardGroup::pass_of(&others),
            next: Default::default(),
            state: Mutex::default(),
            partial: Mutex::default(),
        });
        sides.iter().for_each(|side| _ = side.group.set(Arc::downgrade(&group)));
        group.install();
        present::made(&group);
        Ok(group)
    }

    /// Makes the leaves wholes.
    fn install(self: &Arc<Self>) {
        let rank = self.shards.rank();
        for parts in &self.lines {
            for (member, chunks) in parts.members() {
                let Some(param) = member.whole.upgrade() else { continue };
                let nbytes = chunks.numel() * parts.dtype.size();
                let side = Arc::new(WholeSide(self.clone()));
                let convert = |_: &Tensor| {
                    let storage = Storage::on_demand(nbytes, param.device(), side.clone());
                    Tensor::from_parts(storage, Layout::contiguous(&[chunks.numel()]), parts.dtype)
                };
                let mut kept = None;
                if let Some(grad) = param.grad() {
                    param.set_grad(None);
                    let (start, numel) = (chunks.offset_of(rank), chunks.numel_of(rank));
                    let own = grad.detach().reshape_to(&[chunks.numel()]).narrow(0, start, numel);
                    let own = own.reshape_to(member.shard.shape()).clone_contiguous();
                    kept = Some(own.to_device(member.shard.device()));
                }
                // SAFETY: whoever shards a module has it for himself, as one who moves it has: no other thread uses the
                // tensor, and addresses are used no longer than an op runs.
                unsafe { param.move_data(&convert) };
                *member.storage.lock() = Some(param.storage().downgrade());
                // Also where it is frozen now.
                let wants_grad = param.requires_grad();
                param.requires_grad_(true);
                let group = Arc::downgrade(self);
                param.register_post_accumulate_grad_hook(move |_| {
                    if let Some(group) = group.upgrade() {
                        group.gradient_is_there();
                    }
                });
                param.requires_grad_(wants_grad);
                param.set_shard(&member.shard, chunks.rows_of(rank).start, self.clone());
                member.shard.set_grad(kept);
            }
        }
    }
}
