//! The exponential of matrices, by scaling and squaring: `exp(A) = exp(A / 2^s)^(2^s)`, and for the small
//! matrix the quotient of two polynomials of degree 13 (Higham, "The scaling and squaring method for
//! the matrix exponential revisited", 2005).
//!
//! Its derivative in a direction is a block of a larger exponential, so
//!
//! ```text
//! exp [A^T dY]   [exp(A)^T  dA      ]
//!     [ 0  A^T] = [ 0       exp(A)^T]
//! ```

use smallvec::smallvec;

use super::checks::{check_square, eye_like};
use super::solve_ex;
use crate::amp::cast_op;
use crate::autograd::{no_grad, record};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::ops::windows::taps::in_compute_type;
use crate::tensor::{Dtype, Tensor};

/// Coefficients of the numerator, constant first; in the denominator the odd ones are negative.
const PADE: [f64; 14] = [
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
];
/// The 1-norm up to which the quotient is exact to f64's precision.
const SMALL: f64 = 5.371920351148152;

/// The exponential of each square matrix, `sum_k A^k / k!` (`torch.linalg.matrix_exp`,
/// `torch.matrix_exp`).
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) unless the matrices are square and
/// [`Error::Dtype`](crate::Error::Dtype) for integers and complex numbers.
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let y = linalg::matrix_exp(&Tensor::from([[0f64, 1.], [0., 0.]]));
/// assert_eq!(y.to_vec::<f64>(), [1., 1., 0., 1.]);
/// ```
#[track_caller]
pub fn matrix_exp(a: &Tensor) -> Tensor {
    cast_op!("matrix_exp", [x = a] => matrix_exp(&x));
    if matches!(a.dtype(), Dtype::F16 | Dtype::BF16) {
        return in_compute_type(a, matrix_exp);
    }
    check_square("linalg.matrix_exp", a);
    if a.numel() == 0 {
        return a.clone_contiguous();
    }
    record("matrix_exp", &[a], no_grad(|| exponential(&a.detach())), |saver| {
        let a = saver.save(a);
        move |ctx| {
            let (a, g) = (ctx.get(&a).mt(), ctx.grad(0));
            let upper = Tensor::cat(&[a.clone(), g], -1);
            let lower = Tensor::cat(&[a.zeros_like(), a.clone()], -1);
            let whole = matrix_exp(&Tensor::cat(&[upper, lower], -2));
            let n = a.size(-1);
            smallvec![Some(whole.narrow(-2, 0, n).narrow(-1, n, n))]
        }
    })
}

fn exponential(a: &Tensor) -> Tensor {
    let dtype = a.dtype();
    let a = a.to_dtype(Dtype::F64);
    let norms = a.abs().sum_dim(&[-2], true).amax(&[-1], true);
    let halvings = |&norm: &f64| match (norm / SMALL).log2().ceil() {
        s if s.is_finite() => s.max(0.0),
        // NaN and infinity go through as they are, zero has a logarithm of minus infinity.
        _ => 0.0,
    };
    let norms_of = |norms: &Tensor| match norms.device().is_meta() {
        true => vec![0.0; norms.numel()],
        false => norms.to_vec::<f64>(),
    };
    let times: Vec<f64> = norms_of(&norms).iter().map(halvings).collect();
    let scales: Vec<f64> = times.iter().map(|s| (-s).exp2()).collect();
    let most = times.iter().fold(0.0, |most: f64, &s| most.max(s)) as usize;
    let times = Tensor::from_slice(&times, norms.shape()).to_device(a.device());

    let scales = Tensor::from_slice(&scales, norms.shape()).to_device(a.device());
    let a = a * scales;
    let eye = eye_like(&a);
    let a2 = a.matmul(&a);
    let a4 = a2.matmul(&a2);
    let a6 = a4.matmul(&a2);
    // Terms of degree 2i and 2i + 1 have the same powers in them, but for one factor A.
    let half = |odd: usize| {
        let c = |i: usize| PADE[2 * i + odd];
        let high = &a6 * c(6) + &a4 * c(5) + &a2 * c(4);
        a6.matmul(&high) + &a6 * c(3) + &a4 * c(2) + &a2 * c(1) + &eye * c(0)
    };
    let (even, odd) = (half(0), a.matmul(&half(1)));
    let (mut y, _) = solve_ex(&(&even - &odd), &(even + odd));
    for i in 0..most {
        y = times.gt(i as f64).where_(&y.matmul(&y), &y);
    }
    y.to_dtype(dtype)
}

impl Tensor {
    /// [`linalg::matrix_exp`](matrix_exp) (`torch.Tensor.matrix_exp`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let expected = Tensor::from([[1.0, 2.0], [0.0, 1.0]]);
    /// let y = Tensor::from([[0f64, 2.], [0., 0.]]).matrix_exp();
    /// assert!(y.allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// As [`linalg::matrix_exp`](matrix_exp).
    #[track_caller]
    pub fn matrix_exp(&self) -> Tensor {
        matrix_exp(self)
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::sample;
    vec![
        sample("matrix_exp", &[&[2, 3, 3]], |x| matrix_exp(&x[0])),
        sample("matrix_exp, large", &[&[2, 2]], |x| matrix_exp(&(&x[0] * 4.0)) * 1e-3),
        sample("matrix_exp, empty", &[&[0, 0]], |x| matrix_exp(&x[0])),
    ]
}
