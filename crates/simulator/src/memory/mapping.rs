//! A memfd mapped between pages that nobody may touch: an access past either end is a fault, which
//! [`crate::kernel::trap`] turns into CUDA's illegal address.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

use parking_lot::Mutex;

/// Bytes of a page here.
pub fn page() -> usize {
    // SAFETY: a question without arguments that point anywhere.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// A mapped memfd with a forbidden page on each side.
#[derive(Debug)]
pub struct Mapping {
    /// The first address of the mapped pages.
    start: usize,
    /// Bytes of the mapped pages.
    len: usize,
    fd: OwnedFd,
}

impl Mapping {
    /// A new memfd of at least `bytes` bytes, all zero.
    pub fn new(bytes: usize) -> io::Result<Mapping> {
        let len = bytes.next_multiple_of(page());
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"simulated-gpu".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: a plain call with an open descriptor.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), len as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Mapping::of(fd, len)
    }

    /// Maps `len` bytes, whole pages, of a descriptor.
    pub fn of(fd: OwnedFd, len: usize) -> io::Result<Mapping> {
        let guard = page();
        // SAFETY: a new region of addresses, where nothing else can be.
        let region = unsafe {
            libc::mmap(
                null_mut(),
                len + 2 * guard,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if region == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = region as usize + guard;
        // SAFETY: it replaces pages of the region above, which is ours.
        let mapped = unsafe {
            libc::mmap(
                start as *mut libc::c_void,
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                fd.as_raw_fd(),
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // SAFETY: the region is ours and unused.
            unsafe { libc::munmap(region, len + 2 * guard) };
            return Err(error);
        }
        Ok(Mapping { start, len, fd })
    }

    /// The first mapped address.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Bytes of the mapped pages.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// The descriptor.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

impl Drop for Mapping {
    /// The pages go back at once; the addresses stay forbidden for a while, so that a use after the
    /// release is a fault and not another block's data.
    fn drop(&mut self) {
        static FREED: Mutex<VecDeque<(usize, usize)>> = Mutex::new(VecDeque::new());
        const KEPT: usize = 64;
        let guard = page();
        // SAFETY: it replaces this mapping's own pages, which nobody uses any more.
        unsafe {
            libc::mmap(
                self.start as *mut libc::c_void,
                self.len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            );
        }
        let mut freed = FREED.lock();
        freed.push_back((self.start - guard, self.len + 2 * guard));
        if freed.len() > KEPT
            && let Some((start, len)) = freed.pop_front()
        {
            // SAFETY: the whole region was this type's, and nothing is mapped in it.
            unsafe { libc::munmap(start as *mut libc::c_void, len) };
        }
    }
}
