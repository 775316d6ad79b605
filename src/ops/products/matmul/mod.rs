//! Matrix products: `matmul`, `mm`, `bmm`, `mv`, `dot`, `outer`, `addmm`, `linear`.
//!
//! ```text
//! C[i, j] = sum_p A[i, p] B[p, j]        dA = dC B^T        dB = A^T dC
//! ```
//!
//! Shapes as PyTorch's: `matmul` of two vectors is their dot product; a vector on the left is a row,
//! on the right a column, and that dimension is dropped again; more than two dimensions are batches,
//! which broadcast. A stack of matrices times one matrix is folded into a single product, and so are
//! the gradients of `linear`. Transposes are strides: nothing is copied for them. Half types are
//! multiplied and summed in f32 and rounded once; integers wrap around. Where the processor multiplies bf16 by
//! itself at twice f32's rate ([`pairs`](crate::cpu::products::pairs)) it takes subnormal operands and results for 0, as
//! it does for PyTorch.

mod active;
mod batch;
mod cpu;
mod cublaslt;
pub(in crate::ops) mod cuda;
pub(in crate::ops) mod each;
mod epilogue;
pub(in crate::ops) mod feed_forward;
pub(in crate::ops) mod place;
pub(in crate::ops) mod subtract;

use crate::ops::{
    gpu,
    pointwise::complex::bilinear,
    products::bias_sums,
    recompute::{keep, recalled},
};
use smallvec::{SmallVec, smallvec};

use crate::amp::cast_op;
use crate::autograd::{BackwardCtx, Saver, no_grad, record, record_with_tangent};
use crate::error::{Error, throw, within};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::profiler::flops;
use crate::tensor::{Shape, Tensor, broadcast_shapes};
use cublaslt::Weight;
use epilogue::{Epilogue, turned};

impl Tensor {
    /// The matrix product, with broadcast batches (`torch.matmul`, `@`).
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when the inner sizes differ or the batches do not broadcast, and
    /// [`Error::Dtype`] when the dtypes differ.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let a = Tensor::from([[1f32, 2.], [3., 4.]]);
    /// assert_eq!(a.matmul(&Tensor::from([1f32, 1.])).to_vec::<f32>(), [3., 7.]);
    /// ```
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        cast_op!("matmul", [a = self, b = other] => a.matmul(&b));
        match (self.dim(), other.dim()) {
            (0, _) | (_, 0) => mismatch("matmul", self, other, "0-dim tensors are not taken"),
            (1, 1) => self.dot(other),
            (2, 2) => self.mm(other),
            (2, 1) => self.mv(other),
            (1, _) => {
                check("matmul", self, other, 0, other.dim() - 2);
                self.unsqueeze(0).matmul(other).squeeze_dim(-2)
            }
            (_, 1) => {
                check("matmul", self, other, self.dim() - 1, 0);
                self.matmul(&other.unsqueeze(1)).squeeze_dim(-1)
            }
            (n, 2) => {
                check("matmul", self, other, n - 1, 0);
                let shape = with_last(self.shape(), other.shape()[1]);
                flat(self).mm(other).reshape_to(&shape)
            }
            (n, m) => {
                check("matmul", self, other, n - 1, m - 2);
                batched("matmul", self, other)
            }
        }
    }

    /// The product of two matrices (`torch.mm`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.mm(&Tensor::from([[0i64, 1], [1, 0]])).to_vec::<i64>(), [2, 1, 4, 3]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::matmul`], and for other than two dimensions.
    #[track_caller]
    pub fn mm(&self, other: &Tensor) -> Tensor {
        cast_op!("mm", [a = self, b = other] => a.mm(&b));
        dimensions("mm", self, other, 2);
        check("mm", self, other, 1, 0);
        if self.is_complex() {
            return bilinear(self, other, Tensor::mm);
        }
        let shape = [self.shape()[0], other.shape()[1]];
        let out = product("mm", self, other, &shape, None);
        let backward = |saver: &Saver<'_>| {
            let a = other.requires_grad().then(|| saver.save(self));
            let b = self.requires_grad().then(|| saver.save(other));
            move |ctx: &BackwardCtx<'_>| {
                let g = ctx.grad(0);
                let da = ctx.get_for(0, &b).map(|b| g.mm(&b.t()));
                let db = ctx.get_for(1, &a).map(|a| a.t().mm(&g));
                smallvec![da, db]
            }
        };
        record_with_tangent("mm", &[self, other], out, backward, |tangents, _| {
            let [da, db] = [&tangents[0], &tangents[1]].map(Option::as_ref);
            sum_of([da.map(|da| da.mm(other)), db.map(|db| self.mm(db))])
        })
    }

    /// One matrix product per batch (`torch.bmm`): `[b, n, m]` and `[b, m, p]` give `[b, n, p]`.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[[1f32, 2.]], [[3., 4.]]]);
    /// let y = x.bmm(&Tensor::from([[[10f32], [1.]], [[1.], [10.]]]));
    /// assert_eq!((y.shape(), y.to_vec::<f32>()), (&[2, 1, 1][..], vec![12.0, 43.0]));
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::matmul`], for other than three dimensions and for different batch sizes.
    #[track_caller]
    pub fn bmm(&self, other: &Tensor) -> Tensor {
        cast_op!("bmm", [a = self, b = other] => a.bmm(&b));
        dimensions("bmm", self, other, 3);
        if self.shape()[0] != other.shape()[0] {
            mismatch("bmm", self, other, "the batch sizes (first dimensions) must be equal")
        }
        check("bmm", self, other, 2, 1);
        batched("bmm", self, other)
    }

    /// The product of a matrix and a vector (`torch.mv`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([[1i64, 2], [3, 4]]).mv(&Tensor::from([10i64, 1]));
    /// assert_eq!(y.to_vec::<i64>(), [12, 34]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::matmul`], and for other dimensions.
    #[track_caller]
    pub fn mv(&self, vector: &Tensor) -> Tensor {
        cast_op!("mv", [a = self, v = vector] => a.mv(&v));
        if self.dim() != 2 || vector.dim() != 1 {
            mismatch("mv", self, vector, "a matrix and a vector are taken")
        }
        check("mv", self, vector, 1, 0);
        self.mm(&vector.unsqueeze(1)).squeeze_dim(1)
    }

    /// The sum of the products of two vectors' elements (`torch.dot`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([1f32, 2.]).dot(&Tensor::from([3f32, 4.])).item(), 11.0);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::matmul`], and for other than one dimension.
    #[track_caller]
    pub fn dot(&self, other: &Tensor) -> Tensor {
        cast_op!("dot", [a = self, b = other] => a.dot(&b));
        dimensions("dot", self, other, 1);
        check("dot", self, other, 0, 0);
        self.unsqueeze(0).mm(&other.unsqueeze(1)).reshape_to(&[])
    }

    /// All products of an element of one vector with one of the other (`torch.outer`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([1i64, 2]).outer(&Tensor::from([3i64, 4]));
    /// assert_eq!(y.to_vec::<i64>(), [3, 4, 6, 8]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] for other than one dimension.
    #[track_caller]
    pub fn outer(&self, other: &Tensor) -> Tensor {
        dimensions("outer", self, other, 1);
        self.unsqueeze(1) * other.unsqueeze(0)
    }

    /// `beta self + alpha mat1 mat2` (`torch.addmm`); `self` broadcasts to the product's shape.
    /// With `beta` 0 what `self` holds does not matter, also where it is NaN.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let (x, a) = (Tensor::from([1f32, 2.]), Tensor::from([[1f32, 2.], [3., 4.]]));
    /// let y = x.addmm(&a, &Tensor::eye(2, Dtype::F32), 0.5, 10.0);
    /// assert_eq!(y.to_vec::<f32>(), [10.5, 21.0, 30.5, 41.0]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::mm`], and when `self` does not broadcast to the product's shape.
    #[track_caller]
    pub fn addmm(&self, mat1: &Tensor, mat2: &Tensor, beta: f64, alpha: f64) -> Tensor {
        cast_op!("addmm", [x = self, a = mat1, b = mat2] => x.addmm(&a, &b, beta, alpha));
        dimensions("addmm", mat1, mat2, 2);
        check("addmm", mat1, mat2, 1, 0);
        let shape = [mat1.shape()[0], mat2.shape()[1]];
        if self.dim() > 2 || broadcast_shapes(self.shape(), &shape).map_or(true, |s| s[..] != shape)
        {
            throw(Error::shape(
                "addmm",
                format!(
                    "self of shape {:?} does not broadcast to the product's shape {shape:?}",
                    self.shape()
                ),
            ));
        }
        if self.dtype() != mat1.dtype() {
            mismatch("addmm", self, mat1, "the dtypes must be equal; convert with `.to_dtype`")
        }
        let out = product("addmm", mat1, mat2, &shape, Some(Epilogue { start: self, beta, alpha }));
        let is_bias = self.dim() == 1 && self.shape()[0] == shape[1] && (beta, alpha) == (1.0, 1.0);
        record("addmm", &[self, mat1, mat2], out, |saver| {
            let a = mat2.requires_grad().then(|| saver.save(mat1));
            let b = mat1.requires_grad().then(|| saver.save(mat2));
            move |ctx| {
                let g = ctx.grad(0);
                let scaled = |t: Tensor, by: f64| if by == 1.0 { t } else { t * by };
                let da = ctx.get_for(1, &b).map(|b| scaled(g.mm(&b.t()), alpha));
                if is_bias
                    && ctx.needs(0)
                    && !ctx.create_graph()
                    && let Some(a) = ctx.get_for(2, &a)
                {
                    let (g, a) = (g.untracked(), a.untracked());
                    let joint = no_grad(|| cublaslt::weight_and_bias(&g, &a, Weight::InOut));
                    if let Some((dw, start)) = joint {
                        let ([rows, n], m) = ([a.shape()[0], a.shape()[1]], g.shape()[1]);
                        flops("mm", || product_flops([n, m, rows], &[]));
                        return smallvec![Some(start), da, Some(dw)];
                    }
                }
                let start = ctx.needs(0).then(|| scaled(g.clone(), beta));
                let db = ctx.get_for(2, &a).map(|a| scaled(a.t().mm(&g), alpha));
                smallvec![start, da, db]
            }
        })
    }

    /// `x weight^T + bias` over the last dimension (`torch.nn.functional.linear`): `x` is
    /// `[.., in]`, `weight` `[out, in]`, `bias` `[out]`. A `weight` of shape `[in]` is one row, whose
    /// dimension the result lacks.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when the sizes do not fit and [`Error::Dtype`] when dtypes differ.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (x, w) = (Tensor::from([1f32, 2.]), Tensor::from([[3f32, 4.]]));
    /// assert_eq!(x.linear(&w, Some(&Tensor::from([0.5f32]))).to_vec::<f32>(), [11.5]);
    /// ```
    #[track_caller]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        cast_op!("linear", [x = self, w = weight, b = bias] => x.linear(&w, b.as_ref()));
        if weight.dim() == 1 && bias.is_none_or(|b| b.dim() == 0) {
            let product = self.matmul(weight);
            return bias.map_or_else(|| product.clone(), |bias| &product + bias);
        }
        let fits = self.dim() > 0
            && weight.dim() == 2
            && self.shape().last() == weight.shape().last()
            && bias.is_none_or(|b| b.shape() == &weight.shape()[..1]);
        if !fits {
            throw(Error::shape(
                "linear",
                format!(
                    "input {:?}, weight {:?} and bias {:?} do not fit: they must be [.., in], \
                     [out, in] and [out]",
                    self.shape(),
                    weight.shape(),
                    bias.map(Tensor::shape)
                ),
            ));
        }
        if let Some(other) =
            [Some(weight), bias].into_iter().flatten().find(|t| t.dtype() != self.dtype())
        {
            mismatch("linear", self, other, "the dtypes must be equal; convert with `.to_dtype`")
        }
        let features = weight.shape()[0];
        let shape = with_last(self.shape(), features);
        let epilogue = bias.map(|start| Epilogue { start, beta: 1.0, alpha: 1.0 });
        let out = if self.dim() == 2 {
            product("linear", self, &turned(weight), &[shape[0], features], epilogue)
        } else {
            let _line = within::line();
            no_grad(|| {
                let x = flat(&self.detach());
                let rows = [x.shape()[0], features];
                product("linear", &x, &turned(weight), &rows, epilogue).reshape_to(&shape).detach()
            })
        };
        recorded(self, weight, bias, out)
    }
}

/// [`Tensor::linear`]'s result, recorded.
#[track_caller]
fn recorded(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, out: Tensor) -> Tensor {
    // Without a bias the third is not looked at.
    let inputs = [x, weight, bias.unwrap_or(weight)];
    let backward = |saver: &Saver<'_>| {
        let w = x.requires_grad().then(|| saver.save(weight));
        let (with_bias, shape) = (bias.is_some(), x.layout().shape.clone());
        let x = weight.requires_grad().then(|| saver.save(x));
        move |ctx: &BackwardCtx<'_>| {
            let g = flat(&ctx.grad(0));
            let dx = ctx.get_for(0, &w).map(|w| match added(ctx, &g, &w, &shape) {
                Some(sum) => sum,
                None => unflat(g.mm(&w), &shape),
            });
            let x = ctx.get_for(1, &x).map(|x| flat(&x));
            let joint = match &x {
                Some(x) if with_bias && ctx.needs(2) && !ctx.create_graph() => {
                    let (g, x) = (g.untracked(), x.untracked());
                    no_grad(|| cublaslt::weight_and_bias(&g, &x, Weight::OutIn))
                }
                _ => None,
            };
            let counted =
                || product_flops([g.shape()[1], shape[shape.len() - 1], g.shape()[0]], &[]);
            if let Some((dw, db)) = joint {
                flops("mm", counted);
                return smallvec![dx, Some(dw), Some(db)];
            }
            let dw = x.map(|x| match ctx.place(1) {
                Some(place) => {
                    flops("mm", counted);
                    no_grad(|| cpu::product_at(&g.t(), &x, place))
                }
                None => g.t().mm(&x),
            });
            let mut grads: SmallVec<[Option<Tensor>; 3]> = smallvec![dx, dw];
            if with_bias {
                grads.push(ctx.needs(2).then(|| sum_rows(ctx, &g)));
            }
            grads
        }
    };
    let inputs = &inputs[..2 + bias.is_some() as usize];
    let out = record_with_tangent("linear", inputs, out, backward, |tangents, out| {
        let [dx, dw] = [&tangents[0], &tangents[1]].map(Option::as_ref);
        let db = tangents.get(2).and_then(Option::as_ref);
        sum_of([
            dx.map(|dx| dx.linear(weight, None)),
            dw.map(|dw| x.linear(dw, None)),
            db.map(|db| db.expand(out.shape())),
        ])
    });
    out.add_to_sum();
    out
}

/// The sum so far of the gradient of an input of several layers, and `g w`, by the product itself; of this shape.
#[track_caller]
fn added(ctx: &BackwardCtx, g: &Tensor, w: &Tensor, shape: &[usize]) -> Option<Tensor> {
    // Where halves are multiplied on the host, the product is of their type.
    let is_wide = g.dtype() == g.dtype().compute() && g.dtype().is_floating_point();
    if ctx.create_graph() || !(is_wide || g.device().kernels().is_some()) {
        return None;
    }
    let sum = ctx.take_sum(g.dtype())?;
    debug_assert_eq!(sum.shape(), shape);
    no_grad(|| place::product_into(&flat(&sum), g, w, place::Start::Itself));
    Some(sum)
}

/// `[.., n]` as a matrix of rows of length n.
fn flat(x: &Tensor) -> Tensor {
    if x.dim() == 2 {
        return x.clone();
    }
    let n = x.shape()[x.dim() - 1];
    let rows = x.shape()[..x.dim() - 1].iter().product();
    x.reshape_to(&[rows, n])
}

/// [`flat`]'s inverse.
fn unflat(x: Tensor, shape: &[usize]) -> Tensor {
    if x.shape() == shape { x } else { x.reshape_to(shape) }
}

fn with_last(shape: &[usize], last: usize) -> Shape {
    let mut shape = Shape::from_slice(shape);
    *shape.last_mut().expect("at least one dimension") = last;
    shape
}

/// A matrix's sum over its rows, recorded where the gradient is differentiated again.
fn sum_rows(ctx: &BackwardCtx, g: &Tensor) -> Tensor {
    if ctx.create_graph() { g.sum_to(&g.shape()[1..]) } else { bias_sums::column_sums(g) }
}

/// The operations of a product: a multiplication and an addition for each element of each inner product.
fn product_flops([m, n, k]: [usize; 3], batch: &[usize]) -> u64 {
    [m, n, k].iter().chain(batch).map(|&size| size as u64).product::<u64>() * 2
}

/// The product of two matrices whose sizes and dtypes were checked, as part of `op`.
#[track_caller]
fn product(
    op: &'static str,
    a: &Tensor,
    b: &Tensor,
    shape: &[usize; 2],
    epilogue: Option<Epilogue>,
) -> Tensor {
    if let Some([known]) = recalled(op) {
        return known;
    }
    flops(op, || product_flops([shape[0], shape[1], a.shape()[1]], &[]));
    let start = epilogue.as_ref().map_or(a, |e| e.start);
    let product = match gpu::of("matmul", &[a, b, start]) {
        Some(gpu) => {
            let _line = within::line();
            no_grad(|| cuda::product(gpu, a, b, shape, epilogue))
        }
        None => cpu::product(a, b, shape, epilogue),
    };
    let [product] = keep(op, [product]);
    product
}

/// Products of batches, which `a` and `b` broadcast to; nothing is recorded.
#[track_caller]
fn products(a: &Tensor, b: &Tensor, batch: &[usize], size: (usize, usize, usize)) -> Tensor {
    const OP: &str = "bmm";
    if let Some([known]) = recalled(OP) {
        return known;
    }
    flops(OP, || product_flops(size.into(), batch));
    let products = match gpu::of("matmul", &[a, b]) {
        Some(gpu) => cuda::products(gpu, a, b, batch, size),
        None => cpu::products(a, b, batch, size),
    };
    let [products] = keep(OP, [products]);
    products
}

/// Two tensors of at least three (or, on one side, two) dimensions whose inner sizes fit.
#[track_caller]
fn batched(op: &'static str, a: &Tensor, b: &Tensor) -> Tensor {
    if a.is_complex() {
        return bilinear(a, b, |a, b| batched(op, a, b));
    }
    let (batch_a, batch_b) = (&a.shape()[..a.dim() - 2], &b.shape()[..b.dim() - 2]);
    let Ok(mut shape) = broadcast_shapes(batch_a, batch_b) else {
        mismatch(op, a, b, "all dimensions but the last two must broadcast")
    };
    let batch = shape.clone();
    let (m, n, k) = (a.shape()[a.dim() - 2], b.shape()[b.dim() - 1], a.shape()[a.dim() - 1]);
    shape.extend([m, n]);
    // The closure does not pass it on.
    let _line = within::line();
    let out = no_grad(|| products(&a.detach(), &b.detach(), &batch, (m, n, k)));
    let backward = |saver: &Saver<'_>| {
        let saved_a = b.requires_grad().then(|| saver.save(a));
        let saved_b = a.requires_grad().then(|| saver.save(b));
        move |ctx: &BackwardCtx<'_>| {
            let g = ctx.grad(0);
            let da = ctx.get_for(0, &saved_b).map(|b| g.matmul(&b.transpose(-1, -2)));
            let db = ctx.get_for(1, &saved_a).map(|a| a.transpose(-1, -2).matmul(&g));
            smallvec![da, db]
        }
    };
    record_with_tangent(op, &[a, b], out, backward, |tangents, _| {
        let [da, db] = [&tangents[0], &tangents[1]].map(Option::as_ref);
        sum_of([da.map(|da| da.matmul(b)), db.map(|db| a.matmul(db))])
    })
}

/// The terms that are there, added.
fn sum_of<const N: usize>(terms: [Option<Tensor>; N]) -> Option<Tensor> {
    terms.into_iter().flatten().reduce(|a, b| a + b)
}

/// The inner sizes, dimension `da` of `a` and `db` of `b`, and the dtypes must be equal.
#[track_caller]
#[inline]
fn check(op: &str, a: &Tensor, b: &Tensor, da: usize, db: usize) {
    let (x, y) = (a.shape()[da], b.shape()[db]);
    if x != y {
        let rule = format!("dimension {da} of the first ({x}) must equal {db} of the second ({y})");
        mismatch(op, a, b, &rule)
    }
    if a.dtype() != b.dtype() {
        mismatch(op, a, b, "the dtypes must be equal; convert with `.to_dtype`")
    }
}

#[track_caller]
fn dimensions(op: &str, a: &Tensor, b: &Tensor, n: usize) {
    if a.dim() != n || b.dim() != n {
        mismatch(
            op,
            a,
            b,
            &format!("both must have {n} dimension{}", if n == 1 { "" } else { "s" }),
        )
    }
}

#[track_caller]
#[cold]
fn mismatch(op: &str, a: &Tensor, b: &Tensor, rule: &str) -> ! {
    let message = format!(
        "shapes {:?} ({}) and {:?} ({}) do not fit: {rule}",
        a.shape(),
        a.dtype(),
        b.shape(),
        b.dtype()
    );
    throw(if a.dtype() != b.dtype() && rule.starts_with("the dtypes") {
        Error::dtype(op, message)
    } else {
        Error::shape(op, message)
    })
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let matmul = |a: &[usize], b: &[usize]| {
        let inputs = [values(a, 1), values(b, 2)];
        OpSample::new(format!("matmul({a:?}, {b:?})"), inputs, |x| x[0].matmul(&x[1])).slack(4.0)
    };
    vec![
        matmul(&[3, 4], &[4, 2]),
        matmul(&[4], &[4]),
        matmul(&[3, 4], &[4]),
        matmul(&[4], &[4, 2]),
        matmul(&[4], &[2, 4, 3]),
        matmul(&[2, 3, 4], &[4]),
        matmul(&[2, 3, 4], &[4, 5]),
        matmul(&[3, 4], &[2, 4, 5]),
        matmul(&[2, 1, 3, 4], &[3, 4, 2]),
        matmul(&[2, 0], &[0, 3]),
        OpSample::new("bmm", [values([2, 3, 4], 1), values([2, 4, 5], 2)], |x| x[0].bmm(&x[1]))
            .slack(4.0),
        OpSample::new("addmm", [values([4], 3), values([2, 3], 1), values([3, 4], 2)], |x| {
            x[0].addmm(&x[1], &x[2], 0.5, 2.0)
        })
        .slack(4.0),
        OpSample::new("outer", [values([3], 1), values([4], 2)], |x| x[0].outer(&x[1])),
        OpSample::new("linear", [values([2, 3, 4], 1), values([5, 4], 2), values([5], 3)], |x| {
            x[0].linear(&x[1], Some(&x[2]))
        })
        .slack(4.0),
        OpSample::new("linear(no bias, vector)", [values([4], 1), values([5, 4], 2)], |x| {
            x[0].linear(&x[1], None)
        })
        .slack(4.0),
    ]
}

crate::ops::table::ops! {
    self { samples, kernels: [cuda::programs] }
    feed_forward { samples }
}

/// `matmul` by its definition for batches of matrices that broadcast, which the fast one is tested
/// against.
#[cfg(test)]
fn reference(a: &Tensor, b: &Tensor) -> Vec<f64> {
    let (m, k, n) = (a.size(-2), a.size(-1), b.size(-1));
    let batch =
        broadcast_shapes(&a.shape()[..a.dim() - 2], &b.shape()[..b.dim() - 2]).expect("fits");
    let stretch = |t: &Tensor| {
        let mut shape = batch.clone();
        shape.extend_from_slice(&t.shape()[t.dim() - 2..]);
        t.expand(&shape).to_vec::<f64>()
    };
    let (a, b) = (stretch(a), stretch(b));
    let items = a.chunks(m * k).zip(b.chunks(k * n));
    items.flat_map(|(a, b)| crate::cpu::products::gemm::reference((m, n, k), a, b)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{
        Dtype::BF16, Dtype::Bool, Dtype::F16, Dtype::F32, Dtype::F64, Dtype::I8, Dtype::I64,
    };

    #[test]
    fn all_dtypes_and_batches_equal_the_definition() {
        for (a, b) in [
            (&[3, 4][..], &[4, 5][..]),
            (&[2, 3, 4], &[4, 5]),
            (&[3, 4], &[2, 4, 5]),
            (&[2, 1, 3, 4], &[3, 4, 2]),
            (&[40, 70], &[70, 90]),
        ] {
            let numbers = |shape: &[usize], seed: u64| {
                let v: Vec<f64> =
                    values(shape, seed).to_vec::<f64>().iter().map(|v| (v * 3.0).round()).collect();
                Tensor::from_slice(&v, shape)
            };
            let (a, b) = (numbers(a, 1), numbers(b, 2));
            let want = reference(&a, &b);
            for dtype in [F64, F32, I64] {
                let y = a.to_dtype(dtype).matmul(&b.to_dtype(dtype));
                assert_eq!((y.dtype(), y.to_vec::<f64>()), (dtype, want.clone()));
                let strided = a.transpose(-1, -2).contiguous().transpose(-1, -2).to_dtype(dtype);
                assert_eq!(strided.matmul(&b.to_dtype(dtype)).to_vec::<f64>(), want);
            }
            for dtype in [F16, BF16] {
                let y = a.to_dtype(dtype).matmul(&b.to_dtype(dtype)).to_vec::<f64>();
                let rounded =
                    Tensor::from_slice(&want, [want.len()]).to_dtype(dtype).to_vec::<f64>();
                assert_eq!(y, rounded, "one rounding to {dtype}");
            }
        }
    }

    #[test]
    fn integers_wrap_and_addmm_ignores_self_without_beta() {
        let a = Tensor::from([[100i8, 100]]);
        assert_eq!(a.matmul(&a.t()).to_vec::<i64>(), [20000i64 as i8 as i64]);
        assert_eq!(
            Tensor::from([[1i8]]).addmm(&a, &a.t(), 3.0, 1.0).to_vec::<i8>(),
            [20003i64 as i8]
        );
        assert_eq!(a.dtype(), I8);
        let x = Tensor::from([[2f32]]);
        assert_eq!(Tensor::from([f32::NAN]).addmm(&x, &x, 0.0, 1.0).item(), 4.0);
    }

    #[test]
    fn mismatches_name_both_shapes_and_the_rule() {
        let z = |shape: &[usize]| Tensor::zeros(shape, F32);
        let text =
            |a: &Tensor, b: &Tensor| crate::error::catch(|| a.matmul(b)).unwrap_err().to_string();
        let message = text(&z(&[2, 3]), &z(&[4, 5]));
        assert!(
            message.contains("[2, 3]") && message.contains("[4, 5]") && message.contains("(3)"),
            "{message}"
        );
        assert!(text(&z(&[2, 2, 3]), &z(&[3, 3, 5])).contains("broadcast"));
        assert!(text(&z(&[2, 3]), &Tensor::zeros([3, 2], F64)).contains("dtypes"));
        assert!(text(&z(&[]), &z(&[3])).contains("0-dim"));
        let bools = Tensor::zeros([2, 2], Bool);
        assert!(text(&bools, &bools).contains("bool"));
        let message =
            crate::error::catch(|| z(&[2, 3]).linear(&z(&[4, 5]), None)).unwrap_err().to_string();
        assert!(message.contains("[2, 3]") && message.contains("[4, 5]"), "{message}");
    }
}
