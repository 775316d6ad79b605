//! The part of an optimizer that is the same for all: groups, states by parameter, saving and
//! loading. An optimizer is then its options, its state per parameter, and a [`Rule`] that updates
//! parameters: one file each.
//!
//! ```
//! use torchrs::optim::engine::RuleOptimizer;
//! use torchrs::optim::{Optimizer, ParamGroup, SGD, SGDOptions};
//! use torchrs::Tensor;
//! fn frozen<R: torchrs::optim::engine::Rule>(optimizer: &mut RuleOptimizer<R>, group: usize) {
//!     optimizer.set_lr(group, 0.0); // whatever the formula
//! }
//! let [a, b] = [1f64, 2.].map(|x| Tensor::from([x]).requires_grad_(true));
//! let group = |w: &Tensor| ParamGroup::new([w.clone()], SGDOptions { lr: 0.5, ..Default::default() });
//! let mut optimizer = SGD::with_groups([group(&a), group(&b)]);
//! frozen(&mut optimizer, 1);
//! (&a + &b).backward();
//! optimizer.step();
//! assert_eq!((a.item(), b.item()), (0.5, 2.0));
//! ```

mod options;
mod state;

use std::collections::HashSet;
use std::ops::Range;

use serde::Serialize;
use serde_json::{Value, json};

use super::{Optimizer, OptimizerState};
use crate::autograd::{check_reduced, no_grad};
use crate::cuda::{Stream, device, graph, memory};
use crate::error::{Error, Result, throw};
use crate::ops::pointwise::together;
use crate::profiler::{self, Category, notes};
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

pub use options::{GroupOptions, adam_ranges, below_one, not_negative, within};
pub use state::{ParamState, StateReader};

/// The formula of an optimizer.
///
/// ```
/// use std::collections::BTreeMap;
/// use torchrs::optim::engine::{Item, ParamState, Rule, RuleOptimizer, StateReader};
/// use torchrs::optim::{Optimizer, SGDOptions, StateValue};
/// use torchrs::{Result, Tensor};
/// struct Nothing;
/// impl ParamState for Nothing {
///     fn save(&self) -> BTreeMap<String, StateValue> {
///         BTreeMap::new()
///     }
///     fn load(_: &StateReader<'_>) -> Result<Self> {
///         Ok(Nothing)
///     }
/// }
/// /// Steps by the sign of the gradient.
/// enum SignRule {}
/// impl Rule for SignRule {
///     type Options = SGDOptions;
///     type State = Nothing;
///     const NAME: &'static str = "SignDescent";
///     fn init(_: &SGDOptions, _: &Tensor) -> Nothing {
///         Nothing
///     }
///     fn update(options: &SGDOptions, items: &mut [Item<'_, Nothing>]) {
///         for Item { parameter, grad, .. } in items {
///             parameter.add_scaled_(&grad.sign(), -options.lr);
///         }
///     }
/// }
/// let w = Tensor::from([1f64]).requires_grad_(true);
/// let options = SGDOptions { lr: 0.25, ..Default::default() };
/// let mut optimizer = RuleOptimizer::<SignRule>::new([w.clone()], options);
/// (&w * 100.0).backward();
/// optimizer.step();
/// assert_eq!(w.item(), 0.75);
/// ```
pub trait Rule: 'static {
    /// What a group sets.
    type Options: GroupOptions;
    /// What is kept for a parameter between steps.
    type State: ParamState;
    /// PyTorch's name, for messages.
    ///
    /// ```
    /// use torchrs::{catch, optim::SGD};
    /// let error = catch(|| SGD::new([], Default::default())).err().expect("no parameters");
    /// assert_eq!(error.to_string(), "SGD: argument `params`: there are no parameters");
    /// ```
    const NAME: &'static str;
    /// Whether a parameter is stepped by one update row, of which nothing is read or written otherwise:
    /// then a GPU does those of many parameters at once.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{SGD, engine::{Rule, RuleOptimizer}}};
    /// fn at_once<R: Rule>(_: &RuleOptimizer<R>) -> bool {
    ///     R::ONE_UPDATE_EACH
    /// }
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// assert!(at_once(&SGD::new([w], Default::default())));
    /// ```
    const ONE_UPDATE_EACH: bool = false;

    /// Whether each element is stepped by itself: then a rank may step its part of a sharded parameter.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, optim::{Muon, SGD, engine::{Rule, RuleOptimizer}}};
    /// fn is_elementwise<R: Rule>(_: &RuleOptimizer<R>) -> bool {
    ///     R::IS_ELEMENTWISE
    /// }
    /// let w = Tensor::zeros([2, 2], Dtype::F32).requires_grad_(true);
    /// assert!(is_elementwise(&SGD::new([w.clone()], Default::default())));
    /// assert!(!is_elementwise(&Muon::new([w], Default::default())));
    /// ```
    const IS_ELEMENTWISE: bool = true;

    /// Whether all steps but the first do the same to tensors: a graph can then record one. Else something
    /// is counted on the host.
    ///
    /// ```
    /// use torchrs::optim::engine::{Rule, RuleOptimizer};
    /// fn can_be_recorded<R: Rule>(optimizer: &RuleOptimizer<R>) -> bool {
    ///     R::is_capturable(optimizer.options(0))
    /// }
    /// use torchrs::{Tensor, optim::{Adam, AdamOptions, SGD}};
    /// let w = Tensor::from([1f64]);
    /// assert!(can_be_recorded(&SGD::new([w.clone()], Default::default())));
    /// assert!(!can_be_recorded(&Adam::new([w.clone()], Default::default())));
    /// let options = AdamOptions { capturable: true, ..Default::default() };
    /// assert!(can_be_recorded(&Adam::new([w], options)));
    /// ```
    fn is_capturable(options: &Self::Options) -> bool {
        let _ = options;
        false
    }

    /// What is wrong with a parameter for this optimizer, if anything.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, catch, optim::Muon};
    /// let vector = Tensor::zeros([3], Dtype::F32);
    /// let error = catch(|| Muon::new([vector], Default::default())).err().expect("no matrix");
    /// assert!(error.to_string().contains("parameter 0 of group 0 has shape [3]; must be a matrix"));
    /// ```
    ///
    /// # Errors
    /// What is wrong, as a sentence about the parameter.
    fn takes(_parameter: &Tensor) -> std::result::Result<(), String> {
        Ok(())
    }

    /// State of a parameter before its first step.
    fn init(options: &Self::Options, parameter: &Tensor) -> Self::State;

    /// Updates parameters of one group. Runs under `no_grad`.
    ///
    /// ```
    /// # use std::collections::BTreeMap;
    /// # use torchrs::optim::engine::{Item, ParamState, Rule, RuleOptimizer, StateReader};
    /// # use torchrs::optim::{Optimizer, SGDOptions, StateValue};
    /// # use torchrs::{Result, Tensor};
    /// struct Velocity(Tensor);
    /// # impl ParamState for Velocity {
    /// #     fn save(&self) -> BTreeMap<String, StateValue> {
    /// #         BTreeMap::new()
    /// #     }
    /// #     fn load(entries: &StateReader<'_>) -> Result<Self> {
    /// #         Ok(Velocity(entries.tensor("velocity")?))
    /// #     }
    /// # }
    /// enum Momentum {}
    /// impl Rule for Momentum {
    /// #     type Options = SGDOptions;
    /// #     type State = Velocity;
    /// #     const NAME: &'static str = "Momentum";
    /// #     fn init(_: &SGDOptions, parameter: &Tensor) -> Velocity {
    /// #         Velocity(parameter.zeros_like())
    /// #     }
    ///     fn update(options: &SGDOptions, items: &mut [Item<'_, Velocity>]) {
    ///         for Item { parameter, grad, state: Velocity(v) } in items {
    ///             v.mul_(options.momentum).add_(&*grad);
    ///             parameter.add_scaled_(&*v, -options.lr);
    ///         }
    ///     }
    /// }
    /// let w = Tensor::from([0f64]).requires_grad_(true);
    /// let options = SGDOptions { lr: 1.0, momentum: 0.5, ..Default::default() };
    /// let mut optimizer = RuleOptimizer::<Momentum>::new([w.clone()], options);
    /// w.set_grad(Some(Tensor::from([1f64])));
    /// optimizer.step();
    /// optimizer.step();
    /// assert_eq!(w.item(), -2.5);
    /// ```
    fn update(options: &Self::Options, items: &mut [Item<'_, Self::State>]);
}

/// A parameter to be updated.
///
/// ```
/// use torchrs::{Tensor, no_grad, optim::engine::Item};
/// // What a rule does with one: here with a number of state, the count of steps.
/// fn step(item: Item<'_, u32>) {
///     *item.state += 1;
///     item.parameter.add_scaled_(&item.grad, -1.0 / *item.state as f64);
/// }
/// let (w, mut count) = (Tensor::from([1f64]), 1);
/// no_grad(|| step(Item { parameter: &w, grad: Tensor::from([3f64]), state: &mut count }));
/// assert_eq!((w.item(), count), (-0.5, 2));
/// ```
pub struct Item<'a, S> {
    /// The parameter.
    pub parameter: &'a Tensor,
    /// Its gradient, of the same shape and dtype. Not to be changed.
    pub grad: Tensor,
    /// Its state.
    pub state: &'a mut S,
}

/// Parameters with their options: `ParamGroup::new(model.parameters(), options)`.
///
/// ```
/// use torchrs::{Tensor, optim::{Optimizer, ParamGroup, SGD, SGDOptions}};
/// let group = |lr: f64| {
///     let params = vec![Tensor::from([1f64]).requires_grad_(true)];
///     ParamGroup { params, options: SGDOptions { lr, ..Default::default() } }
/// };
/// let optimizer = SGD::with_groups([group(0.5), group(0.125)]);
/// assert_eq!((optimizer.lr(0), optimizer.lr(1)), (0.5, 0.125));
/// ```
#[derive(Clone, Debug)]
pub struct ParamGroup<O> {
    /// The parameters.
    pub params: Vec<Tensor>,
    /// The options.
    pub options: O,
}

impl<O> ParamGroup<O> {
    /// A group.
    pub fn new(params: impl IntoIterator<Item = Tensor>, options: O) -> Self {
        ParamGroup { params: params.into_iter().collect(), options }
    }
}

/// An optimizer with the formula `R`; its name is an alias such as [`AdamW`](super::AdamW).
///
/// ```
/// use torchrs::optim::{AdamW, AdamWOptions, Optimizer};
/// let w = torchrs::Tensor::from([1f64]).requires_grad_(true);
/// let options = AdamWOptions { lr: 0.5, weight_decay: 0.0, ..Default::default() };
/// let mut optimizer = AdamW::new([w.clone()], options);
/// w.set_grad(Some(w.full_like(100.0)));
/// optimizer.step();
/// assert!((w.item() - 0.5).abs() < 1e-6);
/// ```
pub struct RuleOptimizer<R: Rule> {
    groups: Vec<Group<R>>,
}

struct Group<R: Rule> {
    params: Vec<Tensor>,
    options: R::Options,
    initial_lr: Option<f64>,
    /// See [`Optimizer::is_mid_schedule`].
    mid_schedule: bool,
    /// `None` before a parameter's first step.
    states: Vec<Option<Kept<R::State>>>,
}

/// A parameter's state, and what the parameter was like when the state was made or last converted.
struct Kept<S> {
    state: S,
    of: (Dtype, Device),
}

fn kind(parameter: &Tensor) -> (Dtype, Device) {
    (parameter.dtype(), parameter.device())
}

impl<R: Rule> RuleOptimizer<R> {
    /// An optimizer of `params`, all with the same options.
    ///
    /// ```
    /// use torchrs::{Tensor, catch, optim::{Adam, AdamOptions, Optimizer}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// assert_eq!(Adam::new([w.clone()], AdamOptions::default()).lr(0), 1e-3);
    /// assert!(catch(|| Adam::new([w.clone(), w.clone()], AdamOptions::default())).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when there are no parameters, one is there twice or is no leaf, or
    /// an option cannot be used.
    #[track_caller]
    pub fn new(params: impl IntoIterator<Item = Tensor>, options: R::Options) -> Self {
        Self::with_groups([ParamGroup::new(params, options)])
    }

    /// An optimizer of several groups, each with its own options.
    ///
    /// ```
    /// use torchrs::{nn::{self, Module}, optim::{AdamW, AdamWOptions, ParamGroup}};
    /// let model = nn::Linear::new(3, 2);
    /// let (biases, weights) = model.parameters().into_iter().partition::<Vec<_>, _>(|p| p.dim() == 1);
    /// let undecayed = AdamWOptions { weight_decay: 0.0, ..Default::default() };
    /// let groups = [ParamGroup::new(weights, Default::default()), ParamGroup::new(biases, undecayed)];
    /// let optimizer = AdamW::with_groups(groups);
    /// assert_eq!([0, 1].map(|group| optimizer.options(group).weight_decay), [1e-2, 0.0]);
    /// ```
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[track_caller]
    pub fn with_groups(groups: impl IntoIterator<Item = ParamGroup<R::Options>>) -> Self {
        let mut optimizer = RuleOptimizer { groups: Vec::new() };
        for group in groups {
            optimizer.add_param_group(group);
        }
        if optimizer.groups.iter().all(|group| group.params.is_empty()) {
            throw(Error::argument(R::NAME, "params", "there are no parameters"));
        }
        optimizer
    }

    /// Adds a group, for instance of layers that are no longer frozen.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Optimizer, ParamGroup, SGD, SGDOptions}};
    /// let [head, body] = [1f64, 2.].map(|x| Tensor::from([x]).requires_grad_(true));
    /// let mut optimizer = SGD::new([head], SGDOptions::default());
    /// optimizer.add_param_group(ParamGroup::new([body], SGDOptions { lr: 1e-4, ..Default::default() }));
    /// assert_eq!((optimizer.num_groups(), optimizer.lr(1)), (2, 1e-4));
    /// ```
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[track_caller]
    pub fn add_param_group(&mut self, group: ParamGroup<R::Options>) {
        if let Err((option, message)) = group.options.check() {
            throw(Error::argument(R::NAME, option, message));
        }
        check_parameters(R::NAME, self.groups.len(), &self.parameters(), &group.params);
        for (i, parameter) in group.params.iter().enumerate() {
            let taken = match parameter.is_sharded() && !R::IS_ELEMENTWISE {
                true => Err(NOT_IN_PARTS.to_owned()),
                false => R::takes(parameter),
            };
            if let Err(message) = taken {
                let message = format!("parameter {i} of group {} {message}", self.groups.len());
                throw(Error::argument(R::NAME, "params", message));
            }
        }
        self.groups.push(Group {
            states: group.params.iter().map(|_| None).collect(),
            params: group.params,
            options: group.options,
            initial_lr: None,
            mid_schedule: false,
        });
    }

    /// The options of a group.
    pub fn options(&self, group: usize) -> &R::Options {
        &self.groups[group].options
    }

    /// The options of a group, to be changed between steps.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let mut optimizer = SGD::new([w.clone()], SGDOptions { lr: 0.5, ..Default::default() });
    /// optimizer.options_mut(0).maximize = true;
    /// (&w * 1.0).backward();
    /// optimizer.step();
    /// assert_eq!(w.item(), 1.5);
    /// ```
    pub fn options_mut(&mut self, group: usize) -> &mut R::Options {
        self.groups[group].mid_schedule = false;
        &mut self.groups[group].options
    }
}

/// Refuses parameters of a new group that are no floating-point leaves, or that are there twice.
#[track_caller]
pub(super) fn check_parameters(op: &str, group: usize, others: &[Tensor], params: &[Tensor]) {
    let mut seen: HashSet<usize> = others.iter().map(Tensor::identity).collect();
    for (i, parameter) in params.iter().enumerate() {
        if !parameter.is_leaf() || !parameter.dtype().is_floating_point() {
            let message = format!(
                "parameter {i} of group {group} is not a floating-point leaf: dtype {}, {}",
                parameter.dtype(),
                if parameter.is_leaf() { "no history" } else { "computed from other tensors" }
            );
            throw(Error::argument(op, "params", message));
        }
        if !seen.insert(parameter.identity()) {
            let message = format!(
                "parameter {i} of group {group} is in a group already; each belongs to one group, once"
            );
            throw(Error::argument(op, "params", message));
        }
    }
}

/// A group as it is saved: options, and the parameters' places.
pub(super) fn saved_group(
    options: &impl Serialize,
    places: Range<usize>,
    initial_lr: Option<f64>,
) -> Value {
    let mut saved = serde_json::to_value(options).expect("options are plain numbers");
    saved["params"] = json!(places.collect::<Vec<_>>());
    if let Some(lr) = initial_lr {
        saved["initial_lr"] = json!(lr);
    }
    saved
}

/// The saved groups, if they have as many parameters each as `ours`.
pub(super) fn saved_groups<'a>(
    op: &str,
    saved: &'a OptimizerState,
    ours: &[usize],
) -> Result<&'a [Value]> {
    let groups = saved.param_groups.as_array().map(Vec::as_slice).unwrap_or_default();
    let lengths = |g: &Value| g["params"].as_array().map_or(0, Vec::len);
    let theirs: Vec<usize> = groups.iter().map(lengths).collect();
    if ours != theirs || saved.state.len() > ours.iter().sum() {
        let message = format!("has groups of {theirs:?} parameters, this optimizer has {ours:?}");
        return Err(Error::argument(op, "state", message));
    }
    Ok(groups)
}

/// Why an optimizer does not take a part of a parameter.
pub(super) const NOT_IN_PARTS: &str = "is sharded by `fully_shard`, and this optimizer's step needs the whole; use another one, or leave the parameter whole \
     with `ignored_params`";

impl<R: Rule> Group<R> {
    #[track_caller]
    fn step(&mut self) {
        let Group { params, options, states, .. } = self;
        check_reduced(R::NAME, params).unwrap_or_else(|error| throw(error));
        let mut items = Vec::with_capacity(params.len());
        for (place, (parameter, kept)) in params.iter().zip(states).enumerate() {
            let Some(grad) = parameter.grad() else { continue };
            let of = kind(parameter);
            let has_moved = kept.as_ref().is_some_and(|kept| kept.of != of);
            refuse_capture::<R>(options, parameter, kept.is_none() || has_moved);
            if has_moved && let Some(Kept { state, .. }) = kept.take() {
                *kept = Some(Kept { state: convert::<R>(place, parameter, &state), of });
            }
            let kept = kept.get_or_insert_with(|| Kept { state: R::init(options, parameter), of });
            items.push(Item { parameter, grad, state: &mut kept.state });
        }
        if R::ONE_UPDATE_EACH {
            together(|| R::update(options, &mut items));
        } else {
            R::update(options, &mut items);
        }
    }

    fn save_options(&self, first: usize) -> Value {
        saved_group(&self.options, first..first + self.params.len(), self.initial_lr)
    }
}

/// The state of a parameter whose module was moved, as if it had been saved and loaded.
#[track_caller]
fn convert<R: Rule>(place: usize, parameter: &Tensor, state: &R::State) -> R::State {
    let entries = state.save();
    let reader = StateReader::new(R::NAME, place, parameter, &entries);
    R::State::load(&reader).unwrap_or_else(|error| throw(error))
}

/// A graph would repeat what the host counts, or begin the parameter's state anew at every replay.
#[track_caller]
fn refuse_capture<R: Rule>(options: &R::Options, parameter: &Tensor, is_first: bool) {
    let Some(gpu) = parameter.device().gpu() else { return };
    let (what, advice) = match R::is_capturable(options) {
        false => (
            "it counts its steps on the host, so a step",
            "set its option `capturable`, if it has one, or step after the replay",
        ),
        true if is_first => ("its first step", "take one before the capture"),
        true => return,
    };
    let what = format_args!("{}: {what}", R::NAME);
    let refused = Stream::current(gpu).and_then(|stream| graph::refuse(stream, what, advice));
    refused.unwrap_or_else(|error| throw(error));
}

/// What this process uses of the GPU that a parameter is on, for the status page.
fn gpu_use(parameter: &Tensor) -> Option<notes::GpuUse> {
    let index = parameter.device().gpu()?;
    let allocated = memory::statistics(index).ok()?.allocated;
    let about = device::properties(index).ok();
    Some(notes::GpuUse {
        index,
        name: about.map_or("", |gpu| &gpu.name),
        bus: about.map_or("", |gpu| &gpu.pci_bus_id),
        bytes: allocated.current as u64,
        peak: allocated.peak as u64,
    })
}

impl<R: Rule> Optimizer for RuleOptimizer<R> {
    fn step(&mut self) {
        let span = profiler::span(R::NAME, Category::Optimizer);
        let phase = profiler::Phase::optimizer();
        no_grad(|| self.groups.iter_mut().for_each(Group::step));
        drop((phase, span));
        notes::step_taken(|| gpu_use(self.groups.iter().find_map(|group| group.params.first())?));
        profiler::step_ended(|| {
            self.groups.iter().flat_map(|g| &g.params).next().map(Tensor::identity)
        });
    }

    fn parameters(&self) -> Vec<Tensor> {
        self.groups.iter().flat_map(|group| group.params.iter().cloned()).collect()
    }

    fn num_groups(&self) -> usize {
        self.groups.len()
    }

    fn lr(&self, group: usize) -> f64 {
        self.groups[group].options.lr()
    }

    fn set_lr(&mut self, group: usize, lr: f64) {
        self.groups[group].mid_schedule = false;
        self.groups[group].options.set_lr(lr);
    }

    fn initial_lr(&self, group: usize) -> Option<f64> {
        self.groups[group].initial_lr
    }

    fn set_initial_lr(&mut self, group: usize, lr: f64) {
        self.groups[group].initial_lr = Some(lr);
    }

    fn is_mid_schedule(&self) -> bool {
        self.groups.iter().any(|group| group.mid_schedule)
    }

    fn momentum(&self, group: usize) -> Option<f64> {
        self.groups[group].options.momentum()
    }

    fn set_momentum(&mut self, group: usize, momentum: f64) {
        self.groups[group].options.set_momentum(momentum);
    }

    fn state_dict(&self) -> OptimizerState {
        let mut saved = OptimizerState::default();
        let mut groups = Vec::new();
        for group in &self.groups {
            groups.push(group.save_options(saved.state.len()));
            let save = |kept: &Option<Kept<R::State>>| Some(kept.as_ref()?.state.save());
            saved.state.extend(group.states.iter().map(|kept| save(kept).unwrap_or_default()));
        }
        saved.param_groups = groups.into();
        saved
    }

    fn load_state_dict(&mut self, saved: &OptimizerState) -> Result<()> {
        let op = format!("{}::load_state_dict", R::NAME);
        let wrong = |message: String| Error::argument(&op, "state", message);
        let ours: Vec<usize> = self.groups.iter().map(|group| group.params.len()).collect();
        let groups = saved_groups(&op, saved, &ours)?;
        let mut loaded = Vec::with_capacity(self.groups.len());
        for (i, (group, theirs)) in self.groups.iter().zip(groups).enumerate() {
            let options: R::Options = serde_json::from_value(theirs.clone())
                .map_err(|e| wrong(format!("options of group {i}: {e}")))?;
            if let Err((option, message)) = options.check() {
                return Err(wrong(format!("option `{option}` of group {i}: {message}")));
            }
            let mut states = Vec::with_capacity(group.params.len());
            let places = theirs["params"].as_array().into_iter().flatten();
            for (place, parameter) in places.zip(&group.params) {
                let place = place
                    .as_u64()
                    .ok_or_else(|| wrong(format!("`params` of group {i} holds {place}")))?;
                let place = place as usize;
                states.push(match saved.state.get(place) {
                    Some(entries) if !entries.is_empty() => {
                        let reader = StateReader::new(R::NAME, place, parameter, entries);
                        let state = no_grad(|| R::State::load(&reader))?;
                        reader.check_all_asked()?;
                        Some(Kept { state, of: kind(parameter) })
                    }
                    _ => None,
                });
            }
            loaded.push((options, theirs["initial_lr"].as_f64(), states));
        }
        for (group, (options, initial_lr, states)) in self.groups.iter_mut().zip(loaded) {
            group.options = options;
            group.initial_lr = initial_lr;
            group.mid_schedule = initial_lr.is_some();
            group.states = states;
        }
        Ok(())
    }
}
