//! Single elements by index along one dimension. `index` has as many dimensions as the tensor; at
//! each of its places p, with p' being p with the coordinate along `dim` replaced by `index[p]`:
//! gather: `y[p] = x[p']`; scatter: `x[p'] = src[p]`; scatter_add: `x[p'] += src[p]`.
//! Gather and scatter_add are each other's gradients.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use smallvec::{SmallVec, smallvec};

use super::cuda;
use super::index_select::{Accumulate, checked_index, dense_index};
use crate::amp::cast_op;
use crate::autograd::{record, record_inplace};
use crate::cpu::{
    arch::prefetch::prefetch, arch::vectorize::Kernel, arch::vectorize::vectorize,
    folds::fold::Shared, folds::fold::SharedMut, threads::GRAIN, threads::parallel_for,
};
use crate::cuda::refusal::in_name_of;
use crate::error::{Error, throw};
use crate::loops::fold::Walk;
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, Order, values};
use crate::ops::{gpu, pointwise::complex::by_pairs};
use crate::profiler;
use crate::storage::race::Scope;
use crate::tensor::{
    Dtype, Element, Scalar, Tensor, broadcast_shapes, dispatch, layout::contiguous_strides,
};

/// Where the elements of an indexed tensor (dense, of shape `whole`) and of the tensor beside the
/// index (dense, of shape `beside`) are, for each place of the index.
pub(in crate::ops) struct Places<'a> {
    index: &'a [i64],
    /// Rows of the index: (size, stride) of its outer dimensions in the indexed tensor, where the
    /// stride along `dim` is 0, and in the other one.
    whole: SmallVec<[(usize, isize); 4]>,
    beside: SmallVec<[(usize, isize); 4]>,
    /// The innermost dimension: size, and stride in the indexed tensor.
    inner: (usize, usize),
    /// Stride of `dim` in the indexed tensor.
    along: usize,
}

impl<'a> Places<'a> {
    /// `index` is dense and checked.
    pub(in crate::ops) fn new(
        index: &'a Tensor,
        d: usize,
        whole: &[usize],
        beside: &[usize],
    ) -> Places<'a> {
        // SAFETY: dense i64 by `checked_index`.
        let all = unsafe { index.as_slice::<i64>() };
        // An index of nothing may have any shape.
        let last = index.dim().checked_sub(1).filter(|_| !all.is_empty());
        let Some(last) = last else {
            return Places {
                index: all,
                whole: smallvec![],
                beside: smallvec![],
                inner: (1, 0),
                along: 1,
            };
        };
        let (whole, beside) = (contiguous_strides(whole), contiguous_strides(beside));
        let sizes = &index.shape()[..last];
        let stride = |k: usize| if k == d { 0 } else { whole[k] };
        Places {
            index: all,
            whole: sizes.iter().enumerate().map(|(k, &n)| (n, stride(k))).collect(),
            beside: sizes.iter().enumerate().map(|(k, &n)| (n, beside[k])).collect(),
            inner: (index.shape()[last], stride(last) as usize),
            along: whole[d] as usize,
        }
    }

    /// Calls `f(place in the indexed tensor, place beside)` for the index's rows of `rows`.
    #[inline(always)]
    pub(in crate::ops) fn each(&self, rows: Range<usize>, f: impl FnMut(usize, usize)) {
        self.each_inside(rows, usize::MAX, f);
    }

    /// [`each`](Self::each) but for indices that are not below `n`; whether there were none.
    #[inline(always)]
    fn each_inside(&self, rows: Range<usize>, n: usize, mut f: impl FnMut(usize, usize)) -> bool {
        if rows.is_empty() {
            return true;
        }
        let limit = n as u64;
        let mut all = true;
        let (n, step) = self.inner;
        let (mut whole, mut beside) =
            (Walk::new(&self.whole, rows.start), Walk::new(&self.beside, rows.start));
        for row in rows {
            let (w, b) = (whole.offset as usize, beside.offset as usize);
            let indices = &self.index[row * n..(row + 1) * n];
            for (j, &i) in indices.iter().enumerate() {
                if (i as u64) < limit {
                    f(w + j * step + i as usize * self.along, b + j);
                } else {
                    all = false;
                }
            }
            whole.advance();
            beside.advance();
        }
        all
    }

    /// Whether the places of an index's row are in a row of the indexed tensor, which has some.
    fn is_within_rows(&self, n: usize) -> bool {
        (self.inner.1, self.along) == (0, 1) && n > 0
    }

    /// [`each_inside`](Self::each_inside) where [`is_within_rows`](Self::is_within_rows): calls `f` with the
    /// first place of a row of the indexed tensor, the row's indices, and the first place beside.
    #[inline(always)]
    fn each_row(&self, rows: Range<usize>, mut f: impl FnMut(usize, &[i64], usize)) {
        let (mut whole, mut beside) =
            (Walk::new(&self.whole, rows.start), Walk::new(&self.beside, rows.start));
        for row in rows {
            let indices = &self.index[row * self.inner.0..][..self.inner.0];
            f(whole.offset as usize, indices, beside.offset as usize);
            whole.advance();
            beside.advance();
        }
    }

    pub(in crate::ops) fn rows(&self) -> usize {
        self.index.len().checked_div(self.inner.0).unwrap_or(0)
    }
}

/// Elements of f32 in a cache line.
const LINE: usize = 16;
/// Indices that are asked for ahead of their use, a page: the processor foresees them up to a page's end.
const AHEAD: usize = 512;

/// The rows of an index whose places [are within rows](Places::is_within_rows); whether all were there.
struct PickRows<'a, T> {
    places: &'a Places<'a>,
    rows: Range<usize>,
    /// Elements of a row of the indexed tensor.
    n: usize,
    from: Shared<T>,
    to: SharedMut<T>,
}

impl<T: Copy> Kernel for PickRows<'_, T> {
    type Output = bool;
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> bool {
        let PickRows { places, rows, n, from, to } = self;
        let mut all = true;
        places.each_row(rows, |p, indices, q| {
            // SAFETY: a row of `n` elements starts at `p`; every place of `to` is written once.
            let (from, to) = unsafe { (from.at(p), to.at(q)) };
            let (lines, rest) = indices.as_chunks::<LINE>();
            for (line, indices) in lines.iter().enumerate() {
                // A line of what is mostly the next row, which will be read in no order.
                prefetch(from.wrapping_add(n + line * LINE));
                prefetch(indices.as_ptr().wrapping_add(AHEAD));
                prefetch(indices.as_ptr().wrapping_add(AHEAD + LINE / 2));
                // SAFETY: the row's, as above.
                all &= unsafe { pick(from, n, indices, to.add(line * LINE)) };
            }
            // SAFETY: the row's numbers, indices and results, behind those of the lines.
            all &= unsafe { pick(from, n, rest, to.add(lines.len() * LINE)) };
        });
        all
    }
}

/// `to[j] = from[indices[j]]`, or `from[0]` where that is not one of `n`; whether all were.
///
/// # Safety
/// `from` has `n` elements, at least one; `to` has room for as many as there are indices.
#[inline(always)]
unsafe fn pick<T: Copy>(from: *const T, n: usize, indices: &[i64], to: *mut T) -> bool {
    let mut outside = false;
    for (j, &i) in indices.iter().enumerate() {
        let i = i as usize;
        outside |= i >= n;
        let i = if i < n { i } else { 0 };
        // SAFETY: this function's contract; `i` is below `n`, and `j` one of as many places as there are indices.
        unsafe { to.add(j).write(from.add(i).read()) };
    }
    !outside
}

/// Throws unless [`check_shape`] is satisfied and all values of `index` are in range; the index as dense
/// i64.
#[track_caller]
pub(in crate::ops) fn check(
    op: &str,
    x: &Tensor,
    d: usize,
    index: &Tensor,
    src: Option<&Tensor>,
) -> Tensor {
    check_shape(op, x, d, index, src);
    checked_index(op, index, x.shape().get(d).copied().unwrap_or(1))
}

/// Throws unless `index` has the tensor's number of dimensions and is nowhere larger than the tensor and
/// the source.
#[track_caller]
fn check_shape(op: &str, x: &Tensor, d: usize, index: &Tensor, src: Option<&Tensor>) {
    let fits = |whole: &Tensor, free: Option<usize>| {
        let sizes = index.shape().iter().zip(whole.shape()).enumerate();
        index.dim() == whole.dim() && sizes.into_iter().all(|(k, (i, n))| Some(k) == free || i <= n)
    };
    if index.numel() > 0 && !(fits(x, Some(d)) && src.is_none_or(|s| fits(s, None))) {
        throw(Error::shape(
            op,
            format!(
                "index {:?} must have the dimensions of the tensor {:?} and not be larger than it \
                 except along {d}{}",
                index.shape(),
                x.shape(),
                src.map(|s| format!(", nor than the source {:?}", s.shape())).unwrap_or_default()
            ),
        ));
    }
    if let Some(s) = src
        && s.dtype() != x.dtype()
    {
        throw(Error::dtype(
            op,
            format!("the source holds {}, the tensor {}", s.dtype(), x.dtype()),
        ));
    }
}

/// The index for pairs of real numbers in place of complex ones.
fn of_pairs(index: &Tensor) -> Tensor {
    let mut shape = index.layout().shape.clone();
    shape.push(2);
    index.unsqueeze(-1).expand(&shape)
}

/// `g`, which has the index's shape, in the source's shape, which may be larger: the rest is 0.
fn in_corner(g: Tensor, shape: &[usize]) -> Tensor {
    if g.shape() == shape {
        return g;
    }
    let out = Tensor::zeros(shape, (g.dtype(), g.device()));
    if g.numel() == 0 {
        return out;
    }
    let mut corner = out.clone();
    for (d, &n) in g.shape().iter().enumerate() {
        corner = corner.narrow(d as i64, 0, n);
    }
    corner.copy_(&g);
    out
}

/// [`Tensor::gather`] on the host; `index` is dense.
#[track_caller]
fn gathered(x: &Tensor, d: usize, index: &Tensor) -> Tensor {
    let out = Tensor::empty(index.shape(), x.dtype().on_host());
    let dense = x.detach().contiguous();
    let places = Places::new(index, d, x.shape(), index.shape());
    let n = x.shape().get(d).copied().unwrap_or(1);
    // A pass of its own over the index would cost as much as the work.
    let outside = AtomicBool::new(false);
    dispatch!(x.dtype(), T => {
        let (from, to) = (Shared(dense.data_ptr().cast::<T>()), SharedMut(out.data_ptr().cast::<T>()));
        parallel_for(places.rows(), GRAIN / places.inner.0.max(1), |rows| {
            let all = if places.is_within_rows(n) {
                vectorize(PickRows { places: &places, rows, n, from, to })
            } else {
                places.each_inside(rows, n, |p, q| {
                    // SAFETY: `each_inside` gives indices in range; every place of `out` is written once.
                    unsafe { to.at(q).write(from.at(p).read()) }
                })
            };
            if !all {
                outside.store(true, Relaxed);
            }
        });
    });
    if outside.into_inner() {
        checked_index("gather", index, n);
    }
    out
}

impl Tensor {
    /// Elements picked along `dim` (`torch.gather`): `y[i][j] = x[index[i][j]][j]` for `dim` 0 of a
    /// matrix.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.gather(1, &Tensor::from([[0i64, 0], [1, 0]])).to_vec::<i64>(), [1, 1, 4, 3]);
    /// ```
    ///
    /// # Panics
    /// Throws when the index does not fit the tensor, is not of integers or is out of range.
    #[track_caller]
    pub fn gather(&self, dim: i64, index: &Tensor) -> Tensor {
        // A number counts as a list of one.
        match (self.dim(), index.dim()) {
            (0, 1) => return self.unsqueeze(0).gather(dim, index),
            (1, 0) => return self.gather(dim, &index.unsqueeze(0)).squeeze_dim(0),
            _ => {}
        }
        let d = self.normalize_dim("gather", dim);
        check_shape("gather", self, d, index, None);
        let index = dense_index("gather", index);
        if self.is_complex() && self.dim() > 0 {
            return by_pairs(self, |pairs| pairs.gather(d as i64, &of_pairs(&index)));
        }
        let _span = profiler::op("gather");
        let out = match gpu::of("gather", &[self, &index]) {
            Some(gpu) => cuda::gather(gpu, &self.detach(), d, &index),
            None => gathered(self, d, &index),
        };
        let shape = self.layout().shape.clone();
        record("gather", &[self], out, |saver| {
            let index = saver.save(&index);
            move |ctx| {
                let g = ctx.grad(0);
                let out = Tensor::zeros(&shape, (g.dtype(), g.device()));
                out.scatter_add_(d as i64, &ctx.get(&index), &g);
                smallvec![Some(out)]
            }
        })
    }

    /// Elements picked along `dim`, index and tensor broadcast against each other elsewhere
    /// (`torch.take_along_dim`); negative indices count from the end. Takes the result of `argsort` or
    /// `argmax_dim(.., true)`. Without a dimension both are seen as lists.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[3i64, 1, 2], [7, 9, 8]]);
    /// assert_eq!(x.take_along_dim(&x.argsort(-1, false), -1).to_vec::<i64>(), [1, 2, 3, 7, 8, 9]);
    /// ```
    ///
    /// # Panics
    /// Throws when they do not broadcast, or the index is out of range.
    #[track_caller]
    pub fn take_along_dim(&self, index: &Tensor, dim: impl Into<Option<i64>>) -> Tensor {
        let Some(dim) = dim.into() else {
            return self.ravel().take_along_dim(&index.ravel(), 0);
        };
        let d = self.normalize_dim("take_along_dim", dim);
        let mut sizes = [self.layout().shape.clone(), index.layout().shape.clone()];
        let same_dim = self.dim() == index.dim();
        sizes.iter_mut().filter_map(|s| s.get_mut(d)).for_each(|n| *n = 1);
        let Some(mut shape) = broadcast_shapes(&sizes[0], &sizes[1]).ok().filter(|_| same_dim)
        else {
            throw(Error::shape(
                "take_along_dim",
                format!(
                    "tensor {:?} and index {:?} do not broadcast beside dimension {d}",
                    self.shape(),
                    index.shape()
                ),
            ))
        };
        let mut with = |n: Option<&usize>| {
            if let (Some(slot), Some(&n)) = (shape.get_mut(d), n) {
                *slot = n;
            }
            shape.clone()
        };
        let (from, to) = (with(self.shape().get(d)), with(index.shape().get(d)));
        let n = from.get(d).copied().unwrap_or(1);
        let index = index.lt(0i64).where_(&index.add(n), index);
        self.expand(&from).gather(dim, &index.expand(&to))
    }

    /// Writes elements of `source` along `dim` (`torch.Tensor.scatter_`): `x[index[i][j]][j] =
    /// source[i][j]` for `dim` 0 of a matrix. Where an element is named twice, the last stays.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::zeros([3], Dtype::I64);
    /// let y = x.scatter_(0, &Tensor::from([2i64, 0]), &Tensor::from([5i64, 6]));
    /// assert_eq!(y.to_vec::<i64>(), [6, 0, 5]);
    /// ```
    ///
    /// # Panics
    /// Throws when shapes or types do not fit, or the index is out of range.
    #[track_caller]
    pub fn scatter_(&self, dim: i64, index: &Tensor, source: &Tensor) -> &Tensor {
        let d = self.normalize_dim("scatter_", dim);
        let index = check("scatter_", self, d, index, Some(source));
        if self.is_complex() && self.dim() > 0 {
            let (index, source) = (of_pairs(&index), source.view_as_real());
            self.view_as_real().scatter_(d as i64, &index, &source);
            return self;
        }
        let _scope = Scope::enter(|| "scatter_");
        self.assert_inplace_legal("scatter_");
        if let Some(gpu) = gpu::of("scatter_", &[self, &index, source]) {
            cuda::scatter(gpu, &self.detach(), d, &index, &source.detach());
        } else {
            let dense = source.detach().contiguous();
            let places = Places::new(&index, d, self.shape(), source.shape());
            self.change_dense(|x| {
                dispatch!(self.dtype(), T => {
                    let (to, from) = (x.data_ptr().cast::<T>(), dense.data_ptr().cast::<T>());
                    // SAFETY: indices are in range; one thread.
                    places.each(0..places.rows(), |p, q| unsafe { to.add(p).write(from.add(q).read()) });
                });
            });
        }
        record_inplace("scatter_", self, &[self, source], |saver| {
            let (index, shape) = (saver.save(&index), source.layout().shape.clone());
            move |ctx| {
                let (g, index) = (ctx.grad(0), ctx.get(&index));
                let own = ctx.needs(0).then(|| g.scatter_value(d as i64, &index, 0.0));
                smallvec![own, ctx.needs(1).then(|| in_corner(g.gather(d as i64, &index), &shape))]
            }
        });
        self
    }

    /// [`scatter_`](Self::scatter_) to a copy (`torch.scatter`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (x, index) = (Tensor::from([[1i64, 2], [3, 4]]), Tensor::from([[1i64, 0]]));
    /// assert_eq!(x.scatter(0, &index, &Tensor::from([[8i64, 9]])).to_vec::<i64>(), [1, 9, 8, 4]);
    /// ```
    #[track_caller]
    pub fn scatter(&self, dim: i64, index: &Tensor, source: &Tensor) -> Tensor {
        let out = self.clone_contiguous();
        out.scatter_(dim, index, source);
        out
    }

    /// Writes one number at the places that `index` names along `dim` (`torch.Tensor.scatter_` with a
    /// number).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::zeros([2, 3], Dtype::F32);
    /// let y = x.scatter_value_(1, &Tensor::from([[2i64], [0]]), 1.0);
    /// assert_eq!(y.to_vec::<f32>(), [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    /// ```
    ///
    /// # Panics
    /// Throws when the index does not fit the tensor or is out of range.
    #[track_caller]
    pub fn scatter_value_(&self, dim: i64, index: &Tensor, value: impl Into<Scalar>) -> &Tensor {
        let d = self.normalize_dim("scatter_value_", dim);
        let index = check("scatter_value_", self, d, index, None);
        if self.is_complex() {
            self.real().scatter_value_(d as i64, &index, value);
            self.imag().scatter_value_(d as i64, &index, 0i64);
            return self;
        }
        let _scope = Scope::enter(|| "scatter_value_");
        self.assert_inplace_legal("scatter_value_");
        let value = value.into();
        if let Some(gpu) = gpu::of("scatter_value_", &[self, &index]) {
            cuda::scatter_value(gpu, &self.detach(), d, &index, value);
        } else {
            let places = Places::new(&index, d, self.shape(), index.shape());
            self.change_dense(|x| {
                dispatch!(self.dtype(), T => {
                    let v = match value { Scalar::F(v) => T::from_f64(v), other => T::from_i64(other.to_i64()) };
                    let to = x.data_ptr().cast::<T>();
                    // SAFETY: indices are in range; one thread.
                    places.each(0..places.rows(), |p, _| unsafe { to.add(p).write(v) });
                });
            });
        }
        record_inplace("scatter_value_", self, &[self], |saver| {
            let index = saver.save(&index);
            move |ctx| smallvec![Some(ctx.grad(0).scatter_value(d as i64, &ctx.get(&index), 0.0))]
        });
        self
    }

    /// [`scatter_value_`](Self::scatter_value_) to a copy.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2, 3]);
    /// assert_eq!(x.scatter_value(0, &Tensor::from([1i64]), -7).to_vec::<i64>(), [1, -7, 3]);
    /// ```
    #[track_caller]
    pub fn scatter_value(&self, dim: i64, index: &Tensor, value: impl Into<Scalar>) -> Tensor {
        let out = self.clone_contiguous();
        out.scatter_value_(dim, index, value);
        out
    }

    /// Adds elements of `source` at the places that `index` names along `dim`
    /// (`torch.Tensor.scatter_add_`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::zeros([2], Dtype::F32);
    /// let y = x.scatter_add_(0, &Tensor::from([1i64, 0, 1]), &Tensor::from([1f32, 2., 4.]));
    /// assert_eq!(y.to_vec::<f32>(), [2.0, 5.0]);
    /// ```
    ///
    /// # Panics
    /// Throws when shapes or types do not fit, or the index is out of range.
    #[track_caller]
    pub fn scatter_add_(&self, dim: i64, index: &Tensor, source: &Tensor) -> &Tensor {
        let d = self.normalize_dim("scatter_add_", dim);
        let index = check("scatter_add_", self, d, index, Some(source));
        if self.is_complex() && self.dim() > 0 {
            let (index, source) = (of_pairs(&index), source.view_as_real());
            self.view_as_real().scatter_add_(d as i64, &index, &source);
            return self;
        }
        let _scope = Scope::enter(|| "scatter_add_");
        self.assert_inplace_legal("scatter_add_");
        if let Some(gpu) = gpu::of("scatter_add_", &[self, &index, source]) {
            cuda::scatter_add(gpu, &self.detach(), d, &index, &source.detach());
        } else {
            let dense = source.detach().contiguous();
            let places = Places::new(&index, d, self.shape(), source.shape());
            self.change_dense(|x| {
                dispatch!(self.dtype(), T => {
                    let (to, from) = (x.data_ptr().cast::<T>(), dense.data_ptr().cast::<T>());
                    // SAFETY: indices are in range; one thread.
                    places.each(0..places.rows(), |p, q| unsafe { *to.add(p) = (*to.add(p)).plus(*from.add(q)) });
                });
            });
        }
        record_inplace("scatter_add_", self, &[self, source], |saver| {
            let (index, shape) = (saver.save(&index), source.layout().shape.clone());
            move |ctx| {
                let g = ctx.grad(0);
                let source =
                    ctx.needs(1).then(|| in_corner(g.gather(d as i64, &ctx.get(&index)), &shape));
                smallvec![Some(g), source]
            }
        });
        self
    }

    /// [`scatter_add_`](Self::scatter_add_) to a copy (`torch.scatter_add`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([10i64, 20]);
    /// let y = x.scatter_add(0, &Tensor::from([1i64, 1]), &Tensor::from([1i64, 2]));
    /// assert_eq!(y.to_vec::<i64>(), [10, 23]);
    /// ```
    #[track_caller]
    pub fn scatter_add(&self, dim: i64, index: &Tensor, source: &Tensor) -> Tensor {
        cast_op!("scatter_add", [x = self, s = source] => x.scatter_add(dim, index, &s));
        let out = self.clone_contiguous();
        out.scatter_add_(dim, index, source);
        out
    }

    /// One row per class index: 0 but for a 1 at the index (`torch.nn.functional.one_hot`). i64.
    /// Without a number of classes, the largest index is the last one.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([2i64, 0]);
    /// assert_eq!(x.one_hot(None).to_vec::<i64>(), [0, 0, 1, 1, 0, 0]);
    /// assert_eq!(x.one_hot(5).shape(), &[2, 5]);
    /// ```
    ///
    /// # Panics
    /// Throws when an index is negative or not below `num_classes`, or when there are neither indices
    /// nor a number of classes.
    #[track_caller]
    pub fn one_hot(&self, num_classes: impl Into<Option<usize>>) -> Tensor {
        if self.dtype() != Dtype::I64 {
            throw(Error::dtype("one_hot", format!("takes indices of i64, got {}", self.dtype())));
        }
        let num_classes = match num_classes.into() {
            Some(n) => n,
            None if self.device().is_meta() => {
                let what = "missing, and an index on meta has no values that tell it";
                throw(Error::argument("one_hot", "num_classes", what))
            }
            None if self.numel() > 0 => (self.max().item_i64() + 1).max(0) as usize,
            None => {
                throw(Error::argument("one_hot", "num_classes", "missing, and no index tells it"))
            }
        };
        let index = checked_index("one_hot", self, num_classes);
        let mut shape = self.layout().shape.clone();
        shape.push(num_classes);
        let out = Tensor::zeros(&shape, (Dtype::I64, index.device()));
        in_name_of("one_hot", "index", || {
            out.scatter_value_(-1, &index.unsqueeze(-1), 1i64);
        });
        out
    }
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let index = || Tensor::from([[0i64, 2, 1, 2], [1, 1, 0, 0]]);
    let x = || vec![values([3, 4], 2)];
    let two = || vec![values([3, 4], 2), values([2, 5], 3)];
    vec![
        OpSample::new("gather(0)", x(), move |x| x[0].gather(0, &index().to_device(x[0].device()))),
        OpSample::new("gather(1)", x(), |x| {
            x[0].gather(1, &Tensor::from([[3i64, 3, 0], [1, 0, 0]]).to_device(x[0].device()))
        }),
        OpSample::new("gather, 0-dim", [values([], 2)], |x| {
            x[0].gather(0, &Tensor::scalar(0i64).to_device(x[0].device()))
        }),
        OpSample::new("take_along_dim", x(), |x| {
            x[0].take_along_dim(&Tensor::from([[1i64], [0], [3]]).to_device(x[0].device()), 1)
        }),
        OpSample::new("scatter(0)", two(), |x| {
            // Distinct places: with repeated ones the gradient of the overwritten is a convention.
            let index = Tensor::from([[0i64, 2, 1, 2], [1, 1, 0, 0]]).to_device(x[0].device());
            x[0].scatter(0, &index, &x[1])
        }),
        OpSample::new("scatter_value(1)", x(), |x| {
            x[0].scatter_value(1, &Tensor::from([[3i64], [0], [1]]).to_device(x[0].device()), 7.5)
        }),
        OpSample::new("scatter_add(0)", two(), move |x| {
            x[0].scatter_add(0, &index().to_device(x[0].device()), &x[1])
        }),
        OpSample::new("scatter_add_ of a view", two(), |x| {
            let out = x[0].clone_contiguous();
            let index = Tensor::from([[0i64, 1, 1], [3, 3, 3]]).to_device(x[0].device());
            out.t().scatter_add_(0, &index, &x[1]);
            out
        }),
        OpSample::new("one_hot", [Tensor::from([2i64, 0])], |x| x[0].one_hot(3)).order(Order::None),
    ]
}

#[cfg(test)]
mod tests {
    use crate::error::catch;
    use crate::tensor::{Dtype, Tensor};

    #[test]
    fn rows_of_every_length_are_picked_and_checked() {
        for n in [1i64, 15, 16, 17, 48, 100] {
            let x = Tensor::arange(0, 3 * n, 1, Dtype::F32).reshape_to(&[3, n as usize]);
            let index = Tensor::arange(n - 1, -1, -1, Dtype::I64).unsqueeze(0).repeat(&[3, 1]);
            let y = x.gather(1, &index).to_vec::<f32>();
            let backwards = (0..3).flat_map(|row| (0..n).rev().map(move |i| (row * n + i) as f32));
            assert!(y.into_iter().eq(backwards), "{n}");
            for wrong in [-1, n] {
                let last = Tensor::full([3, 1], wrong, Dtype::I64);
                let index = Tensor::cat(&[&index.narrow(1, 0, n as usize - 1), &last], 1);
                let error = catch(|| x.gather(1, &index)).unwrap_err().to_string();
                assert!(error.contains(&format!("{wrong} at position {}", n - 1)), "{error}");
            }
        }
    }
}
