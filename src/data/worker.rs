//! What runs in a loader worker's process: takes tasks from the control page, makes their batches,
//! sleeps on its socket when there is nothing to do.

use std::collections::HashMap;
use std::sync::Arc;

use nix::sys::signal::{SigHandler, Signal, signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::assemble::{Failure, Space, assemble};
use super::control::{Control, Dimensions, SlotPlace, Task, TaskState};
use super::dataset::{Dataset, WorkerInfo, set_worker_info};
use super::layout::SlotMemory;
use crate::error::{Error, Result};
use crate::multiprocessing::{Channel, handles};
use crate::storage::SharedMemory;

/// From the parent to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToWorker {
    /// Look at the control page.
    Wake,
    /// An arena that tasks will name.
    Arena {
        id: u64,
        #[serde(with = "handles::shared_memory")]
        memory: Arc<SharedMemory>,
    },
    /// These arenas will not be named any more.
    Forget { arenas: Vec<u64> },
    /// The answer to [`ToParent::Need`]: a larger slot, or none because the batch is not wanted.
    Grant { task: u64, slot: Option<SlotPlace> },
}

/// From a worker to the parent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToParent {
    /// The task that the parent awaits is finished.
    Wake,
    /// The task's batch needs a slot of this size.
    Need { task: u64, bytes: usize },
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
    parent: Channel<ToParent, ToWorker>,
) -> Result<()> {
    leave_signals_to_parent();
    let WorkerArgs { worker, seed, dimensions, control, dataset } = args;
    let mut state = Worker {
        worker,
        seed,
        control: Control::open(control, dimensions),
        parent,
        arenas: HashMap::new(),
    };
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
    parent: Channel<ToParent, ToWorker>,
    arenas: HashMap<u64, Arc<SharedMemory>>,
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
                let message = self.parent.recv();
                self.control.set_idle(self.worker, false);
                self.handle(message?);
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
        let mut space = TaskSpace { worker: self, task, given: None };
        let state = match assemble(dataset, indices.into_iter(), &mut space) {
            Ok(Some(_)) => TaskState::Done,
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

    fn handle(&mut self, message: ToWorker) {
        match message {
            ToWorker::Arena { id, memory } => drop(self.arenas.insert(id, memory)),
            ToWorker::Forget { arenas } => self.arenas.retain(|id, _| !arenas.contains(id)),
            // A grant can only be late here: its task was given up with an error.
            ToWorker::Wake | ToWorker::Grant { .. } => {}
        }
    }

    /// A slot's bytes. Its arena was announced before the slot was named, so the message is there
    /// or on its way.
    fn map(&mut self, place: SlotPlace) -> Result<SlotMemory> {
        loop {
            if let Some(memory) = self.arenas.get(&place.arena) {
                let end = place.start.checked_add(place.bytes);
                if end.is_none_or(|end| end > memory.len()) {
                    return Err(Error::Other(format!("{place:?} is outside its arena")));
                }
                let ptr = memory.as_ptr().wrapping_add(place.start);
                return Ok(SlotMemory { ptr, len: place.bytes });
            }
            let message = self.parent.recv()?;
            self.handle(message);
        }
    }
}

/// The place for one task's batch.
struct TaskSpace<'a> {
    worker: &'a mut Worker,
    task: Task,
    /// The slot in use.
    given: Option<SlotMemory>,
}

impl Space for TaskSpace<'_> {
    fn reserve(&mut self, bytes: usize, keep: usize) -> Result<Option<SlotMemory>> {
        let published = self.task.slot.filter(|slot| self.given.is_none() && slot.bytes >= bytes);
        let place = match published {
            Some(place) => place,
            None => match self.ask(bytes)? {
                Some(place) => place,
                None => return Ok(None),
            },
        };
        let slot = self.worker.map(place)?;
        if let Some(old) = self.given {
            // SAFETY: `keep` bytes were written to the old slot, which stays ours until the task is
            // finished; the new one is larger, and another one.
            unsafe { slot.ptr.copy_from_nonoverlapping(old.ptr, keep) };
        }
        self.given = Some(slot);
        Ok(Some(slot))
    }

    fn reading(&mut self, index: usize) -> bool {
        self.worker.control.reading(self.worker.worker, self.task.number, index)
    }
}

impl TaskSpace<'_> {
    /// Asks the parent for a slot of at least `bytes`. `None`: the batch is not wanted.
    fn ask(&mut self, bytes: usize) -> Result<Option<SlotPlace>> {
        let number = self.task.number;
        self.worker.parent.send(&ToParent::Need { task: number, bytes })?;
        loop {
            match self.worker.parent.recv()? {
                ToWorker::Grant { task, slot } if task == number => return Ok(slot),
                other => self.worker.handle(other),
            }
        }
    }
}
