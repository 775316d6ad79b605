//! Sorting along a dimension: sort, argsort, topk. Stable: equal elements keep their order (topk
//! takes the first of them). NaN counts as the largest. The gradient goes back to the places that
//! the elements came from.
//!
//! An element is mapped to an unsigned integer with the same order, next to its index: such pairs are
//! all different, so the fastest unstable sort of them is stable.

pub(in crate::ops) mod cuda;

use smallvec::smallvec;

use super::select_backward;
use crate::amp::cast_op;
use crate::autograd::record;
use crate::cpu::{folds::fold::SharedMut, threads::GRAIN, threads::parallel_for};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, Order, values};
use crate::ops::{gpu, limits, shape::around::around};
use crate::profiler;
use crate::tensor::{Dtype, Operand, Tensor};

/// An element and its place in one number that sorts by element, then by place.
trait Key: Copy + Ord + Send + Sync {
    fn place(self) -> usize;
}

impl Key for u64 {
    #[inline(always)]
    fn place(self) -> usize {
        self as u32 as usize
    }
}

impl Key for (u64, u32) {
    #[inline(always)]
    fn place(self) -> usize {
        self.1 as usize
    }
}

/// An unsigned integer with the order of f32: 0.0 and -0.0 alike, NaN above all.
#[inline(always)]
fn order32(x: f32) -> u32 {
    let bits = (if x == 0.0 { 0.0 } else { x }).to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    if x.is_nan() { u32::MAX } else { ordered }
}

#[inline(always)]
fn order64(x: f64) -> u64 {
    let bits = (if x == 0.0 { 0.0 } else { x }).to_bits();
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    if x.is_nan() { u64::MAX } else { ordered }
}

/// For each of the lines of a dense `[outer, n, inner]` array, the places of its `k` first elements
/// in order, written to `places` of shape `[outer, k, inner]`. `key(at, i)` is the key of the element
/// at `at`, which is number `i` of its line.
fn order_lines<K: Key>(
    [outer, n, inner]: [usize; 3],
    k: usize,
    places: SharedMut<i64>,
    key: &(dyn Fn(usize, u32) -> K + Sync),
) {
    parallel_for(outer * inner, GRAIN / (8 * n).max(1), |lines| {
        let mut keys: Vec<K> = Vec::with_capacity(n);
        for line in lines {
            let (o, j) = (line / inner, line % inner);
            keys.clear();
            keys.extend((0..n).map(|i| key((o * n + i) * inner + j, i as u32)));
            if k < n {
                keys.select_nth_unstable(k);
            }
            keys[..k].sort_unstable();
            for (i, key) in keys[..k].iter().enumerate() {
                // SAFETY: a place of this line's, inside [outer, k, inner].
                unsafe { places.at((o * k + i) * inner + j).write(key.place() as i64) };
            }
        }
    });
}

/// The places of the `k` first elements along dimension `d`, in order.
#[track_caller]
fn order_of(op: &'static str, x: &Tensor, d: usize, descending: bool, k: usize) -> Tensor {
    let _span = profiler::op(op);
    let dtype = crate::tensor::dtype::widest(op, x.dtype());
    let mut shape = x.layout().shape.clone();
    if let Some(n) = shape.get_mut(d) {
        *n = k;
    }
    let out = Tensor::empty(&shape, (Dtype::I64, x.device()));
    let sizes = around(x.shape(), d);
    if sizes[1] > u32::MAX as usize {
        throw(Error::shape(op, format!("more than 2^32 elements along dimension {d}")));
    }
    if let Some(gpu) = gpu::of(op, &[x]) {
        cuda::order(gpu, x, d, descending, k, &out);
        return out;
    }
    let x = x.detach().to_dtype(dtype).contiguous();
    let places = SharedMut(out.data_ptr().cast::<i64>());
    let (flip32, flip64) = if descending { (u32::MAX, u64::MAX) } else { (0, 0) };
    // SAFETY: contiguous and of the type matched on; nobody writes to it.
    unsafe {
        match dtype {
            Dtype::F32 => {
                let x = x.as_slice::<f32>();
                let key = |at, i| ((order32(x[at]) ^ flip32) as u64) << 32 | i as u64;
                order_lines(sizes, k, places, &key);
            }
            Dtype::F64 => {
                let x = x.as_slice::<f64>();
                order_lines(sizes, k, places, &|at, i| (order64(x[at]) ^ flip64, i));
            }
            _ => {
                let x = x.as_slice::<i64>();
                order_lines(sizes, k, places, &|at, i| ((x[at] as u64 ^ 1 << 63) ^ flip64, i));
            }
        }
    }
    out
}

/// The elements at `places` along `d`; their gradient goes back there.
#[track_caller]
fn at_places(op: &'static str, x: &Tensor, d: usize, places: &Tensor) -> Tensor {
    let out = match gpu::of(op, &[x]) {
        Some(gpu) => cuda::take(gpu, x, d, places),
        None => x.detach().gather(d as i64, places),
    };
    record(op, &[x], out, |saver| {
        let (places, shape) = (saver.save(places), x.layout().shape.clone());
        move |ctx| {
            let (g, places) = (ctx.grad(0), ctx.get(&places));
            smallvec![Some(match gpu::of(op, &[&g]) {
                Some(gpu) if !ctx.create_graph() => cuda::put_back(gpu, &g, d, &places, &shape),
                _ => select_backward(&g, &places, &shape, d, true),
            })]
        }
    })
}

impl Tensor {
    /// Elements in order along `dim`, and where they were (`torch.sort`, stable).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (values, places) = Tensor::from([3i64, 1, 2]).sort(0, false);
    /// assert_eq!((values.to_vec::<i64>(), places.to_vec::<i64>()), (vec![1, 2, 3], vec![1, 2, 0]));
    /// ```
    ///
    /// # Panics
    /// Throws when the dimension is out of range.
    #[track_caller]
    pub fn sort(&self, dim: i64, descending: bool) -> (Tensor, Tensor) {
        let d = self.normalize_dim("sort", dim);
        let n = self.shape().get(d).copied().unwrap_or(1);
        let places = order_of("sort", self, d, descending, n);
        (at_places("sort", self, d, &places), places)
    }

    /// The places of the elements in order along `dim` (`torch.argsort`, stable).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([3i64, 1, 2]).argsort(0, true).to_vec::<i64>(), [0, 2, 1]);
    /// ```
    ///
    /// # Panics
    /// Throws when the dimension is out of range.
    #[track_caller]
    pub fn argsort(&self, dim: i64, descending: bool) -> Tensor {
        let d = self.normalize_dim("argsort", dim);
        order_of("argsort", self, d, descending, self.shape().get(d).copied().unwrap_or(1))
    }

    /// The `k` largest (or smallest) elements along `dim` in order, and where they are
    /// (`torch.topk`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (values, places) = Tensor::from([3i64, 1, 5, 2]).topk(2, 0, true);
    /// assert_eq!((values.to_vec::<i64>(), places.to_vec::<i64>()), (vec![5, 3], vec![2, 0]));
    /// ```
    ///
    /// # Panics
    /// Throws when the dimension is out of range or has fewer than `k` elements.
    #[track_caller]
    pub fn topk(&self, k: usize, dim: i64, largest: bool) -> (Tensor, Tensor) {
        let d = self.normalize_dim("topk", dim);
        let n = self.shape().get(d).copied().unwrap_or(1);
        if k > n || (k == 0 && self.dim() == 0) {
            throw(Error::argument(
                "topk",
                "k",
                format!("{k} elements of a dimension of {n} (dimension {d} of {:?})", self.shape()),
            ));
        }
        let places = order_of("topk", self, d, largest, k);
        (at_places("topk", self, d, &places), places)
    }
}

impl Tensor {
    /// Rows in order along dimension 0, each column by itself (`torch.msort`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[3i64, 1], [2, 4]]).msort().to_vec::<i64>(), [2, 1, 3, 4]);
    /// ```
    #[track_caller]
    pub fn msort(&self) -> Tensor {
        self.sort(0, false).0
    }

    /// The `k`-th smallest elements along `dim`, counted from 1, and where they are
    /// (`torch.kthvalue`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (value, place) = Tensor::from([3i64, 1, 5, 2]).kthvalue(2, 0, false);
    /// assert_eq!((value.item(), place.item()), (2.0, 3.0));
    /// ```
    ///
    /// # Panics
    /// Throws when the dimension is out of range or has fewer than `k` elements, or `k` is 0.
    #[track_caller]
    pub fn kthvalue(&self, k: usize, dim: i64, keepdim: bool) -> (Tensor, Tensor) {
        let d = self.normalize_dim("kthvalue", dim);
        let n = self.shape().get(d).copied().unwrap_or(1);
        if k == 0 || k > n {
            throw(Error::argument(
                "kthvalue",
                "k",
                format!("{k} of the {n} elements of dimension {d} of {:?}", self.shape()),
            ));
        }
        if let Some(gpu) = gpu::of("kthvalue", &[self])
            && let Some(place) = cuda::place_of_rank(gpu, self, d, cuda::Rank::Number(k - 1))
        {
            return pick("kthvalue", self, d, &place, keepdim);
        }
        let places = order_of("kthvalue", self, d, false, k);
        if self.dim() == 0 {
            return (at_places("kthvalue", self, d, &places), places);
        }
        pick("kthvalue", self, d, &places.narrow(d as i64, k - 1, 1), keepdim)
    }

    /// The middle elements along `dim` (of two, the smaller; NaN if there is one) and where they are
    /// (`torch.median`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (values, places) = Tensor::from([[3i64, 1, 2], [7, 9, 8]]).median_dim(1, false);
    /// assert_eq!((values.to_vec::<i64>(), places.to_vec::<i64>()), (vec![2, 8], vec![2, 2]));
    /// ```
    ///
    /// # Panics
    /// Throws when the dimension is out of range or has no elements.
    #[track_caller]
    pub fn median_dim(&self, dim: i64, keepdim: bool) -> (Tensor, Tensor) {
        middle("median", self, dim, keepdim, false)
    }

    /// The middle elements along `dim` of those that are not NaN (`torch.nanmedian`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (value, place) = Tensor::from([f32::NAN, 1., 7., 2.]).nanmedian_dim(0, false);
    /// assert_eq!((value.item(), place.item()), (2.0, 3.0));
    /// ```
    ///
    /// # Panics
    /// Throws when the dimension is out of range or has no elements.
    #[track_caller]
    pub fn nanmedian_dim(&self, dim: i64, keepdim: bool) -> (Tensor, Tensor) {
        middle("nanmedian", self, dim, keepdim, true)
    }

    /// The middle element (of two, the smaller), NaN if there is one or no element
    /// (`torch.median`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([4i64, 1, 3, 2]).median().item(), 2.0);
    /// assert!(Tensor::from([1f32, f32::NAN]).median().item().is_nan());
    /// ```
    #[track_caller]
    pub fn median(&self) -> Tensor {
        if self.numel() == 0 {
            return Tensor::full([], f64::NAN, (self.dtype(), self.device()));
        }
        self.ravel().median_dim(0, false).0
    }

    /// The middle element of those that are not NaN (`torch.nanmedian`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([f32::NAN, 1., 7., 2.]).nanmedian().item(), 2.0);
    /// ```
    #[track_caller]
    pub fn nanmedian(&self) -> Tensor {
        if self.numel() == 0 {
            return Tensor::full([], f64::NAN, (self.dtype(), self.device()));
        }
        self.ravel().nanmedian_dim(0, false).0
    }

    /// The most frequent elements along `dim` (the smallest of equally frequent ones), and where the
    /// last of them is (`torch.mode`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (value, place) = Tensor::from([3i64, 1, 3, 1, 2]).mode(0, false);
    /// assert_eq!((value.item(), place.item()), (1.0, 3.0));
    /// ```
    ///
    /// # Panics
    /// Throws when the dimension is out of range or has no elements.
    #[track_caller]
    pub fn mode(&self, dim: i64, keepdim: bool) -> (Tensor, Tensor) {
        let d = self.normalize_dim("mode", dim);
        if self.dim() == 0 {
            return self.median_dim(dim, keepdim);
        }
        let n = self.shape()[d];
        if n == 0 {
            throw(Error::shape("mode", format!("of no elements along {d} of {:?}", self.shape())));
        }
        let (sorted, places) = self.detach().sort(d as i64, false);
        let (sorted, places) = (sorted.movedim(d as i64, -1), places.movedim(d as i64, -1));
        let changes = sorted.narrow(-1, 1, n - 1).ne(&sorted.narrow(-1, 0, n - 1));
        if self.device().is_apart() {
            let chosen = places.gather(-1, &end_of_longest_run(&changes)).movedim(-1, d as i64);
            return pick("mode", self, d, &chosen, keepdim);
        }
        let (changes, order) = (changes.to_vec::<bool>(), places.to_vec::<i64>());
        let mut chosen = Vec::with_capacity(order.len() / n);
        for (row, order) in order.chunks(n).enumerate() {
            let changed = |i: usize| changes[row * (n - 1) + i - 1];
            let (mut start, mut longest, mut last) = (0, 0, 0);
            for end in 1..=n {
                if end == n || changed(end) {
                    if end - start > longest {
                        (longest, last) = (end - start, order[end - 1]);
                    }
                    start = end;
                }
            }
            chosen.push(last);
        }
        let mut shape = self.layout().shape.clone();
        shape.remove(d);
        let chosen = Tensor::from_slice(&chosen, &shape).unsqueeze(d as i64);
        pick("mode", self, d, &chosen, keepdim)
    }
}

/// The elements at `places`, which has size 1 along `d`, and `places`.
fn pick(
    op: &'static str,
    x: &Tensor,
    d: usize,
    places: &Tensor,
    keepdim: bool,
) -> (Tensor, Tensor) {
    let values = at_places(op, x, d, &places.contiguous());
    if keepdim {
        (values, places.contiguous())
    } else {
        (values.squeeze_dim(d as i64), places.squeeze_dim(d as i64).contiguous())
    }
}

/// Of rows, in which elements (but the first) are marked that differ from the one before, where the longest run of
/// equal ones ends; of equally long ones the first.
fn end_of_longest_run(changes: &Tensor) -> Tensor {
    let mut shape = changes.layout().shape.clone();
    let last = shape.len() - 1;
    shape[last] += 1;
    let places = Tensor::arange(0, shape[last] as i64, 1, (Dtype::I64, changes.device()));
    // Where each element's run begins.
    let starts = changes.where_(&places.narrow(0, 1, shape[last] - 1), 0i64);
    let first = starts.narrow(-1, 0, 1.min(shape[last] - 1)).zeros_like();
    let starts = match shape[last] {
        1 => Tensor::zeros(&shape, (Dtype::I64, changes.device())),
        _ => Tensor::cat(&[first, starts], -1).cummax(-1).0,
    };
    (places - starts).argmax_dim(-1, true)
}

#[track_caller]
fn middle(
    op: &'static str,
    x: &Tensor,
    dim: i64,
    keepdim: bool,
    ignore_nan: bool,
) -> (Tensor, Tensor) {
    let d = x.normalize_dim(op, dim);
    if x.dim() == 0 {
        return (x.clone_contiguous(), Tensor::zeros([], (Dtype::I64, x.device())));
    }
    let n = x.shape()[d];
    if n == 0 {
        throw(Error::shape(op, format!("of no elements along {d} of {:?}", x.shape())));
    }
    if let Some(gpu) = gpu::of(op, &[x]) {
        let rank = if ignore_nan { cuda::Rank::NumbersMiddle } else { cuda::Rank::Middle };
        if let Some(place) = cuda::place_of_rank(gpu, x, d, rank) {
            return pick(op, x, d, &place, keepdim);
        }
    }
    let order = order_of(op, x, d, false, n);
    // NaN is sorted to the end: `valid` elements come before.
    let valid = x.detach().isnan().logical_not().sum_dim(&[d as i64], true);
    let place = if ignore_nan {
        (valid - 1i64).maximum(0i64).floor_divide(2i64)
    } else {
        let middle = valid.full_like((n as i64 - 1) / 2);
        valid.eq(n as i64).where_(&middle, &valid)
    };
    pick(op, x, d, &order.gather(d as i64, &place), keepdim)
}

/// How [`Tensor::quantile_dim`] goes between two elements.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::Interpolation;
/// let x = Tensor::from([1f64, 2.]);
/// let of = |interpolation| x.quantile_dim(0.25, 0, false, interpolation).item();
/// assert_eq!((of(Interpolation::Linear), of(Interpolation::Midpoint)), (1.25, 1.5));
/// assert_eq!((of(Interpolation::Higher), of(Interpolation::Nearest)), (2.0, 1.0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interpolation {
    /// By the distance to each.
    #[default]
    Linear,
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
    /// Halfway.
    Midpoint,
    /// The nearer one; halfway, the one of even place.
    Nearest,
}

impl Tensor {
    /// The values below which the parts `q` (a number or a list, from 0 to 1) of the elements lie, between two of them by
    /// the distance to each (`torch.quantile`). NaN where there is one.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f32, 2.], [3., 5.]]);
    /// assert_eq!(x.quantile(0.5).item(), 2.5);
    /// ```
    ///
    /// # Panics
    /// Throws for types other than f32 and f64, and when `q` is of another type, has more than one
    /// dimension or leaves 0 to 1, and when there are no elements.
    #[track_caller]
    pub fn quantile<'a>(&self, q: impl Into<Operand<'a>>) -> Tensor {
        let q = q.into();
        cast_op!("quantile", [x = self] => x.quantile(q));
        quantile("quantile", false, &self.ravel(), q, 0, false, Interpolation::Linear)
    }

    /// [`quantile`](Self::quantile) of the elements along `dim`; a list's dimension comes first (`torch.quantile` with
    /// `dim`).
    ///
    /// ```
    /// use torchrs::{Tensor, ops::Interpolation};
    /// let x = Tensor::from([[1f32, 2.], [3., 5.]]);
    /// assert_eq!(x.quantile_dim(0.5, 1, false, Interpolation::Lower).to_vec::<f32>(), [1.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// As `quantile`, and when there is no such dimension.
    #[track_caller]
    pub fn quantile_dim<'a>(
        &self,
        q: impl Into<Operand<'a>>,
        dim: i64,
        keepdim: bool,
        interpolation: Interpolation,
    ) -> Tensor {
        let q = q.into();
        cast_op!("quantile", [x = self] => x.quantile_dim(q, dim, keepdim, interpolation));
        quantile("quantile", false, self, q, dim, keepdim, interpolation)
    }

    /// [`quantile`](Self::quantile) of the elements that are not NaN (`torch.nanquantile`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([1f64, f64::NAN, 3.]).nanquantile(0.5).item(), 2.0);
    /// ```
    ///
    /// # Panics
    /// As [`quantile`](Self::quantile).
    #[track_caller]
    pub fn nanquantile<'a>(&self, q: impl Into<Operand<'a>>) -> Tensor {
        let q = q.into();
        cast_op!("nanquantile", [x = self] => x.nanquantile(q));
        quantile("nanquantile", true, &self.ravel(), q, 0, false, Interpolation::Linear)
    }

    /// [`quantile_dim`](Self::quantile_dim) of the elements that are not NaN (`torch.nanquantile` with `dim`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f64, f64::NAN, 3.], [4., 5., 6.]]);
    /// assert_eq!(x.nanquantile_dim(0.5, 1, false, Default::default()).to_vec::<f64>(), [2.0, 5.0]);
    /// ```
    ///
    /// # Panics
    /// As [`quantile_dim`](Self::quantile_dim).
    #[track_caller]
    pub fn nanquantile_dim<'a>(
        &self,
        q: impl Into<Operand<'a>>,
        dim: i64,
        keepdim: bool,
        interpolation: Interpolation,
    ) -> Tensor {
        let q = q.into();
        cast_op!("nanquantile", [x = self] => x.nanquantile_dim(q, dim, keepdim, interpolation));
        quantile("nanquantile", true, self, q, dim, keepdim, interpolation)
    }
}

#[track_caller]
fn quantile(
    op: &str,
    ignore_nan: bool,
    x: &Tensor,
    q: Operand<'_>,
    dim: i64,
    keepdim: bool,
    interpolation: Interpolation,
) -> Tensor {
    let given = matches!(q, Operand::Tensor(_));
    let q = match q {
        Operand::Tensor(q) => q.clone(),
        Operand::Scalar(number) => {
            // Known here: on a GPU its tensor is looked at too late for an error of this call alone.
            limits::assert_probabilities(op, "q", &Tensor::scalar(number));
            Tensor::full([], number, (x.dtype(), x.device()))
        }
    };
    if !matches!(x.dtype(), Dtype::F32 | Dtype::F64) || q.dtype() != x.dtype() || q.dim() > 1 {
        throw(Error::dtype(
            op,
            format!(
                "takes f32 or f64 and a number or list of the same, got {} and {} {:?}",
                x.dtype(),
                q.dtype(),
                q.shape()
            ),
        ));
    }
    if given {
        limits::assert_probabilities(op, "q", &q);
    }
    let d = x.normalize_dim(op, dim);
    if x.numel() == 0 {
        throw(Error::shape(op, format!("of no elements, shape {:?}", x.shape())));
    }
    let keepdim = keepdim && x.dim() > 0;
    let x = if x.dim() == 0 { x.unsqueeze(0) } else { x.clone() };
    let sorted = x.movedim(d as i64, -1).sort(-1, false).0;
    let nan = sorted.detach().isnan();
    let n = sorted.size(-1) as i64;
    let valid = nan.logical_not().sum_dim(&[-1], true);
    let last = if ignore_nan { valid } else { valid.full_like(n) } - 1i64;
    let place = &last.maximum(0i64).to_dtype(x.dtype()) * &q.ravel();
    let place = match interpolation {
        Interpolation::Lower => place.floor(),
        Interpolation::Higher => place.ceil(),
        Interpolation::Nearest => place.round(),
        _ => place,
    };
    // NaN is sorted behind all numbers: the last element is the result where there is one.
    let place = match ignore_nan {
        true => place,
        false => place.masked_fill(&nan.any_dim(&[-1], true), n - 1),
    };
    let low = place.floor();
    let weight = match interpolation {
        Interpolation::Midpoint => place.ne(&low).to_dtype(x.dtype()) * 0.5,
        _ => &place - &low,
    };
    let at = |place: Tensor| sorted.gather(-1, &place.to_dtype(Dtype::I64));
    let out = at(low).lerp(&at(place.ceil()), &weight);
    // `[.., q]` to `[q, ..]`, with the reduced dimension back in its place.
    let out = out.movedim(-1, 0);
    let out = if keepdim { out.unsqueeze(d as i64 + 1) } else { out };
    if q.dim() == 0 { out.squeeze_dim(0) } else { out }
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let x = || vec![values([3, 4, 2], 5)];
    let ties = || vec![Tensor::from([[1f64, f64::NAN, -0.0, 1.0, 0.0]])];
    vec![
        OpSample::new("sort(1)", x(), |x| x[0].sort(1, false).0),
        OpSample::new("sort(-1, descending)", x(), |x| x[0].sort(-1, true).0),
        OpSample::new("sort, 0-dim", [values([], 1)], |x| x[0].sort(0, false).0),
        OpSample::new("argsort, ties", ties(), |x| x[0].argsort(1, false)).order(Order::None),
        OpSample::new("argsort(descending), ties", ties(), |x| x[0].argsort(1, true))
            .order(Order::None),
        OpSample::new("topk(2, 1)", x(), |x| x[0].topk(2, 1, true).0),
        OpSample::new("topk(1, 0), smallest", x(), |x| x[0].topk(1, 0, false).0),
        OpSample::new("kthvalue(2, 1)", x(), |x| x[0].kthvalue(2, 1, true).0),
        OpSample::new("median(1)", x(), |x| x[0].median_dim(1, false).0),
        OpSample::new("mode(0)", x(), |x| x[0].mode(0, false).0),
        OpSample::new("quantile", x(), |x| {
            let q = Tensor::from([0.1, 0.6]).to_device(x[0].device()).to_dtype(x[0].dtype());
            x[0].quantile_dim(&q, 1, true, Interpolation::Linear)
        })
        .no_half(),
        OpSample::new("sort, i64", [Tensor::from([3i64, i64::MIN, -1])], |x| x[0].sort(0, false).0),
    ]
}
