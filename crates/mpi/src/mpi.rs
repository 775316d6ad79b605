//! MPI, open and initialised: what every call of it needs.

use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};

use crate::abi::{ANY_TAG, Functions, Handle, Handles, MPICH_ANY_SOURCE, Status};
use crate::launcher::Family;
use crate::leaving::Leaving;
use crate::library::text;
use crate::operators::Operators;

/// MPI, open and initialised.
#[derive(Debug)]
pub struct Mpi {
    pub(crate) functions: Functions,
    pub(crate) handles: Handles,
    pub(crate) operators: Operators,
    pub(crate) family: Family,
    pub(crate) version: String,
    pub(crate) path: PathBuf,
    /// Of a call of MPI its readers; of finalising its writer. True afterwards.
    pub(crate) finalised: RwLock<bool>,
    /// Operations that were started and have not ended well.
    pub(crate) in_flight: AtomicUsize,
    /// Whether some operation has failed: finalising would wait for ranks that may never come.
    pub(crate) failed: AtomicBool,
    /// For the meeting before the end: of all ranks, and of no other operation.
    pub(crate) last: Handle,
    pub(crate) ours: Option<Ours>,
    /// Where MPI is not finalised: how the process takes leave instead.
    pub(crate) leaving: Option<Leaving>,
}

/// What is known where this process has initialised MPI, and so finalises it.
#[derive(Debug)]
pub(crate) struct Ours {
    pub(crate) pid: u32,
    /// How long the exit of the process waits for the other ranks'.
    pub(crate) limit: Duration,
}

impl std::fmt::Debug for Functions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Functions")
    }
}

impl Mpi {
    /// The library's family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The library's name and version in its own words.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The library's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says that the program goes on no more as its ranks had agreed: a process has died, say. MPI is then not
    /// finalised, as after an operation that has failed: ranks might wait for one that never comes.
    pub fn give_up(&self) {
        self.fail();
    }

    /// Keeps MPI from being finalised while the guard lives.
    pub(crate) fn enter(&self) -> Result<RwLockReadGuard<'_, bool>, String> {
        // Finalising may hang, and whoever waited for it with it.
        let guard = self.finalised.try_read().ok_or("is being finalised")?;
        // Who has initialised it may finalise it.
        let theirs = self.ours.is_none() && is_finalised(&self.functions);
        if *guard || theirs { Err("is finalised".to_owned()) } else { Ok(guard) }
    }

    /// Lets MPICH answer other processes.
    pub(crate) fn progress(&self) {
        let (mut flag, mut status) = (0, Status([0; 64]));
        if let Ok(_open) = self.enter() {
            // SAFETY: MPI is open; a communicator of its own, and places for the answers. It takes no message.
            unsafe {
                (self.functions.MPI_Iprobe)(
                    MPICH_ANY_SOURCE,
                    ANY_TAG,
                    self.last,
                    &raw mut flag,
                    &raw mut status,
                );
            }
        }
    }

    pub(crate) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// The error is the call with MPI's text.
    pub(crate) fn check(&self, call: &str, code: c_int) -> Result<(), String> {
        match code {
            0 => Ok(()),
            code => Err(format!("{call}: {}", error_text(&self.functions, code))),
        }
    }
}

pub(crate) fn is_finalised(functions: &Functions) -> bool {
    let mut flag = 0;
    // SAFETY: may be called at any time; a place for the answer.
    unsafe { (functions.MPI_Finalized)(&raw mut flag) };
    flag != 0
}

pub(crate) fn error_text(functions: &Functions, code: c_int) -> String {
    // SAFETY: `text` passes room for either family's longest text; any code may be asked about.
    let (asked, words) = text(|to, len| unsafe { (functions.MPI_Error_string)(code, to, len) });
    if asked == 0 && !words.is_empty() { words } else { format!("error {code}") }
}
