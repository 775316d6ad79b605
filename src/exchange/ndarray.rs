//! Arrays of the crate `ndarray`: moved in without a copy, seen as views, copied where they are borrowed.
//!
//! | from | to | memory |
//! | --- | --- | --- |
//! | `Array`, by value | [`Tensor`], `TryFrom` | the array's; copied where a distance is below 0 |
//! | `ArrayView`, `&Array` | [`Tensor`], `From` | a copy |
//! | `ArcArray`, by value | [`Tensor`], `TryFrom` | the array's, read-only; copied where a distance is below 0 |
//! | `&Tensor` | `Array`, `TryFrom` | a copy |
//! | `&Tensor` | `ArrayView`, [`NdView`] | the tensor's |

use ndarray::{
    ArcArray, Array, ArrayBase, ArrayD, ArrayView, ArrayViewD, Data, Dimension, IxDyn, RawData,
    ShapeBuilder,
};

use super::Foreign;
use crate::error::{Error, Result};
use crate::tensor::{Device, Element, Tensor};

/// A tensor as an array of `ndarray`.
pub trait NdView {
    /// The tensor's elements as an array, without a copy.
    ///
    /// ```
    /// use torchrs::{Tensor, exchange::NdView};
    /// let x = Tensor::from([[1f32, 2.], [3., 4.]]);
    /// // SAFETY: nobody writes to `x` meanwhile.
    /// let view = unsafe { x.nd_view::<f32>() }?;
    /// assert_eq!((view[[1, 0]], view.as_ptr()), (3.0, x.data_ptr().cast_const().cast()));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Dtype`] when `T` is not the element type, [`Error::Device`] for a tensor that is not on the CPU.
    ///
    /// # Safety
    /// Nobody may write to the storage while the view lives.
    unsafe fn nd_view<T: Element>(&self) -> Result<ArrayViewD<'_, T>>;
}

impl NdView for Tensor {
    unsafe fn nd_view<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
        check::<T>(self)?;
        let strides: Vec<usize> = self.strides().iter().map(|&stride| stride as usize).collect();
        let shape = IxDyn(self.shape()).strides(IxDyn(&strides));
        // SAFETY: the layout lies in the storage, which the tensor keeps; no distance is below 0, and nobody writes.
        Ok(unsafe { ArrayView::from_shape_ptr(shape, self.data_ptr().cast::<T>()) })
    }
}

fn check<T: Element>(x: &Tensor) -> Result<()> {
    if x.device() != Device::Cpu {
        return Err(Error::Device(format!(
            "the tensor is on {}, and an array on the CPU; move it there with `.to_device(Device::Cpu)`",
            x.device()
        )));
    }
    if x.dtype() != T::DTYPE {
        let message = format!("the tensor holds {}, not {}", x.dtype(), T::DTYPE);
        return Err(Error::dtype("ndarray", message));
    }
    Ok(())
}

/// What an array says of its elements, if a tensor can have them as they lie.
fn strides<S: RawData, D: Dimension>(array: &ArrayBase<S, D>) -> Option<Vec<isize>> {
    let pairs = || array.shape().iter().zip(array.strides());
    let backwards = !array.is_empty() && pairs().any(|(&size, &stride)| size > 1 && stride < 0);
    (!backwards).then(|| array.strides().to_vec())
}

/// A copy in row-major order.
fn copied<S: Data, D: Dimension>(array: &ArrayBase<S, D>) -> Tensor
where
    S::Elem: Element,
{
    let elements: Vec<S::Elem> = array.iter().copied().collect();
    Tensor::from_slice(&elements, array.shape())
}

impl<T: Element, D: Dimension + 'static> TryFrom<Array<T, D>> for Tensor {
    type Error = Error;

    /// The array's memory becomes the tensor's.
    fn try_from(mut array: Array<T, D>) -> Result<Tensor> {
        let Some(strides) = strides(&array) else { return Ok(copied(&array)) };
        let (data, shape) = (array.as_mut_ptr().cast::<u8>(), array.shape().to_vec());
        // SAFETY: the array keeps its elements, which nobody else has.
        let foreign =
            unsafe { Foreign::new(data, &shape, &strides, T::DTYPE, Device::Cpu, Box::new(array)) };
        foreign.map(Tensor::from_foreign)
    }
}

impl<T: Element, D: Dimension + 'static> TryFrom<ArcArray<T, D>> for Tensor {
    type Error = Error;

    /// The array's memory, which others may read still: read-only.
    fn try_from(array: ArcArray<T, D>) -> Result<Tensor> {
        let Some(strides) = strides(&array) else { return Ok(copied(&array)) };
        let (data, shape) = (array.as_ptr().cast_mut().cast::<u8>(), array.shape().to_vec());
        // SAFETY: the array keeps its elements, which are only read.
        let foreign =
            unsafe { Foreign::new(data, &shape, &strides, T::DTYPE, Device::Cpu, Box::new(array)) };
        foreign.map(|foreign| Tensor::from_foreign(foreign.read_only()))
    }
}

impl<T: Element, D: Dimension> From<ArrayView<'_, T, D>> for Tensor {
    fn from(view: ArrayView<'_, T, D>) -> Tensor {
        copied(&view)
    }
}

impl<T: Element, D: Dimension> From<&Array<T, D>> for Tensor {
    fn from(array: &Array<T, D>) -> Tensor {
        copied(array)
    }
}

impl<T: Element> TryFrom<&Tensor> for ArrayD<T> {
    type Error = Error;

    /// A copy in row-major order.
    fn try_from(x: &Tensor) -> Result<ArrayD<T>> {
        check::<T>(x)?;
        ArrayD::from_shape_vec(IxDyn(x.shape()), x.to_vec::<T>())
            .map_err(|error| Error::shape("ndarray", error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, arr2, s};

    use super::*;
    use crate::error::catch;
    use crate::tensor::Dtype;

    #[test]
    fn an_array_is_moved_in_as_it_lies() {
        let array = arr2(&[[1f32, 2., 3.], [4., 5., 6.]]).reversed_axes();
        let at = array.as_ptr();
        let x = Tensor::try_from(array).unwrap();
        assert_eq!((x.data_ptr().cast_const().cast(), x.strides()), (at, &[1, 3][..]));
        x.add_(1.0);
        assert_eq!(x.to_vec::<f32>(), [2.0, 5.0, 3.0, 6.0, 4.0, 7.0]);
        // A part of it, and one backwards, which no tensor has.
        let part = arr2(&[[1i64, 2], [3, 4]]).slice_move(s![.., 1]);
        assert_eq!(Tensor::try_from(part).unwrap().to_vec::<i64>(), [2, 4]);
        let back = arr2(&[[1i64, 2], [3, 4]]).slice_move(s![..;-1, ..]);
        assert_eq!(Tensor::try_from(back).unwrap().to_vec::<i64>(), [3, 4, 1, 2]);
        assert_eq!(Tensor::try_from(Array2::<u8>::zeros((0, 3))).unwrap().shape(), [0, 3]);
    }

    #[test]
    fn a_shared_array_is_read_only_and_views_are_copied() {
        let array = arr2(&[[1f32, 2.]]).into_shared();
        let x = Tensor::try_from(array.clone()).unwrap();
        assert!(x.data_ptr().cast_const().cast() == array.as_ptr() && x.storage().is_read_only());
        assert!(catch(|| x.fill_(0.0)).is_err());
        let y = Tensor::from(array.view().slice(s![.., ..;-1]));
        assert_eq!(y.to_vec::<f32>(), [2.0, 1.0]);
        y.fill_(0.0);
        assert_eq!(Tensor::from(&arr2(&[[true]])).dtype(), Dtype::Bool);
    }

    #[test]
    fn a_tensor_is_seen_as_an_array() {
        let x = Tensor::arange(0, 6, 1, Dtype::I64).view([2, 3]);
        let t = x.t();
        // SAFETY: nobody writes.
        let view = unsafe { t.nd_view::<i64>() }.unwrap();
        assert_eq!((view.strides(), view[[2, 1]]), (&[1isize, 3][..], 5));
        assert_eq!(ArrayD::<i64>::try_from(&t).unwrap(), view.to_owned());
        // SAFETY: nobody writes.
        let error = unsafe { x.nd_view::<f32>() }.unwrap_err().to_string();
        assert!(error.contains("i64") && error.contains("f32"), "{error}");
        assert!(ArrayD::<f32>::try_from(&x).is_err());
        // One row several times.
        let row = Tensor::from([1u8, 2]).expand(&[3, 2]);
        // SAFETY: nobody writes.
        assert_eq!(unsafe { row.nd_view::<u8>() }.unwrap().sum(), 9);
        assert_eq!(ArrayD::<f32>::try_from(&Tensor::scalar(2.5)).unwrap()[IxDyn(&[])], 2.5);
    }
}
