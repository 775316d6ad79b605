//! Products that are made of the others: `vdot`, `inner`, `addmv`, `addr`, `baddbmm`, `addbmm`,
//! `tensordot`, `kron`, `multi_dot`, `matrix_power`, `cross`, `bilinear`. Their derivatives follow.

use std::borrow::Borrow;

use crate::amp::{self, cast_op};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::tensor::{Dtype, Tensor, broadcast_shapes};

/// `factor x` in the type of `x`: integers take the factor's whole part, bools its truth.
fn scaled(x: &Tensor, factor: f64) -> Tensor {
    match x.dtype() {
        _ if factor == 1.0 => x.clone(),
        dtype if dtype.is_differentiable() => x * factor,
        Dtype::Bool if factor == 0.0 => x.zeros_like(),
        Dtype::Bool => x.clone(),
        _ => x.mul(factor as i64),
    }
}

/// `beta start + alpha product`; `start` broadcasts, and does not matter with `beta` 0.
#[track_caller]
fn plus(op: &str, start: &Tensor, product: Tensor, beta: f64, alpha: f64) -> Tensor {
    if broadcast_shapes(start.shape(), product.shape()).as_deref() != Ok(product.shape()) {
        let (start, product) = (start.shape(), product.shape());
        let message = format!(
            "self of shape {start:?} does not broadcast to the product's shape {product:?}"
        );
        throw(Error::shape(op, message));
    }
    if beta == 0.0 {
        return scaled(&product, alpha);
    }
    scaled(start, beta) + scaled(&product, alpha)
}

#[track_caller]
fn dimensions(op: &str, tensors: [(&Tensor, usize); 2]) {
    let [(a, n), (b, m)] = tensors;
    if a.dim() != n || b.dim() != m {
        let message =
            format!("shapes {:?} and {:?}; {n} and {m} dimensions are taken", a.shape(), b.shape());
        throw(Error::shape(op, message));
    }
}

/// `x.op_(..)`: the op's result, written into `x`.
macro_rules! in_place {
    ($($(#[$doc:meta])+ $name:ident = $op:ident($($x:ident),*);)*) => {$(
        $(#[$doc])+
        ///
        /// # Panics
        /// As the function that gives a new tensor, and when the result has another shape.
        #[track_caller]
        pub fn $name(&self, $($x: &Tensor,)* beta: f64, alpha: f64) -> &Tensor {
            self.copy_(&self.$op($($x,)* beta, alpha))
        }
    )*};
}

impl Tensor {
    /// The sum of the products of two vectors' elements (`torch.vdot`), as [`Tensor::dot`].
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([1f32, 2.]).vdot(&Tensor::from([3f32, 4.])).item(), 11.0);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::dot`].
    #[track_caller]
    pub fn vdot(&self, other: &Tensor) -> Tensor {
        self.dot(other)
    }

    /// Sums of products over the last dimensions of both (`torch.inner`); a product with a 0-dim
    /// tensor.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.inner(&Tensor::from([[1i64, 0], [1, 1]])).to_vec::<i64>(), [1, 3, 3, 7]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when the last sizes differ.
    #[track_caller]
    pub fn inner(&self, other: &Tensor) -> Tensor {
        if self.dim() == 0 || other.dim() == 0 {
            return self * other;
        }
        if self.size(-1) != other.size(-1) {
            let (a, b) = (self.shape(), other.shape());
            let message = format!("the last sizes of {a:?} and {b:?} must be equal");
            throw(Error::shape("inner", message));
        }
        self.tensordot_dims(other, &[-1], &[-1])
    }

    /// `beta self + alpha mat vec` (`torch.addmv`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (x, a) = (Tensor::from([1f32, 2.]), Tensor::from([[1f32, 2.], [3., 4.]]));
    /// assert_eq!(x.addmv(&a, &Tensor::from([1f32, 1.]), 2.0, 10.0).to_vec::<f32>(), [32.0, 74.0]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::addmm`].
    #[track_caller]
    pub fn addmv(&self, mat: &Tensor, vec: &Tensor, beta: f64, alpha: f64) -> Tensor {
        cast_op!("addmv", [x = self, a = mat, b = vec] => x.addmv(&a, &b, beta, alpha));
        dimensions("addmv", [(mat, 2), (vec, 1)]);
        let start = if self.dim() == 1 { self.unsqueeze(1) } else { self.clone() };
        start.addmm(mat, &vec.unsqueeze(1), beta, alpha).squeeze_dim(1)
    }

    /// `beta self + alpha vec1 vec2^T` (`torch.addr`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let (x, y) = (Tensor::from([1f32, 2.]), Tensor::from([3f32, 4.]));
    /// let result = Tensor::ones([2, 2], Dtype::F32).addr(&x, &y, 0.5, 1.0);
    /// assert_eq!(result.to_vec::<f32>(), [3.5, 4.5, 6.5, 8.5]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] unless two vectors are given, to whose product `self` broadcasts.
    #[track_caller]
    pub fn addr(&self, vec1: &Tensor, vec2: &Tensor, beta: f64, alpha: f64) -> Tensor {
        cast_op!("addr", [x = self, a = vec1, b = vec2] => x.addr(&a, &b, beta, alpha));
        dimensions("addr", [(vec1, 1), (vec2, 1)]);
        plus("addr", self, vec1.outer(vec2), beta, alpha)
    }

    /// `beta self + alpha batch1 batch2`, a matrix product per batch (`torch.baddbmm`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let (x, a) = (Tensor::ones([1], Dtype::F32), Tensor::from([[[1f32, 2.]], [[3., 4.]]]));
    /// assert_eq!(x.baddbmm(&a, &a.mt(), 100.0, 1.0).to_vec::<f32>(), [105.0, 125.0]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::bmm`], and when `self` does not broadcast to the product's shape.
    #[track_caller]
    pub fn baddbmm(&self, batch1: &Tensor, batch2: &Tensor, beta: f64, alpha: f64) -> Tensor {
        cast_op!("baddbmm", [x = self, a = batch1, b = batch2] => x.baddbmm(&a, &b, beta, alpha));
        plus("baddbmm", self, batch1.bmm(batch2), beta, alpha)
    }

    /// `beta self + alpha` times the sum of the products of all batches (`torch.addbmm`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let (x, a) = (Tensor::ones([1], Dtype::F32), Tensor::from([[[1f32, 2.]], [[3., 4.]]]));
    /// assert_eq!(x.addbmm(&a, &a.mt(), 100.0, 1.0).to_vec::<f32>(), [130.0]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::bmm`] and [`Tensor::addmm`].
    #[track_caller]
    pub fn addbmm(&self, batch1: &Tensor, batch2: &Tensor, beta: f64, alpha: f64) -> Tensor {
        cast_op!("addbmm", [x = self, a = batch1, b = batch2] => x.addbmm(&a, &b, beta, alpha));
        dimensions("addbmm", [(batch1, 3), (batch2, 3)]);
        let (&[b, n, k], &[c, l, m]) = (batch1.shape(), batch2.shape()) else {
            unreachable!("three dimensions each")
        };
        if b != c || k != l {
            let (x, y) = (batch1.shape(), batch2.shape());
            throw(Error::shape("addbmm", format!("the batches {x:?} and {y:?} do not fit")));
        }
        // A sum of products is one product of the matrices beside each other.
        let wide = batch1.transpose(0, 1).reshape([n as i64, (b * k) as i64]);
        self.addmm(&wide, &batch2.reshape([(c * l) as i64, m as i64]), beta, alpha)
    }

    in_place! {
        /// [`Tensor::addmm`] in place.
        ///
        /// ```
        /// use torchrs::{Dtype, Tensor};
        /// let (x, a) = (Tensor::ones([2, 2], Dtype::F32), Tensor::from([[1f32, 2.], [3., 4.]]));
        /// assert_eq!(x.addmm_(&a, &a, 0.5, 1.0).to_vec::<f32>(), [7.5, 10.5, 15.5, 22.5]);
        /// ```
        addmm_ = addmm(mat1, mat2);
        /// [`Tensor::addmv`] in place.
        ///
        /// ```
        /// use torchrs::Tensor;
        /// let (x, a) = (Tensor::from([1f32, 2.]), Tensor::from([[1f32, 2.], [3., 4.]]));
        /// assert_eq!(x.addmv_(&a, &Tensor::from([1f32, 1.]), 2.0, 10.0).to_vec::<f32>(), [32.0, 74.0]);
        /// ```
        addmv_ = addmv(mat, vec);
        /// [`Tensor::addr`] in place.
        ///
        /// ```
        /// use torchrs::{Dtype, Tensor};
        /// let x = Tensor::ones([2, 2], Dtype::F32);
        /// x.addr_(&Tensor::from([1f32, 2.]), &Tensor::from([3f32, 4.]), 0.5, 1.0);
        /// assert_eq!(x.to_vec::<f32>(), [3.5, 4.5, 6.5, 8.5]);
        /// ```
        addr_ = addr(vec1, vec2);
        /// [`Tensor::baddbmm`] in place.
        ///
        /// ```
        /// use torchrs::{Dtype, Tensor};
        /// let (x, a) = (Tensor::ones([2, 1, 1], Dtype::F32), Tensor::from([[[1f32, 2.]], [[3., 4.]]]));
        /// assert_eq!(x.baddbmm_(&a, &a.mt(), 100.0, 1.0).to_vec::<f32>(), [105.0, 125.0]);
        /// ```
        baddbmm_ = baddbmm(batch1, batch2);
        /// [`Tensor::addbmm`] in place.
        ///
        /// ```
        /// use torchrs::{Dtype, Tensor};
        /// let (x, a) = (Tensor::ones([1, 1], Dtype::F32), Tensor::from([[[1f32, 2.]], [[3., 4.]]]));
        /// assert_eq!(x.addbmm_(&a, &a.mt(), 100.0, 1.0).to_vec::<f32>(), [130.0]);
        /// ```
        addbmm_ = addbmm(batch1, batch2);
    }

    /// Sums of products over the last `dims` dimensions of this tensor and the first of `other`
    /// (`torch.tensordot` with a number).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.tensordot(&x, 2).item(), 30.0);
    /// assert_eq!(x.tensordot(&x, 1).to_vec::<i64>(), [7, 10, 15, 22]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::tensordot_dims`].
    #[track_caller]
    pub fn tensordot(&self, other: &Tensor, dims: usize) -> Tensor {
        let n = dims as i64;
        let (last, first): (Vec<i64>, Vec<i64>) = ((-n..0).collect(), (0..n).collect());
        self.tensordot_dims(other, &last, &first)
    }

    /// Sums of products over dimension `dims_self[i]` of this tensor and `dims_other[i]` of `other`,
    /// for all `i` (`torch.tensordot`). One of two such sizes may be 1.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.tensordot_dims(&x, &[0], &[0]).to_vec::<i64>(), [10, 14, 14, 20]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for lists of different lengths, and for dimensions that are out of
    /// range or named twice; [`Error::Shape`] when sizes differ.
    #[track_caller]
    pub fn tensordot_dims(&self, other: &Tensor, dims_self: &[i64], dims_other: &[i64]) -> Tensor {
        cast_op!("tensordot", [a = self, b = other] => a.tensordot_dims(&b, dims_self, dims_other));
        if dims_self.len() != dims_other.len() {
            let message = format!("{dims_self:?} and {dims_other:?} differ in length");
            throw(Error::argument("tensordot", "dims", message));
        }
        let own = crate::tensor::normalize_dims("tensordot", dims_self, self.dim());
        let others = crate::tensor::normalize_dims("tensordot", dims_other, other.dim());
        let (mut a, mut b) = (self.clone(), other.clone());
        for (&d, &e) in own.iter().zip(&others) {
            match (a.shape()[d], b.shape()[e]) {
                (x, y) if x == y => {}
                (1, _) => b = b.sum_dim(&[e as i64], true).to_dtype(other.dtype()),
                (_, 1) => a = a.sum_dim(&[d as i64], true).to_dtype(self.dtype()),
                (x, y) => {
                    let message =
                        format!("dimension {d} of the first has size {x}, {e} of the second {y}");
                    throw(Error::shape("tensordot", message))
                }
            }
        }
        let rows: Vec<usize> = (0..a.dim()).filter(|d| !own.contains(d)).collect();
        let columns: Vec<usize> = (0..b.dim()).filter(|d| !others.contains(d)).collect();
        let sizes = |t: &Tensor, dims: &[usize]| -> Vec<i64> {
            dims.iter().map(|&d| t.shape()[d] as i64).collect()
        };
        let inner: i64 = sizes(&a, &own).iter().product();
        let (left, right) = (sizes(&a, &rows), sizes(&b, &columns));
        let matrix = |t: &Tensor, first: &[usize], then: &[usize], shape: [i64; 2]| {
            let order: Vec<i64> = first.iter().chain(then).map(|&d| d as i64).collect();
            t.permute(&order).reshape(shape)
        };
        let a = matrix(&a, &rows, &own, [left.iter().product(), inner]);
        let b = matrix(&b, &others, &columns, [inner, right.iter().product()]);
        a.mm(&b).reshape([left, right].concat())
    }

    /// Kronecker's product: a copy of `other` for each element of this tensor, times that element
    /// (`torch.kron`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([1i64, 10]).kron(&Tensor::from([1i64, 2]));
    /// assert_eq!(y.to_vec::<i64>(), [1, 2, 10, 20]);
    /// ```
    pub fn kron(&self, other: &Tensor) -> Tensor {
        let n = self.dim().max(other.dim());
        let sizes = |t: &Tensor| [vec![1; n - t.dim()], t.shape().to_vec()].concat();
        let (a, b) = (sizes(self), sizes(other));
        let apart: Vec<i64> = a.iter().flat_map(|&s| [s as i64, 1]).collect();
        let inside: Vec<i64> = b.iter().flat_map(|&s| [1, s as i64]).collect();
        let shape: Vec<i64> = a.iter().zip(&b).map(|(&s, &t)| (s * t) as i64).collect();
        (self.reshape(apart) * other.reshape(inside)).reshape(shape)
    }

    /// The product of two or more matrices, in the order that takes the fewest multiplications
    /// (`torch.linalg.multi_dot`). The first one may be a row, the last one a column vector.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (a, b) = (Tensor::from([[1f32, 2.], [3., 4.]]), Tensor::from([1f32, 10.]));
    /// assert_eq!(Tensor::multi_dot(&[&b, &a, &a]).to_vec::<f32>(), [157.0, 230.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for fewer than two tensors, and as [`Tensor::mm`].
    #[track_caller]
    pub fn multi_dot(tensors: &[impl Borrow<Tensor>]) -> Tensor {
        if amp::is_active()
            && let Some((region, cast)) = amp::Region::of_list("multi_dot", tensors)
        {
            let out = Tensor::multi_dot(&cast);
            drop(region);
            return out;
        }
        let mut list: Vec<Tensor> = tensors.iter().map(|t| t.borrow().clone()).collect();
        let n = list.len();
        if n < 2 {
            let message = format!("{n} given; at least 2 are taken");
            throw(Error::argument("multi_dot", "tensors", message));
        }
        let (row, column) = (list[0].dim() == 1, list[n - 1].dim() == 1);
        if row {
            list[0] = list[0].unsqueeze(0);
        }
        if column {
            list[n - 1] = list[n - 1].unsqueeze(1);
        }
        if let Some(i) = list.iter().position(|t| t.dim() != 2) {
            let message = format!("tensor {i} has shape {:?}; must be a matrix", list[i].shape());
            throw(Error::shape("multi_dot", message));
        }
        let product = chain(&list, &splits(&list), 0, n - 1);
        let squeezed = if row { product.squeeze_dim(0) } else { product };
        if column { squeezed.squeeze_dim(-1) } else { squeezed }
    }

    /// The product of `n` copies of each matrix, or if `n` is negative of its inverse
    /// (`torch.linalg.matrix_power`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f64, 1.], [0., 1.]]);
    /// assert_eq!(x.matrix_power(5).to_vec::<f64>(), [1.0, 5.0, 0.0, 1.0]);
    /// let expected = Tensor::from([[1.0, -2.0], [0.0, 1.0]]);
    /// assert!(x.matrix_power(-2).allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] unless the matrices, the last two dimensions, are square, and for
    /// negative `n` as [`linalg::inv`](crate::linalg::inv).
    #[track_caller]
    pub fn matrix_power(&self, n: i64) -> Tensor {
        if self.dim() < 2 || self.size(-1) != self.size(-2) {
            let message = format!("shape {:?}; must be square in the last two", self.shape());
            throw(Error::shape("matrix_power", message));
        }
        if n == 1 {
            return self.clone_contiguous();
        }
        let eye = || Tensor::eye(self.size(-1), (self.dtype(), self.device())).expand(self.shape());
        let mut power: Option<Tensor> = None;
        let mut square = if n < 0 { self.inverse() } else { self.clone() };
        let mut left = n.unsigned_abs();
        while left > 0 {
            if left % 2 == 1 {
                power = Some(power.map_or_else(|| square.clone(), |p| p.matmul(&square)));
            }
            left /= 2;
            if left > 0 {
                square = square.matmul(&square);
            }
        }
        power.unwrap_or_else(|| eye().clone_contiguous())
    }

    /// The cross product of vectors along `dim` (`torch.linalg.cross`, `torch.cross`); the other
    /// dimensions broadcast. Without a dimension, the first one of size 3 (`torch.cross`).
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when the tensors differ in their number of dimensions or the vectors
    /// have other than 3 elements.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (x, y) = (Tensor::from([1i64, 0, 0]), Tensor::from([0i64, 1, 0]));
    /// assert_eq!(x.cross(&y, -1).to_vec::<i64>(), [0, 0, 1]);
    /// ```
    #[track_caller]
    pub fn cross(&self, other: &Tensor, dim: impl Into<Option<i64>>) -> Tensor {
        let dim = dim.into();
        cast_op!("cross", [a = self, b = other] => a.cross(&b, dim));
        let dim = dim.unwrap_or_else(|| match self.shape().iter().position(|&size| size == 3) {
            Some(d) => d as i64,
            None => throw(Error::shape(
                "cross",
                format!("no dimension of shape {:?} has size 3", self.shape()),
            )),
        });
        let rule = if self.dim() != other.dim() {
            Some("must have equally many dimensions")
        } else {
            let d = self.normalize_dim("cross", dim);
            let fits = self.shape().get(d) == Some(&3) && other.shape().get(d) == Some(&3);
            (!fits).then_some("must have size 3 in that dimension")
        };
        if let Some(rule) = rule {
            let (a, b) = (self.shape(), other.shape());
            throw(Error::shape("cross", format!("{a:?} and {b:?} along {dim} {rule}")));
        }
        let turn = |t: &Tensor, by: i64| t.roll(&[by], &[dim]);
        turn(self, -1) * turn(other, -2) - turn(self, -2) * turn(other, -1)
    }

    /// `x1 W x2 + bias` for each matrix `W` of `weight` (`torch.nn.functional.bilinear`): this
    /// tensor is `[.., in1]`, `other` `[.., in2]`, `weight` `[out, in1, in2]`, `bias` `[out]`.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (x, y) = (Tensor::from([[1f32, 2.]]), Tensor::from([[3f32, 4.]]));
    /// let weight = Tensor::from([[[1f32, 0.], [0., 1.]], [[0., 1.], [0., 0.]]]);
    /// let result = x.bilinear(&y, &weight, Some(&Tensor::from([100f32, 200.])));
    /// assert_eq!(result.to_vec::<f32>(), [111.0, 204.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when the sizes do not fit and [`Error::Dtype`] when dtypes differ.
    #[track_caller]
    pub fn bilinear(&self, other: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        cast_op!("bilinear", [a = self, b = other, w = weight, c = bias] => a.bilinear(&b, &w, c.as_ref()));
        let fits = match (self.shape(), other.shape(), weight.shape()) {
            ([batch @ .., n], [others @ .., m], [out, first, second]) => {
                batch == others
                    && (n, m) == (first, second)
                    && bias.is_none_or(|b| b.shape() == [*out])
            }
            _ => false,
        };
        if !fits {
            let message = format!(
                "inputs {:?} and {:?}, weight {:?} and bias {:?} do not fit: they must be \
                 [.., in1], [.., in2], [out, in1, in2] and [out]",
                self.shape(),
                other.shape(),
                weight.shape(),
                bias.map(Tensor::shape)
            );
            throw(Error::shape("bilinear", message));
        }
        let (out, n, m) = (weight.shape()[0], weight.shape()[1], weight.shape()[2]);
        let count = (self.numel() / n.max(1)) as i64;
        let [out, n, m] = [out, n, m].map(|size| size as i64);
        let matrix = weight.permute(&[1, 0, 2]).reshape([n, out * m]);
        let rows = self.reshape([count, n]).mm(&matrix).reshape([count, out, m]);
        let columns = other.reshape([count, m]).unsqueeze(-1);
        let mut shape: Vec<i64> = self.shape().iter().map(|&size| size as i64).collect();
        *shape.last_mut().expect("at least one dimension") = out;
        let product = rows.bmm(&columns).reshape(shape);
        match bias {
            Some(bias) => product + bias,
            None => product,
        }
    }
}

/// Where to split the chain of matrices `i..=j` for the fewest multiplications: `[i][j]`.
fn splits(list: &[Tensor]) -> Vec<Vec<usize>> {
    let n = list.len();
    let size = |i: usize| if i < n { list[i].shape()[0] } else { list[n - 1].shape()[1] };
    let mut costs = vec![vec![0usize; n]; n];
    let mut splits = vec![vec![0; n]; n];
    for length in 1..n {
        for i in 0..n - length {
            let j = i + length;
            let cost =
                |k: usize| costs[i][k] + costs[k + 1][j] + size(i) * size(k + 1) * size(j + 1);
            let best = (i..j).min_by_key(|&k| cost(k)).expect("i is below j");
            (costs[i][j], splits[i][j]) = (cost(best), best);
        }
    }
    splits
}

#[track_caller]
fn chain(list: &[Tensor], splits: &[Vec<usize>], i: usize, j: usize) -> Tensor {
    if i == j {
        return list[i].clone();
    }
    let k = splits[i][j];
    chain(list, splits, i, k).mm(&chain(list, splits, k + 1, j))
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    type F = fn(&[Tensor]) -> Tensor;
    let sample = |name: &str, shapes: &[&[usize]], f: F| {
        let inputs: Vec<Tensor> =
            shapes.iter().enumerate().map(|(i, s)| values(s, i as u64 + 1)).collect();
        OpSample::new(name, inputs, f).slack(8.0)
    };
    vec![
        sample("addmv", &[&[3], &[3, 4], &[4]], |x| x[0].addmv(&x[1], &x[2], 0.5, 2.0)),
        sample("addr", &[&[3, 4], &[3], &[4]], |x| x[0].addr(&x[1], &x[2], 0.5, 2.0)),
        sample("baddbmm", &[&[4], &[2, 3, 2], &[2, 2, 4]], |x| {
            x[0].baddbmm(&x[1], &x[2], 0.5, 2.0)
        }),
        sample("addbmm", &[&[3, 4], &[2, 3, 2], &[2, 2, 4]], |x| {
            x[0].addbmm(&x[1], &x[2], 0.5, 2.0)
        }),
        sample("inner", &[&[2, 3], &[4, 3]], |x| x[0].inner(&x[1])),
        sample("tensordot", &[&[2, 3, 4], &[4, 3, 2]], |x| {
            x[0].tensordot_dims(&x[1], &[1, 2], &[1, 0])
        }),
        sample("tensordot(1)", &[&[2, 3], &[3, 2]], |x| x[0].tensordot(&x[1], 1)),
        sample("kron", &[&[2, 3], &[2]], |x| x[0].kron(&x[1])),
        sample("multi_dot", &[&[3], &[3, 2], &[2, 4], &[4, 2]], Tensor::multi_dot),
        sample("matrix_power(3)", &[&[2, 2]], |x| x[0].matrix_power(3)).slack(32.0),
        sample("matrix_power(-2)", &[&[2, 2]], |x| x[0].matrix_power(-2)).no_half().slack(64.0),
        sample("cross", &[&[2, 3], &[1, 3]], |x| x[0].cross(&x[1], -1)),
        sample("bilinear", &[&[2, 3], &[2, 4], &[2, 3, 4], &[2]], |x| {
            x[0].bilinear(&x[1], &x[2], Some(&x[3]))
        }),
    ]
}
