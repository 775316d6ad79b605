//! All that a run needs to go on, saved and loaded in one call each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::RunDir;
use super::finite::check_before_save;
use super::parts::{Kept, Moments, Part, Place, Saved, Scale, Schedule, Weights};
use crate::checkpoint::distributed::{self, AsyncCheckpointer, Shard, State};
use crate::checkpoint::{Checkpoint, CheckpointDir, SCORE};
use crate::data::{DataLoader, Dataset};
use crate::distributed::ProcessGroup;
use crate::error::{Error, Result};
use crate::nn::Module;
use crate::ops::random::{GeneratorState, default_generator};
use crate::optim::lr_scheduler::LRScheduler;
use crate::optim::{GradScaler, Optimizer};
use crate::profiler::{Phase, notes};

/// What the kit itself adds to a checkpoint.
const OWN: &str = "train_state";

/// Names that parts cannot have.
const RESERVED: [&str; 2] = [OWN, SCORE];

/// All that a run needs to go on. It is made where it is used, of what the loop has, and lives as long as the call:
///
/// ```
/// use torchrs::data::datasets::Synthetic;
/// use torchrs::prelude::*;
/// use torchrs::train::{RunDir, RunDirOptions, TrainState};
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = RunDirOptions { runs: folder.path().to_owned(), ..Default::default() };
/// let group = distributed::init_process_group(Default::default())?;
/// let run = RunDir::agree("net", &options, &group)?;
/// let model = nn::Linear::new(2, 1);
/// let mut optimizer = optim::AdamW::new(model.parameters(), Default::default());
/// let loader = DataLoader::builder(Synthetic::new(8)).batch_size(4).build()?;
/// let mut epoch = 0;
/// macro_rules! state {
///     () => {
///         TrainState::new().model(&model).optimizer(&mut optimizer).loader(&loader).value("epoch", &mut epoch)
///     };
/// }
/// state!().resume(&run, &group)?;
/// for step in 1..=3 {
///     // ...
///     state!().save(run.checkpoints(), step, &group)?;
/// }
/// # let weight = model.weight.detach().clone_contiguous();
/// # no_grad(|| _ = model.weight.fill_(0.0));
/// # let run = RunDir::agree("net", &RunDirOptions { resume: true, ..options }, &group)?;
/// # assert_eq!(state!().resume(&run, &group)?.expect("it goes on").step, 3);
/// # assert!(model.weight.equal(&weight));
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// The random state of every rank is always part of it. A step that is computed from a part stands before the call, as
/// `let step = epoch * steps;`: the call borrows its parts.
///
/// A part that only one side has, the checkpoint or the program, is an error that names it: it would be forgotten
/// silently. [`without`](Self::without) says that this is meant.
#[derive(Default)]
#[must_use = "it is saved by `save`, loaded by `load` or `resume`"]
pub struct TrainState<'a> {
    parts: Vec<(String, Box<dyn Part + 'a>)>,
    without: BTreeSet<String>,
    score: Option<f64>,
    allow_not_finite: bool,
    sharded: bool,
}

/// Where a run goes on.
///
/// ```
/// # use torchrs::checkpoint::CheckpointDir;
/// # use torchrs::train::TrainState;
/// # let folder = tempfile::tempdir().unwrap();
/// # let group = torchrs::distributed::init_process_group(Default::default())?;
/// # let checkpoints = CheckpointDir::new(folder.path(), 1);
/// let saved = TrainState::new().save(&checkpoints, 5, &group)?;
/// let resumed = TrainState::new().load(&torchrs::checkpoint::Checkpoint::load(saved)?, &group)?;
/// assert_eq!((resumed.step, resumed.world_size, resumed.samples_read_again), (5, 1, 0));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resumed {
    /// The step of the checkpoint.
    pub step: u64,
    /// How many ranks saved it.
    pub world_size: usize,
    /// Samples that a loader reads once more, since its position does not divide among as many ranks as there are now:
    /// fewer than there are ranks.
    pub samples_read_again: usize,
}

#[derive(Serialize, Deserialize)]
struct Own {
    step: u64,
    world_size: usize,
    /// By rank; one where all have the same.
    rng: Vec<GeneratorState>,
}

impl<'a> TrainState<'a> {
    /// Of the random state alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// The model, as `model`. Inside of `DistributedDataParallel` it has the names that it has alone: give `&*ddp`.
    #[track_caller]
    pub fn model(self, model: &'a dyn Module) -> Self {
        self.module("model", model)
    }

    /// The moving average of the model (`AveragedModel`), as `ema`.
    #[track_caller]
    pub fn ema(self, average: &'a dyn Module) -> Self {
        self.module("ema", average)
    }

    /// A module by a name of its own, where there are several.
    #[track_caller]
    pub fn module(self, name: &str, module: &'a dyn Module) -> Self {
        self.part(name, Weights(module))
    }

    /// The optimizer, as `optimizer`.
    #[track_caller]
    pub fn optimizer(self, optimizer: &'a mut dyn Optimizer) -> Self {
        self.named_optimizer("optimizer", optimizer)
    }

    /// An optimizer by a name of its own, where there are several.
    #[track_caller]
    pub fn named_optimizer(self, name: &str, optimizer: &'a mut dyn Optimizer) -> Self {
        self.part(name, Moments::new(optimizer))
    }

    /// The schedule of the learning rate, as `schedule`.
    #[track_caller]
    pub fn schedule(self, schedule: &'a mut dyn LRScheduler) -> Self {
        self.part("schedule", Schedule(schedule))
    }

    /// The loss scaler, as `scaler`. One that is not enabled has no state: a run that had none before begins with a
    /// new one.
    #[track_caller]
    pub fn scaler(self, scaler: &'a mut GradScaler) -> Self {
        self.part("scaler", Scale(scaler))
    }

    /// The loader's place in its data, as `loader`. Another number of ranks goes on from the last place that all have
    /// reached.
    #[track_caller]
    pub fn loader<D: Dataset>(self, loader: &'a DataLoader<D>) -> Self {
        self.part("loader", Place(loader))
    }

    /// A value of one's own: what `value` is when saved, and becomes when loaded. Rank 0's is saved, and all ranks get
    /// it.
    #[track_caller]
    pub fn value<T: Serialize + DeserializeOwned>(self, name: &str, value: &'a mut T) -> Self {
        self.part(name, Kept(value))
    }

    /// Leaves out a part: it is not loaded though the checkpoint may have it, or may be missing there.
    pub fn without(mut self, name: &str) -> Self {
        self.without.insert(name.to_owned());
        self
    }

    /// How good the state is, for [`CheckpointDir::keep_best`].
    pub fn score(mut self, score: f64) -> Self {
        self.score = Some(score);
        self
    }

    /// Saves weights that are not finite as well, such as masks with infinities. Otherwise they are an error.
    pub fn allow_not_finite(mut self) -> Self {
        self.allow_not_finite = true;
        self
    }

    /// Saves as [`checkpoint::distributed`](distributed) does, also where nothing is sharded: each rank writes a share of
    /// what all have.
    pub fn sharded(mut self) -> Self {
        self.sharded = true;
        self
    }

    #[track_caller]
    fn part(mut self, name: &str, part: impl Part + 'a) -> Self {
        let why = if RESERVED.contains(&name) {
            "is the kit's own"
        } else if self.parts.iter().any(|(other, _)| other == name) {
            "is there already"
        } else {
            self.parts.push((name.to_owned(), Box::new(part)));
            return self;
        };
        crate::error::throw(Error::argument(
            "TrainState",
            "name",
            format!("`{name}` {why}; each part has its own name"),
        ))
    }

    /// Saves all parts and every rank's random state as the checkpoint of `step`, and returns on all ranks when it is on
    /// disk. Collective. Rank 0 writes it, unless something is [sharded](Self::sharded).
    ///
    /// # Errors
    /// The same on all ranks: [`Error::Other`] for weights that are not finite, [`Error::Argument`] where ranks name other
    /// places or steps; otherwise as
    /// [`CheckpointDir::save`] and [`checkpoint::distributed::save`](distributed::save).
    #[track_caller]
    pub fn save(
        mut self,
        checkpoints: &CheckpointDir,
        step: u64,
        group: &ProcessGroup,
    ) -> Result<PathBuf> {
        let _phase = Phase::checkpoint();
        let path = checkpoints.at(step);
        if self.sharded || self.taken().any(|(_, part)| part.is_sharded()) {
            let state = self.to_state(step, &path, group)?;
            notes::saving(step, || distributed::save(&state, &path, group))?;
            distributed::follow(group, "removing old checkpoints", || checkpoints.prune(step))?;
            return Ok(path);
        }
        let own = Own::of(step, &path, group)?;
        self.taken_mut().try_for_each(|(_, part)| part.gather())?;
        let what = format!("saving step {step}");
        distributed::follow(group, &what, || {
            checkpoints.save(step, &self.to_checkpoint(own)?).map(drop)
        })?;
        Ok(path)
    }

    /// As [`save`](Self::save), each rank its part, but returns when all is copied to other memory of the host, from
    /// where a process in the background writes it. A save that is still going on is waited for. Collective.
    ///
    /// # Errors
    /// That of the save before, whose checkpoint is not there then; otherwise as [`save`](Self::save). What goes wrong in
    /// the background is known to the next call, and to [`AsyncCheckpointer::wait`].
    #[track_caller]
    pub fn async_save(
        self,
        checkpointer: &mut AsyncCheckpointer,
        checkpoints: &CheckpointDir,
        step: u64,
        group: &ProcessGroup,
    ) -> Result<PathBuf> {
        let _phase = Phase::checkpoint();
        let path = checkpoints.at(step);
        let state = self.to_state(step, &path, group)?;
        let checkpoints = checkpoints.clone();
        let then = move || notes::saving(step, || checkpoints.prune(step));
        checkpointer.save_then(&state, &path, then)?;
        Ok(path)
    }

    fn taken(&self) -> impl Iterator<Item = (&str, &(dyn Part + 'a))> {
        let parts = self.parts.iter().filter(|(name, _)| !self.without.contains(name));
        parts.map(|(name, part)| (name.as_str(), &**part))
    }

    fn taken_mut(&mut self) -> impl Iterator<Item = (&str, &mut (dyn Part + 'a))> {
        let parts = self.parts.iter_mut().filter(|(name, _)| !self.without.contains(name));
        parts.map(|(name, part)| (name.as_str(), &mut **part))
    }

    /// What this rank has of all parts. Values are those of all ranks. Collective.
    fn to_state(&self, step: u64, path: &Path, group: &ProcessGroup) -> Result<State> {
        let own = Own::of(step, path, group)?;
        let parts = |(name, part): (&str, &(dyn Part + 'a))| {
            let saved = part.own(name)?;
            self.check(name, &saved)?;
            Ok((name.to_owned(), saved))
        };
        let mut saved: Result<Vec<(String, Saved)>> = self.taken().map(parts).collect();
        let partial = |saved: &Vec<(String, Saved)>| -> Vec<Option<String>> {
            saved.iter().map(|(_, saved)| saved.partial_value()).collect()
        };
        let mine = saved.as_ref().map(partial).map_err(Error::clone);
        let values = distributed::agree(group, &format!("saving step {step}"), mine)?;
        let mut state = State::new().with_value(OWN, &own)?;
        for (place, (name, saved)) in saved.iter_mut().flatten().enumerate() {
            saved.complete(values.iter().filter_map(|values| values.get(place)?.as_deref()))?;
            if let Some(tensors) = saved.tensors.take() {
                state = state.with_group(name, tensors)?;
            }
            if let Some(value) = &saved.value {
                state = state.with_value(name, value)?;
            }
        }
        match self.score {
            Some(score) => state.with_score(score),
            None => Ok(state),
        }
    }

    fn check(&self, name: &str, saved: &Saved) -> Result<()> {
        match &saved.tensors {
            Some(tensors) if saved.are_weights && !self.allow_not_finite => {
                check_before_save(name, tensors.iter().map(|(name, t)| (name.as_str(), t.tensor())))
            }
            _ => Ok(()),
        }
    }

    fn to_checkpoint(&self, own: Own) -> Result<Checkpoint> {
        let mut checkpoint = Checkpoint::new().with_value(OWN, &own)?;
        for (name, part) in self.taken() {
            let saved = part.whole(name)?;
            self.check(name, &saved)?;
            if let Some(tensors) = saved.tensors {
                let tensors = tensors.into_iter().map(|(name, t)| (name, t.tensor().clone()));
                checkpoint = checkpoint.with_tensors(name, tensors.collect());
            }
            if let Some(value) = saved.value {
                checkpoint = checkpoint.with_value(name, &value)?;
            }
        }
        match self.score {
            Some(score) => checkpoint.with_score(score),
            None => Ok(checkpoint),
        }
    }

    /// [`load`](Self::load)s the checkpoint that the run goes on from; `None` for a run that begins. Collective.
    ///
    /// # Errors
    /// As [`Checkpoint::load`] and [`load`](Self::load).
    #[track_caller]
    pub fn resume(self, run: &RunDir, group: &ProcessGroup) -> Result<Option<Resumed>> {
        match run.load()? {
            Some(checkpoint) => self.load(&checkpoint, group).map(Some),
            None => Ok(None),
        }
    }

    /// Brings all parts where the checkpoint has them, and this rank's random state. Collective: each rank reads its parts
    /// of what is sharded, whatever ranks have saved it.
    ///
    /// # Errors
    /// The same on all ranks. [`Error::File`] for a part that the checkpoint does not have, and for one that it has and
    /// this state does not: nothing has changed then. Otherwise as [`distributed::load`] and the parts'
    /// `load_state_dict`.
    pub fn load(mut self, checkpoint: &Checkpoint, group: &ProcessGroup) -> Result<Resumed> {
        let index = checkpoint.index();
        let what = format!("loading {}", index.path.display());
        let own = checkpoint.value::<Own>(OWN).and_then(|own| {
            self.check_names(checkpoint)?;
            Ok(own)
        });
        let wanted = own.and_then(|own| {
            let mut wanted = Vec::new();
            self.taken_mut().try_for_each(|(name, part)| {
                wanted.extend(part.wanted(name, &index)?);
                Ok(())
            })?;
            let named: Vec<(&str, &Shard)> = wanted.iter().map(|(n, s)| (n.as_str(), s)).collect();
            distributed::check(&index, &named)?;
            Ok((own, wanted))
        });
        let (own, wanted) = distributed::all_have(group, &what, wanted)?;
        let named: Vec<(&str, &Shard)> = wanted.iter().map(|(n, s)| (n.as_str(), s)).collect();
        distributed::read(&index, &named, group)?;
        let mut at = Resumed { step: own.step, world_size: own.world_size, samples_read_again: 0 };
        let mut parts = self.taken_mut();
        let outcome = parts.try_for_each(|(name, part)| {
            at.samples_read_again = at.samples_read_again.max(part.take(name, checkpoint, group)?);
            Ok(())
        });
        distributed::all_have(group, &what, outcome)?;
        default_generator().set_state(own.of_rank(group.rank()));
        Ok(at)
    }

    fn check_names(&self, checkpoint: &Checkpoint) -> Result<()> {
        let saved: BTreeSet<&str> =
            checkpoint.tensor_groups().chain(checkpoint.value_names()).collect();
        let mine = |name: &str| self.parts.iter().any(|(part, _)| part == name);
        let left_out = |name: &str| self.without.contains(name) || RESERVED.contains(&name);
        let error = |what: String| {
            let parts: Vec<&str> =
                saved.iter().copied().filter(|name| !RESERVED.contains(name)).collect();
            Err(Error::file(checkpoint.path(), format!("{what}; it has {parts:?}")))
        };
        if let Some(name) = saved.iter().find(|name| !mine(name) && !left_out(name)) {
            return error(format!(
                "has `{name}`, which this TrainState does not name and would not bring back: add it, or say \
                 `.without(\"{name}\")`"
            ));
        }
        let missing = self.parts.iter().map(|(name, _)| name.as_str());
        match missing.filter(|name| !left_out(name)).find(|name| !saved.contains(name)) {
            Some(name) => error(format!(
                "does not have `{name}`, which this TrainState names: the run was saved without it; leave it out, or \
                 say `.without(\"{name}\")`"
            )),
            None => Ok(()),
        }
    }
}

impl Own {
    /// Collective. All ranks save to the same place.
    fn of(step: u64, path: &Path, group: &ProcessGroup) -> Result<Self> {
        let told = group.all_gather_object(&(default_generator().get_state(), path.to_owned()))?;
        let (mut rng, paths): (Vec<GeneratorState>, Vec<PathBuf>) = told.into_iter().unzip();
        distributed::check_paths("TrainState::save", "checkpoints", &paths)?;
        if rng.iter().all(|state| *state == rng[0]) {
            rng.truncate(1);
        }
        Ok(Own { step, world_size: group.world_size(), rng })
    }

    /// The state of a rank that was there, or a state that no rank has.
    fn of_rank(&self, rank: usize) -> GeneratorState {
        match self.rng[..] {
            [all] => all,
            _ => self.rng.get(rank).copied().unwrap_or_else(|| {
                let seed = self.rng[0].seed ^ (rank as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                GeneratorState { seed, offset: 0 }
            }),
        }
    }
}
