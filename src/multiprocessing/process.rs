//! One child process: this same program, re-executed, running one function. The handle owns the
//! child: dropping it kills and reaps, so neither an orphan nor a zombie stays behind.

use std::any::type_name;
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::channel::Channel;
use super::entry::{self, CHILD, Entry};
use super::exit_status::ExitStatus;
use super::handles::encode;
use super::init::{is_hooked, restart};
use super::oom::oom_kills;
use super::report::{ERROR_FILE, ErrorRecord, Outcome};
use super::socket::{Failure, pair, send, wait_ready};
use super::spawner::{self, Command, Started};
use super::{PARENT_PID, STORE_FD};
use crate::error::{Context, Error, Result};

/// Variables that concern one process only.
const OWN: [&str; 3] = [STORE_FD, PARENT_PID, ERROR_FILE];
/// How long a killed child is waited for.
const REAP_TIMEOUT: Duration = Duration::from_secs(10);

/// A child process. Dropping the handle kills the child (SIGKILL) and reaps it; [`join`](Self::join)
/// it to let it finish.
///
/// The child dies with this process, however this process ends. It inherits the environment and the
/// standard streams, and no descriptor except those that its arguments carry.
///
/// ```
/// use torchrs::multiprocessing::Process;
/// let child = Process::spawn(|(x, y): (u32, u32)| assert_eq!(x + y, 5), (2, 3))?;
/// child.join()?;
/// let child = Process::spawn(|(x, y): (u32, u32)| assert_eq!(x + y, 5), (2, 4))?;
/// assert!(child.join().unwrap_err().to_string().contains("exited with code 101"));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug)]
pub struct Process {
    name: String,
    started: Started,
    record: File,
    oom_kills_before: Option<u64>,
    status: Mutex<Option<ExitStatus>>,
}

impl Process {
    /// Runs `f(args)` in a new process. `f` is a function, or a closure that captures nothing;
    /// `args` are serialised (postcard), with tensors and channels by handle, and dropped here.
    ///
    /// ```no_run
    /// use torchrs::multiprocessing::{Process, Receiver, channel};
    /// fn worker(numbers: Receiver<u64>) -> torchrs::Result<()> {
    ///     println!("got {}", numbers.recv()?);
    ///     Ok(())
    /// }
    ///
    /// # #[torchrs::main]
    /// fn main() -> torchrs::Result<()> {
    ///     let (tx, rx) = channel()?;
    ///     let child = Process::spawn(worker, rx)?;
    ///     tx.send(&7)?;
    ///     child.join()
    /// }
    /// ```
    ///
    /// # Errors
    /// When `args` cannot be serialised, or the system refuses another process or descriptor, which
    /// names the limit.
    pub fn spawn<F, A, R>(f: F, args: A) -> Result<Process>
    where
        F: Fn(A) -> R + Copy + 'static,
        A: Serialize + DeserializeOwned,
        R: Outcome,
    {
        Self::builder().spawn(f, args)
    }

    /// Options for a child: its name, environment and inherited descriptors.
    ///
    /// ```
    /// use torchrs::multiprocessing::Process;
    /// let check = |_: ()| assert_eq!(std::env::var("MODE").unwrap(), "fast");
    /// let child = Process::builder().name("helper").env("MODE", "fast").spawn(check, ())?;
    /// assert_eq!(child.name(), "helper");
    /// child.join()?;
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn builder() -> ProcessBuilder {
        ProcessBuilder::default()
    }

    /// The name given to the builder, or the function's path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id.
    pub fn pid(&self) -> i32 {
        self.started.pid.as_raw()
    }

    /// How the child ended, if it has.
    ///
    /// ```
    /// use std::{thread::sleep, time::Duration};
    /// use torchrs::multiprocessing::Process;
    /// let child = Process::spawn(sleep, Duration::from_secs(60))?;
    /// assert_eq!(child.try_wait()?, None);
    /// child.kill()?;
    /// child.wait()?;
    /// assert_eq!(child.try_wait()?.unwrap().signal(), Some(9));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when the system does not say.
    pub fn try_wait(&self) -> Result<Option<ExitStatus>> {
        let mut status = self.status.lock();
        if status.is_none() {
            *status = self.reap()?;
        }
        Ok(*status)
    }

    /// Collects the child's status if it has ended.
    fn reap(&self) -> Result<Option<ExitStatus>> {
        loop {
            // SAFETY: siginfo_t is plain data; waitid fills it. The two accessors read fields that
            // waitid defines, and all-zero means that no child has ended.
            let (result, pid, code, status) = unsafe {
                let mut info: libc::siginfo_t = mem::zeroed();
                let result = libc::waitid(
                    libc::P_PIDFD,
                    self.started.pidfd.as_raw_fd() as libc::id_t,
                    &mut info,
                    libc::WEXITED | libc::WNOHANG,
                );
                (result, info.si_pid(), info.si_code, info.si_status())
            };
            match Errno::result(result) {
                Ok(_) if pid == 0 => return Ok(None),
                Ok(_) => return Ok(Some(ExitStatus::from_siginfo(code, status))),
                Err(Errno::EINTR) => {}
                Err(Errno::ECHILD) => return Ok(Some(ExitStatus::Unknown)),
                Err(e) => return Err(Error::os(format!("wait for {}", self.who()), e)),
            }
        }
    }

    /// Waits until the child has ended.
    ///
    /// ```
    /// use torchrs::multiprocessing::Process;
    /// fn quit(code: i32) {
    ///     std::process::exit(code)
    /// }
    /// let child = Process::spawn(quit, 3)?;
    /// assert_eq!(child.wait()?.shell_code(), 3);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when the system does not say how.
    pub fn wait(&self) -> Result<ExitStatus> {
        self.wait_until(None)
    }

    /// As [`wait`](Self::wait), for at most `timeout`.
    ///
    /// ```
    /// use std::{thread::sleep, time::Duration};
    /// use torchrs::multiprocessing::Process;
    /// let child = Process::spawn(sleep, Duration::from_secs(60))?;
    /// assert!(matches!(child.wait_timeout(Duration::from_millis(10)), Err(torchrs::Error::Timeout { .. })));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] when the child still runs then.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<ExitStatus> {
        self.wait_until(Instant::now().checked_add(timeout)).map_err(|error| match error {
            Error::Timeout { message, .. } => {
                Error::Timeout { seconds: timeout.as_secs_f64(), message }
            }
            other => other,
        })
    }

    fn wait_until(&self, deadline: Option<Instant>) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if !wait_ready(self.as_fd(), PollFlags::POLLIN, deadline)? {
                let message = format!("{} still runs", self.who());
                return Err(Error::Timeout { seconds: 0.0, message });
            }
        }
    }

    /// Waits for a child that was killed, though not for ever: it may be stuck in the kernel.
    pub(super) fn reap_killed(&self) -> Result<()> {
        match self.wait_timeout(REAP_TIMEOUT) {
            Ok(_) | Err(Error::Timeout { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits until the child has ended, and turns a failure of it into an error.
    ///
    /// ```
    /// use torchrs::multiprocessing::Process;
    /// let refuse = |name: String| Err::<(), _>(format!("no dataset {name}"));
    /// let error = Process::builder().name("reader").spawn(refuse, "mnist".to_owned())?.join().unwrap_err();
    /// let message = error.to_string();
    /// assert!(message.contains("reader") && message.contains("exited with code 1: no dataset mnist"));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Child`] with exit code or signal, and with the child's own message and backtrace.
    pub fn join(&self) -> Result<()> {
        let status = self.wait()?;
        self.failure(status).map_or(Ok(()), Err)
    }

    /// As [`join`](Self::join), for at most `timeout`.
    ///
    /// ```
    /// use std::{thread::sleep, time::Duration};
    /// use torchrs::multiprocessing::Process;
    /// Process::spawn(sleep, Duration::ZERO)?.join_timeout(Duration::from_secs(60))?;
    /// let child = Process::spawn(sleep, Duration::from_secs(60))?;
    /// assert!(child.join_timeout(Duration::from_millis(10)).is_err());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`] when the child still runs then; otherwise as [`join`](Self::join).
    pub fn join_timeout(&self, timeout: Duration) -> Result<()> {
        let status = self.wait_timeout(timeout)?;
        self.failure(status).map_or(Ok(()), Err)
    }

    /// The [`Error::Child`] for a child that ended with `status`, unless that is success.
    ///
    /// ```
    /// use torchrs::multiprocessing::Process;
    /// fn quit(code: i32) {
    ///     std::process::exit(code)
    /// }
    /// let child = Process::spawn(quit, 3)?;
    /// let status = child.wait()?;
    /// assert!(child.failure(status).unwrap().to_string().contains("exited with code 3"));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn failure(&self, status: ExitStatus) -> Option<Error> {
        if status.success() {
            return None;
        }
        let mut message = status.to_string();
        if status.signal() == Some(libc::SIGKILL)
            && oom_kills().zip(self.oom_kills_before).is_some_and(|(now, before)| now > before)
        {
            message += ": the memory limit was reached (out-of-memory killer)";
        }
        if let Some(record) = self.record() {
            message = format!("{message}: {}", record.text());
            if !record.backtrace().is_empty() {
                message = format!("{message}\nbacktrace of the child:\n{}", record.backtrace());
            }
        }
        Some(Error::Child { who: self.who(), message })
    }

    /// What the child reported about its failure: its panic, or the error that its function
    /// returned. `None` when there was none, or it had no time to.
    ///
    /// ```
    /// use torchrs::multiprocessing::Process;
    /// let child = Process::spawn(|_: ()| -> () { panic!("out of patience") }, ())?;
    /// child.wait()?;
    /// let record = child.record().unwrap();
    /// assert!(record.text().starts_with("panicked at ") && record.text().ends_with(": out of patience"));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn record(&self) -> Option<ErrorRecord> {
        ErrorRecord::read_file(&self.record)
    }

    fn who(&self) -> String {
        format!("{} (pid {})", self.name, self.pid())
    }

    /// Ends the child at once (SIGKILL). No error when it has ended already.
    ///
    /// ```
    /// use std::{thread::sleep, time::Duration};
    /// use torchrs::multiprocessing::Process;
    /// let child = Process::spawn(sleep, Duration::from_secs(60))?;
    /// child.kill()?;
    /// assert!(child.wait()?.to_string().starts_with("killed by SIGKILL"));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when the system refuses.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::SIGKILL as i32)
    }

    /// Asks the child to end (SIGTERM). No error when it has ended already.
    ///
    /// # Errors
    /// [`Error::Os`] when the system refuses.
    pub fn terminate(&self) -> Result<()> {
        self.signal(Signal::SIGTERM as i32)
    }

    /// Sends a signal by number. No error when the child has ended already.
    ///
    /// ```
    /// use std::{thread::sleep, time::Duration};
    /// use torchrs::multiprocessing::Process;
    /// let child = Process::spawn(sleep, Duration::from_secs(60))?;
    /// child.signal(10)?;
    /// assert_eq!(child.wait()?.signal(), Some(10));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when there is no such signal.
    pub fn signal(&self, signal: i32) -> Result<()> {
        // SAFETY: plain system call on a descriptor that we own.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.started.pidfd.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        match Errno::result(result) {
            Ok(_) | Err(Errno::ESRCH) => Ok(()),
            Err(e) => Err(Error::os(format!("send signal {signal} to {}", self.who()), e)),
        }
    }
}

/// The child's pidfd: readable once the child has ended, for `poll` beside other descriptors.
impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.started.pidfd.as_fd()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.try_wait() {
            let _ = self.kill();
            let _ = self.reap_killed();
        }
    }
}

/// Options of a child process; made by [`Process::builder`].
///
/// ```
/// use torchrs::multiprocessing::{Process, ProcessBuilder};
/// let options: ProcessBuilder = Process::builder().name("reader").env("LEVEL", "3");
/// let child = options.spawn(|_: ()| assert_eq!(std::env::var("LEVEL").unwrap(), "3"), ())?;
/// assert_eq!(child.name(), "reader");
/// child.join()?;
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct ProcessBuilder {
    name: Option<String>,
    variables: Vec<(OsString, OsString)>,
    inherit: Vec<OwnedFd>,
}

impl ProcessBuilder {
    /// The name in error messages and in `ps`. The function's path by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets an environment variable in the child.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Passes a descriptor to the child, whose number there is in the variable `name`, such as
    /// `TORCHRS_STORE_FD`.
    ///
    /// ```
    /// use std::fs::{File, read_to_string};
    /// use torchrs::multiprocessing::Process;
    /// # let path = tempfile::NamedTempFile::new().unwrap();
    /// std::fs::write(&path, "from outside").unwrap();
    /// let check = |_: ()| {
    ///     let file = format!("/proc/self/fd/{}", std::env::var("FILE_FD").unwrap());
    ///     assert_eq!(read_to_string(file).unwrap(), "from outside");
    /// };
    /// Process::builder().inherit("FILE_FD", File::open(&path).unwrap().into()).spawn(check, ())?.join()?;
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn inherit(self, name: impl AsRef<OsStr>, fd: OwnedFd) -> Self {
        let mut builder = self.env(name, fd.as_raw_fd().to_string());
        builder.inherit.push(fd);
        builder
    }

    /// As [`Process::spawn`].
    ///
    /// # Errors
    /// As [`Process::spawn`].
    pub fn spawn<F, A, R>(self, f: F, args: A) -> Result<Process>
    where
        F: Fn(A) -> R + Copy + 'static,
        A: Serialize + DeserializeOwned,
        R: Outcome,
    {
        let _ = f;
        self.start(entry::plain::<F, A, R>, type_name::<F>(), &args).map(|(process, _)| process)
    }

    /// As [`Process::spawn`], with a two-way channel between the child and this process: `f` gets
    /// the child's end.
    ///
    /// ```
    /// use torchrs::multiprocessing::{Channel, Process};
    /// let add = |more: u32, parent: Channel<u32, u32>| parent.send(&(parent.recv()? + more));
    /// let (child, channel) = Process::builder().spawn_connected(add, 10)?;
    /// channel.send(&5)?;
    /// assert_eq!(channel.recv()?, 15);
    /// child.join()?;
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Process::spawn`].
    pub fn spawn_connected<F, A, S, T, R>(self, f: F, args: A) -> Result<(Process, Channel<T, S>)>
    where
        F: Fn(A, Channel<S, T>) -> R + Copy + 'static,
        A: Serialize + DeserializeOwned,
        R: Outcome,
    {
        let _ = f;
        let (process, socket) =
            self.start(entry::connected::<F, A, S, T, R>, type_name::<F>(), &args)?;
        Ok((process, Channel::from_socket(socket)))
    }

    /// Runs `f(args)` in a process that outlives this one, and returns its number. It keeps none of this process's
    /// standard streams and nobody waits for it, so it has to know by itself when to end.
    ///
    /// # Errors
    /// As [`Process::spawn`].
    pub(crate) fn spawn_detached<F, A>(self, f: F, args: &A) -> Result<i32>
    where
        F: Fn(A) + Copy + 'static,
        A: Serialize + DeserializeOwned,
    {
        let _ = f;
        let (command, _ours) =
            self.command(entry::plain::<F, A, ()>, type_name::<F>(), args, None)?;
        spawner::start(command).map(|started| started.pid.as_raw())
    }

    /// Starts the child and sends it its arguments; also returns this end of its socket.
    pub(super) fn start<A: Serialize + ?Sized>(
        self,
        entry: Entry,
        function: &str,
        args: &A,
    ) -> Result<(Process, OwnedFd)> {
        let name = self.name.clone().unwrap_or_else(|| function.to_owned());
        let record: File = memfd_create(c"torchrs-error-record", MFdFlags::MFD_CLOEXEC)
            .context(|| "make memory for a child's error record")?
            .into();
        let copy = record.try_clone().context(|| "duplicate a child's error record")?;
        let (command, ours) = self.command(entry, function, args, Some(copy))?;
        let oom_kills_before = oom_kills();
        let started = spawner::start(command)?;
        let status = Mutex::new(None);
        Ok((Process { name, started, record, oom_kills_before, status }, ours))
    }

    /// What starts the child, with its arguments on their way; also this end of its socket. `record`: where it leaves
    /// its error record. Without one it does not end with this process.
    fn command<A: Serialize + ?Sized>(
        self,
        entry: Entry,
        function: &str,
        args: &A,
        record: Option<File>,
    ) -> Result<(Command, OwnedFd)> {
        if !is_hooked() {
            return Err(Error::Other(
                "Process::spawn: call torchrs::init() first in main, or put #[torchrs::main] on it; in a library that \
                 another program loads, call torchrs::multiprocessing::init_library"
                    .to_owned(),
            ));
        }
        let name = self.name.unwrap_or_else(|| function.to_owned());
        let (ours, theirs) = pair()?;
        // Sent before there is a child: arguments that cannot be sent start nothing. The message
        // is the first in the socket and fits it, so this does not wait.
        send(ours.as_fd(), encode(args)?, Some(Instant::now())).map_err(
            |failure| match failure {
                Failure::Error(error) => error,
                other => Error::Other(format!("send the arguments of {name}: {other:?}")),
            },
        )?;
        let mut variables = self.variables;
        let mut set = |name: &str, value: String| variables.push((name.into(), value.into()));
        set(CHILD, entry::describe(entry, theirs.as_raw_fd(), &name)?);
        let mut inherit = self.inherit;
        inherit.push(theirs);
        let detached = record.is_none();
        if let Some(record) = record {
            set(PARENT_PID, process::id().to_string());
            set(ERROR_FILE, format!("/proc/self/fd/{}", record.as_raw_fd()));
            inherit.push(record.into());
        }
        let environment = environment(&variables)?;
        let (library, program, arguments) = match restart() {
            None => {
                let mut title = env::args_os().next().unwrap_or_default().into_vec();
                title.extend_from_slice(format!(": {name}").as_bytes());
                (None, b"/proc/self/exe".to_vec(), vec![c_string(title)?])
            }
            // What the program is called by may say where it finds its own files; the name comes last.
            Some(restart) => {
                let all = [restart.program().as_bytes()].into_iter();
                let all = all.chain(restart.arguments().iter().map(String::as_bytes));
                let all = all.chain([name.as_bytes()]).map(|text| c_string(text.to_vec()));
                let program = restart.program().as_bytes().to_vec();
                (Some(restart.library()), program, all.collect::<Result<_>>()?)
            }
        };
        let program = c_string(program)?;
        Ok((Command { program, arguments, environment, inherit, library, detached }, ours))
    }
}

/// This process's environment with `variables` on top, later ones winning. The store's descriptor, the parent and
/// the error record are this process's own and are not passed on unless asked for.
fn environment(variables: &[(OsString, OsString)]) -> Result<Vec<CString>> {
    let replaced = |name: &OsStr| {
        OWN.iter().any(|own| name == *own) || variables.iter().any(|(set, _)| set == name)
    };
    let kept = env::vars_os().filter(|(name, _)| !replaced(name));
    let last = variables
        .iter()
        .enumerate()
        .filter(|(i, (name, _))| variables[i + 1..].iter().all(|(later, _)| later != name));
    kept.chain(last.map(|(_, pair)| pair.clone()))
        .map(|(name, value)| {
            let mut entry = name.into_vec();
            entry.push(b'=');
            entry.extend_from_slice(value.as_bytes());
            c_string(entry)
        })
        .collect()
}

fn c_string(bytes: Vec<u8>) -> Result<CString> {
    CString::new(bytes).map_err(|e| {
        let text = String::from_utf8_lossy(e.clone().into_vec().as_slice()).into_owned();
        Error::argument("Process::spawn", "name or environment", format!("{text:?} holds a NUL"))
    })
}
