//! The device on which tensors are made where none is named: the host, or that of a scope.

use std::cell::Cell;

use super::initial;
use super::{Device, Dtype, TensorOptions};
use crate::error::throw;

thread_local! {
    static DEFAULT: Cell<Device> = const { Cell::new(Device::Cpu) };
}

/// Puts the device back, also when the scope ends by a panic.
struct Restore(Device);

impl Drop for Restore {
    fn drop(&mut self) {
        DEFAULT.set(self.0);
    }
}

/// Where tensors are made on this thread by [`Tensor::zeros`](crate::Tensor::zeros) and its like, where no device is named: the host, or
/// the device of a [`Device::scope`] (`torch.get_default_device`).
///
/// ```
/// use torchrs::{Device, default_device};
/// assert_eq!(default_device(), Device::Cpu);
/// assert_eq!(Device::Meta.scope(default_device), Device::Meta);
/// ```
pub fn default_device() -> Device {
    DEFAULT.get()
}

/// Runs `f` with another default device.
pub(super) fn with_default<R>(device: Device, f: impl FnOnce() -> R) -> R {
    let _restore = Restore(DEFAULT.replace(device));
    f()
}

impl Device {
    /// Runs `make`, in which tensors are made on this device where none is named (`with torch.device(..):`): modules
    /// above all, which name none. It holds for this thread.
    ///
    /// Some tensors are made on the host as ever: those of given values (`Tensor::from`, `scalar`), `range`,
    /// `tril_indices`, `triu_indices` and `nn::llm::alibi_slopes`.
    ///
    /// ```
    /// use torchrs::nn::{Linear, Module, Sequential};
    /// use torchrs::{Device, manual_seed};
    /// let build = || Sequential::new().append(Linear::new(8, 16)).append(Linear::new(16, 4));
    /// // Without memory, at once, however large the model is.
    /// let mut model = Device::Meta.scope(build);
    /// assert_eq!(model.num_parameters(), 212);
    /// model.to_empty(Device::Cpu);
    /// manual_seed(7);
    /// model.reset_parameters();
    /// // The same numbers as those of a model that is built where it stays.
    /// manual_seed(7);
    /// assert!(build().parameters()[0].equal(&model.parameters()[0]));
    /// ```
    ///
    /// # Panics
    /// Throws when the machine lacks the device.
    #[track_caller]
    pub fn scope<R>(self, make: impl FnOnce() -> R) -> R {
        if let Err(error) = self.check() {
            throw(error);
        }
        let make = || with_default(self, make);
        if self.is_meta() { initial::in_scope(make) } else { make() }
    }
}

impl Dtype {
    /// Options for a tensor of this type in host memory, whatever the default device is.
    #[inline]
    pub(crate) fn on_host(self) -> TensorOptions {
        TensorOptions { dtype: self, device: Device::Cpu, requires_grad: false }
    }
}
