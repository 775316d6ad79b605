//! Handles: numbers that look like pointers and are never given twice, so that one that was destroyed
//! is known as such for ever.

use crate::code::{Code, Result};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

/// What is given to the caller for a thing inside.
pub type Handle = *mut c_void;

static NEXT: AtomicUsize = AtomicUsize::new(0x5110);

/// The things of one kind that live.
#[derive(Debug)]
pub struct Registry<T> {
    things: LazyLock<RwLock<HashMap<usize, Arc<T>>>>,
}

impl<T> Registry<T> {
    /// An empty one.
    pub const fn new() -> Registry<T> {
        Registry { things: LazyLock::new(|| RwLock::new(HashMap::new())) }
    }

    /// Takes a thing in and gives its handle.
    pub fn insert(&self, thing: T) -> Handle {
        self.insert_with(|_| thing)
    }

    /// The same for a thing that knows its handle.
    pub fn insert_with(&self, make: impl FnOnce(usize) -> T) -> Handle {
        let number = NEXT.fetch_add(16, Ordering::Relaxed);
        self.things.write().insert(number, Arc::new(make(number)));
        number as Handle
    }

    /// The thing behind a handle.
    pub fn get(&self, handle: Handle) -> Result<Arc<T>> {
        self.things.read().get(&(handle as usize)).cloned().ok_or(Code::INVALID_HANDLE)
    }

    /// Forgets a handle; the thing lives on as long as work in flight uses it.
    pub fn remove(&self, handle: Handle) -> Result<Arc<T>> {
        self.things.write().remove(&(handle as usize)).ok_or(Code::INVALID_HANDLE)
    }

    /// Forgets all of which `which` is true.
    pub fn remove_where(&self, which: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut things = self.things.write();
        let numbers: Vec<usize> =
            things.iter().filter(|(_, thing)| which(thing)).map(|(number, _)| *number).collect();
        numbers.iter().filter_map(|number| things.remove(number)).collect()
    }
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Registry::new()
    }
}
