//! The backward pass. Nodes are visited from young to old: a node's gradient is complete when all
//! younger nodes that reach it have run, so creation order is a schedule and no recursion is
//! needed. Accumulators of leaves run the moment their last contribution is there, which is what
//! lets a hook on a leaf start communication while backward goes on.

use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::anomaly;
use super::mode::{ANOMALY, AUTOCAST, FORWARD, GRAD, ModeGuard, has_mode};
use super::node::{Edge, Kind, Node};
use super::parts::{self, Part};
use super::streams::Order;
use super::tasks::{Found, NodeMap, Task, by_age, key, reach};
use crate::error::{Error, throw, within};
use crate::profiler::{self, Category};
use crate::storage::Device;
use crate::tensor::{Dtype, Shape, Tensor};

/// Which gradients are wanted: all leaves', or those of certain tensors.
enum Wanted<'a> {
    Leaves,
    /// Accumulate in these leaves only.
    OnlyLeaves(&'a [Edge]),
    /// Return these, accumulate nowhere.
    Captured(&'a [Edge]),
}

type Callback = Box<dyn FnOnce()>;

/// A pass that runs on this thread.
struct Running {
    id: u64,
    reached: Reached,
    /// Called when all gradients are there.
    callbacks: Vec<Callback>,
    /// Called when the pass is over, however it ended.
    cleanups: Vec<Callback>,
}

/// The nodes of a pass, and which of them are on the way to something that is wanted.
#[derive(Clone, Default)]
struct Reached {
    index: Rc<NodeMap>,
    needed: Rc<Vec<bool>>,
}

thread_local! {
    /// Innermost last: hooks may run passes of their own.
    static PASSES: RefCell<Vec<Running>> = const { RefCell::new(Vec::new()) };
}

/// The innermost pass that runs on this thread, for hooks.
pub(crate) struct CurrentPass {
    /// Differs from all other passes' of the process.
    pub id: u64,
    reached: Reached,
}

/// Throws when no pass runs on this thread.
#[track_caller]
pub(crate) fn current_pass() -> CurrentPass {
    PASSES.with_borrow(|passes| match passes.last() {
        Some(pass) => CurrentPass { id: pass.id, reached: pass.reached.clone() },
        None => throw(Error::Autograd("a hook was called outside a backward pass".into())),
    })
}

/// Whether a backward pass runs on this thread.
pub(crate) fn is_in_backward() -> bool {
    PASSES.with_borrow(|passes| !passes.is_empty())
}

/// Calls `f` if the outermost pass on this thread fails.
///
/// # Panics
/// Throws when no pass runs on this thread.
#[track_caller]
pub(crate) fn if_backward_fails(f: impl FnOnce() + 'static) {
    let cleanup = || {
        if std::thread::panicking() {
            f();
        }
    };
    PASSES.with_borrow_mut(|passes| match passes.first_mut() {
        Some(pass) => pass.cleanups.push(Box::new(cleanup)),
        None => throw(Error::Autograd("a hook was called outside a backward pass".into())),
    });
}

/// Calls `f` when the innermost pass on this thread is over, also if it fails. Without one nothing
/// happens, and `f` comes back.
pub(crate) fn at_end_of_pass<F: FnOnce() + 'static>(f: F) -> Option<F> {
    PASSES.with_borrow_mut(|passes| match passes.last_mut() {
        Some(pass) => {
            pass.cleanups.push(Box::new(f));
            None
        }
        None => Some(f),
    })
}

impl CurrentPass {
    /// True when the pass computes the gradients of this node's outputs.
    pub fn reaches(&self, node: &Node) -> bool {
        self.reached.index.get(&key(node)).is_some_and(|&i| self.reached.needed[i])
    }
}

/// Enters a pass on this thread, and leaves it when dropped.
struct Entered;

impl Entered {
    fn new(reached: Reached) -> Self {
        static ID: AtomicU64 = AtomicU64::new(0);
        let (id, callbacks, cleanups) = (ID.fetch_add(1, Relaxed), Vec::new(), Vec::new());
        PASSES.with_borrow_mut(|p| p.push(Running { id, reached, callbacks, cleanups }));
        Entered
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let pass = PASSES.with_borrow_mut(Vec::pop);
        pass.into_iter().flat_map(|pass| pass.cleanups).for_each(|f| f());
    }
}

/// From inside a hook: calls `f` when the running backward pass has computed all gradients, on the
/// thread that called `backward`; the outermost pass, where one runs inside another. DDP waits for its
/// all-reduces there.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
/// use torchrs::{Tensor, autograd::queue_callback, catch};
/// static COMPLETE: AtomicBool = AtomicBool::new(false);
/// let x = Tensor::from([3f64]).requires_grad_(true);
/// let leaf = x.clone();
/// x.register_hook(move |_| {
///     let leaf = leaf.clone();
///     queue_callback(move || COMPLETE.store(leaf.grad().is_some(), Relaxed));
///     None
/// });
/// (&x * 2.0).backward();
/// assert!(COMPLETE.load(Relaxed));
/// assert!(catch(|| queue_callback(|| ())).is_err());
/// ```
///
/// # Panics
/// Throws when no backward pass runs on this thread.
#[track_caller]
pub fn queue_callback(f: impl FnOnce() + 'static) {
    PASSES.with_borrow_mut(|passes| match passes.first_mut() {
        Some(pass) => pass.callbacks.push(Box::new(f)),
        None => throw(Error::Autograd("queue_callback outside a backward pass".into())),
    });
}

/// What a backward pass does with the graph that it walks (PyTorch's `retain_graph` and
/// `create_graph`).
///
/// ```
/// use torchrs::{Tensor, autograd::{GraphMode, grad}, catch};
/// let x = Tensor::from([3f64]).requires_grad_(true);
/// let y = &x * &x * &x;
/// let slope = |of: &Tensor, mode| grad(&[of], &[&x], &[None], mode).remove(0).unwrap();
/// let first = slope(&y, GraphMode::Create);
/// let second = slope(&first, GraphMode::Retain);
/// assert_eq!((first.item(), second.item()), (27.0, 18.0));
/// slope(&first, GraphMode::Free);
/// assert!(catch(|| slope(&first, GraphMode::Free)).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum GraphMode {
    /// The saved tensors are dropped as soon as they are used. A second pass over the same graph
    /// throws.
    #[default]
    Free,
    /// The saved tensors stay for another pass (`retain_graph=True`).
    Retain,
    /// The saved tensors stay, and the gradients have a history themselves (`create_graph=True`).
    Create,
}

/// Computes gradients of `tensors` and adds them to the `grad` of the leaves that led to them
/// (`torch.autograd.backward`). `grads[i]` is the gradient of `tensors[i]`; `None` stands for one,
/// for a tensor with one element.
///
/// ```
/// use torchrs::{Tensor, autograd};
/// let x = Tensor::from([1f64, 2.]).requires_grad_(true);
/// let (y, v) = (&x * &x, Tensor::from([1f64, 10.]));
/// autograd::backward(&[&y], &[Some(&v)], autograd::GraphMode::Free);
/// assert_eq!(x.grad().unwrap().to_vec::<f64>(), [2.0, 40.0]);
/// ```
#[track_caller]
pub fn backward(tensors: &[&Tensor], grads: &[Option<&Tensor>], mode: GraphMode) {
    run(profiler::BACKWARD, tensors, grads, &Wanted::Leaves, mode);
}

/// [`backward`] that touches the `grad` of the given leaves only (`backward(inputs=...)`).
///
/// ```
/// use torchrs::{Tensor, autograd};
/// let a = Tensor::from([2f64]).requires_grad_(true);
/// let b = Tensor::from([3f64]).requires_grad_(true);
/// autograd::backward_into(&[&(&a * &b)], &[None], &[&a], autograd::GraphMode::Free);
/// assert!(a.grad().unwrap().item() == 3.0 && b.grad().is_none());
/// ```
#[track_caller]
pub fn backward_into(
    tensors: &[&Tensor],
    grads: &[Option<&Tensor>],
    leaves: &[&Tensor],
    mode: GraphMode,
) {
    let edges = input_edges("backward", leaves);
    let wanted = Wanted::OnlyLeaves(&edges);
    run(profiler::BACKWARD, tensors, grads, &wanted, mode);
}

/// The gradients of `outputs` with respect to `inputs`, without touching any `grad`
/// (`torch.autograd.grad` with `allow_unused`: `None` for an input that the outputs do not depend
/// on).
///
/// ```
/// use torchrs::{Tensor, autograd};
/// let x = Tensor::from([3f64]).requires_grad_(true);
/// let y = &x * &x * &x;
/// let g = autograd::grad(&[&y], &[&x], &[None], autograd::GraphMode::Create)[0].clone().unwrap();
/// assert_eq!(g.item(), 27.0);
/// let h = autograd::grad(&[&g], &[&x], &[None], autograd::GraphMode::Free)[0].clone().unwrap();
/// assert_eq!(h.item(), 18.0);
/// ```
#[track_caller]
pub fn grad(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    grad_outputs: &[Option<&Tensor>],
    mode: GraphMode,
) -> Vec<Option<Tensor>> {
    let edges = input_edges("grad", inputs);
    let wanted = Wanted::Captured(&edges);
    run("grad", outputs, grad_outputs, &wanted, mode)
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
        None if t.dtype().is_complex() => throw(Error::dtype(
            op,
            format!("the gradient of a real number may be left out; tensor {i} is {}", t.dtype()),
        )),
        None => t.ones_like(),
    }
}

#[track_caller]
fn run(
    op: &'static str,
    roots: &[&Tensor],
    root_grads: &[Option<&Tensor>],
    wanted: &Wanted,
    graph: GraphMode,
) -> Vec<Option<Tensor>> {
    // Gradients are computed in the types that forward used.
    let _no_autocast = ModeGuard::new(0, AUTOCAST);
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
                "{op}: tensor {i} does not require a gradient and has no history: it was made under `no_grad`, or of \
                 tensors none of which requires one"
            )))
        };
        starts.push((edge, root_gradient(op, i, t, *grad)));
    }
    let _mode = match graph {
        GraphMode::Create => ModeGuard::new(GRAD, 0),
        GraphMode::Free | GraphMode::Retain => ModeGuard::new(0, GRAD),
    };
    // Of memory that backward takes, and of errors in it, the user's line is that of the pass.
    let _line = within::line();
    let _span = profiler::span(op, Category::Backward);
    let pass = Pass::new(starts, wanted, Location::caller());
    let entered = Entered::new(pass.reached.clone());
    let captured = pass.execute(wanted, graph != GraphMode::Free);
    let callbacks = PASSES.with_borrow_mut(|passes| {
        std::mem::take(&mut passes.last_mut().expect("entered above").callbacks)
    });
    drop(entered);
    callbacks.into_iter().for_each(|f| f());
    captured
}

struct Pass {
    tasks: Vec<Task>,
    /// The places of the tasks that edges lead to, from each task's `first` on; of an edge to nothing any.
    targets: Vec<usize>,
    /// Not all gradients are wanted.
    partial: bool,
    /// What there is to do for each node.
    reached: Reached,
    /// Where the caller started it.
    called: &'static Location<'static>,
    /// Where nodes ran on several streams.
    order: Option<Order>,
}

impl Pass {
    fn new(
        starts: Vec<(Edge, Tensor)>,
        wanted: &Wanted,
        called: &'static Location<'static>,
    ) -> Self {
        let Found { mut tasks, targets, index } = reach(&starts);
        if let Wanted::Captured(edges) = wanted {
            for edge in *edges {
                if let Some(&i) = index.get(&key(&edge.node)) {
                    tasks[i].captured = true;
                }
            }
        }
        let needed = Rc::new(needed(&tasks, &index, wanted));
        let order = Order::of(tasks.iter().map(|task| &task.node));
        let reached = Reached { index: Rc::new(index), needed };
        let partial = !matches!(wanted, Wanted::Leaves);
        let mut pass = Pass { tasks, targets, partial, reached, called, order };
        for (edge, grad) in starts {
            let i = pass.place(&edge.node);
            pass.deliver(i, edge.output, grad);
        }
        pass
    }

    fn place(&self, node: &Node) -> usize {
        self.reached.index[&key(node)]
    }

    /// The place of the task that edge `k` of task `i` leads to.
    fn target(&self, i: usize, k: usize) -> usize {
        self.targets[self.tasks[i].first + k]
    }

    /// Adds a contribution to a task's gradient. The first is moved in; a later one is added in
    /// place if nobody else can see the sum so far, nor another stream may still read it.
    fn deliver(&mut self, i: usize, output: usize, grad: Tensor) {
        let _there = match &mut self.order {
            Some(order) => order.hand_over(&grad, &self.tasks[i].node),
            None => None,
        };
        let in_place = self.order.is_none() && !has_mode(GRAD | FORWARD);
        let task = &mut self.tasks[i];
        if task.grads[output].is_some() && in_place && task.more.is_none() && task.node.takes_two()
        {
            task.more = Some(grad);
            return;
        }
        task.add_up(in_place);
        task.add(output, grad, in_place);
    }

    fn execute(mut self, wanted: &Wanted, keep: bool) -> Vec<Option<Tensor>> {
        let captures: &[Edge] = match wanted {
            Wanted::Captured(edges) => edges,
            _ => &[],
        };
        let mut captured = vec![None; captures.len()];
        let mut ready: Vec<usize> = Vec::new();
        // Ready accumulators that are roots themselves come first (seq is the largest number).
        for i in by_age(&self.tasks).into_iter().rev() {
            let is_leaf = matches!(self.tasks[i].node.0.kind, Kind::Accumulate(_));
            if !is_leaf || self.tasks[i].pending == 0 {
                ready.push(i);
            }
            while let Some(i) = ready.pop() {
                self.step(i, captures, &mut captured, keep, &mut ready);
            }
        }
        if let Some(order) = &self.order {
            order.join(&captured);
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
        let _stream = match &mut self.order {
            Some(order) => order.enter(&node),
            None => None,
        };
        let task = &mut self.tasks[i];
        if task.more.is_some()
            && (task.captured || !task.parts.is_empty() || node.has_hooks() || has_mode(ANOMALY))
        {
            task.add_up(true);
        }
        let more = self.tasks[i].more.take();
        let mut grads = std::mem::take(&mut self.tasks[i].grads);
        parts::join(&node, &mut grads, std::mem::take(&mut self.tasks[i].parts));
        let hooked = node.run_tensor_hooks(&mut grads);
        let capturing = self.tasks[i].captured;
        if capturing {
            for (slot, edge) in captured.iter_mut().zip(captures) {
                if edge.node.ptr_eq(&node) {
                    *slot = grads[edge.output].clone();
                }
            }
        }
        let is_leaf = matches!(node.0.kind, Kind::Accumulate(_));
        let runs = self.reached.needed[i]
            && (!is_leaf || captures.is_empty())
            && grads.iter().any(Option::is_some)
            && (!capturing || self.leads_to_needed(i, &node));
        let (mut part, sum) = (OnceLock::new(), self.take_sum(i, &node, runs));
        let mut results = match runs {
            true => {
                let inside = (hooked, captures.is_empty());
                self.run(i, &node, grads, more, keep, inside, (&part, &sum))
            }
            false => Default::default(),
        };
        self.put_back(i, &node, sum);
        for (k, edge) in node.0.edges.iter().enumerate() {
            let Some(edge) = edge else { continue };
            let j = self.target(i, k);
            if let Some(grad) = results.get_mut(k).and_then(Option::take)
                && self.reached.needed[j]
            {
                if let Some(part) = part.take() {
                    self.tasks[j].parts.push((edge.output, part, grad));
                } else {
                    let grad = fit(node.0.name, k, grad, &edge.node.0.outputs[edge.output]);
                    self.deliver(j, edge.output, grad);
                }
            }
            self.tasks[j].pending -= 1;
            if self.tasks[j].pending == 0 && matches!(edge.node.0.kind, Kind::Accumulate(_)) {
                ready.push(j);
            }
        }
    }

    /// The sum so far of the gradient of the node's first input, to which the node may add by itself: nobody else sees it.
    fn take_sum(&mut self, i: usize, node: &Node, runs: bool) -> Mutex<Option<Tensor>> {
        let in_place = runs
            && self.order.is_none()
            && !has_mode(GRAD | FORWARD | ANOMALY)
            && node.adds_to_sum();
        let Some(edge) = node.0.edges.first().and_then(Option::as_ref).filter(|_| in_place) else {
            return Mutex::default();
        };
        let j = self.target(i, 0);
        let task = &mut self.tasks[j];
        // What waits to be added comes behind the sum.
        let slot = task.grads.get_mut(edge.output).filter(|_| task.more.is_none());
        let Some(slot) = slot else { return Mutex::default() };
        let own = slot.as_ref().filter(|sum| sum.is_contiguous()).and_then(Tensor::owned_alone);
        if own.is_some() {
            *slot = None;
        }
        Mutex::new(own)
    }

    /// Puts a sum back that the node has left alone.
    fn put_back(&mut self, i: usize, node: &Node, sum: Mutex<Option<Tensor>>) {
        let Some(sum) = sum.into_inner() else { return };
        let edge = node.0.edges[0].as_ref().expect("where the sum comes from");
        let j = self.target(i, 0);
        self.tasks[j].grads[edge.output] = Some(sum);
    }

    /// The gradients of a node's inputs, or its leaf's accumulation.
    #[allow(clippy::too_many_arguments, reason = "what a node runs with")]
    fn run(
        &self,
        i: usize,
        node: &Node,
        mut grads: SmallVec<[Option<Tensor>; 1]>,
        more: Option<Tensor>,
        keep: bool,
        (hooked, kept): (bool, bool),
        (part, sum): (&OnceLock<Part>, &Mutex<Option<Tensor>>),
    ) -> super::Grads {
        let _inside = node.0.trace.as_ref().and_then(|trace| trace.inside());
        let _span = profiler::span(node.0.name, Category::Backward);
        if hooked {
            node.run_prehooks(&mut grads);
        }
        // Neither hooks nor captures see the results.
        let plain = !hooked && kept && self.order.is_none() && !has_mode(GRAD | FORWARD);
        let places = if plain { self.places(i, node) } else { super::Grads::new() };
        let wanted = self.wanted(i, node);
        let part = (plain && !has_mode(ANOMALY)).then_some(part);
        let sum = plain.then_some(sum);
        let gradients =
            || node.run(&grads, keep, wanted.as_deref(), &places, (part, more.as_ref(), sum));
        let mut results = match &node.0.kind {
            Kind::Function if has_mode(ANOMALY) => anomaly::watch(node, self.called, gradients),
            Kind::Function => gradients(),
            Kind::Accumulate(_) => {
                let watched = hooked.then(|| grads[0].clone());
                // Moved, not cloned: a gradient that nobody else holds becomes `.grad` itself.
                if let (Some(grad), Some(leaf)) = (grads[0].take(), node.leaf()) {
                    // From a graph of before the leaf was moved.
                    let moved = grad.device() != leaf.device();
                    let grad = if moved { grad.to_device(leaf.device()) } else { grad };
                    accumulate_in_leaf(node, &leaf, grad);
                }
                grads[0] = watched.flatten();
                Default::default()
            }
        };
        if hooked {
            node.run_posthooks(&mut results, &grads);
        }
        results
    }

    /// Which of a node's inputs are on the way to something that is wanted; `None` if all that can be.
    fn wanted(&self, i: usize, node: &Node) -> Option<SmallVec<[bool; 4]>> {
        let edges = node.0.edges.iter().enumerate();
        let needed = |(k, edge): (usize, &Option<Edge>)| {
            edge.is_some() && self.reached.needed[self.target(i, k)]
        };
        self.partial.then(|| edges.map(needed).collect())
    }

    /// Where the leaves at the ends of a node's edges want their gradients; nothing if none of them does.
    fn places(&self, i: usize, node: &Node) -> super::Grads {
        let edges = || node.0.edges.iter().enumerate();
        let place = |(k, edge): (usize, &Option<Edge>)| self.place_of(edge.as_ref()?, (i, k));
        match edges().any(|edge| place(edge).is_some()) {
            true => edges().map(place).collect(),
            false => super::Grads::new(),
        }
    }

    /// Where the leaf at the end of an edge wants its gradient, if what is delivered now is all of it.
    fn place_of(&self, edge: &Edge, (i, k): (usize, usize)) -> Option<Tensor> {
        let leaf = edge.leaf.as_ref()?;
        let target =
            leaf.grad_target().filter(|t| t.is_contiguous() && t.device() == Device::Cpu)?;
        let j = self.target(i, k);
        let task = &self.tasks[j];
        let whole = task.pending == 1 && task.grads[edge.output].is_none() && task.parts.is_empty();
        let unseen = leaf.own_grad().is_none() && !leaf.has_hooks() && !edge.node.has_hooks();
        (whole && unseen && self.reached.needed[j]).then_some(target)
    }

    fn leads_to_needed(&self, i: usize, node: &Node) -> bool {
        let mut edges = node.0.edges.iter().enumerate();
        edges.any(|(k, edge)| edge.is_some() && self.reached.needed[self.target(i, k)])
    }
}

/// For each task whether it is on the way to something that is wanted.
fn needed(tasks: &[Task], index: &NodeMap, wanted: &Wanted) -> Vec<bool> {
    let targets = match wanted {
        Wanted::Leaves => return vec![true; tasks.len()],
        Wanted::OnlyLeaves(edges) | Wanted::Captured(edges) => edges,
    };
    let mut needed = vec![false; tasks.len()];
    for target in *targets {
        if let Some(&i) = index.get(&key(&target.node)) {
            needed[i] = true;
        }
    }
    // From old to young; accumulators, which have no edges, may come at any place.
    for i in by_age(tasks) {
        let leads = |e: &Edge| needed[index[&key(&e.node)]];
        needed[i] = needed[i] || tasks[i].node.0.edges.iter().flatten().any(leads);
    }
    needed
}

/// A gradient in the shape and dtype of the tensor it belongs to: an op may leave broadcasting and
/// promotion to this.
pub(crate) fn fit(name: &str, input: usize, grad: Tensor, like: &(Shape, Dtype, Device)) -> Tensor {
    let (shape, dtype, _) = like;
    let grad = if grad.shape() == &shape[..] {
        grad
    } else if crate::tensor::broadcast_shapes(grad.shape(), shape).as_deref() == Ok(grad.shape()) {
        grad.sum_to(shape)
    } else {
        throw(Error::Autograd(format!(
            "backward of `{name}` gave a gradient of shape {:?} for input {input} of shape {:?}",
            grad.shape(),
            &shape[..]
        )))
    };
    // Of a real number that became complex only the real part can change.
    let grad = if dtype.is_complex() || !grad.dtype().is_complex() { grad } else { grad.real() };
    if grad.dtype() == *dtype { grad } else { grad.to_dtype(*dtype) }
}

/// Adds `grad` to the leaf's `grad`. Several threads may do so at once: the accumulator's lock makes
/// them wait for each other.
fn accumulate_in_leaf(node: &Node, leaf: &Tensor, grad: Tensor) {
    {
        let _turn = node.0.state.lock();
        let in_place = !has_mode(GRAD | FORWARD);
        let sum = match (leaf.own_grad(), leaf.grad_target()) {
            (Some(old), _) if in_place => {
                old.add_(&grad);
                None
            }
            (Some(old), _) => Some(&old + &grad),
            (None, Some(target)) => {
                // Unless it was made there, see `BackwardCtx::place`.
                if grad.device_ptr() == target.device_ptr() && grad.is_contiguous() {
                    target.storage().bump_version();
                } else {
                    super::no_grad(|| target.copy_(&grad));
                }
                Some(target)
            }
            // The gradient is ours alone: keep it. Else a copy, so that a later in-place addition
            // does not change a tensor that somebody else reads.
            (None, None) if !in_place => Some(grad),
            (None, None) => match grad.owned_alone().filter(|_| grad.is_contiguous()) {
                Some(own) => Some(own),
                None => Some(grad.clone_contiguous()),
            },
        };
        if let Some(sum) = sum {
            leaf.set_grad(Some(sum));
        }
    }
    leaf.run_post_hooks();
}
