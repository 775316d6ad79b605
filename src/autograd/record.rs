//! How an op enters the graph.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use parking_lot::Mutex;
use smallvec::{Array, SmallVec, smallvec};

use super::anomaly::{Trace, watch_forward};
use super::forward_ad;
use super::mode::{FORWARD, GRAD, INFERENCE, has_mode, mode};
use super::node::{
    BackwardCtx, BackwardFn, Edge, Edges, Grads, Held, Kind, Node, NodeImpl, OF_LEAVES, Outputs,
    backward_fn,
};
use super::saved::{SavedTensor, Source};
use super::{is_grad_enabled, streams};
use crate::counted::counted;
use crate::storage::Device;
use crate::tensor::{Dtype, Shape, Tensor, layout::copy_to};

thread_local! {
    /// The place in creation order of the last node that this thread made.
    static LAST: Cell<u64> = const { Cell::new(0) };
}

/// A new node's place in creation order: after all that this thread made, and after those its edges lead to, which
/// other threads may have made (a logical clock; Lamport, 1978).
#[inline]
fn next_seq(edges: &Edges) -> u64 {
    let mut last = LAST.get();
    for edge in edges.iter().flatten() {
        if edge.node.0.seq != OF_LEAVES {
            last = last.max(edge.node.0.seq);
        }
    }
    LAST.set(last + 1);
    last + 1
}

/// Keeps tensors for backward; given to the closure that makes an op's backward.
///
/// ```
/// use torchrs::{Tensor, autograd::{BackwardCtx, no_grad, record}};
/// fn scaled_exp(x: &Tensor, y: &Tensor) -> Tensor {
///     record("scaled_exp", &[x, y], no_grad(|| x.exp() * y), |saver| {
///         let (x, out) = (saver.save(x), saver.save_output(0));
///         move |ctx: &BackwardCtx| {
///             let (by_x, by_y) = (ctx.get(&out), ctx.get(&x).exp());
///             [by_x, by_y].map(|d| Some(ctx.grad(0) * d)).into_iter().collect()
///         }
///     })
/// }
/// let x = Tensor::from([0f64]).requires_grad_(true);
/// let y = Tensor::from([5f64]).requires_grad_(true);
/// scaled_exp(&x, &y).backward();
/// assert_eq!((x.grad().unwrap().item(), y.grad().unwrap().item()), (5.0, 1.0));
/// ```
pub struct Saver<'a> {
    /// The inputs of the node that is being made, where it will be in the graph.
    inputs: &'a [&'a Tensor],
    outputs: &'a [Tensor],
    /// Saved outputs that will carry tangents.
    carriers: RefCell<Vec<(usize, Tensor)>>,
    /// Something was kept, which goes with the first backward.
    kept: Cell<bool>,
}

impl<'a> Saver<'a> {
    pub(crate) fn new(outputs: &'a [Tensor]) -> Self {
        Self::of_node(&[], outputs)
    }

    fn of_node(inputs: &'a [&'a Tensor], outputs: &'a [Tensor]) -> Self {
        Saver { inputs, outputs, carriers: RefCell::default(), kept: Cell::new(false) }
    }

    /// Says that the backward runs once, though nothing was saved here.
    pub(crate) fn runs_once(&self) {
        self.kept.set(true);
    }

    /// Whether backward may run again, because nothing was saved.
    pub(crate) fn saved_nothing(&self) -> bool {
        !self.kept.get()
    }

    /// Says what the outputs' tangents are.
    pub(crate) fn set_tangents(&self, tangents: &[Option<Tensor>]) {
        for (output, carrier) in self.carriers.take() {
            carrier.set_tangent(tangents[output].clone());
        }
    }

    /// Keeps an input (or any tensor that is not an output of this op).
    #[track_caller]
    pub fn save(&self, tensor: &Tensor) -> SavedTensor {
        self.kept.set(true);
        SavedTensor::new(tensor, Source::of(tensor, self.inputs))
    }

    /// Keeps output `index` of the op.
    ///
    /// ```
    /// use torchrs::{Tensor, autograd::{BackwardCtx, no_grad, record}};
    /// let x = Tensor::from([4f64]).requires_grad_(true);
    /// let y = record("root", &[&x], no_grad(|| x.sqrt()), |saver| {
    ///     let y = saver.save_output(0);
    ///     move |ctx: &BackwardCtx| [Some(ctx.grad(0) / (ctx.get(&y) * 2.0))].into_iter().collect()
    /// });
    /// y.backward();
    /// assert_eq!(x.grad().unwrap().item(), 0.25);
    /// ```
    #[track_caller]
    pub fn save_output(&self, index: usize) -> SavedTensor {
        self.kept.set(true);
        let saved = SavedTensor::new(&self.outputs[index], Source::output(index));
        if has_mode(FORWARD) {
            self.carriers.borrow_mut().extend(saved.carrier());
        }
        saved
    }
}

/// True when an op on these inputs would be recorded: recording is on and one of them requires a
/// gradient.
///
/// ```
/// use torchrs::{Tensor, autograd::{no_grad, will_record}};
/// let x = Tensor::from([2f64]);
/// let w = Tensor::from([3f64]).requires_grad_(true);
/// assert!(will_record(&[&x, &w]) && !will_record(&[&x]));
/// assert!(!no_grad(|| will_record(&[&x, &w])));
/// ```
#[inline]
pub fn will_record(inputs: &[&Tensor]) -> bool {
    if !is_grad_enabled() {
        return false;
    }
    for &t in inputs {
        if t.wants_grad() {
            return true;
        }
    }
    false
}

/// True when an op on these inputs is recorded, or one of them carries a tangent.
#[inline]
pub(crate) fn is_differentiated(inputs: &[&Tensor]) -> bool {
    any_differentiated(inputs.len(), |i| Some(inputs[i]))
}

/// [`is_differentiated`] of `n` inputs, of which some may be no tensors.
#[inline]
pub(crate) fn any_differentiated<'a>(
    n: usize,
    input: impl Fn(usize) -> Option<&'a Tensor>,
) -> bool {
    let mode = mode();
    let records = mode & (GRAD | INFERENCE) == GRAD;
    if !records && mode & FORWARD == 0 {
        return false;
    }
    for i in 0..n {
        if let Some(t) = input(i)
            && ((records && t.wants_grad()) || (mode & FORWARD != 0 && t.may_be_dual()))
        {
            return true;
        }
    }
    false
}

/// Records that `output` was computed from `inputs`, if that is wanted, and returns it.
///
/// `make` is called only then; it saves what backward needs and returns the backward: from the
/// output's gradient to one gradient per input (`None` where none is wanted or it is zero). The same
/// backward gives the output's tangent in [forward mode](super::forward_ad).
///
/// ```
/// use torchrs::{Tensor, autograd::{no_grad, record}};
/// fn cube(x: &Tensor) -> Tensor {
///     let y = no_grad(|| x.detach() * x.detach() * x.detach());
///     record("cube", &[x], y, |saver| {
///         let x = saver.save(x);
///         move |ctx| { let x = ctx.get(&x); [Some(ctx.grad(0) * (&x * &x * 3.0))].into_iter().collect() }
///     })
/// }
/// let x = Tensor::from([2f64]).requires_grad_(true);
/// cube(&x).sum().backward();
/// assert_eq!(x.grad().unwrap().item(), 12.0);
/// ```
#[inline]
#[track_caller]
pub fn record<B>(
    name: &'static str,
    inputs: &[&Tensor],
    output: Tensor,
    make: impl FnOnce(&Saver) -> B,
) -> Tensor
where
    B: Fn(&BackwardCtx) -> Grads + Send + Sync + 'static,
{
    if !is_differentiated(inputs) || !output.dtype().is_differentiable() {
        return output;
    }
    record_new(name, inputs, output, &mut once(make), None)
}

/// [`record`] for an op with several outputs; those that are neither floating-point nor complex get no history.
///
/// ```
/// use torchrs::{Tensor, autograd::{BackwardCtx, no_grad, record_many}};
/// let x = Tensor::from([3f64]).requires_grad_(true);
/// let outputs = no_grad(|| [&x * 2.0, &x * 5.0]);
/// record_many("both", &[&x], &outputs, |_| {
///     |ctx: &BackwardCtx| [Some(ctx.grad(0) * 2.0 + ctx.grad(1) * 5.0)].into_iter().collect()
/// });
/// (&outputs[0] * 10.0 + &outputs[1]).backward();
/// assert_eq!(x.grad().unwrap().item(), 25.0);
/// ```
#[track_caller]
pub fn record_many<B>(
    name: &'static str,
    inputs: &[&Tensor],
    outputs: &[Tensor],
    make: impl FnOnce(&Saver) -> B,
) where
    B: Fn(&BackwardCtx) -> Grads + Send + Sync + 'static,
{
    if is_differentiated(inputs) && outputs.iter().any(|t| t.dtype().is_differentiable()) {
        attach(name, inputs, outputs, &mut once(make), None);
    }
}

/// What makes an op's backward; called once.
pub(crate) type Make<'a> = &'a mut dyn FnMut(&Saver) -> BackwardFn;
/// The rule of [`record_with_tangent`]; called at most once.
pub(crate) type TangentRule<'a> = &'a mut dyn FnMut(&[Option<Tensor>], &Tensor) -> Option<Tensor>;

/// A [`Make`] of what makes a closure.
#[inline]
fn once<B>(make: impl FnOnce(&Saver) -> B) -> impl FnMut(&Saver) -> BackwardFn
where
    B: Fn(&BackwardCtx) -> Grads + Send + Sync + 'static,
{
    let mut make = Some(make);
    move |saver| backward_fn(|| make.take().expect("called once")(saver))
}

/// [`record`] for an op whose tangent is had directly: `tangent` makes it from the inputs' tangents and
/// the output; `None` stands for zero. It is made of tensor ops, which are recorded as usual.
#[inline]
#[track_caller]
pub(crate) fn record_with_tangent<B>(
    name: &'static str,
    inputs: &[&Tensor],
    output: Tensor,
    make: impl FnOnce(&Saver) -> B,
    tangent: impl FnOnce(&[Option<Tensor>], &Tensor) -> Option<Tensor>,
) -> Tensor
where
    B: Fn(&BackwardCtx) -> Grads + Send + Sync + 'static,
{
    if !is_differentiated(inputs) || !output.dtype().is_differentiable() {
        return output;
    }
    let mut tangent = Some(tangent);
    let mut rule = |tangents: &[Option<Tensor>], output: &Tensor| {
        tangent.take().expect("called once")(tangents, output)
    };
    record_new(name, inputs, output, &mut once(make), Some(&mut rule))
}

/// [`record`], or with a rule [`record_with_tangent`], of an op that is known to be differentiated.
#[track_caller]
pub(crate) fn record_new(
    name: &'static str,
    inputs: &[&Tensor],
    output: Tensor,
    make: Make<'_>,
    tangent: Option<TangentRule<'_>>,
) -> Tensor {
    if has_mode(FORWARD) {
        let direct = tangent
            .map(|rule| Box::new(|tangents: &[Option<Tensor>]| rule(tangents, &output)) as Direct);
        attach(name, inputs, std::slice::from_ref(&output), make, direct);
        return output;
    }
    let outputs = std::slice::from_ref(&output);
    watch_forward(name, inputs, outputs, Location::caller());
    let node = new_node(name, outputs, Location::caller(), |edges| {
        for t in inputs {
            // SAFETY: the whole of it is written.
            unsafe {
                push_by(edges, |at: *mut Option<Edge>| {
                    at.write(None);
                    t.gradient_edge_to(&mut *at);
                });
            }
        }
        let saver = Saver::of_node(inputs, outputs);
        let backward = Held::Own(make(&saver));
        (backward, saver.saved_nothing())
    });
    output.with_grad_fn(node, 0)
}

/// What makes the tangent of an op's one output from its inputs'.
pub(crate) type Direct<'a> = Box<dyn FnOnce(&[Option<Tensor>]) -> Option<Tensor> + 'a>;

#[track_caller]
fn attach(
    name: &'static str,
    inputs: &[&Tensor],
    outputs: &[Tensor],
    make: Make<'_>,
    direct: Option<Direct<'_>>,
) {
    watch_forward(name, inputs, outputs, Location::caller());
    let (saver, recorded) = (Saver::new(outputs), will_record(inputs));
    let (tangents, at) = (forward_ad::tangents(inputs), Location::caller());
    let history = |backward: Held| {
        let node = new_node(name, outputs, at, |into| {
            *into = edges(inputs);
            (backward, saver.saved_nothing())
        });
        if recorded {
            for (output, t) in outputs.iter().enumerate() {
                if t.dtype().is_differentiable() {
                    t.set_history(Edge::to_output(node.clone(), output));
                }
            }
        }
        node
    };
    let Some(tangents) = tangents else {
        history(Held::Own(make(&saver)));
        return;
    };
    let found = match direct {
        Some(direct) => {
            if recorded {
                history(Held::Own(make(&saver)));
            }
            let _apart = forward_ad::suspended();
            smallvec![direct(&tangents)]
        }
        None => {
            let backward = Arc::new(forward_ad::saving(recorded, || make(&saver)));
            let node = history(Held::Shared(backward.clone()));
            forward_ad::push_forward(&node, &backward, inputs, &tangents)
        }
    };
    saver.set_tangents(&found);
    for (t, tangent) in outputs.iter().zip(found) {
        t.set_tangent(tangent);
    }
}

/// Where the gradients of an op's inputs go; nowhere when nothing is recorded.
pub(crate) fn edges(inputs: &[&Tensor]) -> Edges {
    let (recorded, mut edges) = (is_grad_enabled(), Edges::new());
    for t in inputs {
        edges.push(if recorded { t.gradient_edge() } else { None });
    }
    edges
}

/// A node of this op, which was called `at`; `fill` adds the edges, gives the backward and says whether that saves nothing.
pub(crate) fn new_node(
    name: &'static str,
    outputs: &[Tensor],
    at: &'static Location<'static>,
    fill: impl FnOnce(&mut Edges) -> (Held, bool),
) -> Node {
    let mut node = counted!(NodeImpl {
        seq: 0,
        name: name,
        kind: Kind::Function,
        edges: Edges::new(),
        outputs: Outputs::default(),
        state: Mutex::default(),
        asks: AtomicU8::new(0),
        stream: None,
        trace: Trace::new(at),
    });
    let new = node.get_mut().expect("nobody else has a new node");
    for t in outputs {
        // SAFETY: each part of it is written.
        unsafe {
            push_by(new.outputs.get_mut(), |at: *mut (Shape, Dtype, Device)| {
                copy_to(&t.layout().shape, &raw mut (*at).0);
                (&raw mut (*at).1).write(t.dtype());
                (&raw mut (*at).2).write(t.device());
            });
        }
    }
    new.stream = streams::of_outputs(&new.outputs);
    let (backward, saves_nothing) = fill(&mut new.edges);
    let state = new.state.get_mut();
    (state.backward, state.saves_nothing) = (Some(backward), saves_nothing);
    // Last, because an edge may lead to a node that was made for it.
    new.seq = next_seq(&new.edges);
    Node(node)
}

/// Adds an item that `write` writes where it stays, as [`counted!`] does with fields.
///
/// # Safety
/// `write` writes the whole item.
#[inline(always)]
unsafe fn push_by<A: Array>(list: &mut SmallVec<A>, write: impl FnOnce(*mut A::Item)) {
    list.reserve(1);
    let n = list.len();
    // SAFETY: there is a place for one more, and it counts once it is written.
    unsafe {
        write(list.as_mut_ptr().add(n));
        list.set_len(n + 1);
    }
}
