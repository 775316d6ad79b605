//! What happens before a program's own code: taking over when this process is a re-executed child,
//! dying with the parent, the panic report, and the descriptors that the launcher passes down.
//! No thread starts and no pool is built here: it costs microseconds.

use std::ffi::{OsStr, OsString, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};
use std::{env, fs, process, thread};

use nix::poll::PollFlags;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{Pid, SysconfVar, getppid, sysconf};
use parking_lot::Mutex;
use torchrs_job::board;
use torchrs_job::cluster::ClusterTask;

use super::entry::{self, CHILD};
use super::quit::quit;
use super::report::{self, take_inherited};
use super::socket::wait_ready;
use super::spawner::pidfd_open;
use super::variables::unknown_variables;
use super::{MAX_CONNECTIONS, PARENT_PID, STORE_FD};
use crate::error::{self, Error, pipes};
use crate::profiler;

static STORE: Mutex<Option<OwnedFd>> = Mutex::new(None);
static HOOKED: AtomicBool = AtomicBool::new(false);

/// Prepares the process: call it first in `main`, before any thread starts, or put
/// [`#[torchrs::main]`](macro@crate::main) on `main`, which does. Further calls do nothing.
///
/// - In a child that [`Process`](super::Process) or [`spawn`](super::spawn) started by re-executing
///   this program, it runs the child's entry function and **never returns**.
/// - Under a launcher (`TORCHRS_PARENT_PID`) the process is killed when the launcher ends, however
///   that happens.
/// - SIGCHLD that was ignored by whoever started the process is not, so that children can be waited for.
/// - A `println!` to a pipe that nobody reads any more ends the process quietly, by SIGPIPE.
/// - When `TORCHELASTIC_ERROR_FILE` is set, a panic leaves its message and backtrace there.
/// - `CUDA_DEVICE_MAX_CONNECTIONS` becomes 32, if it is not set: streams of a GPU that share one of the usual 8
///   hardware queues wait for each other, also for a message from another rank.
/// - `OMP_NUM_THREADS` gets the share of the cores of one of `LOCAL_WORLD_SIZE` processes, if it is
///   not set and `LOCAL_WORLD_SIZE` is, or of one task of srun or mpirun on this host.
///
/// A variable that begins with `TORCHRS_` and that nothing reads is named on standard error: it may be a slip.
/// A value in one of the variables above that cannot be used ends the process with exit code 2 and a
/// message that names the variable.
///
/// ```
/// fn main() -> torchrs::Result<()> {
///     torchrs::init();
///     torchrs::multiprocessing::spawn(|rank: usize, ranks: usize| assert!(rank < ranks), 2, 2)
/// }
/// ```
pub fn init() {
    set_up();
    if let Some(request) = entry::requested() {
        entry::run(request);
    }
    profiler::announce();
}

/// Prepares a process whose program is another one, an interpreter for instance, that has loaded a library with torchrs
/// in it: children are started by `restart`. Call it when the library is loaded. Further calls do nothing.
///
/// In such a child it runs the child's entry function and **never returns**; in any other process it changes nothing
/// but that children can be started. Without it [`Process::spawn`](super::Process::spawn) is an error in a library,
/// since what it would start is the other program.
///
/// ```no_run
/// use std::ffi::OsStr;
/// use torchrs::multiprocessing::{Restart, init_library};
/// let library = std::fs::File::open("/usr/lib/liboptics.so").unwrap();
/// init_library(|| Restart::new(library.into(), OsStr::new("/usr/bin/host"), |library| vec![format!("--load={library}")]));
/// ```
pub fn init_library(restart: impl FnOnce() -> Restart) {
    RESTART.get_or_init(restart);
    if let Some(request) = entry::requested() {
        set_up();
        entry::run(request);
    }
}

/// How a child comes to run the library that this code is in: a program, and arguments that have it load the library.
#[derive(Debug)]
pub struct Restart {
    /// Children have it under the same number.
    library: OwnedFd,
    program: OsString,
    arguments: Vec<String>,
}

impl Restart {
    /// `library` is the library's file, open: a child gets that file, whatever stands in its place by then.
    /// `arguments` are made of the path by which it finds it. The program is to do nothing before it has loaded it.
    pub fn new(
        library: OwnedFd,
        program: &OsStr,
        arguments: impl FnOnce(&str) -> Vec<String>,
    ) -> Restart {
        let arguments = arguments(&format!("/proc/self/fd/{}", library.as_raw_fd()));
        Restart { library, program: program.to_owned(), arguments }
    }

    pub(super) fn library(&self) -> RawFd {
        self.library.as_raw_fd()
    }

    pub(super) fn program(&self) -> &OsStr {
        &self.program
    }

    pub(super) fn arguments(&self) -> &[String] {
        &self.arguments
    }
}

static RESTART: OnceLock<Restart> = OnceLock::new();

/// How children are started where this code is in a library.
pub(super) fn restart() -> Option<&'static Restart> {
    RESTART.get()
}

fn set_up() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        heed_children();
        pipes::install();
        HOOKED.store(true, Ordering::Release);
        error::install_hook();
        report::install();
        if let Some(number) = variable(STORE_FD) {
            *STORE.lock() = take_inherited(number, "socket:");
        }
        board::install();
        share_cores();
        set_alone(MAX_CONNECTIONS.0, || Some(MAX_CONNECTIONS.1.to_owned()));
        match variable(PARENT_PID) {
            Some(pid) => end_with(Pid::from_raw(pid)),
            // Elsewhere the one that starts this process has said it.
            None => {
                unknown_variables().iter().for_each(|line| report::say(&format!("torchrs: {line}")))
            }
        }
    });
}

/// True once children can be started: this program runs [`init`] or the hook below, so that a child
/// takes over before the program's own code runs again.
pub(super) fn is_hooked() -> bool {
    RESTART.get().is_some() || (HOOKED.load(Ordering::Acquire) && entry::is_in_program())
}

/// The socket to the rendezvous store that the launcher passed down, for whoever asks first.
///
/// ```
/// use torchrs::distributed::{Store, StoreServer};
/// use torchrs::multiprocessing::{Process, STORE_FD, inherited_store_fd};
/// let server = StoreServer::start()?;
/// let worker = |_: ()| Store::connect_fd(inherited_store_fd().unwrap())?.set("ready", b"yes");
/// Process::builder().inherit(STORE_FD, server.connect()?).spawn(worker, ())?.join()?;
/// assert_eq!(Store::connect_fd(server.connect()?)?.try_get("ready")?.unwrap(), b"yes");
/// # Ok::<(), torchrs::Error>(())
/// ```
pub fn inherited_store_fd() -> Option<OwnedFd> {
    set_up();
    STORE.lock().take()
}

/// Runs before `main` in every program that links torchrs, so that children start right where
/// somebody else owns `main` (a test harness) or where `main` forgot to call [`init`]. In any other
/// process it costs a look at the environment and at SIGCHLD, and a panic hook that only closed pipes
/// meet. In a library that another program loads it does nothing: see [`init_library`].
extern "C" fn before_main(_: c_int, _: *const *const c_char, _: *const *const c_char) {
    if !entry::is_in_program() {
        return;
    }
    HOOKED.store(true, Ordering::Release);
    // A panic must not leave an `extern "C"` function.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        heed_children();
        pipes::install();
        if env::var_os(CHILD).is_none() {
            return;
        }
        // The runtime that would do this has not started yet: a broken pipe is an error value, not
        // the end of the process.
        // SAFETY: no handler function is installed.
        let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
        init();
    }));
    if outcome.is_err() {
        process::exit(101);
    }
}

// SAFETY: the section holds functions of exactly this signature, which the C runtime calls once,
// on the main thread, after relocation and the initialisers of libc and of the standard library.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = before_main;

/// Has the kernel keep how children ended until they are waited for. Whoever starts this process may
/// ignore SIGCHLD (daemons and window managers do), which lasts through exec, and then every child's exit
/// code is lost.
fn heed_children() {
    // SAFETY: sigaction is plain data; a null new action only reads the old one, and the default action
    // is no function of this program.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        let known = libc::sigaction(libc::SIGCHLD, std::ptr::null(), &mut old) == 0;
        if known && old.sa_sigaction == libc::SIG_IGN {
            let _ = signal(Signal::SIGCHLD, SigHandler::SigDfl);
        }
    }
}

/// A variable's value; a value of the wrong form ends the process.
fn variable<T: FromStr>(name: &str) -> Option<T> {
    let value = env::var_os(name)?;
    match value.to_str().and_then(|text| text.trim().parse().ok()) {
        Some(value) => Some(value),
        None => quit(&Error::config(name, format!("{value:?} is not a number of the right range"))),
    }
}

/// Has the kernel kill this process when its parent ends.
fn end_with(parent: Pid) {
    let armed = set_pdeathsig(Signal::SIGKILL);
    if getppid() == parent {
        // Checked after the arming: had the parent gone before it, this would not be our parent.
        if let Err(e) = armed {
            quit(&Error::os("have this process end with its parent (PR_SET_PDEATHSIG)", e));
        }
        return;
    }
    // A process in between (a shell script that starts the worker) may come and go as it likes.
    let _ = set_pdeathsig(None);
    match pidfd_open(parent) {
        Ok(pidfd) => {
            let watch = move || {
                let _ = wait_ready(pidfd.as_fd(), PollFlags::POLLIN, None);
                let _ = nix::sys::signal::kill(Pid::this(), Signal::SIGKILL);
            };
            let name = "torchrs-watch".to_owned();
            if let Err(e) = thread::Builder::new().name(name).stack_size(128 << 10).spawn(watch) {
                quit(&Error::os(format!("watch {PARENT_PID}={parent}"), e));
            }
        }
        Err(_) => quit(&Error::config(
            PARENT_PID,
            format!("process {parent}, which started this one, is gone"),
        )),
    }
}

/// Gives this process its share of the cores where several run on this host and nobody has said
/// how many threads each should take.
fn share_cores() {
    set_alone("OMP_NUM_THREADS", || {
        let processes = variable::<usize>("LOCAL_WORLD_SIZE");
        processes.map(cores_for).or_else(cores_for_task).map(|cores| cores.to_string())
    });
}

/// How many threads a task of srun or mpirun should compute with. Starters may have bound each task to cores of its
/// own: those are not shared once more.
fn cores_for_task() -> Option<usize> {
    if env::var_os("WORLD_SIZE").is_some() {
        return None;
    }
    let tasks = ClusterTask::from_env()?.local_size?;
    let available = thread::available_parallelism().map_or(1, usize::from);
    if let Some(cores) = variable::<usize>("SLURM_CPUS_PER_TASK") {
        return Some(cores.clamp(1, available));
    }
    let online = || sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    let all = variable::<usize>("SLURM_CPUS_ON_NODE").or_else(|| online()?.try_into().ok());
    Some(all.map_or(available, |all| (all / tasks).clamp(1, available)))
}

/// Sets a variable that is not set, where no other thread exists that could read the environment meanwhile.
fn set_alone(name: &str, value: impl FnOnce() -> Option<String>) {
    if env::var_os(name).is_some() {
        return;
    }
    let Some(value) = value() else { return };
    if fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1) {
        // SAFETY: no other thread exists.
        unsafe { env::set_var(name, value) };
    }
}

/// How many threads each of `processes` processes on this host should compute with.
pub(super) fn cores_for(processes: usize) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (cores / processes.max(1)).max(1)
}
