//! `Tensor::to` in the forms that `torch.Tensor.to` has.

use crate::error::throw;
use crate::storage::Device;
use crate::tensor::{Dtype, Tensor};

/// What [`Tensor::to`] takes: a [`Dtype`], a [`Device`], both, a device's name, or a tensor that has both.
///
/// ```
/// use torchrs::{Device, Dtype, Tensor};
/// let x = Tensor::from([1.5f32]);
/// for y in [x.to(Dtype::F64), x.to((Device::Cpu, Dtype::F64)), x.to(&Tensor::from([0f64]))] {
///     assert_eq!((y.dtype(), y.item()), (Dtype::F64, 1.5));
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`Tensor::to` does not take a `{Self}`",
    label = "names neither a device nor a dtype",
    note = "pass a `Dtype`, a `Device`, `(Device, Dtype)`, a name such as \"cuda:0\", or a `&Tensor`"
)]
pub trait Target {
    /// Where the tensor is to be, and of which type.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a name that is no device's.
    fn resolve(self, tensor: &Tensor) -> crate::error::Result<(Device, Dtype)>;
}

impl Target for Dtype {
    fn resolve(self, tensor: &Tensor) -> crate::error::Result<(Device, Dtype)> {
        Ok((tensor.device(), self))
    }
}

impl Target for Device {
    fn resolve(self, tensor: &Tensor) -> crate::error::Result<(Device, Dtype)> {
        Ok((self, tensor.dtype()))
    }
}

impl Target for (Device, Dtype) {
    fn resolve(self, _: &Tensor) -> crate::error::Result<(Device, Dtype)> {
        Ok(self)
    }
}

impl Target for &str {
    fn resolve(self, tensor: &Tensor) -> crate::error::Result<(Device, Dtype)> {
        Ok((self.parse()?, tensor.dtype()))
    }
}

impl Target for &Tensor {
    fn resolve(self, _: &Tensor) -> crate::error::Result<(Device, Dtype)> {
        Ok((self.device(), self.dtype()))
    }
}

impl Tensor {
    /// The same elements on another device, of another dtype, or both; this tensor itself if it is so
    /// already (`torch.Tensor.to`). Gradients go back the same way.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, catch};
    /// let x = Tensor::from([1f32, 2.]);
    /// assert!(x.to("cpu").ptr_eq(&x));
    /// assert_eq!(x.to(Dtype::I64).to_vec::<i64>(), [1, 2]);
    /// let message = catch(|| x.to("gpu")).unwrap_err().to_string();
    /// assert_eq!(message, "device: `gpu` is not a device; use cpu, cuda, cuda:N or meta");
    /// ```
    ///
    /// # Panics
    /// Throws for a device that is not there, a name that is no device's, and as
    /// [`to_dtype`](Self::to_dtype).
    #[track_caller]
    pub fn to(&self, target: impl Target) -> Tensor {
        let (device, dtype) = match target.resolve(self) {
            Ok(resolved) => resolved,
            Err(error) => throw(error),
        };
        // What has fewer bytes travels.
        if dtype.size() < self.dtype().size() {
            self.to_dtype(dtype).to_device(device)
        } else {
            self.to_device(device).to_dtype(dtype)
        }
    }
}
