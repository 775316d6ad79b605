//! The record that a failing process leaves for whoever started it: message, backtrace, time and
//! cause. It is torchelastic's error file with a few more fields, so torchrun's tools read it too.
//! A panic hook writes it without opt-in; only the first failure of a process is recorded.
//!
//! ```
//! use torchrs::multiprocessing::{Process, report::Kind};
//!
//! let child = Process::spawn(|_: ()| Err::<(), _>("no dataset mnist"), ())?;
//! child.wait()?;
//! let record = child.record().unwrap();
//! assert_eq!((record.text(), record.kind), ("no dataset mnist", Kind::Error));
//! assert_eq!(record.pid as i32, child.pid());
//! # Ok::<(), torchrs::Error>(())
//! ```

use std::backtrace::Backtrace;
use std::error::Error as StdError;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::panic::{self, PanicHookInfo};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde::{Deserialize, Serialize};

use torchrs_error::backtrace::trimmed;
use torchrs_error::{self as error, Error, Result, panic_message, pipes};

/// The environment variable that names the file for the record.
pub const ERROR_FILE: &str = "TORCHELASTIC_ERROR_FILE";

/// What brought a process down.
///
/// ```
/// use torchrs::multiprocessing::{Process, report::Kind};
/// let child = Process::spawn(|_: ()| -> () { panic!("out of patience") }, ())?;
/// child.wait()?;
/// assert_eq!(child.record().unwrap().kind, Kind::Panic);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A panic.
    Panic,
    /// An error returned from `main` or from an entry function.
    #[default]
    Error,
    /// A consequence: another rank died ([`Error::PeerDied`]).
    PeerDied,
    /// A consequence: the process group was aborted ([`Error::Aborted`]).
    Aborted,
}

impl Kind {
    /// True when the failure only follows from the failure of another process.
    pub fn is_consequence(self) -> bool {
        matches!(self, Kind::PeerDied | Kind::Aborted)
    }
}

/// The first failure of a process, as it is written to the file that `TORCHELASTIC_ERROR_FILE`
/// names.
///
/// ```
/// use torchrs::multiprocessing::report::ErrorRecord;
/// let json = r#"{"message": {"message": "no data", "extraInfo": {}}, "rank": 3}"#;
/// let record: ErrorRecord = serde_json::from_str(json).unwrap();
/// assert_eq!((record.text(), record.rank, record.caused_by_rank), ("no data", Some(3), None));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorRecord {
    /// Message, backtrace and wall-clock time, in torchelastic's form.
    pub message: MessageBody,
    /// What happened.
    #[serde(default)]
    pub kind: Kind,
    /// `CLOCK_MONOTONIC` at the failure, nanoseconds; comparable between processes of one host.
    #[serde(default)]
    pub monotonic_ns: u64,
    /// Name of the thread that failed.
    #[serde(default)]
    pub thread: String,
    /// `RANK` of the process, where it has one.
    #[serde(default)]
    pub rank: Option<usize>,
    /// Process id.
    #[serde(default)]
    pub pid: u32,
    /// The rank from whose failure this one follows, if it is known: the one that died, or that aborted the
    /// process group.
    #[serde(default)]
    pub caused_by_rank: Option<usize>,
}

/// The part of an [`ErrorRecord`] that torchelastic knows.
///
/// ```
/// use torchrs::multiprocessing::report::{ExtraInfo, MessageBody};
/// let body = MessageBody { message: "no data".to_owned(), extra_info: ExtraInfo::default() };
/// let json = serde_json::to_value(&body).unwrap();
/// assert_eq!(json["message"], "no data");
/// assert_eq!(json["extraInfo"]["py_callstack"], "");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageBody {
    /// The error's own words; a panic's begin with `panicked at FILE:LINE:COLUMN:`.
    pub message: String,
    /// Backtrace and time.
    #[serde(rename = "extraInfo")]
    pub extra_info: ExtraInfo,
}

/// Backtrace and time of a failure, under torchelastic's names.
///
/// ```
/// use torchrs::multiprocessing::report::ExtraInfo;
/// let info: ExtraInfo = serde_json::from_str(r#"{"timestamp": "1700000000"}"#).unwrap();
/// assert_eq!((info.timestamp.as_str(), info.py_callstack.as_str()), ("1700000000", ""));
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExtraInfo {
    /// Unix time, seconds.
    pub timestamp: String,
    /// The backtrace, one frame per entry, without the panic machinery. (The name is
    /// torchelastic's.)
    pub py_callstack: String,
}

impl ErrorRecord {
    fn new(kind: Kind, message: String, backtrace: String) -> Self {
        let timestamp =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
        ErrorRecord {
            message: MessageBody {
                message,
                extra_info: ExtraInfo { timestamp: timestamp.to_string(), py_callstack: backtrace },
            },
            kind,
            monotonic_ns: monotonic_ns(),
            thread: thread_name(),
            rank: std::env::var("RANK").ok().and_then(|rank| rank.trim().parse().ok()),
            pid: process::id(),
            caused_by_rank: None,
        }
    }

    /// Sets kind and cause by the failure's type: a dead peer or an aborted group makes it a
    /// consequence.
    fn caused_by(mut self, error: Option<&Error>) -> Self {
        match error {
            Some(Error::PeerDied { rank, .. }) => {
                self.kind = Kind::PeerDied;
                self.caused_by_rank = Some(*rank);
            }
            Some(error @ Error::Aborted(_)) => {
                self.kind = Kind::Aborted;
                self.caused_by_rank = error.culprit().filter(|rank| self.rank != Some(*rank));
            }
            _ => {}
        }
        self
    }

    /// The error's own words.
    pub fn text(&self) -> &str {
        &self.message.message
    }

    /// True when this failure only follows from that of another process, also where only its words tell, as
    /// those of a panic do whose program has unwrapped a peer's error.
    ///
    /// ```
    /// use torchrs::multiprocessing::report::ErrorRecord;
    /// let json = r#"{"message": {"message": "panicked at a.rs:1:1: process group aborted: x", "extraInfo": {}}}"#;
    /// let record: ErrorRecord = serde_json::from_str(json).unwrap();
    /// assert!(record.is_consequence() && !record.kind.is_consequence());
    /// ```
    pub fn is_consequence(&self) -> bool {
        self.kind.is_consequence() || error::is_consequence_in(self.text())
    }

    /// The rank that this failure follows from, also where only its words tell, as those of a panic do
    /// whose program has unwrapped a peer's error.
    ///
    /// ```
    /// use torchrs::multiprocessing::report::ErrorRecord;
    /// let json = r#"{"message": {"message": "process group aborted: by rank 3: in barrier", "extraInfo": {}}}"#;
    /// let record: ErrorRecord = serde_json::from_str(json).unwrap();
    /// assert_eq!(record.blames(), Some(3));
    /// ```
    pub fn blames(&self) -> Option<usize> {
        self.caused_by_rank.or_else(|| error::culprit_in(self.text()))
    }

    /// The backtrace; empty for an error that was returned.
    pub fn backtrace(&self) -> &str {
        &self.message.extra_info.py_callstack
    }

    /// Reads a record; `None` when the process left none (the file is missing or empty).
    ///
    /// ```
    /// use torchrs::multiprocessing::report::ErrorRecord;
    /// let json = r#"{"message": {"message": "no data", "extraInfo": {}}, "rank": 3}"#;
    /// let record: ErrorRecord = serde_json::from_str(json).unwrap();
    /// # let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("error.json");
    /// assert_eq!(ErrorRecord::read(&path)?, None);
    /// record.write(&path)?;
    /// assert_eq!(ErrorRecord::read(&path)?, Some(record));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::File`] when there is something that is not a record.
    pub fn read(path: impl AsRef<Path>) -> Result<Option<ErrorRecord>> {
        let path = path.as_ref();
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::os(format!("read error file {}", path.display()), e)),
        };
        Self::parse(&bytes).map_err(|e| Error::file(path, format!("not an error record: {e}")))
    }

    /// As [`read`](Self::read), from an open file, wherever its position is.
    #[doc(hidden)]
    pub fn read_file(file: &File) -> Option<ErrorRecord> {
        let length = file.metadata().ok()?.len();
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, 0).ok()?;
        Self::parse(&bytes).ok().flatten()
    }

    fn parse(bytes: &[u8]) -> serde_json::Result<Option<ErrorRecord>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(bytes).map(Some)
    }

    /// Writes the record to `path`, over whatever is there.
    ///
    /// ```
    /// use torchrs::multiprocessing::report::ErrorRecord;
    /// let json = r#"{"message": {"message": "no data", "extraInfo": {}}, "rank": 3}"#;
    /// let record: ErrorRecord = serde_json::from_str(json).unwrap();
    /// # let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("error.json");
    /// record.write(&path)?;
    /// assert!(std::fs::read_to_string(&path).unwrap().starts_with(r#"{"message":{"message":"no data""#));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        fs::write(path, self.to_json())
            .map_err(|e| Error::os(format!("write error file {}", path.display()), e))
    }

    fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// `CLOCK_MONOTONIC` now, in nanoseconds: the clock of [`ErrorRecord::monotonic_ns`].
///
/// ```
/// use torchrs::multiprocessing::report::monotonic_ns;
/// let start = monotonic_ns();
/// std::thread::sleep(std::time::Duration::from_millis(2));
/// assert!(monotonic_ns() - start >= 2_000_000);
/// ```
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes the timespec; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The current thread's name; also right on the main thread of a child, which runs before the
/// standard library has named it.
fn thread_name() -> String {
    if nix::unistd::gettid() == nix::unistd::getpid() {
        return "main".to_owned();
    }
    std::thread::current().name().unwrap_or("<unnamed>").to_owned()
}

/// Where this process writes its record.
enum Sink {
    /// An ordinary path, opened when there is something to write.
    Path(PathBuf),
    /// A descriptor that was inherited for the purpose.
    File(File),
}

static SINK: OnceLock<Sink> = OnceLock::new();
static RECORDED: AtomicBool = AtomicBool::new(false);

/// Finds the error file and adds the report to the panic hook. Called once. An inherited descriptor is closed on exec
/// from now on, so that this process's own children do not write into it.
#[doc(hidden)]
pub fn install() {
    let Some(path) = std::env::var_os(ERROR_FILE).filter(|path| !path.is_empty()) else { return };
    let path = PathBuf::from(path);
    let descriptor = path.strip_prefix("/proc/self/fd").ok().and_then(Path::to_str);
    let sink = match descriptor.and_then(|number| number.parse().ok()) {
        None => Some(Sink::Path(path)),
        Some(number) => take_inherited(number, "/memfd:").map(|fd| Sink::File(fd.into())),
    };
    if let Some(sink) = sink
        && SINK.set(sink).is_ok()
    {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            pipes::end_if_closed(info);
            if !error::is_catching() {
                record_panic(info);
            }
            previous(info);
        }));
    }
}

/// Takes over a descriptor that the starter of this process put at `number`, and sets its
/// close-on-exec flag. `None` when it is not there: the variable came down from a grandparent, and
/// the number now may be anything. `target` is how its `/proc/self/fd` link begins.
#[doc(hidden)]
pub fn take_inherited(number: RawFd, target: &str) -> Option<OwnedFd> {
    let link = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    if !link.to_str()?.starts_with(target) {
        return None;
    }
    // SAFETY: the descriptor is open, and the starter made it for whoever reads the variable that
    // names it, which is done once; one with close-on-exec set was opened here and is left alone.
    let fd = unsafe {
        if libc::fcntl(number, libc::F_GETFD) & libc::FD_CLOEXEC != 0 {
            return None;
        }
        OwnedFd::from_raw_fd(number)
    };
    fcntl(fd.as_fd(), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
    Some(fd)
}

fn record_panic(info: &PanicHookInfo) {
    let message = panic_message(info.payload());
    let message = match info.location() {
        Some(at) => format!("panicked at {}: {message}", error::within::blamed(at)),
        None => message,
    };
    let backtrace = trimmed(&Backtrace::force_capture().to_string());
    let cause = info.payload().downcast_ref::<Error>();
    leave(ErrorRecord::new(Kind::Panic, message, backtrace).caused_by(cause));
}

/// Records an error that ends this process: one that `main` returned. The first record of a
/// process stands.
///
/// ```
/// use torchrs::{Error, multiprocessing::{Process, report}};
/// let child = Process::spawn(|_: ()| report::record(&Error::Other("disk full".to_owned())), ())?;
/// child.wait()?;
/// assert_eq!(child.record().unwrap().text(), "disk full");
/// # Ok::<(), torchrs::Error>(())
/// ```
pub fn record(error: &(dyn StdError + 'static)) {
    leave(ErrorRecord::new(Kind::Error, chain(error), String::new()).caused_by(find(error)));
}

/// The torchrs error in a chain of sources.
fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    std::iter::successors(Some(error), |&e| e.source()).find_map(|e| e.downcast_ref())
}

/// An error's message with those of its sources, unless a message ends with its source's already.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let message = cause.to_string();
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        source = cause.source();
    }
    text
}

fn leave(record: ErrorRecord) {
    let Some(sink) = SINK.get() else { return };
    if RECORDED.swap(true, Ordering::AcqRel) {
        return;
    }
    let written = match sink {
        Sink::Path(path) => record.write(path).map_err(|e| e.to_string()),
        Sink::File(file) => file
            .write_all_at(&record.to_json(), 0)
            .map_err(|e| format!("write error record to descriptor {}: {e}", file.as_raw_fd())),
    };
    if let Err(message) = written {
        say(&format!("torchrs: {message}"));
    }
}

/// A line on standard error, if somebody still listens there: `eprintln!` would panic.
#[doc(hidden)]
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// What `main` and the entry function of a child may return: nothing, or a `Result` whose error
/// is any that converts into `Box<dyn Error>`.
///
/// ```
/// use torchrs::multiprocessing::Outcome;
/// assert!(().failure().is_none());
/// assert_eq!(Err::<(), _>("no data").failure().unwrap().to_string(), "no data");
/// ```
pub trait Outcome {
    /// The error, if there was one.
    ///
    /// ```
    /// use torchrs::{Result, multiprocessing::Outcome};
    /// let outcome: Result<()> = Err(torchrs::Error::Other("disk full".to_owned()));
    /// assert_eq!(outcome.failure().unwrap().to_string(), "disk full");
    /// ```
    fn failure(self) -> Option<Box<dyn StdError>>;
}

impl Outcome for () {
    fn failure(self) -> Option<Box<dyn StdError>> {
        None
    }
}

impl<E: Into<Box<dyn StdError>>> Outcome for std::result::Result<(), E> {
    fn failure(self) -> Option<Box<dyn StdError>> {
        self.err().map(Into::into)
    }
}

/// Ends `main`: an error is printed as `Error: message` with its sources, recorded, and makes the
/// exit code 1. What `#[torchrs::main]` calls.
///
/// ```
/// use std::process::ExitCode;
/// use torchrs::multiprocessing::report::finish;
/// let code = finish(Err::<(), _>("no data")); // and prints `Error: no data`
/// assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE));
/// ```
pub fn finish(outcome: impl Outcome) -> ExitCode {
    match outcome.failure() {
        None => ExitCode::SUCCESS,
        Some(error) => {
            say(&format!("Error: {}", chain(&*error)));
            record(&*error);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(ErrorRecord::read(file.path()).unwrap(), None);
        let error = Error::PeerDied { rank: 3, pid: 99, message: "killed".into() };
        let record =
            ErrorRecord::new(Kind::Error, "boom".into(), "0: main".into()).caused_by(Some(&error));
        record.write(file.path()).unwrap();
        let back = ErrorRecord::read(file.path()).unwrap().unwrap();
        assert_eq!(back, record);
        assert_eq!((back.kind, back.caused_by_rank), (Kind::PeerDied, Some(3)));
        assert!(back.kind.is_consequence());
    }

    #[test]
    fn an_abort_is_the_fault_of_whom_it_names() {
        let of = |text: &str| {
            let error = Error::Aborted(text.into());
            let record = ErrorRecord::new(Kind::Error, String::new(), String::new());
            let record = ErrorRecord { rank: Some(1), ..record }.caused_by(Some(&error));
            assert_eq!(record.kind, Kind::Aborted);
            record.caused_by_rank
        };
        assert_eq!(
            of("by rank 3: timed out after 60.0 s: rank 3 was in barrier; rank 1 ..."),
            Some(3)
        );
        assert_eq!(of("rank 12 timed out: rank 12 was waiting"), Some(12));
        assert_eq!(of("rank 2 has left the process group after collective 4, but"), Some(2));
        // A rank's own words for what it was at are no accusation.
        assert_eq!(of("rank 1 was waiting in collective 2"), None);
        assert_eq!(of("the group is gone"), None);
    }

    #[test]
    fn whom_a_failure_blames_is_read_from_its_words() {
        let died = Error::PeerDied { rank: 12, pid: 99, message: "in all_reduce".into() };
        let aborted = Error::Aborted("by rank 3: a kernel hangs; in barrier".into());
        let left = Error::Aborted("rank 2 has left the process group after collective 4".into());
        for (error, rank) in [(died, Some(12)), (aborted, Some(3)), (left, Some(2))] {
            let unwrapped = format!("called `Result::unwrap()` on an `Err` value: {error:?}");
            let panic = ErrorRecord::new(Kind::Panic, unwrapped, String::new());
            assert_eq!(panic.blames(), rank, "{error}");
            let returned = ErrorRecord::new(Kind::Error, error.to_string(), String::new());
            assert_eq!(returned.caused_by(Some(&error)).caused_by_rank, rank, "{error}");
        }
    }

    #[test]
    fn reads_what_torchelastic_writes() {
        let json = r#"{"message": {"message": "ValueError: x", "extraInfo":
            {"py_callstack": "Traceback", "timestamp": "1700000000"}}}"#;
        let record = ErrorRecord::parse(json.as_bytes()).unwrap().unwrap();
        assert_eq!((record.text(), record.backtrace()), ("ValueError: x", "Traceback"));
    }

    #[test]
    fn garbage_is_an_error_that_names_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "{").unwrap();
        let error = ErrorRecord::read(file.path()).unwrap_err().to_string();
        assert!(error.contains(file.path().to_str().unwrap()), "{error}");
    }

    #[test]
    fn a_chain_names_each_source_once() {
        let error = Error::os("open x", io::Error::from_raw_os_error(libc::ENOENT));
        let text = chain(&error);
        assert_eq!(text.matches("No such file").count(), 1, "{text}");
        assert!(text.starts_with("open x: "), "{text}");
    }

    #[test]
    fn a_descriptor_that_is_something_else_is_left_alone() {
        let file = tempfile::tempfile().unwrap();
        assert!(take_inherited(file.as_raw_fd(), "/memfd:").is_none());
        assert!(take_inherited(-1, "/memfd:").is_none());
        assert!(file.metadata().is_ok());
    }
}
