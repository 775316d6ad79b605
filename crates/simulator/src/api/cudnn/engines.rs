//! The engines that compute graphs: one on tensor cores, one without, and some that are proposed but have no plans, or
//! plans that fail, as happens with the real library.

use super::{Outcome, Status, refuse};

/// The attribute of an engine that tells its notes.
pub const NOTES: i32 = 1303;
/// Bytes of workspace of a plan.
const WORKSPACE: i64 = 1 << 10;
/// More than a device has, unless it is told to have more.
const GREEDY: i64 = 1 << 30;

/// An engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// Rounds f32 to tf32.
    TensorCores,
    /// Computes in the type of sums.
    Plain,
    /// The same, with notes on sums in any order.
    AnyOrder,
    /// Is proposed and then refuses.
    Refusing,
    /// Is proposed, and fails when a plan is made of it.
    Broken,
    /// Has plans that do not start.
    Failing,
    /// Wants all of a device's memory as its workspace.
    Greedy,
}

impl Engine {
    /// `cudnnBackendNumericalNote_t`s.
    pub fn notes(self) -> &'static [i32] {
        match self {
            Engine::TensorCores => &[0],
            Engine::AnyOrder => &[4],
            _ => &[],
        }
    }

    /// Whether there are plans of it.
    pub fn check(self) -> Outcome {
        match self {
            Engine::Refusing => refuse(Status::NOT_SUPPORTED, "the engine has no such plan"),
            Engine::Broken => refuse(Status::INTERNAL_ERROR, "the engine is broken"),
            _ => Ok(()),
        }
    }

    /// Bytes of workspace of its plans.
    pub fn workspace(self) -> i64 {
        if self == Engine::Greedy { GREEDY } else { WORKSPACE }
    }

    /// Whether its plans start.
    pub fn start(self) -> Outcome {
        match self {
            Engine::Failing => refuse(Status::EXECUTION_FAILED, "the engine does not start"),
            _ => Ok(()),
        }
    }
}

/// The engines that heuristics of a mode propose for a graph, which may have one on tensor cores.
pub fn engines(cores: bool, mode: i32) -> Outcome<Vec<Engine>> {
    match mode {
        // Of instant, of B, of A.
        0 | 1 | 3 if cores => Ok(vec![
            Engine::Refusing,
            Engine::Broken,
            Engine::Failing,
            Engine::TensorCores,
            Engine::AnyOrder,
            Engine::Plain,
        ]),
        0 | 1 | 3 => Ok(vec![Engine::Refusing, Engine::Greedy, Engine::AnyOrder]),
        // What always works.
        2 => Ok(vec![Engine::Plain]),
        _ => refuse(Status::BAD_PARAM, format!("no heuristics of mode {mode}")),
    }
}
