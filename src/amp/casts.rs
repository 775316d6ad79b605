//! Casts of parameters, which are kept until the outermost region ends.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::autograd::is_grad_enabled;
use crate::tensor::{Dtype, Tensor};

/// A parameter's cast.
struct Cast {
    /// Keeps the parameter, whose address is the key, alive.
    parameter: Tensor,
    /// The parameter's version when it was cast.
    version: u32,
    cast: Tensor,
}

thread_local! {
    static CASTS: RefCell<HashMap<usize, Cast>> = RefCell::default();
}

/// Called where the outermost region ends.
pub(super) fn forget_casts() {
    // The tensors are dropped outside the borrow.
    drop(CASTS.take());
}

/// A parameter as `target`, made once, as by PyTorch. Unlike there, it is made again after an in-place change of the
/// parameter, and where the kept one is without history but this one must have it.
pub(super) fn kept_cast(t: &Tensor, target: Dtype) -> Tensor {
    let known = CASTS.with_borrow(|casts| {
        let kept = casts.get(&t.identity())?;
        let history = kept.cast.requires_grad() || !is_grad_enabled();
        let usable = kept.version == t.version() && kept.cast.dtype() == target && history;
        usable.then(|| kept.cast.clone())
    });
    known.unwrap_or_else(|| {
        let made = Cast { parameter: t.clone(), version: t.version(), cast: t.to_dtype(target) };
        let cast = made.cast.clone();
        let replaced = CASTS.with_borrow_mut(|casts| casts.insert(made.parameter.identity(), made));
        drop(replaced);
        cast
    })
}
