//! Casts of parameters, which are kept until the outermost region ends.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::autograd::{WeakTensor, is_grad_enabled};
use crate::tensor::{Dtype, Tensor};

/// A parameter's cast.
struct Cast {
    /// Keeps the parameter, whose address is the key, alive.
    parameter: Tensor,
    /// The parameter's version when it was cast.
    version: u32,
    cast: Tensor,
    /// Whether somebody has asked for it.
    is_used: bool,
    /// How many casts there were before.
    place: usize,
}

impl Cast {
    fn new(parameter: &Tensor, cast: Tensor, place: usize) -> Cast {
        let (parameter, version) = (parameter.clone(), parameter.version());
        Cast { parameter, version, cast, is_used: false, place }
    }
}

thread_local! {
    static CASTS: RefCell<HashMap<usize, Cast>> = RefCell::default();
    /// The parameters of GPUs that the last outermost region has cast: the next one will, too.
    static LAST: RefCell<Vec<WeakTensor>> = RefCell::default();
}

/// Called where the outermost region ends.
pub(super) fn forget_casts() {
    // The tensors are dropped outside the borrow.
    let casts = CASTS.take();
    if casts.is_empty() {
        return;
    }
    let together = |cast: &&Cast| {
        let parameter = &cast.parameter;
        // What is sharded comes when it is needed, and not before.
        cast.is_used && parameter.device().gpu().is_some() && parameter.together().is_none()
    };
    let mut used: Vec<&Cast> = casts.values().filter(together).collect();
    used.sort_by_key(|cast| cast.place);
    let used = used.into_iter().map(|cast| cast.parameter.downgrade()).collect();
    drop(LAST.replace(used));
}

/// A parameter as `target`, made once, as by PyTorch. Unlike there, it is made again after an in-place change of the
/// parameter, and where the kept one is without history but this one must have it.
///
/// On a GPU the first one of a region brings those that the region before has used, in a few launches.
pub(super) fn kept_cast(t: &Tensor, target: Dtype) -> Tensor {
    let usable = |kept: &Cast| {
        let history = kept.cast.requires_grad() || !is_grad_enabled();
        kept.version == t.version() && kept.cast.dtype() == target && history
    };
    let known = || {
        CASTS.with_borrow_mut(|casts| {
            let kept = casts.get_mut(&t.identity()).filter(|kept| usable(kept))?;
            kept.is_used = true;
            Some(kept.cast.clone())
        })
    };
    if let Some(cast) = known() {
        return cast;
    }
    cast_with_others(t, target);
    known().unwrap_or_else(|| {
        let place = CASTS.with_borrow(HashMap::len);
        let made = Cast { is_used: true, ..Cast::new(t, t.to_dtype(target), place) };
        let cast = made.cast.clone();
        let replaced = CASTS.with_borrow_mut(|casts| casts.insert(t.identity(), made));
        drop(replaced);
        cast
    })
}

/// Casts a parameter with those that were cast with it before, if it was.
fn cast_with_others(t: &Tensor, target: Dtype) {
    if t.device().gpu().is_none() {
        return;
    }
    let before: Vec<Tensor> =
        LAST.with_borrow(|last| last.iter().filter_map(WeakTensor::upgrade).collect::<Vec<_>>());
    if !before.iter().any(|other| other.ptr_eq(t)) {
        return;
    }
    drop(LAST.take());
    let is_new = |other: &Tensor| CASTS.with_borrow(|casts| !casts.contains_key(&other.identity()));
    let fits = |other: &Tensor| {
        other.device() == t.device()
            && other.dtype() == t.dtype()
            && other.is_contiguous()
            && other.is_leaf()
            && other.requires_grad()
            && other.together().is_none()
            && (other.ptr_eq(t) || is_new(other))
    };
    let all: Vec<Tensor> = before.into_iter().filter(fits).collect();
    let casts = Tensor::to_dtype_each(&all, target);
    let first = CASTS.with_borrow(HashMap::len);
    let made = all.iter().zip(casts).enumerate();
    let made = made.map(|(place, (t, cast))| (t.identity(), Cast::new(t, cast, first + place)));
    let replaced: Vec<Option<Cast>> =
        CASTS.with_borrow_mut(|casts| made.map(|(key, cast)| casts.insert(key, cast)).collect());
    drop(replaced);
}
