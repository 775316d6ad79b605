//! Why the launcher itself cannot go on: a message for the user and the exit code that goes
//! with it.

use std::fmt;

/// Exit code where something hindered the launcher itself.
pub const OWN: i32 = 1;
/// Exit code where PROGRAM cannot be executed.
pub const CANNOT_EXECUTE: i32 = 126;
/// Exit code where PROGRAM is not there.
pub const NOT_FOUND: i32 = 127;
/// What is added to the number of a signal, as shells do.
pub const SIGNAL: i32 = 128;

/// An error of the launcher, not of a worker.
#[derive(Debug)]
pub struct Failure {
    /// The launcher's exit code.
    pub code: i32,
    /// What was tried, on what, why it failed, what would help.
    pub message: String,
}

impl Failure {
    /// With the exit code [`OWN`].
    pub fn new(message: impl Into<String>) -> Self {
        Failure { code: OWN, message: message.into() }
    }

    pub fn with_code(code: i32, message: impl Into<String>) -> Self {
        Failure { code, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "torchrs-launch: {}", self.message)
    }
}

/// Adds what was being done to a system error.
pub trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(format!("{}: {error}", what())))
    }
}
