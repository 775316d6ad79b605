//! The nodes of a backward pass, each with what has arrived for it. The engine runs them.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use smallvec::SmallVec;

use super::node::{Edge, Node};
use super::parts::Part;
use crate::tensor::Tensor;

/// Hash of a node's address: its bits are spread by one multiplication.
#[derive(Default)]
pub(super) struct PointerHasher(u64);

impl Hasher for PointerHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are addresses");
    }
    fn write_usize(&mut self, n: usize) {
        self.0 = (n as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// The tasks' numbers by their nodes.
pub(super) type NodeMap = HashMap<usize, usize, BuildHasherDefault<PointerHasher>>;

pub(super) fn key(node: &Node) -> usize {
    node.0.as_ptr() as usize
}

/// A node of this pass: what has arrived for it and what is still to come.
pub(super) struct Task {
    pub node: Node,
    /// Gradients of the node's outputs so far.
    pub grads: SmallVec<[Option<Tensor>; 1]>,
    /// What is still to be added to the gradient of the only output, which the node does if nobody else asks for it.
    pub more: Option<Tensor>,
    /// Gradients of parts of outputs so far.
    pub parts: Vec<(usize, Part, Tensor)>,
    /// Edges from nodes that have not run yet.
    pub pending: usize,
    /// Where the places of its edges' tasks begin.
    pub first: usize,
    /// Its gradients are among those that the caller wants returned.
    pub captured: bool,
}

impl Task {
    /// Adds a contribution to the gradient of an output.
    pub fn add(&mut self, output: usize, grad: Tensor, in_place: bool) {
        let slot = &mut self.grads[output];
        *slot = Some(match slot.take() {
            None => grad,
            Some(sum) => match sum.owned_alone().filter(|_| in_place) {
                Some(own) => {
                    drop(sum);
                    own.add_(&grad);
                    own
                }
                None => &sum + &grad,
            },
        });
    }

    /// Adds what was left to the node.
    pub fn add_up(&mut self, in_place: bool) {
        if let Some(more) = self.more.take() {
            self.add(0, more, in_place);
        }
    }
}

/// The place of a node's task, which is made if there is none; true if so.
fn task(tasks: &mut Vec<Task>, index: &mut NodeMap, node: &Node) -> (usize, bool) {
    let next = tasks.len();
    let i = *index.entry(key(node)).or_insert(next);
    if i == next {
        let grads = SmallVec::from_elem(None, node.0.outputs.len());
        let (node, parts) = (node.clone(), Vec::new());
        tasks.push(Task { node, grads, more: None, parts, pending: 0, first: 0, captured: false });
    }
    (i, i == next)
}

/// The tasks of a pass.
pub(super) struct Found {
    pub tasks: Vec<Task>,
    /// The places of the tasks that edges lead to, from each task's `first` on; of an edge to nothing any.
    pub targets: Vec<usize>,
    pub index: NodeMap,
}

thread_local! {
    /// How many tasks the last pass had: most of a thread's are alike.
    static LAST_SIZE: Cell<usize> = const { Cell::new(0) };
}

/// The tasks of all nodes that the edges lead to.
pub(super) fn reach(starts: &[(Edge, Tensor)]) -> Found {
    let expected = LAST_SIZE.get().clamp(16, 1 << 10);
    let mut tasks = Vec::with_capacity(expected);
    let mut targets = Vec::with_capacity(2 * expected);
    let mut index = NodeMap::with_capacity_and_hasher(expected, BuildHasherDefault::default());
    let mut open: Vec<usize> = Vec::new();
    for (edge, _) in starts {
        let (i, new) = task(&mut tasks, &mut index, &edge.node);
        if new {
            open.push(i);
        }
    }
    while let Some(i) = open.pop() {
        let node = tasks[i].node.clone();
        tasks[i].first = targets.len();
        for edge in &node.0.edges {
            let Some(edge) = edge else {
                targets.push(usize::MAX);
                continue;
            };
            let (j, new) = task(&mut tasks, &mut index, &edge.node);
            tasks[j].pending += 1;
            targets.push(j);
            if new {
                open.push(j);
            }
        }
    }
    LAST_SIZE.set(tasks.len());
    Found { tasks, targets, index }
}

/// The tasks' numbers from old to young.
pub(super) fn by_age(tasks: &[Task]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_unstable_by_key(|&i| tasks[i].node.0.seq);
    order
}
