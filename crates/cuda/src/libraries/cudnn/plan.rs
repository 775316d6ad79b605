//! The plans that cuDNN offers for a graph of operations.

use std::fmt;
use std::sync::Arc;

use super::descriptor::{Descriptor, Handle, HeuristicMode, Kind as Type, Note, Number};
use super::table::Object;
use torchrs_error::Result;

/// Heuristics in the order in which they are asked: NVIDIA's best guess, then what always works.
const HEURISTICS: [HeuristicMode; 2] = [Number(3), Number(2)];
/// Engines that use tensor cores, which round f32 to tf32.
pub(super) const TENSOR_CORES: Note = Number(0);
pub(super) const DOWN_CONVERTS: Note = Number(1);
/// Engines that add in a type of fewer bits than sums are to have.
pub(super) const REDUCED_SUMS: Note = Number(2);
/// Engines whose sums come in any order.
pub(super) const NONDETERMINISTIC: Note = Number(4);
/// The most notes that an engine has.
const NOTES: usize = 16;

/// For what plans are made.
pub(super) enum Target<'a> {
    /// The device of a handle.
    Handle(Object),
    /// A device that need not be there.
    Properties(&'a Descriptor),
}

/// A way of computing a graph.
pub(super) struct Plan {
    pub(super) descriptor: Descriptor,
    pub(super) workspace: usize,
    notes: Vec<Note>,
    /// What the plan was made of stays as long as it.
    parts: Proposed,
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

/// An engine with its settings, and what the graph consists of.
type Proposed = (Descriptor, Arc<Vec<Descriptor>>);

/// What cuDNN proposes for a graph, the best first.
fn proposals(
    parts: Vec<Descriptor>,
    target: &Target,
    mode: HeuristicMode,
) -> Result<Vec<Proposed>> {
    let parts = Arc::new(parts);
    let graph = parts.last().expect("the graph is the last part");
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
    Ok(room.into_iter().take(count).map(|proposal| (proposal, parts.clone())).collect())
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

/// What a graph consists of, the graph last; none where cuDNN does not compute such.
pub(super) type Parts = Option<Vec<Descriptor>>;

/// For [`plans`]: every plan, also those of heuristics that are asked only where nothing else works.
pub(super) const ALL: usize = usize::MAX;

/// At most `most` plans for a graph with at most so much workspace, of engines whose notes allow it, the one that cuDNN
/// thinks best first; none where it does not compute such. A proposal that fails is passed over, for whatever reason.
///
/// # Errors
/// The last failure, other than that something is not supported, if no plan is left.
pub(super) fn plans(
    graph: impl Fn(Option<Object>) -> Result<Parts>,
    target: &Target,
    may_be_used: impl Fn(&[Note]) -> bool,
    most_workspace: usize,
    most: usize,
) -> Result<Vec<Plan>> {
    let handle = match target {
        Target::Handle(handle) => Some(*handle),
        Target::Properties(_) => None,
    };
    let (mut found, mut failure) = (Vec::new(), None);
    for mode in HEURISTICS {
        let asked = graph(handle).and_then(|parts| match parts {
            Some(parts) => proposals(parts, target, mode),
            None => Ok(Vec::new()),
        });
        let proposed = asked.unwrap_or_else(|error| {
            failure = Some(error);
            Vec::new()
        });
        for proposal in proposed {
            if found.len() == most {
                break;
            }
            match plan(proposal, target, &may_be_used) {
                Ok(plan) => found.extend(plan.filter(|plan| plan.workspace <= most_workspace)),
                Err(error) => failure = Some(error),
            }
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

/// The plan of a proposal, if its notes allow it and cuDNN has it.
fn plan(
    parts: Proposed,
    target: &Target,
    may_be_used: impl Fn(&[Note]) -> bool,
) -> Result<Option<Plan>> {
    let notes = notes(&parts.0)?;
    if !may_be_used(&notes) {
        return Ok(None);
    }
    let plan = Descriptor::new(Type::Plan)?;
    match target {
        Target::Handle(handle) => plan.set(400, &[Handle(*handle)])?,
        Target::Properties(properties) => plan.set(407, &[properties.object])?,
    }
    plan.set(401, &[parts.0.object])?;
    let Some(descriptor) = plan.finish_if_supported()? else { return Ok(None) };
    let mut workspace = [0i64];
    descriptor.get(402, &mut workspace)?;
    Ok(Some(Plan { descriptor, workspace: workspace[0].max(0) as usize, notes, parts }))
}
