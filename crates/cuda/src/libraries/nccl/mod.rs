//! NCCL without tensors: communicators between processes, one GPU each. All calls are made without
//! blocking: what is not through at once is polled, so that a deadline or a peer's death ends it.

mod table;

use std::ffi::c_int;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use table::{CommHandle, Config, Nccl, NcclCode, error, loaded};
pub use table::{DataType, Reduction, UniqueId};

use crate::device;
use crate::driver::Relaxed;
use crate::driver::StreamHandle;
use crate::work::stream::Stream;
use torchrs_error::{Error, Result};

/// The colour of ranks that take part in a split and get nothing.
const NO_COLOR: c_int = -1;

/// Makes an id by which ranks find each other.
pub fn unique_id() -> Result<UniqueId> {
    let mut id = UniqueId([0; 128]);
    // SAFETY: writes 128 bytes.
    unsafe { loaded()?.table.ncclGetUniqueId(&mut id) }?;
    Ok(id)
}

/// One rank's end of a communicator.
pub struct Communicator {
    device: usize,
    /// `None` once it was ended. Calls are made under the lock: an abort from another thread comes
    /// between them.
    handle: Mutex<Option<CommHandle>>,
    /// An abort under way.
    ending: Arc<Ending>,
}

/// Whether a communicator is being aborted.
#[derive(Default)]
struct Ending {
    is_under_way: Mutex<bool>,
    over: Condvar,
}

/// How long a communicator that nobody uses any more keeps its thread.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// A call of NCCL that moves data.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields are NCCL's parameters")]
pub enum Call {
    AllReduce { send: usize, recv: usize, count: usize, dtype: DataType, op: Reduction },
    Broadcast { send: usize, recv: usize, count: usize, dtype: DataType, root: usize },
    Reduce { send: usize, recv: usize, count: usize, dtype: DataType, op: Reduction, root: usize },
    AllGather { send: usize, recv: usize, count: usize, dtype: DataType },
    ReduceScatter { send: usize, recv: usize, count: usize, dtype: DataType, op: Reduction },
    Send { send: usize, count: usize, dtype: DataType, peer: usize },
    Recv { recv: usize, count: usize, dtype: DataType, peer: usize },
}

impl Communicator {
    /// Begins to join the communicator of `world` ranks that `id` stands for.
    pub fn begin(id: UniqueId, world: usize, rank: usize, device: usize) -> Result<Self> {
        let library = loaded()?;
        device::bind(device)?;
        let mut handle = CommHandle::default();
        let mut config = Config::without_blocking();
        // SAFETY: writes one handle; the configuration is read before it returns.
        unsafe {
            library.table.ncclCommInitRankConfig(
                &mut handle,
                world as c_int,
                id,
                rank as c_int,
                &mut config,
            )
        }?;
        Ok(Communicator::of(handle, device))
    }

    fn of(handle: CommHandle, device: usize) -> Communicator {
        Communicator { device, handle: Mutex::new(Some(handle)), ending: Arc::default() }
    }

    /// The device.
    pub fn device(&self) -> usize {
        self.device
    }

    /// Whether the last call is through.
    ///
    /// # Errors
    /// What it failed with, now or at any time since; [`Error::Aborted`] once it was ended.
    pub fn poll(&self) -> Result<bool> {
        self.with("ncclCommGetAsyncError", |table, handle| {
            let mut code = NcclCode::SUCCESS;
            // SAFETY: a communicator that lives, by the lock; writes one number.
            unsafe { table.ncclCommGetAsyncError(handle, &mut code) }?;
            match code {
                NcclCode::SUCCESS => Ok(true),
                NcclCode::IN_PROGRESS => Ok(false),
                code => Err(error("NCCL", code, handle)),
            }
        })
    }

    /// Puts calls on a stream, as one group. [`poll`](Self::poll) says when they are there.
    ///
    /// # Safety
    /// Addresses are of the communicator's device and valid, for as many elements as each call says, until
    /// the stream has done the calls.
    pub unsafe fn start(&self, calls: &[Call], stream: Stream) -> Result<()> {
        self.with("a collective", |table, handle| {
            if let [call] = calls {
                // SAFETY: the caller's promise.
                return unsafe { start_one(table, handle, call, stream.handle()) };
            }
            // SAFETY: a group of this thread; the rest is the caller's promise.
            unsafe {
                table.ncclGroupStart()?;
                let all = calls
                    .iter()
                    .try_for_each(|call| start_one(table, handle, call, stream.handle()));
                let end = table.ncclGroupEnd();
                all.and(end)
            }
        })
    }

    /// Begins a split: the ranks that give a key become a communicator in the keys' order. All ranks
    /// take part.
    pub fn begin_split(&self, key: Option<usize>) -> Result<Split<'_>> {
        let place = Box::into_raw(Box::default());
        let split = Split { parent: self, key, place };
        self.with("ncclCommSplit", |table, handle| {
            let color = if key.is_some() { 0 } else { NO_COLOR };
            let mut config = Config::without_blocking();
            let key = key.unwrap_or(0) as c_int;
            // SAFETY: a communicator that lives; the handle's place stays until the call is through.
            unsafe { table.ncclCommSplit(handle, color, key, place, &mut config) }
        })?;
        Ok(split)
    }

    /// Begins to end it in peace: what was called is completed.
    pub fn begin_end(&self) -> Result<()> {
        self.with("ncclCommFinalize", |table, handle| {
            // SAFETY: a communicator that lives.
            unsafe { table.ncclCommFinalize(handle) }
        })
    }

    /// Frees it after [`begin_end`](Self::begin_end).
    pub fn destroy(&self) {
        let handle = self.handle.lock().take();
        if let Some(handle) = handle {
            // SAFETY: a communicator that lives and that nobody will use again.
            end(self.device, |table| unsafe { (table.ncclCommDestroy)(handle) });
        }
    }

    /// Ends it now: calls under way end without a result. Returns at once: NCCL waits for the GPU, and for the
    /// end of all graphs with its calls, which is left to a thread of its own.
    pub fn abort(&self) {
        let Some(handle) = self.handle.lock().take() else { return };
        let (device, ending) = (self.device, self.ending.clone());
        *ending.is_under_way.lock() = true;
        let abort = Arc::new(move || {
            // SAFETY: a communicator that lives and that nobody will use again.
            end(device, |table| unsafe { (table.ncclCommAbort)(handle) });
            *ending.is_under_way.lock() = false;
            ending.over.notify_all();
        });
        let own = abort.clone();
        let thread = std::thread::Builder::new().name("torchrs-nccl-end".into());
        if thread.spawn(move || own()).is_err() {
            abort();
        }
    }

    /// Waits until an abort is through, for at most `limit`.
    pub fn wait_for_end(&self, limit: Duration) {
        let mut under_way = self.ending.is_under_way.lock();
        self.ending.over.wait_while_for(&mut under_way, |under_way| *under_way, limit);
    }

    fn with<T>(&self, call: &str, job: impl FnOnce(&Nccl, CommHandle) -> Result<T>) -> Result<T> {
        let library = loaded()?;
        device::bind(self.device)?;
        match *self.handle.lock() {
            Some(handle) => job(&library.table, handle),
            None => Err(Error::Aborted(format!("{call}: the communicator was ended"))),
        }
    }
}

/// Calls what ends a communicator of a device. What it returns helps nobody any more.
fn end(device: usize, call: impl FnOnce(&Nccl) -> NcclCode) {
    if let (Ok(library), Ok(())) = (loaded(), device::bind(device)) {
        let _relaxed = Relaxed::new();
        let _ = call(&library.table);
    }
}

/// # Safety
/// As [`Communicator::start`].
unsafe fn start_one(
    table: &Nccl,
    comm: CommHandle,
    call: &Call,
    stream: StreamHandle,
) -> Result<()> {
    let from = |address: usize| address as *const std::ffi::c_void;
    let to = |address: usize| address as *mut std::ffi::c_void;
    // SAFETY: the caller's promise.
    unsafe {
        match *call {
            Call::AllReduce { send, recv, count, dtype, op } => {
                table.ncclAllReduce(from(send), to(recv), count, dtype, op, comm, stream)
            }
            Call::Broadcast { send, recv, count, dtype, root } => {
                let root = root as c_int;
                table.ncclBroadcast(from(send), to(recv), count, dtype, root, comm, stream)
            }
            Call::Reduce { send, recv, count, dtype, op, root } => {
                let root = root as c_int;
                table.ncclReduce(from(send), to(recv), count, dtype, op, root, comm, stream)
            }
            Call::AllGather { send, recv, count, dtype } => {
                table.ncclAllGather(from(send), to(recv), count, dtype, comm, stream)
            }
            Call::ReduceScatter { send, recv, count, dtype, op } => {
                table.ncclReduceScatter(from(send), to(recv), count, dtype, op, comm, stream)
            }
            Call::Send { send, count, dtype, peer } => {
                table.ncclSend(from(send), count, dtype, peer as c_int, comm, stream)
            }
            Call::Recv { recv, count, dtype, peer } => {
                table.ncclRecv(to(recv), count, dtype, peer as c_int, comm, stream)
            }
        }
    }
}

/// A split under way.
pub struct Split<'a> {
    parent: &'a Communicator,
    key: Option<usize>,
    /// Where NCCL writes the new communicator, at any time until the split is through.
    place: *mut CommHandle,
}

impl Split<'_> {
    /// The new communicator, once [`Communicator::poll`] of the old one says that the split is through.
    pub fn finish(self) -> Option<Communicator> {
        // SAFETY: made by `Box::into_raw`, and NCCL is done with it. A split that is not finished leaves its
        // place behind.
        let handle = *unsafe { Box::from_raw(self.place) };
        self.key?;
        Some(Communicator::of(handle, self.parent.device))
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.abort();
        self.wait_for_end(LAST_WAIT);
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator on cuda:{}", self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids need no GPU.
    #[test]
    fn ids_differ_or_the_error_says_what_to_install() {
        match (unique_id(), unique_id()) {
            (Ok(a), Ok(b)) => assert!(a != b),
            (Err(error), _) | (_, Err(error)) => {
                assert!(error.to_string().contains("nvidia-nccl"), "{error}");
            }
        }
    }
}
