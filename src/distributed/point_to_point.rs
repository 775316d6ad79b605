//! From one rank to another. Each direction, from a sender to a receiver with a tag, is a group of these
//! two, which they found at the first message: so the two compare what they are about to do, see each
//! other's death, and have deadlines as in any collective. Directions do not wait for each other, but a
//! failure of one, or of the group, ends all of them and the group.

use super::collective::Kind;
use super::direction::Message;
use super::origin::Origin;
use super::prepared::{Output, Prepared, message};
use super::{ProcessGroup, Work};
use crate::cuda::{Stream, graph};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

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
    pub fn isend(tensor: &Tensor, peer: usize, tag: u32) -> P2POp {
        P2POp { sends: true, tensor: tensor.clone(), peer, tag }
    }

    /// Writes what rank `peer` of the group sends to a tensor.
    pub fn irecv(tensor: &Tensor, peer: usize, tag: u32) -> P2POp {
        P2POp { sends: false, tensor: tensor.clone(), peer, tag }
    }
}

impl ProcessGroup {
    /// Sends a tensor to rank `dst` of the group, which calls [`recv`](Self::recv) with a tensor of the
    /// same dtype and shape (`torch.distributed.send`). Returns when that has it, or, for a tensor on
    /// a GPU, when both ranks have made the call. Messages from one rank to another with one tag
    /// arrive in their order, and wait for no others. Each tag has a thread of its own and, on GPUs, a
    /// communicator: a program has few. A message cannot be captured in a graph.
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
    /// [`Error::PeerDied`], [`Error::Aborted`] or [`Error::Timeout`], which end the group.
    #[track_caller]
    pub fn send(&self, tensor: &Tensor, dst: usize, tag: u32) -> Result<()> {
        self.run_message("send", &self.outgoing("send", tensor, dst, tag)?)
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
    #[track_caller]
    pub fn recv(&self, tensor: &Tensor, src: usize, tag: u32) -> Result<()> {
        let message = self.incoming("recv", tensor, src, tag)?;
        self.run_message("recv", &message)?;
        message.prepared.finish();
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
    #[track_caller]
    pub fn isend(&self, tensor: &Tensor, dst: usize, tag: u32) -> Result<Work> {
        self.start_message("isend", self.outgoing("isend", tensor, dst, tag)?)
    }

    /// [`recv`](Self::recv) in the background (`torch.distributed.irecv`).
    ///
    /// # Errors
    /// As [`recv`](Self::recv); those that concern the other rank come from the [`Work`].
    #[track_caller]
    pub fn irecv(&self, tensor: &Tensor, src: usize, tag: u32) -> Result<Work> {
        self.start_message("irecv", self.incoming("irecv", tensor, src, tag)?)
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
    #[track_caller]
    pub fn batch_isend_irecv(&self, ops: &[P2POp]) -> Result<Vec<Work>> {
        const CALL: &str = "batch_isend_irecv";
        let check = |op: &P2POp| match op.sends {
            true => Ok(("isend", self.outgoing(CALL, &op.tensor, op.peer, op.tag)?)),
            false => Ok(("irecv", self.incoming(CALL, &op.tensor, op.peer, op.tag)?)),
        };
        let messages = ops.iter().map(check);
        let messages = Origin::here().over(|| messages.collect::<Result<Vec<_>>>())?;
        messages.into_iter().map(|(name, message)| self.start_message(name, message)).collect()
    }

    #[track_caller]
    fn outgoing(&self, call: &str, tensor: &Tensor, dst: usize, tag: u32) -> Result<Message> {
        let ends = self.ends(call, "dst", dst, true)?;
        self.message(call, ends, tag, tensor, || Ok((Some(message(tensor)), None)))
    }

    #[track_caller]
    fn incoming(&self, call: &str, tensor: &Tensor, src: usize, tag: u32) -> Result<Message> {
        let ends = self.ends(call, "src", src, false)?;
        let output = || Ok((None, Some(Output::new(call, "tensor", tensor)?)));
        self.message(call, ends, tag, tensor, output)
    }

    /// A message that may be started. A graph would start it without anybody who looks after it.
    #[track_caller]
    fn message(
        &self,
        call: &str,
        ends: [usize; 2],
        tag: u32,
        tensor: &Tensor,
        memory: impl FnOnce() -> Result<(Option<Tensor>, Option<Output>)>,
    ) -> Result<Message> {
        if let Some(gpu) = tensor.device().gpu() {
            let advice = "send and receive before or after the replay";
            graph::refuse(Stream::current(gpu)?, format_args!("{call}: a message"), advice)?;
        }
        let (input, output) = memory()?;
        let prepared = Prepared::new(Kind::Send, None, None, tensor, input, output);
        Ok(Message { direction: self.direction(call, ends, tag)?, prepared })
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
