//! The versions of CUDA's libraries, as each one tells it by a function of its own.

use std::ffi::c_int;
use std::mem::transmute;
use std::ptr::NonNull;

use super::dynamic::Library;
use super::library::Kind;

type Asked = unsafe extern "C" fn(*mut c_int) -> c_int;
type AskedTwice = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
type Told = unsafe extern "C" fn() -> usize;

/// The version as people write it; "of unknown version" where the library does not tell.
pub(super) fn of(kind: Kind, library: &Library) -> String {
    let text = match kind {
        Kind::Driver => asked(library, "cuDriverGetVersion").map(|v| thousands(v as usize)),
        Kind::Nvrtc => nvrtc(library),
        Kind::CublasLt => told(library, "cublasLtGetVersion").map(ten_thousands),
        Kind::Cudnn => told(library, "cudnnGetVersion").map(ten_thousands),
        Kind::Nccl => asked(library, "ncclGetVersion").map(|v| ten_thousands(v as usize)),
    };
    text.unwrap_or_else(|| "of unknown version".to_owned())
}

/// The major version of CUDA that a driver is made for.
pub(super) fn cuda_major(driver: &Library) -> Option<u32> {
    asked(driver, "cuDriverGetVersion").map(|v| v as u32 / 1000)
}

/// 13020 is 13.2.
fn thousands(version: usize) -> String {
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
pub(super) fn told(library: &Library, function: &str) -> Option<usize> {
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
    fn versions_read_as_people_write_them() {
        assert_eq!(thousands(13020), "13.2");
        assert_eq!(thousands(12080), "12.8");
        assert_eq!(ten_thousands(22703), "2.27.3");
        assert_eq!(ten_thousands(91002), "9.10.2");
    }
}
