//! DLPack's capsules. A taker renames a capsule, by which everybody else knows that it has been taken; one that nobody
//! took gives its memory back when it goes.

use std::ffi::CStr;

use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use torchrs::Tensor;
use torchrs::exchange::dlpack::DlTensor;

use crate::call::{attempt, buffer_error};

const NAME: &CStr = c"dltensor_versioned";
const USED: &CStr = c"used_dltensor_versioned";
const OLD_NAME: &CStr = c"dltensor";
const OLD_USED: &CStr = c"used_dltensor";

/// The destructor of a capsule with a version.
unsafe extern "C" fn release(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with a capsule, and its lock; under its first name nobody has taken it.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr());
            drop(DlTensor::from_raw(managed.cast()));
        }
    }
}

/// The destructor of a capsule without a version.
unsafe extern "C" fn release_old(capsule: *mut ffi::PyObject) {
    // SAFETY: as in `release`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, OLD_NAME.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, OLD_NAME.as_ptr());
            drop(DlTensor::from_raw_unversioned(managed.cast()));
        }
    }
}

/// A capsule around a tensor that is lent.
pub fn wrapped(py: Python<'_>, tensor: DlTensor, versioned: bool) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the capsule has the pointer from here on; where there is none, it is taken back. A new reference.
    unsafe {
        if versioned {
            let managed = tensor.into_raw();
            let capsule = ffi::PyCapsule_New(managed.cast(), NAME.as_ptr(), Some(release));
            if capsule.is_null() {
                drop(DlTensor::from_raw(managed));
            }
            Bound::from_owned_ptr_or_err(py, capsule)
        } else {
            let managed = tensor.into_raw_unversioned().map_err(buffer_error)?;
            let capsule = ffi::PyCapsule_New(managed.cast(), OLD_NAME.as_ptr(), Some(release_old));
            if capsule.is_null() {
                drop(DlTensor::from_raw_unversioned(managed));
            }
            Bound::from_owned_ptr_or_err(py, capsule)
        }
    }
}

/// The tensor in a capsule, which is taken.
pub fn taken(capsule: &Bound<'_, PyCapsule>) -> PyResult<Tensor> {
    let (py, raw) = (capsule.py(), capsule.as_ptr());
    // SAFETY: a capsule, and Python's lock. Its name says what its pointer is, and that nobody has taken it; with the
    // other name nobody else will. What such a pointer promises is the producer's to keep.
    let tensor = unsafe {
        let has_name = |name: &CStr| ffi::PyCapsule_IsValid(raw, name.as_ptr()) == 1;
        let take = |name: &CStr, used: &'static CStr| {
            let managed = ffi::PyCapsule_GetPointer(raw, name.as_ptr());
            match managed.is_null() || ffi::PyCapsule_SetName(raw, used.as_ptr()) != 0 {
                true => Err(PyErr::fetch(py)),
                false => Ok(managed),
            }
        };
        if has_name(NAME) {
            DlTensor::from_raw(take(NAME, USED)?.cast())
        } else if has_name(OLD_NAME) {
            DlTensor::from_raw_unversioned(take(OLD_NAME, OLD_USED)?.cast())
        } else if has_name(USED) || has_name(OLD_USED) {
            return Err(PyValueError::new_err(
                "from_dlpack: the capsule has been taken already; ask its producer for another one",
            ));
        } else {
            return Err(PyTypeError::new_err("from_dlpack: the capsule is none of DLPack"));
        }
    };
    attempt(py, move || tensor.and_then(Tensor::from_dlpack))
}

/// What an object of another library lends. `stream` is the one that is to wait for it.
pub fn lent_by<'py>(
    object: &Bound<'py, PyAny>,
    stream: Option<usize>,
    copy: Option<bool>,
) -> PyResult<(Bound<'py, PyCapsule>, bool)> {
    let py = object.py();
    let arguments = PyDict::new(py);
    if let Some(stream) = stream {
        arguments.set_item("stream", stream)?;
    }
    arguments.set_item("max_version", (1, 1))?;
    if let Some(copy) = copy {
        arguments.set_item("copy", copy)?;
    }
    // Older producers know neither of the two.
    let (capsule, heeded) = match object.call_method("__dlpack__", (), Some(&arguments)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            arguments.del_item("max_version")?;
            if copy.is_some() {
                arguments.del_item("copy")?;
            }
            (object.call_method("__dlpack__", (), Some(&arguments))?, false)
        }
        other => (other?, true),
    };
    let capsule = capsule.cast_into::<PyCapsule>().map_err(|error| {
        PyBufferError::new_err(format!("from_dlpack: `__dlpack__` gave no capsule: {error}"))
    })?;
    Ok((capsule, heeded))
}
