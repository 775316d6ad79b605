//! Size rules, and the pools that keep requests of different kinds apart.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MIB: usize = 1 << 20;
/// Every chunk's size is a multiple of this.
pub(super) const GRANULE: usize = 512;
/// The largest request of the small class.
pub(super) const SMALL: usize = MIB;
/// Segments of the small class.
const SMALL_SEGMENT: usize = 2 * MIB;
/// Requests from here on get a segment of their own.
const LARGE: usize = 10 * MIB;
/// Segments that several large requests share.
const SHARED_SEGMENT: usize = 20 * MIB;

/// Small and large requests do not share segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SizeClass {
    /// Up to 1 MiB.
    Small,
    /// Above.
    Large,
}

/// The size of the chunk for a request, a multiple of `granule`; `None` where it is beyond any memory.
#[inline]
pub(super) fn rounded(requested: usize, granule: usize) -> Option<usize> {
    // A request for nothing gets a chunk too, so that every address is one tensor's.
    requested.max(1).checked_next_multiple_of(granule).filter(|&size| size <= isize::MAX as usize)
}

/// The class of a rounded size.
#[inline]
pub(super) fn class_of(size: usize) -> SizeClass {
    if size <= SMALL { SizeClass::Small } else { SizeClass::Large }
}

/// The size of a new segment for a chunk.
pub(super) fn segment_size(size: usize) -> usize {
    match size {
        _ if size <= SMALL => SMALL_SEGMENT,
        _ if size < LARGE => SHARED_SEGMENT,
        _ => size.next_multiple_of(SMALL_SEGMENT),
    }
}

/// Whether what is left of a chunk becomes a chunk of its own.
#[inline]
pub(super) fn should_split(class: SizeClass, left: usize) -> bool {
    match class {
        SizeClass::Small => left >= GRANULE,
        SizeClass::Large => left > SMALL,
    }
}

/// The memory of one captured graph, or of several that are replayed one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub(super) u64);

/// Which segments a request may be served from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pool {
    pub(super) private: Option<PoolId>,
    pub(super) class: SizeClass,
}

/// Private pools and the capture that is under way.
#[derive(Default)]
pub(super) struct PrivatePools {
    users: BTreeMap<PoolId, usize>,
    pub(super) capture: Option<PoolId>,
}

impl PrivatePools {
    /// A new pool with one user.
    pub(super) fn create(&mut self) -> PoolId {
        // Of all devices, so that nobody takes another device's pool for one of this.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = PoolId(NEXT.fetch_add(1, Relaxed));
        self.users.insert(id, 1);
        id
    }

    /// One more graph uses the pool; false where it is gone.
    pub(super) fn retain(&mut self, id: PoolId) -> bool {
        self.users.get_mut(&id).map(|users| *users += 1).is_some()
    }

    /// One graph less uses the pool.
    pub(super) fn release(&mut self, id: PoolId) {
        if let Some(users) = self.users.get_mut(&id) {
            *users -= 1;
            if *users == 0 {
                self.users.remove(&id);
            }
        }
    }

    /// Whether whole free segments of a pool may be given back: a graph writes to those of its
    /// own at every replay.
    pub(super) fn may_release(&self, pool: Pool) -> bool {
        pool.private.is_none_or(|id| !self.users.contains_key(&id))
    }
}
