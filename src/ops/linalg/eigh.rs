//! `A = V w V^T` of symmetric matrices. With `E_ij = w_j - w_i`
//!
//! ```text
//! dA = V (diag(dw) + (V^T dV - dV^T V) / 2 E) V^T
//! ```
//!
//! which is symmetric, whichever triangle was read.

use smallvec::smallvec;

use super::batch::each;
use super::checks::{check_square, gaps};
use super::cuda;
use super::options::Uplo;
use crate::amp::cast_op;
use crate::autograd::{is_differentiated, no_grad, record_many};
use crate::cpu::linalg;
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::ops::gpu;
use crate::tensor::Tensor;

/// Eigenvalues in rising order, `[.., n]`, and eigenvectors as columns, `[.., n, n]`, of symmetric
/// matrices (`torch.linalg.eigh`). The vectors' gradients are finite only where no two values are
/// equal. Those of a matrix that holds NaN or infinity are NaN.
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) unless the matrices are square,
/// [`Error::Dtype`](crate::Error::Dtype) for types other than f32 and f64, and
/// [`Error::Argument`](crate::Error::Argument) if the steps do not converge, which no matrix is known
/// to bring about.
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let (w, v) = linalg::eigh(&Tensor::from([[2f64, 0.], [0., 1.]]), linalg::Uplo::L);
/// assert_eq!(w.to_vec::<f64>(), [1., 2.]);
/// assert_eq!(v.abs().to_vec::<f64>(), [0., 1., 1., 0.]);
/// ```
#[track_caller]
pub fn eigh(a: &Tensor, uplo: Uplo) -> (Tensor, Tensor) {
    cast_op!("eigh", [x = a] => eigh(&x, uplo));
    let outputs = decompose("linalg.eigh", a, uplo, true);
    let [w, v]: [Tensor; 2] = outputs.try_into().expect("two outputs");
    (w, v)
}

/// The eigenvalues of [`eigh`] (`torch.linalg.eigvalsh`). Their gradient is finite for equal values
/// too.
///
/// ```
/// use torchrs::{linalg, Tensor};
/// use torchrs::linalg::Uplo;
/// let expected = Tensor::from([1.0, 3.0]);
/// let y = linalg::eigvalsh(&Tensor::from([[2f64, 1.], [1., 2.]]), Uplo::L);
/// assert!(y.allclose(&expected, Default::default()));
/// ```
///
/// # Panics
/// As [`eigh`].
#[track_caller]
pub fn eigvalsh(a: &Tensor, uplo: Uplo) -> Tensor {
    cast_op!("eigvalsh", [x = a] => eigvalsh(&x, uplo));
    decompose("linalg.eigvalsh", a, uplo, is_differentiated(&[a])).swap_remove(0)
}

#[track_caller]
fn decompose(op: &str, a: &Tensor, uplo: Uplo, vectors: bool) -> Vec<Tensor> {
    check_square(op, a);
    let n = a.size(-1);
    let rows = if vectors { n } else { 0 };
    let batch = match gpu::of(op, &[a]) {
        Some(gpu) => no_grad(|| cuda::eigh(gpu, a, uplo, vectors)),
        None => each(&[a], &[&[n], &[n, rows]], &|inputs, out| {
            // Both triangles from the one that counts.
            let at = |i: usize, j: usize| {
                let (low, high) = (i.min(j), i.max(j));
                inputs[0][if uplo == Uplo::L { high * n + low } else { low * n + high }]
            };
            let whole = (0..n * n).map(|k| at(k / n, k % n)).collect();
            let Some((w, v)) = linalg::eigh(whole, n, vectors) else { return 1 };
            out[0].copy_from_slice(&w);
            out[1].copy_from_slice(&linalg::transpose(&v, rows, n));
            0
        }),
    };
    batch.expect(op, |_| "has eigenvalues to which the steps do not converge".into());
    record_many("eigh", &[a], &batch.outputs, |saver| {
        let (w, v) = (saver.save_output(0), saver.save_output(1));
        move |ctx| {
            let (w, v, dw) = (ctx.get(&w), ctx.get(&v), ctx.grad(0));
            let Some(dv) = ctx.grad_opt(1) else {
                return smallvec![Some((&v * dw.unsqueeze(-2)).matmul(&v.mt()))];
            };
            let turned = v.mt().matmul(&dv);
            let inner = (&turned - turned.mt()) * 0.5 / gaps(&w) + dw.diag_embed(0, -2, -1);
            smallvec![Some(v.matmul(&inner).matmul(&v.mt()))]
        }
    });
    batch.outputs
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::sample;
    fn symmetric(x: &Tensor) -> Tensor {
        x + x.mt()
    }
    vec![
        sample("eigh", &[&[2, 3, 3]], |x| {
            let (w, v) = eigh(&symmetric(&x[0]), Uplo::L);
            (v.square() * w.unsqueeze(-2)).sin().sum() + w.cos().sum()
        })
        .slack(512.0),
        sample("eigvalsh", &[&[2, 3, 3]], |x| eigvalsh(&symmetric(&x[0]), Uplo::U)),
        sample("eigvalsh, empty", &[&[2, 0, 0]], |x| eigvalsh(&x[0], Uplo::L)),
    ]
}
