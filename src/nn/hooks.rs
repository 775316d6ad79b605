//! Functions that are called with what goes through a module, without a change of the module
//! (`register_forward_pre_hook` and relatives of `torch.nn.Module`).

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use smallvec::smallvec;

use super::{Forward, Module, NamedTensors, Visitor, VisitorMut};
use crate::autograd::{HookHandle, record, will_record};
use crate::error::{Error, Result};
use crate::onnx::{Graph, Value};
use crate::tensor::{Dtype, Tensor};

type PreHook<M> = Arc<dyn Fn(&M, &Tensor) -> Option<Tensor> + Send + Sync>;
type ForwardHook<M> = Arc<dyn Fn(&M, &Tensor, &Tensor) -> Option<Tensor> + Send + Sync>;
type BackwardPreHook = Arc<dyn Fn(&Tensor) -> Option<Tensor> + Send + Sync>;
type BackwardHook = Arc<dyn Fn(Option<&Tensor>, &Tensor) -> Option<Tensor> + Send + Sync>;

/// The hooks of a module, with what removes them.
struct Hooks<M> {
    forward_pre: Vec<(u64, PreHook<M>)>,
    forward: Vec<(u64, ForwardHook<M>)>,
    backward_pre: Vec<(u64, BackwardPreHook)>,
    backward: Vec<(u64, BackwardHook)>,
}

impl<M> Default for Hooks<M> {
    fn default() -> Self {
        let (forward_pre, forward) = (Vec::new(), Vec::new());
        Hooks { forward_pre, forward, backward_pre: Vec::new(), backward: Vec::new() }
    }
}

/// A module with hooks. It stands where the module stood, under the same names, and dereferences to
/// it. A clone has the same hooks.
///
/// A hook that returns a tensor puts it in place of what it was shown. Each registration gives a
/// handle that removes the hook.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use torchrs::nn::{Forward, Hooked, Linear, Module, Sequential, ReLU};
/// use torchrs::{Dtype, Tensor};
///
/// let hidden = Hooked::new(Linear::new(3, 4));
/// let seen = Arc::new(Mutex::new(Vec::new()));
/// let (forward, backward) = (seen.clone(), seen.clone());
/// let handle = hidden.register_forward_hook(move |_, _, output| {
///     forward.lock().unwrap().push(format!("output {:?}", output.shape()));
///     None
/// });
/// hidden.register_full_backward_hook(move |_, grad_output| {
///     backward.lock().unwrap().push(format!("gradient {:?}", grad_output.shape()));
///     None
/// });
///
/// let net = Sequential::new().append(hidden).append(ReLU);
/// net.forward(&Tensor::ones([2, 3], Dtype::F32)).sum().backward();
/// assert_eq!(*seen.lock().unwrap(), ["output [2, 4]", "gradient [2, 4]"]);
/// assert_eq!(net.named_parameters()[0].0, "0.weight");
///
/// handle.remove();
/// net.forward(&Tensor::ones([2, 3], Dtype::F32));
/// assert_eq!(seen.lock().unwrap().len(), 2);
/// ```
pub struct Hooked<M> {
    module: M,
    hooks: Arc<Mutex<Hooks<M>>>,
}

impl<M: Clone> Clone for Hooked<M> {
    fn clone(&self) -> Self {
        Hooked { module: self.module.clone(), hooks: self.hooks.clone() }
    }
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

/// Shows `value` to the hooks, one after the other, which may replace it.
fn through<H>(
    hooks: &[(u64, H)],
    value: Tensor,
    call: impl Fn(&H, &Tensor) -> Option<Tensor>,
) -> Tensor {
    hooks.iter().fold(value, |value, (_, hook)| call(hook, &value).unwrap_or(value))
}

impl<M: Module + 'static> Hooked<M> {
    /// A module without hooks yet.
    pub fn new(module: M) -> Self {
        Hooked { module, hooks: Arc::default() }
    }

    /// The module again.
    pub fn into_module(self) -> M {
        self.module
    }

    fn removes(&self, remove: impl FnOnce(&mut Hooks<M>) + Send + Sync + 'static) -> HookHandle {
        let hooks = Arc::downgrade(&self.hooks);
        HookHandle::new(move || {
            if let Some(hooks) = hooks.upgrade() {
                remove(&mut hooks.lock());
            }
        })
    }

    /// Calls `hook` with the module and its input before each forward; a returned tensor is the input
    /// instead (`register_forward_pre_hook`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Hooked, Identity}};
    /// let layer = Hooked::new(Identity);
    /// let handle = layer.register_forward_pre_hook(|_module, x| Some(x + 1.0));
    /// assert_eq!(layer.forward(&Tensor::from([3f32])).item(), 4.0);
    /// handle.remove();
    /// assert_eq!(layer.forward(&Tensor::from([3f32])).item(), 3.0);
    /// ```
    pub fn register_forward_pre_hook(
        &self,
        hook: impl Fn(&M, &Tensor) -> Option<Tensor> + Send + Sync + 'static,
    ) -> HookHandle {
        let id = next_id();
        self.hooks.lock().forward_pre.push((id, Arc::new(hook)));
        self.removes(move |hooks| hooks.forward_pre.retain(|(i, _)| *i != id))
    }

    /// Calls `hook` with the module, its input and its output after each forward; a returned tensor is
    /// the output instead (`register_forward_hook`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Hooked, Identity}};
    /// let layer = Hooked::new(Identity);
    /// layer.register_forward_hook(|_module, x, y| Some(x * 10.0 + y));
    /// assert_eq!(layer.forward(&Tensor::from([3f32])).item(), 33.0);
    /// ```
    pub fn register_forward_hook(
        &self,
        hook: impl Fn(&M, &Tensor, &Tensor) -> Option<Tensor> + Send + Sync + 'static,
    ) -> HookHandle {
        let id = next_id();
        self.hooks.lock().forward.push((id, Arc::new(hook)));
        self.removes(move |hooks| hooks.forward.retain(|(i, _)| *i != id))
    }

    /// Calls `hook` with the output's gradient before backward goes through the module; a returned
    /// tensor is the gradient instead (`register_full_backward_pre_hook`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Hooked, Identity}};
    /// let (layer, x) = (Hooked::new(Identity), Tensor::from([3f32]).requires_grad_(true));
    /// layer.register_full_backward_pre_hook(|grad_output| Some(grad_output * 5.0));
    /// layer.forward(&x).sum().backward();
    /// assert_eq!(x.grad().unwrap().item(), 5.0);
    /// ```
    pub fn register_full_backward_pre_hook(
        &self,
        hook: impl Fn(&Tensor) -> Option<Tensor> + Send + Sync + 'static,
    ) -> HookHandle {
        let id = next_id();
        self.hooks.lock().backward_pre.push((id, Arc::new(hook)));
        self.removes(move |hooks| hooks.backward_pre.retain(|(i, _)| *i != id))
    }

    /// Calls `hook` with the gradients of the input and of the output after backward went through the
    /// module; a returned tensor is the input's gradient instead (`register_full_backward_hook`). When
    /// the input needs no gradient, `None` is in its place and the hook is called as soon as the
    /// output's gradient is there.
    ///
    /// The hook must not change the gradients in place.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, Hooked, ReLU}};
    /// let (layer, x) = (Hooked::new(ReLU), Tensor::from([3f32, -3.]).requires_grad_(true));
    /// layer.register_full_backward_hook(|grad_input, grad_output| Some(grad_input? * 10.0 + grad_output));
    /// layer.forward(&x).sum().backward();
    /// assert_eq!(x.grad().unwrap().to_vec::<f32>(), [11.0, 1.0]);
    /// ```
    pub fn register_full_backward_hook(
        &self,
        hook: impl Fn(Option<&Tensor>, &Tensor) -> Option<Tensor> + Send + Sync + 'static,
    ) -> HookHandle {
        let id = next_id();
        self.hooks.lock().backward.push((id, Arc::new(hook)));
        self.removes(move |hooks| hooks.backward.retain(|(i, _)| *i != id))
    }

    /// The output of `forward` with the hooks around it: for modules whose forward takes more than one
    /// tensor or gives another thing, which then counts as part of the module's work.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{GRU, Hooked}};
    /// let rnn = Hooked::new(GRU::new(3, 4, Default::default()));
    /// rnn.register_forward_hook(|_, _, y| Some(y.zeros_like()));
    /// let y = rnn.call(&Tensor::ones([5, 3], Dtype::F32), |rnn, x| rnn.forward(x, None).0);
    /// assert_eq!((y.shape(), y.abs().max().item()), (&[5, 4][..], 0.0));
    /// ```
    #[track_caller]
    pub fn call(&self, input: &Tensor, forward: impl FnOnce(&M, &Tensor) -> Tensor) -> Tensor {
        let (pre, after, backward_pre, backward) = {
            let hooks = self.hooks.lock();
            let Hooks { forward_pre, forward, backward_pre, backward } = &*hooks;
            (forward_pre.clone(), forward.clone(), backward_pre.clone(), backward.clone())
        };
        let mut x = through(&pre, input.clone(), |hook, x| hook(&self.module, x));
        // The output's gradient, on its way to those who get both.
        let passing = Arc::new(Mutex::new(None));
        let of_input = !backward.is_empty() && will_record(&[&x]);
        if of_input {
            let (hooks, passing) = (backward.clone(), passing.clone());
            x = record("backward_hook", &[&x], x.detach(), |_| {
                move |ctx| {
                    let grad = ctx.grad(0);
                    smallvec![Some(match passing.lock().take() {
                        Some(output) => through(&hooks, grad, |hook, g| hook(Some(g), &output)),
                        // The output's part of the graph was not reached.
                        None => grad,
                    })]
                }
            });
        }
        let y = through(&after, forward(&self.module, &x), |hook, y| hook(&self.module, &x, y));
        if (backward.is_empty() && backward_pre.is_empty()) || !will_record(&[&y]) {
            return y;
        }
        record("backward_hook", &[&y], y.detach(), |_| {
            move |ctx| {
                let grad = through(&backward_pre, ctx.grad(0), |hook, g| hook(g));
                if of_input {
                    *passing.lock() = Some(grad.clone());
                } else {
                    backward.iter().for_each(|(_, hook)| _ = hook(None, &grad));
                }
                smallvec![Some(grad)]
            }
        })
    }
}

impl<M: Module> Module for Hooked<M> {
    fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
        self.module.visit(visitor);
    }
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
        self.module.visit_mut(visitor);
    }
    fn name(&self) -> &str {
        self.module.name()
    }
    fn extra_repr(&self) -> String {
        self.module.extra_repr()
    }
    fn has_sizes(&self) -> bool {
        self.module.has_sizes()
    }
    fn take_sizes(&self, state: &dyn NamedTensors, prefix: &str) {
        self.module.take_sizes(state, prefix);
    }
    fn cast_around(&self, input: Option<Dtype>, output: Option<Dtype>) -> bool {
        let cast = |x: &Tensor, to: Dtype| x.dtype().is_floating_point().then(|| x.to_dtype(to));
        let mut hooks = self.hooks.lock();
        if let Some(to) = input {
            hooks.forward_pre.push((next_id(), Arc::new(move |_, x| cast(x, to))));
        }
        if let Some(to) = output {
            hooks.forward.push((next_id(), Arc::new(move |_, _, y| cast(y, to))));
        }
        true
    }
}

impl<M: Forward + 'static> Forward for Hooked<M> {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Tensor {
        self.call(input, |module, x| module.forward(x))
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        let hooks = self.hooks.lock();
        if !hooks.forward_pre.is_empty() || !hooks.forward.is_empty() {
            let message = format!(
                "`{}` has hooks on its forward, which ONNX cannot call: remove them",
                self.module.name()
            );
            return Err(Error::argument("onnx", "module", message));
        }
        drop(hooks);
        self.module.onnx(graph, input)
    }
}

impl<M> Deref for Hooked<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.module
    }
}
