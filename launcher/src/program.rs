//! From the PROGRAM of the command line to an executable file, or to exit code 127 or 126 with
//! the places that were searched. The order is that of `--help`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::cargo;
use crate::executable::{check, on_path};
use crate::failure::{Failure, NOT_FOUND};
use crate::tool::Overseer;

/// The executable that `name` stands for, built first if it is a target of the workspace.
pub fn find(overseer: &mut Overseer, name: &OsStr, no_build: bool) -> Result<PathBuf, Failure> {
    if name.as_encoded_bytes().contains(&b'/') {
        return check(Path::new(name)).map(|()| name.into());
    }
    let mut searched = Vec::new();
    if !no_build && let Some(text) = name.to_str() {
        match cargo::Workspace::around_current_folder(overseer)? {
            Ok(workspace) => match workspace.target(text) {
                Some(target) => return target.build(overseer),
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

/// Where this executable lies.
pub fn own_folder() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.to_owned())
}
