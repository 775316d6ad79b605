//! The memory of a collective on tensors: what it reads, where its result goes, and what keeps both alive.

use std::panic::Location;

use smallvec::SmallVec;

use super::collective::{Collective, Kind, Owner, RawBuffer, ReduceOp, Signature};
use super::origin::Origin;
use crate::autograd::{is_grad_enabled, no_grad};
use crate::cuda::Stream;
use crate::error::{Error, Result};
use crate::storage::race::{InFlight, Use};
use crate::tensor::Tensor;

/// A collective on tensors, checked and ready to run.
pub(super) struct Prepared {
    pub(super) collective: Collective,
    /// Keeps the input's memory alive.
    input: Option<Tensor>,
    output: Option<Output>,
    /// Where the program calls it.
    at: &'static Location<'static>,
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
        check_history(call, argument, tensor)?;
        tensor.storage().check_writable(call, argument)?;
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
    tensor.assert_has_values("a collective");
    RawBuffer { ptr: tensor.device_ptr(), len: tensor.numel(), dtype: tensor.dtype() }
}

/// What a collective reads.
pub(super) fn input(call: &str, argument: &str, tensor: &Tensor) -> Result<Tensor> {
    check_history(call, argument, tensor)?;
    Ok(message(tensor))
}

/// What a message to another rank reads. A stage of a model sends its results on and gets their gradients
/// back as other messages: that their history ends here is meant.
pub(super) fn message(tensor: &Tensor) -> Tensor {
    no_grad(|| tensor.detach().contiguous())
}

/// What plain collectives give has no history: a gradient would end there without a word.
///
/// # Errors
/// [`Error::Argument`] where one is to flow through the tensor.
pub(super) fn check_history(call: &str, argument: &str, tensor: &Tensor) -> Result<()> {
    if tensor.device().is_meta() {
        let what = "is on meta, where there are no values to send or to receive";
        return Err(Error::argument(call, argument, what));
    }
    if !is_grad_enabled() || !tensor.requires_grad() {
        return Ok(());
    }
    let what = match tensor.grad_fn() {
        Some(node) => format!("has history (grad_fn `{}`)", node.name()),
        None => "is a leaf that requires a gradient".to_owned(),
    };
    let what = format!(
        "{what}, and no gradient passes through this call: use the form of it in \
         `distributed::functional`, or, where none is to flow, `detach()` or `no_grad`"
    );
    Err(Error::argument(call, argument, what))
}

impl Prepared {
    /// The caller is where the program calls it.
    #[track_caller]
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
        let origin = Some(Origin::here());
        let signature = Signature { kind, op, root, dtype, on_gpu, shape, origin };
        let recv = output.as_ref().map(Output::raw);
        let send = input.as_ref().map(raw).or(recv.filter(|_| kind == Kind::AllReduce));
        let at = Location::caller();
        let owner = output.as_ref().map(|output| Owner::Storage(output.written.storage().clone()));
        let collective = Collective { signature, send, recv, owner, gpu, read: None };
        Prepared { collective, input, output, at }
    }

    pub(super) fn finish(&self) {
        self.output.iter().for_each(Output::finish);
    }

    /// What the communication thread does after the collective. Until then its tensors count as in use.
    pub(super) fn completion(self) -> impl FnOnce() + Send + 'static {
        let in_flight = self.in_flight();
        move || {
            drop(in_flight);
            self.finish_in_background();
        }
    }

    /// What a collective in the background uses from now on until it is dropped.
    fn in_flight(&self) -> InFlight {
        let name = match (self.collective.signature.kind, &self.input) {
            (Kind::Send, Some(_)) => "isend",
            (Kind::Send, None) => "irecv",
            (kind, _) => kind.name(),
        };
        let mut all = InFlight::begin(name, self.at);
        if let Some(input) = &self.input {
            input.note_in_flight(&mut all, Use::Read);
        }
        if let Some(output) = &self.output {
            output.target.note_in_flight(&mut all, Use::Write);
        }
        all
    }

    /// [`finish`](Self::finish) on the communication thread, with the stream of collectives as the
    /// current one: it uses memory of the caller's stream.
    fn finish_in_background(&self) {
        if let Some(stream) = self.collective.gpu.and_then(|gpu| Stream::current(gpu).ok()) {
            let output = self.output.iter().flat_map(|output| [&output.written, &output.target]);
            self.input.iter().chain(output).for_each(|t| t.storage().record_stream(stream));
        }
        self.finish();
    }
}
