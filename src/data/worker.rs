//! What runs in a loader worker's process: takes tasks from the control page, makes their batches,
//! sleeps on its socket when there is nothing to do.

use std::sync::Arc;

use nix::sys::signal::{SigHandler, Signal, signal};
use serde::{Deserialize, Serialize};

use super::arena::{Arena, Slot, Slots};
use super::assemble::{Failure, Space, assemble};
use super::control::{Control, Dimensions, SlotPlace, Task, TaskState};
use super::dataset::{Dataset, WorkerInfo, set_worker_info};
use super::layout::BatchLayout;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::multiprocessing::{Channel, conjure, handles};
use crate::storage::SharedMemory;

/// Batches of this size and more are written past the cache: the few that are in flight together
/// would not stay in it until they are read.
const STREAMING_BATCH: usize = 4 << 20;

/// From the parent to a worker: look at the control page.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Wake;

/// From a worker to the parent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToParent {
    /// The task that the parent awaits is finished.
    Wake,
    /// Batches will lie in this arena.
    Arena(Arena),
    /// No more batches will lie in these arenas; all that do are done.
    Retired(Vec<u64>),
    /// The task failed; sent before its state says so.
    Failed { task: u64, index: Option<usize>, message: String },
}

/// What a worker is started with.
#[derive(Serialize, Deserialize)]
#[serde(bound = "D: Dataset")]
pub(super) struct WorkerArgs<D> {
    pub worker: usize,
    pub seed: u64,
    pub dimensions: Dimensions,
    #[serde(with = "handles::shared_memory")]
    pub control: Arc<SharedMemory>,
    pub dataset: Shared<D>,
}

/// What runs first of all in a worker: [`worker_init`](super::DataLoaderBuilder::worker_init)'s function.
pub(super) trait Init: Fn(WorkerInfo) -> Result<()> + Copy + 'static {}

impl<F: Fn(WorkerInfo) -> Result<()> + Copy + 'static> Init for F {}

/// The worker's `main`. Ends when the parent closes the socket or says stop.
pub(super) fn run_worker<D: Dataset, F: Init>(
    args: WorkerArgs<D>,
    parent: Channel<ToParent, Wake>,
) -> Result<()> {
    let WorkerArgs { worker, seed, dimensions, control, dataset } = args;
    let info = WorkerInfo {
        worker: Some(worker),
        num_workers: dimensions.workers,
        seed,
        ..WorkerInfo::default()
    };
    begin_worker::<F>(info)?;
    let control = Control::open(control, dimensions);
    let mut state = Worker::new((worker, dimensions.workers), seed, control, parent);
    state.cell = worker;
    state.work(|indices, space| assemble(&*dataset, indices.into_iter(), space))
}

/// What a worker does before all else.
pub(super) fn begin_worker<F: Init>(info: WorkerInfo) -> Result<()> {
    set_worker_info(info);
    leave_signals_to_parent();
    conjure::<F>()(info)
}

/// Ctrl-C in a terminal, and a launcher that signals a whole process group, reach workers too. What
/// to do about it is the parent's decision (it may want to finish a checkpoint, and needs batches
/// until then); a worker ends when its parent does.
fn leave_signals_to_parent() {
    use Signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
    for number in [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2] {
        // SAFETY: no handler function is installed. Refusal is impossible for these signals.
        let _ = unsafe { signal(number, SigHandler::SigIgn) };
    }
}

/// A worker process, which makes batches until its parent says stop.
pub(super) struct Worker {
    /// Its number, of so many.
    number: (usize, usize),
    /// Its cell in the control page.
    cell: usize,
    seed: u64,
    control: Control,
    parent: Channel<ToParent, Wake>,
    slots: Slots,
}

impl Worker {
    /// Worker `number` of so many, with the first cell of its control page.
    pub fn new(
        number: (usize, usize),
        seed: u64,
        control: Control,
        parent: Channel<ToParent, Wake>,
    ) -> Self {
        leave_signals_to_parent();
        // As many as can be in flight, and one with the user.
        let slots = Slots::new(control.dimensions().tasks + 1);
        Worker { number, cell: 0, seed, control, parent, slots }
    }

    /// Makes a batch of each task with `make`, which gives none when nobody wants it or none is left.
    pub fn work(&mut self, mut make: impl Make) -> Result<()> {
        while !self.control.stopped() {
            let done = self.next_task().and_then(|task| match task {
                Some(task) => self.run(task, &mut make).map(|()| true),
                None => Ok(false),
            });
            match done {
                Ok(true) => {}
                // The parent is gone, or drops the loader: nobody is left to tell.
                Ok(false) | Err(Error::Disconnected(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next task; sleeps until there is one. `None`: stop.
    fn next_task(&mut self) -> Result<Option<Task>> {
        loop {
            if let Some(task) = self.control.take(self.cell) {
                return Ok(Some(task));
            }
            // Said before the last look, so that a task published in between is not slept over.
            self.control.set_idle(self.cell, true);
            let task = self.control.take(self.cell);
            if task.is_none() && !self.control.stopped() {
                let woken = self.parent.recv();
                self.control.set_idle(self.cell, false);
                let Wake = woken?;
                continue;
            }
            self.control.set_idle(self.cell, false);
            return Ok(task);
        }
    }

    fn run(&mut self, task: Task, make: &mut impl Make) -> Result<()> {
        let (number, num_workers) = self.number;
        set_worker_info(WorkerInfo {
            worker: Some(number),
            num_workers,
            seed: self.seed,
            epoch: task.epoch,
            index: None,
        });
        let indices: Vec<usize> = self.control.task_indices(&task).collect();
        let mut space = TaskSpace { worker: self, task };
        let state = match make(indices, &mut space) {
            Ok(Some((_, slot))) => {
                let (worker, arena) = (self.cell, slot.arena().id);
                let place = SlotPlace { worker, arena, slot: slot.hand_over() };
                self.control.set_place(task.number, place);
                TaskState::Done
            }
            Ok(None) => TaskState::Skipped,
            Err(Failure::Loader(error @ Error::Disconnected(_))) => return Err(error),
            Err(failure) => {
                let (index, message) = match failure {
                    Failure::Dataset { index, message } => (Some(index), message),
                    Failure::Loader(error) => (None, error.to_string()),
                };
                self.parent.send(&ToParent::Failed { task: task.number, index, message })?;
                TaskState::Failed
            }
        };
        if self.control.finish(self.cell, task.number, state) {
            self.parent.send(&ToParent::Wake)?;
        }
        Ok(())
    }
}

/// Makes a batch of a task's indices.
pub(super) trait Make:
    FnMut(Vec<usize>, &mut TaskSpace<'_>) -> Result<Option<(BatchLayout, Slot)>, Failure>
{
}

impl<F> Make for F where
    F: FnMut(Vec<usize>, &mut TaskSpace<'_>) -> Result<Option<(BatchLayout, Slot)>, Failure>
{
}

/// The place for one task's batch.
pub(super) struct TaskSpace<'a> {
    worker: &'a mut Worker,
    task: Task,
}

impl Space for TaskSpace<'_> {
    fn take(&mut self, bytes: usize) -> Result<Slot> {
        let (slot, changes) = self.worker.slots.take(bytes)?;
        let parent = &self.worker.parent;
        // The parent hears of an arena before it can meet its number, and of its end after.
        if changes.added {
            parent.send(&ToParent::Arena(slot.arena().clone()))?;
        }
        if !changes.retired.is_empty() {
            parent.send(&ToParent::Retired(changes.retired))?;
        }
        Ok(slot)
    }

    fn is_streaming(&self, bytes: usize) -> bool {
        bytes >= STREAMING_BATCH
    }

    fn reading(&mut self, index: usize) -> bool {
        self.worker.control.reading(self.worker.cell, self.task.number, index)
    }
}
