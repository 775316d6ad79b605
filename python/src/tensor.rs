//! The class `Tensor`.

use std::fmt::Display;
use std::str::FromStr;

use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyDict, PyInt, PyTuple};
use torchrs::exchange::dlpack::ConsumerStream;
use torchrs::ops::pointwise;
use torchrs::{Device, Dtype, Operand, Scalar, Tensor};

use crate::call::{attempt, buffer_error, run};
use crate::{capsule, index};

/// DLPack's numbers of the CPU and of GPUs.
const CPU: i32 = 1;
const CUDA: i32 = 2;

/// The names of dtypes in Python, PyTorch's and NumPy's, and their names in an array interface.
const NAMES: [(Dtype, &str, &str); 12] = [
    (Dtype::F64, "float64", "<f8"),
    (Dtype::F32, "float32", "<f4"),
    (Dtype::F16, "float16", "<f2"),
    (Dtype::BF16, "bfloat16", ""),
    (Dtype::I64, "int64", "<i8"),
    (Dtype::I32, "int32", "<i4"),
    (Dtype::I16, "int16", "<i2"),
    (Dtype::I8, "int8", "|i1"),
    (Dtype::U8, "uint8", "|u1"),
    (Dtype::Bool, "bool", "|b1"),
    (Dtype::C64, "complex64", "<c8"),
    (Dtype::C128, "complex128", "<c16"),
];

/// A dtype by its name.
pub fn dtype(name: &str) -> PyResult<Dtype> {
    let name = name.strip_prefix("torch.").unwrap_or(name);
    NAMES.iter().find(|row| row.1 == name).map(|row| row.0).ok_or_else(|| {
        let known: Vec<&str> = NAMES.iter().map(|row| row.1).collect();
        PyValueError::new_err(format!("dtype {name:?} is none of {}", known.join(", ")))
    })
}

fn names(dtype: Dtype) -> PyResult<(&'static str, &'static str)> {
    let row = NAMES.iter().find(|row| row.0 == dtype);
    row.map(|row| (row.1, row.2))
        .ok_or_else(|| PyTypeError::new_err(format!("no name for {dtype}")))
}

/// A device by its name.
pub fn device(name: &str) -> PyResult<Device> {
    Device::from_str(name).map_err(crate::call::exception)
}

/// A tensor of torchrs.
#[pyclass(name = "Tensor", module = "torchrs", frozen)]
pub struct PyTensor(pub Tensor);

/// What stands on the other side of an operator.
enum Other {
    Tensor(Tensor),
    Number(Scalar),
}

impl Other {
    /// `None` for what is neither a tensor nor a number: Python is to ask that then.
    fn of(object: &Bound<'_, PyAny>) -> Option<Other> {
        if let Ok(tensor) = object.cast::<PyTensor>() {
            return Some(Other::Tensor(tensor.get().0.clone()));
        }
        number(object).map(Other::Number)
    }

    fn operand(&self) -> Operand<'_> {
        match self {
            Other::Tensor(tensor) => tensor.into(),
            Other::Number(number) => (*number).into(),
        }
    }
}

/// A number of Python or NumPy. `None` for arrays, of which those of one element pass for numbers otherwise, and for
/// integers beyond i64.
pub fn number(object: &Bound<'_, PyAny>) -> Option<Scalar> {
    if object.hasattr("__dlpack__").unwrap_or(true) {
        return None;
    }
    if let Ok(truth) = object.extract::<bool>() {
        return Some(truth.into());
    }
    match object.extract::<i64>() {
        Ok(whole) => Some(whole.into()),
        Err(_) if object.is_instance_of::<PyInt>() => None,
        Err(_) => object.extract::<f64>().ok().map(Scalar::from),
    }
}

/// The op of that name on a tensor and what stands on the other side, or the other way round.
fn binary(
    py: Python<'_>,
    name: &str,
    x: &Tensor,
    other: &Bound<'_, PyAny>,
    is_reversed: bool,
) -> PyResult<Py<PyAny>> {
    let Some(other) = Other::of(other) else { return Ok(py.NotImplemented()) };
    let row = pointwise::tables()
        .find(|row| row.name == name)
        .ok_or_else(|| PyTypeError::new_err(format!("there is no op {name}")))?;
    let z = run(py, || {
        let (x, y) = (Operand::from(x), other.operand());
        pointwise::apply(row, &if is_reversed { [y, x] } else { [x, y] }, &[])
    })?;
    Ok(Bound::new(py, PyTensor(z))?.into_any().unbind())
}

/// What an op in place takes.
fn operand(op: &str, other: &Bound<'_, PyAny>) -> PyResult<Other> {
    Other::of(other).ok_or_else(|| {
        PyTypeError::new_err(format!(
            "{op}: a tensor or a number is needed, not {}",
            other.get_type()
        ))
    })
}

/// Sizes from `f(2, 3)` and from `f((2, 3))`.
fn sizes(arguments: &Bound<'_, PyTuple>) -> PyResult<Vec<i64>> {
    match arguments.len() {
        1 => match arguments.get_item(0)?.extract::<Vec<i64>>() {
            Ok(sizes) => Ok(sizes),
            Err(_) => arguments.extract(),
        },
        _ => arguments.extract(),
    }
}

#[pymethods]
impl PyTensor {
    /// Sizes of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// Distance in elements of neighbours along each dimension.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.strides())
    }

    #[getter]
    fn dtype(&self) -> PyResult<&'static str> {
        names(self.0.dtype()).map(|row| row.0)
    }

    #[getter]
    fn device(&self) -> String {
        self.0.device().to_string()
    }

    #[getter]
    fn ndim(&self) -> usize {
        self.0.dim()
    }

    #[getter]
    fn requires_grad(&self) -> bool {
        self.0.requires_grad()
    }

    /// True for memory that another library lends and that may not be written.
    #[getter]
    fn is_read_only(&self) -> bool {
        self.0.storage().is_read_only()
    }

    #[getter]
    fn grad(&self, py: Python<'_>) -> PyResult<Option<PyTensor>> {
        Ok(run(py, || self.0.grad())?.map(PyTensor))
    }

    /// How often the memory was changed in place, by torchrs.
    #[getter]
    fn _version(&self) -> u32 {
        self.0.version()
    }

    /// Counts a change of the memory by another library, so that backward notices it.
    fn bump_version(&self) -> PyResult<()> {
        match self.0.storage().is_read_only() {
            true => {
                Err(PyValueError::new_err("bump_version: nobody may have changed read-only memory"))
            }
            false => {
                self.0.storage().bump_version();
                Ok(())
            }
        }
    }

    fn numel(&self) -> usize {
        self.0.numel()
    }

    fn data_ptr(&self, py: Python<'_>) -> PyResult<usize> {
        run(py, || self.0.device_ptr().addr())
    }

    fn is_contiguous(&self) -> bool {
        self.0.is_contiguous()
    }

    fn __len__(&self) -> PyResult<usize> {
        self.0.shape().first().copied().ok_or_else(|| PyTypeError::new_err("len() of a 0-d tensor"))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        if self.0.numel() != 1 {
            return Err(PyValueError::new_err(format!(
                "the truth of a tensor of shape {:?} is ambiguous; ask `item()` of one element",
                self.0.shape()
            )));
        }
        run(py, || self.0.item() != 0.0)
    }

    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        run(py, || self.0.item())
    }

    fn __int__(&self, py: Python<'_>) -> PyResult<i64> {
        run(py, || self.0.item_i64())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shown = |x: &dyn Display| x.to_string();
        run(py, || shown(&self.0.detach()))
    }

    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        index::part(&self.0, index).map(PyTensor)
    }

    fn __add__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(py, "add", &self.0, other, false)
    }

    fn __radd__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(py, "add", &self.0, other, true)
    }

    fn __sub__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(py, "sub", &self.0, other, false)
    }

    fn __rsub__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(py, "sub", &self.0, other, true)
    }

    fn __mul__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(py, "mul", &self.0, other, false)
    }

    fn __rmul__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(py, "mul", &self.0, other, true)
    }

    fn __truediv__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(py, "div", &self.0, other, false)
    }

    fn __rtruediv__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        binary(py, "div", &self.0, other, true)
    }

    fn __matmul__(&self, py: Python<'_>, other: PyRef<'_, PyTensor>) -> PyResult<PyTensor> {
        let y = other.0.clone();
        run(py, || self.0.matmul(&y)).map(PyTensor)
    }

    /// Elements are compared one by one, as in NumPy and PyTorch.
    fn __richcmp__(
        &self,
        py: Python<'_>,
        other: &Bound<'_, PyAny>,
        op: CompareOp,
    ) -> PyResult<Py<PyAny>> {
        let name = match op {
            CompareOp::Lt => "lt",
            CompareOp::Le => "le",
            CompareOp::Eq => "eq",
            CompareOp::Ne => "ne",
            CompareOp::Gt => "gt",
            CompareOp::Ge => "ge",
        };
        binary(py, name, &self.0, other, false)
    }

    /// Of the object, not of its elements, which change.
    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr().addr()
    }

    fn __neg__(&self, py: Python<'_>) -> PyResult<PyTensor> {
        run(py, || -&self.0).map(PyTensor)
    }

    /// Whether shape, dtype and values are the same.
    fn equal(&self, py: Python<'_>, other: PyRef<'_, PyTensor>) -> PyResult<bool> {
        let y = other.0.clone();
        run(py, || self.0.equal(&y))
    }

    fn sum(&self, py: Python<'_>) -> PyResult<PyTensor> {
        run(py, || self.0.sum()).map(PyTensor)
    }

    fn mean(&self, py: Python<'_>) -> PyResult<PyTensor> {
        run(py, || self.0.mean()).map(PyTensor)
    }

    fn t(&self, py: Python<'_>) -> PyResult<PyTensor> {
        run(py, || self.0.t()).map(PyTensor)
    }

    fn transpose(&self, py: Python<'_>, dim0: i64, dim1: i64) -> PyResult<PyTensor> {
        run(py, || self.0.transpose(dim0, dim1)).map(PyTensor)
    }

    #[pyo3(signature = (*dims))]
    fn permute(&self, py: Python<'_>, dims: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let dims = sizes(dims)?;
        run(py, || self.0.permute(&dims)).map(PyTensor)
    }

    #[pyo3(signature = (*shape))]
    fn reshape(&self, py: Python<'_>, shape: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let shape = sizes(shape)?;
        run(py, || self.0.reshape(&shape)).map(PyTensor)
    }

    #[pyo3(signature = (*shape))]
    fn expand(&self, py: Python<'_>, shape: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let shape: Vec<usize> = sizes(shape)?
            .into_iter()
            .map(|n| {
                usize::try_from(n).map_err(|_| PyValueError::new_err(format!("expand: size {n}")))
            })
            .collect::<PyResult<_>>()?;
        run(py, || self.0.expand(&shape)).map(PyTensor)
    }

    fn contiguous(&self, py: Python<'_>) -> PyResult<PyTensor> {
        run(py, || self.0.contiguous()).map(PyTensor)
    }

    /// A copy in row-major order, with this one's history.
    fn clone(&self, py: Python<'_>) -> PyResult<PyTensor> {
        run(py, || self.0.clone_contiguous()).map(PyTensor)
    }

    fn detach(&self, py: Python<'_>) -> PyResult<PyTensor> {
        run(py, || self.0.detach()).map(PyTensor)
    }

    /// To a dtype or a device, each by its name.
    #[pyo3(signature = (dtype=None, device=None))]
    fn to(&self, py: Python<'_>, dtype: Option<&str>, device: Option<&str>) -> PyResult<PyTensor> {
        let mut out = self.0.clone();
        if let Some(device) = device.map(self::device).transpose()? {
            out = run(py, || out.to_device(device))?;
        }
        if let Some(dtype) = dtype.map(self::dtype).transpose()? {
            out = run(py, || out.to_dtype(dtype))?;
        }
        Ok(PyTensor(out))
    }

    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let list = self.values(py)?;
        match self.0.numel() {
            1 => list.get_item(0),
            n => Err(PyValueError::new_err(format!("item: one element is needed, there are {n}"))),
        }
    }

    /// All elements in row-major order, as nested lists.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut list = self.values(py)?;
        for &size in self.0.shape().iter().skip(1).rev() {
            let n = list.len()?;
            let rows: Vec<Bound<'_, PyAny>> = match size {
                0 => Vec::new(),
                _ => (0..n / size)
                    .map(|row| {
                        list.get_item(pyo3::types::PySlice::new(
                            py,
                            (row * size) as isize,
                            ((row + 1) * size) as isize,
                            1,
                        ))
                    })
                    .collect::<PyResult<_>>()?,
            };
            list = rows.into_pyobject(py)?.into_any();
        }
        if self.0.numel() == 0 {
            return empty(py, self.0.shape());
        }
        if self.0.dim() == 0 { list.get_item(0) } else { Ok(list) }
    }

    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_(slf: Bound<'_, Self>, requires_grad: bool) -> PyResult<Bound<'_, Self>> {
        let x = slf.get().0.clone();
        run(slf.py(), || _ = x.requires_grad_(requires_grad))?;
        Ok(slf)
    }

    #[pyo3(signature = (gradient=None))]
    fn backward(&self, py: Python<'_>, gradient: Option<PyRef<'_, PyTensor>>) -> PyResult<()> {
        let gradient = gradient.map(|g| g.0.clone());
        run(py, || {
            use torchrs::autograd::{GraphMode, backward};
            backward(&[&self.0], &[gradient.as_ref()], GraphMode::Free)
        })
    }

    fn fill_<'py>(slf: Bound<'py, Self>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let (x, value) = (slf.get().0.clone(), operand("fill_", value)?);
        run(slf.py(), || _ = x.fill_(value.operand()))?;
        Ok(slf)
    }

    fn copy_<'py>(
        slf: Bound<'py, Self>,
        source: PyRef<'_, PyTensor>,
    ) -> PyResult<Bound<'py, Self>> {
        let (x, source) = (slf.get().0.clone(), source.0.clone());
        run(slf.py(), || _ = x.copy_(&source))?;
        Ok(slf)
    }

    fn add_<'py>(slf: Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let (x, other) = (slf.get().0.clone(), operand("add_", other)?);
        run(slf.py(), || _ = x.add_(other.operand()))?;
        Ok(slf)
    }

    fn mul_<'py>(slf: Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let (x, other) = (slf.get().0.clone(), operand("mul_", other)?);
        run(slf.py(), || _ = x.mul_(other.operand()))?;
        Ok(slf)
    }

    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        match self.0.device() {
            Device::Cpu => Ok((CPU, 0)),
            Device::Cuda(index) => Ok((CUDA, index as i32)),
            other => {
                Err(PyBufferError::new_err(format!("__dlpack_device__: {other} has no memory")))
            }
        }
    }

    /// A capsule of DLPack. Memory that may not be written is never lent: takers are known that write to it all the
    /// same, so they get a copy.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let refuse = |what: String| Err(PyBufferError::new_err(format!("__dlpack__: {what}")));
        let own = self.__dlpack_device__()?;
        let to_cpu = match dl_device {
            Some(wanted) if wanted == own => false,
            None => false,
            Some((CPU, _)) => true,
            Some((kind, number)) => {
                return refuse(format!(
                    "device ({kind}, {number}) is neither the tensor's own, {own:?}, nor the CPU, (1, 0); move the \
                     tensor there first"
                ));
            }
        };
        if self.0.requires_grad() {
            return refuse(
                "a tensor that requires a gradient would lose it; export what `detach()` gives"
                    .into(),
            );
        }
        let read_only = self.0.storage().is_read_only();
        if copy == Some(false) && (to_cpu || read_only) {
            let why = if to_cpu {
                "the CPU has no part in a GPU's memory"
            } else {
                "the memory is read-only, which not every taker heeds"
            };
            return refuse(format!("copy=False, but {why}; without it the taker gets a copy"));
        }
        let is_copy = copy == Some(true) || to_cpu || read_only;
        let x = match (to_cpu, is_copy) {
            (true, _) => run(py, || self.0.to_device(Device::Cpu))?,
            (false, true) => run(py, || self.0.clone_contiguous())?,
            (false, false) => self.0.clone(),
        };
        let consumer = match x.device() {
            Device::Cpu => match stream.filter(|&stream| stream != -1 && own.0 == CPU) {
                Some(stream) => {
                    return refuse(format!(
                        "stream {stream}, and a tensor on the CPU has none; leave `stream` out"
                    ));
                }
                None => ConsumerStream::Default,
            },
            _ => ConsumerStream::of_number(stream).map_err(buffer_error)?,
        };
        let lent = py.detach(|| x.to_dlpack(consumer)).map_err(buffer_error)?;
        let lent = if is_copy { lent.copied() } else { lent };
        capsule::wrapped(py, lent, max_version.is_some_and(|version| version.0 >= 1))
    }

    /// NumPy's protocol: the memory itself, read-only where it is that.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let x = &self.0;
        // Not AttributeError, after which NumPy would take the tensor for a list.
        let refuse = |what: String| {
            Err(PyTypeError::new_err(format!("a NumPy array of this tensor: {what}")))
        };
        if x.device() != Device::Cpu {
            return refuse(format!("it is on {}; move it by `to(device=\"cpu\")`", x.device()));
        }
        if x.requires_grad() {
            return refuse("it requires a gradient; use `detach()`".to_owned());
        }
        let typestr = names(x.dtype())?.1;
        if typestr.is_empty() {
            return refuse(format!("NumPy has no {}; use `to(\"float32\")`", x.dtype()));
        }
        let size = x.dtype().size() as isize;
        let strides: Vec<isize> = x.strides().iter().map(|&stride| stride * size).collect();
        let address = run(py, || x.data_ptr().addr())?;
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", typestr)?;
        interface.set_item("shape", PyTuple::new(py, x.shape())?)?;
        interface.set_item("strides", PyTuple::new(py, strides)?)?;
        interface.set_item("data", (address, x.storage().is_read_only()))?;
        Ok(interface)
    }

    /// A NumPy array over the same memory.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("numpy")?.call_method1("asarray", (slf,))
    }
}

/// Nested lists of a tensor without elements.
fn empty<'py>(py: Python<'py>, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let mut rows: Vec<Bound<'py, PyAny>> = Vec::new();
    if let [size, rest @ ..] = shape {
        for _ in 0..*size {
            rows.push(empty(py, rest)?);
        }
    }
    Ok(rows.into_pyobject(py)?.into_any())
}

impl PyTensor {
    /// The elements in row-major order, as a list.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let x = &self.0;
        Ok(match x.dtype() {
            Dtype::Bool => run(py, || x.to_vec::<bool>())?.into_pyobject(py)?.into_any(),
            dtype if dtype.is_complex() => {
                let numbers = run(py, || x.to_vec::<torchrs::Complex<f64>>())?;
                let numbers: Vec<Bound<'_, PyAny>> = numbers
                    .iter()
                    .map(|z| pyo3::types::PyComplex::from_doubles(py, z.re, z.im).into_any())
                    .collect();
                numbers.into_pyobject(py)?.into_any()
            }
            dtype if dtype.is_floating_point() => {
                run(py, || x.to_vec::<f64>())?.into_pyobject(py)?.into_any()
            }
            _ => run(py, || x.to_vec::<i64>())?.into_pyobject(py)?.into_any(),
        })
    }
}

/// A tensor over what an object of another library lends, or a copy of it.
#[pyfunction]
#[pyo3(signature = (x, /, *, device=None, copy=None))]
pub fn from_dlpack(
    x: &Bound<'_, PyAny>,
    device: Option<&str>,
    copy: Option<bool>,
) -> PyResult<PyTensor> {
    let py = x.py();
    let device = device.map(self::device).transpose()?;
    let mut is_copied = false;
    let mut out = if let Ok(tensor) = x.cast::<PyTensor>() {
        tensor.get().0.clone()
    } else if let Ok(capsule) = x.cast::<pyo3::types::PyCapsule>() {
        capsule::taken(capsule)?
    } else {
        let (kind, number): (i32, i32) = match x.call_method0("__dlpack_device__") {
            Ok(device) => device.extract()?,
            Err(_) => {
                let message = format!("from_dlpack: {} has no `__dlpack_device__`", x.get_type());
                return Err(PyTypeError::new_err(message));
            }
        };
        let stream = match (kind, usize::try_from(number)) {
            (CUDA, Ok(index)) => {
                Some(attempt(py, || Ok(torchrs::cuda::Stream::current(index)?.as_raw().addr()))?)
            }
            _ => None,
        };
        let (capsule, heeded) = capsule::lent_by(x, stream, copy)?;
        is_copied = heeded && copy == Some(true);
        capsule::taken(&capsule)?
    };
    if let Some(device) = device.filter(|&device| device != out.device()) {
        if copy == Some(false) {
            let message = format!("from_dlpack: copy=False, and {} is not {device}", out.device());
            return Err(PyBufferError::new_err(message));
        }
        out = run(py, || out.to_device(device))?;
        is_copied = true;
    }
    if copy == Some(true) && !is_copied {
        out = run(py, || out.clone_contiguous())?;
    }
    Ok(PyTensor(out))
}

/// Sizes that make sense.
pub fn checked_shape(shape: Vec<i64>) -> PyResult<Vec<usize>> {
    let positive = shape.iter().all(|&size| size >= 0);
    if !positive {
        return Err(PyValueError::new_err(format!("shape {shape:?} has a size below 0")));
    }
    Ok(shape.into_iter().map(|size| size as usize).collect())
}
