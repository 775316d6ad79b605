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
//! | coming | on their way | lent |
//! | here | lent | at the group's |
//! | parked | kept, and good unless the shard is written to | lent |
//! | partly | cut again over fewer ranks; good as long as parked ones are | lent |

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::gather::{Coming, Partly, SmallWorld};
use super::layout::{Chunks, Line};
use super::order::{self, Next, Pass};
use super::present;
use crate::amp::Suspended;
use crate::autograd::{Together, WeakTensor, no_grad};
use crate::cuda::{Event, Stream, graph};
use crate::distributed::{Origin, ProcessGroup, Readers, ReduceOp, Run, Work, join_some};
use crate::error::{Error, Result, throw};
use crate::nn::parallel::ddp::Registered;
use crate::storage::on_demand::Brings;
use crate::storage::{Device, Storage, WeakStorage};
use crate::tensor::{Dtype, Layout, Tensor};

/// The parameters of one module over the ranks of a mesh.
pub(super) struct ShardGroup {
    /// Its number in this process, in the order in which groups were made.
    pub number: usize,
    /// Its number among those over the same ranks, on which all of them agree.
    pub(super) place: u32,
    /// Between them the parameters are cut.
    pub(super) shards: ProcessGroup,
    /// The ranks that have the same part.
    pub(super) replicas: Option<ProcessGroup>,
    pub(super) lines: Vec<Parts>,
    pub(super) reduce_dtype: Option<Dtype>,
    /// Fewer ranks, over which the wholes are cut between forward and backward.
    pub(super) small: Option<SmallWorld>,
    /// Those who may be reading the shards where they are.
    pub(super) readers: Arc<Readers>,
    /// The groups of modules inside.
    pub inner: Vec<Weak<ShardGroup>>,
    pub(super) switches: Switches,
    /// What averages gradients over replicas, if it is not an all-reduce.
    pub(super) hook: OnceLock<Arc<Registered>>,
    /// What the groups over these ranks were gathered for, and which follows this one, by the direction.
    pub(super) pass: Arc<Mutex<Pass>>,
    pub(super) next: [Mutex<Next>; 2],
    pub(super) state: Mutex<State>,
    /// Gradients that are not reduced over replicas yet, one for each line.
    pub(super) partial: Mutex<Vec<Tensor>>,
}

/// What a user changes while training.
pub(super) struct Switches {
    pub reshards_after_forward: AtomicBool,
    pub reshards_after_backward: AtomicBool,
    /// Whether backward reduces gradients.
    pub syncs: AtomicBool,
    /// Whether what is reduced over the shards' ranks is reduced over replicas too.
    pub all_reduces: AtomicBool,
    /// By what gradients are divided; by default the number of ranks.
    pub divides_by: Mutex<Option<f64>>,
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
    pub(super) dtype: Dtype,
    pub(super) place: Mutex<Place>,
    pub(super) members: Vec<Member>,
}

/// Where the wholes are.
pub(super) struct Place {
    pub(super) device: Device,
    /// Where each rank's chunks go, in a memory that all ranks can read.
    pub(super) runs: Option<Vec<Run>>,
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
    /// It was gathered ahead of use, and is not used yet.
    pub(super) is_ahead: bool,
    /// What versions the shards had, of each line, when the wholes were last counted as changed; none at first.
    pub(super) counted: Vec<u32>,
    /// After it a GPU reads the shards on the host no more.
    pub(super) copied: Option<Event>,
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
    Coming(Vec<Coming>),
    Here(Vec<Whole>),
    Parked(Vec<Whole>),
    Partly(Vec<Partly>),
}

/// The bytes of a line's wholes, and what version those and the shards had.
pub(super) struct Whole {
    pub(super) memory: Storage,
    pub(super) versions: Vec<u32>,
    pub(super) shards: u32,
}

/// A line's gradients.
pub(super) struct Reducing {
    pub(super) output: Tensor,
    pub(super) work: Option<Work>,
}

/// Has a group bring its wholes.
pub(super) struct WholeSide(pub Arc<ShardGroup>);

/// Has a group give way to its shards, if it is still there.
pub(super) struct ShardSide {
    pub group: OnceLock<Weak<ShardGroup>>,
    pub flat: Tensor,
    pub readers: Arc<Readers>,
}

impl Brings for WholeSide {
    fn bring(&self, _: &Storage) {
        self.0.unshard().unwrap_or_else(|error| throw(error));
    }

    fn count_changes(&self) {
        self.0.count_changes(&mut self.0.state.lock());
    }
}

impl Brings for ShardSide {
    fn bring(&self, storage: &Storage) {
        match self.group.get().and_then(Weak::upgrade) {
            Some(group) => group.give_way().unwrap_or_else(|error| throw(error)),
            None => {
                self.readers.wait().unwrap_or_else(|error| throw(error));
                storage.lend(self.flat.storage(), 0);
            }
        }
    }
}

impl ShardGroup {
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
        // In the whole model, once that has named its parameters.
        let known = |member: &Member| member.shard.name_hint();
        let named = |member| format!("`{}`", known(member).as_ref().unwrap_or(&member.name));
        let names: Vec<String> = members.map(named).collect();
        join_some(names.iter(), ", ")
    }

    pub(super) fn origin(&self, what: &str) -> Origin {
        let name = format!("fully_shard's group {}, {what} {}", self.place, self.names());
        Origin::numbered(name, self.place)
    }

    /// The same of gradients: ranks have to agree on who gets one.
    pub(super) fn origin_of_gradients(&self, what: &str) -> Origin {
        let members = self.lines.iter().flat_map(|parts| &parts.members).enumerate();
        let (trained, frozen): (Vec<_>, Vec<_>) =
            members.partition(|(_, member)| member.shard.requires_grad());
        let names: Vec<String> = trained.iter().map(|(_, m)| format!("`{}`", m.name)).collect();
        let names = join_some(names.iter(), ", ");
        let mut number = self.place;
        if !frozen.is_empty() {
            // FNV: nothing that is usual has such a number.
            let mix = |sum: u32, place: u32| (sum ^ place).wrapping_mul(0x0100_0193);
            let places = frozen.iter().map(|(place, _)| *place as u32);
            number = places.fold(mix(0x811c_9dc5, number), mix).max(1);
        }
        Origin::numbered(format!("fully_shard's group {}, {what} {names}", self.place), number)
    }

    /// Gathers the wholes, if they are not there, and what follows them.
    ///
    /// # Errors
    /// Those of a collective.
    pub fn unshard(self: &Arc<Self>) -> Result<()> {
        let was_gathered = {
            let mut state = self.state.lock();
            if let Phase::Here(_) = state.phase {
                return Ok(());
            }
            let is_new = self.take_in(&mut state)?;
            std::mem::take(&mut state.is_ahead) || is_new
        };
        present::arrived(self);
        if was_gathered { order::used(self) } else { Ok(()) }
    }

    /// Lends out the wholes, which are not here. Whether they had to be gathered for that.
    fn take_in(&self, state: &mut State) -> Result<bool> {
        self.count_changes(state);
        let (wholes, is_new) = match std::mem::take(&mut state.phase) {
            Phase::Parked(wholes) if self.are_good(wholes.iter().map(|whole| whole.shards)) => {
                (wholes, false)
            }
            Phase::Coming(coming) if self.are_good(coming.iter().map(|one| one.shards)) => {
                (self.arrange(coming)?, false)
            }
            Phase::Partly(parts) if self.are_good(parts.iter().map(|part| part.shards)) => {
                self.refuse_capture()?;
                (self.arrange(self.gather_small(&parts, false)?)?, true)
            }
            _ => {
                self.refuse_capture()?;
                let coming = self.gather(state, false)?;
                (self.arrange(coming)?, true)
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
        Ok(is_new)
    }

    /// Whoever has saved a whole for backward finds it changed once its shards are written to, as it would the parameter.
    fn count_changes(&self, state: &mut State) {
        let now = self.lines.iter().map(|parts| parts.shards.version());
        if state.counted.iter().copied().eq(now.clone()) {
            return;
        }
        let before = std::mem::replace(&mut state.counted, now.collect());
        for ((parts, before), now) in self.lines.iter().zip(before).zip(&state.counted) {
            if before != *now {
                parts.members.iter().filter_map(Member::storage).for_each(|s| s.bump_version());
            }
        }
    }

    /// Starts to gather the wholes, unless that is not needed.
    ///
    /// # Errors
    /// Those of a collective.
    pub fn start_ahead(&self) -> Result<()> {
        let mut state = self.state.lock();
        let coming = match &state.phase {
            Phase::Away => None,
            Phase::Partly(parts) if self.are_good(parts.iter().map(|part| part.shards)) => {
                self.refuse_capture()?;
                Some(self.gather_small(parts, true)?)
            }
            Phase::Partly(_) => None,
            Phase::Coming(_) | Phase::Here(_) | Phase::Parked(_) => return Ok(()),
        };
        let coming = match coming {
            Some(coming) => coming,
            None => {
                self.refuse_capture()?;
                self.gather(&mut state, true)?
            }
        };
        (state.phase, state.is_ahead) = (Phase::Coming(coming), true);
        present::comes_again(self);
        Ok(())
    }

    /// Gives the wholes' memory back. What was written to them goes to the shards.
    pub fn reshard(&self) {
        let mut state = self.state.lock();
        self.go(&mut state);
    }

    /// [`reshard`](Self::reshard) between forward and backward, for which a part may stay.
    pub(super) fn reshard_after_forward(&self) {
        let mut state = self.state.lock();
        let Some(small) = self.small.as_ref().filter(|_| matches!(state.phase, Phase::Here(_)))
        else {
            return self.go(&mut state);
        };
        self.park(&mut state);
        if let Phase::Parked(wholes) = &state.phase {
            let parts = self.without_modes(|| self.cut(small, wholes));
            self.go(&mut state);
            state.phase = Phase::Partly(parts);
        }
    }

    fn go(&self, state: &mut State) {
        self.park(state);
        state.is_ahead = false;
        match &state.phase {
            Phase::Parked(wholes) if wholes.iter().any(|whole| whole.memory.may_be_recorded()) => {
                throw(Error::Device(format!(
                    "fully_shard: a graph was recorded while the parameters {} were gathered: it would go on with their \
                     memory, which is given back now; drop the graph, and replay none of sharded modules",
                    self.names()
                )));
            }
            Phase::Coming(coming) => wait(coming),
            _ => {}
        }
        state.phase = Phase::Away;
    }

    /// A graph has fixed addresses.
    fn refuse_capture(&self) -> Result<()> {
        for gpu in self.lines.iter().filter_map(|parts| parts.device().gpu()) {
            let advice = "their memory comes and goes: run sharded modules without graphs";
            let what = format_args!("fully_shard: the parameters {}", self.names());
            graph::refuse(Stream::current(gpu)?, what, advice)?;
        }
        Ok(())
    }

    /// Has the shards in the place of the wholes, which stay for later.
    fn give_way(&self) -> Result<()> {
        let mut state = self.state.lock();
        self.park(&mut state);
        if let Phase::Coming(coming) = &state.phase {
            wait(coming);
        }
        self.before_writing(&mut state)?;
        for parts in &self.lines {
            parts.shards.lend(parts.flat.storage(), 0);
        }
        Ok(())
    }

    /// Waits until nobody reads what the shards are made of.
    fn before_writing(&self, state: &mut State) -> Result<()> {
        state.copied.take().map_or(Ok(()), |copied| copied.synchronize())?;
        self.readers.wait()
    }

    fn park(&self, state: &mut State) {
        let wholes = match std::mem::take(&mut state.phase) {
            Phase::Here(wholes) => wholes,
            other => return state.phase = other,
        };
        if self.lines.iter().zip(&wholes).any(|(parts, whole)| parts.is_written(whole)) {
            self.before_writing(state).unwrap_or_else(|error| throw(error));
        }
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

    /// Whether the shards still have these versions.
    fn are_good(&self, versions: impl Iterator<Item = u32>) -> bool {
        self.lines.iter().zip(versions).all(|(parts, version)| parts.shards.version() == version)
    }

    /// Runs `f` as if no mode of the program's were set: it may be called within any op.
    pub(super) fn without_modes<T>(&self, f: impl FnOnce() -> T) -> T {
        let _f32 = Suspended::new();
        no_grad(f)
    }

    /// How many parameters get a gradient.
    pub(super) fn trained(&self) -> usize {
        let wants = |member: &&Member| member.shard.requires_grad();
        self.lines.iter().map(|parts| parts.members.iter().filter(wants).count()).sum()
    }

    /// Goes back to the state before the first step: for those who go on after an error in forward or backward.
    pub(super) fn reset(&self) {
        self.reshard();
        let mut state = self.state.lock();
        state.forget_backward();
        self.partial.lock().clear();
        for member in self.lines.iter().flat_map(|parts| &parts.members) {
            member.whole.upgrade().into_iter().for_each(|whole| whole.set_grad(None));
        }
        *self.pass.lock() = Pass::default();
    }
}

/// Waits until what is coming has come, or will not.
fn wait(coming: &[Coming]) {
    // Whoever uses it gets the error.
    coming.iter().filter_map(|one| one.work.as_ref()).for_each(|work| _ = work.wait());
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

    fn holds_back(&self) -> Option<String> {
        let is_left = |member: &Member| {
            member.shard.requires_grad()
                && member.whole.upgrade().is_some_and(|whole| whole.own_grad().is_some())
        };
        let setter = match self.lines.iter().flat_map(|parts| &parts.members).any(is_left) {
            true => "set_requires_gradient_sync",
            false if !self.partial.lock().is_empty() => "set_requires_all_reduce",
            false => return None,
        };
        Some(format!(
            "gradients of {} are not reduced yet: `{setter}(false)` holds them back; say `{setter}(true)` before the last \
             backward of a step",
            self.names()
        ))
    }

    fn forget_partial(&self) {
        self.partial.lock().clear();
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
}

impl Parts {
    /// Where the wholes are.
    pub(super) fn device(&self) -> Device {
        self.place.lock().device
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&Member, &Chunks)> {
        self.members.iter().zip(&self.line.chunks)
    }

    /// Whether something was written to the wholes.
    fn is_written(&self, whole: &Whole) -> bool {
        let is_new = |(member, version): (&Member, &u32)| {
            member.storage().is_some_and(|storage| storage.version() != *version)
        };
        self.members.iter().zip(&whole.versions).any(is_new)
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
                no_grad(|| _ = own.copy_(&written.to_device(own.device())));
            }
        }
    }
}

impl Member {
    /// The whole's storage, if some tensor still has it.
    pub(super) fn storage(&self) -> Option<Storage> {
        self.storage.lock().as_ref().and_then(WeakStorage::upgrade)
    }
}
