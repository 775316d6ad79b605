//! Whose rows a batch norm sees.

use std::fmt;
use std::marker::PhantomPinned;

use parking_lot::RwLock;

use crate::distributed::{ProcessGroup, default_group};

/// The ranks over whose rows a batch norm takes its statistics: this one alone, or all of a process
/// group. A field of this type is set by
/// [`SyncBatchNorm::convert_sync_batchnorm`](super::SyncBatchNorm::convert_sync_batchnorm) of any
/// module above it.
///
/// ```
/// use torchrs::nn::{Module, StatisticsGroup, SyncBatchNorm};
/// #[derive(Module)]
/// struct MyNorm { group: StatisticsGroup }
/// let norm = MyNorm { group: StatisticsGroup::default() };
/// let net = SyncBatchNorm::convert_sync_batchnorm(vec![norm], None);
/// assert!(net[0].group.is_joined());
/// ```
pub struct StatisticsGroup {
    ranks: RwLock<Ranks>,
    /// As in [`Parameter`](super::Parameter).
    _not_plain: PhantomPinned,
}

#[derive(Clone, Debug)]
enum Ranks {
    Own,
    /// Of the default group, where there is one.
    Default,
    Of(ProcessGroup),
}

impl StatisticsGroup {
    fn new(ranks: Ranks) -> Self {
        StatisticsGroup { ranks: RwLock::new(ranks), _not_plain: PhantomPinned }
    }

    /// All ranks of the default group, if there is one when it is asked.
    pub(super) fn of_default() -> Self {
        Self::new(Ranks::Default)
    }

    /// All ranks of `group` from now on; `None`: of the default group.
    pub fn join(&self, group: Option<&ProcessGroup>) {
        *self.ranks.write() = group.map_or(Ranks::Default, |group| Ranks::Of(group.clone()));
    }

    /// True when statistics may be those of several ranks.
    pub fn is_joined(&self) -> bool {
        !matches!(*self.ranks.read(), Ranks::Own)
    }

    /// The group, if it has more ranks than this one.
    pub(super) fn others(&self) -> Option<ProcessGroup> {
        let group = match &*self.ranks.read() {
            Ranks::Own => return None,
            Ranks::Default => default_group().ok()?,
            Ranks::Of(group) => group.clone(),
        };
        (group.world_size() > 1).then_some(group)
    }
}

/// This rank alone.
impl Default for StatisticsGroup {
    fn default() -> Self {
        Self::new(Ranks::Own)
    }
}

impl Clone for StatisticsGroup {
    /// One of its own, of the same ranks.
    fn clone(&self) -> Self {
        Self::new(self.ranks.read().clone())
    }
}

impl fmt::Debug for StatisticsGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StatisticsGroup({:?})", self.ranks.read())
    }
}
