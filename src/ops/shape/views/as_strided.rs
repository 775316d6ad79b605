//! The most general view, and its gradient: a scatter into zeros.

use super::view;
use crate::autograd::scatter_into_base;
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Element, Layout, Tensor, dispatch};

impl Tensor {
    /// A view of the given shape and strides, starting `offset` elements after this tensor's first
    /// (`torch.as_strided` with an offset relative to this tensor).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2, 3, 4]);
    /// assert_eq!(x.narrow(0, 1, 3).as_strided(&[2, 2], &[1, 1], 0).to_vec::<i64>(), [2, 3, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// Throws when shape and strides differ in length, a stride is negative, or the view leaves the
    /// storage.
    #[track_caller]
    pub fn as_strided(&self, shape: &[usize], strides: &[isize], offset: usize) -> Tensor {
        let layout = self.strided_layout(shape, strides, self.storage_offset() + offset);
        let base = self.layout().clone();
        let relative = layout.clone();
        view("as_strided", self, layout, move |g| scatter_into_base(g, &base, &relative))
    }

    /// [`as_strided`](Self::as_strided) with an offset from the start of the storage, as
    /// `torch.as_strided`: the view may have elements that this tensor has not.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2, 3, 4]);
    /// assert_eq!(x.narrow(0, 1, 3).as_strided_at(&[2], &[2], 0).to_vec::<i64>(), [1, 3]);
    /// ```
    ///
    /// # Panics
    /// As [`as_strided`](Self::as_strided).
    #[track_caller]
    pub fn as_strided_at(
        &self,
        shape: &[usize],
        strides: &[isize],
        storage_offset: usize,
    ) -> Tensor {
        let layout = self.strided_layout(shape, strides, storage_offset);
        let (base, part) = (self.layout().clone(), layout.clone());
        view("as_strided", self, layout, move |g| {
            // The gradient of the storage as one list, and what of it is this tensor.
            let storage = Layout::contiguous(&[base.extent().max(part.extent())]);
            let whole = scatter_into_base(g, &storage, &part);
            whole.as_strided(&base.shape, &base.strides, base.offset)
        })
    }

    #[track_caller]
    fn strided_layout(&self, shape: &[usize], strides: &[isize], offset: usize) -> Layout {
        let layout = Layout { shape: shape.into(), strides: strides.into(), offset };
        if shape.len() != strides.len() || strides.iter().any(|&s| s < 0) {
            throw(Error::argument(
                "as_strided",
                "strides",
                format!(
                    "{strides:?} for shape {shape:?}; one stride of at least 0 per dimension is needed"
                ),
            ));
        }
        let elements = self.storage().nbytes() / self.dtype().size();
        if layout.checked_extent().is_none_or(|extent| extent > elements) {
            throw(Error::argument(
                "as_strided",
                "shape",
                format!(
                    "{shape:?} with strides {strides:?} at offset {} leaves the storage of {elements} \
                     elements",
                    layout.offset
                ),
            ));
        }
        layout
    }

    /// [`add_overlapping`](Self::add_overlapping) on a GPU: each element's place in the memory is an index.
    fn scatter_overlapping(&self, x: &Tensor) {
        let extent = self.layout().extent() - self.storage_offset();
        let places = Tensor::arange(0, extent as i64, 1, (Dtype::I64, self.device()));
        let places = places.as_strided(self.shape(), self.strides(), 0).reshape([-1]);
        let memory = Layout { offset: self.storage_offset(), ..Layout::contiguous(&[extent]) };
        let memory = Tensor::from_parts(self.storage().clone(), memory, self.dtype());
        memory.scatter_add_(0, &places, &x.to_dtype(self.dtype()).reshape([-1]));
    }

    /// Adds `x` element by element, in row-major order, where several elements of this tensor may be
    /// the same memory. For freshly made tensors only: the version is not counted.
    pub(crate) fn add_overlapping(&self, x: &Tensor) {
        if self.dtype().is_complex() {
            let x = x.to_dtype(self.dtype()).view_as_real();
            return self.view_as_real().add_overlapping(&x);
        }
        if self.device().is_apart() {
            return self.scatter_overlapping(x);
        }
        let (shape, strides) = (self.shape(), self.strides());
        dispatch!(float self.dtype(), "as_strided", T => {
            let out = self.data_ptr().cast::<T>();
            let mut index = vec![0usize; shape.len()];
            let mut position = 0isize;
            x.to_dtype(self.dtype()).for_each_element::<T>(|v| {
                // SAFETY: `position` is the layout's place of `index`, inside the shape; `self` is
                // fresh, so nobody else uses its bytes.
                unsafe {
                    let o = out.offset(position);
                    *o = T::from_f64((*o).to_f64() + v.to_f64());
                }
                for d in (0..shape.len()).rev() {
                    index[d] += 1;
                    position += strides[d];
                    if index[d] < shape[d] { break }
                    position -= strides[d] * shape[d] as isize;
                    index[d] = 0;
                }
            });
        });
    }
}
