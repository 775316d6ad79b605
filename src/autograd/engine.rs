//! The backward pass. Nodes are visited from young to old: a node's gradient is complete when all
//! younger nodes that reach it have run, so creation order is a schedule and no recursion is
//! needed. Accumulators of leaves run the moment their last contribution is there, which is what
//! lets a hook on a leaf start communication while backward goes on.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;

use super::mode::{EnableGradGuard, NoGradGuard};
use super::node::{Edge, Kind, Node};
use crate::Tensor;
use crate::error::{Error, throw};

/// Hash of a node's address: its bits are spread by one multiplication.
#[derive(Default)]
struct PointerHasher(u64);

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

type NodeMap = HashMap<usize, usize, BuildHasherDefault<PointerHasher>>;

fn key(node: &Arc<Node>) -> usize {
    Arc::as_ptr(node) as usize
}

/// A node of this pass: what has arrived for it and what is still to come.
struct Task {
    node: Arc<Node>,
    /// Gradients of the node's outputs so far.
    grads: SmallVec<[Option<Tensor>; 1]>,
    /// Edges from nodes that have not run yet.
    pending: usize,
    /// On the way to something that is wanted.
    needed: bool,
}

/// Which gradients are wanted: all leaves', or those of certain tensors.
enum Wanted<'a> {
    Leaves,
    /// Accumulate in these leaves only.
    OnlyLeaves(&'a [Edge]),
    /// Return these, accumulate nowhere.
    Captured(&'a [Edge]),
}

type Callback = Box<dyn FnOnce()>;

thread_local! {
    /// End-of-backward callbacks of the passes running on this thread, innermost last.
    static CALLBACKS: RefCell<Vec<Vec<Callback>>> = const { RefCell::new(Vec::new()) };
}

/// From inside a hook: calls `f` when the running backward pass has computed all gradients, on the
/// thread that called `backward`; the outermost pass, where one runs inside another (checkpoints). DDP
/// waits for its all-reduces there.
///
/// # Panics
/// Throws when no backward pass runs on this thread.
#[track_caller]
pub fn queue_callback(f: impl FnOnce() + 'static) {
    CALLBACKS.with_borrow_mut(|stack| match stack.first_mut() {
        Some(callbacks) => callbacks.push(Box::new(f)),
        None => throw(Error::Autograd("queue_callback outside a backward pass".into())),
    });
}

/// Computes gradients of `tensors` and adds them to the `grad` of the leaves that led to them
/// (`torch.autograd.backward`). `grads[i]` is the gradient of `tensors[i]`; `None` stands for one,
/// for a tensor with one element. With `retain_graph` the saved tensors are kept for another pass;
/// with `create_graph` the gradients have history themselves.
#[track_caller]
pub fn backward(
    tensors: &[&Tensor],
    grads: &[Option<&Tensor>],
    retain_graph: bool,
    create_graph: bool,
) {
    run("backward", tensors, grads, &Wanted::Leaves, retain_graph || create_graph, create_graph);
}

/// [`backward`] that touches the `grad` of the given leaves only (`backward(inputs=...)`).
#[track_caller]
pub fn backward_into(
    tensors: &[&Tensor],
    grads: &[Option<&Tensor>],
    leaves: &[&Tensor],
    retain_graph: bool,
    create_graph: bool,
) {
    let edges = input_edges("backward", leaves);
    let wanted = Wanted::OnlyLeaves(&edges);
    run("backward", tensors, grads, &wanted, retain_graph || create_graph, create_graph);
}

/// The gradients of `outputs` with respect to `inputs`, without touching any `grad`
/// (`torch.autograd.grad` with `allow_unused`: `None` for an input that the outputs do not depend
/// on).
///
/// ```
/// use torchrs::{Tensor, autograd};
/// let x = Tensor::from([3f64]).requires_grad_(true);
/// let y = &x * &x * &x;
/// let g = autograd::grad(&[&y], &[&x], &[None], false, true)[0].clone().unwrap();
/// assert_eq!(g.item(), 27.0);
/// let h = autograd::grad(&[&g], &[&x], &[None], false, false)[0].clone().unwrap();
/// assert_eq!(h.item(), 18.0);
/// ```
#[track_caller]
pub fn grad(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    grad_outputs: &[Option<&Tensor>],
    retain_graph: bool,
    create_graph: bool,
) -> Vec<Option<Tensor>> {
    let edges = input_edges("grad", inputs);
    let wanted = Wanted::Captured(&edges);
    run("grad", outputs, grad_outputs, &wanted, retain_graph || create_graph, create_graph)
}

#[track_caller]
fn input_edges(op: &str, inputs: &[&Tensor]) -> Vec<Edge> {
    let edge = |(i, t): (usize, &&Tensor)| {
        t.gradient_edge().unwrap_or_else(|| {
            throw(Error::Autograd(format!("{op}: input {i} does not require a gradient")))
        })
    };
    inputs.iter().enumerate().map(edge).collect()
}

#[track_caller]
fn root_gradient(op: &str, i: usize, t: &Tensor, grad: Option<&Tensor>) -> Tensor {
    match grad {
        Some(g) if g.shape() != t.shape() => throw(Error::shape(
            op,
            format!("gradient {i} has shape {:?}, its tensor has {:?}", g.shape(), t.shape()),
        )),
        Some(g) => g.clone(),
        None if t.numel() != 1 => throw(Error::shape(
            op,
            format!(
                "the gradient of a tensor with one element may be left out; tensor {i} has shape {:?}",
                t.shape()
            ),
        )),
        None => t.ones_like(),
    }
}

#[track_caller]
fn run(
    op: &str,
    roots: &[&Tensor],
    root_grads: &[Option<&Tensor>],
    wanted: &Wanted,
    keep: bool,
    create_graph: bool,
) -> Vec<Option<Tensor>> {
    // Gradients are computed in the types that forward used.
    let _no_autocast = crate::amp::Suspended::new();
    if roots.len() != root_grads.len() {
        throw(Error::Autograd(format!(
            "{op}: {} tensors but {} gradients",
            roots.len(),
            root_grads.len()
        )));
    }
    let mut starts = Vec::with_capacity(roots.len());
    for (i, (t, grad)) in roots.iter().zip(root_grads).enumerate() {
        let Some(edge) = t.gradient_edge() else {
            throw(Error::Autograd(format!(
                "{op}: tensor {i} does not require a gradient and has no history"
            )))
        };
        starts.push((edge, root_gradient(op, i, t, *grad)));
    }
    let (no, yes);
    if create_graph {
        yes = EnableGradGuard::new();
        let _ = &yes;
    } else {
        no = NoGradGuard::new();
        let _ = &no;
    }
    CALLBACKS.with_borrow_mut(|stack| stack.push(Vec::new()));
    /// Takes this pass's callbacks off the stack, also when a backward function panics.
    struct Pop;
    impl Drop for Pop {
        fn drop(&mut self) {
            CALLBACKS.with_borrow_mut(|stack| drop(stack.pop()));
        }
    }
    let pop = Pop;
    let captured = Pass::new(starts, wanted).execute(wanted, keep);
    let callbacks =
        CALLBACKS.with_borrow_mut(|s| std::mem::take(s.last_mut().expect("pushed above")));
    drop(pop);
    callbacks.into_iter().for_each(|f| f());
    captured
}

struct Pass {
    tasks: Vec<Task>,
    index: NodeMap,
}

impl Pass {
    fn new(starts: Vec<(Edge, Tensor)>, wanted: &Wanted) -> Self {
        let mut pass = Pass { tasks: Vec::new(), index: NodeMap::default() };
        let mut open: Vec<usize> = Vec::new();
        for (edge, _) in &starts {
            let (i, new) = pass.task(&edge.node);
            if new {
                open.push(i);
            }
        }
        while let Some(i) = open.pop() {
            let node = pass.tasks[i].node.clone();
            for edge in node.edges.iter().flatten() {
                let (j, new) = pass.task(&edge.node);
                pass.tasks[j].pending += 1;
                if new {
                    open.push(j);
                }
            }
        }
        for (edge, grad) in starts {
            let i = pass.index[&key(&edge.node)];
            pass.deliver(i, edge.output, grad);
        }
        pass.mark_needed(wanted);
        pass
    }

    fn task(&mut self, node: &Arc<Node>) -> (usize, bool) {
        let next = self.tasks.len();
        let i = *self.index.entry(key(node)).or_insert(next);
        if i == next {
            let grads = SmallVec::from_elem(None, node.outputs.len());
            self.tasks.push(Task { node: node.clone(), grads, pending: 0, needed: false });
        }
        (i, i == next)
    }

    /// Adds a contribution to a task's gradient. The first is moved in; a later one is added in
    /// place if nobody else can see the sum so far.
    fn deliver(&mut self, i: usize, output: usize, grad: Tensor) {
        let slot = &mut self.tasks[i].grads[output];
        *slot = Some(match slot.take() {
            None => grad,
            Some(sum) if !super::is_grad_enabled() && sum.is_uniquely_owned() => {
                sum.add_(&grad);
                sum
            }
            Some(sum) => &sum + &grad,
        });
    }

    fn mark_needed(&mut self, wanted: &Wanted) {
        let targets: Option<Vec<usize>> = match wanted {
            Wanted::Leaves => None,
            Wanted::OnlyLeaves(edges) | Wanted::Captured(edges) => {
                Some(edges.iter().map(|e| key(&e.node)).collect())
            }
        };
        let Some(targets) = targets else {
            self.tasks.iter_mut().for_each(|t| t.needed = true);
            return;
        };
        // From old to young; accumulators, which have no edges, may come at any place.
        let mut order: Vec<usize> = (0..self.tasks.len()).collect();
        order.sort_unstable_by_key(|&i| self.tasks[i].node.seq.wrapping_add(1));
        for i in order {
            let needed = targets.contains(&key(&self.tasks[i].node))
                || self.tasks[i]
                    .node
                    .edges
                    .iter()
                    .flatten()
                    .any(|e| self.tasks[self.index[&key(&e.node)]].needed);
            self.tasks[i].needed = needed;
        }
    }

    fn execute(mut self, wanted: &Wanted, keep: bool) -> Vec<Option<Tensor>> {
        let captures: &[Edge] = match wanted {
            Wanted::Captured(edges) => edges,
            _ => &[],
        };
        let mut captured = vec![None; captures.len()];
        let mut order: Vec<usize> = (0..self.tasks.len()).collect();
        // Ready accumulators that are roots themselves come first (seq is the largest number).
        order.sort_unstable_by_key(|&i| std::cmp::Reverse(self.tasks[i].node.seq));
        let mut ready: Vec<usize> = Vec::new();
        for i in order {
            let is_leaf = matches!(self.tasks[i].node.kind, Kind::Accumulate(_));
            if !is_leaf || self.tasks[i].pending == 0 {
                ready.push(i);
            }
            while let Some(i) = ready.pop() {
                self.step(i, captures, &mut captured, keep, &mut ready);
            }
        }
        captured
    }

    /// Runs one node and delivers its results; accumulators that are thereby complete go to `ready`.
    fn step(
        &mut self,
        i: usize,
        captures: &[Edge],
        captured: &mut [Option<Tensor>],
        keep: bool,
        ready: &mut Vec<usize>,
    ) {
        let node = self.tasks[i].node.clone();
        let mut grads = std::mem::take(&mut self.tasks[i].grads);
        apply_hooks(&node, &mut grads);
        let mut capturing = false;
        for (slot, edge) in captured.iter_mut().zip(captures) {
            if Arc::ptr_eq(&edge.node, &node) {
                *slot = grads[edge.output].clone();
                capturing = true;
            }
        }
        let is_leaf = matches!(node.kind, Kind::Accumulate(_));
        let runs = self.tasks[i].needed
            && !(is_leaf && (capturing || !captures.is_empty()))
            && grads.iter().any(Option::is_some)
            && (!capturing || self.leads_to_needed(&node));
        let mut results = match &node.kind {
            _ if !runs => Default::default(),
            Kind::Function => node.run(&grads, keep),
            Kind::Accumulate(leaf) => {
                // Moved, not cloned: a gradient that nobody else holds becomes `.grad` itself.
                accumulate_in_leaf(leaf, grads[0].take().expect("checked by `runs`"));
                Default::default()
            }
        };
        drop(grads);
        for (k, edge) in node.edges.iter().enumerate() {
            let Some(edge) = edge else { continue };
            let j = self.index[&key(&edge.node)];
            if let Some(grad) = results.get_mut(k).and_then(Option::take)
                && self.tasks[j].needed
            {
                let grad = fit(&node, k, grad, edge);
                self.deliver(j, edge.output, grad);
            }
            self.tasks[j].pending -= 1;
            if self.tasks[j].pending == 0 && matches!(edge.node.kind, Kind::Accumulate(_)) {
                ready.push(j);
            }
        }
    }

    fn leads_to_needed(&self, node: &Node) -> bool {
        node.edges.iter().flatten().any(|e| self.tasks[self.index[&key(&e.node)]].needed)
    }
}

fn apply_hooks(node: &Arc<Node>, grads: &mut [Option<Tensor>]) {
    let hooks = match &node.kind {
        Kind::Accumulate(leaf) => {
            leaf.leaf_hooks().into_iter().map(|(id, hook)| (0, id, hook)).collect()
        }
        Kind::Function => {
            let state = node.state.lock();
            if state.hooks.is_empty() {
                return;
            }
            state.hooks.clone()
        }
    };
    for (output, _, hook) in hooks {
        if let Some(grad) = &grads[output]
            && let Some(replaced) = hook(grad)
        {
            grads[output] = Some(replaced);
        }
    }
}

/// A gradient in the shape and dtype of the tensor it belongs to: an op may leave broadcasting and
/// promotion to this.
fn fit(node: &Node, input: usize, grad: Tensor, edge: &Edge) -> Tensor {
    let (shape, dtype) = &edge.node.outputs[edge.output];
    let grad = if grad.shape() == &shape[..] {
        grad
    } else if crate::tensor::broadcast_shapes(grad.shape(), shape).as_deref() == Ok(grad.shape()) {
        grad.sum_to_size(shape)
    } else {
        throw(Error::Autograd(format!(
            "backward of `{}` gave a gradient of shape {:?} for input {input} of shape {:?}",
            node.name,
            grad.shape(),
            &shape[..]
        )))
    };
    if grad.dtype() == *dtype { grad } else { grad.to_dtype(*dtype) }
}

/// Adds `grad` to the leaf's `grad`.
fn accumulate_in_leaf(leaf: &Tensor, grad: Tensor) {
    let sum = match (leaf.grad(), leaf.grad_target()) {
        (Some(old), _) if !super::is_grad_enabled() => {
            old.add_(&grad);
            None
        }
        (Some(old), _) => Some(&old + &grad),
        (None, Some(target)) => {
            super::no_grad(|| target.copy_(&grad));
            Some(target)
        }
        // The gradient is ours alone: keep it. Else a copy, so that a later in-place addition does
        // not change a tensor that somebody else reads.
        (None, None) if super::is_grad_enabled() => Some(grad),
        (None, None) if grad.is_uniquely_owned() && grad.is_contiguous() => Some(grad),
        (None, None) => Some(grad.clone_contiguous()),
    };
    if let Some(sum) = sum {
        leaf.set_grad(Some(sum));
    }
    leaf.run_post_hooks();
}
