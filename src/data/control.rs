//! The page that a loader and its workers share: a ring of tasks (one batch each), who works on
//! what, and who waits. A batch costs no system call as long as nobody has to wait; a waiting side
//! says so in the page and is woken by a message on its socket.
//!
//! Every word is atomic, because another process may write it at any time. Tasks are numbered from
//! 0 on over the loader's life; task n lives in cell n modulo the ring's length.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::error::Result;
use crate::storage::SharedMemory;

/// How far a task is. The parent makes it `Published`; the worker the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum TaskState {
    /// Waits for a worker, or a worker is at it.
    Published = 1,
    /// The batch is in its slot.
    Done = 2,
    /// There is no batch; the worker has sent a message that says why.
    Failed = 3,
    /// Nobody wanted the batch any more.
    Skipped = 4,
}

/// An index that stands for none.
const NONE: u64 = u64::MAX;

#[derive(Debug)]
#[repr(C, align(64))]
struct Header {
    /// How many tasks were ever published. The parent writes it.
    published: AtomicU64,
    /// How many tasks were ever taken. Workers raise it.
    taken: AtomicU64,
    /// The task that the parent sleeps on, or `NONE`.
    awaited: AtomicU64,
    /// 1: workers shall leave.
    stop: AtomicU32,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct WorkerCell {
    /// 1 while the worker sleeps for want of a task.
    idle: AtomicU32,
    /// The task it is at, or `NONE`.
    task: AtomicU64,
    /// The index that it reads, or `NONE`.
    index: AtomicU64,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct TaskCell {
    state: AtomicU32,
    /// 1: the batch is not wanted any more.
    cancelled: AtomicU32,
    /// See [`Task`]. The parent writes these.
    epoch: AtomicU64,
    samples: AtomicU64,
    /// See [`SlotPlace`]. The worker writes these when the batch is done.
    worker: AtomicU64,
    arena: AtomicU64,
    slot: AtomicU64,
}

/// Where a batch is: slot number `slot` of a worker's arena number `arena`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotPlace {
    pub worker: usize,
    pub arena: u64,
    pub slot: usize,
}

/// What a worker has to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task {
    pub number: u64,
    pub epoch: u64,
    /// How many indices the task's cell holds.
    pub samples: usize,
}

/// What a worker is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Activity {
    pub task: Option<u64>,
    pub index: Option<usize>,
}

/// Sizes of the page.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(super) struct Dimensions {
    pub workers: usize,
    /// Cells in the ring: how many tasks can be in flight.
    pub tasks: usize,
    /// Most samples of a task.
    pub batch_size: usize,
}

/// The page, in any of the processes.
#[derive(Debug)]
pub(super) struct Control {
    memory: Arc<SharedMemory>,
    dimensions: Dimensions,
}

impl Control {
    /// A new page.
    pub fn create(dimensions: Dimensions) -> Result<Self> {
        let bytes = Self::task_cells_at(dimensions)
            + dimensions.tasks * (size_of::<TaskCell>() + 8 * dimensions.batch_size);
        let memory = SharedMemory::create("loader-control", bytes)?;
        let control = Control { memory, dimensions };
        control.header().awaited.store(NONE, Relaxed);
        for worker in 0..dimensions.workers {
            let cell = control.worker(worker);
            cell.task.store(NONE, Relaxed);
            cell.index.store(NONE, Relaxed);
        }
        Ok(control)
    }

    /// The page that another process created.
    pub fn open(memory: Arc<SharedMemory>, dimensions: Dimensions) -> Self {
        Control { memory, dimensions }
    }

    /// To be sent to workers.
    pub fn memory(&self) -> &Arc<SharedMemory> {
        &self.memory
    }

    /// The page's sizes.
    pub fn dimensions(&self) -> Dimensions {
        self.dimensions
    }

    // ---- the parent's side

    /// Publishes the next task and returns its number. The ring must have room: the task that was
    /// in the same cell is finished with.
    ///
    /// # Panics
    /// If there are more indices than a cell holds.
    #[track_caller]
    pub fn publish(&self, indices: &[usize], epoch: u64) -> u64 {
        let number = self.header().published.load(Relaxed);
        let cell = self.task(number);
        cell.state.store(TaskState::Published as u32, Relaxed);
        cell.cancelled.store(0, Relaxed);
        cell.epoch.store(epoch, Relaxed);
        cell.samples.store(indices.len() as u64, Relaxed);
        for (word, &index) in self.indices(number)[..indices.len()].iter().zip(indices) {
            word.store(index as u64, Relaxed);
        }
        // Sequentially consistent with `idle`: either the worker that goes to sleep sees the task,
        // or `wake_one` sees that the worker sleeps.
        self.header().published.store(number + 1, SeqCst);
        number
    }

    /// Picks a sleeping worker that is to be sent a wake-up message, if one sleeps.
    pub fn wake_one(&self) -> Option<usize> {
        (0..self.dimensions.workers).find(|&w| {
            let idle = &self.worker(w).idle;
            idle.load(SeqCst) == 1 && idle.swap(0, SeqCst) == 1
        })
    }

    /// How far a task is.
    pub fn state(&self, number: u64) -> TaskState {
        match self.task(number).state.load(Acquire) {
            2 => TaskState::Done,
            3 => TaskState::Failed,
            4 => TaskState::Skipped,
            _ => TaskState::Published,
        }
    }

    /// Where the batch of a task is that is `Done`.
    pub fn place(&self, number: u64) -> SlotPlace {
        let cell = self.task(number);
        SlotPlace {
            worker: cell.worker.load(Relaxed) as usize,
            arena: cell.arena.load(Relaxed),
            slot: cell.slot.load(Relaxed) as usize,
        }
    }

    /// Tells workers that the batch is not wanted any more.
    pub fn cancel(&self, number: u64) {
        self.task(number).cancelled.store(1, Relaxed);
    }

    /// Says that the parent is about to sleep until task `number` is finished, or with `None` that
    /// it is awake. After a `Some` the task's state has to be looked at once more before sleeping.
    pub fn set_awaited(&self, number: Option<u64>) {
        self.header().awaited.store(number.unwrap_or(NONE), SeqCst);
    }

    /// Tells workers to leave.
    pub fn stop(&self) {
        self.header().stop.store(1, SeqCst);
    }

    /// What a worker is doing.
    pub fn activity(&self, worker: usize) -> Activity {
        let cell = self.worker(worker);
        let some = |word: &AtomicU64| Some(word.load(Relaxed)).filter(|&w| w != NONE);
        Activity { task: some(&cell.task), index: some(&cell.index).map(|i| i as usize) }
    }

    // ---- the workers' side

    /// Takes the oldest task that nobody has taken.
    pub fn take(&self, worker: usize) -> Option<Task> {
        let header = self.header();
        let mut number = header.taken.load(Relaxed);
        loop {
            if number >= header.published.load(SeqCst) {
                return None;
            }
            match header.taken.compare_exchange_weak(number, number + 1, SeqCst, Relaxed) {
                Ok(_) => break,
                Err(current) => number = current,
            }
        }
        self.worker(worker).task.store(number, Relaxed);
        let cell = self.task(number);
        let samples = cell.samples.load(Relaxed) as usize;
        Some(Task { number, epoch: cell.epoch.load(Relaxed), samples })
    }

    /// The indices of a task that was taken.
    pub fn task_indices(&self, task: &Task) -> impl ExactSizeIterator<Item = usize> + '_ {
        let words = &self.indices(task.number)[..task.samples.min(self.dimensions.batch_size)];
        words.iter().map(|word| word.load(Relaxed) as usize)
    }

    /// Records which index the worker reads now; false when the task was cancelled or the worker
    /// shall leave.
    pub fn reading(&self, worker: usize, task: u64, index: usize) -> bool {
        self.worker(worker).index.store(index as u64, Relaxed);
        self.task(task).cancelled.load(Relaxed) == 0 && !self.stopped()
    }

    /// Says where a task's batch is, before [`finish`](Self::finish) says that it is done.
    pub fn set_place(&self, task: u64, place: SlotPlace) {
        let cell = self.task(task);
        cell.worker.store(place.worker as u64, Relaxed);
        cell.arena.store(place.arena, Relaxed);
        cell.slot.store(place.slot as u64, Relaxed);
    }

    /// Ends a task. True when the parent sleeps on it and is to be sent a wake-up message.
    pub fn finish(&self, worker: usize, task: u64, state: TaskState) -> bool {
        let cell = self.worker(worker);
        cell.index.store(NONE, Relaxed);
        cell.task.store(NONE, Relaxed);
        // Sequentially consistent with `awaited`, as in `publish`.
        self.task(task).state.store(state as u32, SeqCst);
        let awaited = &self.header().awaited;
        awaited.load(SeqCst) == task
            && awaited.compare_exchange(task, NONE, SeqCst, Relaxed).is_ok()
    }

    /// Says that the worker is about to sleep, or is awake. After going idle, `take` has to be tried
    /// once more before sleeping.
    pub fn set_idle(&self, worker: usize, idle: bool) {
        self.worker(worker).idle.store(u32::from(idle), SeqCst);
    }

    /// Whether workers shall leave.
    pub fn stopped(&self) -> bool {
        self.header().stop.load(Relaxed) == 1
    }

    // ---- places

    fn task_cells_at(dimensions: Dimensions) -> usize {
        size_of::<Header>() + dimensions.workers * size_of::<WorkerCell>()
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is page-aligned and at least as long as `create` computed, it lives
        // as long as `self`, all zeros and all other bytes are valid atomics.
        unsafe { &*self.memory.as_ptr().cast::<Header>() }
    }

    fn worker(&self, worker: usize) -> &WorkerCell {
        assert!(worker < self.dimensions.workers, "worker {worker} of {:?}", self.dimensions);
        let at = size_of::<Header>() + worker * size_of::<WorkerCell>();
        // SAFETY: inside the mapping by the assertion and `create`; else as for the header.
        unsafe { &*self.memory.as_ptr().add(at).cast::<WorkerCell>() }
    }

    fn task(&self, number: u64) -> &TaskCell {
        let cell = (number % self.dimensions.tasks as u64) as usize;
        let at = Self::task_cells_at(self.dimensions) + cell * size_of::<TaskCell>();
        // SAFETY: inside the mapping by the modulo and `create`; else as for the header.
        unsafe { &*self.memory.as_ptr().add(at).cast::<TaskCell>() }
    }

    fn indices(&self, number: u64) -> &[AtomicU64] {
        let Dimensions { tasks, batch_size, .. } = self.dimensions;
        let cell = (number % tasks as u64) as usize;
        let at = Self::task_cells_at(self.dimensions)
            + tasks * size_of::<TaskCell>()
            + cell * batch_size * size_of::<AtomicU64>();
        // SAFETY: `batch_size` words inside the mapping by the modulo and `create`, aligned because
        // everything before them is a multiple of 8 bytes; else as for the header.
        unsafe {
            std::slice::from_raw_parts(self.memory.as_ptr().add(at).cast::<AtomicU64>(), batch_size)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(workers: usize, tasks: usize) -> Control {
        Control::create(Dimensions { workers, tasks, batch_size: 3 }).unwrap()
    }

    #[test]
    fn a_task_goes_round() {
        let parent = control(2, 2);
        let worker = Control::open(parent.memory().clone(), parent.dimensions());
        assert!(worker.take(1).is_none());
        for round in 0..5 {
            let place = SlotPlace { worker: 1, arena: 4, slot: round };
            assert_eq!(parent.publish(&[7, round], 9), round as u64);
            let task = worker.take(1).unwrap();
            assert_eq!((task.number, task.epoch), (round as u64, 9));
            assert_eq!(worker.task_indices(&task).collect::<Vec<_>>(), [7, round]);
            assert!(worker.reading(1, task.number, 7));
            let activity = Activity { task: Some(round as u64), index: Some(7) };
            assert_eq!(parent.activity(1), activity);
            assert_eq!(parent.state(task.number), TaskState::Published);
            worker.set_place(task.number, place);
            assert!(!worker.finish(1, task.number, TaskState::Done), "nobody waits");
            assert_eq!(parent.place(task.number), place);
            assert_eq!(parent.state(task.number), TaskState::Done);
            assert_eq!(parent.activity(1), Activity { task: None, index: None });
        }
    }

    #[test]
    fn sleepers_are_woken_once() {
        let control = control(2, 2);
        let task = control.publish(&[0], 0);
        assert_eq!(control.wake_one(), None);
        control.set_idle(1, true);
        assert_eq!(control.wake_one(), Some(1));
        assert_eq!(control.wake_one(), None);
        control.set_awaited(Some(task));
        assert!(control.finish(0, task, TaskState::Skipped));
        assert!(!control.finish(0, task, TaskState::Skipped));
    }

    #[test]
    fn cancelling_and_stopping_reach_the_reader() {
        let control = control(1, 2);
        let (a, b) = (control.publish(&[0], 0), control.publish(&[1], 0));
        control.cancel(a);
        assert!(!control.reading(0, a, 0) && control.reading(0, b, 1));
        control.stop();
        assert!(!control.reading(0, b, 1));
    }

    #[test]
    fn every_task_is_taken_by_one_worker() {
        let control = control(4, 64);
        for _ in 0..64 {
            control.publish(&[1], 0);
        }
        let taken = parking_lot::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (control, taken) = (&control, &taken);
                scope.spawn(move || {
                    while let Some(task) = control.take(worker) {
                        taken.lock().push(task.number);
                    }
                });
            }
        });
        let mut taken = taken.into_inner();
        taken.sort_unstable();
        assert_eq!(taken, (0..64).collect::<Vec<_>>());
    }
}
