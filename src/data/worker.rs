//! What runs in a loader worker's process: takes tasks from the control page, makes their batches,
//! sleeps on its socket when there is nothing to do.

use std::sync::Arc;

use nix::sys::signal::{SigHandler, Signal, signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::arena::{Arena, Slot, Slots};
use super::assemble::{Failure, Space, assemble};
use super::control::{Control, Dimensions, SlotPlace, Task, TaskState};
use super::dataset::{Dataset, WorkerInfo, set_worker_info};
use crate::error::{Error, Result};
use crate::multiprocessing::{Channel, handles};
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

/// A value behind an [`Arc`] that is serialised as itself: the parent keeps the dataset while every
/// worker gets a copy.
pub(super) struct Shared<D>(pub Arc<D>);

impl<D: Serialize> Serialize for Shared<D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, D: DeserializeOwned> Deserialize<'de> for Shared<D> {
    fn deserialize<S: Deserializer<'de>>(deserializer: S) -> Result<Self, S::Error> {
        D::deserialize(deserializer).map(|dataset| Shared(Arc::new(dataset)))
    }
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

/// The worker's `main`. Ends when the parent closes the socket or says stop.
pub(super) fn run_worker<D: Dataset>(
    args: WorkerArgs<D>,
    parent: Channel<ToParent, Wake>,
) -> Result<()> {
    leave_signals_to_parent();
    let WorkerArgs { worker, seed, dimensions, control, dataset } = args;
    let control = Control::open(control, dimensions);
    // As many as can be in flight, and one with the user.
    let slots = Slots::new(dimensions.tasks + 1);
    let mut state = Worker { worker, seed, control, parent, slots };
    match state.work(&*dataset.0) {
        // The parent is gone, or drops the loader: nobody is left to tell.
        Err(Error::Disconnected(_)) => Ok(()),
        other => other,
    }
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

struct Worker {
    worker: usize,
    seed: u64,
    control: Control,
    parent: Channel<ToParent, Wake>,
    slots: Slots,
}

impl Worker {
    fn work<D: Dataset>(&mut self, dataset: &D) -> Result<()> {
        while !self.control.stopped() {
            match self.next_task()? {
                Some(task) => self.run(dataset, task)?,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// The next task; sleeps until there is one. `None`: stop.
    fn next_task(&mut self) -> Result<Option<Task>> {
        loop {
            if let Some(task) = self.control.take(self.worker) {
                return Ok(Some(task));
            }
            // Said before the last look, so that a task published in between is not slept over.
            self.control.set_idle(self.worker, true);
            let task = self.control.take(self.worker);
            if task.is_none() && !self.control.stopped() {
                let woken = self.parent.recv();
                self.control.set_idle(self.worker, false);
                let Wake = woken?;
                continue;
            }
            self.control.set_idle(self.worker, false);
            return Ok(task);
        }
    }

    fn run<D: Dataset>(&mut self, dataset: &D, task: Task) -> Result<()> {
        set_worker_info(WorkerInfo {
            worker: Some(self.worker),
            num_workers: self.control.dimensions().workers,
            seed: self.seed,
            epoch: task.epoch,
        });
        let indices: Vec<usize> = self.control.task_indices(&task).collect();
        let mut space = TaskSpace { worker: self, task };
        let state = match assemble(dataset, indices.into_iter(), &mut space) {
            Ok(Some((_, slot))) => {
                let (worker, arena) = (self.worker, slot.arena().id);
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
        if self.control.finish(self.worker, task.number, state) {
            self.parent.send(&ToParent::Wake)?;
        }
        Ok(())
    }
}

/// The place for one task's batch.
struct TaskSpace<'a> {
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
        self.worker.control.reading(self.worker.worker, self.task.number, index)
    }
}
