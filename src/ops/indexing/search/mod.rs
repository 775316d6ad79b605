//! Elements by their place in the flat tensor, places of elements in lists, and membership.

pub(in crate::ops) mod cuda;

use std::cmp::Ordering;

use crate::error::{Error, throw};
use crate::ops::{gpu, limits::assert_indices};
use crate::tensor::{Dtype, Element, Operand, Tensor};

/// Options of [`Tensor::searchsorted`] and [`Tensor::bucketize`].
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::SearchOptions;
/// let x = Tensor::from([1i64, 3, 3, 5]);
/// assert_eq!(x.searchsorted(3, SearchOptions::default()).item(), 1.0);
/// assert_eq!(x.searchsorted(3, SearchOptions { right: true, ..Default::default() }).item(), 3.0);
/// ```
#[derive(Clone, Copy, Default)]
pub struct SearchOptions<'a> {
    /// Whether a value goes behind the elements that are equal to it (PyTorch's `side="right"`).
    pub right: bool,
    /// Whether the places are i32 instead of i64.
    pub out_int32: bool,
    /// The order in which the sequences are sorted, as `argsort` gives it, where they are not.
    pub sorter: Option<&'a Tensor>,
}

impl From<bool> for SearchOptions<'_> {
    fn from(right: bool) -> Self {
        SearchOptions { right, ..Default::default() }
    }
}

impl Tensor {
    /// The elements that `index` names in the tensor seen as a list, in the index's shape
    /// (`torch.take`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.take(&Tensor::from([3i64, 0])).to_vec::<i64>(), [4, 1]);
    /// ```
    ///
    /// # Panics
    /// Throws when the index is not of integers or is out of range.
    #[track_caller]
    pub fn take(&self, index: &Tensor) -> Tensor {
        check_places("take", index);
        assert_indices("take", "index", index, self.numel(), true);
        self.ravel().index(&[Some(index)])
    }

    /// A copy with the elements of `source` written (or, with `accumulate`, added) where `index`
    /// names places in the tensor seen as a list (`torch.Tensor.put`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// let (index, source) = (Tensor::from([3i64, 3]), Tensor::from([10i64, 20]));
    /// assert_eq!(x.put(&index, &source, true).to_vec::<i64>(), [1, 2, 3, 34]);
    /// ```
    ///
    /// # Panics
    /// Throws when index and source differ in number, types differ, or the index is out of range.
    #[track_caller]
    pub fn put(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> Tensor {
        check_places("put", index);
        assert_indices("put", "index", index, self.numel(), true);
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
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// x.put_(&Tensor::from([2i64]), &Tensor::from([9i64]), false);
    /// assert_eq!(x.to_vec::<i64>(), [1, 2, 9, 4]);
    /// ```
    #[track_caller]
    pub fn put_(&self, index: &Tensor, source: &Tensor, accumulate: bool) -> &Tensor {
        self.copy_(&self.put(index, source, accumulate))
    }

    /// In-place form of [`masked_scatter`](Self::masked_scatter) (`torch.Tensor.masked_scatter_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2, 3]);
    /// x.masked_scatter_(&x.ne(2), &Tensor::from([8i64, 9]));
    /// assert_eq!(x.to_vec::<i64>(), [8, 2, 9]);
    /// ```
    #[track_caller]
    pub fn masked_scatter_(&self, mask: &Tensor, source: &Tensor) -> &Tensor {
        self.copy_(&self.masked_scatter(mask, source))
    }

    /// Places of the elements that are not zero (`torch.argwhere`): [`nonzero`](Self::nonzero).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[0i64, 5], [7, 0]]).argwhere().to_vec::<i64>(), [0, 1, 1, 0]);
    /// ```
    pub fn argwhere(&self) -> Tensor {
        self.nonzero()
    }

    /// Whether each element occurs in `list` (`torch.isin`), or, with `invert`, does not.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (x, list) = (Tensor::from([1i64, 2, 3]), Tensor::from([3i64, 1, 7]));
    /// assert_eq!(x.isin(&list, false).to_vec::<bool>(), [true, false, true]);
    /// assert_eq!(x.isin(&list, true).to_vec::<bool>(), [false, true, false]);
    /// ```
    #[track_caller]
    pub fn isin(&self, list: &Tensor, invert: bool) -> Tensor {
        if list.numel() == 0 {
            return Tensor::full(self.shape(), invert, (Dtype::Bool, self.device()));
        }
        let sorted = list.detach().ravel().sort(0, false).0;
        let places = sorted.searchsorted(self, false).minimum(sorted.numel() as i64 - 1);
        let found = sorted.index_select(0, &places.ravel()).reshape_to(self.shape());
        if invert { found.ne(self) } else { found.eq(self) }
    }

    /// Where each of `values` (a tensor or a number) would be inserted along the last dimension of this
    /// sorted tensor (`torch.searchsorted`): the number of elements below it, or, with `right`, not
    /// above it. A list serves all values; else the dimensions before the last must be equal. A truth
    /// value stands for options with that `right`.
    ///
    /// ```
    /// use torchrs::{Tensor, ops::SearchOptions};
    /// let (x, order) = (Tensor::from([5i64, 1, 3]), Tensor::from([1i64, 2, 0]));
    /// assert_eq!(Tensor::from([1i64, 3, 5]).searchsorted(3, true).item_i64(), 2);
    /// let options = SearchOptions { sorter: Some(&order), ..Default::default() };
    /// assert_eq!(x.searchsorted(3, options).item_i64(), 1);
    /// ```
    ///
    /// # Panics
    /// Throws when the shapes do not fit, or the options' `sorter` is no order of the sequences.
    #[track_caller]
    pub fn searchsorted<'a>(
        &self,
        values: impl Into<Operand<'a>>,
        options: impl Into<SearchOptions<'a>>,
    ) -> Tensor {
        let options = options.into();
        let places = match values.into() {
            Operand::Tensor(values) => self.insertion(values, &options),
            Operand::Scalar(value) => {
                let value = Tensor::full([], value, (value.dtype(), self.device()));
                self.insertion(&value, &options)
            }
        };
        if options.out_int32 { places.int() } else { places }
    }

    /// The places, in i64.
    #[track_caller]
    fn insertion(&self, values: &Tensor, options: &SearchOptions<'_>) -> Tensor {
        let right = options.right;
        if let Some(sorter) = options.sorter {
            if sorter.shape() != self.shape() || sorter.dtype() != Dtype::I64 {
                throw(Error::argument(
                    "searchsorted",
                    "sorter",
                    format!(
                        "{} {:?} for sequences {:?}; i64 of the same shape is needed",
                        sorter.dtype(),
                        sorter.shape(),
                        self.shape()
                    ),
                ));
            }
            assert_indices("searchsorted", "sorter", sorter, self.size(-1), false);
            let options = SearchOptions { sorter: None, ..*options };
            return self.detach().gather(-1, sorter).insertion(values, &options);
        }
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
        let per_row = if outer.is_empty() { values.numel() } else { values.size(-1) };
        if let Some(gpu) = gpu::of("searchsorted", &[self, values]) {
            return cuda::search(gpu, self, values, per_row, right);
        }
        let both_integral =
            !self.dtype().is_floating_point() && !values.dtype().is_floating_point();
        let out = if both_integral {
            search::<i64>(&self.to_vec(), n, &values.to_vec(), per_row, right)
        } else {
            search::<f64>(&self.to_vec(), n, &values.to_vec(), per_row, right)
        };
        Tensor::from_slice(&out, values.shape())
    }

    /// The bucket of each element among those between sorted `boundaries` (`torch.bucketize`): a
    /// boundary belongs to the bucket before it, or, with `right`, after it. Options as those of
    /// [`searchsorted`](Self::searchsorted).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (x, boundaries) = (Tensor::from([0i64, 3, 4]), Tensor::from([1i64, 3, 5]));
    /// assert_eq!(x.bucketize(&boundaries, false).to_vec::<i64>(), [0, 1, 2]);
    /// assert_eq!(x.bucketize(&boundaries, true).to_vec::<i64>(), [0, 2, 2]);
    /// ```
    ///
    /// # Panics
    /// Throws when `boundaries` is not a list.
    #[track_caller]
    pub fn bucketize<'a>(
        &'a self,
        boundaries: &Tensor,
        options: impl Into<SearchOptions<'a>>,
    ) -> Tensor {
        if boundaries.dim() != 1 {
            throw(Error::shape(
                "bucketize",
                format!("boundaries must be a list, got shape {:?}", boundaries.shape()),
            ));
        }
        boundaries.searchsorted(self, options)
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
