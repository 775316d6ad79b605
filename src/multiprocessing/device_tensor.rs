//! Tensors of GPUs between processes. What travels is the handle of the memory, an event after which its bytes
//! are there, and a lease: the writing end of a pipe. The memory stays as long as any process holds a copy of
//! that descriptor, also one that is killed, or a message that nobody reads: the system closes it then, and a
//! thread of the maker, which has the reading end, lets go. The event has a lease too where another process than the
//! maker sends: CUDA has no word for an event that is gone when it is opened or waited for.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, OnceLock};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::unistd::pipe2;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::handles::{export, import_fd};
use super::weak_map::WeakMap;
use crate::cuda::{Event, Stream, graph, in_flight, ipc, within};
use crate::error::{Context, Error, Result};
use crate::storage::{DeviceMemory, Name, Opened, Storage, WeakStorage};
use crate::tensor::Device;

/// A storage of a GPU on the wire.
#[derive(Serialize, Deserialize)]
pub(super) struct DeviceWire {
    name: Name,
    /// The memory's handle.
    memory: Vec<u8>,
    /// The handle of the event after which the bytes are there.
    ready: Vec<u8>,
    /// The lease's index among the message's handles.
    lease: u32,
    /// Who lent the event, if it is not the memory's maker, whose lease is for both.
    event: Option<EventLease>,
}

/// An event that was lent by itself.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct EventLease {
    /// The process that recorded it.
    process: u64,
    /// The number of the lease there.
    number: u64,
    /// The lease's index among the message's handles.
    lease: u32,
}

/// Tells this process from all others.
static PROCESS: LazyLock<u64> = LazyLock::new(|| {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.map_or(0, |now| now.as_nanos() as u64);
    nanos ^ u64::from(std::process::id()).rotate_left(40)
});

/// Storages of other processes by name, so that one that arrives twice is one.
static OPENED: WeakMap<Name, WeakStorage> = WeakMap::new();

/// The wire form of a storage on a GPU, whose bytes are there when the current stream has come this far.
pub(super) fn export_storage(storage: &Storage, index: usize) -> Result<DeviceWire> {
    let stream = Stream::current(index)?;
    storage.with_device_memory(|memory| match memory {
        DeviceMemory::Own { block, ready, number } => {
            ready.record(stream)?;
            Ok(DeviceWire {
                name: (*PROCESS, number),
                memory: ipc::export(block)?.to_bytes().to_vec(),
                ready: ready.ipc_handle()?.to_vec(),
                lease: export(Arc::new(leases()?.lend(Lent::Storage(storage.clone(), number))?.1))?,
                event: None,
            })
        }
        DeviceMemory::Opened(opened) => {
            opened.ready.record(stream)?;
            let (number, lease) = leases()?.lend(Lent::Event(opened.ready.clone()))?;
            Ok(DeviceWire {
                name: opened.name,
                memory: opened.handle.to_bytes().to_vec(),
                ready: opened.ready.ipc_handle()?.to_vec(),
                lease: export(opened.lease.clone())?,
                event: Some(EventLease {
                    process: *PROCESS,
                    number,
                    lease: export(Arc::new(lease))?,
                }),
            })
        }
    })
}

/// The storage of a received wire form, for which the current stream waits.
pub(super) fn import_storage(wire: DeviceWire) -> Result<Storage> {
    let lease = import_fd(wire.lease)?;
    let event_lease = wire.event.map(|event| import_fd(event.lease)).transpose()?;
    let known = if wire.name.0 == *PROCESS {
        // It came home. What others did to it is done: they waited before they sent it, or still write it, and
        // then say so by an event of theirs.
        Some(leases()?.find(wire.name.1).ok_or_else(|| gone(&wire))?)
    } else {
        OPENED.get(&wire.name)
    };
    if let Some(storage) = known {
        if let Device::Cuda(index) = storage.device() {
            wait_for(index, &wire, event_lease, Some(&storage))?;
            storage.record_stream(Stream::current(index)?);
        }
        return Ok(storage);
    }
    let bytes: [u8; ipc::MemoryHandle::SIZE] =
        wire.memory[..].try_into().map_err(|_| malformed())?;
    let opened = Opened::new(wire.name, ipc::MemoryHandle::from_bytes(&bytes), lease)?;
    wait_for(opened.device(), &wire, event_lease, None)?;
    Ok(OPENED.get_or_insert(wire.name, Storage::opened(opened)))
}

/// Makes the current stream wait for the sender's event, whose lease lasts until the stream has. `home` is the storage, if
/// this process has it already.
fn wait_for(
    index: usize,
    wire: &DeviceWire,
    lease: Option<OwnedFd>,
    home: Option<&Storage>,
) -> Result<()> {
    let stream = Stream::current(index)?;
    // The driver opens no event in the process that made it: what went out and came back untouched.
    let recorder = wire.event.map_or(wire.name.0, |event| event.process);
    if recorder == *PROCESS {
        return match (wire.event, home) {
            (Some(event), _) => {
                leases()?.event(event.number).ok_or_else(|| gone(wire))?.wait(stream)
            }
            (None, Some(home)) => home.with_device_memory(|memory| match memory {
                DeviceMemory::Own { ready, .. } => ready.wait(stream),
                DeviceMemory::Opened(_) => Err(gone(wire)),
            }),
            (None, None) => Err(gone(wire)),
        };
    }
    // The maker keeps its own event as long as the memory, to which the storage holds the lease.
    graph::refuse(
        stream,
        "the arrival of another process's tensor",
        "a replay would wait for what was sent then",
    )?;
    let handle: [u8; 64] = wire.ready[..].try_into().map_err(|_| malformed())?;
    let event = Event::from_ipc(index, handle).map_err(|error| {
        let what = "waiting for the process that sent a tensor of a GPU, which may have ended";
        within(what, error)
    })?;
    event.wait(stream)?;
    if let Some(lease) = lease {
        in_flight::release_after(&[stream], (event, lease));
    }
    Ok(())
}

fn malformed() -> Error {
    Error::Other("a received tensor's handle has a wrong length".to_owned())
}

fn gone(wire: &DeviceWire) -> Error {
    Error::Other(format!(
        "a received tensor is storage {} of this process, which is gone",
        wire.name.1
    ))
}

/// What other processes use.
enum Lent {
    /// A storage of this process with its number. Its event lives as long.
    Storage(Storage, u64),
    /// An event that was recorded when another process's memory was sent on.
    Event(Arc<Event>),
}

/// What other processes use, by the number of the lease, with the reading end.
struct Leases {
    lent: Mutex<HashMap<u64, (Lent, OwnedFd)>>,
    next: AtomicU64,
    ends: Epoll,
}

fn leases() -> Result<&'static Leases> {
    static LEASES: OnceLock<Leases> = OnceLock::new();
    if let Some(leases) = LEASES.get() {
        return Ok(leases);
    }
    let ends = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
        .context(|| "watch the leases of tensors on GPUs")?;
    let mut first = false;
    let leases = LEASES.get_or_init(|| {
        first = true;
        Leases { lent: Mutex::default(), next: AtomicU64::new(0), ends }
    });
    if first {
        std::thread::Builder::new()
            .name("torchrs-leases".to_owned())
            .spawn(|| leases.watch())
            .context(|| "start the thread that watches leases")?;
    }
    Ok(leases)
}

impl Leases {
    /// Keeps something until all copies of the descriptor that it gives are closed. Gives the lease's number, too.
    fn lend(&self, what: Lent) -> Result<(u64, OwnedFd)> {
        let (mine, theirs) = pipe2(OFlag::O_CLOEXEC).context(|| "make a pipe for a lease")?;
        let lease = self.next.fetch_add(1, Relaxed);
        // Entered first: the other end may be closed at once.
        let mut lent = self.lent.lock();
        // No flag: the end of the writers is reported always.
        let added = self.ends.add(mine.as_fd(), EpollEvent::new(EpollFlags::empty(), lease));
        added.context(|| "watch a lease")?;
        lent.insert(lease, (what, mine));
        Ok((lease, theirs))
    }

    /// The storage of this process that has a number.
    fn find(&self, number: u64) -> Option<Storage> {
        let lent = self.lent.lock();
        lent.values().find_map(|(what, _)| match what {
            Lent::Storage(storage, own) if *own == number => Some(storage.clone()),
            _ => None,
        })
    }

    /// The event of a lease.
    fn event(&self, lease: u64) -> Option<Arc<Event>> {
        match self.lent.lock().get(&lease) {
            Some((Lent::Event(event), _)) => Some(event.clone()),
            _ => None,
        }
    }

    /// Lets go of what was lent when its lease has ended, for ever.
    fn watch(&self) {
        // Events are destroyed and memory is given back here, beside other threads' captures.
        graph::relax_thread();
        let mut events = [EpollEvent::empty(); 16];
        loop {
            let count = match self.ends.wait(&mut events, EpollTimeout::NONE) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(_) => return,
            };
            for event in &events[..count] {
                // Its descriptor leaves the epoll set with it.
                let ended = self.lent.lock().remove(&event.data());
                drop(ended);
            }
        }
    }
}
