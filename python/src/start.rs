//! How a loader's worker processes start from within Python. A worker of a Rust program is the program itself, started
//! again, which takes over before `main`. Here the program is the interpreter: a worker is a bare one, without site
//! packages and without any code but what loads this library, which takes over in its initialisation and never comes
//! back to Python. So a worker runs no Python, holds no lock of it, and shares nothing that a fork would have copied.

use std::ffi::{CStr, OsStr};
use std::fs::File;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use torchrs::multiprocessing::{Restart, init_library};

/// The program's text, for `-c`; `{}` is the library's path.
const PROGRAM: &str = "from importlib.machinery import ExtensionFileLoader as L, ModuleSpec as S\n\
     l = L('torchrs._torchrs', '{}')\n\
     l.exec_module(l.create_module(S('torchrs._torchrs', l, origin='{}')))\n\
     raise SystemExit('torchrs: a worker process was not told what to do')";

/// Lets worker processes be started; in one of them it never returns.
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    let executable: Option<String> = py.import("sys")?.getattr("executable")?.extract()?;
    // An interpreter inside another program knows no executable of its own. There, starting workers is an error.
    let Some(executable) = executable.filter(|path| !path.is_empty()) else { return Ok(()) };
    let path = own_path();
    let library = File::open(OsStr::new(&path))
        .map_err(|error| PyOSError::new_err(format!("open torchrs's own file {path}: {error}")))?;
    init_library(|| {
        Restart::new(library.into(), OsStr::new(&executable), |library| {
            let program = PROGRAM.replace("{}", library);
            ["-I", "-S", "-c", &program].map(str::to_owned).to_vec()
        })
    });
    Ok(())
}

/// The file that this code is in.
fn own_path() -> String {
    // SAFETY: Dl_info is plain data that dladdr fills in; the name it gives is the loader's, and stays.
    unsafe {
        let mut info: DlInfo = std::mem::zeroed();
        match dladdr(own_path as *const () as *const _, &mut info) {
            0 => String::new(),
            _ => CStr::from_ptr(info.file).to_string_lossy().into_owned(),
        }
    }
}

/// `Dl_info` of `dlfcn.h`.
#[repr(C)]
struct DlInfo {
    file: *const std::ffi::c_char,
    base: *mut std::ffi::c_void,
    symbol: *const std::ffi::c_char,
    address: *mut std::ffi::c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const std::ffi::c_void, info: *mut DlInfo) -> std::ffi::c_int;
}
