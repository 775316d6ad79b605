//! A shared library that is opened at run time and never closed.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// More than either family's longest text (8,192: MPICH's version).
const TEXT: usize = 16 * 1024;

/// An open library.
#[derive(Debug)]
pub(crate) struct Library {
    handle: NonNull<c_void>,
    path: PathBuf,
}

// SAFETY: the handle is only passed to `dlsym`, which may be called from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// By its path, or by its bare name where the dynamic loader finds it. The error is the loader's text.
    pub(crate) fn open(path: &Path) -> Result<Library, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: a C string; the libraries that are asked for run no harmful constructors.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match NonNull::new(handle) {
            Some(handle) => {
                let mut library = Library { handle, path: path.to_owned() };
                if let Some(path) = library.place() {
                    library.path = path;
                }
                Ok(library)
            }
            // SAFETY: the text is this thread's until its next call of the loader; not null after a failure.
            None => Err(unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned()),
        }
    }

    /// Lets libraries that are opened later find this one's symbols: plugins of Open MPI look for them without
    /// naming it. Not done to a library that is only looked at.
    pub(crate) fn share(&self) {
        let Ok(name) = CString::new(self.path.as_os_str().as_bytes()) else { return };
        let flags = libc::RTLD_NOW | libc::RTLD_GLOBAL | libc::RTLD_NOLOAD;
        // SAFETY: a C string; the library is open, so nothing is loaded.
        unsafe { libc::dlopen(name.as_ptr(), flags) };
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn symbol(&self, name: &str) -> Option<NonNull<c_void>> {
        let name = CString::new(name).ok()?;
        // SAFETY: an open library and a C string.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }

    /// The library's name and version, the beginning of what it says of itself. May be asked before MPI is initialised.
    pub(crate) fn version(&self) -> Result<String, String> {
        const NAME: &str = "MPI_Get_library_version";
        let Some(function) = self.symbol(NAME) else {
            return Err(format!("{} has no function {NAME}: it is no MPI", self.path.display()));
        };
        // SAFETY: MPI's function of that name has this signature.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int>(
                function.as_ptr(),
            )
        };
        // SAFETY: `text` passes room for either family's longest text.
        let (code, text) = text(|to, len| unsafe { function(to, len) });
        match code {
            // The rest is who has packed it and when.
            0 => Ok(text.split(',').next().unwrap_or_default().to_owned()),
            _ => Err(format!("{NAME} of {} failed with code {code}", self.path.display())),
        }
    }

    /// Where the symbols are from, by the loader.
    fn place(&self) -> Option<PathBuf> {
        let symbol = self.symbol("MPI_Get_library_version")?;
        // SAFETY: all-zero is a valid value of a struct of pointers.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: an address, and a place for the answer.
        if unsafe { libc::dladdr(symbol.as_ptr(), &raw mut info) } == 0 || info.dli_fname.is_null()
        {
            return None;
        }
        // SAFETY: the loader's own C string, of a library that is never closed.
        let name = unsafe { CStr::from_ptr(info.dli_fname) };
        Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
    }
}

/// A text that a function of MPI writes, its first line with blanks for tabs; and the function's code.
pub(crate) fn text(write: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> (c_int, String) {
    let (mut bytes, mut len) = (vec![0u8; TEXT], 0);
    let code = write(bytes.as_mut_ptr().cast(), &raw mut len);
    let end = bytes.iter().position(|&b| b == 0 || b == b'\n').unwrap_or(0);
    let line = String::from_utf8_lossy(&bytes[..end]);
    (code, line.split_whitespace().collect::<Vec<_>>().join(" "))
}
