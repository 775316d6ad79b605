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
    /// Whether it is read with its channels last.
    channels_last: bool,
    /// How many casts there were before.
    place: usize,
}

impl Cast {
    fn new(parameter: &Tensor, cast: Tensor, place: usize, channels_last: bool) -> Cast {
        let (parameter, version) = (parameter.clone(), parameter.version());
        Cast { parameter, version, cast, is_used: false, channels_last, place }
    }
}

thread_local! {
    static CASTS: RefCell<HashMap<usize, Cast>> = RefCell::default();
    /// The parameters of GPUs that the last outermost region has cast, and whether they were read with channels last:
    /// so will the next one.
    static LAST: RefCell<Vec<(WeakTensor, bool)>> = RefCell::default();
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
    let used =
        used.into_iter().map(|cast| (cast.parameter.downgrade(), cast.channels_last)).collect();
    drop(LAST.replace(used));
}

/// Notes that a cast, if it is one that is kept, is read with its channels last: the next region makes it so.
pub(crate) fn is_read_channels_last(cast: &Tensor) {
    CASTS.with_borrow_mut(|casts| {
        if let Some(kept) = casts.values_mut().find(|kept| kept.cast.ptr_eq(cast)) {
            kept.channels_last = true;
        }
    });
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
        let cast = t.to_dtype(target);
        let made = Cast { is_used: true, ..Cast::new(t, cast, place, false) };
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
    let before: Vec<(Tensor, bool)> = LAST.with_borrow(|last| {
        last.iter().filter_map(|(t, last)| Some((t.upgrade()?, *last))).collect()
    });
    if !before.iter().any(|(other, _)| other.ptr_eq(t)) {
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
    let all = before.into_iter().filter(|(t, _)| fits(t));
    let (all, channels_last): (Vec<Tensor>, Vec<bool>) = all.unzip();
    let casts = Tensor::to_dtype_each(&all, target, &channels_last);
    let first = CASTS.with_borrow(HashMap::len);
    let made = all.iter().zip(casts).zip(channels_last).enumerate();
    let made = made
        .map(|(place, ((t, cast), last))| (t.identity(), Cast::new(t, cast, first + place, last)));
    let replaced: Vec<Option<Cast>> =
        CASTS.with_borrow_mut(|casts| made.map(|(key, cast)| casts.insert(key, cast)).collect());
    drop(replaced);
}
