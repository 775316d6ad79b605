//! What a graph of operations comes to: one convolution, or steps that are computed one after the other.

use super::convolution::Convolution;
use super::engines::Engine;
use super::steps::{self, Step};
use super::{Outcome, Status, refuse};
use crate::code::Result;
use std::sync::Arc;

/// An operation.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A convolution.
    Convolution(Arc<Convolution>),
    /// Any other.
    Step(Arc<Step>),
}

/// A graph.
#[derive(Clone, Debug)]
pub enum Graph {
    /// One convolution.
    Convolution(Arc<Convolution>),
    /// Steps.
    Steps(Arc<Vec<Step>>),
}

/// Work that is done later.
pub type Later = Arc<dyn Fn() -> Result + Send + Sync>;

impl Graph {
    /// Looks at whether operations are a graph that is computed here.
    pub fn new(operations: Vec<Operation>) -> Outcome<Graph> {
        if let [Operation::Convolution(convolution)] = &operations[..] {
            return Ok(Graph::Convolution(convolution.clone()));
        }
        let mut steps = Vec::new();
        for operation in operations {
            match operation {
                Operation::Step(step) => steps.push(Step::clone(&step)),
                Operation::Convolution(_) => {
                    return refuse(Status::NOT_SUPPORTED, "a convolution beside other operations");
                }
            }
        }
        if !steps::in_order(&steps) {
            return refuse(Status::BAD_PARAM, "a virtual tensor is read before it is computed");
        }
        Ok(Graph::Steps(Arc::new(steps)))
    }

    /// Whether there is an engine on tensor cores.
    pub fn takes_cores(&self) -> bool {
        match self {
            Graph::Convolution(convolution) => convolution.takes_cores(),
            Graph::Steps(_) => true,
        }
    }

    /// The work of a call with the addresses of a pack.
    pub fn work(&self, pack: &[(i64, usize)], engine: Engine) -> Outcome<Later> {
        Ok(match self.clone() {
            Graph::Convolution(convolution) => {
                let at = convolution.addresses(pack)?;
                Arc::new(move || convolution.compute(at, engine))
            }
            Graph::Steps(steps) => {
                let bound = steps::bind(&steps, pack)?;
                Arc::new(move || steps::compute(&steps, &bound))
            }
        })
    }
}
