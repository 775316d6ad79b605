//! NVIDIA's libraries and MPI's, as this host's loader finds them. A child opens them: one that ends it, or hangs, harms
//! only that.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::spawn::PROBE;

/// How long the libraries have to be opened.
const PROBE_WITHIN: Duration = Duration::from_secs(20);

/// How a library tells its version.
#[derive(Debug, Clone, Copy)]
enum Version {
    /// `int f(int *)`.
    Into(&'static str),
    /// `int f(int *major, int *minor)`.
    IntoTwo(&'static str),
    /// `size_t f(void)`.
    Returned(&'static str),
    /// `int f(char *, int *)`, for MPI: its first line.
    Text(&'static str),
}

/// A library that torchrs opens at run time.
#[derive(Debug)]
pub struct Library {
    /// What it is called in reports.
    pub name: &'static str,
    /// Its files, the one that is taken first at the beginning.
    files: &'static [&'static str],
    version: Version,
    /// What it is for.
    pub purpose: &'static str,
}

impl Library {
    /// The file that is named where none was found.
    pub fn file(&self) -> &'static str {
        self.files[0]
    }
}

pub static LIBRARIES: [Library; 7] = [
    Library {
        name: "libcuda",
        files: &["libcuda.so.1"],
        version: Version::Into("cuDriverGetVersion"),
        purpose: "the driver: any GPU",
    },
    Library {
        name: "libnvrtc",
        files: &["libnvrtc.so.13", "libnvrtc.so.12"],
        version: Version::IntoTwo("nvrtcVersion"),
        purpose: "compiles kernels: any GPU",
    },
    Library {
        name: "libcublasLt",
        files: &["libcublasLt.so.13", "libcublasLt.so.12"],
        version: Version::Returned("cublasLtGetVersion"),
        purpose: "matrix products on GPUs",
    },
    Library {
        name: "libcudnn",
        files: &["libcudnn.so.9"],
        version: Version::Returned("cudnnGetVersion"),
        purpose: "convolutions and attention on GPUs, faster than torchrs's own",
    },
    Library {
        name: "libnccl",
        files: &["libnccl.so.2"],
        version: Version::Into("ncclGetVersion"),
        purpose: "collectives between GPUs",
    },
    Library {
        name: "Open MPI",
        files: &["libmpi.so.40"],
        version: Version::Text("MPI_Get_library_version"),
        purpose: "data between hosts under its mpirun; without it, TCP",
    },
    Library {
        name: "MPICH",
        files: &["libmpich.so.12", "libmpi.so.12"],
        version: Version::Text("MPI_Get_library_version"),
        purpose: "data between hosts under its mpiexec; without it, TCP",
    },
];

/// What a child finds that opens these libraries, by name: the version, or why there is none. One whose opening ends the
/// child is missing.
pub fn found(names: &[&str]) -> BTreeMap<String, Result<String, String>> {
    let child = Command::new("/proc/self/exe")
        .arg0(PROBE)
        .args(names)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return BTreeMap::new() };
    let until = Instant::now() + PROBE_WITHIN;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    let mut text = String::new();
    let _ = child.stdout.take().map(|mut out| out.read_to_string(&mut text));
    let lines = text.lines().filter_map(|line| line.split_once('\t'));
    let read = lines.map(|(library, what)| {
        let what = match what.strip_prefix('!') {
            Some(why) => Err(why.to_owned()),
            None => Ok(what.to_owned()),
        };
        (library.to_owned(), what)
    });
    read.collect()
}

/// In the child: a line for each library.
pub fn probe() -> i32 {
    let names: Vec<String> = std::env::args().skip(1).collect();
    for library in LIBRARIES.iter().filter(|library| names.iter().any(|n| n == library.name)) {
        match open(library) {
            Ok(version) => println!("{}\t{version}", library.name),
            Err(why) => println!("{}\t!{}", library.name, why.replace('\n', " ")),
        }
    }
    0
}

/// The version that a library tells.
fn open(library: &Library) -> Result<String, String> {
    let folders = std::env::var("TORCHRS_CUDA_PATH").unwrap_or_default();
    let folders: Vec<&str> = folders.split(':').filter(|folder| !folder.is_empty()).collect();
    let mut trouble = String::new();
    for file in library.files {
        let named = folders.iter().map(|folder| format!("{folder}/{file}"));
        for path in named.chain([(*file).to_owned()]) {
            match open_file(&path) {
                Ok(handle) => return version_of(handle, file, library.version),
                Err(why) if trouble.is_empty() => trouble = why,
                Err(_) => {}
            }
        }
    }
    Err(trouble)
}

fn open_file(path: &str) -> Result<*mut c_void, String> {
    let path = CString::new(path).map_err(|_| "a path with a NUL".to_owned())?;
    // SAFETY: dlopen runs the library's initialisers, in a process that exists for this.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: dlerror gives a C string, or null, which this thread's next call may free.
    let error = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text)) };
    Err(error.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default())
}

fn version_of(handle: *mut c_void, file: &str, version: Version) -> Result<String, String> {
    let (Version::Into(function)
    | Version::IntoTwo(function)
    | Version::Returned(function)
    | Version::Text(function)) = version;
    let name = CString::new(function).expect("a name without NUL");
    // SAFETY: the handle is open.
    let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if symbol.is_null() {
        return Err(format!("{file} has no {function}"));
    }
    let (mut first, mut second) = (0, 0);
    // More than the longest version of an MPI.
    let mut text = vec![0u8; 16 << 10];
    // SAFETY: the functions have these types, by NVIDIA's and MPI's headers.
    let status = unsafe {
        type Into = extern "C" fn(*mut c_int) -> c_int;
        type IntoTwo = extern "C" fn(*mut c_int, *mut c_int) -> c_int;
        type Returned = extern "C" fn() -> usize;
        type Text = extern "C" fn(*mut u8, *mut c_int) -> c_int;
        match version {
            Version::Into(_) => std::mem::transmute::<*mut c_void, Into>(symbol)(&mut first),
            Version::IntoTwo(_) => {
                std::mem::transmute::<*mut c_void, IntoTwo>(symbol)(&mut first, &mut second)
            }
            Version::Returned(_) => {
                return Ok(std::mem::transmute::<*mut c_void, Returned>(symbol)().to_string());
            }
            Version::Text(_) => {
                std::mem::transmute::<*mut c_void, Text>(symbol)(text.as_mut_ptr(), &mut first)
            }
        }
    };
    match (status, version) {
        (0, Version::Into(_)) => Ok(first.to_string()),
        (0, Version::IntoTwo(_)) => Ok(format!("{first}.{second}")),
        (0, _) => {
            let text = String::from_utf8_lossy(&text);
            let line = text.split(['\0', '\n', ',']).next().unwrap_or_default();
            Ok(line.split_whitespace().collect::<Vec<_>>().join(" "))
        }
        (code, _) => Err(format!("{function} of {file} gives {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_a_reason_and_no_crash() {
        let library = |files| Library {
            name: "x",
            files,
            version: Version::Into("no_such_function"),
            purpose: "nothing",
        };
        let why = open(&library(&["libno-such-library.so.7", "libno-such-library.so.6"]));
        assert!(why.clone().unwrap_err().contains("libno-such-library.so.7"), "{why:?}");
        let why = open(&library(&["libc.so.6"])).unwrap_err();
        assert!(why.contains("has no no_such_function"), "{why}");
    }
}
