//! What cuDNN is told of a convolution, and the plans that it offers for it.

use std::ffi::c_int;
use std::fmt;
use std::sync::Arc;

use super::descriptor::{
    DataType, Descriptor, Handle, HeuristicMode, Kind as Type, Mode, Note, Number, Value,
};
use super::table::Object;
use super::{Direction, Kind, Lie, Problem};
use crate::error::Result;

/// Names of the tensors in the plan: x, w, y.
pub(super) const NAMES: [i64; 3] = [1, 2, 3];

/// Heuristics in the order in which they are asked: NVIDIA's best guess, then what always works.
const HEURISTICS: [HeuristicMode; 2] = [Number(3), Number(2)];
/// Engines that use tensor cores, which round f32 to tf32.
const TENSOR_CORES: Note = Number(0);
const DOWN_CONVERTS: Note = Number(1);
/// Engines that add in a type of fewer bits than sums are to have.
const REDUCED_SUMS: Note = Number(2);
/// Engines whose sums come in any order.
const NONDETERMINISTIC: Note = Number(4);
/// The most notes that an engine has.
const NOTES: usize = 16;

/// For what plans are made.
pub(super) enum Target<'a> {
    /// The device of a handle.
    Handle(Object),
    /// A device that need not be there.
    Properties(&'a Descriptor),
}

/// What is asked of a plan beside the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wishes {
    /// f32 may be rounded to tf32 (10 bits after the point) before it is multiplied.
    pub tf32: bool,
    /// The same sums in the same order at each call.
    pub deterministic: bool,
    /// The most workspace in bytes.
    pub workspace: usize,
}

/// A way of computing a convolution.
pub(super) struct Plan {
    pub(super) descriptor: Descriptor,
    pub(super) workspace: usize,
    notes: Vec<Note>,
    /// What the plan was made of stays as long as it.
    parts: (Descriptor, Arc<Vec<Descriptor>>),
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let notes: Vec<_> = self.notes.iter().map(|note| note.0).collect();
        write!(f, "plan with notes {notes:?} and {} bytes of workspace", self.workspace)
    }
}

impl Plan {
    /// Whether it uses tensor cores.
    pub(super) fn uses_tensor_cores(&self) -> bool {
        self.notes.contains(&TENSOR_CORES)
    }

    /// cuDNN's number of its engine, among those for such a graph.
    pub(super) fn engine(&self) -> Result<i64> {
        let mut number = [0];
        engine(&self.parts.0)?.get(1301, &mut number)?;
        Ok(number[0])
    }
}

impl Kind {
    fn data_type(self) -> DataType {
        Number(match self {
            Kind::F32 => 0,
            Kind::F64 => 1,
            Kind::F16 => 2,
            Kind::BF16 => 9,
        })
    }

    /// The type of sums.
    fn compute(self) -> DataType {
        Number(c_int::from(self == Kind::F64))
    }
}

fn tensor(name: i64, kind: Kind, lie: &Lie, dims: usize) -> Result<Descriptor> {
    let tensor = Descriptor::new(Type::Tensor)?;
    tensor.set(901, &[kind.data_type()])?;
    tensor.set(902, &lie.sizes[..dims])?;
    tensor.set(903, &lie.strides[..dims])?;
    tensor.set(906, &[name])?;
    tensor.set(900, &[lie.alignment])?;
    tensor.finish()
}

/// An operation's descriptor with its attributes' names: the convolution, x, w, y, alpha, beta.
fn operation(direction: Direction) -> (Type, [c_int; 6]) {
    match direction {
        Direction::Forward => (Type::Forward, [702, 704, 703, 705, 700, 701]),
        Direction::Data => (Type::Data, [708, 710, 709, 711, 706, 707]),
        Direction::Filters => (Type::Filters, [714, 716, 715, 717, 712, 713]),
    }
}

/// The graph of one convolution, after what it consists of.
fn graph(problem: &Problem, handle: Option<Object>) -> Result<Option<Vec<Descriptor>>> {
    let (kind, dims) = (problem.kind, problem.dims);
    let spatial = dims - 2;
    let window = Descriptor::new(Type::Convolution)?;
    window.set(106, &[spatial as i64])?;
    window.set(100, &[kind.compute()])?;
    window.set::<Mode>(101, &[Number(1)])?;
    window.set(105, &problem.padding[..spatial])?;
    window.set(104, &problem.padding[..spatial])?;
    window.set(102, &problem.dilation[..spatial])?;
    window.set(103, &problem.stride[..spatial])?;
    let Some(window) = window.finish_if_supported()? else { return Ok(None) };
    let (which, [of_window, of_x, of_w, of_y, of_alpha, of_beta]) = operation(problem.direction);
    let x = tensor(NAMES[0], kind, &problem.x, dims)?;
    let w = tensor(NAMES[1], kind, &problem.w, dims)?;
    let y = tensor(NAMES[2], kind, &problem.y, dims)?;
    let operation = Descriptor::new(which)?;
    operation.set(of_window, &[window.object])?;
    operation.set(of_x, &[x.object])?;
    operation.set(of_w, &[w.object])?;
    operation.set(of_y, &[y.object])?;
    match kind {
        Kind::F64 => scales(&operation, [of_alpha, of_beta], [1f64, 0.0])?,
        _ => scales(&operation, [of_alpha, of_beta], [1f32, 0.0])?,
    }
    let Some(operation) = operation.finish_if_supported()? else { return Ok(None) };
    let graph = Descriptor::new(Type::Graph)?;
    if let Some(handle) = handle {
        graph.set(800, &[Handle(handle)])?;
    }
    graph.set(801, &[operation.object])?;
    let graph = graph.finish_if_supported()?;
    Ok(graph.map(|graph| vec![window, x, w, y, operation, graph]))
}

fn scales<T: Value>(operation: &Descriptor, names: [c_int; 2], values: [T; 2]) -> Result<()> {
    operation.set(names[0], &values[..1])?;
    operation.set(names[1], &values[1..])
}

/// What cuDNN proposes for a graph, the best first.
fn proposals(graph: &Descriptor, target: &Target, mode: HeuristicMode) -> Result<Vec<Descriptor>> {
    let heuristics = Descriptor::new(Type::Heuristics)?;
    heuristics.set(201, &[graph.object])?;
    heuristics.set(200, &[mode])?;
    if let Target::Properties(properties) = target {
        heuristics.set(204, &[properties.object])?;
    }
    let Some(heuristics) = heuristics.finish_if_supported()? else { return Ok(Vec::new()) };
    let count = heuristics.get::<Object>(202, &mut [])?;
    let room: Vec<_> =
        (0..count).map(|_| Descriptor::new(Type::EngineConfig)).collect::<Result<_>>()?;
    let mut objects: Vec<_> = room.iter().map(|descriptor| descriptor.object).collect();
    let count = heuristics.get(202, &mut objects)?;
    Ok(room.into_iter().take(count).collect())
}

fn engine(proposal: &Descriptor) -> Result<Descriptor> {
    let engine = Descriptor::new(Type::Engine)?;
    proposal.get(300, &mut [engine.object])?;
    Ok(engine)
}

/// The notes on a proposal's engine.
fn notes(proposal: &Descriptor) -> Result<Vec<Note>> {
    let engine = engine(proposal)?;
    let mut notes = vec![Note::default(); NOTES];
    let count = engine.get(1303, &mut notes)?;
    notes.truncate(count);
    Ok(notes)
}

/// Whether an engine with these notes may be used.
fn may_be_used(notes: &[Note], kind: Kind, wishes: &Wishes) -> bool {
    let rounds = notes.contains(&TENSOR_CORES) || notes.contains(&DOWN_CONVERTS);
    (wishes.tf32 || kind != Kind::F32 || !rounds)
        && !notes.contains(&REDUCED_SUMS)
        && (!wishes.deterministic || !notes.contains(&NONDETERMINISTIC))
}

/// For [`plans`]: every plan, also those of heuristics that are asked only where nothing else works.
pub(super) const ALL: usize = usize::MAX;

/// At most `most` plans for a problem, the one that cuDNN thinks best first; none where it does not compute such. A
/// proposal that fails is passed over, for whatever reason.
///
/// # Errors
/// The last failure, other than that something is not supported, if no plan is left.
pub(super) fn plans(
    problem: &Problem,
    target: &Target,
    wishes: &Wishes,
    most: usize,
) -> Result<Vec<Plan>> {
    let (mut found, mut failure) = (Vec::new(), None);
    for mode in HEURISTICS {
        if let Err(error) = plans_of(mode, problem, target, wishes, most, &mut found) {
            failure = Some(error);
        }
        if !found.is_empty() && most != ALL {
            break;
        }
    }
    match failure {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// Adds the plans that heuristics of a mode lead to, up to `most`.
fn plans_of(
    mode: HeuristicMode,
    problem: &Problem,
    target: &Target,
    wishes: &Wishes,
    most: usize,
    found: &mut Vec<Plan>,
) -> Result<()> {
    let handle = match target {
        Target::Handle(handle) => Some(*handle),
        Target::Properties(_) => None,
    };
    let Some(parts) = graph(problem, handle)?.map(Arc::new) else { return Ok(()) };
    let graph = parts.last().expect("the graph is the last part");
    let mut outcome = Ok(());
    for proposal in proposals(graph, target, mode)? {
        if found.len() == most {
            break;
        }
        match plan(proposal, &parts, problem.kind, target, wishes) {
            Ok(plan) => found.extend(plan),
            Err(error) => outcome = Err(error),
        }
    }
    outcome
}

/// The plan of a proposal, if it is as wished and cuDNN has it.
fn plan(
    proposal: Descriptor,
    parts: &Arc<Vec<Descriptor>>,
    kind: Kind,
    target: &Target,
    wishes: &Wishes,
) -> Result<Option<Plan>> {
    let notes = notes(&proposal)?;
    if !may_be_used(&notes, kind, wishes) {
        return Ok(None);
    }
    let plan = Descriptor::new(Type::Plan)?;
    match target {
        Target::Handle(handle) => plan.set(400, &[Handle(*handle)])?,
        Target::Properties(properties) => plan.set(407, &[properties.object])?,
    }
    plan.set(401, &[proposal.object])?;
    let Some(descriptor) = plan.finish_if_supported()? else { return Ok(None) };
    let mut workspace = [0i64];
    descriptor.get(402, &mut workspace)?;
    let workspace = workspace[0].max(0) as usize;
    let plan = Plan { descriptor, workspace, notes, parts: (proposal, parts.clone()) };
    Ok(Some(plan).filter(|plan| plan.workspace <= wishes.workspace))
}
