//! What is kept for what was asked before, up to a number: plans of libraries, of which a program whose shapes are always
//! others would make more without end.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::RwLock;

use crate::memo::quick_hash::QuickHash;

type Map<K, V> = HashMap<K, V, QuickHash>;

/// Values by their keys, in two generations: when the young one is full, what of the old one was not asked for meanwhile
/// goes. So the last `most / 2` values that were in use are always kept, and never more than `most`.
pub(crate) struct Bounded<K, V> {
    generations: RwLock<[Option<Map<K, V>>; 2]>,
    most: usize,
}

const YOUNG: usize = 0;
const OLD: usize = 1;

impl<K: Copy + Eq + Hash, V: Clone> Bounded<K, V> {
    /// An empty one of at most so many values.
    pub(crate) const fn new(most: usize) -> Self {
        Bounded { generations: RwLock::new([None, None]), most }
    }

    /// The value of a key.
    #[inline]
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let generations = self.generations.read();
        if let Some(value) = generations[YOUNG].as_ref().and_then(|young| young.get(key)) {
            return Some(value.clone());
        }
        let value = generations[OLD].as_ref()?.get(key)?.clone();
        drop(generations);
        Some(self.get_or_insert(*key, value))
    }

    /// Keeps a value, unless there is one of that key; gives the one that is kept.
    pub(crate) fn get_or_insert(&self, key: K, value: V) -> V {
        let (mut gone, value) = {
            let mut generations = self.generations.write();
            let of_old = generations[OLD].as_mut().and_then(|old| old.remove(&key));
            let gone = self.make_room(&mut generations);
            let young = generations[YOUNG].get_or_insert_default();
            (gone, young.entry(key).or_insert(of_old.unwrap_or(value)).clone())
        };
        // Outside of the lock: their ends are calls of a library.
        gone.take();
        value
    }

    /// Keeps a value in place of what there is.
    pub(crate) fn replace(&self, key: K, value: V) {
        let gone = {
            let mut generations = self.generations.write();
            let of_old = generations[OLD].as_mut().and_then(|old| old.remove(&key));
            let gone = self.make_room(&mut generations);
            let of_young = generations[YOUNG].get_or_insert_default().insert(key, value);
            (of_old, of_young, gone)
        };
        drop(gone);
    }

    /// Lets the young generation become the old one where it is full; gives what goes.
    fn make_room(&self, generations: &mut [Option<Map<K, V>>; 2]) -> Option<Map<K, V>> {
        let full = generations[YOUNG].as_ref().is_some_and(|young| young.len() >= self.most / 2);
        if !full {
            return None;
        }
        generations.swap(YOUNG, OLD);
        generations[YOUNG].take()
    }

    /// How many are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.generations.read().iter().flatten().map(HashMap::len).sum()
    }

    /// The values.
    pub(crate) fn values(&self) -> Vec<V> {
        self.generations.read().iter().flatten().flat_map(|map| map.values().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_stays_and_what_is_not_goes() {
        let kept = Bounded::new(8);
        for i in 0..1000u64 {
            assert_eq!(kept.get(&i), None);
            assert_eq!(kept.get_or_insert(i, 2 * i), 2 * i);
            assert_eq!(kept.get(&0), Some(0), "asked for again and again");
            assert!(i < 1 || kept.get(&(i - 1)).is_some(), "the one before");
            assert!(kept.len() <= 8);
        }
        assert_eq!(kept.get(&500), None);
    }

    #[test]
    fn the_first_value_stays_until_it_is_replaced() {
        let kept = Bounded::new(4);
        assert_eq!((kept.get_or_insert(1u64, 1), kept.get_or_insert(1, 2)), (1, 1));
        kept.replace(1, 3);
        // In either generation.
        kept.get_or_insert(2, 0);
        kept.get_or_insert(3, 0);
        assert_eq!((kept.get_or_insert(1, 4), kept.len()), (3, 3));
        kept.replace(1, 5);
        assert_eq!((kept.get(&1), kept.values().len()), (Some(5), kept.len()));
    }
}
