//! Memory that another library lends.

use std::fmt;
use std::ptr::{self, NonNull};
use std::slice;

use super::abi::{self, DLManagedTensor, DLManagedTensorVersioned, DLTensor, READ_ONLY, VERSION};
use crate::error::{Error, Result};
use crate::exchange::Foreign;
use crate::tensor::{Device, Dtype, Layout, Shape, Strides, Tensor};

/// More dimensions are no tensor's: the number is not to be trusted.
const MOST_DIMENSIONS: i32 = 1024;

/// A tensor of DLPack that is on its way from one library to another. It is given back to its owner when this is
/// dropped, unless a tensor or a pointer was made of it.
pub struct DlTensor(NonNull<DLManagedTensorVersioned>);

// SAFETY: DLPack lets the consumer give a tensor back on any thread; until then it is only read.
unsafe impl Send for DlTensor {}

impl fmt::Debug for DlTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DlTensor").field(self.managed()).finish()
    }
}

impl Drop for DlTensor {
    fn drop(&mut self) {
        if let Some(deleter) = self.managed().deleter {
            // SAFETY: this has the tensor, and uses it no more.
            unsafe { deleter(self.0.as_ptr()) }
        }
    }
}

/// A tensor without a version, as one with.
struct Newer {
    managed: DLManagedTensorVersioned,
    older: NonNull<DLManagedTensor>,
}

unsafe extern "C" fn delete_newer(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: called once, with what `from_raw_unversioned` made; the older tensor is given back once by that.
    unsafe {
        let newer = Box::from_raw((*managed).manager_ctx.cast::<Newer>());
        if let Some(deleter) = newer.older.as_ref().deleter {
            deleter(newer.older.as_ptr());
        }
    }
}

impl DlTensor {
    pub(super) fn owning(managed: NonNull<DLManagedTensorVersioned>) -> DlTensor {
        DlTensor(managed)
    }

    /// What another library has handed over. It is given back where this is an error.
    ///
    /// # Errors
    /// [`Error::Argument`] for a null pointer and for another major version, whose fields are others.
    ///
    /// # Safety
    /// - *Handed over*: nobody else uses the structure, or gives it back.
    /// - *Sound*: if it is of version 1, its fields are what DLPack says; the promises of
    ///   [`Foreign::new`] hold for its memory, until the deleter is called.
    /// - *Ready*: memory of a GPU may be used by this thread's current stream.
    pub unsafe fn from_raw(managed: *mut DLManagedTensorVersioned) -> Result<DlTensor> {
        let Some(managed) = NonNull::new(managed) else {
            return Err(Error::argument("from_dlpack", "managed", "is a null pointer"));
        };
        let tensor = DlTensor(managed);
        // SAFETY: *Handed over*. The version comes first, whatever it is.
        let version = unsafe { managed.as_ref() }.version;
        if version.major != VERSION.major {
            let message = format!(
                "is of DLPack {}.{}; {}.{} is understood, and others of {0}",
                version.major, version.minor, VERSION.major, VERSION.minor
            );
            return Err(Error::argument("from_dlpack", "version", message));
        }
        Ok(tensor)
    }

    /// As [`from_raw`](Self::from_raw), of a library that knows no versions.
    ///
    /// # Errors
    /// [`Error::Argument`] for a null pointer.
    ///
    /// # Safety
    /// As of [`from_raw`](Self::from_raw).
    pub unsafe fn from_raw_unversioned(managed: *mut DLManagedTensor) -> Result<DlTensor> {
        let Some(older) = NonNull::new(managed) else {
            return Err(Error::argument("from_dlpack", "managed", "is a null pointer"));
        };
        // SAFETY: *Handed over*, and *Sound*.
        let DLTensor { data, device, ndim, dtype, shape, strides, byte_offset } =
            unsafe { ptr::read(&older.as_ref().dl_tensor) };
        let newer = Box::into_raw(Box::new(Newer {
            managed: DLManagedTensorVersioned {
                version: VERSION,
                manager_ctx: ptr::null_mut(),
                deleter: Some(delete_newer),
                flags: 0,
                dl_tensor: DLTensor { data, device, ndim, dtype, shape, strides, byte_offset },
            },
            older,
        }));
        // SAFETY: the box that was just let go of; nobody else has it.
        unsafe {
            (*newer).managed.manager_ctx = newer.cast();
            Ok(DlTensor(NonNull::new_unchecked(&raw mut (*newer).managed)))
        }
    }

    /// The structure, for a library that gives it back by its deleter.
    pub fn into_raw(self) -> *mut DLManagedTensorVersioned {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }

    /// What the structure says of the elements.
    pub fn dl_tensor(&self) -> &DLTensor {
        &self.managed().dl_tensor
    }

    /// Whether the memory may not be written.
    pub fn is_read_only(&self) -> bool {
        self.managed().flags & READ_ONLY != 0
    }

    fn managed(&self) -> &DLManagedTensorVersioned {
        // SAFETY: the structure is there until it is given back, and only read but for `managed_mut`.
        unsafe { self.0.as_ref() }
    }

    pub(super) fn managed_mut(&mut self) -> &mut DLManagedTensorVersioned {
        // SAFETY: as in `managed`; nobody else has it.
        unsafe { self.0.as_mut() }
    }
}

impl Tensor {
    /// A tensor over memory that another library lends (`torch.from_dlpack`): it is given back when no tensor uses it
    /// any more, on any thread.
    ///
    /// # Errors
    /// [`Error::Dtype`] and [`Error::Device`] for types and devices that are none here; as [`Foreign::new`] for
    /// memory that no tensor can have; [`Error::Argument`] for truth values that are neither 0 nor 1. It is given
    /// back then.
    pub fn from_dlpack(tensor: DlTensor) -> Result<Tensor> {
        let seen = tensor.dl_tensor();
        let (dtype, device) = (abi::dtype(seen.dtype)?, abi::device(seen.device)?);
        let (shape, strides) = layout(seen)?;
        let data = seen.data.cast::<u8>().wrapping_add(seen.byte_offset as usize);
        let read_only = tensor.is_read_only();
        let owner = Box::new(tensor);
        // Truth values are looked at as bytes before they are taken for such.
        let looked_at = dtype == Dtype::Bool && device == Device::Cpu;
        if looked_at {
            // SAFETY: as below; `owner` outlives the bytes.
            let bytes =
                unsafe { Foreign::new(data, &shape, &strides, Dtype::U8, device, Box::new(())) };
            let bytes = Tensor::from_foreign(bytes?);
            let mut wrong = None;
            bytes.for_each_element::<u8>(|byte| wrong = wrong.or((byte > 1).then_some(byte)));
            if let Some(byte) = wrong {
                let message = format!("holds {byte} as a truth value; 0 and 1 are such");
                return Err(Error::argument("from_dlpack", "data", message));
            }
        }
        // SAFETY: what whoever made the `DlTensor` of a pointer has promised, or `to_dlpack` knows.
        let foreign = unsafe { Foreign::new(data, &shape, &strides, dtype, device, owner) }?;
        Ok(Tensor::from_foreign(if read_only { foreign.read_only() } else { foreign }))
    }
}

/// Sizes and distances.
fn layout(seen: &DLTensor) -> Result<(Shape, Strides)> {
    let wrong =
        |argument: &str, message: String| Err(Error::argument("from_dlpack", argument, message));
    if !(0..=MOST_DIMENSIONS).contains(&seen.ndim) {
        return wrong(
            "ndim",
            format!("{}; 0 to {MOST_DIMENSIONS} dimensions are taken", seen.ndim),
        );
    }
    let n = seen.ndim as usize;
    if n == 0 {
        return Ok((Shape::new(), Strides::new()));
    }
    if seen.shape.is_null() {
        return wrong("shape", format!("is a null pointer, for {n} dimensions"));
    }
    // SAFETY: not null, and so many numbers by what `DlTensor::from_raw` asks.
    let sizes = unsafe { slice::from_raw_parts(seen.shape, n) };
    let mut shape = Shape::new();
    for &size in sizes {
        match usize::try_from(size) {
            Ok(size) => shape.push(size),
            Err(_) => return wrong("shape", format!("{sizes:?} has a size below 0")),
        }
    }
    if seen.strides.is_null() {
        let strides = Layout::contiguous(&shape).strides;
        return Ok((shape, strides));
    }
    // SAFETY: as above.
    let strides = unsafe { slice::from_raw_parts(seen.strides, n) };
    Ok((shape, strides.iter().map(|&stride| stride as isize).collect()))
}
