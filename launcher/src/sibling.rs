//! Programs that `torchrs` becomes, of packages of their own: they need tensors, which this package does without.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process;

use crate::console::say;
use crate::executable::{check, on_path};
use crate::failure::{CANNOT_EXECUTE, Failure, NOT_FOUND};
use crate::program::own_folder;

/// Such a program.
pub struct Sibling {
    /// What the user calls, for messages.
    pub command: &'static str,
    /// The program's file.
    pub name: &'static str,
    /// Its package's folder in a clone.
    pub folder: &'static str,
}

impl Sibling {
    /// Becomes the program; returns the exit code when it cannot.
    pub fn run(&self, args: impl IntoIterator<Item = OsString>) -> i32 {
        let failure = match self.find() {
            Ok(program) => {
                let error = process::Command::new(&program).args(args).exec();
                let message = format!("cannot run {}: {error}", program.display());
                Failure::with_code(CANNOT_EXECUTE, message)
            }
            Err(failure) => failure,
        };
        say(&format!("{}: {}\n", self.command, failure.message));
        failure.code
    }

    /// The program beside this one, or on PATH.
    fn find(&self) -> Result<PathBuf, Failure> {
        let Sibling { name, folder, .. } = self;
        let beside = own_folder().map(|folder| folder.join(name));
        if let Some(beside) = beside.filter(|beside| check(beside).is_ok()) {
            return Ok(beside);
        }
        on_path(OsStr::new(name)).unwrap_or_else(|| {
            let what = format!(
                "no program `{name}` beside torchrs or on PATH; in a clone of torchrs `cargo install --path {folder}` installs it"
            );
            Err(Failure::with_code(NOT_FOUND, what))
        })
    }
}
