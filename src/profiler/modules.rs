//! Which module of a model computes: a dotted path per thread, kept while somebody asks for it. `nn` says
//! where modules begin and end; backward goes back into the module whose forward recorded the node.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How many ask for it.
static WATCHES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static INSIDE: RefCell<Vec<Arc<str>>> = const { RefCell::new(Vec::new()) };
}

/// Whether somebody wants to know: all that a module's forward looks at when nobody does.
#[inline(always)]
pub(crate) fn is_watched() -> bool {
    WATCHES.load(Relaxed) != 0
}

/// While it lives, modules say when they begin and end.
#[derive(Debug)]
pub(crate) struct Watch(());

impl Watch {
    pub fn new() -> Self {
        WATCHES.fetch_add(1, Relaxed);
        Watch(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHES.fetch_sub(1, Relaxed);
    }
}

/// The path of the module that computes on this thread, with the model's own name before it.
pub(crate) fn current() -> Option<Arc<str>> {
    INSIDE.with_borrow(|inside| inside.last().cloned())
}

/// While it lives, the module of that path computes on this thread.
pub(crate) struct Inside {
    depth: usize,
    _not_send: PhantomData<*const ()>,
}

impl Inside {
    pub fn new(path: Arc<str>) -> Self {
        INSIDE.with_borrow_mut(|inside| {
            inside.push(path);
            Inside { depth: inside.len() - 1, _not_send: PhantomData }
        })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().truncate(self.depth));
    }
}
