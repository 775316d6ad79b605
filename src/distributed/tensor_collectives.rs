//! The collectives on tensors: arguments are checked before anything is sent, tensors that are not
//! contiguous pass through a contiguous copy, and results are written in place without history.
//!
//! Tensors on a GPU go through NCCL, on the one stream there that all groups share: it waits for what the
//! caller's current stream has so far, and what the caller puts there later waits for it. The host goes on as soon
//! as all ranks have made the same call.

use super::collective::{Kind, ReduceOp};
use super::prepared::{Output, Prepared, check_history, input, message};
use super::{ProcessGroup, Work};
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::profiler::BUCKET;
use crate::tensor::Tensor;

impl ProcessGroup {
    /// Combines `tensor` over all ranks, in place (`torch.distributed.all_reduce`). The result is
    /// bitwise the same on all ranks.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Tensor, distributed::ReduceOp};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// // Rank 0 has 1, rank 1 has 2.
    /// let x = Tensor::from([group.rank() as f32 + 1.0]);
    /// group.all_reduce(&x, ReduceOp::Sum)?;
    /// assert_eq!(x.item(), 3.0);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Dtype`] when `op` is not defined for the dtype, [`Error::Argument`] on a rank that
    /// is not a member, for an expanded view, or for a tensor that requires a gradient while gradients are
    /// recorded (see [`functional`](super::functional)): before anything is sent. Then [`Error::Mismatch`]
    /// when the ranks disagree, [`Error::PeerDied`], [`Error::Aborted`] or [`Error::Timeout`] when
    /// not all take part.
    #[track_caller]
    pub fn all_reduce(&self, tensor: &Tensor, op: ReduceOp) -> Result<()> {
        self.call(self.prepare_all_reduce(tensor, op)?)
    }

    /// [`all_reduce`](Self::all_reduce) in the background.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Tensor, distributed::ReduceOp};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let x = Tensor::from([group.rank() as f32 + 1.0]);
    /// let work = group.all_reduce_async(&x, ReduceOp::Max)?;
    /// work.wait()?;
    /// assert_eq!(x.item(), 2.0);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); those that concern other ranks come from the [`Work`].
    #[track_caller]
    pub fn all_reduce_async(&self, tensor: &Tensor, op: ReduceOp) -> Result<Work> {
        self.background(self.prepare_all_reduce(tensor, op)?)
    }

    /// [`all_reduce`](Self::all_reduce) with a name of its own in profiles.
    #[track_caller]
    pub(crate) fn all_reduce_bucket(&self, bucket: &Tensor, op: ReduceOp) -> Result<()> {
        let prepared = self.prepare_all_reduce(bucket, op)?;
        self.run(BUCKET, &prepared.collective)?;
        prepared.finish();
        Ok(())
    }

    /// [`all_reduce_async`](Self::all_reduce_async) with a name of its own in profiles.
    #[track_caller]
    pub(crate) fn all_reduce_bucket_async(&self, bucket: &Tensor, op: ReduceOp) -> Result<Work> {
        let prepared = self.prepare_all_reduce(bucket, op)?;
        self.start_prepared(BUCKET, prepared)
    }

    #[track_caller]
    fn prepare_all_reduce(&self, tensor: &Tensor, op: ReduceOp) -> Result<Prepared> {
        self.check_member("all_reduce")?;
        op.check("all_reduce", tensor.dtype())?;
        let output = Output::in_place("all_reduce", "tensor", tensor)?;
        Ok(Prepared::new(Kind::AllReduce, Some(op), None, tensor, None, Some(output)))
    }

    /// Gives every rank the `tensor` of rank `root` of the group (`torch.distributed.broadcast`).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::Tensor;
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// // Rank 0 has 1, rank 1 has 2.
    /// let x = Tensor::from([group.rank() as f32 + 1.0]);
    /// group.broadcast(&x, 1)?;
    /// assert_eq!(x.item(), 2.0);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no such root; otherwise as
    /// [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<()> {
        self.call(self.prepare_broadcast(tensor, root)?)
    }

    /// [`broadcast`](Self::broadcast) in the background.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn broadcast_async(&self, tensor: &Tensor, root: usize) -> Result<Work> {
        self.background(self.prepare_broadcast(tensor, root)?)
    }

    #[track_caller]
    fn prepare_broadcast(&self, tensor: &Tensor, root: usize) -> Result<Prepared> {
        let is_root = self.check_root("broadcast", root)?;
        let (input, output) = match is_root {
            true => (Some(input("broadcast", "tensor", tensor)?), None),
            false => (None, Some(Output::new("broadcast", "tensor", tensor)?)),
        };
        Ok(Prepared::new(Kind::Broadcast, None, Some(root), tensor, input, output))
    }

    /// Combines `tensor` over all ranks into that of rank `root`; the others keep theirs
    /// (`torch.distributed.reduce`).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Tensor, distributed::ReduceOp};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// // Rank 0 has 1, rank 1 has 2.
    /// let x = Tensor::from([group.rank() as f32 + 1.0]);
    /// group.reduce(&x, 0, ReduceOp::Sum)?;
    /// assert_eq!(x.item(), [3.0, 2.0][group.rank()]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce) and [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn reduce(&self, tensor: &Tensor, root: usize, op: ReduceOp) -> Result<()> {
        self.call(self.prepare_reduce(tensor, root, op)?)
    }

    /// [`reduce`](Self::reduce) in the background.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    #[track_caller]
    pub fn reduce_async(&self, tensor: &Tensor, root: usize, op: ReduceOp) -> Result<Work> {
        self.background(self.prepare_reduce(tensor, root, op)?)
    }

    #[track_caller]
    fn prepare_reduce(&self, tensor: &Tensor, root: usize, op: ReduceOp) -> Result<Prepared> {
        let is_root = self.check_root("reduce", root)?;
        op.check("reduce", tensor.dtype())?;
        let output = if is_root { Some(Output::new("reduce", "tensor", tensor)?) } else { None };
        let input = Some(input("reduce", "tensor", tensor)?);
        Ok(Prepared::new(Kind::Reduce, Some(op), Some(root), tensor, input, output))
    }

    /// The `tensor`s of all ranks, by rank (`torch.distributed.all_gather`).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::Tensor;
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// // Rank 0 has 1, rank 1 has 2.
    /// let x = Tensor::from([group.rank() as f32 + 1.0]);
    /// let all = group.all_gather(&x)?;
    /// assert_eq!((all[0].item(), all[1].item()), (1.0, 2.0));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn all_gather(&self, tensor: &Tensor) -> Result<Vec<Tensor>> {
        check_history("all_gather", "tensor", tensor)?;
        let (flat, parts) = self.room_for_all(tensor);
        self.all_gather_into_tensor(&flat, tensor)?;
        Ok(parts)
    }

    /// Writes the `tensor`s of all ranks, one behind the other, to `output`
    /// (`torch.distributed.all_gather_into_tensor`). `output` has world size times as many
    /// elements; `tensor` may be this rank's part of it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Dtype, Tensor};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let x = Tensor::from([group.rank() as f32 + 1.0]);
    /// let all = Tensor::zeros([2], Dtype::F32);
    /// group.all_gather_into_tensor(&all, &x)?;
    /// assert_eq!(all.to_vec::<f32>(), [1.0, 2.0]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when `output` has another number of elements, [`Error::Dtype`] when it
    /// has another dtype; otherwise as [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn all_gather_into_tensor(&self, output: &Tensor, tensor: &Tensor) -> Result<()> {
        self.call(self.prepare_all_gather(output, tensor)?)
    }

    /// [`all_gather_into_tensor`](Self::all_gather_into_tensor) in the background.
    ///
    /// # Errors
    /// As [`all_gather_into_tensor`](Self::all_gather_into_tensor).
    #[track_caller]
    pub fn all_gather_into_tensor_async(&self, output: &Tensor, tensor: &Tensor) -> Result<Work> {
        self.background(self.prepare_all_gather(output, tensor)?)
    }

    #[track_caller]
    fn prepare_all_gather(&self, output: &Tensor, tensor: &Tensor) -> Result<Prepared> {
        const CALL: &str = "all_gather_into_tensor";
        self.check_member(CALL)?;
        alike(CALL, output, tensor)?;
        if output.numel() != tensor.numel() * self.world_size() {
            return Err(self.uneven(CALL, "output", output, "tensor", tensor));
        }
        let output = Output::new(CALL, "output", output)?;
        let input = Some(input(CALL, "tensor", tensor)?);
        Ok(Prepared::new(Kind::AllGather, None, None, tensor, input, Some(output)))
    }

    /// Combines `inputs[r]` of all ranks on rank `r`, whose `output` it becomes
    /// (`torch.distributed.reduce_scatter`).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Dtype, Tensor, distributed::ReduceOp};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// // Both ranks give 1 for rank 0 and 5 for rank 1.
    /// let (mine, inputs) = (Tensor::zeros([1], Dtype::F32), [Tensor::from([1f32]), Tensor::from([5f32])]);
    /// group.reduce_scatter(&mine, &inputs, ReduceOp::Sum)?;
    /// assert_eq!(mine.item(), [2.0, 10.0][group.rank()]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one input per rank, each of the output's shape and
    /// dtype; otherwise as [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn reduce_scatter(&self, output: &Tensor, inputs: &[Tensor], op: ReduceOp) -> Result<()> {
        self.check_member("reduce_scatter")?;
        let flat = self.concatenate("reduce_scatter", output, inputs)?;
        self.reduce_scatter_tensor(output, &flat, op)
    }

    /// Combines part `r` of the `input`s of all ranks on rank `r`, whose `output` it becomes
    /// (`torch.distributed.reduce_scatter_tensor`). `input` has world size times as many elements;
    /// `output` may be this rank's part of it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Dtype, Tensor, distributed::ReduceOp};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let (mine, x) = (Tensor::zeros([1], Dtype::F32), Tensor::from([1.0f32, 5.0]));
    /// group.reduce_scatter_tensor(&mine, &x, ReduceOp::Sum)?;
    /// assert_eq!(mine.item(), [2.0, 10.0][group.rank()]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when `input` has another number of elements; otherwise as
    /// [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn reduce_scatter_tensor(
        &self,
        output: &Tensor,
        input: &Tensor,
        op: ReduceOp,
    ) -> Result<()> {
        self.call(self.prepare_reduce_scatter(output, input, op)?)
    }

    /// [`reduce_scatter_tensor`](Self::reduce_scatter_tensor) in the background.
    ///
    /// # Errors
    /// As [`reduce_scatter_tensor`](Self::reduce_scatter_tensor).
    #[track_caller]
    pub fn reduce_scatter_tensor_async(
        &self,
        output: &Tensor,
        input: &Tensor,
        op: ReduceOp,
    ) -> Result<Work> {
        self.background(self.prepare_reduce_scatter(output, input, op)?)
    }

    #[track_caller]
    fn prepare_reduce_scatter(
        &self,
        output: &Tensor,
        tensor: &Tensor,
        op: ReduceOp,
    ) -> Result<Prepared> {
        const CALL: &str = "reduce_scatter_tensor";
        self.check_member(CALL)?;
        alike(CALL, output, tensor)?;
        op.check(CALL, tensor.dtype())?;
        if tensor.numel() != output.numel() * self.world_size() {
            return Err(self.uneven(CALL, "input", tensor, "output", output));
        }
        let output = Output::new(CALL, "output", output)?;
        let input = Some(input(CALL, "input", tensor)?);
        Ok(Prepared::new(Kind::ReduceScatter, Some(op), None, tensor, input, Some(output)))
    }

    /// On rank `root`, the `tensor`s of all ranks, by rank; `None` on the others
    /// (`torch.distributed.gather`).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::Tensor;
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// // Rank 0 has 1, rank 1 has 2.
    /// let x = Tensor::from([group.rank() as f32 + 1.0]);
    /// match group.gather(&x, 1)? {
    ///     Some(all) => assert_eq!((group.rank(), all[0].item(), all[1].item()), (1, 1.0, 2.0)),
    ///     None => assert_eq!(group.rank(), 0),
    /// }
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn gather(&self, tensor: &Tensor, root: usize) -> Result<Option<Vec<Tensor>>> {
        let is_root = self.check_root("gather", root)?;
        let (output, parts) = match is_root {
            true => {
                let (flat, parts) = self.room_for_all(tensor);
                (Some(Output::new("gather", "output", &flat)?), Some(parts))
            }
            false => (None, None),
        };
        let input = Some(input("gather", "tensor", tensor)?);
        self.call(Prepared::new(Kind::Gather, None, Some(root), tensor, input, output))?;
        Ok(parts)
    }

    /// Writes `inputs[r]` of rank `root` to `output` of rank `r` (`torch.distributed.scatter`).
    /// `inputs` is `Some` on the root only.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Dtype, Tensor};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// let parts = [Tensor::from([4f32]), Tensor::from([9f32])];
    /// let mine = Tensor::zeros([1], Dtype::F32);
    /// group.scatter(&mine, (group.rank() == 0).then_some(&parts[..]), 0)?;
    /// assert_eq!(mine.item(), [4.0, 9.0][group.rank()]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] unless the root, and only it, gives one input per rank, each of the
    /// output's shape and dtype; otherwise as [`broadcast`](Self::broadcast).
    #[track_caller]
    pub fn scatter(&self, output: &Tensor, inputs: Option<&[Tensor]>, root: usize) -> Result<()> {
        let is_root = self.check_root("scatter", root)?;
        let input = match inputs {
            Some(inputs) if is_root => Some(self.concatenate("scatter", output, inputs)?),
            None if !is_root => None,
            _ => {
                let what = format!("given on rank {root}, the root, and only there");
                return Err(Error::argument("scatter", "inputs", format!("has to be {what}")));
            }
        };
        let target = Output::new("scatter", "output", output)?;
        self.call(Prepared::new(Kind::Scatter, None, Some(root), output, input, Some(target)))
    }

    /// Sends part `r` of `input` to rank `r`, and writes what rank `r` sends to part `r` of
    /// `output` (`torch.distributed.all_to_all_single` with even splits of dimension 0).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::Tensor;
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// // Rank 0 has [0, 1], rank 1 has [10, 11].
    /// let x = Tensor::from([0.0f32, 1.0]) + 10.0 * group.rank() as f64;
    /// let received = x.zeros_like();
    /// group.all_to_all_single(&received, &x)?;
    /// assert_eq!(received.to_vec::<f32>(), [[0.0, 10.0], [1.0, 11.0]][group.rank()]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when dimension 0 is not divisible by the world size or `output` has
    /// another number of elements; otherwise as [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn all_to_all_single(&self, output: &Tensor, input: &Tensor) -> Result<()> {
        self.call(self.prepare_all_to_all(output, input)?)
    }

    /// [`all_to_all_single`](Self::all_to_all_single) in the background.
    ///
    /// # Errors
    /// As [`all_to_all_single`](Self::all_to_all_single).
    #[track_caller]
    pub fn all_to_all_single_async(&self, output: &Tensor, input: &Tensor) -> Result<Work> {
        self.background(self.prepare_all_to_all(output, input)?)
    }

    #[track_caller]
    fn prepare_all_to_all(&self, output: &Tensor, tensor: &Tensor) -> Result<Prepared> {
        const CALL: &str = "all_to_all_single";
        self.check_member(CALL)?;
        alike(CALL, output, tensor)?;
        let (rows, world) = (tensor.shape().first().copied().unwrap_or(1), self.world_size());
        if rows % world != 0 {
            let what = format!(
                "has shape {:?}, of which dimension 0 is not divisible by the {world} ranks",
                tensor.shape()
            );
            return Err(Error::argument(CALL, "input", what));
        }
        if output.numel() != tensor.numel() {
            let what = format!(
                "has shape {:?}, but the input has {:?}: they need the same number of elements",
                output.shape(),
                tensor.shape()
            );
            return Err(Error::argument(CALL, "output", what));
        }
        let output = Output::new(CALL, "output", output)?;
        check_history(CALL, "input", tensor)?;
        // In place, a part would be overwritten before its receiver has read it.
        let overlaps = output.written.storage().ptr_eq(tensor.storage());
        let input = if overlaps { tensor.empty_like() } else { message(tensor) };
        if overlaps {
            no_grad(|| input.copy_(&tensor.detach()));
        }
        Ok(Prepared::new(Kind::AllToAll, None, None, tensor, Some(input), Some(output)))
    }

    fn call(&self, prepared: Prepared) -> Result<()> {
        self.run(prepared.collective.signature.kind.name(), &prepared.collective)?;
        prepared.finish();
        Ok(())
    }

    fn background(&self, prepared: Prepared) -> Result<Work> {
        let name = prepared.collective.signature.kind.name();
        self.start_prepared(name, prepared)
    }

    /// Starts it on the communication thread, in a profile by `name`.
    fn start_prepared(&self, name: &'static str, prepared: Prepared) -> Result<Work> {
        self.start(name, prepared.collective.clone(), prepared.completion())
    }

    /// Whether this rank is the root; an error when there is no such root.
    pub(super) fn check_root(&self, call: &str, root: usize) -> Result<bool> {
        self.check_member(call)?;
        let world = self.world_size();
        if root >= world {
            let what = format!("is {root}, but the group has {world} ranks: 0 to {}", world - 1);
            return Err(Error::argument(call, "root", what));
        }
        Ok(root == self.rank())
    }

    /// A new tensor for the `tensor`s of all ranks, and its parts.
    fn room_for_all(&self, tensor: &Tensor) -> (Tensor, Vec<Tensor>) {
        let shape: Vec<usize> = [&[self.world_size()], tensor.shape()].concat();
        let flat = Tensor::empty(shape, (tensor.dtype(), tensor.device()));
        let parts = flat.unbind(0);
        (flat, parts)
    }

    /// `inputs` one behind the other; an error unless there is one per rank, like `output`.
    fn concatenate(&self, call: &str, output: &Tensor, inputs: &[Tensor]) -> Result<Tensor> {
        let world = self.world_size();
        if inputs.len() != world {
            let what = format!("{} tensors for {world} ranks", inputs.len());
            return Err(Error::argument(call, "inputs", what));
        }
        for (rank, input) in inputs.iter().enumerate() {
            check_history(call, "inputs", input)?;
            alike_device(call, rank, output, input)?;
            if input.shape() != output.shape() || input.dtype() != output.dtype() {
                let what = format!(
                    "the one for rank {rank} is {} {:?}, but the output is {} {:?}: all parts \
                     have to be alike",
                    input.dtype(),
                    input.shape(),
                    output.dtype(),
                    output.shape()
                );
                return Err(Error::argument(call, "inputs", what));
            }
        }
        let (flat, parts) = self.room_for_all(output);
        no_grad(|| {
            for (part, input) in parts.iter().zip(inputs) {
                part.copy_(&input.detach());
            }
        });
        Ok(flat)
    }

    fn uneven(
        &self,
        call: &str,
        argument: &str,
        whole: &Tensor,
        other: &str,
        part: &Tensor,
    ) -> Error {
        let what = format!(
            "has shape {:?}, {} elements, but `{other}` has shape {:?}: with {} ranks it needs {}",
            whole.shape(),
            whole.numel(),
            part.shape(),
            self.world_size(),
            part.numel() * self.world_size()
        );
        Error::argument(call, argument, what)
    }
}

/// Both tensors have one dtype and are on one device.
fn alike(call: &str, output: &Tensor, input: &Tensor) -> Result<()> {
    if output.device() != input.device() {
        let what = format!("is on {}, the input on {}", output.device(), input.device());
        return Err(Error::argument(call, "output", what));
    }
    if output.dtype() == input.dtype() {
        return Ok(());
    }
    let what = format!("the output is {}, the input {}", output.dtype(), input.dtype());
    Err(Error::dtype(call, what))
}

fn alike_device(call: &str, rank: usize, output: &Tensor, input: &Tensor) -> Result<()> {
    if output.device() == input.device() {
        return Ok(());
    }
    let (there, here) = (input.device(), output.device());
    let what = format!("the one for rank {rank} is on {there}, but the output is on {here}");
    Err(Error::argument(call, "inputs", what))
}
