from typing import Any, ContextManager, Optional, Union

from ._torchrs import Model as Model
from ._torchrs import Tensor as Tensor
from ._torchrs import __version__ as __version__
from ._torchrs import from_dlpack as from_dlpack
from ._torchrs import get_num_threads as get_num_threads
from ._torchrs import grad as grad
from ._torchrs import manual_seed as manual_seed
from ._torchrs import set_num_threads as set_num_threads

float64: str
float32: str
float16: str
bfloat16: str
int64: str
int32: str
int16: str
int8: str
uint8: str
bool_: str
complex64: str
complex128: str

_Number = Union[bool, int, float]

def full(
    shape: Any, value: _Number, *, dtype: Optional[str] = None, device: str = "cpu", requires_grad: bool = False
) -> Tensor: ...
def zeros(*shape: Any, dtype: str = "float32", device: str = "cpu", requires_grad: bool = False) -> Tensor: ...
def ones(*shape: Any, dtype: str = "float32", device: str = "cpu", requires_grad: bool = False) -> Tensor: ...
def empty(*shape: Any, dtype: str = "float32", device: str = "cpu") -> Tensor: ...
def randn(*shape: Any, dtype: str = "float32", device: str = "cpu", requires_grad: bool = False) -> Tensor: ...
def arange(
    start: _Number,
    end: Optional[_Number] = None,
    step: _Number = 1,
    *,
    dtype: Optional[str] = None,
    device: str = "cpu",
) -> Tensor: ...
def tensor(data: Any, dtype: Optional[str] = None) -> Tensor: ...
def no_grad() -> ContextManager[None]: ...
