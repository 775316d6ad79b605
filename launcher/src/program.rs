//! From the PROGRAM of the command line to an executable file, or to exit code 127 or 126 with
//! the places that were searched. The order is that of `--help`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use crate::cargo;
use crate::failure::{CANNOT_EXECUTE, Failure, NOT_FOUND};
use crate::front::Front;

/// The executable that `name` stands for, built first if it is a target of the workspace.
pub fn find(front: &mut Front, name: &OsStr, no_build: bool) -> Result<PathBuf, Failure> {
    if name.as_encoded_bytes().contains(&b'/') {
        return check(Path::new(name)).map(|()| name.into());
    }
    let mut searched = Vec::new();
    if !no_build && let Some(text) = name.to_str() {
        match cargo::Workspace::around_current_folder(front)? {
            Ok(workspace) => match workspace.target(text) {
                Some(target) => return target.build(front),
                None => searched.push(workspace.describe()),
            },
            Err(reason) => searched.extend(reason),
        }
    }
    if let Some(folder) = own_folder() {
        for candidate in [folder.join(name), folder.join("examples").join(name)] {
            if check(&candidate).is_ok() {
                return Ok(candidate);
            }
        }
        searched.push(format!("beside torchrs-launch ({})", folder.display()));
    }
    searched.push("PATH".into());
    on_path(name).unwrap_or_else(|| {
        let name = name.to_string_lossy();
        let list = searched.join("\n  ");
        Err(Failure::with_code(NOT_FOUND, format!("no program `{name}`; searched:\n  {list}")))
    })
}

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

/// Where this executable lies.
fn own_folder() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.to_owned())
}

/// Whether `path` can be executed.
fn check(path: &Path) -> Result<(), Failure> {
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
