//! Condition numbers.

use super::checks::{check_matrices, check_square};
use super::norm::{NormOrder, matrix_norm};
use super::{inv_ex, svdvals};
use crate::amp::cast_op;
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::tensor::Tensor;

/// The condition number of each matrix, `[..]` (`torch.linalg.cond`): for the orders 2 (PyTorch's
/// default) and -2 the largest singular value by the smallest, or the reverse; for the others the norm
/// of a square matrix times that of its inverse, infinity if there is none. Of empty matrices it is 0.
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) for fewer than two dimensions, or unless the matrices are
/// square where they must be, and as [`matrix_norm`].
///
/// ```
/// use torchrs::{Tensor, linalg};
/// assert_eq!(linalg::cond(&Tensor::from([[2f64, 0.], [0., 8.]]), 2).item(), 4.0);
/// ```
#[track_caller]
pub fn cond(a: &Tensor, ord: impl Into<NormOrder>) -> Tensor {
    cast_op!("cond", [x = a] => cond(&x, ord));
    let ord = ord.into();
    check_matrices("linalg.cond", a);
    let by_values = matches!(ord, NormOrder::P(2.0 | -2.0));
    if !by_values {
        check_square("linalg.cond", a);
    }
    if a.size(-1).min(a.size(-2)) == 0 {
        return Tensor::zeros(&a.shape()[..a.dim() - 2], (a.dtype(), a.device()));
    }
    if by_values {
        let s = svdvals(a);
        let (largest, smallest) = (s.select(-1, 0), s.select(-1, -1));
        return if ord == NormOrder::P(2.0) { largest / smallest } else { smallest / largest };
    }
    let norm = |x: &Tensor| matrix_norm(x, ord, [-2, -1], false);
    let (inverse, info) = inv_ex(a);
    (norm(a) * norm(&inverse)).masked_fill(&info.ne(0i64), f64::INFINITY)
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::{heavy, sample};
    vec![
        sample("cond", &[&[2, 3, 3]], |x| cond(&heavy(&x[0]), 2)),
        sample("cond(-2)", &[&[3, 2]], |x| cond(&x[0], -2)),
        sample("cond(fro)", &[&[2, 3, 3]], |x| cond(&heavy(&x[0]), NormOrder::Fro)),
        sample("cond(1)", &[&[3, 3]], |x| cond(&heavy(&x[0]), 1)),
    ]
}
