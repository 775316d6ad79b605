//! Determinants: `dA = d adj(A)^T`, where the adjugate is `det(A) A^-1`, or for singular matrices
//! `det(U) det(V) V diag(products of the other singular values) U^T`; where that is to be differentiated again, minors.

use smallvec::smallvec;

use super::batch::{Batch, each};
use super::checks::{check_square, eye_like};
use super::{cuda, inv_ex, svd};
use crate::amp::cast_op;
use crate::autograd::{no_grad, record};
use crate::cpu::linalg;
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::ops::gpu::{self, Gpu};
use crate::tensor::{Dtype, Tensor};

/// The determinant of each matrix, `[..]` (`torch.linalg.det`); that of `0 x 0` is 1.
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) unless the matrices are square and
/// [`Error::Dtype`](crate::Error::Dtype) for types other than f32 and f64.
///
/// ```
/// use torchrs::{Tensor, linalg};
/// assert_eq!(linalg::det(&Tensor::from([[2f64, 1.], [4., 6.]])).item(), 8.0);
/// ```
#[track_caller]
pub fn det(a: &Tensor) -> Tensor {
    cast_op!("det", [x = a] => det(&x));
    check_square("linalg.det", a);
    let d = match gpu::of("linalg.det", &[a]) {
        Some(gpu) => no_grad(|| {
            let (pivots, sign) = on_gpu(gpu, a);
            pivots.prod_dim(-1, false) * sign
        }),
        None => eliminated(a, &[&[]], |pivots, sign, out| {
            out[0][0] = pivots.fold(sign, |d, pivot| d * pivot);
        })
        .single(),
    };
    record("det", &[a], d, |saver| {
        let (a, d) = (saver.save(a), saver.save_output(0));
        move |ctx| {
            let (a, d, g) = (ctx.get(&a), ctx.get(&d), ctx.grad(0));
            let matrices = |x: &Tensor| x.unsqueeze(-1).unsqueeze(-1);
            smallvec![Some(if !d.detach().eq(0.0).any().is_true_or(false) {
                matrices(&(g * d)) * inv_ex(&a).0.mt()
            } else if ctx.create_graph() && a.size(-1) <= MINORS {
                matrices(&g) * minors(&a)
            } else {
                matrices(&g) * cofactors(&a)
            })]
        }
    })
}

/// Size of matrices up to which second derivatives of vanishing determinants are made of minors.
const MINORS: usize = 64;

/// The matrices of cofactors as determinants of minors, which can be differentiated any number of times, at any rank:
/// a singular value decomposition cannot where two singular values are equal or one is 0.
fn minors(a: &Tensor) -> Tensor {
    let n = a.size(-1);
    let without = |t: &Tensor, dim: i64, i: usize| {
        Tensor::cat(&[t.narrow(dim, 0, i), t.narrow(dim, i + 1, n - i - 1)], dim)
    };
    let mut all = vec![];
    for i in 0..n {
        let rows = without(a, -2, i);
        for j in 0..n {
            let minor = det(&without(&rows, -1, j));
            all.push(if (i + j) % 2 == 0 { minor } else { -minor });
        }
    }
    Tensor::stack(&all, -1).reshape_to(a.shape())
}

/// The transposed adjugates of matrices that may be singular.
fn cofactors(a: &Tensor) -> Tensor {
    let (u, s, vt) = svd(a, true);
    // Row i of S with a 1 in place of value i.
    let eye = eye_like(a);
    let others = (s.unsqueeze(-2) * (1.0 - &eye) + eye).prod_dim(-1, false);
    let sign = (det(&u) * det(&vt)).unsqueeze(-1);
    (u * (others * sign).unsqueeze(-2)).matmul(&vt)
}

/// The sign of each determinant (0 if it is 0) and the logarithm of its magnitude
/// (`torch.linalg.slogdet`), for determinants that are too large or too small for their type.
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let (sign, logarithm) = linalg::slogdet(&Tensor::from([[2f64, 0.], [0., -3.]]));
/// assert!(sign.item() == -1.0 && (logarithm.item() - 6f64.ln()).abs() < 1e-12);
/// ```
///
/// # Panics
/// As [`det`].
#[track_caller]
pub fn slogdet(a: &Tensor) -> (Tensor, Tensor) {
    check_square("linalg.slogdet", a);
    let [sign, logarithm]: [Tensor; 2] = match gpu::of("linalg.slogdet", &[a]) {
        Some(gpu) => no_grad(|| {
            let (pivots, sign) = on_gpu(gpu, a);
            let signs = pivots.sign().prod_dim(-1, false);
            [signs * sign, pivots.abs().log().sum_dim(&[-1], false)]
        }),
        None => {
            let both = eliminated(a, &[&[], &[]], |pivots, sign, out| {
                let start = (sign, 0.0);
                let signum = |x: f64| if x == 0.0 { 0.0 } else { x.signum() };
                let step = |(sign, log): (f64, f64), p: f64| (sign * signum(p), log + p.abs().ln());
                (out[0][0], out[1][0]) = pivots.fold(start, step);
            });
            both.outputs.try_into().expect("two outputs")
        }
    };
    let logarithm = record("slogdet", &[a], logarithm, |saver| {
        let a = saver.save(a);
        move |ctx| {
            let g = ctx.grad(0).unsqueeze(-1).unsqueeze(-1);
            smallvec![Some(g * inv_ex(&ctx.get(&a)).0.mt())]
        }
    });
    (sign, logarithm)
}

/// The pivots of each matrix's elimination on a GPU, and the sign of its row exchanges.
#[track_caller]
fn on_gpu(gpu: Gpu, a: &Tensor) -> (Tensor, Tensor) {
    let n = a.size(-1);
    let [factors, pivots]: [Tensor; 2] =
        cuda::lu(gpu, a).outputs.try_into().expect("factors and pivots");
    let stays = Tensor::arange(1, n as i64 + 1, 1, (Dtype::I32, a.device()));
    let exchanged = pivots.ne(&stays).to_dtype(a.dtype());
    (factors.diagonal(0, -2, -1), (1.0 - exchanged * 2.0).prod_dim(-1, false))
}

/// Calls `f` with the pivots of each matrix's elimination and the sign of its row exchanges.
fn eliminated(
    a: &Tensor,
    shapes: &[&[usize]],
    f: impl Fn(&mut dyn Iterator<Item = f64>, f64, &mut [&mut [f64]]) + Sync,
) -> Batch {
    let n = a.size(-1);
    each(&[a], shapes, &|inputs, out| {
        let (mut factors, mut pivots) = (inputs[0].to_vec(), vec![0; n]);
        linalg::lu(&mut factors, n, n, &mut pivots);
        let exchanges = pivots.iter().enumerate().filter(|(i, p)| i != *p).count();
        let sign = if exchanges % 2 == 0 { 1.0 } else { -1.0 };
        f(&mut factors.iter().copied().step_by(n + 1), sign, out);
        0
    })
}

impl Tensor {
    /// [`linalg::det`](det) (`torch.Tensor.det`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert!((Tensor::from([[1f64, 2.], [3., 4.]]).det().item() - -2.0).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// As [`linalg::det`](det).
    #[track_caller]
    pub fn det(&self) -> Tensor {
        det(self)
    }

    /// [`linalg::slogdet`](slogdet) (`torch.Tensor.slogdet`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let huge = Tensor::eye(200, Dtype::F32) * 100.0;
    /// assert_eq!((huge.det().item(), huge.slogdet().0.item()), (f64::INFINITY, 1.0));
    /// let expected = Tensor::from([(200.0 * 100f64.ln()) as f32]);
    /// assert!(huge.slogdet().1.allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// As [`linalg::slogdet`](slogdet).
    #[track_caller]
    pub fn slogdet(&self) -> (Tensor, Tensor) {
        slogdet(self)
    }

    /// The logarithm of each determinant (`torch.logdet`): minus infinity if that is 0, NaN if it is
    /// negative.
    ///
    /// # Panics
    /// As [`linalg::det`](det).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[1f64, 0.], [0., 1.]]).logdet().item(), 0.0);
    /// ```
    #[track_caller]
    pub fn logdet(&self) -> Tensor {
        let (sign, logarithm) = slogdet(self);
        logarithm.masked_fill(&sign.lt(0.0), f64::NAN)
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::{positive, sample};
    vec![
        sample("det", &[&[2, 3, 3]], |x| det(&x[0])),
        sample("det, empty", &[&[2, 0, 0]], |x| det(&x[0])),
        sample("slogdet", &[&[2, 3, 3]], |x| slogdet(&x[0]).1),
        sample("logdet", &[&[2, 3, 3]], |x| positive(&x[0]).logdet()),
    ]
}
