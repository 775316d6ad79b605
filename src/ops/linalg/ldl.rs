//! `A = L D L^T` of symmetric matrices, and solutions by it. Derivatives are not known, as in PyTorch; of a solution
//! that by the right side is `dB = A^-1 dX`.

use smallvec::smallvec;

use super::batch::Batch;
use super::checks::{check_matrices, check_rows, check_square};
use super::on_host::each_anywhere;
use crate::autograd::{BackwardCtx, record};
use crate::cpu::linalg;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::tensor::{Dtype, Tensor, broadcast_shapes};

/// The factors of symmetric matrices, of which the lower triangle is read (`torch.linalg.ldl_factor`): below the diagonal
/// L, whose own diagonal is 1, on and beside the diagonal D, which has blocks of one and of two rows; and LAPACK's pivots,
/// i32 `[.., n]`, negative for blocks of two. For [`ldl_solve`]. The CPU computes both, of a GPU's matrices too.
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let a = Tensor::from([[4f64, 0.], [2., 3.]]);
/// let (factors, pivots) = linalg::ldl_factor(&a);
/// assert_eq!((factors.to_vec::<f64>(), pivots.to_vec::<i32>()), (vec![4.0, 0.0, 0.5, 2.0], vec![1, 2]));
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] unless the matrices are square, [`Error::Dtype`] for types other than f32 and f64, and
/// [`Error::Argument`] for a matrix of which a block of D is zero. Backward throws [`Error::Autograd`].
#[track_caller]
pub fn ldl_factor(a: &Tensor) -> (Tensor, Tensor) {
    let (factors, pivots, batch) = factors("linalg.ldl_factor", a);
    batch.expect("linalg.ldl_factor", |block| {
        format!("has no factors to solve with: block {block} of D is zero; ldl_factor_ex takes it")
    });
    (factors, pivots)
}

/// [`ldl_factor`] of any symmetric matrices: `info` has the number, counted from 1, of the first block of D that is zero,
/// or 0 (`torch.linalg.ldl_factor_ex`).
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let (_, _, info) = linalg::ldl_factor_ex(&Tensor::from([[0f64, 0.], [0., 1.]]));
/// assert_eq!(info.item(), 1.0);
/// ```
///
/// # Panics
/// As [`ldl_factor`] for shapes and types.
#[track_caller]
pub fn ldl_factor_ex(a: &Tensor) -> (Tensor, Tensor, Tensor) {
    let (factors, pivots, batch) = factors("linalg.ldl_factor_ex", a);
    (factors, pivots, batch.info)
}

#[track_caller]
fn factors(op: &'static str, a: &Tensor) -> (Tensor, Tensor, Batch) {
    check_square(op, a);
    let n = a.size(-1);
    let mut batch = each_anywhere(op, &[a], &[&[n, n], &[n]], &|inputs, out| {
        let mut whole = inputs[0].to_vec();
        let mut pivots = vec![0; n];
        let info = linalg::ldl(&mut whole, n, &mut pivots);
        for i in 0..n {
            out[0][i * n..=i * n + i].copy_from_slice(&whole[i * n..=i * n + i]);
        }
        out[1].iter_mut().zip(pivots).for_each(|(out, pivot)| *out = pivot as f64);
        info
    });
    let pivots = batch.outputs.remove(1).to_dtype(Dtype::I32);
    let factors = record("ldl_factor", &[a], batch.outputs.remove(0), |_| {
        move |_: &BackwardCtx<'_>| throw(Error::Autograd(format!("{op} has no derivative")))
    });
    (factors, pivots, batch)
}

/// X with `A X = B` for matrices `B` and the factors that [`ldl_factor`] gave (`torch.linalg.ldl_solve`); batches
/// broadcast.
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let (factors, pivots) = linalg::ldl_factor(&Tensor::from([[0f64, 2.], [2., 0.]]));
/// let x = linalg::ldl_solve(&factors, &pivots, &Tensor::from([[2f64], [6.]]));
/// assert_eq!(x.to_vec::<f64>(), [3.0, 1.0]);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when shapes do not fit, [`Error::Dtype`] for types other than f32 and f64, or two types, and for
/// pivots that are not i32; [`Error::Argument`] for pivots that are no rows. Backward throws [`Error::Autograd`] for
/// factors that require a gradient.
#[track_caller]
pub fn ldl_solve(factors: &Tensor, pivots: &Tensor, b: &Tensor) -> Tensor {
    let op = "linalg.ldl_solve";
    check_square(op, factors);
    check_matrices(op, b);
    check_rows(op, factors, b);
    if factors.dtype() != b.dtype() {
        let (f, b) = (factors.dtype(), b.dtype());
        throw(Error::dtype(op, format!("takes one type, got {f} and {b}")));
    }
    if pivots.dtype() != Dtype::I32 {
        throw(Error::dtype(op, format!("takes pivots of type i32, got {}", pivots.dtype())));
    }
    if pivots.shape() != &factors.shape()[..factors.dim() - 1] {
        let (p, a) = (pivots.shape(), factors.shape());
        let message = format!("pivots of shape {p:?} for factors of shape {a:?}; one per row");
        throw(Error::shape(op, message));
    }
    let (x, y) = (factors.shape(), b.shape());
    let Ok(shape) = broadcast_shapes(&x[..x.len() - 2], &y[..y.len() - 2]) else {
        throw(Error::shape(op, format!("the batches of {x:?} and {y:?} do not broadcast")))
    };
    let full =
        |t: &Tensor, own: usize| t.expand(&[&shape[..], &t.shape()[t.dim() - own..]].concat());
    let (all, b) = (full(factors, 2), full(b, 2));
    let rows = full(pivots, 1).to_dtype(b.dtype()).unsqueeze(-1);
    let (n, k) = (b.size(-2), b.size(-1));
    let batch = each_anywhere(op, &[&all, &rows, &b], &[&[n, k]], &|inputs, out| {
        let pivots: Vec<i64> = inputs[1].iter().map(|&pivot| pivot as i64).collect();
        out[0].copy_from_slice(inputs[2]);
        usize::from(!linalg::solve_ldl(inputs[0], n, &pivots, out[0], k))
    });
    batch.expect(op, |_| format!("has pivots that are not from 1 to {n}, or from -{n} to -1"));
    let (own, pivots) = (factors.detach(), pivots.clone());
    record("ldl_solve", &[&all, &b], batch.single(), |_| {
        move |ctx: &BackwardCtx<'_>| {
            if ctx.needs(0) {
                let message = "linalg.ldl_solve has no derivative by the factors";
                throw(Error::Autograd(message.into()));
            }
            smallvec![None, Some(ldl_solve(&own, &pivots, &ctx.grad(0)))]
        }
    })
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::{heavy, sample};
    use crate::ops::checks::samples::Order;
    fn symmetric(x: &Tensor) -> Tensor {
        heavy(x) + x.mt()
    }
    vec![
        sample("ldl_factor", &[&[2, 3, 3]], |x| ldl_factor(&symmetric(&x[0]).detach()).0)
            .order(Order::None),
        sample("ldl_factor, pivots", &[&[3, 3]], |x| ldl_factor_ex(&symmetric(&x[0])).1)
            .order(Order::None),
        sample("ldl_solve", &[&[2, 3, 3], &[3, 2]], |x| {
            let (factors, pivots) = ldl_factor(&symmetric(&x[0]).detach());
            ldl_solve(&factors, &pivots, &x[1])
        })
        .order(Order::None),
        sample("ldl_solve, by the right side", &[&[2, 3, 2]], |x| {
            let options = (x[0].dtype(), x[0].device());
            let a = Tensor::full([3, 3], 1.5, options) + Tensor::eye(3, options) * 2.0;
            let (factors, pivots) = ldl_factor(&a);
            ldl_solve(&factors, &pivots, &x[0])
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;
    use crate::ops::random::Generator;

    #[test]
    fn solutions_are_those_of_the_matrices() {
        for n in [1, 2, 3, 6, 20] {
            let x = Generator::new(n as u64).randn([2, n, n], Dtype::F64);
            let a = &x + x.mt();
            let b = Generator::new(9).randn([n, 3], Dtype::F64).requires_grad_(true);
            let (factors, pivots) = ldl_factor(&a);
            assert!(factors.triu(1).abs().sum().item() == 0.0);
            let found = ldl_solve(&factors, &pivots, &b);
            assert!((a.matmul(&found) - &b).abs().max().item() < 1e-8, "{n}");
            found.sum().backward();
            let ones = Tensor::ones([2, n, 3], Dtype::F64);
            let expected = super::super::solve(&a, &ones).sum_dim(&[0], false);
            assert!((b.grad().unwrap() - expected).abs().max().item() < 1e-8, "{n}");
        }
    }

    #[test]
    fn zeros_on_the_diagonal_make_blocks_of_two() {
        let a = Tensor::from([[0f64, 1., 2.], [1., 0., 3.], [2., 3., 0.]]);
        let (factors, pivots) = ldl_factor(&a);
        assert!(pivots.to_vec::<i32>().iter().any(|pivot| *pivot < 0));
        let b = Tensor::from([[1f64], [2.], [3.]]);
        let x = ldl_solve(&factors, &pivots, &b);
        assert!((a.matmul(&x) - b).abs().max().item() < 1e-12);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let zero = Tensor::zeros([2, 2], Dtype::F64);
        let refused = |f: &dyn Fn(), what: &str| {
            let error = catch(f).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        refused(&|| _ = ldl_factor(&zero), "block 1");
        let (factors, pivots) = ldl_factor(&Tensor::from([[1f64, 0.], [0., 1.]]));
        refused(&|| _ = ldl_solve(&factors, &pivots.long(), &zero), "i32");
        refused(&|| _ = ldl_solve(&factors, &(&pivots + 5).int(), &zero), "pivots");
        refused(&|| _ = ldl_solve(&factors, &pivots, &Tensor::zeros([3, 1], Dtype::F64)), "rows");
        let a = Tensor::from([[2f64]]).requires_grad_(true);
        refused(&|| ldl_factor(&a).0.sum().backward(), "derivative");
        let (factors, pivots) = ldl_factor(&a);
        let b = Tensor::from([[1f64]]);
        refused(&|| ldl_solve(&factors, &pivots, &b).sum().backward(), "factors");
    }
}
