//! cuDNN's functions, and its handles on the devices.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};

use crate::device::{self, MAX_DEVICES};
use crate::driver::StreamHandle;
use crate::loading::dynamic::function_table;
use crate::loading::library::{self, Kind};
use crate::memo::once::TryOnce;
use torchrs_error::{Error, Result};

/// Whether cuDNN is used where it is found: not if this is 0.
pub const USE_CUDNN: &str = "TORCHRS_CUDNN";

/// A return code, `cudnnStatus_t`. Any number is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Status(pub(super) c_int);

impl Status {
    pub(super) const SUCCESS: Status = Status(0);

    /// Whether it says that cuDNN does not compute such, rather than that something went wrong.
    pub(super) fn is_not_supported(self) -> bool {
        (3000..4000).contains(&self.0)
    }
}

/// One of cuDNN's objects: a handle or a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Object(pub(super) usize);

function_table! {
    /// cuDNN's functions that torchrs calls.
    Table returns Status;

    /// Makes a handle on the current device.
    fn cudnnCreate(handle: *mut Object);
    /// The stream of the handle's work.
    fn cudnnSetStream(handle: Object, stream: StreamHandle);
    /// Makes a descriptor.
    fn cudnnBackendCreateDescriptor(kind: c_int, descriptor: *mut Object);
    /// Ends it.
    fn cudnnBackendDestroyDescriptor(descriptor: Object);
    /// Describes it further.
    fn cudnnBackendSetAttribute(
        descriptor: Object, name: c_int, kind: c_int, count: i64, values: *const c_void,
    );
    /// Asks it.
    fn cudnnBackendGetAttribute(
        descriptor: Object, name: c_int, kind: c_int, most: i64, count: *mut i64, values: *mut c_void,
    );
    /// Says that it is described.
    fn cudnnBackendFinalize(descriptor: Object);
    /// Starts a plan's work.
    fn cudnnBackendExecute(handle: Object, plan: Object, pack: Object);
    others {
        /// Writes the thread's last message.
        fn cudnnGetLastErrorString(text: *mut c_char, most: usize) -> ();
        /// The library's version.
        fn cudnnGetVersion() -> usize;
    }
}

impl Table {
    pub(super) fn check(&self, call: &str, status: Status) -> Result<()> {
        match status {
            Status::SUCCESS => Ok(()),
            Status(4003 | 4004) => Err(Error::OutOfMemory(format!("{call}: {}", self.why(status)))),
            _ => Err(Error::Device(format!("{call}: {}", self.why(status)))),
        }
    }

    /// cuDNN's own text on the thread's last failure.
    fn why(&self, status: Status) -> String {
        let mut text = [0 as c_char; 256];
        // SAFETY: cuDNN writes a C string of at most so many bytes.
        unsafe { (self.cudnnGetLastErrorString)(text.as_mut_ptr(), text.len()) };
        // SAFETY: ends with a zero: the last one is never written over.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy();
        format!("{} (status {})", text.trim(), status.0)
    }
}

/// The library, loaded at the first call.
///
/// # Errors
/// [`Error::Device`] where there is none, [`Error::Config`] where it is not to be used.
pub(super) fn table() -> Result<&'static Table> {
    static TABLE: OnceLock<Result<Table>> = OnceLock::new();
    let load = || library::optional(Kind::Cudnn, USE_CUDNN, "cuDNN 9", Table::load);
    TABLE.get_or_init(load).as_ref().map_err(Error::clone)
}

/// The library's version: 91002 is 9.10.2.
pub(super) fn version() -> Result<usize> {
    // SAFETY: needs nothing.
    Ok(unsafe { (table()?.cudnnGetVersion)() })
}

/// The handle of a device, which nobody else uses meanwhile.
pub(super) fn handle(device: usize) -> Result<MutexGuard<'static, Object>> {
    static HANDLES: [TryOnce<Mutex<Object>>; MAX_DEVICES] = [const { TryOnce::new() }; MAX_DEVICES];
    let handle = HANDLES[device].get_or_try(|| {
        device::bind(device)?;
        let mut handle = Object::default();
        // SAFETY: writes one handle, of the device that was just bound.
        unsafe { table()?.cudnnCreate(&mut handle) }?;
        Ok(Mutex::new(handle))
    })?;
    Ok(handle.lock())
}
