//! Views of a part: select, narrow, slice, and `i(...)`, which takes several at once.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo};
use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use super::{part_view, shape_of};
use crate::autograd::Part;
use crate::error::{Error, throw};
use crate::tensor::{Dtype, ONE_OF_SEVERAL, Operand, Tensor};

impl Tensor {
    /// The slice at `index` of dimension `dim`, which disappears (`torch.select`). Negative counts
    /// from the end.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.select(0, 1).to_vec::<i64>(), [3, 4]);
    /// assert_eq!(x.select(1, -1).to_vec::<i64>(), [2, 4]);
    /// ```
    #[track_caller]
    pub fn select(&self, dim: i64, index: i64) -> Tensor {
        if self.dim() == 0 {
            throw(Error::shape("select", "a 0-dim tensor has no dimension to select from"));
        }
        let d = self.normalize_dim("select", dim);
        let n = self.shape()[d] as i64;
        let i = if index < 0 { index + n } else { index };
        if !(0..n).contains(&i) {
            throw(Error::argument(
                "select",
                "index",
                format!("{index} is out of range for dimension {d} of shape {:?}", self.shape()),
            ));
        }
        let mut layout = self.layout().clone();
        layout.offset += i as usize * layout.strides[d] as usize;
        layout.shape.remove(d);
        layout.strides.remove(d);
        let shape = shape_of(self);
        let part = Part { dim: d, start: i as usize, length: 1, is_selected: true };
        part_view("select", self, layout, Some(part), move |g| {
            let out = Tensor::zeros(&shape, (g.dtype(), g.device()));
            out.select(d as i64, i).copy_(g);
            out
        })
    }

    /// `length` entries of dimension `dim` from `start` on (`torch.narrow`); a negative start counts
    /// from the end. Any integer type serves.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2, 3, 4]);
    /// assert_eq!(x.narrow(0, 1, 2).to_vec::<i64>(), [2, 3]);
    /// assert_eq!(x.narrow(0, -1, 1).to_vec::<i64>(), [4]);
    /// ```
    ///
    /// # Panics
    /// Throws when the entries leave the dimension.
    #[track_caller]
    pub fn narrow(&self, dim: i64, start: impl TryInto<i64>, length: usize) -> Tensor {
        // What an i64 cannot hold is outside any tensor.
        self.narrow_from(dim, start.try_into().unwrap_or(i64::MAX), length)
    }

    #[track_caller]
    fn narrow_from(&self, dim: i64, start: i64, length: usize) -> Tensor {
        let d = self.normalize_dim("narrow", dim);
        let n = self.shape().get(d).copied().unwrap_or(0) as i64;
        let from = if start < 0 { start + n } else { start };
        let end = i64::try_from(length).ok().and_then(|length| from.checked_add(length));
        match end {
            Some(end) if self.dim() > 0 && from >= 0 && end <= n => self.slice(dim, from, end, 1),
            _ => throw(Error::argument(
                "narrow",
                "start",
                format!(
                    "{start} with length {length} leaves dimension {d} of shape {:?}",
                    self.shape()
                ),
            )),
        }
    }

    /// Every `step`-th entry of dimension `dim` from `start` up to, not including, `end`; both may be
    /// negative (from the end) and are clamped, as in Python.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2, 3, 4, 5]);
    /// assert_eq!(x.slice(0, 1, 100, 2).to_vec::<i64>(), [2, 4]);
    /// assert_eq!(x.slice(0, -2, 5, 1).to_vec::<i64>(), [4, 5]);
    /// ```
    #[track_caller]
    pub fn slice(&self, dim: i64, start: i64, end: i64, step: usize) -> Tensor {
        if self.dim() == 0 || step == 0 {
            throw(Error::argument(
                "slice",
                "step",
                "must be at least 1, on a tensor with dimensions",
            ));
        }
        let d = self.normalize_dim("slice", dim);
        let n = self.shape()[d] as i64;
        let clamp = |v: i64| (if v < 0 { v + n } else { v }).clamp(0, n) as usize;
        let (start, end) = (clamp(start), clamp(end));
        let length = end.saturating_sub(start).div_ceil(step);
        let mut layout = self.layout().clone();
        // An empty slice starts where the tensor does: its place is never read.
        layout.offset += if length == 0 { 0 } else { start * layout.strides[d] as usize };
        layout.shape[d] = length;
        layout.strides[d] *= step as isize;
        let shape = shape_of(self);
        let part = Part { dim: d, start, length, is_selected: false };
        let part = (step == 1 && length > 0).then_some(part);
        part_view("slice", self, layout, part, move |g| {
            let out = Tensor::zeros(&shape, (g.dtype(), g.device()));
            out.slice(d as i64, start as i64, end as i64, step).copy_(g);
            out
        })
    }

    /// Pieces of `size` entries along `dim`; the last may be smaller (`torch.split`). While recording, a
    /// piece must not be changed in place.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let pieces = Tensor::range(5).split(2, 0);
    /// assert_eq!(pieces[1].to_vec::<i64>(), [2, 3]);
    /// assert_eq!(pieces[2].to_vec::<i64>(), [4]);
    /// ```
    ///
    /// # Panics
    /// Throws when `size` is 0 or there is no such dimension.
    #[track_caller]
    pub fn split(&self, size: usize, dim: i64) -> Vec<Tensor> {
        let n = self.size_for("split", dim);
        if size == 0 {
            throw(Error::argument("split", "size", "must be at least 1"));
        }
        let starts = (0..n.max(1)).step_by(size);
        siblings(starts.map(|s| self.narrow(dim, s, size.min(n - s))).collect())
    }

    /// Pieces of the given sizes along `dim` (`torch.split` with a list). While recording, a piece must
    /// not be changed in place.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let pieces = Tensor::range(5).split_sizes(&[1, 4], 0);
    /// assert_eq!(pieces[0].to_vec::<i64>(), [0]);
    /// assert_eq!(pieces[1].to_vec::<i64>(), [1, 2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// Throws when the sizes do not add up to the dimension's, or there is no such dimension.
    #[track_caller]
    pub fn split_sizes(&self, sizes: &[usize], dim: i64) -> Vec<Tensor> {
        siblings(self.pieces("split_sizes", sizes, dim))
    }

    /// Views of the given sizes along `dim`, each of which may be changed in place.
    #[track_caller]
    pub(super) fn pieces(&self, op: &str, sizes: &[usize], dim: i64) -> Vec<Tensor> {
        let n = self.size_for(op, dim);
        if sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size)) != Some(n) {
            throw(Error::argument(
                op,
                "sizes",
                format!(
                    "{sizes:?} must add up to {n} (dimension {dim} of shape {:?})",
                    self.shape()
                ),
            ));
        }
        let mut start = 0;
        let piece = |&size: &usize| {
            let part = self.narrow(dim, start, size);
            start += size;
            part
        };
        sizes.iter().map(piece).collect()
    }

    /// At most `chunks` pieces of equal size along `dim`; the last may be smaller (`torch.chunk`). Of a dimension of
    /// size 0 there are `chunks` pieces of size 0. While recording, a piece must not be changed in place.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let pieces = Tensor::range(5).chunk(2, 0);
    /// assert_eq!(pieces[0].to_vec::<i64>(), [0, 1, 2]);
    /// assert_eq!(pieces[1].to_vec::<i64>(), [3, 4]);
    /// ```
    ///
    /// # Panics
    /// Throws when `chunks` is 0 or there is no such dimension.
    #[track_caller]
    pub fn chunk(&self, chunks: usize, dim: i64) -> Vec<Tensor> {
        if chunks == 0 {
            throw(Error::argument("chunk", "chunks", "must be at least 1"));
        }
        match self.size_for("chunk", dim) {
            0 => siblings(vec![0; chunks].iter().map(|&at| self.narrow(dim, at, 0)).collect()),
            n => self.split(n.div_ceil(chunks), dim),
        }
    }

    /// One tensor per entry of dimension `dim`, which disappears (`torch.unbind`). While recording, none
    /// of them may be changed in place.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let columns = Tensor::from([[1i64, 2], [3, 4]]).unbind(1);
    /// assert_eq!(columns[0].to_vec::<i64>(), [1, 3]);
    /// assert_eq!(columns[1].to_vec::<i64>(), [2, 4]);
    /// ```
    ///
    /// # Panics
    /// Throws when there is no such dimension.
    #[track_caller]
    pub fn unbind(&self, dim: i64) -> Vec<Tensor> {
        let n = self.size_for("unbind", dim) as i64;
        siblings((0..n).map(|i| self.select(dim, i)).collect())
    }

    /// A part, as Python's `x[...]`: integers, ranges and [`Index`]es, one entry per dimension from the
    /// first on. A view, unless there is an index tensor among them.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::range(12).view([3, 4]);
    /// assert_eq!(x.i(1).to_vec::<i64>(), [4, 5, 6, 7]);
    /// assert_eq!(x.i((.., 1..3)).shape(), &[3, 2]);
    /// assert_eq!(x.i((-1, 0)).item(), 8.0);
    /// ```
    ///
    /// # Panics
    /// Throws when there are more entries than dimensions, or one is out of range.
    #[track_caller]
    pub fn i(&self, index: impl Into<IndexArgs>) -> Tensor {
        let (x, lists) = self.indexed(index.into());
        if lists.iter().all(Option::is_none) {
            return x;
        }
        let lists: SmallVec<[Option<&Tensor>; 5]> = lists.iter().map(Option::as_ref).collect();
        x.index(&lists)
    }

    /// Writes `value`, a number or a tensor, which broadcasts and is converted, to a part, as Python's
    /// `x[...] = value`.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::range(6).view([2, 3]);
    /// x.set_i((.., 1), 9);
    /// x.set_i((1, ..2), &Tensor::from([7i64, 8]));
    /// assert_eq!(x.to_vec::<i64>(), [0, 9, 2, 7, 8, 5]);
    /// ```
    ///
    /// # Panics
    /// As [`i`](Self::i), and when the value does not broadcast to the part.
    #[track_caller]
    pub fn set_i<'a>(&self, index: impl Into<IndexArgs>, value: impl Into<Operand<'a>>) -> &Tensor {
        let number;
        let value = match value.into() {
            Operand::Tensor(value) => value,
            Operand::Scalar(value) => {
                number = Tensor::full([], value, (self.dtype(), self.device()));
                &number
            }
        };
        let (x, lists) = self.indexed(index.into());
        let lists: SmallVec<[Option<&Tensor>; 5]> = lists.iter().map(Option::as_ref).collect();
        if lists.iter().any(Option::is_some) {
            x.index_put_(&lists, &value.to_dtype(self.dtype()), false);
            return self;
        }
        let extra = value.dim().saturating_sub(x.dim());
        if extra > 0 && value.shape()[..extra].iter().all(|&n| n == 1) {
            x.copy_(&value.reshape_to(&value.shape()[extra..]));
        } else {
            x.copy_(value);
        }
        self
    }

    /// The view that all entries but index tensors give, and those, by its dimensions.
    #[track_caller]
    fn indexed(&self, IndexArgs(args): IndexArgs) -> (Tensor, Vec<Option<Tensor>>) {
        let covered = |index: &Index| match index {
            Index::New | Index::Rest | Index::Truth(_) => 0,
            Index::Of(mask) if mask.dtype() == Dtype::Bool => mask.dim(),
            _ => 1,
        };
        let needed: usize = args.iter().map(covered).sum();
        let rests = args.iter().filter(|a| matches!(a, Index::Rest)).count();
        if needed > self.dim() || rests > 1 {
            throw(Error::argument(
                "i",
                "index",
                format!("{needed} indices for shape {:?}", self.shape()),
            ));
        }
        let (mut x, mut d) = (self.clone(), 0);
        let mut lists = Vec::new();
        for arg in args {
            // Dimensions of `x` that this entry has dealt with.
            let (done, list) = match arg {
                Index::At(i) => {
                    x = x.select(d, i);
                    continue;
                }
                Index::Span(start, end) => {
                    x = x.slice(d, start, end, 1);
                    (1, None)
                }
                Index::Strided(start, end, step) => {
                    x = x.slice(d, start, end, step);
                    (1, None)
                }
                Index::All => (1, None),
                Index::Rest => (self.dim() - needed, None),
                Index::New => {
                    x = x.unsqueeze(d);
                    (1, None)
                }
                Index::Truth(whole) => {
                    x = x.unsqueeze(d);
                    (1, Some(Tensor::from([whole])))
                }
                Index::Of(number) if number.dtype().is_integral() && number.dim() == 0 => {
                    x = x.select(d, number.item_i64());
                    continue;
                }
                Index::Of(list) if list.dtype() == Dtype::Bool && list.dim() == 0 => {
                    x = x.unsqueeze(d);
                    (1, Some(list.reshape_to(&[1])))
                }
                Index::Of(list) if list.dtype() == Dtype::Bool => (list.dim(), Some(list)),
                Index::Of(list) => (1, Some(list)),
            };
            match list {
                // A mask is one entry for its dimensions together.
                Some(list) => lists.push(Some(list)),
                None => lists.extend(std::iter::repeat_n(None, done)),
            }
            d += done as i64;
        }
        (x, lists)
    }
}

/// The views as what one op gave: in-place changes of one are not recorded
/// ([`Tensor::assert_inplace_legal`]).
fn siblings(views: Vec<Tensor>) -> Vec<Tensor> {
    for view in &views {
        view.0.flags.fetch_or(ONE_OF_SEVERAL, Relaxed);
    }
    views
}

/// What [`Tensor::i`] takes for one dimension.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::views::Index;
/// let x = Tensor::range(6).view([2, 3]);
/// assert_eq!(x.i((Index::All, Index::Strided(0, 3, 2))).to_vec::<i64>(), [0, 2, 3, 5]);
/// assert_eq!(x.i((Index::New, Index::Rest, Index::At(0))).shape(), &[1, 2]);
/// assert_eq!(x.i(Index::Of(Tensor::from([1i64, 1]))).to_vec::<i64>(), [3, 4, 5, 3, 4, 5]);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Index {
    /// One entry; the dimension disappears.
    At(i64),
    /// From the first up to, not including, the second; clamped.
    Span(i64, i64),
    /// The same, only every so many (the third).
    Strided(i64, i64, usize),
    /// The whole dimension.
    All,
    /// All dimensions that the other entries leave (Python's `...`).
    Rest,
    /// A new dimension of size 1 (Python's `None`).
    New,
    /// A mask of no dimensions: a new dimension, of size 1 for true and 0 for false, as an index tensor
    /// gives it.
    Truth(bool),
    /// The entries that a tensor of integers names, or a mask for as many dimensions as it has
    /// ([`Tensor::index`]).
    Of(Tensor),
}

/// The argument of [`Tensor::i`]: one [`Index`], a tuple of up to six, or a list.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::views::{Index, IndexArgs};
/// let x = Tensor::range(6).view([2, 3]);
/// assert_eq!(x.i(vec![Index::At(1), Index::Span(0, 2)]).to_vec::<i64>(), [3, 4]);
/// let args: IndexArgs = (1, ..2).into();
/// assert_eq!(x.i(args).to_vec::<i64>(), [3, 4]);
/// ```
pub struct IndexArgs(SmallVec<[Index; 5]>);

impl From<Vec<Index>> for IndexArgs {
    fn from(list: Vec<Index>) -> Self {
        IndexArgs(list.into())
    }
}

impl From<&Tensor> for Index {
    fn from(list: &Tensor) -> Self {
        Index::Of(list.clone())
    }
}

macro_rules! integer_index {
    ($($t:ty),*) => {$(
        impl From<$t> for Index { fn from(i: $t) -> Self { Index::At(i as i64) } }
        impl From<Range<$t>> for Index { fn from(r: Range<$t>) -> Self { Index::Span(r.start as i64, r.end as i64) } }
        impl From<RangeFrom<$t>> for Index { fn from(r: RangeFrom<$t>) -> Self { Index::Span(r.start as i64, i64::MAX) } }
        impl From<RangeTo<$t>> for Index { fn from(r: RangeTo<$t>) -> Self { Index::Span(0, r.end as i64) } }
        impl From<RangeInclusive<$t>> for Index { fn from(r: RangeInclusive<$t>) -> Self { Index::Span(*r.start() as i64, *r.end() as i64 + 1) } }
    )*};
}
integer_index!(i64, i32, usize);

impl From<RangeFull> for Index {
    fn from(_: RangeFull) -> Self {
        Index::All
    }
}

impl<T: Into<Index>> From<T> for IndexArgs {
    fn from(index: T) -> Self {
        IndexArgs(smallvec::smallvec![index.into()])
    }
}

macro_rules! tuple_index {
    ($($($t:ident)+;)*) => {$(
        impl<$($t: Into<Index>),+> From<($($t,)+)> for IndexArgs {
            #[allow(non_snake_case, reason = "type names double as variable names")]
            fn from(($($t,)+): ($($t,)+)) -> Self { IndexArgs(smallvec::smallvec![$($t.into()),+]) }
        }
    )*};
}
tuple_index! { A B; A B C; A B C D; A B C D E; A B C D E F; }
