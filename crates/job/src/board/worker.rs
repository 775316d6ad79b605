//! The worker's side: the slot of this process, if a launcher has given it one.

use std::fs::File;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};

use parking_lot::Mutex;

use super::memory::Words;
use super::slot::Slot;
use crate::environment::BOARD_FD;
use crate::report::{monotonic_ns, take_inherited};

/// What the system calls the board's memory.
pub const MEMORY_NAME: &str = "torchrs-board";

/// The slot of this process.
pub struct OwnSlot {
    slot: Slot<'static>,
    /// Held while the part that is read as a whole is written.
    writing: Mutex<()>,
}

static INSTALLED: OnceLock<Option<OwnSlot>> = OnceLock::new();
/// What is installed, for a look that costs a load.
static OWN: AtomicPtr<OwnSlot> = AtomicPtr::new(std::ptr::null_mut());

/// Takes over the slot that the launcher has passed down, if it has. Called once, before there are threads. Whatever is
/// wrong with it, the process goes on without one.
pub fn install() {
    let own = INSTALLED.get_or_init(|| {
        let number = |name: &str| std::env::var(name).ok()?.trim().parse::<usize>().ok();
        let fd = RawFd::try_from(number(BOARD_FD)?).ok()?;
        let fd = take_inherited(fd, &format!("/memfd:{MEMORY_NAME}"))?;
        let words = Words::map(&File::from(fd)).ok()?;
        // It lives as long as the process.
        let words: &'static Words = Box::leak(Box::new(words));
        let slot = words.slot(number("LOCAL_RANK")?)?;
        slot.attach(monotonic_ns());
        Some(OwnSlot { slot, writing: Mutex::new(()) })
    });
    if let Some(own) = own {
        OWN.store(std::ptr::from_ref(own).cast_mut(), Release);
    }
}

/// The slot of this process. Without a launcher there is none.
#[inline]
pub fn own() -> Option<&'static OwnSlot> {
    // SAFETY: null, or points into a static that is never written again.
    unsafe { OWN.load(Acquire).as_ref() }
}

impl OwnSlot {
    /// The counters, which any thread may add to.
    #[inline]
    pub fn counters(&self) -> &Slot<'static> {
        &self.slot
    }

    /// Notes numbers of a step, by name.
    pub fn log(&self, step: u64, scalars: &[(&str, f64)]) {
        let _writing = self.writing.lock();
        self.slot.log(step, scalars, monotonic_ns());
    }

    /// Notes that the checkpoint of a step was saved, and how long that took.
    pub fn saved(&self, step: u64, took_ns: u64) {
        let _writing = self.writing.lock();
        self.slot.saved(step, took_ns, monotonic_ns());
    }

    /// Notes what this process computes on: a GPU, by its index and its place on the bus, or the CPU.
    pub fn set_device(&self, gpu: Option<(usize, &str)>, name: &str) {
        let _writing = self.writing.lock();
        self.slot.set_device(gpu, name);
    }
}
