//! Python's classes and functions that a pickle may name, and what they are here.

use super::raw::raw_dtype;
use super::storages::{dtype_named, storage_dtype};
use crate::tensor::Dtype;

/// A class or function that a file names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Global {
    /// `OrderedDict`, `Counter`, `defaultdict`.
    Dict,
    List,
    Size,
    Complex,
    /// A storage class; `None` for bytes without a type.
    Storage(Option<Dtype>),
    Dtype(Dtype),
    /// One that is not known here, with the size of an element.
    RawDtype(&'static str, usize),
    Device,
    Encode,
    RebuildTensor,
    /// With the dtype apart from the storage.
    RebuildTyped,
    RebuildParameter,
    /// Of a subclass: rebuilt as a plain tensor.
    RebuildFromType,
    /// `numpy.dtype`.
    ArrayType,
    /// An array whose contents follow.
    Array,
    /// An array with its contents.
    ArrayOf,
    ArrayScalar,
    /// `numpy.ndarray` itself.
    ArrayClass,
    /// What makes an object of the class that is its first argument.
    New,
    /// Any other.
    Foreign,
}

pub(super) fn global(module: &str, name: &str) -> Global {
    let known = match (module, name) {
        ("collections", "OrderedDict" | "Counter" | "defaultdict") => Global::Dict,
        ("builtins" | "__builtin__", "set" | "frozenset" | "list") => Global::List,
        ("builtins" | "__builtin__", "dict") => Global::Dict,
        ("builtins" | "__builtin__", "complex") => Global::Complex,
        ("copyreg" | "copy_reg", "_reconstructor" | "__newobj__") => Global::New,
        ("torch", "Size") => Global::Size,
        ("torch", "device") => Global::Device,
        ("torch" | "torch.storage", "UntypedStorage") => Global::Storage(None),
        ("_codecs", "encode") => Global::Encode,
        ("builtins" | "__builtin__", "bytes" | "bytearray") => Global::Encode,
        ("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2") => Global::RebuildTensor,
        ("torch._utils", "_rebuild_tensor_v3") => Global::RebuildTyped,
        ("torch._utils", "_rebuild_parameter" | "_rebuild_parameter_with_state") => {
            Global::RebuildParameter
        }
        ("torch._tensor", "_rebuild_from_type_v2") => Global::RebuildFromType,
        ("numpy", "dtype") => Global::ArrayType,
        ("numpy", "ndarray") => Global::ArrayClass,
        ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => Global::Array,
        ("numpy.core.multiarray" | "numpy._core.multiarray", "scalar") => Global::ArrayScalar,
        ("numpy.core.numeric" | "numpy._core.numeric", "_frombuffer") => Global::ArrayOf,
        _ => Global::Foreign,
    };
    if known != Global::Foreign || module != "torch" {
        return known;
    }
    let storage = storage_dtype(name).map(|dtype| Global::Storage(Some(dtype)));
    let dtype = || dtype_named(name).map(Global::Dtype);
    let raw = || raw_dtype(name).map(|(name, size)| Global::RawDtype(name, size));
    storage.or_else(dtype).or_else(raw).unwrap_or(known)
}
