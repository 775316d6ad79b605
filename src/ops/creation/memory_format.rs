//! The order in which the elements of images and volumes lie in memory: copies whose strides put the
//! channels last.

use smallvec::SmallVec;

use crate::error::{Error, throw};
use crate::loops::axes::sort_axes;
use crate::tensor::{Tensor, TensorOptions};

/// An order of elements in memory (`torch.memory_format`).
///
/// ```
/// use torchrs::{Dtype, MemoryFormat, Tensor};
/// let x = Tensor::zeros([2, 3, 4, 5], Dtype::F32);
/// assert_eq!(x.clone_in(MemoryFormat::Contiguous).strides(), &[60, 20, 5, 1]);
/// assert_eq!(x.clone_in(MemoryFormat::ChannelsLast).strides(), &[60, 1, 15, 3]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryFormat {
    /// Row-major.
    #[default]
    Contiguous,
    /// As the tensor that is copied, if its elements lie densely; else row-major.
    Preserve,
    /// Images `[N, C, H, W]`, the channels of a pixel side by side.
    ChannelsLast,
    /// Volumes `[N, C, D, H, W]`, the channels of a voxel side by side.
    ChannelsLast3d,
}

/// The dimensions of `x` from the one with the largest steps in memory to the innermost one.
#[track_caller]
fn order(x: &Tensor, format: MemoryFormat) -> SmallVec<[i64; 5]> {
    let n = x.dim() as i64;
    let channels_last = |dims: i64| {
        if n != dims {
            throw(Error::shape(
                "contiguous_in",
                format!("{format:?} takes {dims} dimensions, got shape {:?}", x.shape()),
            ));
        }
        std::iter::once(0).chain(2..dims).chain([1]).collect()
    };
    match format {
        MemoryFormat::Contiguous => (0..n).collect(),
        MemoryFormat::ChannelsLast => channels_last(4),
        MemoryFormat::ChannelsLast3d => channels_last(5),
        MemoryFormat::Preserve => {
            let mut dims: SmallVec<[i64; 5]> = (0..n).collect();
            sort_axes(&mut dims, |a, b| x.strides()[a as usize] > x.strides()[b as usize]);
            if x.permute(&dims).is_contiguous() { dims } else { (0..n).collect() }
        }
    }
}

impl Tensor {
    /// Whether the elements lie densely in this order (`torch.Tensor.is_contiguous(memory_format=..)`).
    ///
    /// ```
    /// use torchrs::{Dtype, MemoryFormat, Tensor};
    /// let x = Tensor::zeros([2, 3, 4, 5], Dtype::F32).contiguous_in(MemoryFormat::ChannelsLast);
    /// assert!(x.is_contiguous_in(MemoryFormat::ChannelsLast));
    /// assert!(!x.is_contiguous_in(MemoryFormat::Contiguous));
    /// ```
    pub fn is_contiguous_in(&self, format: MemoryFormat) -> bool {
        match format {
            MemoryFormat::ChannelsLast if self.dim() != 4 => false,
            MemoryFormat::ChannelsLast3d if self.dim() != 5 => false,
            _ => self.detach().permute(&order(self, format)).is_contiguous(),
        }
    }

    /// This tensor if its elements lie in this order, else a copy in which they do
    /// (`torch.Tensor.contiguous(memory_format=..)`, `torch.Tensor.to(memory_format=..)`).
    ///
    /// ```
    /// use torchrs::{Dtype, MemoryFormat, Tensor};
    /// let x = Tensor::zeros([2, 3, 4, 5], Dtype::F32).contiguous_in(MemoryFormat::ChannelsLast);
    /// assert_eq!((x.shape(), x.strides()), (&[2, 3, 4, 5][..], &[60, 1, 15, 3][..]));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when the format is for another number of dimensions.
    #[track_caller]
    pub fn contiguous_in(&self, format: MemoryFormat) -> Tensor {
        let order = order(self, format);
        if self.detach().permute(&order).is_contiguous() {
            return self.clone();
        }
        self.copy_ordered(&order)
    }

    /// A copy whose elements lie in this order (`torch.clone(memory_format=..)`).
    ///
    /// ```
    /// use torchrs::{Dtype, MemoryFormat, Tensor};
    /// let x = Tensor::zeros([2, 3, 4, 5], Dtype::F32).clone_in(MemoryFormat::ChannelsLast);
    /// let copy = x.clone_in(MemoryFormat::Preserve);
    /// assert!(copy.strides() == x.strides() && copy.data_ptr() != x.data_ptr());
    /// ```
    ///
    /// # Panics
    /// As [`contiguous_in`](Self::contiguous_in).
    #[track_caller]
    pub fn clone_in(&self, format: MemoryFormat) -> Tensor {
        self.copy_ordered(&order(self, format))
    }

    /// A new tensor without values whose elements lie in this order; `Preserve` is row-major.
    #[track_caller]
    pub(crate) fn empty_in(
        shape: &[usize],
        options: impl Into<TensorOptions>,
        format: MemoryFormat,
    ) -> Tensor {
        let n = shape.len() as i64;
        match format {
            MemoryFormat::Contiguous | MemoryFormat::Preserve => Tensor::empty(shape, options),
            MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d => {
                let mut shape = shape.to_vec();
                let channels = shape.remove(1);
                shape.push(channels);
                let back: SmallVec<[i64; 5]> = [0, n - 1].into_iter().chain(1..n - 1).collect();
                Tensor::empty(shape, options).permute(&back)
            }
        }
    }

    fn copy_ordered(&self, order: &[i64]) -> Tensor {
        let mut inverse: SmallVec<[i64; 5]> = SmallVec::from_elem(0, order.len());
        for (place, &d) in order.iter().enumerate() {
            inverse[d as usize] = place as i64;
        }
        self.permute(order).clone_contiguous().permute(&inverse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_last_keeps_values_and_gradients() {
        let x = Tensor::arange(0.0, 120.0, 1.0, crate::tensor::Dtype::F64).view([2, 3, 4, 5]);
        let x = x.requires_grad_(true);
        let y = x.contiguous_in(MemoryFormat::ChannelsLast);
        assert!(y.is_contiguous_in(MemoryFormat::ChannelsLast) && !y.is_contiguous());
        assert_eq!(y.to_vec::<f64>(), x.to_vec::<f64>());
        (&y * &y).sum().backward();
        assert_eq!(x.grad().unwrap().to_vec::<f64>(), (&x * 2.0).to_vec::<f64>());
        assert!(y.clone_in(MemoryFormat::Preserve).is_contiguous_in(MemoryFormat::ChannelsLast));
        assert!(x.slice(3, 0, 5, 2).clone_in(MemoryFormat::Preserve).is_contiguous());
    }

    #[test]
    fn a_list_has_no_channels() {
        let error =
            crate::error::catch(|| Tensor::range(3).contiguous_in(MemoryFormat::ChannelsLast));
        assert!(error.unwrap_err().to_string().contains("[3]"));
    }
}
