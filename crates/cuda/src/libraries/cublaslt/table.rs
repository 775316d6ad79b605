//! cuBLASLt's functions, and its handles on the devices.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use crate::device::{self, MAX_DEVICES};
use crate::driver::StreamHandle;
use crate::loading::dynamic::function_table;
use crate::loading::library::{self, Kind};
use crate::memo::once::TryOnce;
use torchrs_error::{Error, Result};

/// Whether cuBLASLt is used where it is found: not if this is 0.
pub const USE_CUBLASLT: &str = "TORCHRS_CUBLASLT";

/// A return code. Any number is legal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Status(c_int);

impl Status {
    pub(super) const SUCCESS: Status = Status(0);
    pub(super) const NOT_SUPPORTED: Status = Status(15);

    /// Its name.
    fn name(self) -> &'static str {
        match self.0 {
            1 => "CUBLAS_STATUS_NOT_INITIALIZED",
            3 => "CUBLAS_STATUS_ALLOC_FAILED",
            7 => "CUBLAS_STATUS_INVALID_VALUE",
            8 => "CUBLAS_STATUS_ARCH_MISMATCH",
            11 => "CUBLAS_STATUS_MAPPING_ERROR",
            13 => "CUBLAS_STATUS_EXECUTION_FAILED",
            14 => "CUBLAS_STATUS_INTERNAL_ERROR",
            15 => "CUBLAS_STATUS_NOT_SUPPORTED",
            _ => "a status without a name",
        }
    }
}

/// One of cuBLASLt's objects: a handle, a layout, a description, a preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Object(pub(super) usize);

/// What the choice of an algorithm gives: `cublasLtMatmulHeuristicResult_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Choice {
    pub(super) algorithm: [u64; 8],
    pub(super) workspace: usize,
    pub(super) state: Status,
    pub(super) waves: f32,
    pub(super) reserved: [c_int; 4],
}

function_table! {
    /// cuBLASLt's functions that torchrs calls.
    Table returns Status;

    /// Makes a handle on the current device.
    fn cublasLtCreate(handle: *mut Object);
    /// Describes a matrix that lies column by column.
    fn cublasLtMatrixLayoutCreate(
        layout: *mut Object, kind: c_int, rows: u64, columns: u64, step: i64,
    );
    /// Changes the description.
    fn cublasLtMatrixLayoutSetAttribute(
        layout: Object, attribute: c_int, value: *const c_void, bytes: usize,
    );
    /// Ends the description.
    fn cublasLtMatrixLayoutDestroy(layout: Object);
    /// Describes a product.
    fn cublasLtMatmulDescCreate(description: *mut Object, compute: c_int, scale: c_int);
    /// Changes the description.
    fn cublasLtMatmulDescSetAttribute(
        description: Object, attribute: c_int, value: *const c_void, bytes: usize,
    );
    /// Ends the description.
    fn cublasLtMatmulDescDestroy(description: Object);
    /// Makes a wish for an algorithm.
    fn cublasLtMatmulPreferenceCreate(preference: *mut Object);
    /// Says more of it.
    fn cublasLtMatmulPreferenceSetAttribute(
        preference: Object, attribute: c_int, value: *const c_void, bytes: usize,
    );
    /// Ends the wish.
    fn cublasLtMatmulPreferenceDestroy(preference: Object);
    /// Chooses algorithms.
    fn cublasLtMatmulAlgoGetHeuristic(
        handle: Object, description: Object, a: Object, b: Object, c: Object, d: Object,
        preference: Object, wanted: c_int, choices: *mut Choice, count: *mut c_int,
    );
    /// Starts a product.
    fn cublasLtMatmul(
        handle: Object, description: Object, alpha: *const c_void, a: *const u8, a_layout: Object,
        b: *const u8, b_layout: Object, beta: *const c_void, c: *const u8, c_layout: Object,
        d: *mut u8, d_layout: Object, algorithm: *const [u64; 8], workspace: *mut u8,
        workspace_bytes: usize, stream: StreamHandle,
    );
}

impl Table {
    fn check(&self, call: &str, status: Status) -> Result<()> {
        match status {
            Status::SUCCESS => Ok(()),
            Status(3) => Err(Error::OutOfMemory(format!("{call}: {} (3)", status.name()))),
            _ => Err(Error::Device(format!("{call}: {} ({})", status.name(), status.0))),
        }
    }
}

/// The library, loaded at the first call.
///
/// # Errors
/// [`Error::Device`] where there is none, [`Error::Config`] where it is not to be used.
pub(super) fn table() -> Result<&'static Table> {
    static TABLE: OnceLock<Result<Table>> = OnceLock::new();
    let load =
        || library::optional(Kind::CublasLt, USE_CUBLASLT, "cuBLASLt 12 or newer", Table::load);
    TABLE.get_or_init(load).as_ref().map_err(Error::clone)
}

/// The handle of a device.
pub(super) fn handle(device: usize) -> Result<Object> {
    static HANDLES: [TryOnce<Object>; MAX_DEVICES] = [const { TryOnce::new() }; MAX_DEVICES];
    HANDLES[device]
        .get_or_try(|| {
            device::bind(device)?;
            let mut handle = Object::default();
            // SAFETY: writes one handle, of the device that was just bound.
            unsafe { table()?.cublasLtCreate(&mut handle) }?;
            Ok(handle)
        })
        .copied()
}
