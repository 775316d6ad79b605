//! The parts of a training state: what each has to be saved, and how it is brought back.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::checkpoint::distributed::{Index, Shard};
use crate::checkpoint::{Checkpoint, TensorMap, words};
use crate::data::{DataLoader, Dataset, LoaderState};
use crate::distributed::{ProcessGroup, join_some};
use crate::error::{Error, Result};
use crate::nn::{Module, saved_tensors};
use crate::optim::lr_scheduler::LRScheduler;
use crate::optim::{GradScaler, Optimizer, OptimizerState};
use crate::tensor::Tensor;

/// What a part has to be saved.
#[derive(Default)]
pub(super) struct Saved {
    pub tensors: Option<BTreeMap<String, Shard>>,
    pub value: Option<Value>,
    pub are_weights: bool,
    /// Other ranks have other numbers in the value's `state`.
    is_partial: bool,
}

impl Saved {
    fn value(value: Value) -> Result<Self> {
        Ok(Saved { value: Some(value), ..Default::default() })
    }

    /// What other ranks need of the value, as JSON.
    pub fn partial_value(&self) -> Option<String> {
        let value = self.value.as_ref().filter(|_| self.is_partial)?;
        Some(value["state"].to_string())
    }

    /// Takes the numbers of all ranks, which [`partial_value`](Self::partial_value) gave.
    pub fn complete<'a>(&mut self, all: impl Iterator<Item = &'a str>) -> Result<()> {
        let Some(value) = self.value.as_mut().filter(|_| self.is_partial) else { return Ok(()) };
        for other in all {
            let other: Vec<Value> = serde_json::from_str(other)
                .map_err(|why| Error::Other(format!("an optimizer's numbers: {why}")))?;
            for (own, other) in value["state"].as_array_mut().into_iter().flatten().zip(other) {
                if own.as_object().is_some_and(|own| own.is_empty()) {
                    *own = other;
                }
            }
        }
        Ok(())
    }
}

/// A part of a state.
pub(super) trait Part {
    /// Whether ranks have different parts of it.
    fn is_sharded(&self) -> bool {
        false
    }

    /// What this rank has of it.
    fn own(&self, name: &str) -> Result<Saved>;

    /// All of it, on rank 0, when all have called [`gather`](Self::gather).
    fn whole(&self, name: &str) -> Result<Saved> {
        self.own(name)
    }

    /// Brings to rank 0 what other ranks have.
    fn gather(&mut self) -> Result<()> {
        Ok(())
    }

    /// The tensors of the checkpoint that this rank needs, and where they are to be.
    fn wanted(&mut self, name: &str, index: &Index) -> Result<Vec<(String, Shard)>> {
        let _ = (name, index);
        Ok(Vec::new())
    }

    /// Takes its value when its tensors are there. Gives the number of samples that are read again.
    fn take(&mut self, name: &str, from: &Checkpoint, group: &ProcessGroup) -> Result<usize>;
}

pub(super) struct Weights<'a>(pub(super) &'a dyn Module);

impl Part for Weights<'_> {
    fn is_sharded(&self) -> bool {
        self.0.parameters().iter().any(Tensor::is_sharded)
    }

    fn own(&self, _: &str) -> Result<Saved> {
        let shards = |(name, tensor)| (name, Shard::from(tensor));
        let tensors = Some(saved_tensors(self.0).into_iter().map(shards).collect());
        Ok(Saved { tensors, are_weights: true, ..Default::default() })
    }

    fn wanted(&mut self, name: &str, index: &Index) -> Result<Vec<(String, Shard)>> {
        let wanted: Vec<(String, Shard)> = saved_tensors(self.0)
            .into_iter()
            .map(|(own, tensor)| (format!("{name}.{own}"), Shard::from(tensor)))
            .collect();
        let mine: BTreeSet<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
        let theirs: BTreeSet<&str> = in_group(index, name).map(|(full, _)| full).collect();
        let list = |names: Vec<&&str>| {
            join_some(names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().iter(), ", ")
        };
        let missing = mine.difference(&theirs).collect::<Vec<_>>();
        let unexpected = theirs.difference(&mine).collect::<Vec<_>>();
        let what = match (missing.is_empty(), unexpected.is_empty()) {
            (true, true) => return Ok(wanted),
            (false, true) => format!("does not have {}, which the module has", list(missing)),
            (true, false) => format!("has {}, which the module does not have", list(unexpected)),
            (false, false) => format!(
                "does not have {}, which the module has; it has {}, which the module does not have",
                list(missing),
                list(unexpected)
            ),
        };
        Err(Error::file(&index.path, what))
    }

    fn take(&mut self, _: &str, _: &Checkpoint, _: &ProcessGroup) -> Result<usize> {
        Ok(0)
    }
}

/// The tensors of a group: their names in the index, and in the group.
fn in_group<'a>(index: &'a Index, group: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    index
        .tensors
        .keys()
        .filter_map(move |name| Some((name.as_str(), name.strip_prefix(group)?.strip_prefix('.')?)))
}

/// An optimizer, and what was read for it.
pub(super) struct Moments<'a> {
    optimizer: &'a mut dyn Optimizer,
    read: TensorMap,
}

impl<'a> Moments<'a> {
    pub fn new(optimizer: &'a mut dyn Optimizer) -> Self {
        Moments { optimizer, read: TensorMap::new() }
    }

    fn saved(&self, state: OptimizerState) -> Saved {
        let parameters = self.optimizer.parameters();
        let (tensors, value) = state.split();
        let shard = |(name, tensor): (String, Tensor)| {
            let shard = match place_of(&name).and_then(|place| parameters.get(place)) {
                Some(parameter) => Shard::from(parameter.clone()).like(tensor),
                None => Shard::from(tensor),
            };
            (name, shard)
        };
        let tensors = Some(tensors.into_iter().map(shard).collect());
        Saved { tensors, value: Some(value), ..Default::default() }
    }
}

/// The place of the parameter that an entry `<place>.<entry>` is of.
fn place_of(name: &str) -> Option<usize> {
    name.split_once('.')?.0.parse().ok()
}

impl Part for Moments<'_> {
    fn is_sharded(&self) -> bool {
        self.optimizer.parameters().iter().any(Tensor::is_sharded)
    }

    fn own(&self, _: &str) -> Result<Saved> {
        let count = self.optimizer.parameters().len();
        let is_partial = (0..count).any(|place| !self.optimizer.has_state_of(place));
        Ok(Saved { is_partial, ..self.saved(self.optimizer.local_state_dict()) })
    }

    fn whole(&self, _: &str) -> Result<Saved> {
        Ok(self.saved(self.optimizer.state_dict()))
    }

    fn gather(&mut self) -> Result<()> {
        self.optimizer.consolidate_state_dict(0)
    }

    fn wanted(&mut self, name: &str, index: &Index) -> Result<Vec<(String, Shard)>> {
        let parameters = self.optimizer.parameters();
        let mut wanted = Vec::new();
        for (full, own) in in_group(index, name) {
            let entry = index.entry(full)?;
            let place = place_of(own);
            if place.is_some_and(|place| {
                place < parameters.len() && !self.optimizer.has_state_of(place)
            }) {
                continue;
            }
            let parameter = place.and_then(|place| parameters.get(place)).cloned().map(Shard::from);
            let like = parameter.filter(|parameter| parameter.shape() == entry.shape);
            let shape = like.as_ref().map_or(&entry.shape[..], |like| like.tensor().shape());
            let tensor = crate::error::catch(|| Tensor::zeros(shape, entry.dtype))?;
            self.read.insert(own.to_owned(), tensor.clone());
            let shard =
                like.map_or_else(|| Shard::from(tensor.clone()), |like| like.like(tensor.clone()));
            wanted.push((full.to_owned(), shard));
        }
        Ok(wanted)
    }

    fn take(&mut self, name: &str, from: &Checkpoint, _: &ProcessGroup) -> Result<usize> {
        let options: Value = from.value(name)?;
        let state = OptimizerState::join(&std::mem::take(&mut self.read), &options)?;
        self.optimizer.load_state_dict(&state)?;
        Ok(0)
    }
}

pub(super) struct Schedule<'a>(pub(super) &'a mut dyn LRScheduler);

impl Part for Schedule<'_> {
    fn own(&self, _: &str) -> Result<Saved> {
        Saved::value(self.0.state_dict())
    }

    fn take(&mut self, name: &str, from: &Checkpoint, _: &ProcessGroup) -> Result<usize> {
        self.0.load_state_dict(&from.value(name)?)?;
        Ok(0)
    }
}

pub(super) struct Scale<'a>(pub(super) &'a mut GradScaler);

impl Part for Scale<'_> {
    fn own(&self, _: &str) -> Result<Saved> {
        Saved::value(self.0.state_dict())
    }

    fn take(&mut self, name: &str, from: &Checkpoint, _: &ProcessGroup) -> Result<usize> {
        let state: Value = from.value(name)?;
        if state.as_object().is_some_and(|state| !state.is_empty()) {
            self.0.load_state_dict(&state)?;
        }
        Ok(0)
    }
}

pub(super) struct Place<'a, D: Dataset>(pub(super) &'a DataLoader<D>);

impl<D: Dataset> Part for Place<'_, D> {
    fn own(&self, name: &str) -> Result<Saved> {
        Saved::value(json_of(name, &self.0.state_dict())?)
    }

    fn take(&mut self, name: &str, from: &Checkpoint, group: &ProcessGroup) -> Result<usize> {
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

pub(super) struct Kept<'a, T>(pub(super) &'a mut T);

impl<T: Serialize + DeserializeOwned> Part for Kept<'_, T> {
    fn own(&self, name: &str) -> Result<Saved> {
        let value = json_of(name, self.0)?;
        // Found now, and not by the run that is to go on.
        if let Err(why) = words::from_value::<T>(&value) {
            let what = format!("cannot be read back from JSON: {why}");
            return Err(Error::argument("TrainState::save", name, what));
        }
        Saved::value(value)
    }

    fn take(&mut self, name: &str, from: &Checkpoint, _: &ProcessGroup) -> Result<usize> {
        *self.0 = from.value(name)?;
        Ok(0)
    }
}

fn json_of(name: &str, value: &impl Serialize) -> Result<Value> {
    words::to_value(value)
        .map_err(|why| Error::argument("TrainState::save", name, format!("cannot be JSON: {why}")))
}
