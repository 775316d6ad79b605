//! Memory of a GPU that belongs to another process.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::cuda::{self, Event, ipc};
use crate::error::Result;

/// A storage's name that no other has, in any process: who made it, and a number there.
pub(crate) type Name = (u64, u64);

/// A block of another process, open in this one.
#[derive(Debug)]
pub(crate) struct Opened {
    /// What its maker calls it.
    pub name: Name,
    /// How processes open it.
    pub handle: ipc::MemoryHandle,
    /// Before the lease, which ends when nothing here uses the memory any more.
    mapping: ipc::Mapping,
    /// While a process holds a copy of this descriptor the maker keeps the memory.
    pub lease: Arc<OwnedFd>,
    /// Recorded when this process sends the memory on.
    pub ready: Event,
}

impl Opened {
    /// Opens a block on the device that it is on.
    ///
    /// # Errors
    /// As [`ipc::open`].
    pub fn new(name: Name, handle: ipc::MemoryHandle, lease: OwnedFd) -> Result<Opened> {
        let mapping = ipc::open(&handle)?;
        let ready = ready_event(mapping.device())?;
        Ok(Opened { name, handle, mapping, lease: Arc::new(lease), ready })
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.as_ptr()
    }

    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    pub fn device(&self) -> usize {
        self.mapping.device()
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // The maker may use the memory for something else as soon as the lease ends. Where the device has
        // failed nothing uses it any more.
        let _ = cuda::device::finish(self.device());
    }
}

/// An event that tells other processes that bytes are there.
pub(crate) fn ready_event(device: usize) -> Result<Event> {
    Event::new(device, cuda::EventOptions { interprocess: true, ..Default::default() })
}
