//! cuBLASLt: handles, descriptors of matrices and of products, the choice of an algorithm, and products. Its matrices
//! lie column by column.
//!
//! As for the driver's functions, callers promise what `cublasLt.h` asks of them.

pub mod matmul;

use crate::registry::{Handle, Registry};
use parking_lot::Mutex;
use std::ffi::c_void;

/// `cublasStatus_t`.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(pub i32);

impl Status {
    /// Done.
    pub const SUCCESS: Status = Status(0);
    /// The handle is none.
    pub const NOT_INITIALIZED: Status = Status(1);
    /// An argument that cannot be.
    pub const INVALID_VALUE: Status = Status(7);
    /// The stream does not take the work.
    pub const EXECUTION_FAILED: Status = Status(13);
    /// A product that cuBLASLt does not compute.
    pub const NOT_SUPPORTED: Status = Status(15);
}

/// What functions inside give.
type Outcome<T = ()> = Result<T, Status>;

/// The status that a C function returns.
fn status(outcome: Outcome) -> Status {
    outcome.map_or_else(|status| status, |()| Status::SUCCESS)
}

/// A matrix, or a stack of them.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// `cudaDataType_t`.
    pub kind: i32,
    /// Rows.
    pub rows: u64,
    /// Columns.
    pub columns: u64,
    /// The distance of columns in elements.
    pub step: i64,
    /// How many matrices.
    pub batch: i32,
    /// Their distance in elements.
    pub batch_step: i64,
}

/// What a product is.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// `cublasComputeType_t`.
    pub compute: i32,
    /// The type of alpha and beta.
    pub scale: i32,
    /// Whether the operands are transposed.
    pub turned: [bool; 2],
    /// `cublasLtEpilogue_t`.
    pub epilogue: i32,
    /// The epilogue's vector.
    pub bias: usize,
    /// Its type; -1 is the result's.
    pub bias_kind: i32,
    /// What an activation function keeps for its derivative.
    pub kept: usize,
    /// The distance of its columns, in elements or bits.
    pub kept_step: i64,
}

static HANDLES: Registry<()> = Registry::new();
static LAYOUTS: Registry<Mutex<Layout>> = Registry::new();
static DESCRIPTIONS: Registry<Mutex<Description>> = Registry::new();
/// The most workspace that a caller has.
static PREFERENCES: Registry<Mutex<u64>> = Registry::new();

/// Writes where the caller wants it.
fn put<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: the caller of the C function gave it for this.
    unsafe { place.write(value) };
    Ok(())
}

/// An attribute's value, whose size the caller gives too.
fn value<T: Copy>(from: *const c_void, bytes: usize) -> Outcome<T> {
    if from.is_null() || bytes != size_of::<T>() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: the caller of the C function says that so many bytes are there.
    Ok(unsafe { from.cast::<T>().read_unaligned() })
}

fn removed<T>(registry: &Registry<T>, handle: Handle) -> Status {
    registry.remove(handle).map_or(Status::INVALID_VALUE, |_| Status::SUCCESS)
}

/// The version that cuBLASLt claims.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    130_002
}

/// Makes a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtCreate(place: *mut Handle) -> Status {
    if crate::context::current().is_err() {
        return Status::NOT_INITIALIZED;
    }
    status(put(place, HANDLES.insert(())))
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtDestroy(handle: Handle) -> Status {
    removed(&HANDLES, handle)
}

/// Describes a matrix.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatrixLayoutCreate(
    place: *mut Handle,
    kind: i32,
    rows: u64,
    columns: u64,
    step: i64,
) -> Status {
    let layout = Layout { kind, rows, columns, step, batch: 1, batch_step: 0 };
    status(put(place, LAYOUTS.insert(Mutex::new(layout))))
}

/// Changes a matrix's description.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: Handle,
    attribute: i32,
    from: *const c_void,
    bytes: usize,
) -> Status {
    let set = || {
        let layout = LAYOUTS.get(layout).map_err(|_| Status::INVALID_VALUE)?;
        match attribute {
            5 => layout.lock().batch = value(from, bytes)?,
            6 => layout.lock().batch_step = value(from, bytes)?,
            _ => return Err(Status::INVALID_VALUE),
        }
        Ok(())
    };
    status(set())
}

/// Ends a matrix's description.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatrixLayoutDestroy(layout: Handle) -> Status {
    removed(&LAYOUTS, layout)
}

/// Describes a product.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatmulDescCreate(place: *mut Handle, compute: i32, scale: i32) -> Status {
    let description = Description {
        compute,
        scale,
        turned: [false; 2],
        epilogue: 1,
        bias: 0,
        bias_kind: -1,
        kept: 0,
        kept_step: 0,
    };
    status(put(place, DESCRIPTIONS.insert(Mutex::new(description))))
}

/// Changes a product's description.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatmulDescSetAttribute(
    description: Handle,
    attribute: i32,
    from: *const c_void,
    bytes: usize,
) -> Status {
    let set = || {
        let description = DESCRIPTIONS.get(description).map_err(|_| Status::INVALID_VALUE)?;
        match attribute {
            3 | 4 => {
                let operation: i32 = value(from, bytes)?;
                if !(0..=2).contains(&operation) {
                    return Err(Status::INVALID_VALUE);
                }
                description.lock().turned[attribute as usize - 3] = operation != 0;
            }
            7 => description.lock().epilogue = value(from, bytes)?,
            8 => description.lock().bias = value(from, bytes)?,
            11 => description.lock().kept = value(from, bytes)?,
            12 => description.lock().kept_step = value(from, bytes)?,
            26 => description.lock().bias_kind = value(from, bytes)?,
            _ => return Err(Status::INVALID_VALUE),
        }
        Ok(())
    };
    status(set())
}

/// Ends a product's description.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatmulDescDestroy(description: Handle) -> Status {
    removed(&DESCRIPTIONS, description)
}

/// Makes a wish for an algorithm.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatmulPreferenceCreate(place: *mut Handle) -> Status {
    status(put(place, PREFERENCES.insert(Mutex::new(0))))
}

/// Says more of it: the workspace, or how addresses are aligned.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    preference: Handle,
    attribute: i32,
    from: *const c_void,
    bytes: usize,
) -> Status {
    let set = || {
        let preference = PREFERENCES.get(preference).map_err(|_| Status::INVALID_VALUE)?;
        match attribute {
            1 => *preference.lock() = value(from, bytes)?,
            5..=8 => {
                let alignment: u32 = value(from, bytes)?;
                if !alignment.is_power_of_two() {
                    return Err(Status::INVALID_VALUE);
                }
            }
            _ => return Err(Status::INVALID_VALUE),
        }
        Ok(())
    };
    status(set())
}

/// Ends a wish.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtMatmulPreferenceDestroy(preference: Handle) -> Status {
    removed(&PREFERENCES, preference)
}
