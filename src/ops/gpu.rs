//! What ops need to run kernels on their tensors' GPU: errors of the device are thrown at the caller's line.

use crate::cuda::{
    Kernel, NOWHERE, Stream, copy, launch, launch::Arg, launch::Shape, pinned::PinnedBlock,
    refusal, refusal::Refusal, refusal::Rule,
};
use crate::error::{Error, throw};
use crate::ops::MemoryFormat;
use crate::ops::catalogue;
pub(super) use crate::ops::pointwise::format_of;
use crate::storage::Device;
use crate::tensor::{Dtype, Element, Tensor, dtype::not_floating, dtype::not_real};

/// The GPU that all tensors are on, if the first is on one.
///
/// # Panics
/// Throws when they are on different devices.
#[track_caller]
#[inline]
pub(crate) fn of(op: &str, tensors: &[&Tensor]) -> Option<Gpu> {
    let device = tensors.first()?.device();
    if let Some(other) = tensors.iter().find(|t| t.device() != device) {
        mixed(op, device, other.device());
    }
    device.kernels().map(|index| Gpu { index })
}

/// Where a tensor's elements are on a GPU, or null without one.
pub(crate) fn address(t: Option<&Tensor>) -> *mut u8 {
    t.map_or(std::ptr::null_mut(), Tensor::device_ptr)
}

#[cold]
#[track_caller]
fn mixed(op: &str, a: Device, b: Device) -> ! {
    throw(Error::Device(format!(
        "{op}: tensors are on {a} and {b}; move them to one device with `.to_device(..)`"
    )))
}

/// For an op that has no kernel for GPUs: says so.
#[track_caller]
pub(crate) fn refuse(op: &str, x: &Tensor) {
    if x.device().is_apart() {
        throw(Error::Device(format!(
            "{op} computes on the CPU only, and the tensor is on {}; move it with `.to_device(Device::Cpu)`",
            x.device()
        )));
    }
}

/// The order of the elements of a dense `x`: its own if channels lie last, else row by row.
pub(crate) fn order(x: &Tensor) -> MemoryFormat {
    let last = match x.dim() {
        4 => MemoryFormat::ChannelsLast,
        5 => MemoryFormat::ChannelsLast3d,
        _ => return MemoryFormat::Contiguous,
    };
    if !x.is_contiguous() && x.is_contiguous_in(last) { last } else { MemoryFormat::Contiguous }
}

/// Of a kernel for each type, floating-point ones first, that for elements of a type.
///
/// # Panics
/// Throws for a type that none is for.
#[track_caller]
pub(crate) fn kernel_of<const N: usize>(
    op: &str,
    kernels: &'static [Kernel; N],
    dtype: Dtype,
) -> &'static Kernel {
    let place = match dtype {
        Dtype::F64 => 0,
        Dtype::F32 => 1,
        Dtype::F16 => 2,
        Dtype::BF16 => 3,
        Dtype::I64 => 4,
        Dtype::I32 => 5,
        Dtype::I16 => 6,
        Dtype::I8 => 7,
        Dtype::U8 | Dtype::Bool => 8,
        other => not_real(op, other),
    };
    kernels.get(place).unwrap_or_else(|| not_floating(op, dtype))
}

/// The power of two of bytes, at most 16, of which all the numbers are multiples.
pub(crate) fn unit(numbers: impl IntoIterator<Item = usize>) -> usize {
    let bits = numbers.into_iter().fold(16, |all, n| all | n);
    bits.trailing_zeros() as usize
}

/// A GPU on which an op runs; or none, for tensors without memory, of whose ops only the shapes come out.
#[derive(Clone, Copy, Debug)]
pub struct Gpu {
    /// Its number.
    pub index: usize,
}

impl Gpu {
    /// The device as tensors name it.
    pub fn device(self) -> Device {
        if self.is_nowhere() { Device::Meta } else { Device::Cuda(self.index) }
    }

    /// Whether its tensors have no memory, so that nothing is started.
    pub fn is_nowhere(self) -> bool {
        self.index == NOWHERE
    }

    /// The thread's current stream there.
    #[track_caller]
    pub fn stream(self) -> Stream {
        Stream::current(self.index).unwrap_or_else(|error| throw(error))
    }

    /// A shape for a kernel in which each thread takes every so-many-th of `n` items, 256 threads a block.
    #[track_caller]
    pub fn for_each(self, n: usize) -> Shape {
        Shape::grid_stride(n as u64, 256, self.index).unwrap_or_else(|error| throw(error))
    }

    /// What a kernel needs that looks whether a rule holds of an op's argument.
    #[track_caller]
    pub fn refusal(self, op: &str, argument: &'static str, rule: Rule) -> Refusal {
        refusal::refusal(self.index, op, argument, rule).unwrap_or_else(|error| throw(error))
    }

    /// A list on the GPU of numbers that an op has put together on the host. A graph that is being captured keeps
    /// them.
    #[track_caller]
    pub fn table<T: Element>(self, numbers: &[T]) -> Tensor {
        let table = Tensor::empty([numbers.len()], (T::DTYPE, self.device()));
        if numbers.is_empty() || self.is_nowhere() {
            return table;
        }
        let bytes = size_of_val(numbers);
        let copied = PinnedBlock::new(bytes).and_then(|block| {
            // SAFETY: block and table are new, and have so many bytes.
            unsafe {
                block.as_ptr().copy_from_nonoverlapping(numbers.as_ptr().cast(), bytes);
                copy::block_to_device(table.device_ptr(), block, self.stream())
            }
        });
        copied.unwrap_or_else(|error| throw(error));
        table
    }

    /// Starts a kernel on the current stream.
    ///
    /// # Safety
    /// `args` are the kernel's parameters, in number, order and type; addresses among them are of this GPU and
    /// valid for what the kernel does. Tensors that are dropped afterwards are no danger: their memory is
    /// used again on the same stream only.
    #[track_caller]
    pub unsafe fn launch(self, kernel: &Kernel, shape: Shape, args: &mut [Arg<'_>]) {
        if self.is_nowhere() {
            return;
        }
        let function = match kernel.ready_on(self.index) {
            Some(function) => Ok(function),
            None => {
                catalogue::tell();
                kernel.on(self.index)
            }
        };
        let done = function.and_then(|function| {
            // SAFETY: this function's contract: the kernel's parameters, with addresses of this
            // GPU.
            unsafe { launch::launch(function, shape, self.stream(), args) }
        });
        if let Err(error) = done {
            throw(error);
        }
    }
}
