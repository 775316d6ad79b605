//! All that a run needs to go on, saved and loaded in one call each.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RunDir;
use super::finite::check_before_save;
use crate::checkpoint::{Checkpoint, CheckpointDir, SCORE, TensorMap, words};
use crate::data::{DataLoader, Dataset, LoaderState};
use crate::distributed::ProcessGroup;
use crate::error::{Error, Result};
use crate::nn::Module;
use crate::ops::random::{GeneratorState, default_generator};
use crate::optim::lr_scheduler::LRScheduler;
use crate::optim::{GradScaler, Optimizer, OptimizerState};
use crate::profiler::Phase;
use crate::tensor::Tensor;

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
        self.part(name, Moments(optimizer))
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

    /// Saves rank 0's parts and every rank's random state as the checkpoint of `step`, and returns on all ranks when it
    /// is on disk. Collective.
    ///
    /// # Errors
    /// The same on all ranks: [`Error::Other`] for weights that are not finite; otherwise as
    /// [`CheckpointDir::save`].
    #[track_caller]
    pub fn save(
        mut self,
        checkpoints: &CheckpointDir,
        step: u64,
        group: &ProcessGroup,
    ) -> Result<PathBuf> {
        let _phase = Phase::checkpoint();
        let mut rng: Vec<GeneratorState> =
            group.all_gather_object(&default_generator().get_state())?;
        if rng.iter().all(|state| *state == rng[0]) {
            rng.truncate(1);
        }
        let own = Own { step, world_size: group.world_size(), rng };
        let parts = self.parts.iter_mut().filter(|(name, _)| !self.without.contains(name));
        parts.map(|(_, part)| part).try_for_each(|part| part.gather())?;
        let mine = match group.rank() {
            0 => self.to_checkpoint(own).and_then(|checkpoint| checkpoints.save(step, &checkpoint)),
            _ => Ok(PathBuf::new()),
        };
        let outcome = mine.as_ref().map(drop).map_err(Error::to_string);
        let outcome: std::result::Result<(), String> = group.broadcast_object(Some(&outcome), 0)?;
        mine?;
        outcome.map_err(|why| Error::Other(format!("rank 0 has not saved step {step}: {why}")))?;
        Ok(checkpoints.at(step))
    }

    fn to_checkpoint(&self, own: Own) -> Result<Checkpoint> {
        let mut checkpoint = Checkpoint::new().with_value(OWN, &own)?;
        for (name, part) in self.parts.iter().filter(|(name, _)| !self.without.contains(name)) {
            let Saved { tensors, value, are_weights } = part.save(name)?;
            if let Some(tensors) = tensors {
                if are_weights && !self.allow_not_finite {
                    check_before_save(name, tensors.iter().map(|(name, t)| (name.as_str(), t)))?;
                }
                checkpoint = checkpoint.with_tensors(name, tensors);
            }
            if let Some(value) = value {
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

    /// Brings all parts where the checkpoint has them, and this rank's random state.
    ///
    /// # Errors
    /// [`Error::File`] for a part that the checkpoint does not have, and for one that it has and this state does not:
    /// nothing has changed then. Otherwise as the parts' `load_state_dict`.
    pub fn load(mut self, checkpoint: &Checkpoint, group: &ProcessGroup) -> Result<Resumed> {
        let own: Own = checkpoint.value(OWN)?;
        self.check_names(checkpoint)?;
        let mut at = Resumed { step: own.step, world_size: own.world_size, samples_read_again: 0 };
        for (name, part) in self.parts.iter_mut().filter(|(name, _)| !self.without.contains(name)) {
            at.samples_read_again = at.samples_read_again.max(part.load(name, checkpoint, group)?);
        }
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

/// What a part has to be saved.
#[derive(Default)]
struct Saved {
    tensors: Option<TensorMap>,
    value: Option<Value>,
    are_weights: bool,
}

impl Saved {
    fn value(value: Value) -> Result<Self> {
        Ok(Saved { value: Some(value), ..Default::default() })
    }
}

/// A part of a state.
trait Part {
    fn save(&self, name: &str) -> Result<Saved>;

    /// Brings to rank 0 what other ranks have. All ranks call it before that one saves.
    fn gather(&mut self) -> Result<()> {
        Ok(())
    }

    /// Gives the number of samples that are read again.
    fn load(&mut self, name: &str, from: &Checkpoint, group: &ProcessGroup) -> Result<usize>;
}

struct Weights<'a>(&'a dyn Module);

/// Rank 0 writes what it has, which is a part of what is sharded.
fn whole(name: &str, parameters: &[Tensor]) -> Result<()> {
    match parameters.iter().find(|parameter| parameter.is_sharded()) {
        None => Ok(()),
        Some(parameter) => Err(Error::argument(
            "TrainState",
            name,
            format!(
                "has a parameter that `fully_shard` has sharded, of which rank 0 has {:?} alone: one rank cannot save it",
                parameter.shape()
            ),
        )),
    }
}

impl Part for Weights<'_> {
    fn save(&self, name: &str) -> Result<Saved> {
        whole(name, &self.0.parameters())?;
        let tensors = Some(self.0.state_dict().into_iter().collect());
        Ok(Saved { tensors, are_weights: true, ..Default::default() })
    }

    fn load(&mut self, name: &str, from: &Checkpoint, _: &ProcessGroup) -> Result<usize> {
        whole(name, &self.0.parameters())?;
        self.0.load_state_dict(from.tensors(name)?, true)?;
        Ok(0)
    }
}

struct Moments<'a>(&'a mut dyn Optimizer);

impl Part for Moments<'_> {
    fn gather(&mut self) -> Result<()> {
        self.0.consolidate_state_dict(0)
    }

    fn save(&self, name: &str) -> Result<Saved> {
        whole(name, &self.0.parameters())?;
        let (tensors, options) = self.0.state_dict().split();
        Ok(Saved { tensors: Some(tensors), value: Some(options), ..Default::default() })
    }

    fn load(&mut self, name: &str, from: &Checkpoint, _: &ProcessGroup) -> Result<usize> {
        let options: Value = from.value(name)?;
        self.0.load_state_dict(&OptimizerState::join(from.tensors(name)?, &options)?)?;
        Ok(0)
    }
}

struct Schedule<'a>(&'a mut dyn LRScheduler);

impl Part for Schedule<'_> {
    fn save(&self, _: &str) -> Result<Saved> {
        Saved::value(self.0.state_dict())
    }

    fn load(&mut self, name: &str, from: &Checkpoint, _: &ProcessGroup) -> Result<usize> {
        self.0.load_state_dict(&from.value(name)?)?;
        Ok(0)
    }
}

struct Scale<'a>(&'a mut GradScaler);

impl Part for Scale<'_> {
    fn save(&self, _: &str) -> Result<Saved> {
        Saved::value(self.0.state_dict())
    }

    fn load(&mut self, name: &str, from: &Checkpoint, _: &ProcessGroup) -> Result<usize> {
        let state: Value = from.value(name)?;
        if state.as_object().is_some_and(|state| !state.is_empty()) {
            self.0.load_state_dict(&state)?;
        }
        Ok(0)
    }
}

struct Place<'a, D: Dataset>(&'a DataLoader<D>);

impl<D: Dataset> Part for Place<'_, D> {
    fn save(&self, name: &str) -> Result<Saved> {
        Saved::value(json_of(name, &self.0.state_dict())?)
    }

    fn load(&mut self, name: &str, from: &Checkpoint, group: &ProcessGroup) -> Result<usize> {
        let state: LoaderState = from.value(name)?;
        let again = state.position % group.world_size();
        if again == 0 {
            return self.0.load_state_dict(&state).map(|()| 0);
        }
        // A loader that is not divided among the ranks can go on from any place.
        if self.0.load_state_dict(&state).is_ok() {
            return Ok(0);
        }
        let position = state.position - again;
        self.0.load_state_dict(&LoaderState { position, ..state })?;
        Ok(again)
    }
}

struct Kept<'a, T>(&'a mut T);

impl<T: Serialize + DeserializeOwned> Part for Kept<'_, T> {
    fn save(&self, name: &str) -> Result<Saved> {
        let value = json_of(name, self.0)?;
        // Found now, and not by the run that is to go on.
        if let Err(why) = words::from_value::<T>(&value) {
            let what = format!("cannot be read back from JSON: {why}");
            return Err(Error::argument("TrainState::save", name, what));
        }
        Saved::value(value)
    }

    fn load(&mut self, name: &str, from: &Checkpoint, _: &ProcessGroup) -> Result<usize> {
        *self.0 = from.value(name)?;
        Ok(0)
    }
}

fn json_of(name: &str, value: &impl Serialize) -> Result<Value> {
    words::to_value(value)
        .map_err(|why| Error::argument("TrainState::save", name, format!("cannot be JSON: {why}")))
}
