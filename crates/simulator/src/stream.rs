//! Streams: queues of work, each performed in its own order. One lock guards all queues of a process;
//! pieces of work are large beside it.

use crate::code::{Code, Result};
use crate::context;
use crate::event::Mark;
use crate::executor;
use crate::graph::capture::Capturing;
use crate::registry::{Handle, Registry};
use crate::work::Work;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// All streams that live, but for the devices' default ones.
pub static STREAMS: Registry<Stream> = Registry::new();

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// Its number among the queues.
    pub id: usize,
    /// The device of its context.
    pub device: usize,
    /// What it takes part in, if it is under capture.
    pub capture: Mutex<Option<Capturing>>,
}

/// The queue of a stream.
#[derive(Debug)]
pub struct Queue {
    /// The device whose executors perform it.
    pub device: usize,
    /// Work that has not begun, each piece with its place among all work of the process.
    pub pending: VecDeque<(u64, Work)>,
    /// Whether an executor performs a piece of it now.
    pub running: bool,
    /// Pieces that were put in.
    pub submitted: u64,
    /// Pieces that are done.
    pub finished: u64,
    /// The adversary lets its next piece begin no sooner.
    pub held_until: Option<Instant>,
    /// Whether the adversary has looked at its next piece.
    pub considered: bool,
    /// Whether its stream was destroyed; it goes when its work is done.
    destroyed: bool,
}

impl Queue {
    fn new(device: usize) -> Queue {
        Queue {
            device,
            pending: VecDeque::new(),
            running: false,
            submitted: 0,
            finished: 0,
            held_until: None,
            considered: false,
            destroyed: false,
        }
    }

    /// Whether all its work is done.
    pub fn is_idle(&self) -> bool {
        self.finished == self.submitted
    }
}

/// All queues of the process.
#[derive(Debug, Default)]
pub struct Queues {
    /// By the streams' numbers.
    pub queues: BTreeMap<usize, Queue>,
    /// Pieces of work of the whole process.
    sequence: u64,
}

static QUEUES: Mutex<Queues> = Mutex::new(Queues { queues: BTreeMap::new(), sequence: 0 });
/// Told whenever work is done.
static DONE: Condvar = Condvar::new();
/// The default stream of each device; zero is no stream's handle.
static DEFAULTS: Mutex<BTreeMap<usize, Arc<Stream>>> = Mutex::new(BTreeMap::new());

/// How long the host sleeps between two looks at what another process may have done.
pub const POLL: Duration = Duration::from_micros(100);

/// The queues, locked.
pub fn queues() -> MutexGuard<'static, Queues> {
    QUEUES.lock()
}

/// Makes a stream.
pub fn create(device: usize) -> Handle {
    STREAMS.insert_with(|id| {
        queues().queues.insert(id, Queue::new(device));
        Stream { id, device, capture: Mutex::new(None) }
    })
}

/// The stream behind a handle; 0, 1 and 2 are the current device's default one.
pub fn get(handle: Handle) -> Result<Arc<Stream>> {
    if handle as usize > 2 {
        return STREAMS.get(handle);
    }
    let device = context::current()?;
    let mut defaults = DEFAULTS.lock();
    let stream = defaults.entry(device).or_insert_with(|| {
        // Handles of streams are far above these numbers.
        let id = device + 16;
        queues().queues.insert(id, Queue::new(device));
        Arc::new(Stream { id, device, capture: Mutex::new(None) })
    });
    Ok(stream.clone())
}

/// Destroys a stream; work that is in it is still done.
pub fn destroy(handle: Handle) -> Result {
    let stream = STREAMS.remove(handle)?;
    let mut queues = queues();
    if let Some(queue) = queues.queues.get_mut(&stream.id) {
        queue.destroyed = true;
        let idle = queue.is_idle();
        if idle {
            queues.queues.remove(&stream.id);
        }
    }
    Ok(())
}

impl Stream {
    /// Puts a piece of work at the end.
    pub fn submit(&self, work: Work) -> Result {
        context::of(self.device).check()?;
        let mut all = queues();
        all.sequence += 1;
        let sequence = all.sequence;
        let queue = all.queues.get_mut(&self.id).ok_or(Code::INVALID_HANDLE)?;
        queue.pending.push_back((sequence, work));
        queue.submitted += 1;
        drop(all);
        executor::wake(self.device);
        Ok(())
    }

    /// Whether all its work is done.
    pub fn is_idle(&self) -> bool {
        queues().queues.get(&self.id).is_none_or(Queue::is_idle)
    }

    /// Waits for the work that is in it now.
    pub fn synchronize(&self) -> Result {
        let mut all = queues();
        let target = all.queues.get(&self.id).map_or(0, |queue| queue.submitted);
        loop {
            context::of(self.device).check()?;
            match all.queues.get(&self.id) {
                Some(queue) if queue.finished < target => DONE.wait(&mut all),
                _ => return Ok(()),
            }
        }
    }
}

/// Waits for all work of a device that is in its streams now.
pub fn synchronize_device(device: usize) -> Result {
    let mut all = queues();
    let mine = all.queues.iter().filter(|(_, queue)| queue.device == device);
    let targets: Vec<(usize, u64)> = mine.map(|(id, queue)| (*id, queue.submitted)).collect();
    for (id, target) in targets {
        while all.queues.get(&id).is_some_and(|queue| queue.finished < target) {
            context::of(device).check()?;
            DONE.wait(&mut all);
        }
    }
    context::of(device).check()
}

/// Waits until an event's record is done, or until the context of `device` is broken.
pub fn wait_for(mark: &Mark, device: usize) -> Result {
    let mut all = queues();
    while !mark.is_done() {
        context::of(device).check()?;
        if mark.is_lost() {
            return Err(Code::INVALID_HANDLE);
        }
        match mark.is_shared() {
            true => _ = DONE.wait_for(&mut all, POLL),
            false => DONE.wait(&mut all),
        }
    }
    context::of(device).check()
}

/// Waits for a record of this process unless `stop` says not to, or the context is broken; whether it is
/// done.
pub fn wait_unless(mark: &Mark, device: usize, stop: impl Fn() -> bool) -> bool {
    let mut all = queues();
    while !mark.is_done() {
        if stop() || context::of(device).check().is_err() {
            return false;
        }
        DONE.wait_for(&mut all, Duration::from_millis(5));
    }
    context::of(device).check().is_ok()
}

/// Has those who wait look again.
pub fn wake() {
    let _all = queues();
    DONE.notify_all();
}

/// Says that a piece of a stream's work is done. The lock is held.
pub fn finish(all: &mut Queues, id: usize) {
    if let Some(queue) = all.queues.get_mut(&id) {
        queue.finished += 1;
        queue.considered = false;
        queue.held_until = None;
        if queue.destroyed && queue.is_idle() {
            all.queues.remove(&id);
        }
    }
    DONE.notify_all();
}

/// Destroys the streams of a device, when its context ends.
pub fn destroy_all(device: usize) {
    STREAMS.remove_where(|stream| stream.device == device);
    DEFAULTS.lock().remove(&device);
    let mut all = queues();
    for queue in all.queues.values_mut().filter(|queue| queue.device == device) {
        queue.destroyed = true;
    }
    all.queues.retain(|_, queue| !(queue.destroyed && queue.is_idle()));
}
