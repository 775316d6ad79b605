//! Where a training thread's time goes, for the launcher's status page: always counted, where a launcher has given this
//! process a board. Without one it costs a load.

use std::cell::Cell;
use std::marker::PhantomData;

use torchrs_job::board::{Doing, TimeOf, own};

use crate::storage::living::now_ns;

thread_local! {
    /// Whether this thread is in a phase: what it does inside belongs to that.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A part of a training thread's time that is not its own computing, until this guard is dropped. Inside another phase
/// it is part of that.
#[must_use = "the phase ends when the guard is dropped"]
pub(crate) struct Phase {
    /// What it counts as, and when it began; nothing: it is not counted.
    counted: Option<(TimeOf, u64)>,
    /// A phase belongs to a thread.
    _not_send: PhantomData<*const ()>,
}

impl Phase {
    /// Waiting for the next batch.
    pub(crate) fn data() -> Self {
        Phase::begin(TimeOf::Data, || Doing::Data)
    }

    /// An optimizer's step.
    pub(crate) fn optimizer() -> Self {
        Phase::begin(TimeOf::Optimizer, || Doing::Optimizer)
    }

    /// Saving a checkpoint.
    pub(crate) fn checkpoint() -> Self {
        Phase::begin(TimeOf::Checkpoint, || Doing::Checkpoint)
    }

    /// Waiting for collectives that were started.
    pub(crate) fn work() -> Self {
        Phase::begin(TimeOf::Communication, || Doing::Work)
    }

    /// A collective that the calling thread takes part in itself.
    #[inline]
    pub(crate) fn collective(name: &str) -> Self {
        let is = |doing: &&Doing| doing.name() == name;
        Phase::begin(TimeOf::Communication, || {
            Doing::ALL.iter().find(is).copied().unwrap_or(Doing::Work)
        })
    }

    #[inline]
    fn begin(of: TimeOf, doing: impl FnOnce() -> Doing) -> Self {
        let counted = own().filter(|_| !INSIDE.get()).map(|own| {
            INSIDE.set(true);
            let now = now_ns();
            own.counters().begin(doing(), now);
            (of, now)
        });
        Phase { counted, _not_send: PhantomData }
    }
}

impl Drop for Phase {
    #[inline]
    fn drop(&mut self) {
        if let (Some((of, start)), Some(own)) = (self.counted, own()) {
            own.counters().done(of, now_ns().saturating_sub(start));
            INSIDE.set(false);
        }
    }
}
