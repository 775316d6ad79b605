//! `scatter_reduce`: elements of a source are put together with those of a tensor at the places that
//! an index names along one dimension, by a sum, mean, product or extreme. Sum and mean are
//! `scatter_add`; the others have a loop here.
//!
//! Gradients of the extremes are shared evenly by all that equal the result. Those of a product are
//! the product of the others: result / element, where a lone zero is treated apart.
use smallvec::smallvec;

use super::cuda;
use super::gather::{Places, check};
use crate::autograd::record;
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::gpu;
use crate::tensor::{Dtype, Element, Operand, Scalar, Tensor};

use super::reduction::ScatterReduce;
use ScatterReduce::{Amax, Amin, Mean, Prod, Sum};

/// The number that changes nothing.
fn neutral(reduce: ScatterReduce, dtype: Dtype) -> Scalar {
    let float = dtype.is_floating_point();
    match reduce {
        Sum | Mean => Scalar::I(0),
        Prod => Scalar::I(1),
        Amax if float => Scalar::F(f64::NEG_INFINITY),
        Amin if float => Scalar::F(f64::INFINITY),
        Amax => Scalar::I(i64::MIN),
        Amin => Scalar::I(i64::MAX),
    }
}

/// `out[p'] = f(out[p'], source[p])` in place; both dense and of type T.
fn combine<T: Element>(out: &Tensor, d: usize, index: &Tensor, source: &Tensor, f: fn(T, T) -> T) {
    let places = Places::new(index, d, out.shape(), source.shape());
    let (to, from) = (out.data_ptr().cast::<T>(), source.data_ptr().cast::<T>());
    // SAFETY: indices are in range; one thread.
    places.each(0..places.rows(), |p, q| unsafe { *to.add(p) = f(*to.add(p), *from.add(q)) });
}

/// The larger, NaN if one is.
fn larger<T: PartialOrd>(a: T, b: T) -> T {
    if b > a || b.partial_cmp(&b).is_none() { b } else { a }
}

/// The smaller, NaN if one is.
fn smaller<T: PartialOrd>(a: T, b: T) -> T {
    if b < a || b.partial_cmp(&b).is_none() { b } else { a }
}

/// Product or extreme, not recorded. `index` is checked, and `source` has its shape.
fn reduced(
    x: &Tensor,
    d: usize,
    index: &Tensor,
    source: &Tensor,
    reduce: ScatterReduce,
    include_self: bool,
) -> Tensor {
    let wide = crate::tensor::dtype::widest("scatter_reduce", x.dtype());
    let out = Tensor::empty(x.shape(), (wide, x.device()));
    out.copy_(&x.detach());
    if !include_self {
        out.scatter_value_(d as i64, index, neutral(reduce, wide));
    }
    let source = source.detach().to_dtype(wide).contiguous();
    if let Some(gpu) = gpu::of("scatter_reduce", &[x, index, &source]) {
        cuda::scatter_with(gpu, &out, d, index, &source, reduce);
        return out.to_dtype(x.dtype());
    }
    match (wide, reduce) {
        (Dtype::F64, Prod) => combine::<f64>(&out, d, index, &source, |a, b| a * b),
        (Dtype::F64, Amax) => combine::<f64>(&out, d, index, &source, larger),
        (Dtype::F64, _) => combine::<f64>(&out, d, index, &source, smaller),
        (Dtype::F32, Prod) => combine::<f32>(&out, d, index, &source, |a, b| a * b),
        (Dtype::F32, Amax) => combine::<f32>(&out, d, index, &source, larger),
        (Dtype::F32, _) => combine::<f32>(&out, d, index, &source, smaller),
        (_, Prod) => combine::<i64>(&out, d, index, &source, i64::wrapping_mul),
        (_, Amax) => combine::<i64>(&out, d, index, &source, larger),
        _ => combine::<i64>(&out, d, index, &source, smaller),
    }
    out.to_dtype(x.dtype())
}

impl Tensor {
    /// A copy in which the elements of `source` are put together with this tensor's at the places
    /// that `index` names along `dim` (`torch.scatter_reduce`): `y[index[i][j]][j]` takes
    /// `source[i][j]`, for `dim` 0 of a matrix. A number is a source of it everywhere (`torch.scatter`
    /// with `reduce`). Without `include_self` this tensor's own elements count only where nothing comes.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::ScatterReduce;
    /// let (x, index) = (Tensor::from([1i64, 2]), Tensor::from([0i64, 0]));
    /// let source = Tensor::from([5i64, -3]);
    /// let y = x.scatter_reduce(0, &index, &source, ScatterReduce::Amin, true);
    /// assert_eq!(y.to_vec::<i64>(), [-3, 2]);
    /// let y = x.scatter_reduce(0, &index, &source, ScatterReduce::Sum, false);
    /// assert_eq!(y.to_vec::<i64>(), [2, 2]);
    /// ```
    ///
    /// # Panics
    /// Throws when shapes or types do not fit, or the index is out of range.
    #[track_caller]
    pub fn scatter_reduce<'a>(
        &self,
        dim: i64,
        index: &Tensor,
        source: impl Into<Operand<'a>>,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Tensor {
        match source.into() {
            Operand::Tensor(source) => {
                self.scatter_reduce_of(dim, index, source, reduce, include_self)
            }
            Operand::Scalar(value) => {
                let source = Tensor::full(index.shape(), value, (self.dtype(), self.device()));
                self.scatter_reduce_of(dim, index, &source, reduce, include_self)
            }
        }
    }

    #[track_caller]
    fn scatter_reduce_of(
        &self,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Tensor {
        let d = self.normalize_dim("scatter_reduce", dim);
        let dim = d as i64;
        let index = check("scatter_reduce", self, d, index, Some(source));
        if index.numel() == 0 {
            return self.clone_contiguous();
        }
        let mut used = source.clone();
        for (k, &n) in index.shape().iter().enumerate() {
            used = used.narrow(k as i64, 0, n);
        }
        if let Sum | Mean = reduce {
            let own = if include_self {
                self.clone()
            } else {
                self.scatter_value(dim, &index, neutral(reduce, self.dtype()))
            };
            let sum = own.scatter_add(dim, &index, &used);
            if reduce == Sum {
                return sum;
            }
            let counts = Tensor::ones(self.shape(), (Dtype::I64, self.device()));
            let counts =
                if include_self { counts } else { counts.scatter_value(dim, &index, 0i64) };
            let counts = counts.scatter_add(
                dim,
                &index,
                &Tensor::ones(used.shape(), (Dtype::I64, self.device())),
            );
            let counts = counts.maximum(1i64);
            return if sum.dtype().is_floating_point() {
                sum / counts
            } else {
                sum.floor_divide(&counts).to_dtype(self.dtype())
            };
        }
        let out = reduced(self, d, &index, &used, reduce, include_self);
        record("scatter_reduce", &[self, &used], out, |saver| {
            let saved =
                [saver.save(self), saver.save(&index), saver.save(&used), saver.save_output(0)];
            move |ctx| {
                let [x, index, source, y] = saved.each_ref().map(|saved| ctx.get(saved));
                let g = ctx.grad(0);
                let (own, source) = if reduce == Prod {
                    product_backward(&x, dim, &index, &source, &y, &g, include_self)
                } else {
                    extreme_backward(&x, dim, &index, &source, &y, &g)
                };
                let own = if include_self { own } else { own.scatter_value(dim, &index, 0i64) };
                smallvec![Some(own), Some(source)]
            }
        })
    }

    /// In-place form of [`scatter_reduce`](Self::scatter_reduce) (`torch.Tensor.scatter_reduce_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::ScatterReduce;
    /// let x = Tensor::from([3i64, 4]);
    /// let y = x.scatter_reduce_(0, &Tensor::from([1i64]), 10, ScatterReduce::Prod, true);
    /// assert_eq!(y.to_vec::<i64>(), [3, 40]);
    /// ```
    #[track_caller]
    pub fn scatter_reduce_<'a>(
        &self,
        dim: i64,
        index: &Tensor,
        source: impl Into<Operand<'a>>,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> &Tensor {
        self.copy_(&self.clone_contiguous().scatter_reduce(
            dim,
            index,
            source,
            reduce,
            include_self,
        ))
    }

    /// [`scatter_reduce`](Self::scatter_reduce) of whole slices: entry `i` of dimension `dim` of
    /// `source` goes to entry `index[i]` (`torch.Tensor.index_reduce`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::ScatterReduce;
    /// let (x, index) = (Tensor::from([[1i64, 2], [3, 4]]), Tensor::from([0i64, 0]));
    /// let source = Tensor::from([[7i64, 0], [5, 9]]);
    /// let y = x.index_reduce(0, &index, &source, ScatterReduce::Amax, true);
    /// assert_eq!(y.to_vec::<i64>(), [7, 9, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// Throws when `index` is not a list with an element for each of the source's entries, when
    /// shapes or types do not fit, or the index is out of range.
    #[track_caller]
    pub fn index_reduce(
        &self,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Tensor {
        let d = self.normalize_dim("index_reduce", dim);
        let mut shape = vec![1; source.dim()];
        if let Some(n) = shape.get_mut(d) {
            *n = index.numel();
        }
        let places = index.reshape_to(&shape).expand(source.shape());
        self.scatter_reduce(dim, &places, source, reduce, include_self)
    }

    /// In-place form of [`index_reduce`](Self::index_reduce) (`torch.Tensor.index_reduce_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::ScatterReduce;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// x.index_reduce_(1, &Tensor::from([0i64]), &Tensor::from([[5i64], [6]]), ScatterReduce::Prod, true);
    /// assert_eq!(x.to_vec::<i64>(), [5, 2, 18, 4]);
    /// ```
    #[track_caller]
    pub fn index_reduce_(
        &self,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> &Tensor {
        self.copy_(&self.clone_contiguous().index_reduce(dim, index, source, reduce, include_self))
    }
}

/// Gradients by the tensor and by the source.
fn extreme_backward(
    x: &Tensor,
    dim: i64,
    index: &Tensor,
    source: &Tensor,
    y: &Tensor,
    g: &Tensor,
) -> (Tensor, Tensor) {
    let (x, y) = (x.detach(), y.detach());
    let own = x.eq(&y).to_dtype(g.dtype());
    let theirs = source.detach().eq(&y.gather(dim, index)).to_dtype(g.dtype());
    let share = g / own.scatter_add(dim, index, &theirs);
    (own * &share, theirs * share.gather(dim, index))
}

/// Gradients by the tensor and by the source.
fn product_backward(
    x: &Tensor,
    dim: i64,
    index: &Tensor,
    source: &Tensor,
    y: &Tensor,
    g: &Tensor,
    include_self: bool,
) -> (Tensor, Tensor) {
    let product = |x: &Tensor, s: &Tensor| x.scatter_reduce(dim, index, s, Prod, include_self);
    let nonzero = x.masked_fill(&x.detach().eq(0.0), 1.0);
    let own = g * product(&nonzero, source) / &nonzero;
    let zero = source.detach().eq(0.0);
    let zeros = x.detach().zeros_like().scatter_add(dim, index, &zero.to_dtype(x.dtype()));
    let lone = zeros.gather(dim, index).eq(1.0).logical_and(&zero);
    let without = product(x, &source.masked_fill(&lone, 1.0));
    let others = (g * y).gather(dim, index) / source.masked_fill(&zero, 1.0);
    let theirs = lone.where_(&(g * without).gather(dim, index), &others);
    (own, theirs)
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let case = |name: &str, reduce, include_self| {
        let index = || Tensor::from([[0i64, 1, 1], [2, 0, 1]]);
        OpSample::new(name, [values([3, 3], 4), values([2, 3], 7)], move |x| {
            x[0].scatter_reduce(0, &index().to_device(x[0].device()), &x[1], reduce, include_self)
        })
    };
    vec![
        case("scatter_reduce(mean)", Mean, true),
        case("scatter_reduce(sum), without self", Sum, false),
        case("scatter_reduce(prod)", Prod, true).slack(4.0),
        case("scatter_reduce(amax)", Amax, true),
        case("scatter_reduce(amin), without self", Amin, false),
    ]
}
