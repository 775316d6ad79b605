//! The memory of a collective on tensors: what it reads, where its result goes, and what keeps both alive.

use smallvec::SmallVec;

use super::collective::{Collective, Kind, RawBuffer, ReduceOp, Signature};
use crate::Tensor;
use crate::autograd::no_grad;
use crate::cuda::Stream;
use crate::error::{Error, Result};

/// A collective on tensors, checked and ready to run.
pub(super) struct Prepared {
    pub(super) collective: Collective,
    /// Keeps the input's memory alive.
    input: Option<Tensor>,
    output: Option<Output>,
}

/// Where a result goes.
pub(super) struct Output {
    /// The caller's tensor, without history.
    target: Tensor,
    /// What the collective writes: the target, or a contiguous stand-in for it.
    pub(super) written: Tensor,
}

impl Output {
    /// For a tensor of which every element is written.
    pub(super) fn new(call: &str, argument: &str, tensor: &Tensor) -> Result<Self> {
        let repeats = |(&size, &stride): (&usize, &isize)| size > 1 && stride == 0;
        if tensor.shape().iter().zip(tensor.strides()).any(repeats) {
            let what = format!(
                "is an expanded view (shape {:?}, strides {:?}): its elements share memory and \
                 cannot be written one by one; use a contiguous copy",
                tensor.shape(),
                tensor.strides()
            );
            return Err(Error::argument(call, argument, what));
        }
        let target = tensor.detach();
        let contiguous = target.is_contiguous();
        let written = if contiguous { target.clone() } else { target.empty_like() };
        Ok(Output { target, written })
    }

    /// For a tensor that is also the input.
    pub(super) fn in_place(call: &str, argument: &str, tensor: &Tensor) -> Result<Self> {
        let output = Output::new(call, argument, tensor)?;
        if !output.written.ptr_eq(&output.target) {
            no_grad(|| output.written.copy_(&output.target));
        }
        Ok(output)
    }

    fn raw(&self) -> RawBuffer {
        raw(&self.written)
    }

    /// After the collective: the result is in the caller's tensor, and autograd knows that it
    /// changed.
    fn finish(&self) {
        if self.written.ptr_eq(&self.target) {
            self.target.storage().bump_version();
        } else {
            no_grad(|| self.target.copy_(&self.written));
        }
    }
}

fn raw(tensor: &Tensor) -> RawBuffer {
    RawBuffer { ptr: tensor.device_ptr(), len: tensor.numel(), dtype: tensor.dtype() }
}

pub(super) fn input(tensor: &Tensor) -> Tensor {
    no_grad(|| tensor.detach().contiguous())
}

impl Prepared {
    pub(super) fn new(
        kind: Kind,
        op: Option<ReduceOp>,
        root: Option<usize>,
        described: &Tensor,
        input: Option<Tensor>,
        output: Option<Output>,
    ) -> Self {
        let shape = SmallVec::from_slice(described.shape());
        let gpu = described.device().gpu();
        let (dtype, on_gpu) = (described.dtype(), gpu.is_some());
        let signature = Signature { kind, op, root, dtype, on_gpu, shape };
        let recv = output.as_ref().map(Output::raw);
        let send = input.as_ref().map(raw).or(recv.filter(|_| kind == Kind::AllReduce));
        Prepared { collective: Collective { signature, send, recv, gpu }, input, output }
    }

    pub(super) fn finish(&self) {
        self.output.iter().for_each(Output::finish);
    }

    /// [`finish`](Self::finish) on the communication thread, with the stream of collectives as the
    /// current one: it uses memory of the caller's stream.
    pub(super) fn finish_in_background(&self) {
        if let Some(stream) = self.collective.gpu.and_then(|gpu| Stream::current(gpu).ok()) {
            let output = self.output.iter().flat_map(|output| [&output.written, &output.target]);
            self.input.iter().chain(output).for_each(|t| t.storage().record_stream(stream));
        }
        self.finish();
    }
}
