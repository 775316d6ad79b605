//! The stack of a fiber, over a page that nobody may touch. Pages of it come into being when they are
//! used.

use crate::memory::mapping::page;
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a stack: what a thread of a kernel has for its local variables.
pub const SIZE: usize = 256 << 10;

/// A mapped stack.
#[derive(Debug)]
pub struct Stack {
    region: usize,
    /// Bytes at the top that are left out.
    offset: usize,
}

impl Stack {
    /// A new one. Their tops lie at various places within a page: were they all at the same, the caches
    /// would hold a few of them only.
    pub fn new() -> io::Result<Stack> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let offset = MADE.fetch_add(1, Ordering::Relaxed) % 64 * 320;
        // SAFETY: a new mapping, where nothing else can be.
        let region = unsafe {
            libc::mmap(
                null_mut(),
                page() + SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if region == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the lowest page of the mapping above.
        unsafe { libc::mprotect(region, page(), libc::PROT_NONE) };
        Ok(Stack { region: region as usize, offset })
    }

    /// The address after its last byte, where it begins to grow down.
    pub fn top(&self) -> *mut u8 {
        (self.region + page() + SIZE - self.offset) as *mut u8
    }

    /// Whether an address lies in the forbidden page.
    pub fn guards(&self, address: usize) -> bool {
        (self.region..self.region + page()).contains(&address)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is this stack's, which nobody stands on any more.
        unsafe { libc::munmap(self.region as *mut libc::c_void, page() + SIZE) };
    }
}
