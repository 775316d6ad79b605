//! Define-by-run automatic differentiation: graph nodes, the engine, hooks, gradient modes.
//!
//! Knows nothing of `ops`, `amp` and `nn`: a node is a closure that an op has left.
//!
//! An op computes its output and, when gradients are on and an input wants one, calls [`record`]
//! with a closure that will turn the output's gradient into the inputs'. [`SavedTensor`]s inside
//! the closure notice in-place changes. [`Tensor::backward`] walks the graph iteratively.
//! The engine adds gradients with `Tensor`'s own operators; it imports no op. [`forward_ad`] gets tangents
//! from the same closures. `checkpoint`, `gradcheck` and `functional` are made of the public parts.
//!
//! ```
//! use torchrs::{Tensor, autograd};
//! let x = Tensor::from([2f64]).requires_grad_(true);
//! let y = x.exp() * &x;
//! y.backward(); // adds (1 + x) exp(x) to the gradient of x
//! assert!((x.grad().unwrap().item() - 3.0 * 2f64.exp()).abs() < 1e-12);
//! assert!(autograd::no_grad(|| x.exp()).grad_fn().is_none());
//! ```

mod anomaly;
mod engine;
pub mod forward_ad;
pub mod functional;
mod gradcheck;
pub mod graph;
mod hooks;
mod inplace;
mod mode;
mod moved;
mod node;
mod parts;
mod record;
mod saved;
mod saved_hooks;
mod sharded;
mod streams;
mod tasks;
mod variable;

pub use anomaly::{
    detect_anomaly, is_anomaly_check_nan_enabled, is_anomaly_enabled, set_anomaly_check_nan,
    set_detect_anomaly,
};
pub use engine::{GraphMode, backward, backward_into, grad, queue_callback};
pub use functional::{hessian, hvp, jacobian, jvp, vhp, vjp};
pub use gradcheck::{GradcheckOptions, gradcheck, gradgradcheck};
pub use hooks::{HookHandle, MultiGradMode, register_multi_grad_hook};
pub use inplace::record_inplace;
pub use mode::{
    EnableGradGuard, InferenceModeGuard, NoGradGuard, enable_grad, grad_mode, inference_mode,
    is_grad_enabled, is_inference_mode_enabled, no_grad, set_grad_enabled, without_inference_mode,
};
pub use node::{BackwardCtx, Grads, Node};
pub use record::{Saver, record, record_many, will_record};
pub use saved::SavedTensor;
pub use saved_hooks::saved_tensors_hooks;

// A composition over ops, which stands there; PyTorch's users look for it beside the hooks.
pub use crate::ops::recompute::{
    Layer, checkpoint, checkpoint_many, checkpoint_selective, checkpoint_sequential,
};

pub(crate) use engine::{at_end_of_pass, if_backward_fails, is_in_backward};
pub(crate) use inplace::{record_inplace_with_tangent, scatter_into_base};
pub(crate) use mode::{AUTOCAST, FORWARD, ModeGuard, has_mode};
pub(crate) use node::{BackwardFn, backward_fn};
pub(crate) use parts::Part;
pub(crate) use record::{any_differentiated, is_differentiated, record_new, record_with_tangent};
pub(crate) use saved_hooks::{Hooks, with_hooks};
pub(crate) use sharded::{Together, WeakTensor, check_reduced};
pub(crate) use variable::AutogradMeta;

#[cfg(doc)]
use crate::tensor::Tensor;
