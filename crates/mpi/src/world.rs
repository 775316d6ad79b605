//! The one MPI of a process: opened, initialised or adopted, and finalised at the process's end.

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use torchrs_error::{Error, Result};
use torchrs_job::deadline::Deadline;

use crate::abi::{Functions, Handles, THREAD_MULTIPLE};
use crate::communicator::Communicator;
use crate::failure::{Failure, Watch, within};
use crate::launcher::{Family, Found, Launcher, VARIABLE, find};
use crate::leaving::Leaving;
use crate::mpi::{Mpi, Ours, error_text, is_finalised};
use crate::operators::Operators;
use crate::tuning::tune;

/// The longest that MPI may take to end when all ranks have met.
const FINALISE: Duration = Duration::from_secs(5);

impl Mpi {
    /// The MPI of this process: of the family whose launcher has started it, opened and initialised at the first
    /// call. `TORCHRS_MPI_LIBRARY` names another file. Initialising waits for the other ranks, by the deadline.
    ///
    /// A process that ends with status 0 finalises MPI, which waits for the other ranks' end as long as the deadline
    /// was given. One that ends with another status, by `_exit`, by a signal, or after an operation has failed, does
    /// not: its launcher ends the others.
    ///
    /// # Errors
    /// No library, or one of another family than the launcher's; an MPI that does not know the launcher's other
    /// processes; less than `MPI_THREAD_MULTIPLE`; the deadline. A failure stays: MPI can be initialised only once.
    pub fn load(deadline: impl Into<Deadline>) -> Result<&'static Mpi> {
        static LOADED: Mutex<Option<Result<&'static Mpi>>> = Mutex::new(None);
        let (deadline, mut loaded) = (deadline.into(), LOADED.lock());
        let result = loaded.get_or_insert_with(|| {
            let launcher = Launcher::from_lookup(|name| std::env::var_os(name));
            let named = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
            Self::open(launcher, named.map(PathBuf::from).as_deref(), deadline)
        });
        result.clone()
    }

    /// [`load`](Self::load) of a given library, for tests: with `processes` as a launcher of `family` tells them.
    #[doc(hidden)]
    pub fn open_as(path: &Path, family: Family, processes: usize) -> Result<&'static Mpi> {
        let evidence = format!("SIZE={processes}");
        let launcher = Launcher { family, size: Some(processes), evidence };
        Self::open(Some(launcher), Some(path), Duration::from_secs(10).into())
    }

    fn open(
        launcher: Option<Launcher>,
        named: Option<&Path>,
        deadline: Deadline,
    ) -> Result<&'static Mpi> {
        let found = find(launcher.as_ref(), named)?;
        found.library.share();
        let what = match &launcher {
            Some(launcher) => {
                format!("MPI_Init_thread of {} ({})", found.version, launcher.evidence)
            }
            None => format!("MPI_Init_thread of {}", found.version),
        };
        let limit = deadline.limit();
        let start = move || Self::initialise(found, launcher, limit);
        let mpi = within(&what, deadline, &mut || None, start).map_err(Failure::into_error)??;
        let mpi: &'static Mpi = Box::leak(Box::new(mpi));
        if mpi.ours.is_some() {
            at_exit(mpi);
        }
        Ok(mpi)
    }

    fn initialise(found: Found, launcher: Option<Launcher>, limit: Duration) -> Result<Mpi> {
        let Found { library, family, version } = found;
        let lacks = |symbol| {
            let path = library.path().display();
            Error::Other(format!("MPI: {path} ({version}) has no symbol {symbol}"))
        };
        let functions = Functions::of(&library).map_err(lacks)?;
        let handles = Handles::of(family, &library).map_err(lacks)?;
        let failed = |call: &str, code| {
            Error::Other(format!("MPI: {call}: {}", error_text(&functions, code)))
        };
        let (mut is_initialised, mut level) = (0, 0);
        // SAFETY: may be called at any time; a place for the answer.
        unsafe { (functions.MPI_Initialized)(&raw mut is_initialised) };
        if is_finalised(&functions) {
            let text = "MPI: another part of this program has finalised it; it cannot begin again";
            return Err(Error::Other(text.to_owned()));
        }
        let call = if is_initialised == 0 { "MPI_Init_thread" } else { "MPI_Query_thread" };
        // SAFETY: MPI takes null for the command line; a place for the answer.
        let code = unsafe {
            match is_initialised {
                0 => (functions.MPI_Init_thread)(
                    std::ptr::null(),
                    std::ptr::null(),
                    THREAD_MULTIPLE,
                    &raw mut level,
                ),
                _ => (functions.MPI_Query_thread)(&raw mut level),
            }
        };
        if code != 0 {
            return Err(failed(call, code));
        }
        if level < THREAD_MULTIPLE {
            return Err(Error::Other(format!(
                "MPI: {version} gives thread level {level}; needed is {THREAD_MULTIPLE} (MPI_THREAD_MULTIPLE)"
            )));
        }
        let (mut size, mut last) = (0, 0);
        // SAFETY: MPI is initialised; the world, and places for the answers.
        unsafe {
            (functions.MPI_Comm_set_errhandler)(handles.world, handles.errors_return);
            (functions.MPI_Comm_set_errhandler)(handles.alone, handles.errors_return);
            (functions.MPI_Comm_size)(handles.world, &raw mut size);
        }
        if let Some(launcher) = launcher
            && let Some(expected) = launcher.size
            && usize::try_from(size) != Ok(expected)
        {
            return Err(Error::Other(format!(
                "MPI: {}'s launcher has started {expected} processes ({}), but {version} ({}) knows {size}: \
                 it is not that launcher's MPI. Name the right library with {VARIABLE}",
                launcher.family,
                launcher.evidence,
                library.path().display()
            )));
        }
        // SAFETY: as above; all ranks do this first.
        let code = unsafe { (functions.MPI_Comm_dup)(handles.world, &raw mut last) };
        if code != 0 {
            return Err(failed("MPI_Comm_dup", code));
        }
        tune(family, &library);
        let leaving = Leaving::of(family, &library, &version, |name| std::env::var_os(name));
        let operators =
            Operators::make(&functions).map_err(|code| failed("MPI_Op_create", code))?;
        Ok(Mpi {
            functions,
            handles,
            operators,
            family,
            version,
            path: library.path().to_owned(),
            finalised: RwLock::new(false),
            in_flight: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            last,
            ours: (is_initialised == 0).then(|| Ours { pid: process::id(), limit }),
            leaving,
        })
    }

    /// The communicator of all ranks. Its operations are in one order with those of all that hold it.
    ///
    /// # Errors
    /// [`Failure::Failed`] in MPI's words.
    pub fn world(&'static self) -> Result<Communicator, Failure> {
        Communicator::predefined(self, self.handles.world)
    }

    /// The communicator of this rank alone.
    ///
    /// # Errors
    /// [`Failure::Failed`] in MPI's words.
    pub fn alone(&'static self) -> Result<Communicator, Failure> {
        Communicator::predefined(self, self.handles.alone)
    }

    /// Ends MPI after a meeting of all ranks; nothing of it can be used afterwards. Done by itself at the exit of the
    /// process. Does nothing where another part of the program has initialised MPI.
    ///
    /// # Errors
    /// A deadline, the watch's words, MPI's error, and that an operation has failed before or still runs.
    pub fn finalise(
        &'static self,
        deadline: impl Into<Deadline>,
        watch: &mut Watch<'_>,
    ) -> Result<(), Failure> {
        let deadline = deadline.into();
        if *self.finalised.read() || self.ours.is_none() {
            return Ok(());
        }
        if self.failed.load(Ordering::Acquire) {
            return Err(Failure::failed("MPI_Finalize: an operation has failed before"));
        }
        if self.in_flight.load(Ordering::Acquire) > 0 {
            return Err(Failure::failed("MPI_Finalize: an operation still runs"));
        }
        if let Some(leaving) = self.leaving {
            leaving.leave(&deadline, watch, || self.progress())?;
            *self.finalised.write() = true;
            return Ok(());
        }
        Communicator::predefined(self, self.last)?.barrier()?.wait(deadline, watch)?;
        // All ranks are here, so what follows is short.
        let rest = Deadline::after(deadline.remaining().min(FINALISE));
        within("MPI_Finalize", rest, watch, || {
            let mut finalised = self.finalised.write();
            // SAFETY: initialised here; no other call runs (the lock), and none follows (what it guards).
            let code = unsafe { (self.functions.MPI_Finalize)() };
            *finalised = true;
            self.check("MPI_Finalize", code).map_err(Failure::failed)
        })?
    }
}

/// Registers the finalising at exit. Where the C library does not tell the exit status, MPI is left as it is.
fn at_exit(mpi: &'static Mpi) {
    type OnExit = unsafe extern "C" fn(extern "C" fn(c_int, *mut c_void), *mut c_void) -> c_int;
    static ON_EXIT: OnceLock<Option<OnExit>> = OnceLock::new();
    let on_exit = ON_EXIT.get_or_init(|| {
        // SAFETY: a C string; glibc's function of that name has this signature.
        unsafe {
            let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"on_exit".as_ptr());
            (!symbol.is_null()).then(|| std::mem::transmute::<*mut c_void, OnExit>(symbol))
        }
    });
    if let Some(on_exit) = on_exit {
        // SAFETY: a function of the right signature, with a value that lives for ever.
        unsafe { on_exit(exiting, std::ptr::from_ref(mpi).cast_mut().cast()) };
    }
}

extern "C" fn exiting(status: c_int, mpi: *mut c_void) {
    // SAFETY: what `at_exit` registered: an `Mpi` that lives for ever.
    let mpi: &'static Mpi = unsafe { &*mpi.cast::<Mpi>() };
    let Some(ours) = mpi.ours.as_ref().filter(|ours| ours.pid == process::id()) else { return };
    if status != 0
        || mpi.failed.load(Ordering::Acquire)
        || mpi.in_flight.load(Ordering::Acquire) > 0
    {
        return;
    }
    if let Err(failure) = mpi.finalise(ours.limit, &mut || None) {
        eprintln!("torchrs: MPI is not finalised: {failure}");
    }
}
