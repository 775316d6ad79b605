//! Messages from one rank to another with a tag: a group of these two and a queue of its own, both made at
//! the first message.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::Deadline;
use super::nccl::HostAndGpu;
use super::prepared::Prepared;
use super::queue::Queue;
use crate::error::Result;

/// Messages from one rank to another.
#[derive(Debug)]
pub(super) struct Direction {
    /// Sender and receiver.
    ends: [usize; 2],
    tag: u32,
    /// The order of the messages.
    pub(super) queue: Queue,
    whole: Arc<HostAndGpu>,
    /// From the first message on.
    own: OnceLock<Arc<HostAndGpu>>,
}

impl Direction {
    /// The group of the two; called in the queue's turns only.
    pub(super) fn backend(&self, deadline: &Deadline) -> Result<Arc<HostAndGpu>> {
        if let Some(own) = self.own.get() {
            return Ok(own.clone());
        }
        let made = Arc::new(self.whole.direction(self.ends, self.tag, deadline)?);
        Ok(self.own.get_or_init(|| made).clone())
    }
}

/// The directions of a group that this rank has used.
#[derive(Debug, Default)]
pub(super) struct Directions(Mutex<Vec<Arc<Direction>>>);

impl Directions {
    /// The direction between two ranks of a group, which is made at its first use.
    pub(super) fn get(
        &self,
        whole: &Arc<HostAndGpu>,
        ends: [usize; 2],
        tag: u32,
    ) -> Arc<Direction> {
        let mut all = self.0.lock();
        if let Some(known) = all.iter().find(|one| (one.ends, one.tag) == (ends, tag)) {
            return known.clone();
        }
        let (whole, queue, own) = (whole.clone(), Queue::new(), OnceLock::new());
        let direction = Arc::new(Direction { ends, tag, queue, whole, own });
        all.push(direction.clone());
        direction
    }

    /// Completes what was started, and leaves.
    pub(super) fn close(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        for direction in all {
            direction.queue.close();
            if let Some(own) = direction.own.get() {
                own.leave();
            }
        }
    }
}

/// A checked message.
pub(super) struct Message {
    pub(super) direction: Arc<Direction>,
    pub(super) prepared: Prepared,
}
