//! The plans that cuDNN offers for a graph of operations.

use std::fmt;
use std::sync::Arc;

use super::descriptor::{Descriptor, Handle, HeuristicMode, Kind as Type, Note, Number};
use super::table::Object;
use crate::error::Result;

/// Heuristics in the order in which they are asked: NVIDIA's best guess, then what always works.
const HEURISTICS: [HeuristicMode; 2] = [Number(3), Number(2)];
/// Engines that use tensor cores, which round f32 to tf32.
pub(super) const TENSOR_CORES: Note = Number(0);
pub(super) const DOWN_CONVERTS: Note = Number(1);
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
    _parts: (Descriptor, Arc<Vec<Descriptor>>),
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

/// The notes on a proposal's engine.
fn notes(proposal: &Descriptor) -> Result<Vec<Note>> {
    let engine = Descriptor::new(Type::Engine)?;
    proposal.get(300, &mut [engine.object])?;
    let mut notes = vec![Note::default(); NOTES];
    let count = engine.get(1303, &mut notes)?;
    notes.truncate(count);
    Ok(notes)
}

/// What a graph consists of, the graph last; none where cuDNN does not compute such.
pub(super) type Parts = Option<Vec<Descriptor>>;

/// At most `most` plans for a graph with at most so much workspace, of engines whose notes allow it, the one that cuDNN
/// thinks best first; none where it does not compute such.
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
    let mut found = Vec::new();
    for mode in HEURISTICS {
        let Some(parts) = graph(handle)?.map(Arc::new) else { return Ok(found) };
        let graph = parts.last().expect("the graph is the last part");
        for proposal in proposals(graph, target, mode)? {
            if found.len() == most {
                return Ok(found);
            }
            let notes = notes(&proposal)?;
            if !may_be_used(&notes) {
                continue;
            }
            let plan = Descriptor::new(Type::Plan)?;
            match target {
                Target::Handle(handle) => plan.set(400, &[Handle(*handle)])?,
                Target::Properties(properties) => plan.set(407, &[properties.object])?,
            }
            plan.set(401, &[proposal.object])?;
            let Some(descriptor) = plan.finish_if_supported()? else { continue };
            let mut workspace = [0i64];
            descriptor.get(402, &mut workspace)?;
            let workspace = workspace[0].max(0) as usize;
            if workspace <= most_workspace {
                found.push(Plan {
                    descriptor,
                    workspace,
                    notes,
                    _parts: (proposal, parts.clone()),
                });
            }
        }
        if !found.is_empty() {
            break;
        }
    }
    Ok(found)
}
