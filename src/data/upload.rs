//! Batches on a GPU. Their slots are pinned, so that the device reads them by itself while the host goes on; a
//! stream of its own copies them beside the computation; the copy of the next batch starts with the one
//! before it.

use std::sync::OnceLock;

use crate::cuda::{Event, MAX_DEVICES, Priority, Stream, StreamGuard, in_flight};
use crate::error::{Result, catch};
use crate::tensor::{Device, Tensor};

/// The stream that copies batches to a device.
fn copies(index: usize) -> Result<Stream> {
    static STREAMS: [OnceLock<Stream>; MAX_DEVICES] = [const { OnceLock::new() }; MAX_DEVICES];
    if let Some(stream) = STREAMS[index].get() {
        return Ok(*stream);
    }
    let stream = Stream::new(index, Priority::High)?;
    Ok(*STREAMS[index].get_or_init(|| stream))
}

/// A tensor over a slot, on the device for which its batch is. Work on the current stream may use it once it
/// has waited for the batch's arrival.
pub(super) fn to_device(slot: Tensor, device: Device) -> Result<Tensor> {
    let index = match device {
        Device::Cpu => return Ok(slot),
        Device::Cuda(index) => index,
        Device::Meta => return Ok(slot.transferred(device)),
    };
    let user = Stream::current(index)?;
    let tensor = {
        let _copying = StreamGuard::new(copies(index)?)?;
        slot.transferred(device)
    };
    tensor.storage().record_stream(user);
    Ok(tensor)
}

/// A batch that may still be on its way.
pub(super) struct Ready<B> {
    batch: B,
    arrival: Option<Event>,
}

impl<B> Ready<B> {
    /// A batch that `make` makes of tensors on a device, where it can fail: there may be no memory left.
    pub fn new(device: Device, make: impl FnOnce() -> B) -> Result<Self> {
        in_flight::poll();
        let (batch, arrival) = match device {
            Device::Cpu | Device::Meta => (make(), None),
            Device::Cuda(index) => (catch(make)?, Some(copies(index)?.record_event()?)),
        };
        Ok(Ready { batch, arrival })
    }

    /// The batch, for which work on the current stream waits from here on.
    pub fn take(self) -> Result<B> {
        let Ready { batch, arrival } = self;
        arrival.map_or(Ok(()), |arrival| arrival.hold_current_stream())?;
        Ok(batch)
    }
}
