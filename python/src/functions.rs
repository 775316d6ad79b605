//! Functions of the module: what makes tensors, gradients, settings.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use torchrs::autograd::{self, GraphMode};
use torchrs::{Complex, Scalar, Tensor, TensorOptions};

use crate::call::run;
use crate::tensor::{PyTensor, checked_shape, device, dtype, from_dlpack, number};

/// Adds them to the module.
pub fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(from_dlpack, m)?)?;
    m.add_function(wrap_pyfunction!(full, m)?)?;
    m.add_function(wrap_pyfunction!(randn, m)?)?;
    m.add_function(wrap_pyfunction!(arange, m)?)?;
    m.add_function(wrap_pyfunction!(flat, m)?)?;
    m.add_function(wrap_pyfunction!(grad, m)?)?;
    m.add_function(wrap_pyfunction!(manual_seed, m)?)?;
    m.add_function(wrap_pyfunction!(set_grad_enabled, m)?)?;
    m.add_function(wrap_pyfunction!(set_num_threads, m)?)?;
    m.add_function(wrap_pyfunction!(get_num_threads, m)?)?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))
}

fn options(name: &str, on: &str, requires_grad: bool) -> PyResult<TensorOptions> {
    Ok(TensorOptions { dtype: dtype(name)?, device: device(on)?, requires_grad })
}

/// A number that an argument is.
fn scalar(op: &str, argument: &str, object: &Bound<'_, PyAny>) -> PyResult<Scalar> {
    number(object).ok_or_else(|| {
        PyTypeError::new_err(format!(
            "{op}: `{argument}` is {object}; a real number is needed, whole ones within int64"
        ))
    })
}

#[pyfunction]
#[pyo3(signature = (shape, value, dtype, device, requires_grad))]
fn full(
    py: Python<'_>,
    shape: Vec<i64>,
    value: &Bound<'_, PyAny>,
    dtype: &str,
    device: &str,
    requires_grad: bool,
) -> PyResult<PyTensor> {
    let (shape, options) = (checked_shape(shape)?, options(dtype, device, requires_grad)?);
    let value = scalar("full", "value", value)?;
    run(py, || Tensor::full(&shape, value, options)).map(PyTensor)
}

#[pyfunction]
fn randn(
    py: Python<'_>,
    shape: Vec<i64>,
    dtype: &str,
    device: &str,
    requires_grad: bool,
) -> PyResult<PyTensor> {
    let (shape, options) = (checked_shape(shape)?, options(dtype, device, requires_grad)?);
    run(py, || Tensor::randn(&shape, options)).map(PyTensor)
}

#[pyfunction]
fn arange(
    py: Python<'_>,
    start: &Bound<'_, PyAny>,
    end: &Bound<'_, PyAny>,
    step: &Bound<'_, PyAny>,
    dtype: &str,
    device: &str,
) -> PyResult<PyTensor> {
    let options = options(dtype, device, false)?;
    let start = scalar("arange", "start", start)?;
    let (end, step) = (scalar("arange", "end", end)?, scalar("arange", "step", step)?);
    run(py, || Tensor::arange(start, end, step, options)).map(PyTensor)
}

/// A tensor of a shape from its elements in row-major order.
#[pyfunction]
fn flat(
    py: Python<'_>,
    values: &Bound<'_, PyAny>,
    shape: Vec<i64>,
    name: &str,
) -> PyResult<PyTensor> {
    let (shape, dtype) = (checked_shape(shape)?, dtype(name)?);
    let made = if dtype.is_complex() {
        let numbers: Vec<Bound<'_, pyo3::types::PyComplex>> = values.extract()?;
        use pyo3::types::PyComplexMethods;
        let numbers: Vec<Complex<f64>> =
            numbers.iter().map(|z| Complex::new(z.real(), z.imag())).collect();
        run(py, || Tensor::from_slice(&numbers, &shape).to_dtype(dtype))
    } else if dtype.is_floating_point() {
        let numbers: Vec<f64> = values.extract()?;
        run(py, || Tensor::from_slice(&numbers, &shape).to_dtype(dtype))
    } else {
        let numbers: Vec<i64> = values.extract()?;
        run(py, || Tensor::from_slice(&numbers, &shape).to_dtype(dtype))
    };
    made.map(PyTensor)
}

/// Gradients of `outputs` with respect to `inputs`; `None` for one that they do not depend on.
#[pyfunction]
#[pyo3(signature = (outputs, inputs, grad_outputs=None, *, retain_graph=false))]
fn grad(
    py: Python<'_>,
    outputs: Vec<PyRef<'_, PyTensor>>,
    inputs: Vec<PyRef<'_, PyTensor>>,
    grad_outputs: Option<Vec<Option<PyRef<'_, PyTensor>>>>,
    retain_graph: bool,
) -> PyResult<Vec<Option<PyTensor>>> {
    let outputs: Vec<Tensor> = outputs.iter().map(|x| x.0.clone()).collect();
    let inputs: Vec<Tensor> = inputs.iter().map(|x| x.0.clone()).collect();
    let given: Vec<Option<Tensor>> = match grad_outputs {
        Some(grads) => grads.iter().map(|g| g.as_ref().map(|g| g.0.clone())).collect(),
        None => vec![None; outputs.len()],
    };
    if given.len() != outputs.len() {
        let message = format!("grad: {} gradients of {} outputs", given.len(), outputs.len());
        return Err(PyValueError::new_err(message));
    }
    if inputs.is_empty() {
        return Err(PyTypeError::new_err("grad: no inputs"));
    }
    let mode = if retain_graph { GraphMode::Retain } else { GraphMode::Free };
    let found = run(py, || {
        let (outputs, inputs): (Vec<&Tensor>, Vec<&Tensor>) =
            (outputs.iter().collect(), inputs.iter().collect());
        let given: Vec<Option<&Tensor>> = given.iter().map(Option::as_ref).collect();
        autograd::grad(&outputs, &inputs, &given, mode)
    })?;
    Ok(found.into_iter().map(|grad| grad.map(PyTensor)).collect())
}

#[pyfunction]
fn manual_seed(py: Python<'_>, seed: u64) -> PyResult<()> {
    run(py, || torchrs::manual_seed(seed))
}

/// Whether ops are recorded from now on, on this thread; gives what was so before.
#[pyfunction]
fn set_grad_enabled(enabled: bool) -> bool {
    let before = autograd::is_grad_enabled();
    autograd::set_grad_enabled(enabled);
    before
}

#[pyfunction]
fn set_num_threads(py: Python<'_>, threads: usize) -> PyResult<()> {
    run(py, || torchrs::set_num_threads(threads))
}

#[pyfunction]
fn get_num_threads() -> usize {
    torchrs::get_num_threads()
}
