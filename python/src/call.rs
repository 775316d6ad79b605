//! How a call from Python runs: without Python's lock while it computes, with errors and panics as exceptions that have
//! our message, and not in a process that was forked off one that has computed.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pyo3::exceptions::{
    PyBufferError, PyMemoryError, PyOSError, PyRuntimeError, PyTimeoutError, PyTypeError,
    PyValueError,
};
use pyo3::prelude::*;
use torchrs::{Error, Result, catch};

/// The process that has computed first.
static USED_BY: AtomicU32 = AtomicU32::new(0);

/// The exception for an error.
pub fn exception(error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Argument { .. } | Error::Shape { .. } | Error::Config { .. } => {
            PyValueError::new_err(message)
        }
        Error::Dtype { .. } => PyTypeError::new_err(message),
        Error::OutOfMemory(_) => PyMemoryError::new_err(message),
        Error::Os { .. } | Error::File { .. } => PyOSError::new_err(message),
        Error::Timeout { .. } => PyTimeoutError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}

/// The exception for what cannot be lent, as DLPack's protocol wants it.
pub fn buffer_error(error: Error) -> PyErr {
    PyBufferError::new_err(error.to_string())
}

/// Runs `f` without Python's lock.
pub fn run<T: Send>(py: Python<'_>, f: impl FnOnce() -> T + Send) -> PyResult<T> {
    attempt(py, || Ok(f()))
}

/// Runs `f`, which may fail, without Python's lock.
pub fn attempt<T: Send>(py: Python<'_>, f: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    refuse_forked()?;
    py.detach(|| catch(f)).and_then(|result| result).map_err(exception)
}

/// An exception in a process that was forked off one which has computed: the threads that compute are not in it, and it
/// would wait for them for ever.
fn refuse_forked() -> PyResult<()> {
    let own = process::id();
    match USED_BY.compare_exchange(0, own, Relaxed, Relaxed) {
        Ok(_) => Ok(()),
        Err(first) if first == own => Ok(()),
        Err(first) => Err(PyRuntimeError::new_err(format!(
            "torchrs computed in process {first} before that was forked into this one, where its threads are missing; \
             start processes by `multiprocessing.get_context(\"spawn\")`, or use torchrs only after the fork"
        ))),
    }
}
