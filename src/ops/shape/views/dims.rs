//! Views that move, add, drop or stretch dimensions.

use smallvec::SmallVec;

use super::{shape_of, view};
use crate::error::{Error, throw};
use crate::tensor::{Layout, Tensor, normalize_dim, normalize_dims};

impl Tensor {
    /// The dimensions in another order (`torch.permute`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::range(6).view([1, 2, 3]);
    /// assert_eq!(x.permute(&[2, 0, 1]).shape(), &[3, 1, 2]);
    /// assert_eq!(x.permute(&[2, 0, 1]).to_vec::<i64>(), [0, 3, 1, 4, 2, 5]);
    /// ```
    ///
    /// # Panics
    /// Throws when `dims` is not a permutation of the dimensions.
    #[track_caller]
    pub fn permute(&self, dims: &[i64]) -> Tensor {
        let order = normalize_dims("permute", dims, self.dim());
        if order.len() != self.dim() {
            throw(Error::argument(
                "permute",
                "dims",
                format!(
                    "{dims:?} names {} dimensions, the tensor has shape {:?}",
                    dims.len(),
                    self.shape()
                ),
            ));
        }
        let layout = Layout {
            shape: order.iter().map(|&d| self.shape()[d]).collect(),
            strides: order.iter().map(|&d| self.strides()[d]).collect(),
            offset: self.storage_offset(),
        };
        let mut inverse: SmallVec<[i64; 5]> = SmallVec::from_elem(0, order.len());
        for (i, &d) in order.iter().enumerate() {
            inverse[d] = i as i64;
        }
        view("permute", self, layout, move |g| g.permute(&inverse))
    }

    /// Dimensions `a` and `b` exchanged (`torch.transpose`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.transpose(0, 1).to_vec::<i64>(), [1, 3, 2, 4]);
    /// ```
    #[track_caller]
    pub fn transpose(&self, a: i64, b: i64) -> Tensor {
        let (a, b) = (self.normalize_dim("transpose", a), self.normalize_dim("transpose", b));
        let mut layout = self.layout().clone();
        if self.dim() > 0 {
            layout.shape.swap(a, b);
            layout.strides.swap(a, b);
        }
        view("transpose", self, layout, move |g| g.transpose(a as i64, b as i64))
    }

    /// The transpose of a matrix; a vector or number is unchanged (`torch.t`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[1i64, 2, 3], [4, 5, 6]]).t().to_vec::<i64>(), [1, 4, 2, 5, 3, 6]);
    /// ```
    ///
    /// # Panics
    /// Throws for more than two dimensions.
    #[track_caller]
    pub fn t(&self) -> Tensor {
        if self.dim() > 2 {
            throw(Error::shape(
                "t",
                format!(
                    "takes at most 2 dimensions, got shape {:?}; use `transpose`",
                    self.shape()
                ),
            ));
        }
        if self.dim() < 2 { self.transpose(0, 0) } else { self.transpose(0, 1) }
    }

    /// A dimension of size 1 inserted at `dim` (`torch.unsqueeze`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2]);
    /// assert_eq!((x.unsqueeze(0).shape(), x.unsqueeze(-1).shape()), (&[1, 2][..], &[2, 1][..]));
    /// ```
    #[track_caller]
    pub fn unsqueeze(&self, dim: i64) -> Tensor {
        let d = normalize_dim("unsqueeze", dim, self.dim() + 1);
        let mut layout = self.layout().clone();
        let stride =
            if d < self.dim() { layout.strides[d] * layout.shape[d].max(1) as isize } else { 1 };
        layout.shape.insert(d, 1);
        layout.strides.insert(d, stride);
        view("unsqueeze", self, layout, move |g| g.squeeze_dims(&[d as i64]))
    }

    /// Without its dimensions of size 1 (`torch.squeeze`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[[1i64], [2]]]).squeeze().shape(), &[2]);
    /// ```
    #[track_caller]
    pub fn squeeze(&self) -> Tensor {
        let dims: SmallVec<[i64; 5]> = (0..self.dim() as i64).collect();
        self.squeeze_dims(&dims)
    }

    /// Without dimension `dim` if its size is 1 (`torch.squeeze(dim)`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[[1i64], [2]]]);
    /// assert_eq!((x.squeeze_dim(0).shape(), x.squeeze_dim(1).shape()), (&[2, 1][..], &[1, 2, 1][..]));
    /// ```
    #[track_caller]
    pub fn squeeze_dim(&self, dim: i64) -> Tensor {
        self.squeeze_dims(&[dim])
    }

    /// Without those of the given dimensions that have size 1.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[[1i64], [2]]]).squeeze_dims(&[1, 2]).shape(), &[1, 2]);
    /// ```
    #[track_caller]
    pub fn squeeze_dims(&self, dims: &[i64]) -> Tensor {
        let dims = normalize_dims("squeeze", dims, self.dim());
        let keep = |d: &usize| !(dims.contains(d) && self.shape()[*d] == 1);
        let layout = Layout {
            shape: (0..self.dim()).filter(keep).map(|d| self.shape()[d]).collect(),
            strides: (0..self.dim()).filter(keep).map(|d| self.strides()[d]).collect(),
            offset: self.storage_offset(),
        };
        let shape = shape_of(self);
        view("squeeze", self, layout, move |g| g.reshape_to(&shape))
    }

    /// Dimensions of size 1 stretched to `shape` without copying; new dimensions are added in front
    /// (`torch.expand`, `torch.broadcast_to`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64], [2]]);
    /// let y = x.expand(&[2, 3]);
    /// assert_eq!((y.to_vec::<i64>(), y.strides()), (vec![1, 1, 1, 2, 2, 2], &[1, 0][..]));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when another size would have to change.
    #[track_caller]
    pub fn expand(&self, shape: &[usize]) -> Tensor {
        let missing = shape.len().wrapping_sub(self.dim());
        let fits = self.dim() <= shape.len()
            && self
                .shape()
                .iter()
                .zip(&shape[missing..])
                .all(|(&from, &to)| from == to || from == 1);
        if !fits {
            throw(Error::shape(
                "expand",
                format!(
                    "shape {:?} cannot be expanded to {shape:?}: only dimensions of size 1 stretch",
                    self.shape()
                ),
            ));
        }
        let mut strides: SmallVec<[isize; 5]> = SmallVec::from_elem(0, missing);
        for (d, (&from, &stride)) in self.shape().iter().zip(self.strides()).enumerate() {
            strides.push(if from == 1 && shape[missing + d] != 1 { 0 } else { stride });
        }
        let layout = Layout { shape: shape.into(), strides, offset: self.storage_offset() };
        let from = shape_of(self);
        view("expand", self, layout, move |g| g.sum_to(&from))
    }

    /// Expanded to `other`'s shape (`torch.expand_as`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64], [2]]);
    /// assert_eq!(x.expand_as(&Tensor::range(4).view([2, 2])).to_vec::<i64>(), [1, 1, 2, 2]);
    /// ```
    #[track_caller]
    pub fn expand_as(&self, other: &Tensor) -> Tensor {
        self.expand(other.shape())
    }

    /// Dimension `from` moved to place `to`, the others in order (`torch.movedim`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::range(6).view([1, 2, 3]).movedim(0, 2).shape(), &[2, 3, 1]);
    /// ```
    #[track_caller]
    pub fn movedim(&self, from: i64, to: i64) -> Tensor {
        let (from, to) = (self.normalize_dim("movedim", from), self.normalize_dim("movedim", to));
        let mut order: SmallVec<[i64; 5]> = (0..self.dim() as i64).collect();
        if self.dim() > 0 {
            let d = order.remove(from);
            order.insert(to, d);
        }
        self.permute(&order)
    }
}
