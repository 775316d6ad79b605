//! Starts processes by `posix_spawn` from one thread that never ends. `posix_spawn` does not copy
//! the parent's page tables (fork takes 100 ms with 6 GiB resident); the permanent thread is there
//! because a child's death signal fires when the *thread* that started it ends.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::mpsc;
use std::thread;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use parking_lot::Mutex;

use crate::error::{Error, Result};

/// A child to start.
pub(super) struct Command {
    /// This same executable, or what loads the library that this is.
    pub program: CString,
    /// From `argv[0]` on, which `ps` shows.
    pub arguments: Vec<CString>,
    /// The whole environment, `NAME=value` each.
    pub environment: Vec<CString>,
    /// Descriptors that the child gets, under the same numbers. Everything else is close-on-exec.
    pub inherit: Vec<OwnedFd>,
    /// The open file of the library that this is. It stays open here.
    pub library: Option<RawFd>,
    /// Whether it is to outlive this process: in a session of its own, with none of this process's standard streams.
    pub detached: bool,
}

/// A started process; whoever has it reaps it.
#[derive(Debug)]
pub(super) struct Started {
    pub pid: Pid,
    pub pidfd: OwnedFd,
}

struct Job {
    command: Command,
    reply: mpsc::SyncSender<Result<Started>>,
}

/// The way to the permanent thread, once it runs.
static SPAWNER: Mutex<Option<mpsc::Sender<Job>>> = Mutex::new(None);

/// Starts `command`; its copies of the inherited descriptors are closed here afterwards.
pub(super) fn start(command: Command) -> Result<Started> {
    let (reply, answer) = mpsc::sync_channel(1);
    let gone = |_| Error::Other("the thread that starts processes is gone".to_owned());
    spawner()?.send(Job { command, reply }).map_err(|_| gone(mpsc::RecvError))?;
    answer.recv().map_err(gone)?
}

fn spawner() -> Result<mpsc::Sender<Job>> {
    let mut slot = SPAWNER.lock();
    if let Some(sender) = &*slot {
        return Ok(sender.clone());
    }
    let (sender, jobs) = mpsc::channel::<Job>();
    thread::Builder::new()
        .name("torchrs-spawner".to_owned())
        .stack_size(256 << 10)
        .spawn(move || {
            // Signals are for the program's own threads.
            let _ = SigSet::all().thread_block();
            for Job { command, reply } in jobs {
                let _ = reply.send(posix_spawn(&command));
            }
        })
        .map_err(|e| Error::os("start the thread that starts processes", e))?;
    Ok(slot.insert(sender).clone())
}

/// A descriptor that stands for a process, free of the races of process ids.
pub(super) fn pidfd_open(pid: Pid) -> nix::Result<OwnedFd> {
    // SAFETY: plain system call; a descriptor that it returns is new and ours (close-on-exec).
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0);
        Errno::result(fd).map(|fd| OwnedFd::from_raw_fd(fd as i32))
    }
}

fn posix_spawn(command: &Command) -> Result<Started> {
    let pid = raw_posix_spawn(command).map_err(|e| {
        let why = match e {
            Errno::EAGAIN => {
                ": the limit of processes (`ulimit -u`, or the container's) is reached"
            }
            _ => "",
        };
        let program = command.program.to_string_lossy();
        Error::os(format!("start a process of this program ({program}){why}"), e)
    })?;
    match pidfd_open(pid) {
        Ok(pidfd) => Ok(Started { pid, pidfd }),
        Err(e) => {
            let _ = kill(pid, Signal::SIGKILL);
            let _ = waitpid(pid, None);
            Err(Error::os("open a descriptor for a new process", e))
        }
    }
}

/// `posix_spawn` with its attribute objects, which are freed on every path.
fn raw_posix_spawn(command: &Command) -> nix::Result<Pid> {
    let check = |code: i32| if code == 0 { Ok(()) } else { Err(Errno::from_raw(code)) };
    let mut argv: Vec<*mut c_char> =
        command.arguments.iter().map(|v| v.as_ptr().cast_mut()).collect();
    argv.push(ptr::null_mut());
    let mut envp: Vec<*mut c_char> =
        command.environment.iter().map(|v| v.as_ptr().cast_mut()).collect();
    envp.push(ptr::null_mut());

    let mut actions = MaybeUninit::<libc::posix_spawn_file_actions_t>::uninit();
    let mut attributes = MaybeUninit::<libc::posix_spawnattr_t>::uninit();
    // SAFETY: both objects are initialised before use and destroyed after; argv and envp are
    // null-terminated arrays of strings that outlive the call.
    unsafe {
        check(libc::posix_spawn_file_actions_init(actions.as_mut_ptr()))?;
        let result = check(libc::posix_spawnattr_init(attributes.as_mut_ptr())).and_then(|()| {
            let result = (|| {
                let inherit = command.inherit.iter().map(AsRawFd::as_raw_fd);
                for fd in inherit.chain(command.library) {
                    // Onto itself: that clears close-on-exec in the child and nowhere else, and
                    // no two numbers can be in each other's way.
                    check(libc::posix_spawn_file_actions_adddup2(actions.as_mut_ptr(), fd, fd))?;
                }
                for fd in (0..3).filter(|_| command.detached) {
                    let null = c"/dev/null".as_ptr();
                    let actions = actions.as_mut_ptr();
                    let add = libc::posix_spawn_file_actions_addopen;
                    check(add(actions, fd, null, libc::O_RDWR, 0))?;
                }
                // This thread blocks all signals; the child should not.
                let unblocked = SigSet::empty();
                let attributes = attributes.as_mut_ptr();
                check(libc::posix_spawnattr_setsigmask(attributes, unblocked.as_ref()))?;
                // Nor what this process ignores and a child must not: it is ended by SIGTERM, and waits
                // for children of its own.
                let mut heeded = SigSet::empty();
                heeded.add(Signal::SIGCHLD);
                heeded.add(Signal::SIGTERM);
                check(libc::posix_spawnattr_setsigdefault(attributes, heeded.as_ref()))?;
                let session = if command.detached { libc::POSIX_SPAWN_SETSID } else { 0 };
                let flags = libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
                let flags = flags | i32::from(session);
                check(libc::posix_spawnattr_setflags(attributes, flags as libc::c_short))?;
                let mut pid = 0;
                check(libc::posix_spawn(
                    &mut pid,
                    command.program.as_ptr(),
                    actions.as_ptr(),
                    attributes,
                    argv.as_ptr(),
                    envp.as_ptr(),
                ))?;
                Ok(Pid::from_raw(pid))
            })();
            libc::posix_spawnattr_destroy(attributes.as_mut_ptr());
            result
        });
        libc::posix_spawn_file_actions_destroy(actions.as_mut_ptr());
        result
    }
}
