//! Gamma numbers, of every shape and with a gradient by it.
//!
//! Marsaglia and Tsang's method: of a normal number x and d = a - 1/3, d (1 + x / sqrt(9 d))^3 is a gamma number once a
//! uniform number lets it pass, which it does nearly always. What is refused is drawn again, for all elements at once,
//! so that numbers depend on the generator alone. For a below 1, a number of shape a + 1 is multiplied by u^(1/a); in
//! logarithms, as the product can be below the least number of the type.
//!
//! The gradient is that of the number whose cumulative probability P(a, x) stays: -(dP/da) / (dP/dx). With
//! P = x^a e^-x (sum over n of x^n / Gamma(a + n + 1)) the logarithm of x has the derivative
//! sum over n of t_n (digamma(a + n + 1) - log x), t_n = x^n Gamma(a) / Gamma(a + n + 1).

use smallvec::smallvec;

use super::generator::{DEFAULT, Generator};
use crate::autograd::{BackwardCtx, no_grad, record};
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Tensor, TensorOptions};

/// Above this shape Wilson and Hilferty's cube of a normal number has the gradient to 1e-4.
const LARGE: f64 = 500.0;
/// Draws after which what is refused still is taken for NaN; one in twenty is refused.
const ROUNDS: usize = 200;
/// Terms between looks at whether a series has ended.
const STRIDE: usize = 16;
/// Terms of the longest series.
const TERMS: usize = 8192;

/// The type in which random numbers of a type are made.
pub(super) fn inner(dtype: Dtype) -> Dtype {
    if dtype == Dtype::F64 { Dtype::F64 } else { Dtype::F32 }
}

/// Whether all elements are true; those of tensors without values count as true.
pub(super) fn all(x: &Tensor) -> bool {
    x.device().is_meta() || x.all().item() != 0.0
}

impl Generator {
    /// The logarithms of gamma numbers of these shapes and of rate 1, which are differentiable by the shapes: the
    /// numbers themselves are 0 for small shapes.
    #[track_caller]
    pub(crate) fn log_standard_gamma(&self, concentration: &Tensor) -> Tensor {
        let a = concentration;
        super::assert_floating("standard_gamma", a);
        let log = no_grad(|| self.log_gamma(&a.detach()));
        record("log_standard_gamma", &[a], log.clone(), |saver| {
            let a = saver.save(a);
            // As a constant: it is a sample.
            let log = log.detach();
            move |ctx: &BackwardCtx<'_>| {
                let a = ctx.get(&a);
                let slope = no_grad(|| slope(&a.detach(), &log));
                let slope = record("log_standard_gamma_backward", &[&a], slope, |_| {
                    |_: &BackwardCtx<'_>| {
                        throw(Error::Autograd(
                            "gamma samples have no second derivative by their shape".into(),
                        ))
                    }
                });
                smallvec![Some(ctx.grad(0) * slope)]
            }
        })
    }

    /// Gamma numbers of these shapes and of rate 1, which are differentiable by the shapes
    /// (`torch._standard_gamma`).
    ///
    /// ```
    /// use torchrs::{Generator, Tensor};
    /// let a = Tensor::full([2000], 3.0, torchrs::Dtype::F64).requires_grad_(true);
    /// let x = Generator::new(7).standard_gamma(&a);
    /// assert!((x.mean().item() - 3.0).abs() < 0.2);
    /// x.mean().backward(); // the mean is the shape
    /// assert!((a.grad().unwrap().sum().item() - 1.0).abs() < 0.1);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools.
    #[track_caller]
    pub fn standard_gamma(&self, concentration: &Tensor) -> Tensor {
        self.log_standard_gamma(concentration).exp()
    }

    #[track_caller]
    fn log_gamma(&self, concentration: &Tensor) -> Tensor {
        let (dtype, device) = (inner(concentration.dtype()), concentration.device());
        let a = concentration.to_dtype(dtype).contiguous();
        let options: TensorOptions = (dtype, device).into();
        let small = a.lt(1.0);
        let shape = small.where_(&(&a + 1.0), &a);
        let d = shape - 1.0 / 3.0;
        let c = (&d * 9.0).rsqrt();
        // Of a shape that is none, or infinite, no number passes.
        let mut log = a.gt(0.0).where_(f64::INFINITY, &a.log());
        let mut done = a.gt(0.0).logical_and(&a.lt(f64::INFINITY)).logical_not();
        for round in 0..ROUNDS {
            if all(&done) {
                break;
            }
            let x = self.randn(a.shape(), options);
            let u = self.rand(a.shape(), options);
            let v = &c * &x + 1.0;
            let cube = &v * &v * &v;
            let bound = (1.0 - &cube + cube.log()) * &d + x.square() * 0.5;
            let passes = v.gt(0.0).logical_and(&u.log().lt(&bound));
            let taken = passes.logical_and(&done.logical_not());
            log = taken.where_(&(&d * &cube).log(), &log);
            done = done.logical_or(&taken);
            if round + 1 == ROUNDS {
                log = done.where_(&log, f64::NAN);
            }
        }
        // In (0, 1], so that the logarithm is finite.
        let u = 1.0 - self.rand(a.shape(), options);
        let boosted = small.logical_and(&a.gt(0.0));
        boosted.where_(&(&log + u.log() / &a), &log).to_dtype(concentration.dtype())
    }
}

/// The derivative of the logarithm of a gamma number by its shape.
fn slope(a: &Tensor, log: &Tensor) -> Tensor {
    let (dtype, device) = (a.dtype(), a.device());
    let (a, log) = (a.to_dtype(Dtype::F64), log.to_dtype(Dtype::F64));
    let large = a.gt(LARGE);
    let x = log.exp();
    // The series, with numbers of which it is short where it is not wanted.
    let (sa, sx) = (large.where_(1.0, &a), large.where_(1.0, &x));
    let slog = large.where_(0.0, &log);
    let mut term = sa.reciprocal();
    let mut at = &sa + 1.0;
    let mut psi = at.digamma();
    let mut sum = Tensor::zeros(a.shape(), (Dtype::F64, device));
    for n in 0..TERMS {
        let part = &term * (&psi - &slog);
        sum = &sum + &part;
        let ended = || part.abs().le(&(sum.abs() * 1e-17)).logical_and(&sx.lt(&at));
        if n % STRIDE == STRIDE - 1 && all(&ended().logical_or(&part.isfinite().logical_not())) {
            break;
        }
        psi = psi + at.reciprocal();
        term = term * &sx / &at;
        at = &at + 1.0;
    }
    if device.is_meta() || large.any().item() == 0.0 {
        return sum.to_dtype(dtype);
    }
    // x = a c^3 of c = 1 - 1 / (9 a) + z / (3 sqrt(a)) with a normal number z that stays.
    let c = (&x / &a).pow(1.0 / 3.0);
    let z = (&c - 1.0 + (&a * 9.0).reciprocal()) * a.sqrt() * 3.0;
    let dc = (a.square() * 9.0).reciprocal() - z / (a.pow(1.5) * 6.0);
    let cube = a.reciprocal() + dc * 3.0 / c;
    large.where_(&cube, &sum).to_dtype(dtype)
}

impl Tensor {
    /// Gamma numbers of these shapes and of rate 1 from the default generator, which are differentiable by the shapes
    /// (`torch._standard_gamma`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert!(Tensor::from([0.5f32, 8.]).standard_gamma().min().item() >= 0.0);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools.
    #[track_caller]
    pub fn standard_gamma(&self) -> Tensor {
        DEFAULT.standard_gamma(self)
    }

    #[track_caller]
    pub(crate) fn log_standard_gamma(&self) -> Tensor {
        DEFAULT.log_standard_gamma(self)
    }
}
