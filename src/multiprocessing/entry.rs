//! How a child knows what to run. Parent and child are the same executable, so a function is named
//! by its distance from a fixed one ([`anchor`]), which address-space randomisation does not
//! change. The entry is a function item without captures, so its type alone, monomorphised into a
//! thunk, says what to call; arguments come over the socket.

use std::env;
use std::error::Error as StdError;
use std::ffi::CString;
use std::mem;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::ptr::NonNull;

use serde::de::DeserializeOwned;

use super::channel::Channel;
use super::handles::decode;
use super::quit::quit;
use super::report::{self, Outcome, take_inherited};
use super::socket::{Failure, receive};
use crate::error::backtrace::__rust_begin_short_backtrace;
use crate::error::{Error, Result};

/// Tells a child that it is one: `SOCKET:OFFSET:NAME`.
pub(super) const CHILD: &str = "TORCHRS_CHILD";

/// What a child runs: takes the socket to its parent, returns what went wrong.
pub(super) type Entry = fn(OwnedFd) -> Option<Box<dyn StdError>>;

/// The function from which the distances are counted.
#[inline(never)]
extern "C" fn anchor() {}

/// The value of [`CHILD`] for a child that is to run `entry`.
///
/// # Errors
/// When `entry` is not in the same module of the program as torchrs: a plugin, or torchrs built as
/// a dynamic library. Distances between modules differ from process to process.
pub(super) fn describe(entry: Entry, socket: RawFd, name: &str) -> Result<String> {
    let (here, there) = (anchor as *const () as usize, entry as *const () as usize);
    if module_of(here) != module_of(there) {
        return Err(Error::argument(
            "Process::spawn",
            "f",
            "is not linked into the same executable as torchrs: a child could not find it",
        ));
    }
    Ok(format!("{socket}:{}:{name}", there.wrapping_sub(here) as isize))
}

/// Where the module (executable or library) that holds an address is loaded; 0 when unknown, as in
/// a statically linked program, which has but one.
fn module_of(address: usize) -> usize {
    // SAFETY: Dl_info is plain data, and dladdr only reads the address's number.
    unsafe {
        let mut info: libc::Dl_info = mem::zeroed();
        match libc::dladdr(address as *const libc::c_void, &mut info) {
            0 => 0,
            _ => info.dli_fbase as usize,
        }
    }
}

/// Whether this code is in the program itself, and not in a library that it has loaded.
pub(super) fn is_in_program() -> bool {
    // SAFETY: reads a number that the kernel has left.
    let program = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    module_of(program) == module_of(anchor as *const () as usize)
}

/// What this process was started for, if it is a child.
pub(super) struct Request {
    socket: OwnedFd,
    entry: Entry,
    name: String,
}

/// Reads [`CHILD`] and removes it, so that processes which this one starts in turn do not take
/// themselves for children.
pub(super) fn requested() -> Option<Request> {
    let value = env::var_os(CHILD)?;
    // SAFETY: in a child this runs first of all, before `main` or at its very start; no other
    // thread exists.
    unsafe { env::remove_var(CHILD) };
    let wrong = |why: &str| -> ! {
        quit(&Error::config(
            CHILD,
            format!("{value:?} {why}; the variable is for torchrs's own use: unset it"),
        ))
    };
    let text = value.to_str().unwrap_or_default();
    let mut fields = text.splitn(3, ':');
    let (Some(number), Some(offset), Some(name)) = (fields.next(), fields.next(), fields.next())
    else {
        wrong("is malformed")
    };
    let (Ok(number), Ok(offset)) = (number.parse(), offset.parse::<isize>()) else {
        wrong("is malformed")
    };
    let Some(socket) = take_inherited(number, "socket:") else {
        wrong("names a descriptor that is not a socket from the parent")
    };
    let address = (anchor as *const () as usize).wrapping_add_signed(offset);
    // SAFETY: the parent is this same executable (it ran /proc/self/exe), or has the same file loaded as a library, and
    // computed the offset of a function of type Entry that lies in the anchor's module.
    let entry = unsafe { mem::transmute::<*const (), Entry>(address as *const ()) };
    Some(Request { socket, entry, name: name.to_owned() })
}

/// Runs a child's entry function and ends the process: exit code 0, 1 after an error, 101 after a
/// panic.
pub(super) fn run(request: Request) -> ! {
    let Request { socket, entry, name } = request;
    let short: Vec<u8> = name.bytes().filter(|b| *b != 0).take(15).collect();
    if let Ok(short) = CString::new(short) {
        let _ = nix::sys::prctl::set_name(&short);
    }
    let code = match catch_unwind(AssertUnwindSafe(|| entry(socket))) {
        Ok(None) => 0,
        Ok(Some(error)) => {
            report::record(&*error);
            1
        }
        Err(_) => 101,
    };
    process::exit(code)
}

/// A value of a function item's type, out of nothing. Its caller in the parent, or in this process, had one.
pub(crate) fn conjure<F: Copy + 'static>() -> F {
    const {
        assert!(
            size_of::<F>() == 0,
            "the entry of a child process must be a function, or a closure that captures nothing"
        );
    }
    // SAFETY: F has no bytes; its caller in the parent had a value of it, and F is Copy.
    unsafe { NonNull::<F>::dangling().read() }
}

fn first_message<A: DeserializeOwned>(socket: &OwnedFd) -> Result<A> {
    match receive(socket.as_fd(), None) {
        Ok(packet) => decode(packet),
        Err(Failure::Error(error)) => Err(error),
        Err(Failure::Disconnected | Failure::TimedOut) => {
            Err(Error::Disconnected("the parent ended before it sent the arguments".into()))
        }
    }
}

/// Entry thunk for `fn(args)`.
pub(super) fn plain<F, A, R>(socket: OwnedFd) -> Option<Box<dyn StdError>>
where
    F: Fn(A) -> R + Copy + 'static,
    A: DeserializeOwned,
    R: Outcome,
{
    let args = match first_message(&socket) {
        Ok(args) => args,
        Err(error) => return Some(Box::new(error)),
    };
    drop(socket);
    __rust_begin_short_backtrace(|| conjure::<F>()(args)).failure()
}

/// Entry thunk for `fn(args, channel to the parent)`.
pub(super) fn connected<F, A, S, T, R>(socket: OwnedFd) -> Option<Box<dyn StdError>>
where
    F: Fn(A, Channel<S, T>) -> R + Copy + 'static,
    A: DeserializeOwned,
    R: Outcome,
{
    let args = match first_message(&socket) {
        Ok(args) => args,
        Err(error) => return Some(Box::new(error)),
    };
    let channel = Channel::from_socket(socket);
    __rust_begin_short_backtrace(|| conjure::<F>()(args, channel)).failure()
}

/// Entry thunk for `fn(rank, args)`.
pub(super) fn ranked<F, A, R>(socket: OwnedFd) -> Option<Box<dyn StdError>>
where
    F: Fn(usize, A) -> R + Copy + 'static,
    A: DeserializeOwned,
    R: Outcome,
{
    let (rank, args) = match first_message(&socket) {
        Ok(message) => message,
        Err(error) => return Some(Box::new(error)),
    };
    drop(socket);
    __rust_begin_short_backtrace(|| conjure::<F>()(rank, args)).failure()
}
