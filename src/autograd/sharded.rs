//! Parameters of which each rank keeps a part. The whole one, a leaf whose memory comes and goes, is what modules
//! compute with; its shard, another leaf, is what an optimizer sees and where gradients end.

use std::sync::{Arc, Weak};

use crate::counted::WeakCounted;
use crate::error::{Error, Result, throw};
use crate::storage::Device;
use crate::tensor::{Tensor, TensorImpl};

/// What a parameter that is sharded knows of its other side.
pub(crate) enum Sharding {
    /// Of the whole: this rank's part, and who keeps the parts together.
    Whole { shard: Tensor, group: Arc<dyn Together> },
    /// Of the shard, and where it lies in the whole.
    Shard { whole: WeakTensor, group: Weak<dyn Together>, placement: Placement },
    /// Of a shard's gradient.
    Part { group: Weak<dyn Together> },
}

/// Where a part of a tensor lies in the whole: a box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The shape of the whole.
    pub shape: Vec<usize>,
    /// Where the part begins in each dimension.
    pub offsets: Vec<usize>,
}

/// Those who have the parts of some parameters.
pub(crate) trait Together: Send + Sync {
    /// What tells them from others.
    fn number(&self) -> usize;
    /// What tells their ranks from those of others: of two that are equal here the parts are with the same ranks.
    fn ranks(&self) -> &[usize];
    /// Adds up values over the parts; each part counts once.
    ///
    /// # Errors
    /// Those of a collective.
    fn sum(&self, values: &Tensor) -> Result<()>;
    /// Takes the largest of values over the parts.
    ///
    /// # Errors
    /// Those of a collective.
    fn max(&self, values: &Tensor) -> Result<()>;
    /// What the first of all ranks has here.
    ///
    /// # Errors
    /// Those of a collective.
    fn of_first(&self, bytes: &[u8]) -> Result<Vec<u8>>;
    /// Gives parts on the meta device memory.
    ///
    /// # Errors
    /// Those of a collective, and where there is no memory.
    fn to_empty(&self, device: Device) -> Result<()>;
    /// Of gradients that backward has left with this rank, and the shards do not have: what keeps them there.
    fn holds_back(&self) -> Option<String>;
    /// Forgets gradients that are not reduced over replicas yet.
    fn forget_partial(&self);
    /// Gives this rank's part of a whole parameter its share of these values, which all ranks have.
    fn keep_part(&self, whole: &Tensor, values: &Tensor);
}

/// Refuses to use the gradients of shards while some are held back: they would be left out, or counted later.
///
/// # Errors
/// [`Error::Autograd`] that names the parameters and the setter.
pub(crate) fn check_reduced(op: &str, parameters: &[Tensor]) -> Result<()> {
    let mut last = None;
    for group in parameters.iter().filter_map(Tensor::together) {
        if last.replace(group.number()) == Some(group.number()) {
            continue;
        }
        if let Some(why) = group.holds_back() {
            return Err(Error::Autograd(format!("{op}: {why}")));
        }
    }
    Ok(())
}

/// Forgets gradients that are not reduced, or not over replicas.
fn forget(whole: Option<Tensor>, group: Option<Arc<dyn Together>>) {
    whole.into_iter().for_each(|whole| whole.set_grad(None));
    group.into_iter().for_each(|group| group.forget_partial());
}

/// A tensor that may be gone.
pub(crate) struct WeakTensor(WeakCounted<TensorImpl>);

impl WeakTensor {
    /// The tensor, if somebody still has it.
    pub fn upgrade(&self) -> Option<Tensor> {
        self.0.upgrade().map(Tensor)
    }
}

impl Tensor {
    /// A reference that does not keep the tensor.
    pub(crate) fn downgrade(&self) -> WeakTensor {
        WeakTensor(self.0.downgrade())
    }

    /// Makes this leaf the whole of a sharded parameter, and `shard`, the rows from `first` on, its shard.
    pub(crate) fn set_shard(&self, shard: &Tensor, first: usize, group: Arc<dyn Together>) {
        let mut offsets = vec![0; self.shape().len()];
        offsets[0] = first;
        let placement = Placement { shape: self.shape().to_vec(), offsets };
        let (whole, of) = (self.downgrade(), Arc::downgrade(&group));
        let of_shard = Sharding::Shard { whole, group: of, placement };
        shard.with_meta(|m| m.sharding = Some(Box::new(of_shard)));
        let of_whole = Sharding::Whole { shard: shard.clone(), group };
        self.with_meta(|m| m.sharding = Some(Box::new(of_whole)));
    }

    /// This rank's part of a sharded parameter; any other tensor itself.
    pub(crate) fn local(&self) -> Tensor {
        self.shard().unwrap_or_else(|| self.clone())
    }

    /// This rank's part, if this is the whole of a sharded parameter.
    pub(crate) fn shard(&self) -> Option<Tensor> {
        self.peek_meta(|m| match m.sharding.as_deref() {
            Some(Sharding::Whole { shard, .. }) => Some(shard.clone()),
            _ => None,
        })
    }

    /// Where this lies in the whole, if it is the shard of a parameter.
    pub(crate) fn placement(&self) -> Option<Placement> {
        self.peek_meta(|m| match m.sharding.as_deref() {
            Some(Sharding::Shard { placement, .. }) => Some(placement.clone()),
            _ => None,
        })
    }

    /// The whole, if this is the shard of a parameter that is still there.
    pub(crate) fn whole(&self) -> Option<Tensor> {
        self.peek_meta(|m| match m.sharding.as_deref() {
            Some(Sharding::Shard { whole, .. }) => whole.upgrade(),
            _ => None,
        })
    }

    /// Those who have the other parts, if this is a whole, a shard or its gradient.
    pub(crate) fn together(&self) -> Option<Arc<dyn Together>> {
        self.peek_meta(|m| match m.sharding.as_deref()? {
            Sharding::Whole { group, .. } => Some(group.clone()),
            Sharding::Shard { group, .. } | Sharding::Part { group } => group.upgrade(),
        })
    }

    /// Notes of a shard's new gradient that it is a part. Without one, what a backward has left with the whole goes too.
    pub(super) fn shard_gets(&self, grad: Option<&Tensor>) {
        let of_shard = self.peek_meta(|m| match m.sharding.as_deref() {
            Some(Sharding::Shard { whole, group, .. }) => Some((whole.upgrade(), group.clone())),
            _ => None,
        });
        let Some((whole, group)) = of_shard else { return };
        match grad {
            Some(grad) => grad.with_meta(|m| m.sharding = Some(Box::new(Sharding::Part { group }))),
            None => forget(whole, group.upgrade()),
        }
    }

    /// Forgets what backward has left of this shard's gradient and the shard does not have.
    pub(crate) fn forget_unreduced(&self) {
        forget(self.whole(), self.together());
    }

    /// Whether other ranks have other parts of what this is a part or the whole of.
    pub(crate) fn is_sharded(&self) -> bool {
        self.together().is_some_and(|group| group.ranks().len() > 1)
    }

    /// The gradient that this very leaf has, also of one that is sharded.
    pub(crate) fn own_grad(&self) -> Option<Tensor> {
        self.peek_meta(|m| m.grad.clone())
    }

    /// A whole parameter has no gradient outside of backward: who asks for it would believe that there is none.
    #[cold]
    #[track_caller]
    pub(super) fn refuse_gradient_of_whole(&self) -> ! {
        let name = self.name_hint().map(|name| format!(" `{name}`")).unwrap_or_default();
        throw(Error::Autograd(format!(
            "grad: this is the whole of parameter{name}, {:?}, which `fully_shard` has sharded: gradients are with its \
             shard, one of the module's `parameters()`; an optimizer is made of those, after `fully_shard`",
            self.shape()
        )))
    }
}
