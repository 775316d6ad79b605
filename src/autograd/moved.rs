//! Leaves that get other elements (another dtype, another device) and stay what they are: the gradient is
//! converted too, and hooks, optimizers and graphs go on with the same leaf. Graphs recorded before keep the
//! old elements, and their gradients are converted when they arrive.

use super::variable::Accumulator;
use crate::cuda::graph;
use crate::storage::Storage;
use crate::tensor::Tensor;

impl Tensor {
    /// Why this tensor cannot be moved, if so, and what to do.
    pub(crate) fn why_not_moved(&self) -> Option<String> {
        let capturing = |gpu| graph::is_current_stream_capturing(gpu).unwrap_or(false);
        if !self.is_leaf() {
            return Some("was computed from other tensors; `detach()` it first".to_owned());
        }
        if self.together().is_some() {
            return Some(
                "is sharded by `fully_shard`, which has room for its present dtype and device; move the module \
                 first, and then shard it"
                    .to_owned(),
            );
        }
        if self.grad_target().is_some() {
            return Some(
                "is in a bucket of DistributedDataParallel, which has room for its present dtype and device; \
                 move the module first, and then wrap it"
                    .to_owned(),
            );
        }
        if self.device().gpu().is_some_and(capturing) {
            return Some("is in a graph that is being captured; move the module first".to_owned());
        }
        if self.storage().may_be_recorded() {
            return Some(format!(
                "may be part of a graph that was recorded on {}, which would go on with the old memory; drop \
                 the graph, move the module, and then record",
                self.device()
            ));
        }
        None
    }

    /// Puts what `convert` makes of this leaf's elements in their place, and of its gradient's; see
    /// [`set_data`](Self::set_data).
    ///
    /// # Safety
    /// *Sole use*, as of [`set_data`](Self::set_data), of the tensor, its gradient and the graphs that lead to it.
    #[track_caller]
    pub(crate) unsafe fn move_data(&self, convert: &dyn Fn(&Tensor) -> Tensor) {
        self.clear_tangent();
        // SAFETY: *Sole use* of the tensor.
        unsafe { self.set_data(convert) };
        // SAFETY: *Sole use* of the graphs that lead to the tensor.
        unsafe { self.tell_accumulator() };
        let Some(grad) = self.own_grad() else { return };
        // With a history, or as a view, it could not change; of those only the values are wanted.
        let own = grad.is_leaf() && grad.base().is_none();
        let grad = if own { grad } else { grad.detach().clone_contiguous() };
        // SAFETY: *Sole use* of the gradient.
        unsafe { grad.set_data(convert) };
        self.set_grad(Some(grad));
    }

    /// Puts other memory in the place of this leaf's, without a gradient.
    ///
    /// # Safety
    /// As [`move_data`](Self::move_data).
    pub(crate) unsafe fn change_storage(&self, storage: &Storage) {
        self.clear_tangent();
        self.set_grad(None);
        // SAFETY: *Sole use* of the tensor, and of the graphs that lead to it.
        unsafe {
            self.set_storage(storage);
            self.tell_accumulator();
        }
    }

    /// Where gradients arrive, they have this tensor's new dtype and device.
    ///
    /// # Safety
    /// *Sole use* of the graphs that lead to the tensor.
    unsafe fn tell_accumulator(&self) {
        self.mark_view_fresh();
        let (dtype, device) = (self.dtype(), self.device());
        let accumulator = self.with_meta(|m| match &m.accumulator {
            Accumulator::Kept(node) => Some(node.clone()),
            Accumulator::Hooked(node) => node.upgrade().map(super::Node),
            Accumulator::None => None,
        });
        if let Some(node) = accumulator {
            // SAFETY: *Sole use* of the graphs that lead to the tensor, and so of its accumulator.
            unsafe { node.0.outputs.move_to(dtype, device) };
        }
    }
}
