//! The end of a process that was started wrongly.

use std::process;

use super::report;
use crate::error::Error;

/// Ends the process over a configuration error, before the program has begun.
pub(super) fn quit(error: &Error) -> ! {
    report::say(&format!("Error: {error}"));
    report::record(error);
    process::exit(2);
}
