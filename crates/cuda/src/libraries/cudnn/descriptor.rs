//! cuDNN's descriptors: made, described by attributes of typed values, and finished.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::table::{Object, Status, Table, table};
use torchrs_error::Result;

/// `cudnnBackendDescriptorType_t`, as far as it is used.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(super) enum Kind {
    Pointwise = 0,
    Convolution = 1,
    Engine = 2,
    EngineConfig = 3,
    Heuristics = 4,
    Plan = 5,
    Forward = 10,
    Filters = 11,
    Data = 12,
    PointwiseOperation = 13,
    Graph = 15,
    Pack = 16,
    Tensor = 17,
    Matmul = 18,
    MatmulOperation = 19,
    Reduction = 21,
    ReductionOperation = 22,
    Reshape = 31,
    Properties = 38,
}

/// Values of attributes.
pub(super) trait Value: Copy {
    /// `cudnnBackendAttributeType_t`.
    const TYPE: c_int;
}

/// A number that stands for something, of an attribute's own type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Number<const TYPE: i32>(pub(super) c_int);

/// The handle as a value.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Handle(pub(super) Object);

/// An address of device memory as a value.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(super) struct Address(pub(super) *mut u8);

/// `cudnnDataType_t`.
pub(super) type DataType = Number<1>;
/// `cudnnConvolutionMode_t`.
pub(super) type Mode = Number<7>;
/// `cudnnBackendHeurMode_t`.
pub(super) type HeuristicMode = Number<8>;
/// `cudnnBackendNumericalNote_t`.
pub(super) type Note = Number<11>;
/// `cudnnPointwiseMode_t`.
pub(super) type PointwiseMode = Number<14>;
/// `cudnnReduceTensorOp_t`.
pub(super) type Fold = Number<18>;

impl<const N: i32> Value for Number<N> {
    const TYPE: c_int = N;
}

/// Types of values with their numbers.
macro_rules! values {
    ($($value:ty = $number:literal),* $(,)?) => {
        $(impl Value for $value {
            const TYPE: c_int = $number;
        })*
    };
}
values!(Handle = 0, bool = 2, i64 = 3, f32 = 4, f64 = 5, Address = 6, Object = 15, u8 = 24);

/// A descriptor, which ends with this.
pub(super) struct Descriptor {
    pub(super) object: Object,
    table: &'static Table,
}

impl Descriptor {
    pub(super) fn new(kind: Kind) -> Result<Descriptor> {
        let (table, mut object) = (table()?, Object::default());
        // SAFETY: writes one descriptor.
        unsafe { table.cudnnBackendCreateDescriptor(kind as c_int, &mut object) }?;
        Ok(Descriptor { object, table })
    }

    /// Sets an attribute; cuDNN refuses values of another type or number than the attribute has.
    pub(super) fn set<T: Value>(&self, name: c_int, values: &[T]) -> Result<()> {
        let (count, at) = (values.len() as i64, values.as_ptr().cast());
        // SAFETY: so many values of that type, which are copied.
        unsafe { self.table.cudnnBackendSetAttribute(self.object, name, T::TYPE, count, at) }
    }

    /// The attribute's values, or as many as there is room for; how many there are.
    pub(super) fn get<T: Value>(&self, name: c_int, room: &mut [T]) -> Result<usize> {
        let at: *mut c_void = if room.is_empty() { null_mut() } else { room.as_mut_ptr().cast() };
        let (mut count, most) = (0, room.len() as i64);
        // SAFETY: room for so many values of that type.
        unsafe {
            self.table.cudnnBackendGetAttribute(self.object, name, T::TYPE, most, &mut count, at)
        }?;
        Ok(count.max(0) as usize)
    }

    /// Says that all is described.
    pub(super) fn finish(self) -> Result<Descriptor> {
        // SAFETY: a descriptor that was not finished yet.
        unsafe { self.table.cudnnBackendFinalize(self.object) }?;
        Ok(self)
    }

    /// Likewise; nothing where cuDNN does not compute such.
    pub(super) fn finish_if_supported(self) -> Result<Option<Descriptor>> {
        // SAFETY: as above.
        let status = unsafe { (self.table.cudnnBackendFinalize)(self.object) };
        match status {
            Status::SUCCESS => Ok(Some(self)),
            status if status.is_not_supported() => Ok(None),
            status => self.table.check("cudnnBackendFinalize", status).map(|()| None),
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: nobody else has it.
        unsafe { (self.table.cudnnBackendDestroyDescriptor)(self.object) };
    }
}
