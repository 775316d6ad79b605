//! The versions of CUDA's libraries, as each one tells it by a function of its own.

use std::ffi::c_int;
use std::fs::File;
use std::mem::transmute;
use std::path::Path;
use std::ptr::NonNull;

use memmap2::Mmap;

use super::kind::Kind;
use crate::loading::dynamic::Library;

type Asked = unsafe extern "C" fn(*mut c_int) -> c_int;
type AskedTwice = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
type Told = unsafe extern "C" fn() -> usize;

/// The version as people write it; "of unknown version" where the library does not tell.
pub(crate) fn of(kind: Kind, library: &Library) -> String {
    let text = match kind {
        Kind::Driver => asked(library, "cuDriverGetVersion").map(|v| thousands(v as usize)),
        Kind::Nvrtc => nvrtc(library),
        Kind::CublasLt => told(library, "cublasLtGetVersion").map(ten_thousands),
        Kind::Cudnn => told(library, "cudnnGetVersion").map(ten_thousands),
        Kind::Nccl => asked(library, "ncclGetVersion").map(|v| ten_thousands(v as usize)),
    };
    let text = text.unwrap_or_else(|| "of unknown version".to_owned());
    match cuda_of(kind, library) {
        Some(cuda) => format!("{text} for CUDA {}", thousands(cuda as usize)),
        None => text,
    }
}

/// The version of CUDA that a library was made for whose own version does not say it, as the driver counts: 13020 is 13.2.
pub(crate) fn cuda_of(kind: Kind, library: &Library) -> Option<u32> {
    match kind {
        Kind::Cudnn => told(library, "cudnnGetCudartVersion").map(|version| version as u32),
        // It has no function for it, but a text.
        Kind::Nccl => in_text(&mapped(library.path())?),
        Kind::Driver | Kind::Nvrtc | Kind::CublasLt => None,
    }
}

/// The version in `NCCL version 2.27.3+cuda12.9`, wherever that stands.
fn in_text(bytes: &[u8]) -> Option<u32> {
    const BEFORE: &[u8] = b"NCCL version ";
    let mut rest = bytes;
    while let Some(at) = find(rest, BEFORE) {
        rest = &rest[at + BEFORE.len()..];
        let text: String = rest.iter().take(40).map(|&byte| char::from(byte)).collect();
        let Some((_, cuda)) = text.split_once("+cuda") else { continue };
        let end = cuda.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(cuda.len());
        if let Some((major, minor)) = cuda[..end].split_once('.') {
            return Some(major.parse::<u32>().ok()? * 1000 + minor.parse::<u32>().ok()? * 10);
        }
    }
    None
}

/// Where some bytes stand first.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let (start, len) = (bytes.as_ptr(), bytes.len());
    // SAFETY: two ranges of these lengths.
    let found = unsafe { libc::memmem(start.cast(), len, wanted.as_ptr().cast(), wanted.len()) };
    (!found.is_null()).then(|| found as usize - start as usize)
}

/// A file's bytes.
fn mapped(path: &Path) -> Option<Mmap> {
    let file = File::open(path).ok()?;
    // SAFETY: a library that is loaded, which nobody changes while it is in use.
    unsafe { Mmap::map(&file) }.ok()
}

/// The version of CUDA that a driver is made for.
pub(crate) fn cuda(driver: &Library) -> Option<u32> {
    asked(driver, "cuDriverGetVersion").map(|v| v as u32)
}

/// Its major version.
pub(crate) fn cuda_major(driver: &Library) -> Option<u32> {
    cuda(driver).map(|version| version / 1000)
}

/// 13020 is 13.2.
pub(crate) fn thousands(version: usize) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// 22703 is 2.27.3; 91002 (cuDNN) is 9.10.2; 130002 (cuBLASLt) is 13.0.2.
fn ten_thousands(version: usize) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

fn asked(library: &Library, function: &str) -> Option<c_int> {
    let symbol = library.symbol(function)?;
    let mut version = 0;
    // SAFETY: the version functions of the driver and of NCCL have this signature and need no
    // initialisation.
    let rc = unsafe { transmute::<NonNull<_>, Asked>(symbol)(&mut version) };
    (rc == 0 && version > 0).then_some(version)
}

/// What a function says that returns the version's number.
pub(crate) fn told(library: &Library, function: &str) -> Option<usize> {
    let symbol = library.symbol(function)?;
    // SAFETY: the version functions of cuBLASLt and cuDNN have this signature.
    Some(unsafe { transmute::<NonNull<_>, Told>(symbol)() })
}

fn nvrtc(library: &Library) -> Option<String> {
    let symbol = library.symbol("nvrtcVersion")?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the function's signature; it writes two numbers.
    let rc = unsafe { transmute::<NonNull<_>, AskedTwice>(symbol)(&mut major, &mut minor) };
    (rc == 0).then(|| format!("{major}.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nccl_tells_its_cuda_by_a_text() {
        let text = b"\0NCCL version \0%s\0NCCL version 2.27.3+cuda12.9\0\0more";
        assert_eq!(in_text(text), Some(12090));
        assert_eq!(in_text(b"NCCL version 2.27.3"), None);
        assert_eq!(in_text(b""), None);
    }

    #[test]
    fn versions_read_as_people_write_them() {
        assert_eq!(thousands(13020), "13.2");
        assert_eq!(thousands(12080), "12.8");
        assert_eq!(ten_thousands(22703), "2.27.3");
        assert_eq!(ten_thousands(91002), "9.10.2");
    }
}
