//! Views that walk a dimension in another way: diagonals and sliding windows.

use super::{shape_of, view};
use crate::error::{Error, throw};
use crate::tensor::{Shape, Tensor};

impl Tensor {
    /// The diagonal of dimensions `dim1` and `dim2` as a new last dimension, `offset` places above
    /// (or, negative, below) the main one (`torch.diagonal`). A view.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::range(6).view([2, 3]);
    /// assert_eq!(x.diagonal(0, 0, 1).to_vec::<i64>(), [0, 4]);
    /// assert_eq!(x.diagonal(1, 0, 1).to_vec::<i64>(), [1, 5]);
    /// ```
    ///
    /// # Panics
    /// Throws when the dimensions are the same or out of range.
    #[track_caller]
    pub fn diagonal(&self, offset: i64, dim1: i64, dim2: i64) -> Tensor {
        let (a, b) = (self.normalize_dim("diagonal", dim1), self.normalize_dim("diagonal", dim2));
        if a == b || self.dim() < 2 {
            throw(Error::argument(
                "diagonal",
                "dim2",
                format!(
                    "{dim2} and dim1 {dim1} must be two dimensions of shape {:?}",
                    self.shape()
                ),
            ));
        }
        let skip = |n: usize, by: i64| n.saturating_sub(by.max(0).unsigned_abs() as usize);
        let (rows, columns) = (self.shape()[a], self.shape()[b]);
        let length = skip(rows, offset.saturating_neg()).min(skip(columns, offset));
        let mut layout = self.layout().clone();
        if length > 0 {
            let along = if offset < 0 { a } else { b };
            layout.offset += offset.unsigned_abs() as usize * layout.strides[along] as usize;
        }
        let stride = layout.strides[a] + layout.strides[b];
        for d in [a.max(b), a.min(b)] {
            layout.shape.remove(d);
            layout.strides.remove(d);
        }
        layout.shape.push(length);
        layout.strides.push(stride);
        let shape = shape_of(self);
        view("diagonal", self, layout, move |g| {
            let out = Tensor::zeros(&shape, (g.dtype(), g.device()));
            out.diagonal(offset, a as i64, b as i64).copy_(g);
            out
        })
    }

    /// Windows of `size` entries along `dim`, starting every `step` entries; the entries of a window
    /// are a new last dimension (`torch.Tensor.unfold`). A view.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::range(5).unfold(0, 3, 2);
    /// assert_eq!((x.shape(), x.to_vec::<i64>()), (&[2, 3][..], vec![0, 1, 2, 2, 3, 4]));
    /// ```
    ///
    /// # Panics
    /// Throws when the dimension has fewer than `size` entries, or `step` is 0.
    #[track_caller]
    pub fn unfold(&self, dim: i64, size: usize, step: usize) -> Tensor {
        let d = self.normalize_dim("unfold", dim);
        let n = self.shape().get(d).copied().unwrap_or(1);
        if size > n || step == 0 {
            throw(Error::argument(
                "unfold",
                "size",
                format!(
                    "windows of {size} entries every {step} in dimension {d} of shape {:?}; size is \
                     at most {n} and step at least 1",
                    self.shape()
                ),
            ));
        }
        let count = (n - size) / step + 1;
        let mut layout = self.layout().clone();
        match layout.shape.get_mut(d) {
            Some(slot) => {
                let stride = layout.strides[d];
                *slot = count;
                layout.strides[d] *= step as isize;
                layout.strides.push(stride);
            }
            None => layout.strides.push(1),
        }
        layout.shape.push(size);
        let is_number = self.dim() == 0;
        view("unfold", self, layout, move |g| {
            if is_number {
                return g.sum_to(&[1]).reshape_to(&[]);
            }
            g.overlapped(d, n, step)
        })
    }

    /// The transpose of [`unfold`](Self::unfold): windows, the last dimension, of which dimension `d` has one every
    /// `step` places, are added up in a dimension `d` of `n` places.
    pub(crate) fn overlapped(&self, d: usize, n: usize, step: usize) -> Tensor {
        let (count, size) = (self.size(d as i64), self.size(-1));
        let mut shape: Shape = self.shape()[..self.dim() - 1].into();
        shape[d] = n;
        let out = Tensor::zeros(&shape, (self.dtype(), self.device()));
        let along = d as i64;
        // As much of each window as overlaps no other one's, at a time.
        for first in (0..size).step_by(step) {
            let part = step.min(size - first);
            let places = out.narrow(along, first, (count - 1) * step + part);
            places.unfold(along, part, step).add_(&self.narrow(-1, first, part));
        }
        out
    }
}
