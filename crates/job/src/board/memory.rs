//! The memory itself: a memfd of fixed size, mapped as words that both sides reach by atomic operations alone.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::reading::Reading;
use super::slot::{SLOT_BYTES, SLOT_WORDS, Slot};
use super::worker::MEMORY_NAME;

/// The launcher's side: a slot for each worker of this host, empty at first.
#[derive(Debug)]
pub struct Board {
    file: File,
    words: Words,
}

impl Board {
    /// With so many slots.
    ///
    /// # Errors
    /// When the system gives no memory.
    pub fn new(slots: usize) -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(MEMORY_NAME, flags)?);
        file.set_len((slots * SLOT_BYTES) as u64)?;
        // A worker that made the file shorter would have this process killed at its next look.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        let words = Words::map(&file)?;
        Ok(Board { file, words })
    }

    /// What a worker inherits.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The slot of a local rank.
    ///
    /// # Panics
    /// For a local rank without a slot.
    pub fn slot(&self, local_rank: usize) -> Slot<'_> {
        self.words.slot(local_rank).expect("a slot for each local rank")
    }

    /// What the worker of a local rank has written; nothing before it has written anything.
    ///
    /// # Panics
    /// As [`slot`](Self::slot).
    pub fn read(&self, local_rank: usize) -> Option<Reading> {
        Reading::of(&self.slot(local_rank))
    }
}

/// A mapped board.
#[derive(Debug)]
pub(super) struct Words {
    start: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: the memory is mapped until the value is dropped, and all of it is atomic words.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Maps a whole memfd that cannot shrink.
    pub(super) fn map(file: &File) -> io::Result<Self> {
        let seals = fcntl(file, FcntlArg::F_GET_SEALS)?;
        if seals & SealFlag::F_SEAL_SHRINK.bits() == 0 {
            return Err(io::Error::other("the board's memory may shrink"));
        }
        let bytes = file.metadata()?.len() as usize;
        let Some(size) = NonZeroUsize::new(bytes) else {
            return Err(io::Error::other("the board has no slot"));
        };
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; the file is sealed, so all of it stays there.
        let start = unsafe { mmap(None, size, protection, MapFlags::MAP_SHARED, file, 0)? };
        Ok(Words { start: start.cast(), len: bytes / size_of::<AtomicU64>() })
    }

    pub(super) fn slot(&self, place: usize) -> Option<Slot<'_>> {
        // SAFETY: mapped, page-aligned, so many words, and never reached but by atomic operations.
        let words = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) };
        let from = place.checked_mul(SLOT_WORDS)?;
        let words = words.get(from..from.checked_add(SLOT_WORDS)?)?;
        Some(Slot::over(words.try_into().expect("so many words")))
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size; slots borrow from this value.
        let _ = unsafe { munmap(self.start.cast(), self.len * size_of::<AtomicU64>()) };
    }
}
