//! DLPack's structures and numbers, as `dlpack.h` declares them, and what they are in ours.

use std::ffi::c_void;

use crate::error::{Error, Result};
use crate::tensor::{Device, Dtype};

/// The version that is written.
pub(super) const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 1 };
/// Nobody may write the memory.
pub(super) const READ_ONLY: u64 = 1;
/// The memory is the consumer's alone. Read by the package for Python.
pub(super) const IS_COPIED: u64 = 1 << 1;

const CPU: i32 = 1;
const CUDA: i32 = 2;
/// Host memory that is pinned.
const CUDA_HOST: i32 = 3;

const INT: u8 = 0;
const UINT: u8 = 1;
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;
const COMPLEX: u8 = 5;
const BOOL: u8 = 6;

/// A version of the structures. Another `major` has other ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLPackVersion {
    /// Counts changes of the structures.
    pub major: u32,
    /// Counts additions.
    pub minor: u32,
}

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDevice {
    /// Its kind: 1 is the CPU, 2 a GPU of CUDA.
    pub device_type: i32,
    /// Its index.
    pub device_id: i32,
}

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDataType {
    /// Its kind.
    pub code: u8,
    /// Bits of an element; of a complex one both parts.
    pub bits: u8,
    /// Numbers in an element, 1 but for vectors.
    pub lanes: u16,
}

/// Elements in memory.
#[derive(Debug)]
#[repr(C)]
pub struct DLTensor {
    /// Where the memory begins.
    pub data: *mut c_void,
    /// What device it is on.
    pub device: DLDevice,
    /// The number of dimensions.
    pub ndim: i32,
    /// What the elements are.
    pub dtype: DLDataType,
    /// The size of each dimension.
    pub shape: *mut i64,
    /// The distance of neighbours along each dimension, in elements. Null, from old libraries: row-major order.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// Elements in memory, and how their owner is told that they are used no more: of libraries before version 1.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The elements.
    pub dl_tensor: DLTensor,
    /// The owner's.
    pub manager_ctx: *mut c_void,
    /// To be called once, with this structure.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// Elements in memory, and how their owner is told that they are used no more.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The structure's version. The first three fields are the same in all.
    pub version: DLPackVersion,
    /// The owner's.
    pub manager_ctx: *mut c_void,
    /// To be called once, with this structure.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// Bit 0: read-only; bit 1: a copy that is the consumer's alone.
    pub flags: u64,
    /// The elements.
    pub dl_tensor: DLTensor,
}

/// What DLPack calls each dtype.
const TYPES: [(Dtype, u8); 12] = [
    (Dtype::F64, FLOAT),
    (Dtype::F32, FLOAT),
    (Dtype::F16, FLOAT),
    (Dtype::BF16, BFLOAT),
    (Dtype::I64, INT),
    (Dtype::I32, INT),
    (Dtype::I16, INT),
    (Dtype::I8, INT),
    (Dtype::U8, UINT),
    (Dtype::Bool, BOOL),
    (Dtype::C64, COMPLEX),
    (Dtype::C128, COMPLEX),
];

/// DLPack's name of a dtype.
pub(super) fn data_type(dtype: Dtype) -> DLDataType {
    let code = TYPES.iter().find(|row| row.0 == dtype).expect("all dtypes are in the table").1;
    DLDataType { code, bits: 8 * dtype.size() as u8, lanes: 1 }
}

/// The dtype that DLPack calls so.
pub(super) fn dtype(named: DLDataType) -> Result<Dtype> {
    if let Some((dtype, _)) = TYPES.iter().find(|row| data_type(row.0) == named) {
        return Ok(*dtype);
    }
    let DLDataType { code, bits, lanes } = named;
    let kind = match code {
        INT => "signed integers",
        UINT => "unsigned integers",
        FLOAT => "floating-point numbers",
        3 => "opaque handles",
        BFLOAT => "bfloat numbers",
        COMPLEX => "complex numbers",
        BOOL => "truth values",
        7..=14 => "8-bit floating-point numbers",
        _ => "elements",
    };
    let lanes = if lanes == 1 { String::new() } else { format!(" in vectors of {lanes}") };
    let known: Vec<&str> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
    Err(Error::dtype(
        "from_dlpack",
        format!(
            "{kind} of {bits} bits{lanes} (code {code}) are no dtype; {} are",
            known.join(", ")
        ),
    ))
}

/// DLPack's name of a device.
pub(super) fn device_name(device: Device) -> Result<DLDevice> {
    match device {
        Device::Cpu => Ok(DLDevice { device_type: CPU, device_id: 0 }),
        Device::Cuda(index) => Ok(DLDevice { device_type: CUDA, device_id: index as i32 }),
        Device::Meta => Err(Error::Device(
            "to_dlpack: a tensor on meta has no memory; move it to a device first".to_owned(),
        )),
    }
}

/// The device that DLPack calls so.
pub(super) fn device(named: DLDevice) -> Result<Device> {
    match (named.device_type, usize::try_from(named.device_id)) {
        (CPU | CUDA_HOST, _) => Ok(Device::Cpu),
        (CUDA, Ok(index)) => Ok(Device::Cuda(index)),
        (kind, _) => Err(Error::Device(format!(
            "from_dlpack: a device of type {kind}, number {}, is neither the CPU (1, or 3 if pinned) nor a GPU of \
             CUDA (2); have the producer copy to one of these",
            named.device_id
        ))),
    }
}
