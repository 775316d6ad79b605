//! Parameters that are gathered and reduced together: those of one module.
//!
//! Two tensors stand for each parameter, and the memory of both comes when an op asks for it. The *whole* is what
//! modules compute with; its bytes are gathered from all ranks. The *shard* is this rank's part, for optimizers. While
//! the whole is lent out the shard is not, and the other way round: whoever asks for one sees what was written to the
//! other.
//!
//! | state | the whole's bytes | the shard's bytes |
//! | --- | --- | --- |
//! | away | nowhere; asked for, they are gathered | lent |
//! | here | lent | at the group's |
//! | parked | kept, and good unless the shard is written to | lent |

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::layout::{Chunks, Line};
use super::present;
use crate::amp::Suspended;
use crate::autograd::{Together, WeakTensor, no_grad};
use crate::cuda::{Stream, graph};
use crate::distributed::{Origin, ProcessGroup, ReduceOp, Work, join_some};
use crate::error::{Error, Result, throw};
use crate::storage::on_demand::Brings;
use crate::storage::{Device, Storage, WeakStorage};
use crate::tensor::{Dtype, Layout, Tensor, kinds_of};

/// The parameters of one module over the ranks of a mesh.
pub(super) struct ShardGroup {
    /// Its number, in the order in which groups were made; the same on all ranks.
    pub number: usize,
    /// Between them the parameters are cut.
    pub(super) shards: ProcessGroup,
    /// The ranks that have the same part.
    pub(super) replicas: Option<ProcessGroup>,
    pub(super) lines: Vec<Parts>,
    pub(super) reduce_dtype: Option<Dtype>,
    /// The groups of modules inside.
    pub inner: Vec<Weak<ShardGroup>>,
    pub reshards_after_forward: AtomicBool,
    pub reshards_after_backward: AtomicBool,
    /// Whether backward reduces gradients.
    pub syncs: AtomicBool,
    pub(super) state: Mutex<State>,
}

/// Parameters of one dtype and device.
pub(super) struct Parts {
    pub(super) line: Line,
    /// This rank's chunks.
    pub(super) flat: Tensor,
    /// The storage of all shards, which is lent what is in `flat`.
    pub(super) shards: Storage,
    pub(super) side: Arc<ShardSide>,
    /// The dtype of the wholes.
    dtype: Dtype,
    pub(super) members: Vec<Member>,
}

/// A parameter.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) whole: WeakTensor,
    pub(super) storage: Mutex<Option<WeakStorage>>,
    pub(super) shard: Tensor,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// A backward has reached some of the parameters.
    pub(super) in_backward: bool,
    /// How many it has not reached.
    pub(super) missing: usize,
    /// Gradients on their way, one for each line.
    pub(super) reducing: Vec<Reducing>,
}

impl State {
    pub(super) fn forget_backward(&mut self) {
        (self.in_backward, self.missing) = (false, 0);
        self.reducing.clear();
    }
}

#[derive(Default)]
pub(super) enum Phase {
    #[default]
    Away,
    Here(Vec<Whole>),
    Parked(Vec<Whole>),
}

/// The bytes of a line's wholes, and what version those and the shards had.
pub(super) struct Whole {
    memory: Storage,
    versions: Vec<u32>,
    shards: u32,
}

/// A line's gradients.
pub(super) struct Reducing {
    pub(super) output: Tensor,
    pub(super) work: Option<Work>,
}

/// Has a group bring its wholes.
pub(super) struct WholeSide(pub(super) Arc<ShardGroup>);

/// Has a group give way to its shards, if it is still there.
pub(super) struct ShardSide {
    group: OnceLock<Weak<ShardGroup>>,
    flat: Tensor,
}

impl Brings for WholeSide {
    fn bring(&self, _: &Storage) {
        self.0.unshard().unwrap_or_else(|error| throw(error));
        present::arrived(&self.0);
    }
}

impl Brings for ShardSide {
    fn bring(&self, storage: &Storage) {
        match self.group.get().and_then(Weak::upgrade) {
            Some(group) => group.give_way(),
            None => storage.lend(self.flat.storage(), 0),
        }
    }
}

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
    pub number: usize,
}

impl ShardGroup {
    /// Cuts the parameters; the leaves become wholes. All ranks have the same values.
    pub fn new(plan: Plan) -> Result<Arc<ShardGroup>> {
        let (rank, world) = (plan.shards.rank(), plan.shards.world_size());
        let (mut lines, mut sides) = (Vec::new(), Vec::new());
        for (own, device) in kinds_of(plan.params.iter().map(|(_, param)| param)) {
            let of_kind = |p: &&(String, Tensor)| (p.1.dtype(), p.1.device()) == (own, device);
            let params: Vec<&(String, Tensor)> = plan.params.iter().filter(of_kind).collect();
            let shapes: Vec<&[usize]> = params.iter().map(|(_, p)| p.shape()).collect();
            let line = Line::new(&shapes, world, own);
            let flat = room(&plan.shards, line.numel, own, device)?;
            let side = ShardSide { group: OnceLock::new(), flat: flat.clone() };
            let side = Arc::new(side);
            let nbytes = line.numel * own.size();
            let shards = Storage::on_demand(nbytes, device, side.clone());
            let member = |(chunks, (name, param)): (&Chunks, &&(String, Tensor))| {
                let (start, numel) = (chunks.offset_of(rank), chunks.numel_of(rank));
                let part = param.detach().reshape_to(&[param.numel()]).narrow(0, start, numel);
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
            let dtype = plan.param_dtype.unwrap_or(own);
            lines.push(Parts { line, flat, shards, side: side.clone(), dtype, members });
            sides.push(side);
        }
        let group = Arc::new(ShardGroup {
            number: plan.number,
            shards: plan.shards,
            replicas: plan.replicas,
            lines,
            reduce_dtype: plan.reduce_dtype,
            inner: plan.inner,
            reshards_after_forward: AtomicBool::new(plan.reshards_after_forward),
            reshards_after_backward: AtomicBool::new(true),
            syncs: AtomicBool::new(true),
            state: Mutex::default(),
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
                    kept = Some(own.reshape_to(member.shard.shape()).clone_contiguous());
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

    /// Bytes of all parameters.
    pub(super) fn whole_bytes(&self) -> usize {
        let of_line = |parts: &Parts| {
            parts.line.chunks.iter().map(Chunks::numel).sum::<usize>() * parts.flat.dtype().size()
        };
        self.lines.iter().map(of_line).sum()
    }

    /// The dtype of its wholes, where that is not their own.
    pub(super) fn param_dtype(&self) -> Option<Dtype> {
        let other = |parts: &Parts| (parts.dtype != parts.flat.dtype()).then_some(parts.dtype);
        self.lines.iter().find_map(other)
    }

    /// Names of its parameters, for messages.
    pub fn names(&self) -> String {
        let members = self.lines.iter().flat_map(|parts| &parts.members);
        let names: Vec<String> = members.map(|member| format!("`{}`", member.name)).collect();
        join_some(names.iter(), ", ")
    }

    pub(super) fn origin(&self, what: &str) -> Origin {
        Origin::named(format!("fully_shard's group {}, {what} {}", self.number, self.names()))
    }

    /// Gathers the wholes, if they are not there.
    ///
    /// # Errors
    /// Those of a collective.
    pub fn unshard(&self) -> Result<()> {
        let mut state = self.state.lock();
        let wholes = match std::mem::take(&mut state.phase) {
            Phase::Here(wholes) => {
                state.phase = Phase::Here(wholes);
                return Ok(());
            }
            Phase::Parked(wholes) if self.are_good(&wholes) => wholes,
            Phase::Parked(_) | Phase::Away => {
                self.refuse_capture()?;
                let gathered = self.without_modes(|| self.gather())?;
                self.arrange(gathered)
            }
        };
        for (parts, whole) in self.lines.iter().zip(&wholes) {
            parts.shards.take_back();
            for (member, chunks) in parts.members() {
                if let Some(storage) = member.storage() {
                    storage.lend(&whole.memory, chunks.whole_start * parts.dtype.size());
                }
            }
        }
        state.phase = Phase::Here(wholes);
        Ok(())
    }

    /// Gives the wholes' memory back. What was written to them goes to the shards.
    pub fn reshard(&self) {
        let mut state = self.state.lock();
        self.park(&mut state);
        if let Phase::Parked(wholes) = &state.phase {
            if wholes.iter().any(|whole| whole.memory.may_be_recorded()) {
                throw(Error::Device(format!(
                    "fully_shard: a graph was recorded while the parameters {} were gathered: it would go on with their \
                     memory, which is given back now; drop the graph, and replay none of sharded modules",
                    self.names()
                )));
            }
            state.phase = Phase::Away;
        }
    }

    /// A graph has fixed addresses.
    fn refuse_capture(&self) -> Result<()> {
        for gpu in self.lines.iter().filter_map(|parts| parts.flat.device().gpu()) {
            let advice = "their memory comes and goes: run sharded modules without graphs";
            let what = format_args!("fully_shard: the parameters {}", self.names());
            graph::refuse(Stream::current(gpu)?, what, advice)?;
        }
        Ok(())
    }

    /// Has the shards in the place of the wholes, which stay for later.
    fn give_way(&self) {
        let mut state = self.state.lock();
        self.park(&mut state);
        for parts in &self.lines {
            parts.shards.lend(parts.flat.storage(), 0);
        }
    }

    fn park(&self, state: &mut State) {
        let Phase::Here(wholes) = std::mem::take(&mut state.phase) else { return };
        let mut parked = Vec::with_capacity(wholes.len());
        for (parts, mut whole) in self.lines.iter().zip(wholes) {
            parts.write_back(&mut whole, self.shards.rank());
            for storage in parts.members.iter().filter_map(Member::storage) {
                storage.take_back();
            }
            whole.shards = parts.shards.version();
            parked.push(whole);
        }
        state.phase = Phase::Parked(parked);
    }

    /// Whether the shards are still what the wholes were made of.
    fn are_good(&self, wholes: &[Whole]) -> bool {
        self.lines.iter().zip(wholes).all(|(parts, whole)| parts.shards.version() == whole.shards)
    }

    /// Runs `f` as if no mode of the program's were set: it may be called within any op.
    pub(super) fn without_modes<T>(&self, f: impl FnOnce() -> T) -> T {
        let _f32 = Suspended::new();
        no_grad(f)
    }

    fn gather(&self) -> Result<Vec<Tensor>> {
        let world = self.shards.world_size();
        let line = |parts: &Parts| {
            let input = match parts.flat.dtype() == parts.dtype {
                true => parts.flat.clone(),
                false => parts.flat.to_dtype(parts.dtype),
            };
            if world == 1 {
                return Ok(input);
            }
            let place = (parts.dtype, parts.flat.device());
            if parts.flat.device().is_meta() {
                return Ok(Tensor::empty([world * parts.line.numel], place));
            }
            let gathered = Tensor::empty([world * parts.line.numel], place);
            let gather = || self.shards.all_gather_into_tensor(&gathered, &input);
            self.origin("the values of").over(gather)?;
            Ok(gathered)
        };
        self.lines.iter().map(line).collect()
    }

    /// Puts rows of all ranks behind each other.
    fn arrange(&self, gathered: Vec<Tensor>) -> Vec<Whole> {
        let world = self.shards.world_size();
        let arrange = |(parts, gathered): (&Parts, Tensor)| {
            let memory = match world {
                1 => gathered,
                _ => parts.arrange(&gathered, world),
            };
            let version = |member: &Member| member.storage().map_or(0, |s| s.version());
            let versions = parts.members.iter().map(version).collect();
            let (memory, shards) = (memory.storage().clone(), parts.shards.version());
            Whole { memory, versions, shards }
        };
        self.without_modes(|| self.lines.iter().zip(gathered).map(arrange).collect())
    }
}

/// Memory for a rank's chunks, of zeros.
pub(super) fn room(
    shards: &ProcessGroup,
    numel: usize,
    dtype: Dtype,
    device: Device,
) -> Result<Tensor> {
    let flat = match device {
        Device::Cpu if shards.world_size() > 1 => shards.empty_shared(&[numel], dtype)?,
        device => Tensor::empty([numel], (dtype, device)),
    };
    flat.fill_(0.0);
    Ok(flat)
}

impl Together for ShardGroup {
    fn number(&self) -> usize {
        self.number
    }

    fn ranks(&self) -> &[usize] {
        self.shards.ranks()
    }

    fn sum(&self, values: &Tensor) -> Result<()> {
        self.over_parts("a sum over the shards of", values, ReduceOp::Sum)
    }

    fn max(&self, values: &Tensor) -> Result<()> {
        self.over_parts("a maximum over the shards of", values, ReduceOp::Max)
    }

    fn of_first(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut first = bytes.to_vec();
        for group in [Some(&self.shards), self.replicas.as_ref()].into_iter().flatten() {
            let all = self.origin("the generator for").over(|| group.all_gather_bytes(&first))?;
            first = all.into_iter().next().unwrap_or(first);
        }
        Ok(first)
    }

    fn to_empty(&self, device: Device) -> Result<()> {
        self.materialise(device)
    }

    fn keep_part(&self, whole: &Tensor, values: &Tensor) {
        self.keep(whole, values);
    }
}

impl ShardGroup {
    fn over_parts(&self, what: &str, values: &Tensor, op: ReduceOp) -> Result<()> {
        match self.shards.world_size() {
            1 => Ok(()),
            _ => self.origin(what).over(|| self.shards.all_reduce(values, op)),
        }
    }

    /// How many parameters get a gradient.
    pub(super) fn trained(&self) -> usize {
        let wants = |member: &&Member| member.shard.requires_grad();
        self.lines.iter().map(|parts| parts.members.iter().filter(wants).count()).sum()
    }
}

impl Parts {
    pub(super) fn members(&self) -> impl Iterator<Item = (&Member, &Chunks)> {
        self.members.iter().zip(&self.line.chunks)
    }

    /// The wholes from the lines of all ranks.
    fn arrange(&self, gathered: &Tensor, world: usize) -> Tensor {
        let line = &self.line;
        let all = Tensor::empty([line.whole_numel], (self.dtype, gathered.device()));
        for chunks in &line.chunks {
            each_chunk(chunks, world, |of_whole, start, length, ranks| {
                let to = all.narrow(0, chunks.whole_start + of_whole, length * ranks.len());
                let from = gathered.reshape_to(&[world, line.numel]);
                let from = from.narrow(0, ranks.start, ranks.len()).narrow(1, start, length);
                to.reshape_to(&[ranks.len(), length]).copy_(&from);
            });
        }
        all
    }

    /// Gives what was written to the wholes to this rank's shards.
    fn write_back(&self, whole: &mut Whole, rank: usize) {
        for ((member, chunks), version) in self.members().zip(&mut whole.versions) {
            let Some(now) = member.storage().map(|storage| storage.version()) else { continue };
            if std::mem::replace(version, now) == now {
                continue;
            }
            let numel = chunks.numel_of(rank);
            let offset = chunks.whole_start + chunks.offset_of(rank);
            let layout = Layout { offset, ..Layout::contiguous(&[numel]) };
            let written = Tensor::from_parts(whole.memory.clone(), layout, self.dtype);
            let own = self.flat.narrow(0, chunks.start, numel);
            if own.device_ptr() != written.device_ptr() {
                let _f32 = Suspended::new();
                no_grad(|| _ = own.copy_(&written));
            }
        }
    }

    /// A line of gradients for each rank.
    pub(super) fn scatter(&self, grads: &[Option<Tensor>], world: usize, dtype: Dtype) -> Tensor {
        let line = &self.line;
        let all = Tensor::empty([world * line.numel], (dtype, self.flat.device()));
        for (chunks, grad) in line.chunks.iter().zip(grads) {
            each_chunk(chunks, world, |of_whole, start, length, ranks| {
                let to = all.reshape_to(&[world, line.numel]);
                let to = to.narrow(0, ranks.start, ranks.len()).narrow(1, start, length);
                match grad {
                    Some(grad) => {
                        let grad = grad.reshape_to(&[chunks.numel()]);
                        let from = grad.narrow(0, of_whole, length * ranks.len());
                        to.copy_(&from.reshape_to(&[ranks.len(), length]));
                    }
                    None => _ = to.fill_(0.0),
                }
            });
        }
        all
    }
}

impl Member {
    /// The whole's storage, if some tensor still has it.
    fn storage(&self) -> Option<Storage> {
        self.storage.lock().as_ref().and_then(WeakStorage::upgrade)
    }
}

/// Calls `f` for all chunks at once where they are of one size, else for each that has elements: where it begins in the
/// whole and in a line, its length, and the ranks.
fn each_chunk(
    chunks: &Chunks,
    world: usize,
    mut f: impl FnMut(usize, usize, usize, std::ops::Range<usize>),
) {
    if chunks.numel() == 0 {
        return;
    }
    if chunks.is_even(world) {
        return f(0, chunks.start, chunks.numel_of(0), 0..world);
    }
    for rank in 0..world {
        let numel = chunks.numel_of(rank);
        if numel > 0 {
            f(chunks.offset_of(rank), chunks.start, numel, rank..rank + 1);
        }
    }
}
