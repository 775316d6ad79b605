//! The one error type of the library, and the bridge between panics and values.
//!
//! Tensor operations do not return `Result`: a misuse panics at the caller's line with an
//! [`Error`] as its payload ([`throw`]), and [`catch`] turns that into a value. Everything that
//! meets the outside world (files, processes, peers, configuration) returns [`Result`].
//!
//! ```
//! use torchrs::{Error, Tensor, catch};
//! let (x, y) = (Tensor::from([1f32, 2.]), Tensor::from([1f32, 2., 3.]));
//! let error = catch(|| &x + &y).unwrap_err();
//! assert!(matches!(error, Error::Shape { .. }));
//! ```

#[doc(hidden)]
pub mod backtrace;
#[doc(hidden)]
pub mod pipes;

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::panic::{self, AssertUnwindSafe, Location, UnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use nix::sys::resource::{Resource, getrlimit};

#[doc(hidden)]
pub mod within;

/// `std::result::Result` with torchrs's [`Error`].
///
/// ```
/// fn rate(text: &str) -> torchrs::Result<f64> {
///     text.parse().map_err(|_| torchrs::Error::config("lr", format!("`{text}` is not a number")))
/// }
/// assert_eq!(rate("0.1").unwrap(), 0.1);
/// assert_eq!(rate("high").unwrap_err().to_string(), "lr: `high` is not a number");
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong in torchrs. Messages name the operation, the argument, the value
/// and what would have been right.
///
/// ```
/// use torchrs::{Dtype, Error, Tensor, catch};
/// let x = Tensor::zeros([2, 3], Dtype::F32);
/// let error = catch(|| x.size(2)).unwrap_err();
/// assert!(matches!(&error, Error::Argument { argument, .. } if argument == "dim"));
/// assert_eq!(error.to_string(), "size: argument `dim`: 2 is out of range; expected -2 to 1");
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument has a value that the operation cannot take.
    #[error("{op}: argument `{argument}`: {message}")]
    Argument {
        /// The operation, by its public name.
        op: String,
        /// The argument, by its public name.
        argument: String,
        /// The value that was given and what would be right.
        message: String,
    },
    /// Shapes do not fit together.
    #[error("{op}: {message}")]
    Shape {
        /// The operation, by its public name.
        op: String,
        /// All shapes involved and the rule that they break.
        message: String,
    },
    /// A dtype that the operation does not take.
    #[error("{op}: {message}")]
    Dtype {
        /// The operation, by its public name.
        op: String,
        /// The dtypes involved and the ones that would be right.
        message: String,
    },
    /// Misuse of the autograd graph.
    #[error("autograd: {0}")]
    Autograd(String),
    /// A device that is not there, or tensors on different devices.
    #[error("device: {0}")]
    Device(String),
    /// A device has no memory left. The program can go on with less.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// A configuration value (environment variable, flag, option) that cannot be used.
    #[error("{name}: {message}")]
    Config {
        /// The variable's or option's name.
        name: String,
        /// The value and what would be right.
        message: String,
    },
    /// The operating system refused something.
    #[error("{context}: {source}")]
    Os {
        /// What was being done, to what.
        context: String,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// A file's contents cannot be used.
    #[error("{}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        message: String,
    },
    /// A process of this job died.
    #[error("rank {rank} (pid {pid}) died: {message}")]
    PeerDied {
        /// The rank that died.
        rank: usize,
        /// Its process id.
        pid: i32,
        /// What this rank was waiting on.
        message: String,
    },
    /// A deadline passed.
    #[error("timed out after {seconds:.1} s: {message}")]
    Timeout {
        /// How long was waited.
        seconds: f64,
        /// On what, and the state of the others.
        message: String,
    },
    /// Ranks called different collectives, or the same with different tensors.
    #[error("collective mismatch: {0}")]
    Mismatch(String),
    /// The process group was aborted by a failure elsewhere.
    #[error("process group aborted: {0}")]
    Aborted(String),
    /// The rendezvous store is gone or refused a request.
    #[error("store: {0}")]
    Store(String),
    /// The other side of a channel is gone.
    #[error("disconnected: {0}")]
    Disconnected(String),
    /// A child process (loader worker, spawned function) failed.
    #[error("{who}: {message}")]
    Child {
        /// Which child.
        who: String,
        /// How it ended, its own message and backtrace.
        message: String,
    },
    /// A dataset's `get` failed.
    #[error("dataset failed at index {index} in {worker}: {message}")]
    Dataset {
        /// The index passed to `get`.
        index: usize,
        /// The loader worker, or `the main process`.
        worker: String,
        /// The dataset's own message, with its backtrace if it panicked.
        message: String,
    },
    /// Anything a user's own code wants to pass through (datasets, hooks, custom functions).
    #[error("{0}")]
    Other(String),
}

/// The message: it is what `unwrap` shows, and what the standard library prints of an error that a plain
/// `main` returns.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// An [`Error::Argument`].
    ///
    /// ```
    /// let error = torchrs::Error::argument("conv2d", "stride", "0; must be at least 1");
    /// assert_eq!(error.to_string(), "conv2d: argument `stride`: 0; must be at least 1");
    /// ```
    pub fn argument(op: &str, argument: &str, message: impl Into<String>) -> Self {
        Error::Argument { op: op.into(), argument: argument.into(), message: message.into() }
    }
    /// An [`Error::Shape`].
    pub fn shape(op: &str, message: impl Into<String>) -> Self {
        Error::Shape { op: op.into(), message: message.into() }
    }
    /// An [`Error::Dtype`].
    pub fn dtype(op: &str, message: impl Into<String>) -> Self {
        Error::Dtype { op: op.into(), message: message.into() }
    }
    /// An [`Error::Config`].
    pub fn config(name: &str, message: impl Into<String>) -> Self {
        Error::Config { name: name.into(), message: message.into() }
    }
    /// An [`Error::Os`] from an `io::Error` or an errno. Where the system's refusal stands for a
    /// limit on open files, the context says how high it is: "too many open files" alone does not.
    ///
    /// ```
    /// let error = torchrs::Error::os("open x", std::io::Error::from_raw_os_error(2));
    /// assert_eq!(error.to_string(), "open x: No such file or directory (os error 2)");
    /// ```
    pub fn os(context: impl Into<String>, source: impl Into<io::Error>) -> Self {
        let (mut context, source) = (context.into(), source.into());
        match source.raw_os_error() {
            Some(libc::EMFILE | libc::ETOOMANYREFS) => {
                let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
                context += &format!(": this process may have {limit} open files (`ulimit -n`)");
            }
            Some(libc::ENFILE) => context += ": the system's table of files (fs.file-max) is full",
            _ => {}
        }
        Error::Os { context, source: Arc::new(source) }
    }
    /// The rank whose failure this one follows from, where it says so: of one that died, and of the first in
    /// the words of an abort (`by rank 3: ...`, `rank 3 has left ...`).
    #[doc(hidden)]
    pub fn culprit(&self) -> Option<usize> {
        match self {
            Error::PeerDied { .. } | Error::Aborted(_) => culprit_in(&self.to_string()),
            _ => None,
        }
    }

    /// An [`Error::File`].
    pub fn file(path: impl AsRef<Path>, message: impl Into<String>) -> Self {
        Error::File { path: path.as_ref().to_owned(), message: message.into() }
    }
}

impl Error {
    /// The text to which can be added where a misuse happened.
    fn message_mut(&mut self) -> Option<&mut String> {
        match self {
            Error::Argument { message, .. }
            | Error::Shape { message, .. }
            | Error::Dtype { message, .. }
            | Error::Autograd(message)
            | Error::Device(message)
            | Error::OutOfMemory(message) => Some(message),
            _ => None,
        }
    }
}

/// How the words of an [`Error::Aborted`] begin.
const ABORTED: &str = "process group aborted: ";

/// [`Error::culprit`] of an error whose words are inside a message, as those of one that was unwrapped are.
#[doc(hidden)]
pub fn culprit_in(text: &str) -> Option<usize> {
    if let Some((_, why)) = text.split_once(ABORTED) {
        let why = why.strip_prefix("by ").unwrap_or(why);
        return number(why.strip_prefix("rank ")?).map(|(rank, _)| rank);
    }
    died_in(text)
}

/// Whether a message holds the words of an [`Error::PeerDied`] or an [`Error::Aborted`]: `unwrap` on one makes
/// it a panic that has nothing else.
#[doc(hidden)]
pub fn is_consequence_in(text: &str) -> bool {
    text.contains(ABORTED) || died_in(text).is_some()
}

/// The rank of an [`Error::PeerDied`] whose words are inside `text`.
fn died_in(text: &str) -> Option<usize> {
    text.match_indices("rank ").find_map(|(at, word)| {
        let rest = &text[at + word.len()..];
        let (rank, digits) = number(rest)?;
        let pid = rest[digits..].strip_prefix(" (pid ")?;
        let (_, digits) = number(pid)?;
        pid[digits..].starts_with(") died: ").then_some(rank)
    })
}

/// The number that `text` begins with, and how many digits it has.
fn number(text: &str) -> Option<(usize, usize)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    Some((text[..digits].parse().ok()?, digits))
}

/// Adds what was being done to a system error: `File::open(p).context(|| format!("open {p}"))?`.
///
/// ```
/// use torchrs::error::Context;
/// let error = std::fs::read("/no/such/file").context(|| "read the labels").unwrap_err();
/// assert!(error.to_string().starts_with("read the labels: No such file"));
/// ```
pub trait Context<T> {
    /// Turns the error into an [`Error::Os`] with `what` as its context.
    ///
    /// ```
    /// use torchrs::{Error, error::Context};
    /// let folder = tempfile::tempdir().context(|| "make a folder")?;
    /// let path = folder.path().join("a");
    /// let result = std::fs::read(&path).context(|| format!("read {}", path.display()));
    /// assert!(matches!(result, Err(Error::Os { context, .. }) if context.ends_with("/a")));
    /// # Ok::<(), Error>(())
    /// ```
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|e| Error::os(what(), e))
    }
}

thread_local! {
    /// How many `catch` calls are on this thread's stack: inside one, a panic is a value in the
    /// making and the panic hook stays silent.
    static CATCHING: Cell<usize> = const { Cell::new(0) };
}

/// True inside [`catch`] on this thread.
#[doc(hidden)]
pub fn is_catching() -> bool {
    CATCHING.get() > 0
}

/// Panics with `error` as the payload, at the caller's line.
///
/// ```
/// use torchrs::{Error, catch, error::throw};
/// fn half(x: i64) -> i64 {
///     if x % 2 == 0 { x / 2 } else { throw(Error::argument("half", "x", format!("{x}; must be even"))) }
/// }
/// assert_eq!(half(4), 2);
/// assert_eq!(catch(|| half(3)).unwrap_err().to_string(), "half: argument `x`: 3; must be even");
/// ```
#[track_caller]
pub fn throw(error: Error) -> ! {
    install_hook();
    panic::panic_any(within::placed(error, Location::caller()))
}

/// The payload of a panic as a message, for [`Error`], `String` and `&str` payloads.
///
/// ```
/// use torchrs::error::panic_message;
/// let payload = std::panic::catch_unwind(|| panic!("no {}", "luck")).unwrap_err();
/// assert_eq!(panic_message(&*payload), "no luck");
/// ```
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    if let Some(e) = payload.downcast_ref::<Error>() {
        e.to_string()
    } else if let Some(s) = payload.downcast_ref::<String>() {
        s.clone()
    } else if let Some(s) = payload.downcast_ref::<&str>() {
        (*s).to_owned()
    } else {
        "panic with a payload that is not text".to_owned()
    }
}

/// Makes uncaught [`Error`] payloads print their message instead of `Box<dyn Any>`, and keeps
/// panics inside [`catch`] silent. `RUST_BACKTRACE` has its usual meaning. Idempotent; other payloads go to the hook that was there.
#[doc(hidden)]
pub fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            pipes::end_if_closed(info);
            if is_catching() {
                return;
            }
            match info.payload().downcast_ref::<Error>() {
                Some(_) if pipes::nobody_listens() => {}
                Some(error) => {
                    let thread = std::thread::current();
                    let name = thread.name().unwrap_or("<unnamed>");
                    let at = info.location().map(|l| format!(" at {}", within::blamed(l)));
                    let at = at.unwrap_or_default();
                    let backtrace = backtrace::asked_for();
                    eprint!("thread '{name}' panicked{at}:\n{error}\n{backtrace}");
                }
                None => previous(info),
            }
        }));
    });
}

/// Runs `f` and turns a misuse inside it into an [`Error`] value.
///
/// A panic whose payload is not an [`Error`] becomes [`Error::Other`] with its message.
///
/// ```
/// use torchrs::{catch, Error, error::throw};
/// let e = catch(|| -> i32 { throw(Error::shape("add", "shapes [2] and [3] do not broadcast")) });
/// assert_eq!(e.unwrap_err().to_string(), "add: shapes [2] and [3] do not broadcast");
/// ```
pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T> {
    catch_unwind_safe(AssertUnwindSafe(f))
}

fn catch_unwind_safe<T>(f: impl FnOnce() -> T + UnwindSafe) -> Result<T> {
    install_hook();
    CATCHING.set(CATCHING.get() + 1);
    let result = panic::catch_unwind(f);
    CATCHING.set(CATCHING.get() - 1);
    result.map_err(|payload| match payload.downcast::<Error>() {
        Ok(error) => *error,
        Err(payload) => Error::Other(panic_message(&*payload)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_unwrap_and_a_plain_main_show_is_the_message() {
        let error = Error::PeerDied { rank: 1, pid: 7, message: "in barrier".into() };
        assert_eq!(format!("{error:?}"), "rank 1 (pid 7) died: in barrier");
        assert_eq!(
            format!("{:#?}", Some(&error)),
            "Some(\n    rank 1 (pid 7) died: in barrier,\n)"
        );
    }

    #[test]
    fn words_that_blame_nobody_have_no_culprit() {
        for text in ["rank 7 is out of range", "rank (pid 3) died: ", "by rank x", ""] {
            assert_eq!(culprit_in(text), None, "{text}");
        }
    }

    #[test]
    fn errors_about_peers_are_known_by_their_words() {
        let error = Error::PeerDied { rank: 1, pid: 7, message: "SIGKILL".into() };
        assert!(is_consequence_in(&format!("called `unwrap()` on an `Err` value: {error:?}")));
        assert!(is_consequence_in(&format!("training stopped: {error}")));
        for why in
            ["by rank 1", "the group is gone", "rank 2 has ended without joining the process group"]
        {
            let error = Error::Aborted(why.into());
            assert!(
                is_consequence_in(&format!("{error:?}")) && is_consequence_in(&error.to_string())
            );
        }
        for text in [
            "shapes [2] and [3] do not broadcast",
            "the rank (a number) died: x",
            "group aborted: ",
        ] {
            assert!(!is_consequence_in(text), "{text}");
        }
    }

    #[test]
    fn too_many_open_files_names_the_limit() {
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let message = Error::os("open x", io::Error::from_raw_os_error(libc::EMFILE)).to_string();
        let expected = format!("open x: this process may have {soft} open files (`ulimit -n`): ");
        assert!(message.starts_with(&expected), "{message}");
    }
}
