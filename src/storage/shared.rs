//! Memory that several processes map: a sealed memfd. Nothing appears in `/dev/shm`, so nothing is
//! left behind by SIGKILL and a container's tiny `/dev/shm` does not matter. The descriptor goes to
//! another process once (inherited, or by `SCM_RIGHTS`); the bytes never travel.
//!
//! ```
//! use std::os::fd::AsFd;
//! use torchrs::storage::SharedMemory;
//! let ours = SharedMemory::create("example", 8)?;
//! let fd = ours.as_fd().try_clone_to_owned().expect("a descriptor"); // sent to another process
//! let theirs = SharedMemory::from_fd(fd)?;
//! // SAFETY: both mappings are eight bytes long.
//! unsafe {
//!     ours.as_ptr().add(7).write(5);
//!     assert_eq!(theirs.as_ptr().add(7).read(), 5);
//! }
//! # Ok::<(), torchrs::Error>(())
//! ```

use std::ffi::CString;
use std::fs::File;
use std::io::{Write, stderr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Once, OnceLock};

use memmap2::{MmapOptions, MmapRaw};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

use crate::cuda::pinned;
use crate::error::{Context, Error, Result};

/// One memfd, mapped read-write. Cheap to share behind an [`Arc`]; unmapped and closed when the
/// last clone goes, freed by the kernel when the last process has let go.
///
/// ```
/// let memory = torchrs::storage::SharedMemory::create("example", 100)?;
/// assert_eq!(memory.len(), 100);
/// // SAFETY: inside the mapping, which nobody else has.
/// assert_eq!(unsafe { memory.as_ptr().add(99).read() }, 0);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug)]
pub struct SharedMemory {
    /// Ends before the mapping does.
    pinned: OnceLock<Option<pinned::Registration<'static>>>,
    file: File,
    map: MmapRaw,
}

impl SharedMemory {
    /// A new zero-filled mapping of `len` bytes. `name` shows in `/proc/<pid>/maps`.
    ///
    /// ```
    /// let memory = torchrs::storage::SharedMemory::create("example", 1 << 16)?;
    /// let maps = std::fs::read_to_string("/proc/self/maps").expect("our own");
    /// assert!(maps.contains("torchrs-example"));
    /// # drop(memory);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when the system is out of descriptors or memory, naming the size asked for.
    pub fn create(name: &str, len: usize) -> Result<Arc<Self>> {
        let label = CString::new(format!("torchrs-{name}"))
            .map_err(|_| Error::argument("SharedMemory::create", "name", "holds a NUL byte"))?;
        let fd =
            memfd_create(label.as_c_str(), MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
                .context(|| format!("memfd_create for {len} bytes of shared memory `{name}`"))?;
        ftruncate(&fd, len as libc::off_t)
            .context(|| format!("reserve {len} bytes of shared memory `{name}`"))?;
        // Without these seals a peer could shrink the file under us: a load would raise SIGBUS.
        fcntl(&fd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW))
            .context(|| format!("seal shared memory `{name}`"))?;
        Self::map(File::from(fd), len)
    }

    /// Maps a descriptor that another process made with [`SharedMemory::create`].
    ///
    /// ```
    /// use torchrs::storage::SharedMemory;
    /// let file = tempfile::tempfile().expect("a file");
    /// let error = SharedMemory::from_fd(file.into()).unwrap_err();
    /// assert!(error.to_string().contains("is not a memfd sealed against shrinking"));
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when the descriptor is not a memfd sealed against shrinking (its size
    /// could change under the mapping), [`Error::Os`] when it cannot be mapped.
    pub fn from_fd(fd: OwnedFd) -> Result<Arc<Self>> {
        let seals = fcntl(&fd, FcntlArg::F_GET_SEALS).unwrap_or(0);
        if seals & SealFlag::F_SEAL_SHRINK.bits() == 0 {
            return Err(Error::argument(
                "SharedMemory::from_fd",
                "fd",
                "is not a memfd sealed against shrinking",
            ));
        }
        let len = fstat(&fd).context(|| "stat of a shared-memory descriptor")?.st_size as usize;
        Self::map(File::from(fd), len)
    }

    fn map(file: File, len: usize) -> Result<Arc<Self>> {
        // A mapping of zero bytes is refused by the kernel; one page stands in for it.
        let map = MmapOptions::new()
            .len(len.max(1))
            .map_raw(&file)
            .context(|| format!("map {len} bytes of shared memory"))?;
        if len >= 2 << 20 {
            // Huge pages are a wish: kernels without shmem THP say no and nothing is lost.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Arc::new(SharedMemory { pinned: OnceLock::new(), file, map }))
    }

    /// The first byte. Valid for [`len`](Self::len) bytes as long as `self` lives; other processes
    /// may write it at any time, so access is by raw pointer or atomics.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    /// let memory = torchrs::storage::SharedMemory::create("example", 4)?;
    /// // SAFETY: four aligned bytes of a mapping that lives.
    /// let counter = unsafe { AtomicU32::from_ptr(memory.as_ptr().cast()) };
    /// counter.fetch_add(3, Relaxed);
    /// assert_eq!(counter.load(Relaxed), 3);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn as_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// Size in bytes (one for an empty request).
    ///
    /// ```
    /// use torchrs::storage::SharedMemory;
    /// assert_eq!(SharedMemory::create("example", 100)?.len(), 100);
    /// assert_eq!(SharedMemory::create("nothing", 0)?.len(), 1);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// True when nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.map.len() <= 1
    }
}

impl SharedMemory {
    /// Pins the mapping for devices to read and write by themselves, once; false where the system refuses, which the
    /// first refusal says on standard error. Who starts a copy keeps the mapping until it is done.
    pub(crate) fn pin(&self) -> bool {
        static WARNED: Once = Once::new();
        let register = || {
            // SAFETY: mapped until the registration, which is dropped first, has ended.
            let registered = unsafe { pinned::register(self.as_ptr(), self.len()) };
            if let Err(error) = &registered {
                let bytes = self.len();
                WARNED.call_once(|| {
                    // Not `eprintln!`, which panics where nobody listens.
                    let _ = writeln!(
                        stderr(),
                        "torchrs: {bytes} bytes of shared memory cannot be pinned, so copies from there to a GPU are \
                         slower and may wait ({error}); `ulimit -l` may be too low"
                    );
                });
            }
            registered.ok()
        };
        self.pinned.get_or_init(register).is_some()
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_of_one_descriptor_see_the_same_bytes() {
        let a = SharedMemory::create("test", 10_000).unwrap();
        let b = SharedMemory::from_fd(a.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(b.len(), 10_000);
        // SAFETY: both mappings are alive and 10,000 bytes long; no other process has them.
        unsafe {
            a.as_ptr().add(9_999).write(7);
            assert_eq!(b.as_ptr().add(9_999).read(), 7);
        }
    }

    #[test]
    fn an_unsealed_descriptor_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(10).unwrap();
        let error = SharedMemory::from_fd(file.into()).unwrap_err();
        assert!(error.to_string().contains("sealed"), "{error}");
    }
}
