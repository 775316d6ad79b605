//! What this process has of something that other processes may send again, by identity and without
//! keeping it alive: shared mappings, and the storages in them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;

use crate::storage::{Storage, WeakStorage};

/// A reference that does not keep its target alive.
pub(super) trait WeakRef {
    type Strong: Clone;
    fn downgrade(strong: &Self::Strong) -> Self;
    fn upgrade(&self) -> Option<Self::Strong>;
}

impl<T> WeakRef for Weak<T> {
    type Strong = Arc<T>;
    fn downgrade(strong: &Arc<T>) -> Self {
        Arc::downgrade(strong)
    }
    fn upgrade(&self) -> Option<Arc<T>> {
        Weak::upgrade(self)
    }
}

impl WeakRef for WeakStorage {
    type Strong = Storage;
    fn downgrade(strong: &Storage) -> Self {
        strong.downgrade()
    }
    fn upgrade(&self) -> Option<Storage> {
        WeakStorage::upgrade(self)
    }
}

/// A map of weak references; dead ones are swept out before it grows.
pub(super) struct WeakMap<K, W>(LazyLock<Mutex<HashMap<K, W>>>);

impl<K: Eq + Hash, W: WeakRef> WeakMap<K, W> {
    pub const fn new() -> Self {
        WeakMap(LazyLock::new(Mutex::default))
    }

    pub fn get(&self, key: &K) -> Option<W::Strong> {
        self.0.lock().get(key).and_then(W::upgrade)
    }

    /// Enters `value` and returns it, or the one that is there already.
    pub fn get_or_insert(&self, key: K, value: W::Strong) -> W::Strong {
        let mut map = self.0.lock();
        if let Some(known) = map.get(&key).and_then(W::upgrade) {
            return known;
        }
        if map.len() == map.capacity() {
            map.retain(|_, weak| weak.upgrade().is_some());
        }
        map.insert(key, W::downgrade(&value));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_living_value_stands_and_dead_ones_make_room() {
        let map: WeakMap<usize, Weak<usize>> = WeakMap::new();
        let first = map.get_or_insert(0, Arc::new(10));
        assert_eq!(*map.get_or_insert(0, Arc::new(11)), 10);
        drop(first);
        assert_eq!(map.get(&0), None);
        assert_eq!(*map.get_or_insert(0, Arc::new(12)), 12);
        for key in 0..10_000 {
            drop(map.get_or_insert(key, Arc::new(key)));
        }
        assert!(map.0.lock().len() < 100, "dead entries pile up");
    }
}
