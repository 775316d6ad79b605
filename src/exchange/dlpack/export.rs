//! Our memory, lent to another library.

use std::ffi::c_void;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use super::abi::{
    self, DLManagedTensor, DLManagedTensorVersioned, DLTensor, READ_ONLY, VERSION, data_type,
    device_name,
};
use super::import::DlTensor;
use crate::cuda::{Stream, device::synchronize, stream};
use crate::error::{Error, Result};
use crate::storage::Lent;
use crate::tensor::{Device, Tensor};

/// The driver's default stream, which waits for others and others for it.
const LEGACY: usize = 1;

/// On which stream of a GPU the consumer of a tensor will use it: that stream waits for the tensor. Tensors on the
/// CPU are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConsumerStream {
    /// The driver's default stream.
    #[default]
    Default,
    /// The stream of that handle (`CUstream`), which lives while the tensor is exported.
    Handle(usize),
    /// No stream waits: whoever asks for it sees to that.
    Unordered,
}

impl ConsumerStream {
    /// From the number by which Python names a stream: none or 1 is the default one, 2 that of the thread, -1 says
    /// that no stream waits, any other number is a handle.
    ///
    /// ```
    /// use torchrs::exchange::dlpack::ConsumerStream;
    /// assert_eq!(ConsumerStream::of_number(None)?, ConsumerStream::Default);
    /// assert_eq!(ConsumerStream::of_number(Some(-1))?, ConsumerStream::Unordered);
    /// assert!(ConsumerStream::of_number(Some(0)).is_err());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for 0, which could be either of two streams, and for other numbers below -1.
    pub fn of_number(number: Option<i64>) -> Result<ConsumerStream> {
        match number {
            None | Some(1) => Ok(ConsumerStream::Default),
            Some(-1) => Ok(ConsumerStream::Unordered),
            Some(handle) if handle > 1 => Ok(ConsumerStream::Handle(handle as usize)),
            Some(other) => Err(Error::argument(
                "__dlpack__",
                "stream",
                format!(
                    "{other} names no stream of CUDA; give 1 for the default one, 2 for the thread's, -1 for none, \
                     or a handle"
                ),
            )),
        }
    }

    fn handle(self) -> Option<usize> {
        match self {
            ConsumerStream::Default => Some(LEGACY),
            ConsumerStream::Handle(handle) => Some(handle),
            ConsumerStream::Unordered => None,
        }
    }
}

/// What a consumer holds on to; its first field is what it sees.
struct Exported {
    managed: DLManagedTensorVersioned,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
    lent: Option<Lent>,
    /// Where the consumer works.
    stream: Option<usize>,
}

impl Drop for Exported {
    /// What the consumer gave its stream may still use the memory. Of the default stream the allocator waits for that
    /// much; any other may be gone by now, was never named, or is this thread's own, so that the device has to be done.
    fn drop(&mut self) {
        let Some(lent) = self.lent.take() else { return };
        let Device::Cuda(index) = lent.storage().device() else { return };
        let known = match self.stream {
            // SAFETY: the driver's default stream is always there.
            Some(LEGACY) => unsafe { Stream::of_others(index, LEGACY) }.ok(),
            _ => None,
        };
        match known {
            Some(stream) => lent.storage().record_stream(stream),
            None if synchronize(index).is_ok() => {}
            // Work on memory that is used for something else is worse than memory that is lost.
            None => mem::forget(lent.storage().clone()),
        }
    }
}

unsafe extern "C" fn delete(managed: *mut DLManagedTensorVersioned) {
    // A panic may not pass into the consumer's code. The hook has printed it by then.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the consumer calls this once, with what `to_dlpack` made, which is the first field of the box that
        // its context is.
        drop(unsafe { Box::from_raw((*managed).manager_ctx.cast::<Exported>()) });
    }));
}

/// A tensor without a version, over one with.
struct Older {
    managed: DLManagedTensor,
    #[allow(dead_code, reason = "held for its drop")]
    newer: DlTensor,
}

unsafe extern "C" fn delete_older(managed: *mut DLManagedTensor) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the consumer calls this once, with what `into_raw_unversioned` made.
        drop(unsafe { Box::from_raw((*managed).manager_ctx.cast::<Older>()) });
    }));
}

impl Tensor {
    /// Lends the tensor's memory to another library (`torch.utils.dlpack.to_dlpack`), read-only if it is that here.
    /// It stays where it is, and is kept, until the library gives it back.
    ///
    /// ```
    /// use torchrs::{Tensor, exchange::dlpack::ConsumerStream};
    /// let x = Tensor::from([[1f32, 2.], [3., 4.]]);
    /// let lent = x.select(1, 1).to_dlpack(ConsumerStream::Default)?;
    /// let seen = lent.dl_tensor();
    /// // SAFETY: one dimension.
    /// assert_eq!((seen.ndim, unsafe { *seen.strides }), (1, 2));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Autograd`] for a tensor that requires a gradient or carries a tangent, which a consumer would lose
    /// without a word; [`Error::Device`] for one on meta, and where a stream cannot wait; [`Error::Argument`] for a
    /// sharded parameter.
    pub fn to_dlpack(&self, stream: ConsumerStream) -> Result<DlTensor> {
        let refuse = |what: &str| {
            let advice = "export what `detach()` gives";
            Err(Error::Autograd(format!("to_dlpack: {what} would be lost; {advice}")))
        };
        if self.requires_grad() {
            return refuse("the history of a tensor that requires a gradient");
        }
        if self.had_tangent() {
            return refuse("the tangent of a dual tensor");
        }
        let (device, dtype) = (device_name(self.device())?, data_type(self.dtype()));
        let lent = self.storage().stay_put("to_dlpack")?;
        if let Device::Cuda(index) = self.device() {
            order(index, stream)?;
        }
        // The first element's address rather than an offset, of which some consumers take no notice.
        let data = match self.numel() {
            0 => ptr::null_mut(),
            _ => self.device_ptr().cast::<c_void>(),
        };
        let layout = self.layout();
        let flags = if lent.storage().is_read_only() { READ_ONLY } else { 0 };
        let mut exported = Box::new(Exported {
            managed: DLManagedTensorVersioned {
                version: VERSION,
                manager_ctx: ptr::null_mut(),
                deleter: Some(delete),
                flags,
                dl_tensor: DLTensor {
                    data,
                    device,
                    ndim: layout.shape.len() as i32,
                    dtype,
                    shape: ptr::null_mut(),
                    strides: ptr::null_mut(),
                    byte_offset: 0,
                },
            },
            shape: layout.shape.iter().map(|&size| size as i64).collect(),
            strides: layout.strides.iter().map(|&stride| stride as i64).collect(),
            lent: Some(lent),
            stream: stream.handle(),
        });
        exported.managed.dl_tensor.shape = exported.shape.as_mut_ptr();
        exported.managed.dl_tensor.strides = exported.strides.as_mut_ptr();
        let exported = Box::into_raw(exported);
        // SAFETY: the box that was just let go of; nobody else has it.
        unsafe {
            (*exported).managed.manager_ctx = exported.cast();
            let managed = NonNull::new_unchecked(&raw mut (*exported).managed);
            Ok(DlTensor::owning(managed))
        }
    }
}

/// Has the consumer's stream wait for what the current one has been given.
fn order(index: usize, consumer: ConsumerStream) -> Result<()> {
    let current = Stream::current(index)?;
    let advice = "export after the capture";
    stream::refuse(current, "lending memory to another library", advice)?;
    match consumer.handle() {
        None => Ok(()),
        Some(handle) => {
            // SAFETY: always there, or the caller's, which lives for now; not kept.
            unsafe { Stream::of_others(index, handle) }?.wait_stream(current)
        }
    }
}

impl DlTensor {
    /// The same for a library that knows no versions.
    ///
    /// # Errors
    /// [`Error::Argument`] for memory that may not be written, of which the older structure cannot tell.
    pub fn into_raw_unversioned(self) -> Result<*mut DLManagedTensor> {
        if self.is_read_only() {
            return Err(Error::argument(
                "to_dlpack",
                "max_version",
                "is below 1, which cannot tell that memory is read-only; export a clone",
            ));
        }
        let DLTensor { data, device, ndim, dtype, shape, strides, byte_offset } = *self.dl_tensor();
        let dl_tensor = DLTensor { data, device, ndim, dtype, shape, strides, byte_offset };
        let managed = DLManagedTensor {
            dl_tensor,
            manager_ctx: ptr::null_mut(),
            deleter: Some(delete_older),
        };
        let older = Box::into_raw(Box::new(Older { managed, newer: self }));
        // SAFETY: the box that was just let go of; nobody else has it.
        unsafe {
            (*older).managed.manager_ctx = older.cast();
            Ok(&raw mut (*older).managed)
        }
    }

    /// Says that the memory is a copy for the consumer alone.
    #[must_use]
    pub fn copied(mut self) -> DlTensor {
        self.managed_mut().flags |= abi::IS_COPIED;
        self
    }
}
