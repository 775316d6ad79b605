//! Factors and functions of matrices that are made of other factors.

use super::checks::{check_matrices, check_square};
use super::lu::unpacked;
use super::{Uplo, eigh, svd};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::tensor::Tensor;

/// P, L and U, as [`lu`](super::lu()) gives them, of the factors and pivots of [`lu_factor`](super::lu_factor)
/// (`torch.lu_unpack`).
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let a = Tensor::from([[1f64, 2.], [4., 4.]]);
/// let (factors, pivots) = linalg::lu_factor(&a);
/// let (p, l, u) = linalg::lu_unpack(&factors, &pivots);
/// assert!(p.matmul(&l).matmul(&u).allclose(&a, Default::default()));
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when the pivots do not fit, [`Error::Dtype`] for types other than f32 and f64, and
/// [`Error::Argument`] for pivots that are no rows.
#[track_caller]
pub fn lu_unpack(factors: &Tensor, pivots: &Tensor) -> (Tensor, Tensor, Tensor) {
    let op = "lu_unpack";
    check_matrices(op, factors);
    let (m, n) = (factors.size(-2), factors.size(-1));
    let expected = [&factors.shape()[..factors.dim() - 2], &[m.min(n)]].concat();
    if pivots.shape() != expected {
        let p = pivots.shape();
        throw(Error::shape(op, format!("pivots of shape {p:?}; must be {expected:?}")));
    }
    unpacked(op, factors, pivots)
}

/// The symmetric square root of symmetric positive-definite matrices, of which the lower triangle is read
/// (`torch.linalg.matrix_sqrth`).
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let root = linalg::matrix_sqrth(&Tensor::from([[4f64, 0.], [0., 9.]]));
/// assert!(root.allclose(&Tensor::from([[2f64, 0.], [0., 3.]]), Default::default()));
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] unless the matrices are square, and [`Error::Dtype`] for types other than f32 and f64.
#[track_caller]
pub fn matrix_sqrth(a: &Tensor) -> Tensor {
    check_square("linalg.matrix_sqrth", a);
    let (w, v) = eigh(a, Uplo::L);
    (&v * w.sqrt().unsqueeze(-2)).matmul(&v.mt())
}

/// U with orthonormal columns and H, symmetric and positive semidefinite, with `A = U H`, for matrices with at least as
/// many rows as columns (`torch.linalg.polar`).
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let (u, h) = linalg::polar(&Tensor::from([[0f64, -2.], [3., 0.]]));
/// assert!(u.allclose(&Tensor::from([[0f64, -1.], [1., 0.]]), Default::default()));
/// assert!(h.allclose(&Tensor::from([[3f64, 0.], [0., 2.]]), Default::default()));
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] for fewer rows than columns, and [`Error::Dtype`] for types other than f32 and f64.
#[track_caller]
pub fn polar(a: &Tensor) -> (Tensor, Tensor) {
    let op = "linalg.polar";
    check_matrices(op, a);
    if a.size(-2) < a.size(-1) {
        let shape = a.shape();
        throw(Error::shape(
            op,
            format!("shape {shape:?}; must have as many rows as columns at least"),
        ));
    }
    let (u, s, vt) = svd(a, false);
    (u.matmul(&vt), (vt.mt() * s.unsqueeze(-2)).matmul(&vt))
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::{heavy, positive, sample};
    use crate::ops::checks::samples::Order;
    fn unpack(x: &Tensor) -> (Tensor, Tensor, Tensor) {
        let (factors, pivots) = super::lu_factor(x);
        lu_unpack(&factors, &pivots)
    }
    vec![
        sample("lu_unpack, P", &[&[2, 3, 3]], |x| unpack(&heavy(&x[0])).0).order(Order::None),
        sample("lu_unpack, L", &[&[3, 4]], |x| unpack(&x[0]).1),
        sample("lu_unpack, U", &[&[4, 2]], |x| unpack(&x[0]).2),
        sample("matrix_sqrth", &[&[2, 3, 3]], |x| matrix_sqrth(&positive(&x[0]))),
        sample("polar, U", &[&[4, 2]], |x| polar(&x[0]).0),
        sample("polar, H", &[&[2, 3, 3]], |x| polar(&heavy(&x[0])).1),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::lu_factor;
    use super::*;
    use crate::error::catch;
    use crate::ops::random::Generator;
    use crate::tensor::Dtype;

    #[test]
    fn parts_multiply_to_the_matrices() {
        let near = |a: &Tensor, b: &Tensor| assert!((a - b).abs().max().item() < 1e-10);
        for (m, n) in [(3, 3), (4, 2), (2, 4)] {
            let a = Generator::new(8).randn([2, m, n], Dtype::F64);
            let (factors, pivots) = lu_factor(&a);
            let (p, l, u) = lu_unpack(&factors, &pivots);
            near(&p.matmul(&l).matmul(&u), &a);
            if m >= n {
                let (u, h) = polar(&a);
                near(&u.matmul(&h), &a);
                near(&h, &h.mt());
                near(&u.mt().matmul(&u), &Tensor::eye(n, Dtype::F64).expand(&[2, n, n]));
            }
            let square = a.matmul(&a.mt()) + Tensor::eye(m, Dtype::F64);
            let root = matrix_sqrth(&square);
            near(&root.matmul(&root), &square);
            near(&root, &root.mt());
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let a = Tensor::zeros([2, 3], Dtype::F64);
        assert!(catch(|| polar(&a)).is_err() && catch(|| matrix_sqrth(&a)).is_err());
        let pivots = Tensor::from([1i32]);
        assert!(catch(|| lu_unpack(&a, &pivots)).unwrap_err().to_string().contains("[2]"));
    }
}
