//! Elements by their place in the flat tensor, places of elements in lists, and membership.

use std::cmp::Ordering;

use crate::error::{Error, throw};
use crate::tensor::Element;
use crate::{Dtype, Tensor};

impl Tensor {
    /// The elements that `index` names in the tensor seen as a list, in the index's shape
    /// (`torch.take`).
    ///
    /// # Panics
    /// Throws when the index is not of integers or is out of range.
    #[track_caller]
    pub fn take(&self, index: &Tensor) -> Tensor {
        check_places("take", index);
        self.ravel().index(&[Some(index)])
    }

    /// A copy with the elements of `source` written (or, with `accumulate`, added) where `index`
    /// names places in the tensor seen as a list (`torch.Tensor.put`).
    ///
    /// # Panics
    /// Throws when index and source differ in number, types differ, or the index is out of range.
    #[track_caller]
    pub fn put(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> Tensor {
        check_places("put", index);
        if index.numel() != source.numel() {
            throw(Error::shape(
                "put",
                format!("{} indices for {} elements", index.numel(), source.numel()),
            ));
        }
        let flat = self.ravel().index_put(&[Some(&index.ravel())], &source.ravel(), accumulate);
        flat.reshape_to(self.shape())
    }

    /// In-place form of [`put`](Self::put) (`torch.Tensor.put_`).
    #[track_caller]
    pub fn put_(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> &Tensor {
        self.copy_(&self.put(index, source, accumulate))
    }

    /// In-place form of [`masked_scatter`](Self::masked_scatter) (`torch.Tensor.masked_scatter_`).
    #[track_caller]
    pub fn masked_scatter_(&self, mask: &Tensor, source: &Tensor) -> &Tensor {
        self.copy_(&self.masked_scatter(mask, source))
    }

    /// Places of the elements that are not zero (`torch.argwhere`): [`nonzero`](Self::nonzero).
    pub fn argwhere(&self) -> Tensor {
        self.nonzero()
    }

    /// Whether each element occurs in `list` (`torch.isin`), or, with `invert`, does not.
    #[track_caller]
    pub fn isin(&self, list: &Tensor, invert: bool) -> Tensor {
        if list.numel() == 0 {
            return Tensor::full(self.shape(), invert, Dtype::Bool);
        }
        let sorted = list.detach().ravel().sort(0, false).0;
        let places = sorted.searchsorted(self, false).minimum(sorted.numel() as i64 - 1);
        let found = sorted.take(&places);
        if invert { found.ne(self) } else { found.eq(self) }
    }

    /// Where each of `values` would be inserted along the last dimension of this sorted tensor
    /// (`torch.searchsorted`): the number of elements below it, or, with `right`, not above it. A list
    /// serves all values; else the dimensions before the last must be equal.
    ///
    /// # Panics
    /// Throws when the shapes do not fit.
    #[track_caller]
    pub fn searchsorted(&self, values: &Tensor, right: bool) -> Tensor {
        let (Some((&n, outer)), false) =
            (self.shape().split_last(), values.dim() == 0 && self.dim() > 1)
        else {
            throw(Error::shape(
                "searchsorted",
                format!("a sequence of shape {:?} for values {:?}", self.shape(), values.shape()),
            ))
        };
        if !outer.is_empty() && outer != &values.shape()[..values.dim() - 1] {
            throw(Error::shape(
                "searchsorted",
                format!(
                    "sequences {:?} and values {:?} differ in more than the last dimension",
                    self.shape(),
                    values.shape()
                ),
            ));
        }
        let both_integral =
            !self.dtype().is_floating_point() && !values.dtype().is_floating_point();
        let per_row = if outer.is_empty() { values.numel() } else { values.size(-1) };
        let out = if both_integral {
            search::<i64>(&self.to_vec(), n, &values.to_vec(), per_row, right)
        } else {
            search::<f64>(&self.to_vec(), n, &values.to_vec(), per_row, right)
        };
        Tensor::from_slice(&out, values.shape())
    }

    /// The bucket of each element among those between sorted `boundaries` (`torch.bucketize`): a
    /// boundary belongs to the bucket before it, or, with `right`, after it.
    ///
    /// # Panics
    /// Throws when `boundaries` is not a list.
    #[track_caller]
    pub fn bucketize(&self, boundaries: &Tensor, right: bool) -> Tensor {
        if boundaries.dim() != 1 {
            throw(Error::shape(
                "bucketize",
                format!("boundaries must be a list, got shape {:?}", boundaries.shape()),
            ));
        }
        boundaries.searchsorted(self, right)
    }
}

/// Throws unless the index holds places: a bool one would be a mask.
#[track_caller]
fn check_places(op: &str, index: &Tensor) {
    if index.dtype().is_floating_point() || index.dtype() == Dtype::Bool {
        throw(Error::dtype(op, format!("the index is of integers, got {}", index.dtype())));
    }
}

/// For each value, in rows of `per_row`, its place in its row of `n` sorted elements. NaN comes last.
fn search<T: Element + PartialOrd>(
    sorted: &[T],
    n: usize,
    values: &[T],
    per_row: usize,
    right: bool,
) -> Vec<i64> {
    let place = |(i, v): (usize, &T)| {
        let row = if per_row == values.len() { 0 } else { i / per_row };
        // NaN is above everything, and equal to itself.
        let (nan, above) = (|t: &T| t.partial_cmp(t).is_none(), Ordering::Greater);
        let before = |s: &T| match s.partial_cmp(v).unwrap_or(match (nan(s), nan(v)) {
            (true, true) => Ordering::Equal,
            (true, false) => above,
            _ => Ordering::Less,
        }) {
            Ordering::Greater => false,
            Ordering::Equal => right,
            Ordering::Less => true,
        };
        sorted[row * n..(row + 1) * n].partition_point(before) as i64
    };
    values.iter().enumerate().map(place).collect()
}
