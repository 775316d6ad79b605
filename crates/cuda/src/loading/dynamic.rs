//! Shared libraries that are opened at run time, and tables of their functions. A program that
//! uses CUDA so builds and starts where there is none.

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// An open shared library. It is never closed: tables hold addresses of its functions.
pub(crate) struct Library {
    handle: NonNull<c_void>,
    path: PathBuf,
}

// SAFETY: the handle is only passed to `dlsym`, which may be called from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// The beginning of the loader's record of a library, as `link.h` has it.
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *const c_char,
}

impl Library {
    /// Opens a library by its path, or by its bare name where the dynamic loader finds it. The
    /// error is the loader's own text.
    pub(crate) fn open(path: &Path) -> Result<Library, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: a C string; libraries that we look for run no harmful constructors.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match NonNull::new(handle) {
            Some(handle) => {
                let path = loaded_path(handle).unwrap_or_else(|| path.to_owned());
                Ok(Library { handle, path })
            }
            None => Err(last_error()),
        }
    }

    /// Where the library was found.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The address of a symbol, if the library has it.
    pub(crate) fn symbol(&self, name: &str) -> Option<NonNull<c_void>> {
        let name = CString::new(name).ok()?;
        // SAFETY: an open library and a C string.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }
}

/// The path under which the loader knows an open library.
fn loaded_path(handle: NonNull<c_void>) -> Option<PathBuf> {
    let mut map: *const LinkMap = std::ptr::null();
    // SAFETY: an open library; the request writes one pointer to the place given.
    let rc = unsafe {
        libc::dlinfo(handle.as_ptr(), libc::RTLD_DI_LINKMAP, (&raw mut map).cast::<c_void>())
    };
    if rc != 0 || map.is_null() {
        return None;
    }
    // SAFETY: the loader's record of a library that is never closed; its name is a C string.
    let name = unsafe { CStr::from_ptr((*map).name) };
    (!name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Why the last `dlopen` of this thread failed.
fn last_error() -> String {
    // SAFETY: the text is this thread's until its next call of the loader, and is copied.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the dynamic loader gives no reason".to_owned();
    }
    // SAFETY: not null, so a C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Declares a table of a library's functions. Each function is a field, which gives the raw return
/// code, and a method of the same name, which turns the code into a `Result` by the table's own
/// `check(call, code)`. Functions that return no code stand in `others`, and are fields only. `load` fills all fields or
/// names the symbol that is missing.
macro_rules! function_table {
    ($(#[$doc:meta])* $table:ident returns $code:ty;
     $($(#[$about:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*
     $(others {
        $($(#[$of_other:meta])* fn $other:ident($($given:ident: $kind:ty),* $(,)?) -> $given_back:ty;)*
     })?) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        pub(crate) struct $table {
            $($(#[$about])* pub(crate) $name: unsafe extern "C" fn($($ty),*) -> $code,)*
            $($($(#[$of_other])* pub(crate) $other: unsafe extern "C" fn($($kind),*) -> $given_back,)*)?
        }

        // Names and parameters are the library's. A table lists what this layer and those above
        // it may call, and a build without one of them leaves a method unused.
        #[allow(non_snake_case, dead_code, clippy::too_many_arguments)]
        impl $table {
            /// Looks up every function. The error is the name of the first that is missing.
            fn load(
                library: &$crate::loading::dynamic::Library,
            ) -> std::result::Result<Self, &'static str> {
                $(let $name = library.symbol(stringify!($name)).ok_or(stringify!($name))?;)*
                $($(let $other = library.symbol(stringify!($other)).ok_or(stringify!($other))?;)*)?
                Ok($table {
                    // SAFETY: the library's function of that name has this signature.
                    $($name: unsafe {
                        std::mem::transmute::<
                            *mut std::ffi::c_void,
                            unsafe extern "C" fn($($ty),*) -> $code,
                        >($name.as_ptr())
                    },)*
                    // SAFETY: as above.
                    $($($other: unsafe {
                        std::mem::transmute::<
                            *mut std::ffi::c_void,
                            unsafe extern "C" fn($($kind),*) -> $given_back,
                        >($other.as_ptr())
                    },)*)?
                })
            }

            $($(#[$about])*
            ///
            /// # Safety
            /// As the library's manual has it.
            pub(crate) unsafe fn $name(&self, $($arg: $ty),*) -> torchrs_error::Result<()> {
                // SAFETY: the caller keeps to the manual.
                self.check(stringify!($name), unsafe { (self.$name)($($arg),*) })
            })*
        }
    };
}
pub(crate) use function_table;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_found_by_name_and_knows_its_path() {
        let library = Library::open(Path::new("libc.so.6")).unwrap();
        assert!(library.path().is_absolute(), "{}", library.path().display());
        assert!(library.symbol("getpid").is_some());
        assert!(library.symbol("cuInit").is_none());
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        let error = Library::open(Path::new("/no/such/library.so")).err().unwrap();
        assert!(error.contains("/no/such/library.so"), "{error}");
    }
}
