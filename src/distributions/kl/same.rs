//! Divergences of two distributions of one family.

use super::{Table, kl_divergence, none};
use crate::distributions::families::EULER;
use crate::distributions::multivariate::{half_log_det, mahalanobis, solve_lower};
use crate::distributions::params::{concat, fill, joint, last, sum_last, without_last};
use crate::distributions::transforms::{all_same, softplus};
use crate::distributions::{
    Bernoulli, Beta, Binomial, Categorical, Cauchy, ContinuousBernoulli, Dirichlet, Distribution,
    Exponential, Gamma, Geometric, Gumbel, HalfNormal, Independent, Laplace,
    LowRankMultivariateNormal, MultivariateNormal, Normal, OneHotCategorical, Pareto, Poisson,
    TransformedDistribution, Uniform, Wishart,
};
use crate::error::{Error, throw};
use crate::tensor::Tensor;

pub(super) fn fill_all(t: &mut Table) {
    t.add(bernoulli);
    t.add(beta);
    t.add(binomial);
    t.add(categorical);
    t.add(cauchy);
    t.add(continuous_bernoulli);
    t.add(dirichlet);
    t.add(exponential);
    t.add(gamma);
    t.add(geometric);
    t.add(gumbel);
    t.add(|p: &HalfNormal, q: &HalfNormal| normal(&p.whole(), &q.whole()));
    t.add(independent);
    t.add(laplace);
    t.add(low_rank);
    t.add(low_rank_from_full);
    t.add(full_from_low_rank);
    t.add(multivariate_normal);
    t.add(normal);
    t.add(|p: &OneHotCategorical, q: &OneHotCategorical| {
        categorical(p.categorical(), q.categorical())
    });
    t.add(pareto);
    t.add(|p: &Poisson, q: &Poisson| {
        p.rate() * (p.rate().log() - q.rate().log()) - (p.rate() - q.rate())
    });
    t.add(transformed);
    t.add(uniform);
    // PyTorch sums a term over the batch, so that its numbers of batches can be negative; these are of each alone.
    t.add(|p: &Wishart, q: &Wishart| {
        same_event(p, q);
        p.divergence(q)
    });
}

/// Throws unless events have one shape.
#[track_caller]
fn same_event(p: &dyn Distribution, q: &dyn Distribution) {
    if p.event_shape() != q.event_shape() {
        let (a, b) = (p.event_shape(), q.event_shape());
        throw(Error::shape("kl_divergence", format!("events of shape {a:?} and of shape {b:?}")));
    }
}

fn bernoulli(p: &Bernoulli, q: &Bernoulli) -> Tensor {
    let (pp, qp, pl, ql) = (p.probs(), q.probs(), p.logits(), q.logits());
    let ones = &pp * (softplus(&-&ql) - softplus(&-&pl));
    let ones = fill(&fill(&ones, &qp.eq(0.0), f64::INFINITY), &pp.eq(0.0), 0.0);
    let zeros = (1.0 - &pp) * (softplus(&ql) - softplus(&pl));
    let zeros = fill(&fill(&zeros, &qp.eq(1.0), f64::INFINITY), &pp.eq(1.0), 0.0);
    ones + zeros
}

fn beta(p: &Beta, q: &Beta) -> Tensor {
    let (p1, p0, q1, q0) =
        (p.concentration1(), p.concentration0(), q.concentration1(), q.concentration0());
    let (ps, qs) = (&p1 + &p0, &q1 + &q0);
    let norms = q1.lgamma() + q0.lgamma() + ps.lgamma() - p1.lgamma() - p0.lgamma() - qs.lgamma();
    norms + (&p1 - q1) * p1.digamma() + (&p0 - q0) * p0.digamma() + (qs - &ps) * ps.digamma()
}

#[track_caller]
fn binomial(p: &Binomial, q: &Binomial) -> Tensor {
    let (n, m) = (p.total_count(), q.total_count());
    if n.lt(m).any().item() != 0.0 {
        let message = "has fewer trials than `q`; of these there is no formula";
        throw(Error::argument("kl_divergence", "p", message));
    }
    let (pp, qp) = (p.probs(), q.probs());
    let each = &pp * (p.logits() - q.logits()) + (-&pp).log1p() - (-qp).log1p();
    fill(&(n * each), &n.gt(m), f64::INFINITY)
}

fn categorical(p: &Categorical, q: &Categorical) -> Tensor {
    let (pp, qp) = (p.probs(), q.probs());
    let each = &pp * (p.logits() - q.logits());
    let each = fill(&fill(&each, &qp.eq(0.0), f64::INFINITY), &pp.eq(0.0), 0.0);
    each.sum_dim(&[-1], false)
}

fn cauchy(p: &Cauchy, q: &Cauchy) -> Tensor {
    let sum = (p.scale() + q.scale()).square() + (p.loc() - q.loc()).square();
    sum.log() - (p.scale() * q.scale() * 4.0).log()
}

fn continuous_bernoulli(p: &ContinuousBernoulli, q: &ContinuousBernoulli) -> Tensor {
    p.mean() * (p.logits() - q.logits()) + p.log_norm() + (-p.probs()).log1p()
        - q.log_norm()
        - (-q.probs()).log1p()
}

fn dirichlet(p: &Dirichlet, q: &Dirichlet) -> Tensor {
    let (a, b) = (p.concentration(), q.concentration());
    let (sa, sb) = (a.sum_dim(&[-1], false), b.sum_dim(&[-1], false));
    let means = a.digamma() - sa.digamma().unsqueeze(-1);
    sa.lgamma() - sb.lgamma() - (a.lgamma() - b.lgamma()).sum_dim(&[-1], false)
        + ((a - b) * means).sum_dim(&[-1], false)
}

fn exponential(p: &Exponential, q: &Exponential) -> Tensor {
    let ratio = q.rate() / p.rate();
    &ratio - ratio.log() - 1.0
}

fn gamma(p: &Gamma, q: &Gamma) -> Tensor {
    let (a, b) = (p.concentration(), q.concentration());
    b * (p.rate() / q.rate()).log() + b.lgamma() - a.lgamma()
        + (a - b) * a.digamma()
        + (q.rate() - p.rate()) * (a / p.rate())
}

fn geometric(p: &Geometric, q: &Geometric) -> Tensor {
    -p.entropy() - (-q.probs()).log1p() / p.probs() - q.logits()
}

fn gumbel(p: &Gumbel, q: &Gumbel) -> Tensor {
    let ratio = p.scale() / q.scale();
    let (a, b) = (q.loc() / q.scale(), p.loc() / q.scale());
    &b - &a - ratio.log() + &ratio * EULER + (&a + (&ratio + 1.0).lgamma() - &b).exp()
        - (1.0 + EULER)
}

#[track_caller]
fn independent(p: &Independent, q: &Independent) -> Tensor {
    let (n, m) = (p.reinterpreted_batch_ndims(), q.reinterpreted_batch_ndims());
    if n != m {
        let message = format!("takes {n} batch dimensions as part of an event, `q` {m}");
        throw(Error::argument("kl_divergence", "p", message));
    }
    sum_last(&kl_divergence(&**p.base_dist(), &**q.base_dist()), n)
}

fn laplace(p: &Laplace, q: &Laplace) -> Tensor {
    let ratio = p.scale() / q.scale();
    let distance = (p.loc() - q.loc()).abs();
    let shared = &ratio * (-(&distance / p.scale())).exp();
    &distance / q.scale() - ratio.log() + shared - 1.0
}

/// The sum of the squares of a matrix.
fn squares(x: &Tensor) -> Tensor {
    x.square().sum_dim(&[-2, -1], false)
}

#[track_caller]
fn low_rank(p: &LowRankMultivariateNormal, q: &LowRankMultivariateNormal) -> Tensor {
    same_event(p, q);
    let ((pw, pd), (_, qd)) = (p.parts(), q.parts());
    let a = q.solved();
    let trace = (pd / qd).sum_dim(&[-1], false) + squares(&(pw * qd.rsqrt().unsqueeze(-1)))
        - squares(&(&a * pd.sqrt().unsqueeze(-2)))
        - squares(&a.matmul(pw));
    let n = p.event_shape()[0] as f64;
    (q.log_det() - p.log_det() + trace + q.distance(&(q.loc() - p.loc())) - n) * 0.5
}

#[track_caller]
fn full_from_low_rank(p: &MultivariateNormal, q: &LowRankMultivariateNormal) -> Tensor {
    same_event(p, q);
    let (_, qd) = q.parts();
    let factor = p.factor();
    let trace = squares(&(factor * qd.rsqrt().unsqueeze(-1))) - squares(&q.solved().matmul(factor));
    let n = p.event_shape()[0] as f64;
    let log_dets = q.log_det() - half_log_det(factor) * 2.0;
    (log_dets + trace + q.distance(&(q.loc() - p.loc())) - n) * 0.5
}

/// `l^-1 x` of matrices whose batches are broadcast.
#[track_caller]
fn solved(l: &Tensor, x: &Tensor) -> Tensor {
    let batch = joint("kl_divergence", "q", without_last(x.shape(), 2), without_last(l.shape(), 2));
    let whole = |t: &Tensor| t.expand(&concat(&[&batch, last(t.shape(), 2)]));
    solve_lower(&whole(l), &whole(x))
}

#[track_caller]
fn low_rank_from_full(p: &LowRankMultivariateNormal, q: &MultivariateNormal) -> Tensor {
    same_event(p, q);
    let (pw, pd) = p.parts();
    let factor = q.factor();
    let trace =
        squares(&solved(factor, pw)) + squares(&solved(factor, &pd.sqrt().diag_embed(0, -2, -1)));
    let n = p.event_shape()[0] as f64;
    let log_dets = half_log_det(factor) * 2.0 - p.log_det();
    (log_dets + trace + mahalanobis(factor, &(q.loc() - p.loc())) - n) * 0.5
}

#[track_caller]
fn multivariate_normal(p: &MultivariateNormal, q: &MultivariateNormal) -> Tensor {
    same_event(p, q);
    let (a, b) = (p.factor(), q.factor());
    let n = p.event_shape()[0] as f64;
    let distance = mahalanobis(b, &(q.loc() - p.loc()));
    half_log_det(b) - half_log_det(a) + (squares(&solved(b, a)) + distance - n) * 0.5
}

pub(super) fn normal(p: &Normal, q: &Normal) -> Tensor {
    let ratio = (p.scale() / q.scale()).square();
    let distance = ((p.loc() - q.loc()) / q.scale()).square();
    (&ratio + distance - 1.0 - ratio.log()) * 0.5
}

fn pareto(p: &Pareto, q: &Pareto) -> Tensor {
    let ratio = q.alpha() / p.alpha();
    let kl = q.alpha() * (p.scale() / q.scale()).log() - ratio.log() + &ratio - 1.0;
    fill(&kl, &p.scale().lt(q.scale()), f64::INFINITY)
}

#[track_caller]
fn transformed(p: &TransformedDistribution, q: &TransformedDistribution) -> Tensor {
    if p.event_shape() != q.event_shape() || !all_same(p.transforms(), q.transforms()) {
        none(p, q);
    }
    kl_divergence(&**p.base_dist(), &**q.base_dist())
}

fn uniform(p: &Uniform, q: &Uniform) -> Tensor {
    let kl = ((q.high() - q.low()) / (p.high() - p.low())).log();
    let outside = q.low().gt(p.low()).logical_or(&q.high().lt(p.high()));
    fill(&kl, &outside, f64::INFINITY)
}
