//! Memory that another library or value owns, and memory of ours that others use: who is told when, what may not be
//! written, and what may not move.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};

use super::{Owner, Storage};
use crate::cuda::{Stream, in_flight};
use crate::error::{Error, Result};
use crate::storage::Device;

/// Another library or value owns the bytes.
const FOREIGN: u32 = 1 << 31;
/// Nobody may write the bytes.
const READ_ONLY: u32 = 1 << 30;
/// How often the bytes are lent out now.
const LENT: u32 = READ_ONLY - 1;
/// Where the first byte of no bytes is said to be.
const NOWHERE: usize = 64;

/// What others have to do with a storage's bytes.
#[derive(Debug)]
pub(super) struct Ties(AtomicU32);

impl Ties {
    #[inline(always)]
    pub const fn new() -> Ties {
        Ties(AtomicU32::new(0))
    }

    #[inline]
    pub fn is_foreign(&self) -> bool {
        self.0.load(Relaxed) & FOREIGN != 0
    }

    #[inline]
    fn is_read_only(&self) -> bool {
        self.0.load(Relaxed) & READ_ONLY != 0
    }

    fn lent(&self) -> u32 {
        self.0.load(Acquire) & LENT
    }
}

/// The owner of foreign bytes, which is dropped when nothing here uses them any more.
pub(super) struct Foreign {
    owner: Option<Box<dyn Send>>,
    device: Device,
    /// Streams whose work uses the bytes, beside those that are current when this is dropped.
    users: Mutex<SmallVec<[Stream; 2]>>,
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Foreign({})", self.device)
    }
}

/// What travels to the thread that lets go of it; never looked at.
struct Held(#[allow(dead_code, reason = "held for its drop")] Box<dyn Send>);

impl Foreign {
    /// Work on a stream uses the bytes: their owner is told after that.
    pub fn record_stream(&self, stream: Stream) {
        let mut users = self.users.lock();
        if !users.contains(&stream) {
            users.push(stream);
        }
    }
}

impl Drop for Foreign {
    /// The owner may use the memory for something else as soon as it is told, and knows nothing of our streams: it is
    /// told when the work that they were given so far is done, for which nobody waits here.
    fn drop(&mut self) {
        let Some(owner) = self.owner.take() else { return };
        let Some(index) = self.device.gpu() else { return drop(owner) };
        for stream in [Stream::current(index), Stream::default_of(index)] {
            stream.into_iter().for_each(|stream| self.record_stream(stream));
        }
        in_flight::release_after(&self.users.lock(), Held(owner));
    }
}

/// Bytes that are lent to another library: they stay where they are until this is dropped.
#[derive(Debug)]
pub(crate) struct Lent(Storage);

impl Lent {
    /// The storage that has the bytes.
    pub fn storage(&self) -> &Storage {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.0.ties.0.fetch_sub(1, Release);
    }
}

impl Storage {
    /// `nbytes` bytes from `data` on that `owner` keeps. It is dropped when no tensor uses them any more; on a GPU,
    /// when also the work that uses them is done, and then on any thread.
    ///
    /// # Safety
    /// *Alive*: until `owner` is dropped, the bytes are there, initialised and on `device`. *Sharing*: whoever else
    /// writes them takes turns with those who use the storage. Unless `read_only`, they may be written.
    pub(crate) unsafe fn foreign(
        data: *mut u8,
        nbytes: usize,
        device: Device,
        read_only: bool,
        owner: Box<dyn Send>,
    ) -> Storage {
        let users = match device.gpu().map(Stream::current) {
            Some(Ok(stream)) => smallvec![stream],
            _ => SmallVec::new(),
        };
        let foreign = Foreign { owner: Some(owner), device, users: Mutex::new(users) };
        let data = if nbytes == 0 { std::ptr::without_provenance_mut(NOWHERE) } else { data };
        let storage = Storage::new(data, nbytes, device, Owner::Foreign(Box::new(foreign)));
        let ties = FOREIGN | if read_only { READ_ONLY } else { 0 };
        storage.0.ties.0.store(ties, Relaxed);
        storage
    }

    /// True when nobody may write the bytes: memory that another library or value has lent so.
    ///
    /// ```
    /// use torchrs::{Tensor, catch, exchange::Foreign};
    /// let x = Tensor::from_foreign(Foreign::of_static(&[1f32, 2.0], [2])?);
    /// assert!(x.storage().is_read_only() && !x.clone_contiguous().storage().is_read_only());
    /// let error = catch(|| x.fill_(0.0)).unwrap_err().to_string();
    /// assert!(error.contains("fill_") && error.contains("read-only"), "{error}");
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.0.ties.is_read_only()
    }

    /// An error where nobody may write the bytes.
    #[inline]
    pub(crate) fn check_writable(&self, op: &str, argument: &str) -> Result<()> {
        if self.is_read_only() { Err(read_only(op, argument)) } else { Ok(()) }
    }

    /// Has the bytes stay where they are, and alive, until what it gives is dropped.
    ///
    /// # Errors
    /// Where there are no bytes, or they come and go.
    pub(crate) fn stay_put(&self, op: &str) -> Result<Lent> {
        let refuse = |why: &str| Err(Error::argument(op, "self", why.to_owned()));
        // Locked until the loan is counted: see `check_movable`.
        let owner = self.0.owner.lock();
        match &*owner {
            Owner::Meta(_) => {
                return refuse("is on meta and has no memory; move it to a device first");
            }
            Owner::OnDemand(_) => {
                return refuse(
                    "is a sharded parameter, whose memory comes and goes; export a clone of it",
                );
            }
            _ => {}
        }
        self.0.ties.0.fetch_add(1, Relaxed);
        Ok(Lent(self.clone()))
    }

    /// An error where the bytes may not go elsewhere, since others know where they are. For whoever has locked the
    /// owner, so that nobody lends them meanwhile.
    pub(super) fn check_movable(&self) -> Result<()> {
        let who = match (self.0.ties.is_foreign(), self.0.ties.lent()) {
            (true, _) => "another library or value owns its memory",
            (false, 0) => return Ok(()),
            _ => "its memory is lent to another library",
        };
        Err(Error::argument("share_memory", "self", format!("{who}; share a clone")))
    }
}

#[cold]
fn read_only(op: &str, argument: &str) -> Error {
    let why =
        "is read-only memory of another library or value; write to a clone (`clone_contiguous()`)";
    Error::argument(op, argument, why)
}
