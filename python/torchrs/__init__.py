"""torchrs in Python: tensors that share memory with NumPy, PyTorch and others, and models and datasets written in Rust.

>>> import numpy, torchrs
>>> x = torchrs.from_dlpack(numpy.ones((2, 3), dtype="float32"))
>>> (x * 2).tolist()
[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]
"""

from contextlib import contextmanager as _contextmanager
from numbers import Complex as _Complex
from numbers import Integral as _Integral
from numbers import Real as _Real

from . import _torchrs
from ._torchrs import (
    Model,
    Tensor,
    __version__,
    from_dlpack,
    get_num_threads,
    grad,
    manual_seed,
    set_num_threads,
)

float64, float32, float16, bfloat16 = "float64", "float32", "float16", "bfloat16"
int64, int32, int16, int8, uint8 = "int64", "int32", "int16", "int8", "uint8"
bool_, complex64, complex128 = "bool", "complex64", "complex128"

__all__ = [
    "Model", "Tensor", "__version__", "arange", "bfloat16", "bool_", "complex128", "complex64", "empty", "float16",
    "float32", "float64", "from_dlpack", "full", "get_num_threads", "grad", "int16", "int32", "int64", "int8",
    "manual_seed", "no_grad", "ones", "randn", "set_num_threads", "tensor", "uint8", "zeros",
]


def _shape(shape):
    if len(shape) == 1 and not isinstance(shape[0], _Integral):
        shape = shape[0]
    return list(shape)


# As in PyTorch, those below 0 count from the end of a type without a sign.
_LIMITS = {"uint8": (-255, 255), "int8": (-(2**7), 2**7 - 1), "int16": (-(2**15), 2**15 - 1), "int32": (-(2**31), 2**31 - 1)}


def _check_range(name, values, dtype):
    """Refuses whole numbers that do not fit the type."""
    if dtype in _LIMITS:
        least, most = _LIMITS[dtype]
        for value in values:
            if isinstance(value, _Integral) and not least <= value <= most:
                raise ValueError(f"{name}: {value} does not fit {dtype}, which takes {least} to {most}")


def _number(value):
    """NumPy's truth values, which are no integers to Python, as Python's."""
    kind = type(value)
    return bool(value) if kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_") else value


def full(shape, value, *, dtype=None, device="cpu", requires_grad=False):
    """All elements equal to `value`; of its type, unless told."""
    value = _number(value)
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else "int64" if isinstance(value, _Integral) else "float32"
    _check_range("full", [value], dtype)
    return _torchrs.full(list(shape), value, dtype, device, requires_grad)


def zeros(*shape, dtype="float32", device="cpu", requires_grad=False):
    """Zeros."""
    return _torchrs.full(_shape(shape), 0, dtype, device, requires_grad)


def ones(*shape, dtype="float32", device="cpu", requires_grad=False):
    """Ones."""
    return _torchrs.full(_shape(shape), 1, dtype, device, requires_grad)


def empty(*shape, dtype="float32", device="cpu"):
    """Elements to be written before they are read; zeros here."""
    return _torchrs.full(_shape(shape), 0, dtype, device, False)


def randn(*shape, dtype="float32", device="cpu", requires_grad=False):
    """Standard normal numbers."""
    return _torchrs.randn(_shape(shape), dtype, device, requires_grad)


def arange(start, end=None, step=1, *, dtype=None, device="cpu"):
    """`start`, `start + step`, ... below `end`; or 0, 1, ... below the only number."""
    if end is None:
        start, end = 0, start
    if dtype is None:
        dtype = "int64" if all(isinstance(n, _Integral) for n in (start, end, step)) else "float32"
    return _torchrs.arange(start, end, step, dtype, device)


def tensor(data, dtype=None):
    """A copy of nested lists of numbers, or of an array of another library."""
    if hasattr(data, "__dlpack__"):
        made = from_dlpack(data, copy=True)
        return made if dtype is None else made.to(dtype)
    shape, level = [], [data]
    while level and isinstance(level[0], (list, tuple)):
        size = len(level[0])
        if any(not isinstance(row, (list, tuple)) or len(row) != size for row in level):
            raise ValueError(f"tensor: lists of different lengths in dimension {len(shape)}")
        shape.append(size)
        level = [item for row in level for item in row]
    level = [_number(value) for value in level]
    kinds = {type(value) for value in level}
    # NumPy's, too.
    has_complex = any(issubclass(kind, _Complex) and not issubclass(kind, _Real) for kind in kinds)
    if dtype is None:
        dtype = (
            "complex64" if has_complex
            else "bool" if kinds == {bool}
            else "int64" if kinds and all(issubclass(kind, _Integral) for kind in kinds)
            else "float32"
        )
    if dtype in (complex64, complex128) and str not in kinds:
        level = [complex(value) for value in level]
    elif has_complex:
        raise TypeError(f"tensor: a complex number among the data, and {dtype} has no imaginary part; {complex64} has")
    _check_range("tensor", level, dtype)
    return _torchrs.flat(level, shape, dtype)


@_contextmanager
def no_grad():
    """Ops in its body are not recorded for gradients; on this thread."""
    before = _torchrs.set_grad_enabled(False)
    try:
        yield
    finally:
        _torchrs.set_grad_enabled(before)
