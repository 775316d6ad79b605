//! Events between processes: two numbers in a page that all of them map, how many records were begun
//! and how many are done.

use super::handle::{self, Description, Kind};
use crate::code::{Code, Result};
use crate::memory::mapping::{Mapping, page};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The page. Its numbers begin at zero, as the file does.
#[repr(C)]
#[derive(Debug)]
struct Page {
    /// Records that were begun.
    recorded: AtomicU64,
    /// The greatest number of a record that is done.
    done: AtomicU64,
    /// When the process began that recorded last, and which it is.
    recorder_began: AtomicU64,
    recorder: AtomicU32,
    /// Not zero once its maker has destroyed it.
    destroyed: AtomicU32,
}

/// An event whose state other processes see.
#[derive(Debug)]
pub struct SharedEvent {
    mapping: Mapping,
    /// Looks at a record that was not done.
    looks: AtomicU32,
    /// Whether another process made it.
    foreign: bool,
}

impl SharedEvent {
    /// A new one.
    pub fn new() -> Result<SharedEvent> {
        let mapping = Mapping::new(page()).map_err(|_| Code::OUT_OF_MEMORY)?;
        Ok(SharedEvent { mapping, looks: AtomicU32::new(0), foreign: false })
    }

    /// One of another process, which has not destroyed it.
    pub fn open(handle: &[u8; 64]) -> Result<SharedEvent> {
        let description = Description::decode(handle, Kind::Event)?;
        if description.is_own() {
            return Err(Code::INVALID_CONTEXT);
        }
        let mapping = Mapping::of(description.open()?, page()).map_err(|_| Code::MAP_FAILED)?;
        let event = SharedEvent { mapping, looks: AtomicU32::new(0), foreign: true };
        if event.is_destroyed() { Err(Code::MAP_FAILED) } else { Ok(event) }
    }

    /// Its maker destroys it; other processes that have it open can no more use it. The end of one that another
    /// process made concerns nobody else.
    pub fn destroy(&self) {
        if !self.foreign {
            self.page().destroyed.store(1, Ordering::Release);
        }
    }

    /// Whether its maker, another process, has destroyed it.
    pub fn is_destroyed(&self) -> bool {
        self.foreign && self.page().destroyed.load(Ordering::Acquire) != 0
    }

    /// Its handle.
    pub fn export(&self, device: usize) -> Result<[u8; 64]> {
        Ok(Description::of(self.mapping.fd(), device, 0, page())?.encode(Kind::Event))
    }

    fn page(&self) -> &Page {
        // SAFETY: the mapping has a page, aligned as such, and it is only used through atomics.
        unsafe { &*(self.mapping.start() as *const Page) }
    }

    /// Begins a record and gives its number.
    pub fn record(&self) -> u64 {
        let me = std::process::id();
        self.page().recorder_began.store(handle::began(me).unwrap_or(0), Ordering::Release);
        self.page().recorder.store(me, Ordering::Release);
        self.page().recorded.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The number of the latest record.
    pub fn recorded(&self) -> u64 {
        self.page().recorded.load(Ordering::Acquire)
    }

    /// Says that a record is done.
    pub fn complete(&self, number: u64) {
        self.page().done.fetch_max(number, Ordering::AcqRel);
    }

    /// Whether a record is done. When the process that made it has died it never will be, and its work
    /// is over: that counts as done.
    pub fn is_done(&self, number: u64) -> bool {
        if self.page().done.load(Ordering::Acquire) >= number {
            return true;
        }
        const LOOKS: u32 = 256;
        if self.looks.fetch_add(1, Ordering::Relaxed) % LOOKS != LOOKS - 1 {
            return false;
        }
        let recorder = self.page().recorder.load(Ordering::Acquire);
        handle::began(recorder) != Some(self.page().recorder_began.load(Ordering::Acquire))
    }
}
