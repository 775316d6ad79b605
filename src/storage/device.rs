//! Where a tensor's bytes live, as a value.

use std::fmt;
use std::str::FromStr;

use crate::cuda;
use crate::error::{Error, Result};

/// A device (`torch.device`). The name `cuda` alone is the thread's current GPU, which in a worker is at first that
/// of its local rank.
///
/// ```
/// use torchrs::Device;
/// assert_eq!("cuda:1".parse::<Device>()?, Device::Cuda(1));
/// assert_eq!(Device::default().to_string(), "cpu");
/// assert!("gpu".parse::<Device>().is_err());
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[non_exhaustive]
pub enum Device {
    /// Host memory.
    #[default]
    Cpu,
    /// The GPU of that index among the visible ones.
    Cuda(usize),
    /// No memory: tensors have a shape, a dtype and strides, and no values. Ops on them find the shapes of their results.
    ///
    /// ```
    /// use torchrs::{Device, Dtype, Tensor};
    /// let x = Tensor::ones([1 << 20, 1 << 20], (Dtype::F32, Device::Meta)); // would be 4 TiB
    /// let y = x.matmul(&x.t()).sum_dim(&[1], false);
    /// assert_eq!((y.shape(), y.dtype(), y.device()), (&[1 << 20][..], Dtype::F32, Device::Meta));
    /// ```
    Meta,
}

impl Device {
    /// `Ok` when tensors can be made there.
    ///
    /// ```
    /// use torchrs::Device;
    /// assert!(Device::Cpu.check().is_ok());
    /// let message = Device::Cuda(99).check().unwrap_err().to_string();
    /// assert!(message.starts_with("device: cuda:99 is not available"));
    /// ```
    ///
    /// # Errors
    /// [`Error::Device`] when the machine lacks the device or what is needed to use it.
    #[inline]
    pub fn check(self) -> Result<()> {
        match self {
            Device::Cpu | Device::Meta => Ok(()),
            Device::Cuda(index) => check_cuda(index),
        }
    }

    /// The index of a GPU.
    #[inline]
    pub(crate) fn gpu(self) -> Option<usize> {
        match self {
            Device::Cpu | Device::Meta => None,
            Device::Cuda(index) => Some(index),
        }
    }

    /// The index under which kernels are started for its tensors; for those without memory nothing comes of it.
    #[inline]
    pub(crate) fn kernels(self) -> Option<usize> {
        match self {
            Device::Cpu => None,
            Device::Cuda(index) => Some(index),
            Device::Meta => Some(cuda::NOWHERE),
        }
    }

    /// Whether ops go the way of kernels: the elements are not in host memory.
    #[inline]
    pub(crate) fn is_apart(self) -> bool {
        self != Device::Cpu
    }

    /// True for tensors without memory.
    ///
    /// ```
    /// use torchrs::{Device, Dtype, Tensor};
    /// assert!(Tensor::zeros([2], Dtype::F32).to(Device::Meta).device().is_meta());
    /// ```
    #[inline]
    pub fn is_meta(self) -> bool {
        self == Device::Meta
    }

    /// True for a GPU.
    #[inline]
    pub fn is_cuda(self) -> bool {
        matches!(self, Device::Cuda(_))
    }
}

fn check_cuda(index: usize) -> Result<()> {
    let why = match cuda::device::check_available() {
        Ok(()) if index < cuda::device_count() => return Ok(()),
        Ok(()) => format!("there are {} GPUs, counted from 0", cuda::device_count()),
        Err(Error::Device(why)) => why,
        Err(other) => other.to_string(),
    };
    Err(Error::Device(format!("cuda:{index} is not available: {why}")))
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(index) => write!(f, "cuda:{index}"),
            Device::Meta => f.write_str("meta"),
        }
    }
}

impl FromStr for Device {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "cpu" => Ok(Device::Cpu),
            "meta" => Ok(Device::Meta),
            "cuda" => Ok(Device::Cuda(cuda::device::current())),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|index| index.parse().ok())
                .map(Device::Cuda)
                .ok_or_else(|| {
                    Error::config(
                        "device",
                        format!("`{text}` is not a device; use cpu, cuda, cuda:N or meta"),
                    )
                }),
        }
    }
}
