//! What a tensor says of itself without reading elements, by PyTorch's names.

use crate::error::{Error, throw};
use crate::storage::Device;
use crate::tensor::{Element, Tensor};

impl Tensor {
    /// Bytes of an element (`torch.Tensor.element_size`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f64, 2.]);
    /// assert_eq!((x.element_size(), x.nbytes(), x.nelement()), (8, 16, 2));
    /// ```
    pub fn element_size(&self) -> usize {
        self.dtype().size()
    }

    /// [`Tensor::element_size`] (`torch.Tensor.itemsize`).
    pub fn itemsize(&self) -> usize {
        self.element_size()
    }

    /// Bytes of all elements (`torch.Tensor.nbytes`).
    pub fn nbytes(&self) -> usize {
        self.numel() * self.element_size()
    }

    /// [`Tensor::numel`] (`torch.Tensor.nelement`).
    pub fn nelement(&self) -> usize {
        self.numel()
    }

    /// [`Tensor::dim`] (`torch.Tensor.ndim`).
    pub fn ndim(&self) -> usize {
        self.dim()
    }

    /// [`Tensor::dim`] (`torch.Tensor.ndimension`).
    pub fn ndimension(&self) -> usize {
        self.dim()
    }

    /// The distance between neighbours along `dim`, in elements (`torch.Tensor.stride`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[1i64, 2, 3], [4, 5, 6]]).stride(0), 3);
    /// ```
    ///
    /// # Panics
    /// Throws when there is no such dimension.
    #[track_caller]
    pub fn stride(&self, dim: i64) -> isize {
        let place = crate::tensor::normalize_dim("stride", dim, self.dim());
        self.strides()[place]
    }

    /// Whether elements are f64, f32, f16 or bf16 (`torch.is_floating_point`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert!(Tensor::from([1f32]).is_floating_point() && !Tensor::from([1i64]).is_floating_point());
    /// ```
    pub fn is_floating_point(&self) -> bool {
        self.dtype().is_floating_point()
    }

    /// Whether elements can be negative (`torch.is_signed`): all types but u8 and bool.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert!(Tensor::from([1i8]).is_signed() && !Tensor::from([1u8]).is_signed());
    /// ```
    pub fn is_signed(&self) -> bool {
        !matches!(self.dtype(), crate::tensor::Dtype::U8 | crate::tensor::Dtype::Bool)
    }

    /// Whether the only element is not zero (`torch.is_nonzero`); waits for it on a GPU.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert!(Tensor::from([-0.5f32]).is_nonzero() && !Tensor::from([false]).is_nonzero());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] unless there is one element.
    #[track_caller]
    pub fn is_nonzero(&self) -> bool {
        if self.numel() != 1 {
            let message = format!("takes one element, got a tensor of shape {:?}", self.shape());
            throw(Error::shape("is_nonzero", message));
        }
        self.ne(0).item() != 0.0
    }

    /// Whether both have the same shape (`torch.is_same_size`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert!(!Tensor::from([1i64]).is_same_size(&Tensor::from([[1i64]])));
    /// ```
    pub fn is_same_size(&self, other: &Tensor) -> bool {
        self.shape() == other.shape()
    }

    /// Whether both are the same elements of the same memory (`torch.Tensor.is_set_to`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2]);
    /// assert!(x.view([2]).is_set_to(&x) && !x.narrow(0, 0, 1).is_set_to(&x));
    /// ```
    pub fn is_set_to(&self, other: &Tensor) -> bool {
        let (own, others) = (self.address(), other.address());
        !own.is_null()
            && own == others
            && self.device() == other.device()
            && self.shape() == other.shape()
            && self.strides() == other.strides()
    }

    /// Where the elements are, null where there are none.
    fn address(&self) -> *mut u8 {
        match self.device() {
            Device::Cpu => self.data_ptr(),
            Device::Cuda(_) => self.device_ptr(),
            _ => std::ptr::null_mut(),
        }
    }

    /// Whether the elements are in the memory of the host (`torch.Tensor.is_cpu`).
    pub fn is_cpu(&self) -> bool {
        self.device() == Device::Cpu
    }

    /// Whether the elements are in the memory of a GPU (`torch.Tensor.is_cuda`).
    pub fn is_cuda(&self) -> bool {
        self.device().is_cuda()
    }

    /// Whether there are no elements, only a shape and a type (`torch.Tensor.is_meta`).
    pub fn is_meta(&self) -> bool {
        self.device().is_meta()
    }

    /// The number of the GPU, -1 on the CPU (`torch.Tensor.get_device`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32]);
    /// assert!(x.get_device() == -1 && x.is_cpu() && !x.is_cuda() && !x.is_meta());
    /// ```
    pub fn get_device(&self) -> i64 {
        match self.device() {
            Device::Cuda(index) => index as i64,
            _ => -1,
        }
    }

    /// All elements, row by row, as [`Tensor::to_vec`]: shapes are not nested (`torch.Tensor.tolist`).
    #[track_caller]
    pub fn tolist<T: Element>(&self) -> Vec<T> {
        self.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;
    use crate::tensor::Dtype;

    #[test]
    fn only_one_element_is_zero_or_not() {
        for shape in [&[0][..], &[2], &[1, 3]] {
            let refused = catch(|| Tensor::zeros(shape, Dtype::F32).is_nonzero());
            assert!(refused.unwrap_err().to_string().contains(&format!("{shape:?}")));
        }
        assert!(Tensor::from([f32::NAN]).is_nonzero());
    }

    #[test]
    fn facts_are_of_the_tensor_itself() {
        let x = Tensor::zeros([2, 3], (Dtype::BF16, Device::Meta));
        assert_eq!((x.nbytes(), x.ndim(), x.ndimension(), x.itemsize()), (12, 2, 2, 2));
        assert!(x.is_meta() && !x.is_cpu() && x.is_floating_point() && x.is_signed());
        let y = Tensor::range(6).view([2, 3]);
        assert_eq!((y.stride(0), y.stride(-1)), (3, 1));
        assert!(catch(|| y.stride(2)).is_err());
        assert!(!y.is_set_to(&y.t()) && y.is_set_to(&y.detach()));
    }
}
