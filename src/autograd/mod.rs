//! Define-by-run automatic differentiation: graph nodes, the engine, hooks, gradient modes.
//!
//! An op computes its output and, when gradients are on and an input wants one, calls [`record`]
//! with a closure that will turn the output's gradient into the inputs'. [`SavedTensor`]s inside
//! the closure notice in-place changes. [`Tensor::backward`] walks the graph iteratively.
//! The engine adds gradients with `Tensor`'s own operators; it imports no op. `checkpoint`, `gradcheck`
//! and `functional` are made of the public parts.

mod checkpoint;
mod engine;
mod functional;
mod gradcheck;
mod inplace;
mod mode;
mod node;
mod record;
mod saved;
mod variable;

pub use checkpoint::{checkpoint, checkpoint_many};
pub use engine::{backward, backward_into, grad, queue_callback};
pub use functional::{hessian, jacobian, jvp, vjp};
pub use gradcheck::{GradcheckOptions, gradcheck, gradgradcheck};
pub use inplace::record_inplace;
pub(crate) use inplace::scatter_into_base;
pub use mode::{EnableGradGuard, NoGradGuard, enable_grad, is_grad_enabled, no_grad};
pub use node::{BackwardCtx, Grads, Node};
pub use record::{Saver, record, record_many, will_record};
pub use saved::SavedTensor;
pub use variable::HookHandle;

pub(crate) use variable::AutogradMeta;

#[cfg(doc)]
use crate::Tensor;
