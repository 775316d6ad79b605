//! Product: `y = prod_i x_i`; `dx_i = g prod_{j != i} x_j`, which is `g y / x_i` where all products
//! are in range, and the product of an exclusive prefix and an exclusive suffix where one is zero or infinite.

use smallvec::smallvec;

use super::cuda::{Finish, reduce};
use super::dims::{Dims, simple_fold};
use crate::amp::cast_op;
use crate::autograd::record;
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::gpu;
use crate::tensor::{Dtype, Tensor, dtype::assert_real};

simple_fold! { Prod32<f32> -> f32, identity 1.0, map |x| x, combine |a, b| a * b }
simple_fold! { Prod64<f64> -> f64, identity 1.0, map |x| x, combine |a, b| a * b }
simple_fold! { ProdInt<i64> -> i64, identity 1, map |x| x, combine |a, b| a.wrapping_mul(b) }

/// The product, not recorded.
fn prod_of(x: &Tensor, dims: &Dims) -> Tensor {
    let dtype = if x.dtype().is_floating_point() { x.dtype() } else { Dtype::I64 };
    if let Some(gpu) = gpu::of("prod", &[x]) {
        return reduce(gpu, "Prod", x, dims, dtype, Finish::Nothing);
    }
    let x = x.detach().to_dtype(dtype.compute());
    let out = match x.dtype() {
        Dtype::F64 => dims.fold(&Prod64, &x),
        Dtype::F32 => dims.fold(&Prod32, &x),
        _ => dims.fold(&ProdInt, &x),
    };
    out.to_dtype(dtype)
}

impl Tensor {
    /// Product of all elements (`torch.prod`): of the tensor's type; i64 for integers and bools.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([2i64, 3, 4]).prod().item(), 24.0);
    /// ```
    #[track_caller]
    pub fn prod(&self) -> Tensor {
        self.reshape([-1]).prod_dim(0, false)
    }

    /// Products along `dim` (`torch.prod(dim, keepdim)`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[2i64, 3], [4, 5]]).prod_dim(1, false).to_vec::<i64>(), [6, 20]);
    /// ```
    ///
    /// # Panics
    /// Throws when the dimension is out of range.
    #[track_caller]
    pub fn prod_dim(&self, dim: i64, keepdim: bool) -> Tensor {
        cast_op!("prod", [x = self] => x.prod_dim(dim, keepdim));
        let dims = Dims::new("prod", self, &[dim], keepdim);
        assert_real("prod", self.dtype());
        let dim = self.normalize_dim("prod", dim) as i64;
        let out = prod_of(self, &dims);
        record("prod", &[self], out, |saver| {
            let (x, y) = (saver.save(self), saver.save_output(0));
            move |ctx| {
                let x = ctx.get(&x);
                let g = dims.restore(&ctx.grad(0), x.shape());
                if x.numel() == 0 || x.dim() == 0 {
                    return smallvec![Some(g.expand(x.shape()))];
                }
                // On a GPU to look for a zero is to wait for it, which PyTorch does too. A product that left the
                // type's range says as little of the others' products.
                let y = dims.restore(&ctx.get(&y), x.shape());
                let size = y.detach().abs();
                let ordinary = size.gt(0.0).logical_and(&size.lt(f64::INFINITY));
                let grad = if ordinary.all().is_true_or(true) {
                    g * y / &x
                } else {
                    g * products_of_the_others(&x, dim, ctx.create_graph())
                };
                smallvec![Some(grad)]
            }
        })
    }
}

/// For every element of `x`, the product of the others along `dim`.
fn products_of_the_others(x: &Tensor, dim: i64, differentiable: bool) -> Tensor {
    let n = x.size(dim);
    if differentiable {
        // Quadratic, but made of products: it can be differentiated any number of times.
        let without = |i: usize| {
            let (left, right) = (x.narrow(dim, 0, i), x.narrow(dim, i + 1, n - i - 1));
            Tensor::cat(&[left, right], dim).prod_dim(dim, true)
        };
        return Tensor::cat(&(0..n).map(without).collect::<Vec<_>>(), dim);
    }
    let one = x.narrow(dim, 0, 1).ones_like();
    let before = |x: &Tensor| Tensor::cat(&[&one, &x.narrow(dim, 0, n - 1)], dim).cumprod(dim);
    let others = before(x) * before(&x.flip(&[dim])).flip(&[dim]);
    // Beside a zero a product of finite numbers is 0, though the others overflow.
    let zero = x.eq(0.0).to_dtype(Dtype::I64);
    let finite = x.isfinite().all_dim(&[dim], true);
    let beside = zero.sum_dim(&[dim], true).gt(&zero).logical_and(&finite);
    others.masked_fill(&beside, 0.0)
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    let with = |zeros: &[usize]| {
        let mut data = values([3, 4], 5).to_vec::<f64>();
        zeros.iter().for_each(|&i| data[i] = 0.0);
        vec![Tensor::from_slice(&data, [3, 4])]
    };
    vec![
        OpSample::new("prod", with(&[]), |x| x[0].prod()).slack(4.0),
        OpSample::new("prod(dim=1)", with(&[]), |x| x[0].prod_dim(1, false)).slack(4.0),
        OpSample::new("prod(dim=0, keepdim), zeros", with(&[1, 6, 10]), |x| x[0].prod_dim(0, true))
            .slack(4.0),
        OpSample::new("prod, a zero", with(&[5]), |x| x[0].prod()).slack(4.0),
        OpSample::new("prod, 0-dim", [values([], 1)], |x| x[0].prod()),
        OpSample::new("prod, empty", [values([2, 0], 1)], |x| x[0].prod_dim(1, false)),
        OpSample::new("prod, u8", [Tensor::from([3u8, 100])], |x| x[0].prod()),
    ]
}
