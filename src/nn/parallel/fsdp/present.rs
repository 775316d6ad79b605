//! All groups of this process: whose wholes take memory at the moment, and whose gradients are on their way.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::advice;
use super::group::ShardGroup;
use crate::autograd::is_in_backward;
use crate::distributed::ProcessGroup;

static ALL: Mutex<Vec<Weak<ShardGroup>>> = Mutex::new(Vec::new());
static PRESENT: Mutex<Vec<Weak<ShardGroup>>> = Mutex::new(Vec::new());
static REDUCING: Mutex<Weak<ShardGroup>> = Mutex::new(Weak::new());

/// A group is there from now on.
pub(super) fn made(group: &Arc<ShardGroup>) {
    let mut all = ALL.lock();
    all.retain(|other| other.strong_count() > 0);
    all.push(Arc::downgrade(group));
}

/// The groups over the ranks of a process group.
pub(super) fn over(ranks: &ProcessGroup) -> Vec<Arc<ShardGroup>> {
    let all: Vec<Arc<ShardGroup>> = ALL.lock().iter().filter_map(Weak::upgrade).collect();
    all.into_iter().filter(|group| group.shards.is_same(ranks)).collect()
}

/// The groups that have these numbers.
pub(super) fn numbered(numbers: &[usize]) -> Vec<Weak<ShardGroup>> {
    let is_one = |group: &&Weak<ShardGroup>| {
        group.upgrade().is_some_and(|group| numbers.contains(&group.number))
    };
    ALL.lock().iter().filter(is_one).cloned().collect()
}

/// A group's wholes are used now. In forward those before it are not needed any more, but for those of modules that it is
/// part of; in backward a group ends by itself, once its gradients are there.
pub(super) fn arrived(group: &Arc<ShardGroup>) {
    let in_backward = is_in_backward();
    let mut gone = Vec::new();
    {
        let mut present = PRESENT.lock();
        present.retain(|other| {
            let Some(other) = other.upgrade() else { return false };
            if Arc::ptr_eq(&other, group) {
                return false;
            }
            let is_over = other.switches.reshards_after_forward.load(Relaxed)
                && !other.inner.iter().any(|inner| inner.as_ptr() == Arc::as_ptr(group))
                && (!in_backward || other.trained() == 0);
            if is_over {
                gone.push(other);
            }
            !is_over
        });
        present.push(Arc::downgrade(group));
    }
    for group in gone {
        if in_backward { group.reshard() } else { group.reshard_after_forward() }
    }
}

/// A group, which has gone, is on its way: the next that arrives does not end its use.
pub(super) fn comes_again(group: &ShardGroup) {
    PRESENT.lock().retain(|other| !std::ptr::eq(other.as_ptr(), group));
}

/// A group is about to reduce its gradients: the one that did so before.
pub(super) fn reduces(group: &Arc<ShardGroup>) -> Option<Arc<ShardGroup>> {
    advice::in_backward(group, || {
        ALL.lock()
            .iter()
            .any(|other| other.strong_count() > 0 && other.as_ptr() != Arc::as_ptr(group))
    });
    let before = std::mem::replace(&mut *REDUCING.lock(), Arc::downgrade(group));
    before.upgrade().filter(|before| !Arc::ptr_eq(before, group))
}
