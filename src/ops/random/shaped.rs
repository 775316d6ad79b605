//! Numbers of further distributions in place of a tensor's elements, made of uniform and normal ones.

use std::ops::Range;

use super::assert_floating;
use super::generator::{DEFAULT, Generator};
use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Tensor};

/// Methods that draw from the generator, and those of tensors, from the default generator.
macro_rules! fills {
    ($(
        $(#[$doc:meta])*
        pub fn $name:ident(&$generator:ident, $t:ident $(, $argument:ident: $ty:ty)*) $body:block
    )*) => {
        impl Generator {$(
            $(#[$doc])*
            pub fn $name<'t>(&$generator, $t: &'t Tensor $(, $argument: $ty)*) -> &'t Tensor {
                $t.assert_inplace_legal(stringify!($name));
                $body
            }
        )*}

        impl Tensor {$(
            #[doc = concat!("[`Generator::", stringify!($name), "`] by the default generator.")]
            #[track_caller]
            pub fn $name(&self $(, $argument: $ty)*) -> &Tensor {
                DEFAULT.$name(self $(, $argument)*)
            }
        )*}
    };
}

/// Throws unless a parameter is positive.
#[track_caller]
fn assert_positive(op: &'static str, name: &'static str, value: f64) {
    if value.is_nan() || value <= 0.0 {
        throw(Error::argument(op, name, format!("{value}; must be above 0")));
    }
}

/// What `fill` puts into a tensor like `t` that has room for the numbers on their way.
fn drawn(t: &Tensor, fill: impl FnOnce(&Tensor)) -> Tensor {
    let dtype = match t.dtype() {
        Dtype::F32 | Dtype::F16 | Dtype::BF16 => Dtype::F32,
        _ => Dtype::F64,
    };
    let numbers = Tensor::empty(t.shape(), (dtype, t.device()));
    fill(&numbers);
    numbers
}

fills! {
    /// Overwrites `t` with numbers of the exponential distribution with rate `lambd` (`torch.Tensor.exponential_`).
    ///
    /// ```
    /// use torchrs::{Dtype, Generator, Tensor};
    /// let x = Tensor::empty([2000], Dtype::F64);
    /// Generator::new(7).exponential_(&x, 0.5);
    /// assert!(x.min().item() > 0.0 && (x.mean().item() - 2.0).abs() < 0.2);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for integers and bools, [`Error::Argument`] unless `lambd` is positive.
    #[track_caller]
    pub fn exponential_(&self, t, lambd: f64) {
        assert_floating("exponential_", t);
        assert_positive("exponential_", "lambd", lambd);
        t.copy_(&no_grad(|| {
            let uniform = drawn(t, |u| _ = self.uniform_(u, 0.0, 1.0));
            // 0 is none of them.
            let least = uniform.dtype().finfo().eps / 2.0;
            uniform.neg().log1p().neg().clamp_min(least) / lambd
        }))
    }

    /// Overwrites `t` with numbers of trials up to the first success, at least 1, where each succeeds with probability
    /// `p` (`torch.Tensor.geometric_`).
    ///
    /// ```
    /// use torchrs::{Dtype, Generator, Tensor};
    /// let x = Tensor::empty([2000], Dtype::I64);
    /// Generator::new(7).geometric_(&x, 0.25);
    /// assert!(x.min().item() == 1.0 && (x.double().mean().item() - 4.0).abs() < 0.4);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] unless `p` is between 0 and 1.
    #[track_caller]
    pub fn geometric_(&self, t, p: f64) {
        if !(p > 0.0 && p < 1.0) {
            throw(Error::argument("geometric_", "p", format!("{p}; must be between 0 and 1")));
        }
        t.copy_(&no_grad(|| {
            let uniform = drawn(t, |u| _ = self.uniform_(u, 0.0, 1.0));
            (uniform.neg().log1p() / (-p).ln_1p()).ceil().clamp_min(1.0)
        }))
    }

    /// Overwrites `t` with numbers of the Cauchy distribution (`torch.Tensor.cauchy_`).
    ///
    /// ```
    /// use torchrs::{Dtype, Generator, Tensor};
    /// let x = Tensor::empty([2000], Dtype::F32);
    /// Generator::new(7).cauchy_(&x, 3.0, 0.5);
    /// assert!((x.median().item() - 3.0).abs() < 0.1);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for integers and bools, [`Error::Argument`] unless `sigma` is positive.
    #[track_caller]
    pub fn cauchy_(&self, t, median: f64, sigma: f64) {
        assert_floating("cauchy_", t);
        assert_positive("cauchy_", "sigma", sigma);
        t.copy_(&no_grad(|| {
            let uniform = drawn(t, |u| _ = self.uniform_(u, 0.0, 1.0));
            ((uniform - 0.5) * std::f64::consts::PI).tan() * sigma + median
        }))
    }

    /// Overwrites `t` with numbers whose logarithms are normal (`torch.Tensor.log_normal_`).
    ///
    /// ```
    /// use torchrs::{Dtype, Generator, Tensor};
    /// let x = Tensor::empty([2000], Dtype::F32);
    /// Generator::new(7).log_normal_(&x, 1.0, 0.5);
    /// assert!((x.log().mean().item() - 1.0).abs() < 0.05);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for integers and bools, [`Error::Argument`] unless `std` is positive.
    #[track_caller]
    pub fn log_normal_(&self, t, mean: f64, std: f64) {
        assert_floating("log_normal_", t);
        assert_positive("log_normal_", "std", std);
        t.copy_(&no_grad(|| drawn(t, |n| _ = self.normal_(n, mean, std)).exp()))
    }

    /// Overwrites `t` with uniform integers of a range; without one, from 0 to the largest number of an integer type, or
    /// up to which a floating-point type has all integers (`torch.Tensor.random_`).
    ///
    /// ```
    /// use torchrs::{Dtype, Generator, Tensor};
    /// let x = Tensor::empty([1000], Dtype::I16);
    /// Generator::new(7).random_(&x, 3..5);
    /// assert_eq!(x.unique().values.to_vec::<i16>(), [3, 4]);
    /// Generator::new(7).random_(&x, None);
    /// assert!(x.min().item() >= 0.0 && x.max().item() > 1000.0);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for an empty range, and one with numbers that the type has not.
    #[track_caller]
    pub fn random_(&self, t, range: impl Into<Option<Range<i64>>>) {
        let limits = limits(t.dtype());
        let Range { start, end } = range.into().unwrap_or(0..limits.end);
        if start >= end {
            throw(Error::argument("random_", "range", format!("{start}..{end}; is empty")));
        }
        if start < limits.start || end > limits.end {
            let message = format!(
                "{start}..{end}; must be within {}..{} for {}", limits.start, limits.end, t.dtype()
            );
            throw(Error::argument("random_", "range", message));
        }
        t.copy_(&self.randint(start, end, t.shape(), (t.dtype(), t.device())))
    }
}

/// The integers that a type has without gaps; without the last one of i64, which no range ends behind.
fn limits(dtype: Dtype) -> Range<i64> {
    if dtype == Dtype::Bool {
        return 0..2;
    }
    if dtype.is_integral() {
        let limits = dtype.iinfo();
        return limits.min..limits.max.saturating_add(1);
    }
    let most = (2.0 / dtype.finfo().eps) as i64;
    -most..most + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;

    #[test]
    fn halves_and_parts_of_tensors_are_filled() {
        let x = Tensor::zeros([100, 2], Dtype::BF16);
        let generator = Generator::new(3);
        generator.exponential_(&x.select(1, 0), 1.0);
        let (filled, rest) = (x.select(1, 0), x.select(1, 1));
        assert!(filled.min().item() > 0.0 && rest.abs().max().item() == 0.0);
        generator.random_(&x, None);
        assert!(x.max().item() <= 256.0 && x.max().item() > 100.0);
        let again = Tensor::zeros([100, 2], Dtype::BF16);
        let other = Generator::new(3);
        other.exponential_(&again.select(1, 0), 1.0);
        assert!(other.random_(&again, None).equal(&x));
    }

    #[test]
    fn parameters_and_types_are_checked() {
        let (x, n) = (Tensor::zeros([2], Dtype::F32), Tensor::zeros([2], Dtype::U8));
        let refused = |f: &dyn Fn(), what: &str| {
            let error = catch(f).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        refused(&|| _ = x.exponential_(0.0), "lambd");
        refused(&|| _ = x.cauchy_(0.0, f64::NAN), "sigma");
        refused(&|| _ = x.log_normal_(0.0, -1.0), "std");
        refused(&|| _ = x.geometric_(1.0), "between 0 and 1");
        refused(&|| _ = n.exponential_(1.0), "u8");
        refused(&|| _ = n.random_(0..257), "0..256");
        refused(&|| _ = n.random_(3..3), "empty");
        refused(
            &|| _ = x.clone_contiguous().requires_grad_(true).exponential_(1.0),
            "exponential_: ",
        );
    }

    #[test]
    fn what_was_there_before_has_no_gradient() {
        let x = Tensor::from([1f32, 2.]).requires_grad_(true);
        let y = &x * 2.0;
        y.exponential_(1.0);
        y.sum().backward();
        assert!(x.grad().is_none_or(|grad| grad.to_vec::<f32>() == [0.0, 0.0]));
    }
}
