//! Executable files: by path, and by name on PATH.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use crate::failure::{CANNOT_EXECUTE, Failure, NOT_FOUND};

/// The first executable called `name` in the folders of PATH; an error if there are only files
/// that cannot be executed.
pub fn on_path(name: &OsStr) -> Option<Result<PathBuf, Failure>> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut refused = None;
    for candidate in std::env::split_paths(&path).map(|folder| folder.join(name)) {
        match check(&candidate) {
            Ok(()) => return Some(Ok(candidate)),
            Err(failure) if failure.code == CANNOT_EXECUTE && candidate.is_file() => {
                refused.get_or_insert(failure);
            }
            Err(_) => {}
        }
    }
    refused.map(Err)
}

/// Whether `path` can be executed.
pub fn check(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let info = path.metadata().map_err(|error| {
        let code = if error.kind() == std::io::ErrorKind::PermissionDenied {
            CANNOT_EXECUTE
        } else {
            NOT_FOUND
        };
        Failure::with_code(code, format!("cannot run {shown}: {error}"))
    })?;
    if info.is_dir() {
        return Err(Failure::with_code(
            CANNOT_EXECUTE,
            format!("cannot run {shown}: it is a folder"),
        ));
    }
    access(path, AccessFlags::X_OK).map_err(|_| {
        let message = format!("cannot run {shown}: it is not executable (chmod +x would help)");
        Failure::with_code(CANNOT_EXECUTE, message)
    })
}
