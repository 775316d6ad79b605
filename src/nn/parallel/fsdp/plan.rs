//! What each rank will hold of a sharded model, said before there is any of it: arithmetic on shapes, for which a model on
//! the meta device is enough, and no process group.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use super::group::ShardGroup;
use super::layout::Line;
use super::options::MixedPrecisionPolicy;
use super::present;
use crate::distributed::join_some;
use crate::error::{Error, Result};
use crate::nn::Module;
use crate::nn::walk::{Entry, walk};
use crate::profiler::text::grouped;
use crate::storage::living::bytes;
use crate::tensor::{Dtype, Tensor, kinds_of};

/// What an optimizer keeps for each element that it trains.
///
/// ```
/// use torchrs::{Dtype, nn::parallel::OptimizerStates};
/// assert_eq!(OptimizerStates::ADAM, OptimizerStates { count: 2, dtype: None });
/// let of_halves = OptimizerStates { dtype: Some(Dtype::F32), ..OptimizerStates::ADAM };
/// assert_eq!(of_halves.count, 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptimizerStates {
    /// Numbers for each element: 2 of Adam, 1 of SGD with momentum, 0 of plain SGD.
    pub count: usize,
    /// Their type; by default that of the parameter.
    pub dtype: Option<Dtype>,
}

impl OptimizerStates {
    /// Those of Adam and AdamW: two averages.
    pub const ADAM: OptimizerStates = OptimizerStates { count: 2, dtype: None };
    /// Those of SGD with momentum.
    pub const MOMENTUM: OptimizerStates = OptimizerStates { count: 1, dtype: None };
    /// None, as of plain SGD.
    pub const NONE: OptimizerStates = OptimizerStates { count: 0, dtype: None };
}

/// How the model is going to be sharded and trained, for [`memory_plan`].
#[derive(Debug, Clone)]
pub struct MemoryPlanOptions {
    /// Ranks between which parameters are cut: the last dimension of the mesh. Left out for a module that is sharded
    /// already, whose own number it is.
    pub world: Option<usize>,
    /// Names of the modules for which `fully_shard` is going to be called, before the call for the whole module;
    /// `blocks.*` stands for each module directly inside `blocks`. None for a module that is sharded already.
    pub groups: Vec<String>,
    /// What the optimizer keeps.
    pub states: OptimizerStates,
    /// As of [`FullyShardOptions`](super::FullyShardOptions).
    pub mp_policy: MixedPrecisionPolicy,
    /// As of [`FullyShardOptions`](super::FullyShardOptions).
    pub reshard_after_forward: Option<bool>,
    /// As of [`FullyShardOptions`](super::FullyShardOptions).
    pub ignored_params: Vec<Tensor>,
}

impl Default for MemoryPlanOptions {
    fn default() -> Self {
        MemoryPlanOptions {
            world: None,
            groups: Vec::new(),
            states: OptimizerStates::ADAM,
            mp_policy: MixedPrecisionPolicy::default(),
            reshard_after_forward: None,
            ignored_params: Vec::new(),
        }
    }
}

/// The bytes of the parameters that are gathered together, a row of a [`MemoryPlan`]. Of ranks that have unlike parts those
/// of the first, which has the most.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupMemory {
    /// The module's name; that of the whole module is `""`.
    pub name: String,
    /// Elements in all.
    pub numel: usize,
    /// All parameters, as one device would hold them.
    pub whole: usize,
    /// A rank's part.
    pub shard: usize,
    /// A rank's part of the gradients.
    pub gradient: usize,
    /// A rank's part of the optimizer's states.
    pub states: usize,
    /// All parameters in the dtype in which they are used, while they are.
    pub gathered: usize,
    /// Room for them on their way.
    pub on_the_way: usize,
    /// Their gradients in backward, and the room in which those are reduced.
    pub reduced: usize,
    /// Whether they stay from forward to backward.
    pub is_kept: bool,
    /// Whether each rank has all of it.
    pub is_whole: bool,
    /// Gradients and states on one device.
    unsharded: usize,
}

/// The memory that a sharded model takes on each rank, without activations: made by [`memory_plan`], shown as a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Ranks between which parameters are cut.
    pub world: usize,
    /// A row for each group, in the order of the modules.
    pub groups: Vec<GroupMemory>,
    /// Buffers, whole on every rank.
    pub buffers: usize,
}

impl MemoryPlan {
    fn sum(&self, f: impl Fn(&GroupMemory) -> usize) -> usize {
        self.groups.iter().map(f).sum()
    }

    /// A rank's parts of parameters, and what is whole on each, buffers among it.
    pub fn shards(&self) -> usize {
        self.buffers + self.sum(|group| group.shard)
    }

    /// A rank's parts of gradients.
    pub fn gradients(&self) -> usize {
        self.sum(|group| group.gradient)
    }

    /// A rank's parts of the optimizer's states.
    pub fn states(&self) -> usize {
        self.sum(|group| group.states)
    }

    /// The most at once in forward, of which parameters of other ranks are a part for as long as they are needed. Gradients
    /// of the step before are gone by then.
    pub fn forward(&self) -> usize {
        let kept = self.sum(|group| if group.is_kept { group.gathered } else { 0 });
        self.shards() + self.states() + kept + self.most(|_| 0)
    }

    /// The most at once in backward.
    pub fn backward(&self) -> usize {
        let kept = self.sum(|group| if group.is_kept { group.gathered } else { 0 });
        self.shards() + self.gradients() + self.states() + kept + self.most(|group| group.reduced)
    }

    /// The most at once while the optimizer takes a step.
    pub fn step(&self) -> usize {
        self.shards() + self.gradients() + self.states()
    }

    /// The most at once in a step of training.
    pub fn peak(&self) -> usize {
        self.forward().max(self.backward()).max(self.step())
    }

    /// What each rank would have without sharding: parameters, gradients and states, as of a model of
    /// `DistributedDataParallel`.
    pub fn without_sharding(&self) -> usize {
        self.buffers + self.sum(|group| group.whole + group.unsharded)
    }

    /// What is there while one group is used, the one before has not gone yet, and the next is gathered ahead.
    fn most(&self, more: impl Fn(&GroupMemory) -> usize) -> usize {
        let alone = |group: &GroupMemory| if group.is_kept { 0 } else { group.gathered };
        let around = |i: usize| {
            let before = i.checked_sub(1).and_then(|i| self.groups.get(i)).map_or(0, alone);
            let after = self.groups.get(i + 1).map_or(0, alone);
            before + after
        };
        let at_once = |(i, group): (usize, &GroupMemory)| {
            alone(group) + around(i) + group.on_the_way.max(more(group))
        };
        self.groups.iter().enumerate().map(at_once).max().unwrap_or(0)
    }
}

/// Says how many bytes each rank is going to hold of `module` once it is sharded, before there is any of it: of a module on
/// the meta device, without a process group, for any number of ranks; and of one that is sharded.
///
/// ```
/// use torchrs::Device;
/// use torchrs::nn::parallel::{MemoryPlanOptions, memory_plan};
/// use torchrs::nn::{Linear, Module, Sequential};
/// let model = Device::Meta.scope(|| {
///     (0..32).fold(Sequential::new(), |model, _| model.append(Linear::new(4096, 4096)))
/// });
/// let options = MemoryPlanOptions { world: Some(8), groups: vec!["*".to_owned()], ..Default::default() };
/// let plan = memory_plan(&model, options)?;
/// assert_eq!(plan.groups.len(), 32);
/// // 2 GiB of parameters, as much of gradients, and twice that of Adam's averages.
/// assert_eq!(plan.without_sharding() >> 30, 8);
/// assert!(plan.peak() < plan.without_sharding() / 5);
/// println!("{plan}");
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for a name in `groups` that no module has, a module without parameters, a `world` that is missing
/// or not the one of a sharded module, and `groups` for a module that is sharded.
#[track_caller]
pub fn memory_plan<M: Module + ?Sized>(
    module: &M,
    options: MemoryPlanOptions,
) -> Result<MemoryPlan> {
    options.mp_policy.check()?;
    let found = Found::of(module, &options);
    let sharded = found.sharded();
    let world = found.world(&sharded, &options)?;
    let names = match sharded.is_empty() {
        true => found.names(&options)?,
        false if !options.groups.is_empty() => {
            let what = "names modules, but the module is sharded: its groups are there already";
            return Err(wrong("groups", what));
        }
        false => Vec::new(),
    };
    let mut groups: Vec<GroupMemory> = sharded
        .iter()
        .map(|group| {
            let of_group = found.params.iter().filter(|p| p.group == Some(group.number));
            let params: Vec<&Param> = of_group.collect();
            let keeps = !group.switches.reshards_after_forward.load(Relaxed);
            let policy = MixedPrecisionPolicy {
                param_dtype: group.param_dtype(),
                reduce_dtype: group.reduce_dtype,
                ..Default::default()
            };
            row(common_name(&params), &params, world, &options, policy, keeps)
        })
        .collect();
    for name in &names {
        let of_name: Vec<&Param> =
            found.params.iter().filter(|p| p.owner(&names) == Some(name.as_str())).collect();
        let has_inner = names.iter().any(|other| other != name && is_inside(other, name));
        let keeps = !options.reshard_after_forward.unwrap_or(!has_inner);
        if !of_name.is_empty() {
            groups.push(row(name.clone(), &of_name, world, &options, options.mp_policy, keeps));
        }
    }
    let is_left = |p: &&Param| p.ignored || (p.group.is_none() && !sharded.is_empty());
    let left: Vec<&Param> = found.params.iter().filter(is_left).collect();
    if !left.is_empty() {
        let whole = row(
            "(whole on each rank)".to_owned(),
            &left,
            1,
            &options,
            MixedPrecisionPolicy::default(),
            true,
        );
        groups.push(GroupMemory {
            is_whole: true,
            gathered: 0,
            on_the_way: 0,
            reduced: 0,
            ..whole
        });
    }
    groups.sort_by_key(|group| found.place(&group.name));
    Ok(MemoryPlan { world, groups, buffers: found.buffers })
}

fn wrong(argument: &str, what: impl Into<String>) -> Error {
    Error::argument("memory_plan", argument, what.into())
}

/// A parameter of the module.
struct Param {
    name: String,
    tensor: Tensor,
    /// The number of its group, if it is sharded.
    group: Option<usize>,
    ignored: bool,
}

impl Param {
    /// Of the groups that it is inside of, the innermost one.
    fn owner<'a>(&self, groups: &'a [String]) -> Option<&'a str> {
        if self.ignored {
            return None;
        }
        let around = groups.iter().filter(|group| is_inside(&self.name, group));
        around.max_by_key(|group| group.len()).map(String::as_str)
    }
}

/// Whether a dotted name is inside of a module's.
fn is_inside(name: &str, module: &str) -> bool {
    module.is_empty() || name.strip_prefix(module).is_some_and(|rest| rest.starts_with('.'))
}

/// The module that all parameters are inside of.
fn common_name(params: &[&Param]) -> String {
    let mut names =
        params.iter().map(|param| param.name.rsplit_once('.').map_or("", |(module, _)| module));
    let first = names.next().unwrap_or("");
    names.fold(first.to_owned(), |mut common, name| {
        while !(common.is_empty() || common == name || is_inside(name, &common)) {
            common.truncate(common.rfind('.').unwrap_or(0));
        }
        common
    })
}

struct Found {
    params: Vec<Param>,
    modules: Vec<String>,
    buffers: usize,
}

impl Found {
    fn of<M: Module + ?Sized>(module: &M, options: &MemoryPlanOptions) -> Found {
        let mut found = Found { params: Vec::new(), modules: Vec::new(), buffers: 0 };
        let mut seen = HashSet::new();
        walk(module, "", &mut |name, entry| match entry {
            Entry::Parameter(parameter) if seen.insert(parameter.identity()) => {
                let tensor = parameter.tensor().clone();
                let ignored = options.ignored_params.iter().any(|other| other.ptr_eq(&tensor));
                let group = tensor.together().map(|group| group.number());
                found.params.push(Param { name, tensor, group, ignored });
            }
            Entry::Buffer(buffer) if seen.insert(buffer.identity()) => {
                found.buffers += buffer.numel() * buffer.dtype().size();
            }
            Entry::Module(_) => found.modules.push(name),
            _ => {}
        });
        found
    }

    fn sharded(&self) -> Vec<Arc<ShardGroup>> {
        let mut numbers: Vec<usize> = Vec::new();
        for number in self.params.iter().filter_map(|param| param.group) {
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        present::numbered(&numbers).iter().filter_map(Weak::upgrade).collect()
    }

    fn world(&self, sharded: &[Arc<ShardGroup>], options: &MemoryPlanOptions) -> Result<usize> {
        if self.params.is_empty() {
            return Err(wrong("module", "has no parameters"));
        }
        let own = sharded.iter().map(|group| group.shards.world_size()).max();
        match (own, options.world) {
            (Some(own), None) => Ok(own),
            (Some(own), Some(other)) if own != other => {
                let what =
                    format!("is {other}, but the module is sharded over {own} ranks; leave it out");
                Err(wrong("world", what))
            }
            (None, None) => {
                Err(wrong("world", "is missing: over how many ranks the module will be sharded"))
            }
            (_, Some(0)) => Err(wrong("world", "is 0; at least 1 rank is needed")),
            (_, Some(world)) => Ok(world),
        }
    }

    /// The modules that get calls of their own, and the whole one.
    fn names(&self, options: &MemoryPlanOptions) -> Result<Vec<String>> {
        let mut names = vec![String::new()];
        for pattern in &options.groups {
            let parent = match pattern.as_str() {
                "*" => Some(""),
                pattern => pattern.strip_suffix(".*"),
            };
            let is_one = |name: &&String| match parent {
                None => *name == pattern,
                Some("") => !name.contains('.'),
                Some(parent) => is_inside(name, parent) && !name[parent.len() + 1..].contains('.'),
            };
            let found: Vec<&String> = self.modules.iter().filter(is_one).collect();
            if found.is_empty() {
                let top = self.modules.iter().filter(|name| !name.contains('.'));
                let top: Vec<String> = top.map(|name| format!("`{name}`")).collect();
                let top = join_some(top.iter(), ", ");
                return Err(wrong(
                    "groups",
                    format!(
                        "has `{pattern}`, which no module is called; directly inside are {top}"
                    ),
                ));
            }
            for name in found {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        Ok(names)
    }

    /// Where a group stands among the modules; what is whole comes last.
    fn place(&self, group: &str) -> usize {
        match group {
            "" => 0,
            _ => self.modules.iter().position(|name| name == group).map_or(usize::MAX, |i| i + 1),
        }
    }
}

fn row(
    name: String,
    params: &[&Param],
    world: usize,
    options: &MemoryPlanOptions,
    policy: MixedPrecisionPolicy,
    is_kept: bool,
) -> GroupMemory {
    let mut row = GroupMemory { name, is_kept, ..GroupMemory::default() };
    // As the shard is: the whole of a sharded one may be of another dtype.
    let own = |param: &Param| param.tensor.local();
    let locals: Vec<Tensor> = params.iter().map(|param| own(param)).collect();
    for (dtype, device) in kinds_of(locals.iter()) {
        let of_kind = |(_, t): &(&&Param, &Tensor)| (t.dtype(), t.device()) == (dtype, device);
        let kind: Vec<(&Param, &Tensor)> =
            params.iter().zip(&locals).filter(of_kind).map(|(p, t)| (*p, t)).collect();
        let shapes: Vec<&[usize]> =
            kind.iter().map(|(p, _)| p.tensor.shape()).map(at_least_1d).collect();
        let line = Line::new(&shapes, world, dtype);
        let trained = |(_, local): &(&Param, &Tensor)| local.requires_grad();
        let (size, used) = (dtype.size(), policy.param_dtype.unwrap_or(dtype).size());
        let numel: usize = shapes.iter().map(|shape| shape.iter().product::<usize>()).sum();
        let of_trained: usize =
            kind.iter().filter(|pair| trained(pair)).map(|(p, _)| p.tensor.numel()).sum();
        let part: usize = kind
            .iter()
            .zip(&line.chunks)
            .filter(|(pair, _)| trained(pair))
            .map(|(_, chunks)| chunks.numel_of(0))
            .sum();
        let state = options.states.count * options.states.dtype.unwrap_or(dtype).size();
        row.numel += numel;
        row.whole += numel * size;
        row.shard += line.numel * size;
        row.states += part * state;
        row.unsharded += of_trained * (size + state);
        let is_converted = used != size || policy.param_dtype.is_some_and(|param| param != dtype);
        if world == 1 {
            row.gradient += of_trained * size;
            row.gathered += if is_converted { line.numel * used } else { 0 };
            continue;
        }
        row.gathered += line.whole_numel * used;
        row.on_the_way += (world * line.numel + if is_converted { line.numel } else { 0 }) * used;
        if of_trained > 0 {
            let reduce = policy.reduce_dtype.unwrap_or(dtype).size();
            row.gradient += line.numel * size;
            row.reduced += of_trained * used + world * line.numel * reduce;
        }
    }
    row
}

/// A scalar is refused by `fully_shard`, but may be left whole.
fn at_least_1d(shape: &[usize]) -> &[usize] {
    if shape.is_empty() { &[1] } else { shape }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HEAD: [&str; 7] =
            ["group", "elements", "whole", "shard", "gradient", "states", "gathered"];
        let cells = |group: &GroupMemory| -> [String; 7] {
            let kept = if group.is_kept && !group.is_whole { ", kept" } else { "" };
            let name = if group.name.is_empty() { "(the rest)" } else { &group.name };
            let gathered =
                if group.is_whole { "--".to_owned() } else { bytes(group.gathered) + kept };
            let [whole, shard, gradient, states] =
                [group.whole, group.shard, group.gradient, group.states].map(bytes);
            [name.to_owned(), grouped(group.numel as u64), whole, shard, gradient, states, gathered]
        };
        let mut rows: Vec<[String; 7]> = vec![HEAD.map(str::to_owned)];
        rows.extend(self.groups.iter().map(cells));
        let [whole, shard, gradient, states] =
            [self.sum(|g| g.whole), self.sum(|g| g.shard), self.gradients(), self.states()]
                .map(bytes);
        let all = grouped(self.sum(|g| g.numel) as u64);
        rows.push(["in all".to_owned(), all, whole, shard, gradient, states, String::new()]);
        let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
        let widths: [usize; 7] = std::array::from_fn(width);
        for row in &rows {
            let mut line = format!("{:<1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(widths).skip(1) {
                line += &format!("  {cell:>width$}");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        writeln!(f, "\nEach of {} ranks, without activations:", self.world)?;
        if self.buffers > 0 {
            writeln!(f, "  buffers, whole    {:>12}", bytes(self.buffers))?;
        }
        for (what, most) in
            [("forward", self.forward()), ("backward", self.backward()), ("step", self.step())]
        {
            writeln!(f, "  {what:<9} at most {:>12}", bytes(most))?;
        }
        write!(f, "  without sharding  {:>12}", bytes(self.without_sharding()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::{Linear, Sequential};
    use crate::storage::Device;

    fn model() -> Sequential {
        let block = |_| Sequential::new().append(Linear::new(16, 32)).append(Linear::new(32, 16));
        Device::Meta.scope(|| {
            (0..3).map(block).fold(Sequential::new(), Sequential::append).append(Linear::new(16, 6))
        })
    }

    fn plan(world: usize, groups: &[&str], options: MemoryPlanOptions) -> Result<MemoryPlan> {
        let groups = groups.iter().map(|name| (*name).to_owned()).collect();
        memory_plan(&model(), MemoryPlanOptions { world: Some(world), groups, ..options })
    }

    #[test]
    fn parts_add_up_to_the_model() {
        let block = (16 * 32 + 32 + 32 * 16 + 16) * 4;
        let all = 3 * block + (16 * 6 + 6) * 4;
        for world in [1, 2, 4] {
            let plan = plan(world, &["0", "1", "2"], Default::default()).unwrap();
            let names: Vec<&str> = plan.groups.iter().map(|group| group.name.as_str()).collect();
            assert_eq!(names, ["", "0", "1", "2"]);
            assert_eq!(plan.groups[1].whole, block);
            // Both weights are cut evenly, and biases are whole lines of a cache.
            let least = all / world;
            assert!((least..least + 1600).contains(&plan.shards()), "{}", plan.shards());
            assert!(plan.gradients() >= least && plan.states() >= 2 * least);
            assert_eq!(plan.without_sharding(), 4 * all);
            assert_eq!(plan.step(), plan.shards() + plan.gradients() + plan.states());
        }
        let alone = plan(1, &[], Default::default()).unwrap();
        // One rank gathers nothing.
        assert_eq!((alone.groups[0].gathered, alone.peak()), (0, alone.step()));
    }

    #[test]
    fn groups_lower_the_peak_and_kept_ones_raise_it() {
        let one = plan(8, &[], Default::default()).unwrap();
        let many = plan(8, &["*"], Default::default()).unwrap();
        assert_eq!((one.groups.len(), many.groups.len()), (1, 4));
        assert_eq!(one.without_sharding(), many.without_sharding());
        assert!(many.peak() < one.peak() && one.peak() > one.groups[0].whole);
        let kept = MemoryPlanOptions { reshard_after_forward: Some(false), ..Default::default() };
        let kept = plan(8, &["*"], kept).unwrap();
        assert!(kept.groups.iter().all(|group| group.is_kept));
        assert!(kept.forward() > many.forward());
        let halves = MixedPrecisionPolicy { param_dtype: Some(Dtype::BF16), ..Default::default() };
        let halves = MemoryPlanOptions { mp_policy: halves, ..Default::default() };
        let halves = plan(8, &["*"], halves).unwrap();
        assert!(halves.groups[0].gathered < many.groups[0].gathered);
        assert_eq!(halves.shards(), many.shards());
        let plain = MemoryPlanOptions { states: OptimizerStates::NONE, ..Default::default() };
        assert_eq!(plan(8, &["*"], plain).unwrap().states(), 0);
    }

    #[test]
    fn the_page_shows_what_is_printed() {
        let model = Device::Meta
            .scope(|| (0..4).fold(Sequential::new(), |net, _| net.append(Linear::new(4096, 4096))));
        let groups = vec!["*".to_owned()];
        let options = MemoryPlanOptions { world: Some(8), groups, ..Default::default() };
        let text = memory_plan(&model, options).unwrap().to_string();
        let page = include_str!("../../../../docs/distributed/sharding.md");
        assert!(page.contains(&text), "{text}");
    }

    #[test]
    fn the_table_has_a_row_for_each_group() {
        let text = plan(2, &["*"], Default::default()).unwrap().to_string();
        for part in
            ["group", "(whole", "in all", "Each of 2 ranks", "without sharding", "\n0 ", "\n3 "]
        {
            assert_eq!(text.contains(part), part != "(whole", "{part}: {text}");
        }
        let (model, ignored) = (model(), 3);
        let options = MemoryPlanOptions {
            world: Some(2),
            ignored_params: model.parameters()[..ignored].to_vec(),
            ..Default::default()
        };
        let plan = memory_plan(&model, options).unwrap();
        assert!(plan.to_string().contains("(whole on each rank)"), "{plan}");
        let last = plan.groups.last().unwrap();
        assert_eq!((last.is_whole, last.numel), (true, 16 * 32 + 32 + 32 * 16));
    }

    #[test]
    fn what_cannot_be_planned_is_refused() {
        let error = |result: Result<MemoryPlan>| result.unwrap_err().to_string();
        assert!(error(plan(2, &["layers.*"], Default::default())).contains("`layers.*`"));
        assert!(error(plan(0, &[], Default::default())).contains("at least 1"));
        assert!(error(memory_plan(&model(), Default::default())).contains("`world`"));
        assert!(
            error(memory_plan(&Sequential::new(), Default::default())).contains("no parameters")
        );
    }
}
