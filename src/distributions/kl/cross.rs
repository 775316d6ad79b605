//! Divergences of distributions of unlike families.

use std::f64::consts::PI;

use super::Table;
use crate::distributions::families::EULER;
use crate::distributions::params::fill;
use crate::distributions::{
    Bernoulli, Beta, Binomial, ContinuousBernoulli, Distribution, Exponential, Gamma, Gumbel,
    Laplace, Normal, Pareto, Poisson, Uniform,
};
use crate::tensor::Tensor;

/// Pairs of which the second has no density where the first has some.
macro_rules! infinite {
    ($t:ident: $($p:ident from $($q:ident)+;)+) => {
        $($($t.add(|p: &$p, _: &$q| infinity(p));)+)+
    };
}

/// Infinities of the batch of `p`.
fn infinity(p: &dyn Distribution) -> Tensor {
    let like = if p.name() == "Pareto" {
        // Its mean can be infinite, its scale has a gradient of zero all the same.
        p.mode()
    } else {
        p.mean()
    };
    like.detach().full_like(f64::INFINITY)
}

pub(super) fn fill_all(t: &mut Table) {
    infinite! { t:
        Beta from Pareto;
        ContinuousBernoulli from Pareto;
        Exponential from Beta ContinuousBernoulli Pareto Uniform;
        Gamma from Beta ContinuousBernoulli Pareto Uniform;
        Gumbel from Beta ContinuousBernoulli Exponential Gamma Pareto Uniform;
        Laplace from Beta ContinuousBernoulli Exponential Gamma Pareto Uniform;
        Normal from Beta ContinuousBernoulli Exponential Gamma Pareto Uniform;
        Pareto from Beta ContinuousBernoulli Uniform;
        Poisson from Bernoulli Binomial;
    }
    t.add(|p: &Bernoulli, q: &Poisson| -p.entropy() - (p.probs() * q.rate().log() - q.rate()));
    of_beta(t);
    of_continuous_bernoulli(t);
    of_exponential(t);
    of_gamma(t);
    of_reals(t);
    of_pareto(t);
    of_uniform(t);
}

/// log(2 pi variance) / 2.
fn log_width(scale: &Tensor) -> Tensor {
    scale.log() + 0.5 * (2.0 * PI).ln()
}

/// -E log q of a continuous Bernoulli distribution q, for numbers of this mean.
fn bernoulli_cost(mean: Tensor, q: &ContinuousBernoulli) -> Tensor {
    -(mean * q.logits()) - (-q.probs()).log1p() - q.log_norm()
}

/// -E log q of a gamma distribution q, by the means of numbers and of their logarithms.
fn gamma_cost(mean: &Tensor, mean_log: &Tensor, q: &Gamma) -> Tensor {
    let (a, rate) = (q.concentration(), q.rate());
    a.lgamma() - a * rate.log() - (a - 1.0) * mean_log + rate * mean
}

/// -E log q of a normal distribution q, by the mean of numbers and of their squares.
fn normal_cost(mean: &Tensor, mean_square: &Tensor, q: &Normal) -> Tensor {
    let squares = mean_square * 0.5 - q.loc() * mean + q.loc().square() * 0.5;
    log_width(q.scale()) + squares / q.scale().square()
}

fn of_beta(t: &mut Table) {
    t.add(|p: &Beta, q: &ContinuousBernoulli| -p.entropy() + bernoulli_cost(p.mean(), q));
    t.add(|p: &Beta, q: &Exponential| -p.entropy() - q.rate().log() + q.rate() * p.mean());
    t.add(|p: &Beta, q: &Gamma| {
        let (a, b) = (p.concentration1(), p.concentration0());
        let mean_log = a.digamma() - (&a + b).digamma();
        -p.entropy() + gamma_cost(&p.mean(), &mean_log, q)
    });
    t.add(|p: &Beta, q: &Normal| {
        let mean = p.mean();
        let mean_square = p.variance() + mean.square();
        -p.entropy() + normal_cost(&mean, &mean_square, q)
    });
    t.add(|p: &Beta, q: &Uniform| {
        let kl = -p.entropy() + (q.high() - q.low()).log();
        let outside = q.low().gt(0.0).logical_or(&q.high().lt(1.0));
        fill(&kl, &outside, f64::INFINITY)
    });
}

fn of_continuous_bernoulli(t: &mut Table) {
    t.add(|p: &ContinuousBernoulli, q: &Exponential| {
        -p.entropy() - q.rate().log() + q.rate() * p.mean()
    });
    t.add(|p: &ContinuousBernoulli, q: &Normal| {
        let mean = p.mean();
        let mean_square = p.variance() + mean.square();
        -p.entropy() + normal_cost(&mean, &mean_square, q)
    });
    t.add(|p: &ContinuousBernoulli, q: &Uniform| {
        let kl = -p.entropy() + (q.high() - q.low()).log();
        // PyTorch refuses the very ends, too.
        let outside = q.low().ge(0.0).logical_or(&q.high().le(1.0));
        fill(&kl, &outside, f64::INFINITY)
    });
}

fn of_exponential(t: &mut Table) {
    t.add(|p: &Exponential, q: &Gamma| {
        let (a, ratio) = (q.concentration(), q.rate() / p.rate());
        -(a * ratio.log()) + &ratio + a.lgamma() + a * EULER - (1.0 + EULER)
    });
    t.add(|p: &Exponential, q: &Gumbel| {
        let (product, ratio) = (p.rate() * q.scale(), q.loc() / q.scale());
        let mean = ratio.exp() * &product / (&product + 1.0);
        product.log() - 1.0 - &ratio + mean + product.reciprocal()
    });
    t.add(|p: &Exponential, q: &Normal| {
        let mean = p.rate().reciprocal();
        let mean_square = mean.square() * 2.0;
        p.rate().log() - 1.0 + normal_cost(&mean, &mean_square, q)
    });
}

fn of_gamma(t: &mut Table) {
    t.add(|p: &Gamma, q: &Exponential| {
        -p.entropy() - q.rate().log() + q.rate() * p.concentration() / p.rate()
    });
    t.add(|p: &Gamma, q: &Gumbel| {
        let (a, product, ratio) = (p.concentration(), p.rate() * q.scale(), q.loc() / q.scale());
        let mean = ratio.exp() * (product.reciprocal() + 1.0).pow(&-a);
        (a - 1.0) * a.digamma() - a.lgamma() - a + product.log() + a / &product + mean - ratio
    });
    t.add(|p: &Gamma, q: &Normal| {
        let mean = p.mean();
        let mean_square = p.variance() + mean.square();
        -p.entropy() + normal_cost(&mean, &mean_square, q)
    });
}

/// Of distributions of all numbers.
fn of_reals(t: &mut Table) {
    t.add(|p: &Gumbel, q: &Normal| {
        let mean = p.mean();
        let mean_square = p.variance() + mean.square();
        -p.entropy() + normal_cost(&mean, &mean_square, q)
    });
    t.add(|p: &Laplace, q: &Normal| {
        let mean_square = p.variance() + p.loc().square();
        -p.entropy() + normal_cost(p.loc(), &mean_square, q)
    });
    t.add(|p: &Normal, q: &Gumbel| {
        let distance = (p.loc() - q.loc()) / q.scale();
        let variance = (p.scale() / q.scale()).square();
        let mean = (&variance * 0.5 - &distance).exp();
        distance + mean - variance.log() * 0.5 - 0.5 * (1.0 + (2.0 * PI).ln())
    });
    t.add(|p: &Normal, q: &Laplace| {
        let distance = p.loc() - q.loc();
        let z = &distance / p.scale();
        let spread = p.scale() * (z.square() * -0.5).exp() * (2.0 / PI).sqrt();
        let shift = distance * (z * 0.5f64.sqrt()).erf();
        (spread + shift) / q.scale() - (p.scale() / q.scale()).log() - 0.5 * (1.0 + (0.5 * PI).ln())
    });
}

fn of_pareto(t: &mut Table) {
    t.add(|p: &Pareto, q: &Exponential| {
        let product = p.scale() * q.rate();
        let mean = p.alpha() * &product / (p.alpha() - 1.0);
        let kl = (p.alpha() / product).log() - p.alpha().reciprocal() + mean - 1.0;
        fill(&kl, &p.alpha().le(1.0), f64::INFINITY)
    });
    t.add(|p: &Pareto, q: &Gamma| {
        let (a, mean_log) = (p.alpha(), p.scale().log() + p.alpha().reciprocal());
        let mean = a * p.scale() / (a - 1.0);
        let kl = a.log() - &mean_log - 1.0 + gamma_cost(&mean, &mean_log, q);
        fill(&kl, &a.le(1.0), f64::INFINITY)
    });
    t.add(|p: &Pareto, q: &Normal| {
        let a = p.alpha();
        let part = p.scale() / (a - 1.0);
        let variance = a * part.square() / (a - 2.0);
        let distance = (a * part - q.loc()).square();
        let kl = (q.scale() * a / p.scale() * (2.0 * PI).sqrt()).log() - a.reciprocal()
            + (variance + distance) / (q.scale().square() * 2.0)
            - 1.0;
        fill(&kl, &a.le(2.0), f64::INFINITY)
    });
}

/// x log(x), of which the derivative is log(x) + 1.
fn x_log_x(x: &Tensor) -> Tensor {
    x.xlogy(x)
}

/// The mean of the logarithm of uniform numbers.
fn mean_log(low: &Tensor, high: &Tensor) -> Tensor {
    let span = high - low;
    (x_log_x(high) - x_log_x(low) - &span) / span
}

fn of_uniform(t: &mut Table) {
    t.add(|p: &Uniform, q: &Beta| {
        let (a, b) = (q.concentration1(), q.concentration0());
        let rest = mean_log(&(1.0 - p.high()), &(1.0 - p.low()));
        let norm = a.lgamma() + b.lgamma() - (&a + &b).lgamma();
        let costs = (&a - 1.0) * mean_log(p.low(), p.high()) + (&b - 1.0) * rest;
        let kl = norm - costs - p.entropy();
        fill(&kl, &p.high().gt(1.0).logical_or(&p.low().lt(0.0)), f64::INFINITY)
    });
    t.add(|p: &Uniform, q: &ContinuousBernoulli| {
        let kl = -p.entropy() + bernoulli_cost(p.mean(), q);
        // PyTorch refuses the very ends, too.
        let outside = p.high().ge(1.0).logical_or(&p.low().le(0.0));
        fill(&kl, &outside, f64::INFINITY)
    });
    t.add(|p: &Uniform, q: &Exponential| {
        let kl = q.rate() * p.mean() - ((p.high() - p.low()) * q.rate()).log();
        fill(&kl, &p.low().lt(0.0), f64::INFINITY)
    });
    t.add(|p: &Uniform, q: &Gamma| {
        let kl = gamma_cost(&p.mean(), &mean_log(p.low(), p.high()), q) - p.entropy();
        fill(&kl, &p.low().lt(0.0), f64::INFINITY)
    });
    t.add(|p: &Uniform, q: &Gumbel| {
        let ratio = q.scale() / (p.high() - p.low());
        let high = (p.high() - q.loc()) / q.scale();
        let low = (p.low() - q.loc()) / q.scale();
        ratio.log() + (&high + &low) * 0.5 - ratio * ((-&high).exp() - (-&low).exp())
    });
    t.add(|p: &Uniform, q: &Normal| {
        let span = p.high() - p.low();
        let squares = span.square() / 12.0 + (p.mean() - q.loc()).square();
        (q.scale() / span * (2.0 * PI).sqrt()).log() + squares * 0.5 / q.scale().square()
    });
    t.add(|p: &Uniform, q: &Pareto| {
        let (a, scale) = (q.alpha(), q.scale());
        let norm = (a * scale.pow(a) * (p.high() - p.low())).log();
        let kl = mean_log(p.low(), p.high()) * (a + 1.0) - norm;
        fill(&kl, &p.low().lt(scale), f64::INFINITY)
    });
}
