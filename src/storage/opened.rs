//! Memory of a GPU that belongs to another process.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};

use crate::cuda::{self, Event, Stream, in_flight, ipc};
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
    /// Until it is dropped.
    mapping: Option<ipc::Mapping>,
    /// While a process holds a copy of this descriptor the maker keeps the memory.
    pub lease: Arc<OwnedFd>,
    /// Recorded when this process sends the memory on. Outlives this for those who may still open it.
    pub ready: Arc<Event>,
    /// Streams whose work uses it, beside those that are current when it is dropped.
    users: Mutex<SmallVec<[Stream; 2]>>,
}

impl Opened {
    /// Opens a block on the device that it is on.
    ///
    /// # Errors
    /// As [`ipc::open`].
    pub fn new(name: Name, handle: ipc::MemoryHandle, lease: OwnedFd) -> Result<Opened> {
        let mapping = ipc::open(&handle)?;
        let device = mapping.device();
        let (ready, users) = (Arc::new(ready_event(device)?), smallvec![Stream::current(device)?]);
        Ok(Opened {
            name,
            handle,
            mapping: Some(mapping),
            lease: Arc::new(lease),
            ready,
            users: Mutex::new(users),
        })
    }

    fn mapping(&self) -> &ipc::Mapping {
        self.mapping.as_ref().expect("not dropped yet")
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping().as_ptr()
    }

    pub fn len(&self) -> usize {
        self.mapping().len()
    }

    pub fn device(&self) -> usize {
        self.mapping().device()
    }

    /// Work on a stream uses it: the lease ends after that.
    pub fn record_stream(&self, stream: Stream) {
        let mut users = self.users.lock();
        if !users.contains(&stream) {
            users.push(stream);
        }
    }
}

/// What is left of an [`Opened`] until the streams are done with it.
struct Held {
    mapping: Option<ipc::Mapping>,
    /// After the mapping.
    _lease: Arc<OwnedFd>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.mapping.take().into_iter().for_each(ipc::Mapping::close_idle);
    }
}

impl Drop for Opened {
    /// The maker may use the memory for something else as soon as the lease ends: it does when the work that was given
    /// to the streams so far is done, for which nobody waits here.
    fn drop(&mut self) {
        let device = self.device();
        for stream in [Stream::current(device), Stream::default_of(device)] {
            stream.into_iter().for_each(|stream| self.record_stream(stream));
        }
        let held = Held { mapping: self.mapping.take(), _lease: self.lease.clone() };
        in_flight::release_after(&self.users.lock(), held);
    }
}

/// An event that tells other processes that bytes are there.
pub(crate) fn ready_event(device: usize) -> Result<Event> {
    Event::new(device, cuda::EventOptions { interprocess: true, ..Default::default() })
}
