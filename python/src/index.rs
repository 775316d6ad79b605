//! `x[...]`: numbers and slices along the first dimensions, as views.

use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PySlice, PyTuple};
use torchrs::Tensor;

use crate::call::run;

/// The part of `x` that `index` names.
pub fn part(x: &Tensor, index: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let items: Vec<Bound<'_, PyAny>> = match index.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().collect(),
        Err(_) => vec![index.clone()],
    };
    let (mut out, mut dim) = (x.clone(), 0);
    for (place, item) in items.iter().enumerate() {
        let rest = &items[place + 1..];
        if item.is_instance_of::<PyEllipsis>() {
            if rest.iter().any(|item| item.is_instance_of::<PyEllipsis>()) {
                return Err(PyIndexError::new_err(format!("more than one `...` in {index}")));
            }
            dim = dim.max(out.dim().saturating_sub(rest.len()));
            continue;
        }
        if dim >= out.dim() {
            let message = format!("too many indices for shape {:?}: {index}", x.shape());
            return Err(PyIndexError::new_err(message));
        }
        let size = out.shape()[dim];
        if let Ok(slice) = item.cast::<PySlice>() {
            let found = slice.indices(size as isize)?;
            if found.step != 1 {
                let message = format!("step {} of a slice: only 1 is a view here", found.step);
                return Err(PyIndexError::new_err(message));
            }
            let (at, length) = (found.start, found.slicelength);
            out = run(item.py(), || out.narrow(dim as i64, at as usize, length))?;
            dim += 1;
        } else if let Some(at) = place_of(item) {
            let n = size as i64;
            if !(-n..n).contains(&at) {
                let message = format!("index {at} is out of range for dimension {dim} of size {n}");
                return Err(PyIndexError::new_err(message));
            }
            out = run(item.py(), || out.select(dim as i64, at))?;
        } else {
            let message = format!("index {item} is neither a whole number, a slice nor `...`");
            return Err(PyTypeError::new_err(message));
        }
    }
    Ok(out)
}

/// A whole number. A truth value is none: it would be a mask.
fn place_of(item: &Bound<'_, PyAny>) -> Option<i64> {
    if item.is_instance_of::<PyBool>() { None } else { item.extract().ok() }
}
