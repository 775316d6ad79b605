//! An optimizer whose state is spread over ranks (`torch.distributed.optim.ZeroRedundancyOptimizer`; ZeRO stage 1:
//! Rajbhandari et al., SC 2020).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Optimizer, OptimizerState, StateValue};
use crate::autograd::no_grad;
use crate::distributed::{Origin, ProcessGroup};
use crate::error::{Error, Result, throw};
use crate::nn::parallel::verify;
use crate::profiler::{self, Category};
use crate::tensor::{Dtype, Tensor, kinds_of};

/// Steps a part of the parameters on each rank, and then gives all ranks the new values: an optimizer's state takes the
/// memory of one copy over all ranks. For models under `DistributedDataParallel`, where all ranks have the same gradients.
///
/// Each parameter has one owner, the rank with the fewest elements so far, largest parameters first. Steps give the same
/// bits as without.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::distributed::DistributedDataParallel;
/// use torchrs::nn::{Forward, Linear, Module};
/// use torchrs::optim::{AdamW, Optimizer, ZeroRedundancyOptimizer};
/// use torchrs::{Dtype, Tensor};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let model = DistributedDataParallel::new(Linear::new(4, 3), &group)?;
/// let mut optimizer = ZeroRedundancyOptimizer::new(model.parameters(), &group, |own| {
///     AdamW::new(own, Default::default())
/// })?;
/// model.forward(&Tensor::ones([2, 4], Dtype::F32)).square().mean().backward();
/// optimizer.step();
/// // One of the two parameters is this rank's.
/// assert_eq!(optimizer.own_parameters().len(), 1);
/// # Ok(())
/// # })
/// # }
/// ```
pub struct ZeroRedundancyOptimizer<O> {
    group: ProcessGroup,
    /// Among what the group communicates for.
    number: u32,
    /// Of all groups of parameters, one after the other.
    parameters: Vec<Tensor>,
    /// The number of parameters in each group.
    sizes: Vec<usize>,
    /// The rank that steps each parameter.
    owners: Vec<usize>,
    inner: O,
    /// The state of all parameters, until the next step.
    consolidated: Option<OptimizerState>,
}

impl<O: Optimizer> ZeroRedundancyOptimizer<O> {
    /// `make` gets the parameters that this rank steps, and gives an optimizer with one group of them. A rank that has
    /// none gets an empty tensor in their place. Collective.
    ///
    /// # Errors
    /// [`Error::Argument`] for no parameters, sharded ones, and an optimizer with other parameters or several groups;
    /// [`Error::Mismatch`] when ranks have other parameters; otherwise as a collective.
    #[track_caller]
    pub fn new(
        parameters: impl IntoIterator<Item = Tensor>,
        group: &ProcessGroup,
        make: impl FnOnce(Vec<Tensor>) -> O,
    ) -> Result<Self> {
        let make = |mut groups: Vec<Vec<Tensor>>| make(groups.remove(0));
        Self::with_groups([parameters.into_iter().collect()], group, make)
    }

    /// [`new`](Self::new) of several groups of parameters, such as those that decay and those that do not. `make` gets the
    /// part of each group that this rank steps, and gives an optimizer with as many groups.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::distributed::DistributedDataParallel;
    /// use torchrs::nn::{Linear, Module};
    /// use torchrs::optim::{AdamW, AdamWOptions, Optimizer, ParamGroup, ZeroRedundancyOptimizer};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let model = DistributedDataParallel::new(Linear::new(4, 3), &group)?;
    /// let (weights, biases) = model.parameters().into_iter().partition(|p| p.dim() >= 2);
    /// let optimizer = ZeroRedundancyOptimizer::with_groups([weights, biases], &group, |own| {
    ///     let decays = [0.1, 0.0].map(|weight_decay| AdamWOptions { weight_decay, ..Default::default() });
    ///     AdamW::with_groups(own.into_iter().zip(decays).map(|(own, options)| ParamGroup::new(own, options)))
    /// })?;
    /// assert_eq!(optimizer.num_groups(), 2);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Error::Argument`] for a group without parameters.
    #[track_caller]
    pub fn with_groups(
        groups: impl IntoIterator<Item = Vec<Tensor>>,
        group: &ProcessGroup,
        make: impl FnOnce(Vec<Vec<Tensor>>) -> O,
    ) -> Result<Self> {
        const CALL: &str = "ZeroRedundancyOptimizer";
        let groups: Vec<Vec<Tensor>> = groups.into_iter().collect();
        let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
        let parameters: Vec<Tensor> = groups.into_iter().flatten().collect();
        let wrong = |argument: &str, what: String| Err(Error::argument(CALL, argument, what));
        if parameters.is_empty() {
            return wrong("parameters", "there are none".to_owned());
        }
        if let Some(empty) = sizes.iter().position(|&size| size == 0) {
            return wrong("groups", format!("group {empty} has no parameters; leave it out"));
        }
        if let Some(place) = parameters.iter().position(Tensor::is_sharded) {
            return wrong(
                "parameters",
                format!(
                    "parameter {place} is sharded by `fully_shard`, and so is its state: use the optimizer itself"
                ),
            );
        }
        let name = |(place, parameter): (usize, &Tensor)| {
            (parameter.name_hint().unwrap_or_else(|| place.to_string()), parameter.clone())
        };
        verify(
            CALL,
            group,
            "parameter",
            &parameters.iter().enumerate().map(name).collect::<Vec<_>>(),
        )?;
        let owners = owners(&parameters, group.world_size());
        let own: Vec<Vec<Tensor>> = own_places(&sizes, &owners, group.rank())
            .into_iter()
            .map(|places| {
                let own: Vec<Tensor> = places.iter().map(|&at| parameters[at].clone()).collect();
                let like = &parameters[0];
                let none = || Tensor::empty([0], (like.dtype(), like.device()));
                if own.is_empty() { vec![none().requires_grad_(true)] } else { own }
            })
            .collect();
        let expected: Vec<usize> = own.iter().flatten().map(Tensor::identity).collect();
        let inner = make(own);
        let got: Vec<usize> = inner.parameters().iter().map(Tensor::identity).collect();
        if got != expected || inner.num_groups() != sizes.len() {
            return wrong(
                "make",
                format!(
                    "gave an optimizer of {} parameters in {} groups; it gets {}, and puts them into {}",
                    got.len(),
                    inner.num_groups(),
                    expected.len(),
                    if sizes.len() == 1 { "one".to_owned() } else { sizes.len().to_string() }
                ),
            );
        }
        let (group, number, consolidated) = (group.clone(), group.next_number(), None);
        Ok(ZeroRedundancyOptimizer {
            group,
            number,
            parameters,
            sizes,
            owners,
            inner,
            consolidated,
        })
    }

    /// The parameters that this rank steps.
    pub fn own_parameters(&self) -> Vec<Tensor> {
        let own = self.own_places().into_iter().flatten();
        own.map(|place| self.parameters[place].clone()).collect()
    }

    /// Gives all ranks the values of all owners: an all-gather for each dtype and device.
    fn share(&self) -> Result<()> {
        let world = self.group.world_size();
        for kind in kinds_of(&self.parameters) {
            // Where each parameter lies in its owner's line.
            let mut lengths = vec![0; world];
            let mut places = Vec::new();
            for (parameter, &owner) in self.parameters.iter().zip(&self.owners) {
                if (parameter.dtype(), parameter.device()) == kind {
                    places.push((parameter, owner, lengths[owner]));
                    lengths[owner] += parameter.numel();
                }
            }
            let length = lengths.into_iter().max().unwrap_or(0);
            let (mine, all) =
                (Tensor::zeros([length], kind), Tensor::empty([world * length], kind));
            let own = |owner: usize| owner == self.group.rank();
            for (parameter, _, start) in places.iter().filter(|(_, owner, _)| own(*owner)) {
                let line = mine.narrow(0, *start, parameter.numel());
                line.copy_(&parameter.detach().reshape_to(&[parameter.numel()]));
            }
            self.group.all_gather_into_tensor(&all, &mine)?;
            for (parameter, owner, start) in places.iter().filter(|(_, owner, _)| !own(*owner)) {
                let theirs = all.narrow(0, owner * length + start, parameter.numel());
                parameter.copy_(&theirs.reshape_to(parameter.shape()));
            }
        }
        Ok(())
    }

    /// The groups that an optimizer of all parameters saves, from those of the own ones, with so many parameters each.
    fn numbered(own: &Value, sizes: impl IntoIterator<Item = usize>) -> Value {
        let mut groups = own.clone();
        let mut start = 0;
        for (place, size) in sizes.into_iter().enumerate() {
            groups[place]["params"] = json!((start..start + size).collect::<Vec<_>>());
            start += size;
        }
        groups
    }

    /// The inner optimizer's states, by the places of their parameters. What stands for none has no state of its own.
    fn by_place<T>(&self, own: Vec<T>) -> BTreeMap<usize, T> {
        let mut own = own.into_iter();
        let mut by_place = BTreeMap::new();
        for places in self.own_places() {
            let of_group: Vec<T> = own.by_ref().take(places.len().max(1)).collect();
            by_place.extend(places.into_iter().zip(of_group));
        }
        by_place
    }

    /// The places of this rank's parameters among all, group after group.
    fn own_places(&self) -> Vec<Vec<usize>> {
        own_places(&self.sizes, &self.owners, self.group.rank())
    }
}

impl<O: Optimizer> Optimizer for ZeroRedundancyOptimizer<O> {
    fn step(&mut self) {
        self.inner.step();
        self.consolidated = None;
        let _span = profiler::span("ZeroRedundancyOptimizer", Category::Communication);
        let name =
            format!("the parameters of ZeroRedundancyOptimizer {}, after a step", self.number);
        let origin = Origin::numbered(name, self.number);
        no_grad(|| origin.over(|| self.share())).unwrap_or_else(|error| throw(error));
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.parameters.clone()
    }

    fn num_groups(&self) -> usize {
        self.sizes.len()
    }

    fn lr(&self, group: usize) -> f64 {
        self.inner.lr(group)
    }

    fn set_lr(&mut self, group: usize, lr: f64) {
        self.inner.set_lr(group, lr);
    }

    fn initial_lr(&self, group: usize) -> Option<f64> {
        self.inner.initial_lr(group)
    }

    fn set_initial_lr(&mut self, group: usize, lr: f64) {
        self.inner.set_initial_lr(group, lr);
    }

    fn is_mid_schedule(&self) -> bool {
        self.inner.is_mid_schedule()
    }

    fn momentum(&self, group: usize) -> Option<f64> {
        self.inner.momentum(group)
    }

    fn set_momentum(&mut self, group: usize, momentum: f64) {
        self.inner.set_momentum(group, momentum);
    }

    fn has_state_of(&self, place: usize) -> bool {
        self.owners[place] == self.group.rank()
    }

    fn local_state_dict(&self) -> OptimizerState {
        let OptimizerState { state: own, param_groups } = self.inner.state_dict();
        let mut state = vec![BTreeMap::new(); self.owners.len()];
        for (place, own) in self.by_place(own) {
            state[place] = own;
        }
        let param_groups = Self::numbered(&param_groups, self.sizes.iter().copied());
        OptimizerState { state, param_groups }
    }

    fn consolidate_state_dict(&mut self, to: usize) -> Result<()> {
        let world = self.group.world_size();
        if to >= world {
            let what = format!("is {to}, but the group has {world} ranks");
            return Err(Error::argument("consolidate_state_dict", "to", what));
        }
        let own = self.inner.state_dict();
        let of_own = self.by_place(own.state);
        let mut state = Vec::with_capacity(self.owners.len());
        for (place, &owner) in self.owners.iter().enumerate() {
            let entries = self.sent(of_own.get(&place), owner)?;
            state.push(if self.group.rank() == to { entries } else { BTreeMap::new() });
        }
        let param_groups = Self::numbered(&own.param_groups, self.sizes.iter().copied());
        let is_here = self.group.rank() == to;
        self.consolidated = is_here.then(|| OptimizerState { state, param_groups });
        Ok(())
    }

    /// # Panics
    /// Throws unless [`consolidate_state_dict`](Optimizer::consolidate_state_dict) has brought the state of all ranks to
    /// this one since the last step.
    fn state_dict(&self) -> OptimizerState {
        match &self.consolidated {
            Some(state) => state.clone(),
            None => throw(Error::argument(
                "ZeroRedundancyOptimizer::state_dict",
                "self",
                "has the state of this rank's parameters alone: all ranks call `consolidate_state_dict(0)` first, and \
                 rank 0 saves",
            )),
        }
    }

    /// Each rank takes the state of its own parameters from that of all.
    fn load_state_dict(&mut self, state: &OptimizerState) -> Result<()> {
        let count = self.owners.len();
        let groups = state.param_groups.as_array().map_or(&[][..], Vec::as_slice);
        let size = |group: &Value| group["params"].as_array().map_or(0, Vec::len);
        let sizes: Vec<usize> = groups.iter().map(size).collect();
        if sizes != self.sizes || state.state.len() > count {
            let what = format!(
                "has groups of {sizes:?} parameters; this optimizer has groups of {:?}",
                self.sizes
            );
            return Err(Error::argument("ZeroRedundancyOptimizer::load_state_dict", "state", what));
        }
        let own = self.own_places();
        let of = |place: &usize| state.state.get(*place).cloned().unwrap_or_default();
        // One of its own stands for none.
        let in_place = |places: &Vec<usize>| places.len().max(1);
        let param_groups = Self::numbered(&state.param_groups, own.iter().map(in_place));
        let none = |places: &Vec<usize>| if places.is_empty() { 1 } else { 0 };
        let states = own.iter().flat_map(|places| {
            let none = std::iter::repeat_n(BTreeMap::new(), none(places));
            places.iter().map(of).chain(none)
        });
        let state = OptimizerState { state: states.collect(), param_groups };
        self.consolidated = None;
        self.inner.load_state_dict(&state)
    }
}

impl<O: Optimizer> ZeroRedundancyOptimizer<O> {
    /// A parameter's state from its owner, on all ranks.
    fn sent(
        &self,
        mine: Option<&BTreeMap<String, StateValue>>,
        owner: usize,
    ) -> Result<BTreeMap<String, StateValue>> {
        /// Name, dtype by its place, shape; or a number.
        type Entry = (String, Option<(usize, Vec<usize>)>, f64);
        let describe = |(name, value): (&String, &StateValue)| match value {
            StateValue::Number(number) => (name.clone(), None, *number),
            StateValue::Tensor(tensor) => {
                let dtype = Dtype::ALL.iter().position(|dtype| *dtype == tensor.dtype());
                (name.clone(), Some((dtype.expect("it is one"), tensor.shape().to_vec())), 0.0)
            }
        };
        let entries: Option<Vec<Entry>> = mine.map(|mine| mine.iter().map(describe).collect());
        let entries = self.group.broadcast_object(entries.as_ref(), owner)?;
        let mut sent = BTreeMap::new();
        for (name, tensor, number) in entries {
            let value = match tensor {
                None => StateValue::Number(number),
                Some((dtype, shape)) => {
                    let own = match mine.and_then(|mine| mine.get(&name)) {
                        Some(StateValue::Tensor(tensor)) => tensor.cpu(),
                        _ => Tensor::empty(&shape[..], Dtype::ALL[dtype].on_host()),
                    };
                    self.group.broadcast(&own, owner)?;
                    StateValue::Tensor(own)
                }
            };
            sent.insert(name, value);
        }
        Ok(sent)
    }
}

/// The places of the parameters that a rank steps, of each group.
fn own_places(sizes: &[usize], owners: &[usize], rank: usize) -> Vec<Vec<usize>> {
    let mut start = 0;
    let of_group = |&size: &usize| {
        start += size;
        (start - size..start).filter(|&place| owners[place] == rank).collect()
    };
    sizes.iter().map(of_group).collect()
}

/// Who steps which parameter: the largest first, each by the rank with the fewest elements so far.
fn owners(parameters: &[Tensor], world: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..parameters.len()).collect();
    order.sort_by_key(|&place| Reverse(parameters[place].numel()));
    let (mut owners, mut loads) = (vec![0; parameters.len()], vec![0; world]);
    for place in order {
        let rank = (0..world).min_by_key(|&rank| loads[rank]).unwrap_or(0);
        loads[rank] += parameters[place].numel();
        owners[place] = rank;
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_step_about_as_many_elements() {
        let sizes = [10, 100, 30, 60, 5, 40];
        let parameters: Vec<Tensor> =
            sizes.iter().map(|&n| Tensor::zeros([n], Dtype::F32)).collect();
        assert_eq!(owners(&parameters, 2), [1, 0, 0, 1, 1, 1]);
        for world in [1, 2, 3, 8] {
            let owners = owners(&parameters, world);
            let load = |rank: usize| -> usize {
                sizes.iter().zip(&owners).filter(|(_, o)| **o == rank).map(|(n, _)| n).sum()
            };
            let loads: Vec<usize> = (0..world).map(load).collect();
            let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
            assert!(most - least <= 100 && loads.iter().sum::<usize>() == 245, "{loads:?}");
        }
    }
}
