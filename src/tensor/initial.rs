//! The initial values of tensors on the meta device: nothing is computed there, so what gives the values is noted, with
//! its place among the draws of random numbers. Once the tensor has memory it is done, and gives the numbers that it
//! would have given at once.
//!
//! Notes stay with a storage while it has no memory, and with the tensor afterwards.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::default_device::with_default;
use super::{Device, Dtype, Layout, Tensor};
use crate::autograd::no_grad;
use crate::storage::set_building;

/// Gives values to a tensor.
pub(crate) type Write = Arc<dyn Fn(&Tensor) + Send + Sync>;

/// The draws of what is built together. Draws on the meta device leave the generator as it is.
pub(crate) struct Draws {
    /// Scopes that were begun later have higher ones.
    number: u64,
    /// Whether it is known where they begin and end; else they are of those who name the device.
    of_scope: bool,
    count: AtomicU64,
}

impl Draws {
    fn new(of_scope: bool) -> Arc<Draws> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        Arc::new(Draws { number, of_scope, count: AtomicU64::new(0) })
    }
}

thread_local! {
    static DRAWS: RefCell<Option<Arc<Draws>>> = const { RefCell::new(None) };
    /// Whether something is noted as a whole at the moment, so that its parts are not.
    static NOTING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `make`, whose draws are counted by themselves.
pub(super) fn in_scope<R>(make: impl FnOnce() -> R) -> R {
    struct Restore(Option<Arc<Draws>>, bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            DRAWS.set(self.0.take());
            set_building(self.1);
        }
    }
    // One inside another is part of it.
    let outer = DRAWS.with_borrow(|draws| draws.clone().filter(|draws| draws.of_scope));
    let inner = outer.unwrap_or_else(|| Draws::new(true));
    let _restore = Restore(DRAWS.replace(Some(inner)), set_building(true));
    make()
}

fn current() -> Arc<Draws> {
    DRAWS.with_borrow_mut(|draws| draws.get_or_insert_with(|| Draws::new(false)).clone())
}

/// Counts a draw that is not made: the place that it will have.
pub(crate) fn draw() -> u64 {
    current().count.fetch_add(1, Relaxed)
}

/// Whether something is noted at the moment.
pub(crate) fn is_noting() -> bool {
    NOTING.get()
}

/// Whether the default generator's draws are counted only, on whatever device: in a scope they have their places among
/// those of what is built there.
pub(crate) fn counts() -> bool {
    NOTING.get() || DRAWS.with_borrow(|draws| draws.as_ref().is_some_and(|draws| draws.of_scope))
}

#[derive(Clone)]
enum Step {
    /// Elements get values, with the draws from there on.
    Write { layout: Layout, dtype: Dtype, draw: u64, write: Write },
    /// They become others.
    Convert(Dtype),
}

/// What gives a tensor its values.
#[derive(Clone)]
pub(crate) struct Initial {
    draws: Arc<Draws>,
    /// The least and the next of its draws.
    span: Option<(u64, u64)>,
    steps: Vec<Step>,
    /// The storage's version after the last step, and its changes within the scope: others tell of a change that was not
    /// noted.
    version: u32,
    changes: u32,
}

/// Why nobody knows a tensor's initial values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// They were never on the meta device.
    NotFromMeta,
    /// They are results of ops, or there are none.
    Computed,
    /// They were changed by an op of which no note is taken.
    Changed,
    /// The tensor was a part of another.
    Part,
}

impl Tensor {
    /// Notes what gave these elements of a tensor on the meta device their values; nothing for others. `draws` is how
    /// many draws that took.
    pub(crate) fn note_initial(&self, write: impl Fn(&Tensor) + Send + Sync + 'static, draws: u64) {
        if !self.device().is_meta() || NOTING.get() {
            return;
        }
        let own = current();
        let first = own.count.load(Relaxed).saturating_sub(draws);
        self.add_initial(own, first, draws, Arc::new(write));
    }

    /// Gives values by `write`: at once, or on the meta device later.
    #[track_caller]
    pub(crate) fn initialise(&self, write: impl Fn(&Tensor) + Send + Sync + 'static) {
        if !self.device().is_meta() || NOTING.get() {
            return no_grad(|| write(self));
        }
        /// Also where it fails.
        struct Noted;
        impl Drop for Noted {
            fn drop(&mut self) {
                NOTING.set(false);
            }
        }
        let own = current();
        let first = own.count.load(Relaxed);
        NOTING.set(true);
        let noted = Noted;
        // For the checks and the number of draws.
        with_default(Device::Meta, || no_grad(|| write(self)));
        drop(noted);
        let draws = own.count.load(Relaxed) - first;
        self.add_initial(own, first, draws, Arc::new(write));
    }

    fn add_initial(&self, own: Arc<Draws>, first: u64, draws: u64, write: Write) {
        let layout = self.layout().clone();
        let step = Step::Write { layout, dtype: self.dtype(), draw: first, write };
        let version = self.version();
        let _ = self.storage().with_notes(|notes, changes| {
            let known = notes.take().and_then(|notes| notes.downcast::<Initial>().ok());
            let mut initial = known.map_or_else(
                || Initial { draws: own.clone(), span: None, steps: Vec::new(), version, changes },
                |known| *known,
            );
            // Of two scopes the later one: it has the last word.
            if !Arc::ptr_eq(&initial.draws, &own) {
                (initial.draws, initial.span) = (own, None);
            }
            if draws > 0 {
                let (least, next) = initial.span.unwrap_or((first, first));
                initial.span = Some((least.min(first), next.max(first + draws)));
            }
            initial.steps.push(step);
            (initial.version, initial.changes) = (version, changes);
            *notes = Some(Box::new(initial));
        });
    }

    /// What gives this tensor its values.
    ///
    /// # Errors
    /// Where that is unknown.
    pub(crate) fn initial(&self) -> Result<Arc<Initial>, Unknown> {
        let version = self.version();
        let of_storage = self.storage().with_notes(|notes, changes| {
            let known = notes.as_ref().and_then(|notes| notes.downcast_ref::<Initial>());
            let Some(known) = known else { return Err(Unknown::Computed) };
            // Of a scope it is known when it was over.
            let is_same = match known.draws.of_scope {
                true => known.changes == changes,
                false => known.version == version,
            };
            if is_same { Ok(Arc::new(known.clone())) } else { Err(Unknown::Changed) }
        });
        of_storage.unwrap_or_else(|| {
            self.peek_meta(|m| m.initial.clone()).unwrap_or(Err(Unknown::NotFromMeta))
        })
    }

    /// Keeps the notes of a tensor whose elements are in another storage now.
    pub(crate) fn keep_initial(&self, known: Result<Arc<Initial>, Unknown>, converted: bool) {
        let known = known.map(|initial| {
            let mut initial = Arc::unwrap_or_clone(initial);
            if converted {
                initial.steps.push(Step::Convert(self.dtype()));
            }
            initial.version = self.version();
            initial
        });
        let of_storage = known.clone().ok();
        let kept = self.storage().with_notes(|notes, changes| {
            *notes = of_storage.map(|initial| Box::new(Initial { changes, ..initial }) as _);
        });
        if kept.is_none() {
            self.with_meta(|m| m.initial = Some(known.map(Arc::new)));
        }
    }
}

impl Initial {
    /// The number of the scope, and the first and the next of the draws that are made for it and whatever else was built
    /// there.
    pub fn draws(&self) -> (u64, Option<(u64, u64)>) {
        let span = match self.draws.of_scope {
            true => Some((0, self.draws.count.load(Relaxed))),
            false => self.span,
        };
        (self.draws.number, span)
    }

    /// Gives `target` its values: a tensor with the whole memory of what was noted. `at` runs something with the draws
    /// from a place on.
    #[track_caller]
    pub fn give(&self, target: &Tensor, at: &dyn Fn(u64, &mut dyn FnMut())) {
        let is_converted = self.steps.iter().any(|step| matches!(step, Step::Convert(_)));
        let first = self.steps.iter().find_map(|step| match step {
            Step::Write { dtype, .. } => Some(*dtype),
            Step::Convert(_) => None,
        });
        let line = Layout::contiguous(&[target.numel()]);
        let mut now = match first.filter(|_| is_converted) {
            Some(dtype) => Tensor::empty([target.numel()], (dtype, target.device())),
            None => Tensor::from_parts(target.storage().clone(), line, target.dtype()),
        };
        for step in &self.steps {
            match step {
                Step::Convert(dtype) => now = no_grad(|| now.to_dtype(*dtype)),
                Step::Write { layout, dtype, draw, write } => {
                    let part = Tensor::from_parts(now.storage().clone(), layout.clone(), *dtype);
                    at(*draw, &mut || no_grad(|| write(&part)));
                }
            }
        }
        if is_converted {
            no_grad(|| _ = target.copy_(&now.reshape_to(target.shape())));
        }
    }
}
