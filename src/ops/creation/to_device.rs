//! Tensors of one device on another.

use smallvec::smallvec;

use crate::autograd::{BackwardCtx, record};
use crate::error::throw;
use crate::profiler;
use crate::storage::Device;
use crate::tensor::Tensor;

impl Tensor {
    /// The same elements on a device; this tensor itself if it is there already (`torch.Tensor.to`).
    /// Gradients go back the same way.
    ///
    /// ```
    /// use torchrs::{Device, Tensor, cuda};
    /// let x = Tensor::from([1f32, 2.]);
    /// assert!(x.to_device(Device::Cpu).ptr_eq(&x));
    /// if cuda::is_available() {
    ///     let y = x.to_device(Device::Cuda(0)) * 2.0;
    ///     assert_eq!((y.device(), y.to_vec::<f32>()), (Device::Cuda(0), vec![2.0, 4.0]));
    /// }
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Device`](crate::Error::Device) when the machine lacks the device.
    #[track_caller]
    pub fn to_device(&self, device: Device) -> Tensor {
        if device == self.device() {
            return self.clone();
        }
        if let Err(error) = device.check() {
            throw(error);
        }
        let _span = profiler::op("to_device");
        // What is dense in any order stays as it lies.
        let dense = self.layout().is_non_overlapping_and_dense();
        let source = if dense { self.detach() } else { self.detach().contiguous() };
        let (output, home) = (source.transferred(device), self.device());
        record("to_device", &[self], output, |_| {
            move |ctx: &BackwardCtx<'_>| smallvec![Some(ctx.grad(0).to_device(home))]
        })
    }

    /// [`to_device`](Self::to_device) to the host (`torch.Tensor.cpu`).
    ///
    /// ```
    /// let x = torchrs::Tensor::from([1f32]);
    /// assert!(x.cpu().ptr_eq(&x));
    /// ```
    #[track_caller]
    pub fn cpu(&self) -> Tensor {
        self.to_device(Device::Cpu)
    }

    /// [`to_device`](Self::to_device) to a GPU (`torch.Tensor.cuda`).
    ///
    /// ```
    /// use torchrs::{Tensor, catch, cuda};
    /// let moved = catch(|| Tensor::from([1f32]).cuda(0));
    /// assert_eq!(moved.is_ok(), cuda::is_available());
    /// ```
    #[track_caller]
    pub fn cuda(&self, index: usize) -> Tensor {
        self.to_device(Device::Cuda(index))
    }
}
