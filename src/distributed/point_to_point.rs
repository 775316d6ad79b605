//! From one rank to another. Each direction, from a sender to a receiver with a tag, is a group of these
//! two, which they found at the first message: so the two compare what they are about to do, see each
//! other's death, and have deadlines as in any collective. Directions do not wait for each other.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::backend::Backend;
use super::collective::Kind;
use super::queue::Queue;
use super::tensor_collectives::{Output, Prepared, input};
use super::{Deadline, ProcessGroup, Work};
use crate::error::{Error, Result};
use crate::{Device, Tensor};

/// Messages from one rank to another.
#[derive(Debug)]
pub(super) struct Direction {
    ends: [usize; 2],
    tag: u32,
    /// The order of the messages.
    pub(super) queue: Queue,
    /// From the first message on.
    backend: OnceLock<Arc<dyn Backend>>,
}

impl Direction {
    /// The group of the two; called in the queue's turns only.
    pub(super) fn backend(
        &self,
        whole: &Arc<dyn Backend>,
        deadline: &Deadline,
    ) -> Result<&Arc<dyn Backend>> {
        if let Some(backend) = self.backend.get() {
            return Ok(backend);
        }
        let made = self.told(whole, whole.direction(self.ends, self.tag, deadline))?;
        Ok(self.backend.get_or_init(|| made))
    }

    /// A failure is the whole group's.
    pub(super) fn told<T>(&self, whole: &Arc<dyn Backend>, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| whole.abort(&error.to_string()))
    }
}

/// Sender and receiver, and the tag.
type Key = ([usize; 2], u32);

/// The directions that this rank has used.
#[derive(Debug, Default)]
pub(super) struct Directions(Mutex<HashMap<Key, Arc<Direction>>>);

impl Directions {
    /// The direction between two ranks of the group, which is made at its first use.
    pub(super) fn get(&self, ends: [usize; 2], tag: u32) -> Arc<Direction> {
        let new = || Direction { ends, tag, queue: Queue::new(), backend: OnceLock::new() };
        self.0.lock().entry((ends, tag)).or_insert_with(|| Arc::new(new())).clone()
    }

    /// Makes all calls fail, waiting or later.
    pub(super) fn abort(&self, reason: &str) {
        let all = self.0.lock();
        all.values().filter_map(|one| one.backend.get()).for_each(|backend| backend.abort(reason));
    }

    /// Completes what was started, and leaves.
    pub(super) fn close(&self) {
        let all: Vec<_> = self.0.lock().drain().map(|(_, direction)| direction).collect();
        for direction in all {
            direction.queue.close();
            if let Some(backend) = direction.backend.get() {
                backend.leave();
            }
        }
    }
}

/// One of the messages of [`ProcessGroup::batch_isend_irecv`] (`torch.distributed.P2POp`).
///
/// ```
/// use torchrs::{Tensor, distributed::P2POp};
/// let op = P2POp::isend(&Tensor::from([1f32]), 1, 0);
/// assert!(format!("{op:?}").starts_with("P2POp"));
/// ```
#[derive(Debug, Clone)]
pub struct P2POp {
    sends: bool,
    tensor: Tensor,
    peer: usize,
    tag: u32,
}

impl P2POp {
    /// Sends a tensor to rank `peer` of the group.
    ///
    /// ```
    /// use torchrs::{Tensor, distributed::P2POp};
    /// let op = P2POp::isend(&Tensor::from([1f32]), 1, 0);
    /// ```
    pub fn isend(tensor: &Tensor, peer: usize, tag: u32) -> P2POp {
        P2POp { sends: true, tensor: tensor.clone(), peer, tag }
    }

    /// Writes what rank `peer` of the group sends to a tensor.
    ///
    /// ```
    /// use torchrs::{Tensor, distributed::P2POp};
    /// let op = P2POp::irecv(&Tensor::from([0f32]), 1, 0);
    /// ```
    pub fn irecv(tensor: &Tensor, peer: usize, tag: u32) -> P2POp {
        P2POp { sends: false, tensor: tensor.clone(), peer, tag }
    }
}

/// A checked message: its ends, its tag, and what moves.
type Message = ([usize; 2], u32, Prepared);

impl ProcessGroup {
    /// Sends a tensor to rank `dst` of the group, which calls [`recv`](Self::recv) with a tensor of the
    /// same dtype and shape (`torch.distributed.send`). Returns when that has it, or, for a tensor on
    /// a GPU, when both ranks have made the call. Messages from one rank to another with one tag
    /// arrive in their order; as in PyTorch with NCCL, tags mean nothing for tensors on GPUs.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Dtype, Tensor};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// if group.rank() == 0 {
    ///     group.send(&Tensor::from([5f32]), 1, 0)?;
    /// } else {
    ///     let x = Tensor::zeros([1], Dtype::F32);
    ///     group.recv(&x, 0, 0)?;
    ///     assert_eq!(x.item(), 5.0);
    /// }
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a rank that is not another one of the group; [`Error::Mismatch`] on both
    /// ranks when their tensors differ in dtype, shape or kind of device; as for a collective
    /// [`Error::PeerDied`], [`Error::Aborted`] or [`Error::Timeout`]. All but the first end the group.
    pub fn send(&self, tensor: &Tensor, dst: usize, tag: u32) -> Result<()> {
        let (ends, tag, message) = self.outgoing("send", tensor, dst, tag)?;
        self.run_between("send", ends, tag, &message.collective)
    }

    /// Writes what rank `src` of the group sends to `tensor` (`torch.distributed.recv`); see
    /// [`send`](Self::send).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Dtype, Tensor};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let x = Tensor::full([2], group.rank() as f64 + 1.0, Dtype::F32);
    /// match group.rank() {
    ///     0 => group.recv(&x, 1, 0)?,
    ///     _ => group.send(&x, 0, 0)?,
    /// }
    /// assert_eq!(x.to_vec::<f32>(), [2.0, 2.0]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`send`](Self::send); [`Error::Argument`] for an expanded view.
    pub fn recv(&self, tensor: &Tensor, src: usize, tag: u32) -> Result<()> {
        let (ends, tag, message) = self.incoming("recv", tensor, src, tag)?;
        self.run_between("recv", ends, tag, &message.collective)?;
        message.finish();
        Ok(())
    }

    /// [`send`](Self::send) in the background (`torch.distributed.isend`).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Dtype, Tensor};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let (mine, theirs) = (Tensor::full([1], group.rank() as f64, Dtype::F32), Tensor::zeros([1], Dtype::F32));
    /// let peer = 1 - group.rank();
    /// let sent = group.isend(&mine, peer, 0)?;
    /// group.irecv(&theirs, peer, 0)?.wait()?;
    /// sent.wait()?;
    /// assert_eq!(theirs.item(), peer as f64);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`send`](Self::send); those that concern the other rank come from the [`Work`].
    pub fn isend(&self, tensor: &Tensor, dst: usize, tag: u32) -> Result<Work> {
        let (ends, tag, message) = self.outgoing("isend", tensor, dst, tag)?;
        let collective = message.collective.clone();
        self.start_between("isend", ends, tag, collective, move || message.finish_in_background())
    }

    /// [`recv`](Self::recv) in the background (`torch.distributed.irecv`).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Dtype, Tensor};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let x = Tensor::full([2], group.rank() as f64 + 1.0, Dtype::F32);
    /// let work = match group.rank() {
    ///     0 => group.irecv(&x, 1, 0)?,
    ///     _ => group.isend(&x, 0, 0)?,
    /// };
    /// work.wait()?;
    /// assert_eq!(x.to_vec::<f32>(), [2.0, 2.0]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Self::recv); those that concern the other rank come from the [`Work`].
    pub fn irecv(&self, tensor: &Tensor, src: usize, tag: u32) -> Result<Work> {
        let (ends, tag, message) = self.incoming("irecv", tensor, src, tag)?;
        let collective = message.collective.clone();
        self.start_between("irecv", ends, tag, collective, move || message.finish_in_background())
    }

    /// Starts all messages of a list, in whatever order the peers have theirs
    /// (`torch.distributed.batch_isend_irecv`); a [`Work`] for each.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Dtype, Tensor, distributed::P2POp};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let (rank, world) = (group.rank(), group.world_size());
    /// let (mine, theirs) = (Tensor::full([1], rank as f64, Dtype::F32), Tensor::zeros([1], Dtype::F32));
    /// let (next, before) = ((rank + 1) % world, (rank + world - 1) % world);
    /// let ring = [P2POp::isend(&mine, next, 0), P2POp::irecv(&theirs, before, 0)];
    /// for work in group.batch_isend_irecv(&ring)? {
    ///     work.wait()?;
    /// }
    /// assert_eq!(theirs.item(), before as f64);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`isend`](Self::isend) and [`irecv`](Self::irecv); nothing is started where an argument is
    /// wrong.
    pub fn batch_isend_irecv(&self, ops: &[P2POp]) -> Result<Vec<Work>> {
        for op in ops {
            self.ends("batch_isend_irecv", "peer", op.peer, op.sends)?;
        }
        let start = |op: &P2POp| match op.sends {
            true => self.isend(&op.tensor, op.peer, op.tag),
            false => self.irecv(&op.tensor, op.peer, op.tag),
        };
        ops.iter().map(start).collect()
    }

    fn outgoing(&self, call: &str, tensor: &Tensor, dst: usize, tag: u32) -> Result<Message> {
        let ends = self.ends(call, "dst", dst, true)?;
        let message = Prepared::new(Kind::Send, None, Some(0), tensor, Some(input(tensor)), None);
        Ok((ends, tag_of(tensor, tag), message))
    }

    fn incoming(&self, call: &str, tensor: &Tensor, src: usize, tag: u32) -> Result<Message> {
        let ends = self.ends(call, "src", src, false)?;
        let output = Some(Output::new(call, "tensor", tensor)?);
        let message = Prepared::new(Kind::Send, None, Some(0), tensor, None, output);
        Ok((ends, tag_of(tensor, tag), message))
    }

    /// Sender and receiver.
    fn ends(&self, call: &str, argument: &str, peer: usize, sends: bool) -> Result<[usize; 2]> {
        self.check_member(call)?;
        let (rank, world) = (self.rank(), self.world_size());
        let wrong = match peer {
            _ if peer >= world => format!("is {peer}, but the group has {world} ranks"),
            _ if peer == rank => format!("is {peer}, this rank itself"),
            _ if sends => return Ok([rank, peer]),
            _ => return Ok([peer, rank]),
        };
        Err(Error::argument(call, argument, wrong))
    }
}

/// The tag that tells directions apart.
fn tag_of(tensor: &Tensor, tag: u32) -> u32 {
    if tensor.device() == Device::Cpu { tag } else { 0 }
}
