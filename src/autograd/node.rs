//! A node of the graph: one recorded op, or the place where a leaf's gradient collects.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::SavedTensor;
use super::anomaly::Trace;
use super::hooks::NodeHooks;
use super::mode::{FORWARD, has_mode};
use super::parts::Part;
use crate::counted::{Counted, WeakCounted};
use crate::cuda::Stream;
use crate::error::{Error, throw};
use crate::storage::Device;
use crate::tensor::{Dtype, Shape, Tensor, TensorImpl};

/// Gradients of an op's inputs, in the order of the inputs; `None` where none is wanted.
///
/// ```
/// use torchrs::{Tensor, autograd::Grads};
/// let grads: Grads = [Some(Tensor::from([1f32])), None].into_iter().collect();
/// assert!(grads.len() == 2 && grads[1].is_none());
/// ```
pub type Grads = SmallVec<[Option<Tensor>; 3]>;

/// An op's backward. It may run more than once (`retain_graph`), on any thread.
pub(crate) type BackwardFn = Box<dyn Fn(&BackwardCtx) -> Grads + Send + Sync>;

/// A closure as a [`BackwardFn`], written where it stays: see [`counted!`](crate::counted::counted).
#[inline(always)]
pub(crate) fn backward_fn<B>(make: impl FnOnce() -> B) -> BackwardFn
where
    B: Fn(&BackwardCtx) -> Grads + Send + Sync + 'static,
{
    let place = Box::<B>::new_uninit();
    let backward: Box<B> = Box::write(place, make());
    backward
}

/// The backward that a node holds. Most run once and are shared with nobody, which spares counting.
pub(crate) enum Held {
    Own(BackwardFn),
    Shared(Arc<BackwardFn>),
}

impl Held {
    fn get(&self) -> &BackwardFn {
        match self {
            Held::Own(backward) => backward,
            Held::Shared(backward) => backward,
        }
    }

    /// Two of the same.
    fn shared(self) -> [Held; 2] {
        let backward = match self {
            Held::Own(backward) => Arc::new(backward),
            Held::Shared(backward) => backward,
        };
        [Held::Shared(backward.clone()), Held::Shared(backward)]
    }
}

/// Where a gradient goes: the `output`-th output of `node`.
#[derive(Clone)]
pub(crate) struct Edge {
    pub node: Node,
    pub output: usize,
    /// Of an accumulator its leaf, which a graph keeps: the accumulator itself does not.
    pub leaf: Option<Tensor>,
}

impl Edge {
    /// To an output of a recorded op.
    pub fn to_output(node: Node, output: usize) -> Edge {
        Edge { node, output, leaf: None }
    }
}

/// Edges to what made each input; `None` where an input needs no gradient.
pub(crate) type Edges = SmallVec<[Option<Edge>; 3]>;

pub(crate) enum Kind {
    /// A recorded op.
    Function,
    /// Collects the gradient of this leaf, which has the node.
    Accumulate(WeakCounted<TensorImpl>),
}

#[derive(Default)]
pub(crate) struct NodeState {
    /// `None` after the saved tensors were freed.
    pub backward: Option<Held>,
    /// Nothing is saved that could be freed: backward may come here again, also without `retain_graph`.
    pub saves_nothing: bool,
    /// Made when first needed: most nodes have none.
    pub hooks: Option<Box<NodeHooks>>,
}

/// A recorded op: its name, its saved tensors (inside the backward closure) and edges to the nodes
/// that made its inputs. A handle; clones are the same node.
///
/// ```
/// let x = torchrs::Tensor::from([2f64]).requires_grad_(true);
/// let node = x.exp().sin().grad_fn().unwrap();
/// let parent = node.next_functions()[0].clone().unwrap();
/// assert_eq!((node.name(), parent.name()), ("sin", "exp"));
/// ```
#[derive(Clone)]
pub struct Node(pub(crate) Counted<NodeImpl>);

/// The place in creation order of leaves' accumulators.
pub(super) const OF_LEAVES: u64 = u64::MAX;

/// Backward adds two gradients of the only output itself, see [`BackwardCtx::terms`].
const TAKES_TWO: u8 = 1;
/// Backward adds to the sum so far of its first input's gradient, see [`BackwardCtx::take_sum`].
const ADDS_TO_SUM: u8 = 2;

pub(crate) struct NodeImpl {
    /// Creation order in its thread; a node is always younger than the nodes its edges lead to, but for
    /// [`OF_LEAVES`].
    pub(crate) seq: u64,
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) edges: Edges,
    /// Shape, dtype and device of each output, which its gradient must have.
    pub(crate) outputs: Outputs,
    pub(crate) state: Mutex<NodeState>,
    /// What the backward asks for beside gradients: [`TAKES_TWO`], [`ADDS_TO_SUM`].
    pub(super) asks: AtomicU8,
    /// The stream of the first GPU's output, if that was not its device's default stream.
    pub(crate) stream: Option<Stream>,
    /// Where the op was called, if that was in anomaly mode; and by which module, if somebody asked.
    pub(crate) trace: Option<Arc<Trace>>,
}

/// Shape, dtype and device of one output each.
type OutputList = SmallVec<[(Shape, Dtype, Device); 1]>;

/// What a node's outputs are like. Only that of a leaf's accumulator changes: when the leaf is moved.
#[derive(Default)]
pub(crate) struct Outputs(UnsafeCell<OutputList>);

// SAFETY: it is only read, but by `move_to`, whose caller keeps other threads away.
unsafe impl Sync for Outputs {}

impl Outputs {
    #[inline(always)]
    pub fn get_mut(&mut self) -> &mut OutputList {
        self.0.get_mut()
    }

    /// Of an accumulator: its leaf is of another dtype or on another device now.
    ///
    /// # Safety
    /// *Sole use*: no other thread uses the node meanwhile, and no reference to what was there before is used after this.
    pub unsafe fn move_to(&self, dtype: Dtype, device: Device) {
        // SAFETY: the only use at this time, by *Sole use*.
        let outputs = unsafe { &mut *self.0.get() };
        for output in outputs.iter_mut() {
            (output.1, output.2) = (dtype, device);
        }
    }
}

impl From<OutputList> for Outputs {
    fn from(outputs: OutputList) -> Self {
        Outputs(UnsafeCell::new(outputs))
    }
}

impl Deref for Outputs {
    type Target = OutputList;

    #[inline(always)]
    fn deref(&self) -> &OutputList {
        // SAFETY: it is written by `move_to` alone, at which time nobody reads.
        unsafe { &*self.0.get() }
    }
}

impl Node {
    /// The op's name.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// The nodes that made the op's inputs; `None` where an input needs no gradient.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[2f64]]).requires_grad_(true);
    /// let parents = Tensor::from([[1f64]]).matmul(&x.exp()).grad_fn().unwrap().next_functions();
    /// assert!(parents[0].is_none()); // the constant
    /// assert_eq!(parents[1].as_ref().unwrap().name(), "exp");
    /// ```
    pub fn next_functions(&self) -> Vec<Option<Node>> {
        self.0.edges.iter().map(|e| e.as_ref().map(|e| e.node.clone())).collect()
    }

    /// True when both are the same node.
    pub fn ptr_eq(&self, other: &Node) -> bool {
        self.0.ptr_eq(&other.0)
    }

    /// The leaf of an accumulator, if it is still there.
    pub(crate) fn leaf(&self) -> Option<Tensor> {
        match &self.0.kind {
            Kind::Accumulate(leaf) => leaf.upgrade().map(Tensor),
            Kind::Function => None,
        }
    }

    /// Whether the backward asks for [`BackwardCtx::take_sum`].
    pub(super) fn adds_to_sum(&self) -> bool {
        self.0.asks.load(Relaxed) & ADDS_TO_SUM != 0
    }

    /// Whether two gradients of the only output may come here as they are.
    pub(super) fn takes_two(&self) -> bool {
        self.0.asks.load(Relaxed) & TAKES_TWO != 0
    }

    /// Runs the node's backward for the inputs that are `wanted`, or all that can be; without `keep` its saved
    /// tensors are freed. `places` as in [`BackwardCtx::place`], for no input or for each; `part` as in
    /// [`BackwardCtx::is_of_part`], `more` as in [`BackwardCtx::terms`].
    pub(crate) fn run(
        &self,
        grads: &[Option<Tensor>],
        keep: bool,
        wanted: Option<&[bool]>,
        places: &[Option<Tensor>],
        (part, more, sum): Offers<'_>,
    ) -> Grads {
        let (backward, put_back) = {
            let mut state = self.0.state.lock();
            let put_back = state.saves_nothing && !keep;
            match state.backward.take() {
                Some(held) if keep => {
                    let [mine, kept] = held.shared();
                    state.backward = Some(kept);
                    (Some(mine), put_back)
                }
                held => (held, put_back),
            }
        };
        let Some(backward) = backward else {
            throw(Error::Autograd(format!(
                "backward reached `{}` a second time, after its saved tensors were freed; the \
                 first is to keep them: `autograd::backward` with `GraphMode::Retain` (retain_graph)",
                self.0.name
            )))
        };
        // Another pass may be in the closure, or come to it.
        let keep = keep || matches!(&backward, Held::Shared(held) if Arc::strong_count(held) > 1);
        let ctx = BackwardCtx { grads, more, node: self, wanted, places, part, keep, sum };
        let out = self.call(backward.get(), ctx);
        if put_back {
            self.0.state.lock().backward = Some(backward);
        }
        out
    }

    /// Calls a backward of this node.
    pub(crate) fn call(&self, backward: &BackwardFn, ctx: BackwardCtx<'_>) -> Grads {
        let out = backward(&ctx);
        assert!(
            out.len() == self.0.edges.len(),
            "backward of `{}` returned {} gradients for {} inputs",
            self.0.name,
            out.len(),
            self.0.edges.len()
        );
        out
    }
}

impl Tensor {
    /// Says that the backward of the op that has just made this tensor, its only output, asks for
    /// [`BackwardCtx::terms`]: it adds two gradients as it reads them.
    pub(crate) fn take_two_gradients(&self) {
        if let Some(node) = self.grad_fn() {
            node.0.asks.fetch_or(TAKES_TWO, Relaxed);
        }
    }
}

impl Tensor {
    /// Says that the backward of the op that has just made this tensor asks for [`BackwardCtx::take_sum`].
    pub(crate) fn add_to_sum(&self) {
        if let Some(node) = self.grad_fn() {
            node.0.asks.fetch_or(ADDS_TO_SUM, Relaxed);
        }
    }
}

/// What a backward may use of its pass: a place to say that it gives a part, a second gradient of its only output, and the
/// sum so far of its first input's gradient.
pub(crate) type Offers<'a> =
    (Option<&'a OnceLock<Part>>, Option<&'a Tensor>, Option<&'a Mutex<Option<Tensor>>>);

/// What a backward closure gets: the gradients of the outputs, and which inputs want one.
///
/// ```
/// use torchrs::{Tensor, autograd::{BackwardCtx, no_grad, record}};
/// fn product(a: &Tensor, b: &Tensor) -> Tensor {
///     record("product", &[a, b], no_grad(|| a * b), |saver| {
///         let (a, b) = (saver.save(a), saver.save(b));
///         move |ctx: &BackwardCtx| {
///             let by = |input, other| ctx.needs(input).then(|| ctx.grad(0) * ctx.get(other));
///             [by(0, &b), by(1, &a)].into_iter().collect()
///         }
///     })
/// }
/// let a = Tensor::from([2f64]).requires_grad_(true);
/// product(&a, &Tensor::from([3f64])).backward();
/// assert_eq!(a.grad().unwrap().item(), 3.0);
/// ```
pub struct BackwardCtx<'a> {
    pub(crate) grads: &'a [Option<Tensor>],
    /// What is still to be added to the gradient of the only output, of a node that takes two.
    pub(super) more: Option<&'a Tensor>,
    pub(crate) node: &'a Node,
    /// For which inputs, instead of the edges.
    pub(crate) wanted: Option<&'a [bool]>,
    pub(crate) places: &'a [Option<Tensor>],
    /// Where it is said that the gradient of the only input is a part, if that is understood.
    pub(super) part: Option<&'a OnceLock<Part>>,
    pub(super) keep: bool,
    /// The sum so far of the first input's gradient, if this node may add to it.
    pub(super) sum: Option<&'a Mutex<Option<Tensor>>>,
}

impl BackwardCtx<'_> {
    /// Says that the gradient of the only input, which is returned, is that of a part; the rest are zeros. False where
    /// the whole is wanted.
    pub(crate) fn is_of_part(&self, part: Part) -> bool {
        self.part.is_some_and(|place| place.set(part).is_ok())
    }

    /// The sum so far of the gradient of the first input, dense and of this dtype: whoever takes it adds its own gradient and
    /// returns it. None where there is none yet, or where others may see it.
    pub(crate) fn take_sum(&self, dtype: Dtype) -> Option<Tensor> {
        let place = self.sum?;
        let sum = place.lock().take()?;
        if sum.dtype() == dtype {
            return Some(sum);
        }
        *place.lock() = Some(sum);
        None
    }

    /// Whether another pass may use the closure: if not, tensors that are the closure's alone may be written over.
    pub(crate) fn keeps_graph(&self) -> bool {
        self.keep
    }

    /// Where the gradient of input `i` will be kept, if nothing else is to be added to it nor looks at it: a dense
    /// tensor on the host, to be written as a whole and returned, which saves a copy. To be asked only by what does so.
    pub(crate) fn place(&self, i: usize) -> Option<Tensor> {
        self.places.get(i).cloned().flatten()
    }

    /// Gradient of output `i`; zeros when nothing reached it.
    ///
    /// ```
    /// use torchrs::{Tensor, autograd::{BackwardCtx, no_grad, record_many}};
    /// let x = Tensor::from([3f64]).requires_grad_(true);
    /// let outputs = no_grad(|| [&x * 2.0, &x * 5.0]);
    /// record_many("both", &[&x], &outputs, |_| {
    ///     |ctx: &BackwardCtx| [Some(ctx.grad(0) * 2.0 + ctx.grad(1) * 5.0)].into_iter().collect()
    /// });
    /// outputs[0].backward(); // nothing reaches the other one
    /// assert_eq!(x.grad().unwrap().item(), 2.0);
    /// ```
    pub fn grad(&self, i: usize) -> Tensor {
        self.grad_opt(i).unwrap_or_else(|| {
            let (shape, dtype, device) = &self.node.0.outputs[i];
            Tensor::zeros(shape, (*dtype, *device))
        })
    }

    /// Gradient of output `i`, if one reached it.
    ///
    /// ```
    /// use torchrs::{Tensor, autograd::{BackwardCtx, no_grad, record_many}};
    /// let x = Tensor::from([3f64]).requires_grad_(true);
    /// let outputs = no_grad(|| [&x * 2.0, &x * 5.0]);
    /// record_many("both", &[&x], &outputs, |_| {
    ///     |ctx: &BackwardCtx| {
    ///         assert!(ctx.grad_opt(0).is_none());
    ///         [ctx.grad_opt(1).map(|g| g * 5.0)].into_iter().collect()
    ///     }
    /// });
    /// outputs[1].backward();
    /// assert_eq!(x.grad().unwrap().item(), 5.0);
    /// ```
    pub fn grad_opt(&self, i: usize) -> Option<Tensor> {
        match (&self.grads[i], self.more) {
            (Some(grad), Some(more)) => Some(grad + more),
            (grad, _) => grad.clone(),
        }
    }

    /// The gradient of the only output, of a node that [takes two](Tensor::take_two_gradients): what is returned second is
    /// to be added to the first.
    pub(crate) fn terms(&self) -> (Tensor, Option<Tensor>) {
        match (&self.grads[0], self.more) {
            (Some(grad), Some(more)) => (grad.clone(), Some(more.clone())),
            _ => (self.grad(0), None),
        }
    }

    /// True when input `i` wants a gradient.
    ///
    /// ```
    /// use torchrs::{Tensor, autograd::{BackwardCtx, no_grad, record}};
    /// let x = Tensor::from([3f64]).requires_grad_(true);
    /// let c = Tensor::from([1f64]);
    /// let y = record("sum", &[&x, &c], no_grad(|| &x + &c), |_| {
    ///     |ctx: &BackwardCtx| {
    ///         assert!(ctx.needs(0) && !ctx.needs(1));
    ///         [Some(ctx.grad(0)), None].into_iter().collect()
    ///     }
    /// });
    /// y.backward();
    /// assert_eq!(x.grad().unwrap().item(), 1.0);
    /// ```
    #[inline]
    pub fn needs(&self, i: usize) -> bool {
        match self.wanted {
            Some(wanted) => wanted[i],
            None => self.node.0.edges[i].is_some(),
        }
    }

    /// A saved tensor, with its history.
    ///
    /// ```
    /// use torchrs::{Tensor, autograd::{BackwardCtx, no_grad, record}, catch};
    /// let square = |x: &Tensor| {
    ///     record("square", &[x], no_grad(|| x * x), |saver| {
    ///         let x = saver.save(x);
    ///         move |ctx: &BackwardCtx| [Some(ctx.grad(0) * ctx.get(&x) * 2.0)].into_iter().collect()
    ///     })
    /// };
    /// let x = Tensor::from([3f64]).requires_grad_(true);
    /// square(&x).backward();
    /// assert_eq!(x.grad().unwrap().item(), 6.0);
    /// let y = square(&x);
    /// no_grad(|| _ = x.add_(1.0));
    /// assert!(catch(|| y.backward()).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Autograd`] when it was changed in place since it was saved.
    #[track_caller]
    pub fn get(&self, saved: &SavedTensor) -> Tensor {
        saved.unpack(self.node.0.name, Some(self.node))
    }

    /// [`get`](Self::get) for the gradient of input `i`, if that is wanted and something was saved for it.
    pub(crate) fn get_for(&self, i: usize, saved: &Option<SavedTensor>) -> Option<Tensor> {
        saved.as_ref().filter(|_| self.needs(i)).map(|saved| self.get(saved))
    }

    /// True when this backward is itself being differentiated (`create_graph`, or tangents are carried
    /// through it): then it must be made of recorded tensor ops; otherwise one fused kernel may do it.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    /// use torchrs::{Tensor, autograd::{self, BackwardCtx, no_grad, record}};
    /// static RECORDED: AtomicUsize = AtomicUsize::new(0);
    /// let x = Tensor::from([3f64]).requires_grad_(true);
    /// let y = record("same", &[&x], no_grad(|| &x * 1.0), |_| {
    ///     |ctx: &BackwardCtx| {
    ///         RECORDED.fetch_add(ctx.create_graph() as usize, Relaxed);
    ///         [Some(ctx.grad(0))].into_iter().collect()
    ///     }
    /// });
    /// autograd::grad(&[&y], &[&x], &[None], autograd::GraphMode::Create);
    /// autograd::grad(&[&y], &[&x], &[None], autograd::GraphMode::Free);
    /// assert_eq!(RECORDED.load(Relaxed), 1);
    /// ```
    #[inline]
    pub fn create_graph(&self) -> bool {
        super::is_grad_enabled() || has_mode(FORWARD)
    }
}

/// The graph that is being taken apart on a thread.
struct Teardown {
    active: Cell<bool>,
    /// Without a destructor, so that it is there for graphs that die with their thread.
    pending: RefCell<ManuallyDrop<Vec<Remains>>>,
}

thread_local! {
    static TEARDOWN: Teardown = const {
        Teardown { active: Cell::new(false), pending: RefCell::new(ManuallyDrop::new(Vec::new())) }
    };
}

type Remains = (Edges, NodeState);

impl Teardown {
    /// Drops what a node held and, one after the other, the nodes that only it held.
    fn drop(&self, node: &mut NodeImpl) {
        if self.active.replace(true) {
            let remains = (std::mem::take(&mut node.edges), std::mem::take(node.state.get_mut()));
            self.pending.borrow_mut().push(remains);
            return;
        }
        /// Also when something that is dropped panics, the next graph finds an empty list.
        struct Done<'a>(&'a Teardown);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.active.set(false);
                if !self.0.pending.borrow().is_empty() {
                    let rest = std::mem::take(&mut *self.0.pending.borrow_mut());
                    drop(ManuallyDrop::into_inner(rest));
                }
            }
        }
        let _done = Done(self);
        node.edges.clear();
        *node.state.get_mut() = NodeState::default();
        loop {
            let next = self.pending.borrow_mut().pop();
            match next {
                Some(next) => drop(next),
                None => return,
            }
        }
    }
}

impl Drop for NodeImpl {
    /// A graph can be a chain of a million nodes: it is taken apart with a list, not by recursion.
    fn drop(&mut self) {
        if self.edges.is_empty() {
            return;
        }
        TEARDOWN.with(|teardown| teardown.drop(self));
    }
}
