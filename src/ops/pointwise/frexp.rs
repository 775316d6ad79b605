//! Mantissas and exponents: `x = m 2^e` with m in [0.5, 1). The derivative of m is `2^-e`.

use crate::autograd::no_grad;
use crate::tensor::{Dtype, Tensor, dtype::not_floating};

impl Tensor {
    /// Mantissas in [0.5, 1), with the elements' signs, and i32 exponents of 2 (`torch.frexp`). Zeros, infinities and
    /// NaN are their own mantissas, with exponent 0.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (mantissas, exponents) = Tensor::from([8f32, -3., 0.]).frexp();
    /// assert_eq!(mantissas.to_vec::<f32>(), [0.5, -0.75, 0.0]);
    /// assert_eq!(exponents.to_vec::<i32>(), [4, 2, 0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`](crate::Error::Dtype) for other types than floating-point ones.
    #[track_caller]
    pub fn frexp(&self) -> (Tensor, Tensor) {
        if !self.dtype().is_floating_point() {
            not_floating("frexp", self.dtype());
        }
        let exponents = no_grad(|| exponents(&self.detach()));
        // In two steps, since the power for a tiny number is beyond the type's.
        let wide = self.to_dtype(Dtype::F64);
        let half = exponents.to_dtype(Dtype::F64).mul(-0.5).floor();
        let rest = exponents.to_dtype(Dtype::F64).neg() - &half;
        let mantissas = wide * half.exp2() * rest.exp2();
        (mantissas.to_dtype(self.dtype()), exponents.to_dtype(Dtype::I32))
    }
}

/// The exponents in f64: by the logarithm, which may be off by one, and what the mantissa is then.
fn exponents(x: &Tensor) -> Tensor {
    let size = x.to_dtype(Dtype::F64).abs();
    let usual = size.gt(0.0) & size.isfinite();
    let one = Tensor::ones([], (Dtype::F64, x.device()));
    let size = usual.where_(&size, &one);
    // Numbers without a full mantissa are lifted first.
    let tiny = size.lt(f64::MIN_POSITIVE);
    let lifted = tiny.where_(&(&size * 2f64.powi(100)), &size);
    let first = lifted.log2().floor() + 1.0;
    let half = first.mul(-0.5).floor();
    let mantissa = &lifted * half.exp2() * (first.neg() - &half).exp2();
    let off = mantissa.ge(1.0).to_dtype(Dtype::F64) - mantissa.lt(0.5).to_dtype(Dtype::F64);
    let exponents = first + off - tiny.to_dtype(Dtype::F64) * 100.0;
    usual.where_(&exponents, &exponents.zeros_like())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_multiply_to_the_number_at_both_ends_of_the_type() {
        let mut all = vec![f64::MAX, f64::MIN_POSITIVE, 5e-324, 1e-310, 0.5, 1.0];
        for exponent in -1074..1024 {
            let power = f64::from(exponent).exp2();
            all.extend([power, -power, power * (1.0 - f64::EPSILON / 2.0)]);
        }
        let (m, e) = Tensor::from(all.clone()).frexp();
        for ((x, m), e) in all.iter().zip(m.to_vec::<f64>()).zip(e.to_vec::<i32>()) {
            assert!((0.5..1.0).contains(&m.abs()), "{x:e}: {m}");
            assert_eq!(*x, m * 2f64.powi(e / 2) * 2f64.powi(e - e / 2), "{x:e}");
        }
        let (m, e) = Tensor::from([f64::INFINITY, f64::NAN, -0.0]).frexp();
        assert!(m.to_vec::<f64>()[0] == f64::INFINITY && m.to_vec::<f64>()[1].is_nan());
        assert_eq!(e.to_vec::<i32>(), [0, 0, 0]);
    }
}
