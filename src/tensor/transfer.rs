//! Bytes from one device's memory to another's, layouts and all.

use super::{Device, Layout, Tensor};
use crate::cuda::{Stream, copy, in_flight, pinned};
use crate::error::{Error, Result, throw};
use crate::storage::Storage;

impl Tensor {
    /// Says that work on another stream than the one on which the tensor was made uses it too
    /// (`torch.Tensor.record_stream`): its memory is used again only when what `stream` has been given by the time
    /// the tensor is gone is done. What runs on the other stream must wait for the tensor's own by itself
    /// ([`Stream::wait_stream`]). The backward of what was computed on `stream` needs no more than this: it runs on
    /// the same stream.
    ///
    /// ```
    /// use torchrs::{Device, Tensor, cuda::{Priority, Stream, StreamGuard}};
    /// # if torchrs::cuda::is_available() {
    /// let x = Tensor::ones([4], (torchrs::Dtype::F32, Device::Cuda(0)));
    /// let side = Stream::new(0, Priority::Normal)?;
    /// side.wait_stream(Stream::current(0)?)?;
    /// let y = {
    ///     let _current = StreamGuard::new(side)?;
    ///     &x * 2.0
    /// };
    /// x.record_stream(side);
    /// drop(x); // `side` may still be reading it
    /// # }
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Device`] for a tensor that is not on the stream's GPU.
    #[track_caller]
    pub fn record_stream(&self, stream: Stream) {
        if self.device() != Device::Cuda(stream.device()) {
            throw(Error::Device(format!(
                "record_stream: the tensor is on {} and the stream on cuda:{}",
                self.device(),
                stream.device()
            )));
        }
        self.storage().record_stream(stream);
    }

    /// The same elements, with the same strides and without history, in new memory of a device. What lies
    /// between the elements comes along.
    #[track_caller]
    pub(crate) fn transferred(&self, device: Device) -> Tensor {
        if self.device().is_meta() {
            throw(Error::Device(format!(
                "to: a tensor on meta has no values that {device} could get; give its module memory with \
                 `Module::to_empty(\"{device}\")`, and values with `Module::reset_parameters()` or `load_state_dict`"
            )));
        }
        let (low, bytes) = self.span();
        let storage = Storage::on(device, bytes);
        let from = self.storage().address().wrapping_add(low * self.dtype().size());
        let lent = device.is_cuda() && self.storage().pin_if_lent();
        // SAFETY: `bytes` bytes of two storages that are alive, one of them new.
        let done = unsafe { transfer(&storage, from, self.device(), bytes) };
        if let Err(error) = done.and_then(|()| self.keep_for(device, lent)) {
            throw(error);
        }
        let layout = Layout { offset: self.storage_offset() - low, ..self.layout().clone() };
        Tensor::from_parts(storage, layout, self.dtype())
    }

    /// Keeps a loader's slot, which is read late, until it has been copied; other memory has been read on return, also if
    /// somebody has pinned it.
    fn keep_for(&self, device: Device, lent: bool) -> Result<()> {
        let Device::Cuda(index) = device else { return Ok(()) };
        let stream = Stream::current(index)?;
        if lent {
            in_flight::keep(stream, self.storage().clone());
        } else if self.device() == Device::Cpu && pinned::is_pinned(self.storage().as_ptr(), 1) {
            stream.synchronize()?;
        }
        Ok(())
    }

    /// The lowest element's place in the storage, and the bytes from there to the end of the highest.
    fn span(&self) -> (usize, usize) {
        if self.numel() == 0 {
            return (self.storage_offset(), 0);
        }
        let (mut low, mut high) = (self.storage_offset() as isize, self.storage_offset() as isize);
        for (&size, &stride) in self.shape().iter().zip(self.strides()) {
            let way = (size as isize - 1) * stride;
            if way < 0 { low += way } else { high += way }
        }
        (low as usize, (high - low + 1) as usize * self.dtype().size())
    }
}

/// Copies into a storage from an address on a device. Bytes that come to the host are there on return.
///
/// # Safety
/// Both are `bytes` long, and `from` stays so until its device's current stream has done the copy.
unsafe fn transfer(to: &Storage, from: *mut u8, source: Device, bytes: usize) -> Result<()> {
    if to.device().is_meta() {
        return Ok(());
    }
    let target = to.address();
    // SAFETY: this function's contract: both are `bytes` long, and `from` stays.
    unsafe {
        match (to.device(), source) {
            (Device::Cpu, Device::Cpu) => target.copy_from_nonoverlapping(from, bytes),
            (Device::Cuda(index), Device::Cpu) => {
                copy::host_to_device(target, from, bytes, Stream::current(index)?)?;
            }
            (Device::Cpu, Device::Cuda(index)) => {
                let stream = Stream::current(index)?;
                copy::device_to_host(target, from, bytes, stream)?;
                if pinned::is_pinned(target, bytes) {
                    stream.synchronize()?;
                }
            }
            (Device::Cuda(a), Device::Cuda(b)) if a == b => {
                copy::device_to_device(target, from, bytes, Stream::current(a)?)?;
            }
            // The one is without memory; the other was refused.
            (Device::Meta, _) | (_, Device::Meta) => {}
            (Device::Cuda(a), Device::Cuda(b)) => {
                let (there, here) = (Stream::current(a)?, Stream::current(b)?);
                // The target's memory may still be in use by work that was enqueued before it was freed.
                here.wait_stream(there)?;
                copy::between_devices((target, a), (from, b), bytes, here)?;
                there.wait_stream(here)?;
            }
        }
    }
    Ok(())
}
