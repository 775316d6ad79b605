//! Random counts, and normal numbers with means and deviations of their own.
//!
//! Small counts are found by going up the cumulative probabilities until they pass a uniform number; large ones by
//! Hörmann's transformed rejection (PTRS and BTRS). Both are made of ops over all elements, in f64, so that numbers
//! depend on the generator alone.

use super::assert_floating;
use super::gamma::all;
use super::generator::{DEFAULT, Generator};
use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Operand, Tensor, TensorOptions};

/// Expected counts from which rejection takes over.
const MANY: f64 = 10.0;
/// Cumulative probabilities that are gone up: of 10 expected counts more than 200 have probability 1e-180.
const STEPS: usize = 200;
/// Draws after which what is refused still is taken for NaN.
const ROUNDS: usize = 200;

/// How many of the sums of `first`, `next(0)` and so on a uniform number has passed. `next` takes the last term and its
/// number.
fn passed(u: &Tensor, first: Tensor, next: impl Fn(&Tensor, f64) -> Tensor) -> Tensor {
    let mut term = first;
    let mut sum = term.clone();
    let mut count = sum.zeros_like();
    for k in 0..STEPS {
        let more = u.ge(&sum);
        if all(&more.logical_not()) {
            break;
        }
        count = count + more.to_dtype(Dtype::F64);
        term = next(&term, k as f64);
        // A sum of its own: `term` may be the same tensor.
        sum = &sum + &term;
    }
    count
}

/// Draws until every element where `wanted` is true has passed.
fn rejected(wanted: &Tensor, draw: impl Fn() -> (Tensor, Tensor)) -> Tensor {
    let mut done = wanted.logical_not();
    let mut out = wanted.to_dtype(Dtype::F64) * f64::NAN;
    for _ in 0..ROUNDS {
        if all(&done) {
            break;
        }
        let (value, passes) = draw();
        let taken = passes.logical_and(&done.logical_not());
        out = taken.where_(&value, &out);
        done = done.logical_or(&taken);
    }
    out
}

/// Throws unless all elements of `fine` are true.
#[track_caller]
fn assert_all(op: &str, argument: &str, t: &Tensor, fine: &Tensor, rule: &str) {
    if !all(fine) {
        let at = fine.to_vec::<bool>().iter().position(|fine| !fine).unwrap_or(0);
        let value = t.to_vec::<f64>()[at];
        throw(Error::argument(op, argument, format!("{value} at position {at}; {rule}")));
    }
}

impl Generator {
    /// Poisson numbers with these means (`torch.poisson` with a generator). They have no gradient.
    ///
    /// ```
    /// use torchrs::{Dtype, Generator, Tensor};
    /// let x = Generator::new(7).poisson(&Tensor::full([2000], 4.5, Dtype::F32));
    /// assert!((x.mean().item() - 4.5).abs() < 0.2);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and when a mean is negative.
    #[track_caller]
    pub fn poisson(&self, rate: &Tensor) -> Tensor {
        assert_floating("poisson", rate);
        no_grad(|| {
            let wide = rate.detach().to_dtype(Dtype::F64).contiguous();
            assert_all(
                "poisson",
                "rate",
                &wide,
                &wide.lt(0.0).logical_not(),
                "means are at least 0",
            );
            let options: TensorOptions = (Dtype::F64, rate.device()).into();
            let large = wide.ge(MANY);
            let rest = wide.isnan().logical_or(&wide.isinf());
            let draw = || self.rand(wide.shape(), options);
            let few = large.logical_or(&rest).where_(0.0, &wide);
            let small = passed(&draw(), (-&few).exp(), |term, k| term * &few / (k + 1.0));
            let many = large.logical_and(&rest.logical_not());
            if device_has_none(&many) {
                return rest.where_(&wide, &small).to_dtype(rate.dtype());
            }
            let l = many.where_(&wide, MANY);
            let b = l.sqrt() * 2.53 + 0.931;
            let a = &b * 0.02483 - 0.059;
            let inverse = (&b - 3.4).reciprocal() * 1.1328 + 1.1239;
            let bound = 0.9277 - (&b - 2.0).reciprocal() * 3.6224;
            let log = l.log();
            let big = rejected(&many, || {
                let (u, v) = (draw() - 0.5, draw());
                let s = 0.5 - u.abs();
                let k = ((&a * 2.0 / &s + &b) * &u + &l + 0.43).floor();
                let quick = s.ge(0.07).logical_and(&v.le(&bound));
                let out = k.lt(0.0).logical_or(&s.lt(0.013).logical_and(&v.gt(&s)));
                let left = (&v * &inverse / (&a / s.square() + &b)).log();
                let right = &k * &log - &l - (&k + 1.0).lgamma();
                let slow = left.le(&right).logical_and(&out.logical_not());
                (k, quick.logical_or(&slow))
            });
            rest.where_(&wide, &many.where_(&big, &small)).to_dtype(rate.dtype())
        })
    }

    /// How many of `count` trials succeed with probability `prob` (`torch.binomial` with a generator). They have no
    /// gradient.
    ///
    /// ```
    /// use torchrs::{Dtype, Generator, Tensor};
    /// let (n, p) = (Tensor::full([2000], 50.0, Dtype::F32), Tensor::full([2000], 0.3, Dtype::F32));
    /// let x = Generator::new(7).binomial(&n, &p);
    /// assert!((x.mean().item() - 15.0).abs() < 0.3 && x.max().item() <= 50.0);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, when shapes cannot be broadcast, a count is negative, or `prob` is no probability.
    #[track_caller]
    pub fn binomial(&self, count: &Tensor, prob: &Tensor) -> Tensor {
        assert_floating("binomial", count);
        assert_floating("binomial", prob);
        if count.dtype() != prob.dtype() {
            let (a, b) = (count.dtype(), prob.dtype());
            throw(Error::dtype(
                "binomial",
                format!("`count` is {a} and `prob` is {b}; both must be of one type"),
            ));
        }
        no_grad(|| {
            let both = Tensor::broadcast_tensors(&[count.detach(), prob.detach()]);
            let wide = |t: &Tensor| t.to_dtype(Dtype::F64).contiguous();
            let (n, p) = (wide(&both[0]), wide(&both[1]));
            assert_all("binomial", "count", &n, &n.ge(0.0), "counts are at least 0");
            let fine = p.ge(0.0).logical_and(&p.le(1.0));
            assert_all("binomial", "prob", &p, &fine, "probabilities are between 0 and 1");
            let options: TensorOptions = (Dtype::F64, count.device()).into();
            let draw = || self.rand(n.shape(), options);
            let n = n.floor();
            // Failures are counted where they are rarer.
            let turned = p.gt(0.5);
            let p = turned.where_(&(1.0 - &p), &p);
            let many = (&n * &p).ge(MANY);
            let (few, fp) = (many.where_(0.0, &n), many.where_(0.0, &p));
            let ratio = &fp / (1.0 - &fp);
            let none = (&few * (-&fp).log1p()).exp();
            let small = passed(&draw(), none, |term, k| {
                term * &ratio * (&few - k).clamp_min(0.0) / (k + 1.0)
            });
            let small = small.minimum(&few);
            let turn = |k: &Tensor| turned.where_(&(&n - k), k).to_dtype(count.dtype());
            if device_has_none(&many) {
                return turn(&small);
            }
            let (n, p) = (many.where_(&n, 4.0 * MANY), many.where_(&p, 0.5));
            let q = 1.0 - &p;
            let width = (&n * &p * &q).sqrt();
            let b = &width * 2.53 + 1.15;
            let a = &b * 0.0248 + &p * 0.01 - 0.0873;
            let c = &n * &p + 0.5;
            let bound = 0.92 - b.reciprocal() * 4.2;
            let alpha = (b.reciprocal() * 5.1 + 2.83) * &width;
            let mode = ((&n + 1.0) * &p).floor();
            let odds = (&p / &q).log();
            let top = (&mode + 1.0).lgamma() + (&n - &mode + 1.0).lgamma();
            let big = rejected(&many, || {
                let (u, v) = (draw() - 0.5, draw());
                let s = 0.5 - u.abs();
                let k = ((&a * 2.0 / &s + &b) * &u + &c).floor();
                let inside = k.ge(0.0).logical_and(&k.le(&n));
                let quick = s.ge(0.07).logical_and(&v.le(&bound));
                let left = (&v * &alpha / (&a / s.square() + &b)).log();
                let right =
                    &top - (&k + 1.0).lgamma() - (&n - &k + 1.0).lgamma() + (&k - &mode) * &odds;
                let slow = left.le(&right);
                (k, inside.logical_and(&quick.logical_or(&slow)))
            });
            turn(&many.where_(&big, &small))
        })
    }

    /// Normal numbers with means and standard deviations of their own (`torch.normal` with a generator), tensors or
    /// numbers. They have no gradient.
    ///
    /// ```
    /// use torchrs::{Generator, Tensor};
    /// let x = Generator::new(7).normal(&Tensor::from([0f64, 100.]), 1.0);
    /// assert!(x.i(1).item() > 90.0);
    /// ```
    ///
    /// # Panics
    /// Throws when both are numbers (then [`randn`](Self::randn) has the shape), a deviation is negative, shapes cannot
    /// be broadcast, or for integers and bools.
    #[track_caller]
    pub fn normal<'a>(&self, mean: impl Into<Operand<'a>>, std: impl Into<Operand<'a>>) -> Tensor {
        let (mean, std) = (mean.into(), std.into());
        let shape = |o: &Operand<'_>| match o {
            Operand::Tensor(t) => {
                assert_floating("normal", t);
                Some((*t).clone())
            }
            Operand::Scalar(_) => None,
        };
        let given = (shape(&mean), shape(&std));
        match &std {
            Operand::Tensor(t) => {
                let t = t.detach();
                let fine = t.ge(0.0);
                assert_all("normal", "std", &t, &fine, "standard deviations are at least 0");
            }
            Operand::Scalar(s) if s.to_f64() < 0.0 || s.to_f64().is_nan() => {
                let message = format!("{}; standard deviations are at least 0", s.to_f64());
                throw(Error::argument("normal", "std", message));
            }
            Operand::Scalar(_) => {}
        }
        no_grad(|| {
            let like = match given {
                (Some(mean), Some(std)) => {
                    // The mean's type counts.
                    let both = Tensor::broadcast_tensors(&[mean.clone(), std]);
                    both[0].clone()
                }
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => throw(Error::argument(
                    "normal",
                    "mean",
                    "is a number, and so is `std`; `randn` takes the shape",
                )),
            };
            let z = self.randn(like.shape(), (like.dtype(), like.device()));
            let out = z.mul(std).add(mean);
            out.to_dtype(like.dtype())
        })
    }
}

/// Whether nothing is to be drawn by rejection.
fn device_has_none(many: &Tensor) -> bool {
    many.device().is_meta() || many.any().item() == 0.0
}

impl Tensor {
    /// Poisson numbers with these means, from the default generator (`torch.poisson`). They have no gradient.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([0f32]).poisson().item(), 0.0);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and when a mean is negative.
    #[track_caller]
    pub fn poisson(&self) -> Tensor {
        DEFAULT.poisson(self)
    }

    /// How many of `count` trials succeed with probability `prob`, from the default generator (`torch.binomial`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::binomial(&Tensor::from([3f32, 3.]), &Tensor::from([0f32, 1.]));
    /// assert_eq!(x.to_vec::<f32>(), [0.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// Throws as [`Generator::binomial`].
    #[track_caller]
    pub fn binomial(count: &Tensor, prob: &Tensor) -> Tensor {
        DEFAULT.binomial(count, prob)
    }

    /// Normal numbers with means and standard deviations of their own, from the default generator (`torch.normal`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::normal(&Tensor::from([5f64]), 0.0);
    /// assert_eq!(x.item(), 5.0);
    /// ```
    ///
    /// # Panics
    /// Throws as [`Generator::normal`].
    #[track_caller]
    pub fn normal<'a>(mean: impl Into<Operand<'a>>, std: impl Into<Operand<'a>>) -> Tensor {
        DEFAULT.normal(mean, std)
    }
}
