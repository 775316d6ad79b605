//! Which group is gathered after which, and gathering ahead of use.
//!
//! What is learned is the order of gathers, in which the ranks of a group agree: a rank that goes another way gathers
//! something else than the others, which is an error that names both. So what is started ahead is the same on all.

use std::sync::{Arc, Weak};

use super::group::ShardGroup;
use crate::autograd::is_in_backward;
use crate::error::Result;

/// A way through a model, forwards or backwards: the groups over some ranks that were gathered in it.
#[derive(Default)]
pub(super) struct Pass {
    direction: usize,
    seen: Vec<usize>,
    last: Weak<ShardGroup>,
    /// Gathered ahead, and not used yet.
    ahead: Vec<Weak<ShardGroup>>,
}

/// What follows a group in one direction.
#[derive(Default)]
pub(super) struct Next {
    /// What the user says; none of it when nothing is gathered ahead.
    pub asked: Option<Vec<Weak<ShardGroup>>>,
    /// What came after it the last time.
    learned: Weak<ShardGroup>,
}

pub(super) const FORWARD: usize = 0;
pub(super) const BACKWARD: usize = 1;

/// The wholes of a group, which had to be gathered, are used from now on: starts to gather what comes next.
pub(super) fn used(group: &Arc<ShardGroup>) -> Result<()> {
    let direction = if is_in_backward() { BACKWARD } else { FORWARD };
    let (targets, stale) = {
        let mut pass = group.pass.lock();
        let is_this = |other: &Weak<ShardGroup>| other.as_ptr() == Arc::as_ptr(group);
        pass.ahead.retain(|other| !is_this(other));
        let mut stale = Vec::new();
        if pass.direction != direction || pass.seen.contains(&group.number) {
            stale = std::mem::take(&mut pass.ahead);
            *pass = Pass { direction, ..Pass::default() };
        }
        if let Some(last) = pass.last.upgrade() {
            last.next[direction].lock().learned = Arc::downgrade(group);
        }
        pass.seen.push(group.number);
        pass.last = Arc::downgrade(group);
        let next = group.next[direction].lock();
        let targets: Vec<Arc<ShardGroup>> = match &next.asked {
            Some(asked) => asked.iter().filter_map(Weak::upgrade).collect(),
            None => next.learned.upgrade().into_iter().collect(),
        };
        drop(next);
        pass.ahead.extend(targets.iter().map(Arc::downgrade));
        (targets, stale)
    };
    // The pass ended before they were used.
    stale.iter().filter_map(Weak::upgrade).for_each(|group| group.drop_ahead());
    targets.iter().try_for_each(|target| target.start_ahead())
}

impl ShardGroup {
    /// Gives back what was gathered ahead and is not used.
    fn drop_ahead(&self) {
        if self.state.lock().is_ahead {
            self.reshard();
        }
    }

    /// The pass of those over the same ranks, or a new one.
    pub(super) fn pass_of(others: &[Arc<ShardGroup>]) -> Arc<parking_lot::Mutex<Pass>> {
        others.first().map(|other| other.pass.clone()).unwrap_or_default()
    }
}
