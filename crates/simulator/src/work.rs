//! What a stream does, piece by piece, and how an executor performs a piece.

use crate::code::{Code, Result};
use crate::context;
use crate::event::Mark;
use crate::graph::exec::Program;
use crate::kernel::launch::Launch;
use crate::kernel::machine::Machine;
use crate::settings;
use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

/// A function of the host, as `cuLaunchHostFunc` takes it.
pub type HostFunction = unsafe extern "C" fn(*mut c_void);

/// One piece of work.
#[derive(Clone)]
pub enum Work {
    /// A kernel over its grid.
    Kernel(Arc<Launch>),
    /// Bytes from one address to another, both of which a device can reach.
    Copy { to: usize, from: usize, bytes: usize },
    /// Bytes that were staged when the copy was asked for.
    Staged { to: usize, bytes: Arc<[u8]> },
    /// Device memory to a buffer that the caller of the copy waits for.
    Fetch { from: usize, bytes: usize, to: Arc<Fetched> },
    /// One value of `width` bytes (1, 2 or 4), again and again.
    Fill { to: usize, value: u32, width: usize, count: usize },
    /// A function of the host.
    Host { function: HostFunction, data: usize },
    /// A graph, whole.
    Graph(Arc<Program>),
    /// What a library's call does, such as a matrix product.
    Library(Arc<dyn Fn() -> Result + Send + Sync>),
    /// An event's record.
    Record(Arc<Mark>),
    /// A wait for an event's record.
    Wait(Arc<Mark>),
}

/// Bytes on their way to pageable host memory.
#[derive(Debug, Default)]
pub struct Fetched(parking_lot::Mutex<Vec<u8>>);

impl Fetched {
    /// The bytes, once the work is done.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock())
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Work::Kernel(_) => "kernel",
            Work::Copy { .. } | Work::Staged { .. } | Work::Fetch { .. } => "copy",
            Work::Fill { .. } => "fill",
            Work::Host { .. } => "host function",
            Work::Graph(_) => "graph",
            Work::Library(_) => "library call",
            Work::Record(_) => "event record",
            Work::Wait(_) => "event wait",
        })
    }
}

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs a host function of a stream, which must not call the driver.
pub fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

/// Performs a piece of work for a device, unless its context is broken; what fails breaks it.
pub fn perform(work: &Work, device: usize, machine: &mut Machine) {
    if let Work::Record(mark) = work {
        mark.complete();
        return;
    }
    if context::of(device).check().is_err() {
        return;
    }
    if let Err(code) = attempt(work, device, machine) {
        context::of(device).break_with(code);
    }
}

/// Performs a piece of work.
fn attempt(work: &Work, device: usize, machine: &mut Machine) -> Result {
    match work {
        // Memory that nobody writes to takes none of the host's, however large it is.
        Work::Kernel(_) | Work::Library(_) | Work::Fill { .. } if settings::get().dry => Ok(()),
        Work::Kernel(launch) => launch.run(device, machine),
        Work::Copy { to, from, bytes } => machine.guarded(device, "a copy", &mut || {
            // SAFETY: both ranges were checked when the copy was asked for; should the caller have taken
            // registered memory away since, the guard catches the fault.
            unsafe { std::ptr::copy(*from as *const u8, *to as *mut u8, *bytes) }
        }),
        Work::Staged { to, bytes } => machine.guarded(device, "a copy", &mut || {
            // SAFETY: as above; the source is ours.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), *to as *mut u8, bytes.len()) }
        }),
        Work::Fetch { from, bytes, to } => {
            let mut buffer = vec![0; *bytes];
            machine.guarded(device, "a copy", &mut || {
                // SAFETY: as above; the destination is ours.
                unsafe {
                    std::ptr::copy_nonoverlapping(*from as *const u8, buffer.as_mut_ptr(), *bytes)
                }
            })?;
            *to.0.lock() = buffer;
            Ok(())
        }
        Work::Fill { to, value, width, count } => {
            machine.guarded(device, "a fill", &mut || fill(*to, *value, *width, *count))
        }
        Work::Host { function, data } => {
            IN_HOST_FUNCTION.set(true);
            // SAFETY: the caller of `cuLaunchHostFunc` promised that it may be called with this.
            unsafe { function(*data as *mut c_void) };
            IN_HOST_FUNCTION.set(false);
            Ok(())
        }
        Work::Graph(program) => program.run(device, machine, attempt),
        Work::Library(call) => call(),
        Work::Record(mark) => {
            mark.complete();
            Ok(())
        }
        Work::Wait(_) => Err(Code::UNKNOWN),
    }
}

/// Writes `count` values of `width` bytes each.
fn fill(to: usize, value: u32, width: usize, count: usize) {
    // SAFETY: the range was checked when the fill was asked for, and the address is a multiple of the width.
    unsafe {
        match width {
            1 => std::ptr::write_bytes(to as *mut u8, value as u8, count),
            2 => std::slice::from_raw_parts_mut(to as *mut u16, count).fill(value as u16),
            _ => std::slice::from_raw_parts_mut(to as *mut u32, count).fill(value),
        }
    }
}
