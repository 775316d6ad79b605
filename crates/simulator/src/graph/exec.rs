//! A graph's nodes, and how they are performed: one after the other, each after those that it needs.

use crate::code::Result;
use crate::kernel::machine::Machine;
use crate::registry::Registry;
use crate::work::Work;
use std::sync::Arc;

/// All graphs that live.
pub static GRAPHS: Registry<Graph> = Registry::new();
/// All graphs that can be launched.
pub static PROGRAMS: Registry<Arc<Program>> = Registry::new();

/// A piece of work and the nodes that come before it.
#[derive(Debug, Clone)]
pub struct Node {
    /// The work.
    pub work: Work,
    /// The device of the stream that it was captured in.
    pub device: usize,
    /// Nodes before it, whose numbers are less than its own.
    pub after: Vec<usize>,
}

/// What a capture gave.
#[derive(Debug)]
pub struct Graph {
    /// The nodes; each needs only such as come before it.
    pub nodes: Vec<Node>,
}

/// A graph that can be launched.
#[derive(Debug)]
pub struct Program {
    nodes: Vec<Node>,
}

impl Program {
    /// Of a graph, from which it is independent from then on.
    pub fn new(graph: &Graph) -> Program {
        Program { nodes: graph.nodes.clone() }
    }

    /// How many kernels it launches.
    pub fn kernels(&self) -> u64 {
        self.nodes.iter().filter(|node| matches!(node.work, Work::Kernel(_))).count() as u64
    }

    /// Performs all nodes: as they were captured, or, under the adversary, in any order that their
    /// dependencies allow.
    pub fn run(
        &self,
        device: usize,
        machine: &mut Machine,
        perform: impl Fn(&Work, usize, &mut Machine) -> Result,
    ) -> Result {
        if machine.random().is_none() {
            return self.nodes.iter().try_for_each(|node| perform(&node.work, device, machine));
        }
        let mut done = vec![false; self.nodes.len()];
        for _ in 0..self.nodes.len() {
            let can_go =
                |n: &usize| !done[*n] && self.nodes[*n].after.iter().all(|before| done[*before]);
            let ready: Vec<usize> = (0..self.nodes.len()).filter(can_go).collect();
            let chosen =
                machine.random().map_or(0, |random| random.below(ready.len() as u64) as usize);
            perform(&self.nodes[ready[chosen]].work, device, machine)?;
            done[ready[chosen]] = true;
        }
        Ok(())
    }
}
