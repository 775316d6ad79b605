//! Inverses: `Y = A^-1`, `dA = -Y^T dY Y^T`.

use smallvec::smallvec;

use super::batch::{Batch, each};
use super::checks::check_square;
use super::{complex, cuda, solve};
use crate::amp::cast_op;
use crate::autograd::record;
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::ops::gpu;
use crate::tensor::Tensor;

/// The inverse of each matrix, which may be complex (`torch.linalg.inv`).
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) unless the matrices are square,
/// [`Error::Dtype`](crate::Error::Dtype) for integers, bools and half types, and
/// [`Error::Argument`](crate::Error::Argument) that names the first matrix that has no inverse.
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let a = Tensor::from([[2f64, 0.], [0., 4.]]);
/// assert_eq!(linalg::inv(&a).to_vec::<f64>(), [0.5, 0., 0., 0.25]);
/// ```
#[track_caller]
pub fn inv(a: &Tensor) -> Tensor {
    cast_op!("inv", [x = a] => inv(&x));
    if a.is_complex() {
        return complex::inverse("linalg.inv", a);
    }
    let batch = inverses("linalg.inv", a);
    batch.expect("linalg.inv", solve::singular);
    recorded(a, batch.single())
}

/// [`inv`] of matrices that may have none: that is infinite or NaN, and `info` has the number, counted
/// from 1, of the pivot that is zero (`torch.linalg.inv_ex`).
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let (inverse, info) = linalg::inv_ex(&Tensor::from([[[2f64, 0.], [0., 4.]], [[1., 0.], [0., 0.]]]));
/// assert_eq!(inverse.i(0).to_vec::<f64>(), [0.5, 0.0, 0.0, 0.25]);
/// assert_eq!(info.to_vec::<i64>(), [0, 2]);
/// ```
///
/// # Panics
/// As [`inv`] for shapes and types.
#[track_caller]
pub fn inv_ex(a: &Tensor) -> (Tensor, Tensor) {
    cast_op!("inv", [x = a] => inv_ex(&x));
    let batch = inverses("linalg.inv_ex", a);
    let info = batch.info.clone();
    (recorded(a, batch.single()), info)
}

#[track_caller]
fn inverses(op: &str, a: &Tensor) -> Batch {
    check_square(op, a);
    if let Some(gpu) = gpu::of(op, &[a]) {
        return cuda::inverse(gpu, a);
    }
    let n = a.size(-1);
    each(&[a], &[&[n, n]], &|inputs, out| {
        out[0].iter_mut().step_by(n + 1).for_each(|x| *x = 1.0);
        solve::solve_one(inputs[0], n, out[0], n)
    })
}

fn recorded(a: &Tensor, inverse: Tensor) -> Tensor {
    record("inv", &[a], inverse, |saver| {
        let y = saver.save_output(0);
        move |ctx| {
            let y = ctx.get(&y).mt();
            smallvec![Some(-y.matmul(&ctx.grad(0)).matmul(&y))]
        }
    })
}

impl Tensor {
    /// [`linalg::inv`](inv) (`torch.Tensor.inverse`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let expected = Tensor::from([[-2.0, 1.0], [1.5, -0.5]]);
    /// assert!(Tensor::from([[1f64, 2.], [3., 4.]]).inverse().allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// As [`linalg::inv`](inv).
    #[track_caller]
    pub fn inverse(&self) -> Tensor {
        inv(self)
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::{heavy, sample};
    vec![
        sample("inv", &[&[2, 3, 3]], |x| inv(&heavy(&x[0]))),
        sample("inv, empty", &[&[2, 0, 0]], |x| inv(&x[0])),
    ]
}
