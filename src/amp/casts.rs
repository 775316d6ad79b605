//! Casts of parameters, which are kept until the outermost region ends.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::autograd::{WeakTensor, is_grad_enabled};
use crate::tensor::{Dtype, Tensor};

/// Where a cast lies that is made with others.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place {
    /// With its channels last.
    pub channels_last: bool,
    /// Right behind the one before it, in one storage, where that keeps the alignment of a new tensor.
    pub follows: bool,
}

/// A parameter's cast.
struct Cast {
    /// Keeps the parameter, whose address is the key, alive.
    parameter: Tensor,
    /// The parameter's version when it was cast.
    version: u32,
    cast: Tensor,
    /// Whether somebody has asked for it.
    is_used: bool,
    /// How it is read.
    lies: Place,
    /// How many casts there were before.
    place: usize,
}

impl Cast {
    fn new(parameter: &Tensor, cast: Tensor, place: usize, lies: Place) -> Cast {
        let (parameter, version) = (parameter.clone(), parameter.version());
        Cast { parameter, version, cast, is_used: false, lies, place }
    }
}

thread_local! {
    static CASTS: RefCell<HashMap<usize, Cast>> = RefCell::default();
    /// The parameters of GPUs that the last outermost region has cast, and how they were read: so will the next one.
    static LAST: RefCell<Vec<(WeakTensor, Place)>> = RefCell::default();
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
    let used = used.into_iter().map(|cast| (cast.parameter.downgrade(), cast.lies)).collect();
    drop(LAST.replace(used));
}

/// Notes that a cast, if it is one that is kept, is read with its channels last: the next region makes it so.
pub(crate) fn is_read_channels_last(cast: &Tensor) {
    CASTS.with_borrow_mut(|casts| {
        if let Some(kept) = casts.values_mut().find(|kept| kept.cast.ptr_eq(cast)) {
            kept.lies.channels_last = true;
        }
    });
}

/// A parameter as `target`, made once, as by PyTorch. Unlike there, it is made again after an in-place change of the
/// parameter, and where the kept one is without history but this one must have it.
///
/// On a GPU the first one of a region brings those that the region before has used, in a few launches.
pub(super) fn kept_cast(t: &Tensor, target: Dtype) -> Tensor {
    if let Some(cast) = known(t, target) {
        return cast;
    }
    cast_with_others(t, target);
    known(t, target).unwrap_or_else(|| {
        let place = CASTS.with_borrow(HashMap::len);
        let cast = t.to_dtype(target);
        let made = Cast { is_used: true, ..Cast::new(t, cast, place, Place::default()) };
        let cast = made.cast.clone();
        let replaced = CASTS.with_borrow_mut(|casts| casts.insert(t.identity(), made));
        drop(replaced);
        cast
    })
}

/// The casts of groups of parameters. A group is read as one: it lies side by side if it is on a GPU and none of it is there.
pub(super) fn kept_casts(groups: &[&[&Tensor]], target: Dtype) -> Vec<Vec<Tensor>> {
    let is_together = |t: &&Tensor| t.device().kernels().is_some() && t.together().is_none();
    let are_new = |group: &[&Tensor]| group.iter().all(|t| known(t, target).is_none());
    let is_one = |group: &[&Tensor]| group.iter().all(is_together) && are_new(group);
    let ones: Vec<&[&Tensor]> = groups.iter().copied().filter(|group| is_one(group)).collect();
    ones.iter().for_each(|group| put_side_by_side(group));
    for group in ones {
        if let Some(&first) = group.first().filter(|first| known(first, target).is_none()) {
            cast_with_others(first, target);
        }
        if are_new(group) && !group.is_empty() {
            let own = group.iter().map(|&t| t.clone()).collect();
            cast_and_keep(own, target, (0..group.len()).map(beside).collect());
        }
    }
    groups.iter().map(|group| group.iter().map(|t| kept_cast(t, target)).collect()).collect()
}

/// The place of the i-th of a group.
fn beside(i: usize) -> Place {
    Place { follows: i > 0, ..Place::default() }
}

/// Has a group that the region before has cast lie side by side in this one.
fn put_side_by_side(group: &[&Tensor]) {
    LAST.with_borrow_mut(|last| {
        let before = last.len();
        last.retain(|(other, _)| {
            other.upgrade().is_some_and(|t| !group.iter().any(|one| one.ptr_eq(&t)))
        });
        if last.len() < before {
            last.extend(group.iter().enumerate().map(|(i, t)| (t.downgrade(), beside(i))));
        }
    });
}

/// The kept cast of a parameter, if there is one of use.
fn known(t: &Tensor, target: Dtype) -> Option<Tensor> {
    let usable = |kept: &Cast| {
        let history = kept.cast.requires_grad() || !is_grad_enabled();
        kept.version == t.version() && kept.cast.dtype() == target && history
    };
    CASTS.with_borrow_mut(|casts| {
        let kept = casts.get_mut(&t.identity()).filter(|kept| usable(kept))?;
        kept.is_used = true;
        Some(kept.cast.clone())
    })
}

/// Casts a parameter with those that were cast with it before, if it was.
fn cast_with_others(t: &Tensor, target: Dtype) {
    if t.device().gpu().is_none() {
        return;
    }
    let before: Vec<(Tensor, Place)> = LAST.with_borrow(|last| {
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
    let (all, places) = all.unzip();
    cast_and_keep(all, target, places);
}

/// Casts parameters together, and keeps the casts.
fn cast_and_keep(all: Vec<Tensor>, target: Dtype, places: Vec<Place>) {
    let casts = Tensor::to_dtype_each(&all, target, &places);
    let first = CASTS.with_borrow(HashMap::len);
    let made = all.iter().zip(casts).zip(places).enumerate();
    let made = made
        .map(|(place, ((t, cast), lies))| (t.identity(), Cast::new(t, cast, first + place, lies)));
    let replaced: Vec<Option<Cast>> =
        CASTS.with_borrow_mut(|casts| made.map(|(key, cast)| casts.insert(key, cast)).collect());
    drop(replaced);
}
