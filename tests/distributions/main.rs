//! Samplers against cumulative distribution functions, moments and probabilities, their gradients against finite
//! differences, and values against PyTorch's.

use torchrs::distributions::transforms::{
    AffineTransform, CorrCholeskyTransform, ExpTransform, IndependentTransform, IntoTransform,
    PowerTransform, ReshapeTransform, Transform,
};
use torchrs::distributions::*;
use torchrs::{Dtype, Tensor, catch, fork_rng, get_num_threads, manual_seed, set_num_threads};

/// Runs `f` with the default generator at a seed.
fn seeded<T>(seed: u64, f: impl FnOnce() -> T) -> T {
    fork_rng(|| {
        manual_seed(seed);
        f()
    })
}

fn list(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()])
}

fn numbers(x: &Tensor) -> Vec<f64> {
    x.detach().to_vec::<f64>()
}

const SAMPLES: usize = 4000;
/// Kolmogorov's statistic times the root of the number of samples: above it one time in ten thousand.
const FAR: f64 = 2.23;

/// Kolmogorov and Smirnov's distance of samples from a cumulative distribution function, by that of values.
fn distance(sorted: &[f64], cdf: &[f64]) -> f64 {
    let n = sorted.len() as f64;
    let far = cdf.iter().enumerate().map(|(i, f)| (f - i as f64 / n).max((i + 1) as f64 / n - f));
    far.fold(0.0, f64::max)
}

#[track_caller]
fn assert_follows(d: &dyn Distribution, cdf: impl Fn(&Tensor) -> Tensor, seed: u64) {
    let mut x = seeded(seed, || numbers(&d.sample(&[SAMPLES])));
    x.sort_by(f64::total_cmp);
    let f = numbers(&cdf(&list(&x)));
    let far = distance(&x, &f) * (SAMPLES as f64).sqrt();
    assert!(far < FAR, "{d:?}: {far}");
}

fn one(v: f64) -> Tensor {
    Tensor::full([0usize; 0], v, Dtype::F64)
}

#[test]
fn samples_follow_their_cumulative_distribution_function() {
    let f = one;
    let continuous: Vec<Box<dyn Distribution>> = vec![
        Box::new(Normal::new(f(1.0), 2.0)),
        Box::new(HalfNormal::new(f(2.0))),
        Box::new(LogNormal::new(f(0.5), 0.7)),
        Box::new(Cauchy::new(f(1.0), 2.0)),
        Box::new(HalfCauchy::new(f(2.0))),
        Box::new(Laplace::new(f(-1.0), 2.0)),
        Box::new(Uniform::new(f(-1.0), 3.0)),
        Box::new(Exponential::new(f(2.5))),
        Box::new(Gumbel::new(f(1.0), 2.0)),
        Box::new(Pareto::new(f(2.0), 3.0)),
        Box::new(Weibull::new(f(2.0), 1.5)),
        Box::new(GeneralizedPareto::new(f(1.0), 2.0, 0.3)),
        Box::new(GeneralizedPareto::new(f(1.0), 2.0, 0.0)),
        Box::new(Kumaraswamy::new(f(2.0), 3.0)),
        Box::new(ContinuousBernoulli::from_probs(f(0.2))),
        Box::new(Gamma::new(f(0.05), 1.0)),
        Box::new(Gamma::new(f(0.7), 2.0)),
        Box::new(Gamma::new(f(3.0), 2.0)),
        Box::new(Gamma::new(f(900.0), 2.0)),
        Box::new(Chi2::new(f(5.0))),
        Box::new(InverseGamma::new(f(3.0), 2.0)),
    ];
    for (i, d) in continuous.iter().enumerate() {
        assert_follows(&**d, |x| d.cdf(x), 100 + i as u64);
    }
}

#[test]
fn samples_follow_their_density() {
    // Where there is no formula for it, the cumulative probability is summed from the density.
    let f = one;
    let cases: Vec<(Box<dyn Distribution>, f64, f64)> = vec![
        (Box::new(Beta::new(f(2.0), 3.0)), 0.0, 1.0),
        (Box::new(Beta::new(f(1.5), 1.5)), 0.0, 1.0),
        (Box::new(StudentT::new(f(4.0), 1.0, 2.0)), -200.0, 200.0),
        (Box::new(FisherSnedecor::new(f(5.0), 8.0)), 1e-9, 200.0),
        (Box::new(VonMises::new(f(0.5), 2.0)), -std::f64::consts::PI, std::f64::consts::PI),
        (Box::new(VonMises::new(f(0.0), 1e-7)), -std::f64::consts::PI, std::f64::consts::PI),
        (Box::new(RelaxedBernoulli::from_probs(0.7, f(0.3))), 0.0, 1.0),
        (
            Box::new(MixtureSameFamily::new(
                Categorical::from_probs(&list(&[0.3, 0.7])),
                Normal::new(list(&[-2.0, 1.0]), 0.5),
            )),
            -10.0,
            10.0,
        ),
    ];
    let n = 200_000;
    for (i, (d, low, high)) in cases.iter().enumerate() {
        let step = (high - low) / n as f64;
        let middles: Vec<f64> = (0..n).map(|k| low + (k as f64 + 0.5) * step).collect();
        let density = numbers(&d.log_prob(&list(&middles)).exp());
        let mut sums = vec![0.0];
        for p in density {
            sums.push(sums[sums.len() - 1] + p * step);
        }
        let total = sums[n];
        assert!((total - 1.0).abs() < 2e-3, "{d:?} sums to {total}");
        let cdf = |x: &Tensor| {
            let at = |x: &f64| sums[(((x - low) / step).max(0.0) as usize).min(n)] / total;
            list(&numbers(x).iter().map(at).collect::<Vec<_>>())
        };
        assert_follows(&**d, cdf, 300 + i as u64);
    }
}

#[test]
fn counts_have_their_probabilities() {
    let f = one;
    let cases: Vec<(Box<dyn Distribution>, usize)> = vec![
        (Box::new(Bernoulli::from_probs(f(0.3))), 2),
        (Box::new(Poisson::new(f(0.0))), 3),
        (Box::new(Poisson::new(f(3.5))), 30),
        (Box::new(Poisson::new(f(12.0))), 60),
        (Box::new(Poisson::new(f(400.0))), 700),
        (Box::new(Binomial::from_probs(f(6.0), 0.3)), 7),
        (Box::new(Binomial::from_probs(f(200.0), 0.02)), 201),
        (Box::new(Binomial::from_probs(f(60.0), 0.4)), 61),
        (Box::new(Binomial::from_probs(f(500.0), 0.9)), 501),
        (Box::new(Binomial::from_probs(f(5.0), 1.0)), 6),
        (Box::new(Geometric::from_probs(f(0.25))), 100),
        (Box::new(NegativeBinomial::from_probs(f(3.0), 0.5)), 80),
        (Box::new(Categorical::from_probs(&list(&[0.1, 0.6, 0.0, 0.3]))), 4),
    ];
    for (i, (d, most)) in cases.iter().enumerate() {
        let x = seeded(500 + i as u64, || numbers(&d.sample(&[SAMPLES])));
        let values: Vec<f64> = (0..*most).map(|k| k as f64).collect();
        let values = list(&values);
        let p = if d.name() == "Categorical" {
            d.log_prob(&values.to_dtype(Dtype::I64)).exp()
        } else {
            d.log_prob(&values).exp()
        };
        let p = numbers(&p);
        let total: f64 = p.iter().sum();
        assert!((total - 1.0).abs() < 1e-6, "{d:?} sums to {total}");
        // Chi squared over classes of at least 5 expected counts, the others as one.
        let (mut chi2, mut rest, mut rest_got, mut classes) = (0.0, 0.0, 0.0, 0);
        for (k, p) in p.iter().enumerate() {
            let (want, got) =
                (p * SAMPLES as f64, x.iter().filter(|x| **x == k as f64).count() as f64);
            if want >= 5.0 {
                chi2 += (got - want) * (got - want) / want;
                classes += 1;
            } else {
                rest += want;
                rest_got += got;
            }
        }
        assert!(x.iter().all(|x| *x >= 0.0 && *x < *most as f64 && x.fract() == 0.0), "{d:?}");
        if rest >= 5.0 {
            chi2 += (rest_got - rest) * (rest_got - rest) / rest;
            classes += 1;
        }
        let n = f64::from(classes - 1).max(1.0);
        // Wilson and Hilferty: four standard deviations.
        let bound = n * (1.0 - 2.0 / (9.0 * n) + 4.0 * (2.0 / (9.0 * n)).sqrt()).powi(3);
        assert!(chi2 < bound, "{d:?}: {chi2} of {bound}");
    }
}

#[test]
fn samples_of_vectors_and_matrices_have_their_moments() {
    let covariance = Tensor::from([[2f64, 0.6], [0.6, 1.]]);
    let (loc, w) = (list(&[1.0, -1.0]), Tensor::from([[1f64], [0.5]]));
    let cases: Vec<Box<dyn Distribution>> = vec![
        Box::new(MultivariateNormal::from_covariance(loc.clone(), covariance.clone())),
        Box::new(MultivariateNormal::from_precision(loc.clone(), covariance.clone())),
        Box::new(LowRankMultivariateNormal::new(loc, w, list(&[0.3, 0.2]))),
        Box::new(Dirichlet::new(list(&[0.02, 0.5, 3.0]))),
        Box::new(OneHotCategorical::from_probs(&list(&[0.2, 0.5, 0.3]))),
        Box::new(OneHotCategoricalStraightThrough::from_probs(&list(&[0.2, 0.5, 0.3]))),
        Box::new(Multinomial::from_probs(7, &list(&[0.2, 0.5, 0.3]))),
        Box::new(Wishart::from_covariance(4.0, covariance)),
    ];
    for (i, d) in cases.iter().enumerate() {
        let x = seeded(700 + i as u64, || d.sample(&[SAMPLES]));
        let (mean, variance) = (d.mean(), d.variance());
        let error = ((x.mean_dim(&[0], false) - mean) / (&variance / SAMPLES as f64).sqrt()).abs();
        assert!(error.max().item() < 4.0, "{d:?}: mean off by {}", error.max().item());
        let ratio = x.var_dim(&[0], 1, false) / variance;
        assert!((ratio - 1.0).abs().max().item() < 0.25, "{d:?}: variance");
        assert!(d.support().check(&x).all().item() != 0.0, "{d:?}: support");
    }
}

#[test]
fn correlations_are_symmetric_and_their_rows_of_norm_one() {
    let d = LKJCholesky::new(3, one(2.0));
    let l = seeded(900, || d.sample(&[SAMPLES]));
    assert_eq!(l.shape(), &[SAMPLES, 3, 3]);
    assert!(d.support().check(&l).all().item() != 0.0);
    let r = l.matmul(&l.mt());
    // Each correlation is 2 b - 1 of a beta number of shapes concentration - 1 + 3 / 2.
    for (i, j) in [(1, 0), (2, 0), (2, 1)] {
        let c = r.i((.., i, j));
        let variance = 1.0 / (2.0 * 2.5 + 1.0);
        assert!(c.mean().item().abs() < 4.0 * (variance / SAMPLES as f64).sqrt());
        assert!((c.square().mean().item() / variance - 1.0).abs() < 0.1);
    }
}

#[test]
fn gradients_of_gamma_samples_are_those_at_a_fixed_probability() {
    // dx/da = -(dP/da) / (dP/dx), by differences of P.
    let shapes = [0.05, 0.5, 1.0, 2.5, 20.0, 180.0, 480.0, 800.0, 20_000.0];
    let a =
        list(&shapes).unsqueeze(-1).expand(&[shapes.len(), 8]).contiguous().requires_grad_(true);
    let x = seeded(11, || a.standard_gamma());
    x.sum().backward();
    let (x, slope) = (numbers(&x), numbers(&a.grad().expect("a gradient")));
    let flat = numbers(&a);
    for ((&a, &x), &slope) in flat.iter().zip(&x).zip(&slope) {
        let p = |a: f64, x: f64| Gamma::new(list(&[a]), 1.0).cdf(&list(&[x])).item();
        let h = a * 1e-5;
        let by_shape = (p(a + h, x) - p(a - h, x)) / (2.0 * h);
        let k = x * 1e-5;
        let by_x = (p(a, x + k) - p(a, x - k)) / (2.0 * k);
        let want = -by_shape / by_x;
        let tolerance = if a > 500.0 { 1e-4 } else { 1e-5 };
        // Far in a tail differences of P say nothing.
        if x > 1e-100 && p(a, x) < 0.9999 {
            assert!((slope / want - 1.0).abs() < tolerance, "a {a} x {x}: {slope}, {want}");
        }
    }
}

#[test]
fn rsamples_have_the_gradients_of_their_moments() {
    // d E[x^2] / d parameter, by samples and by the moments' formulas.
    type Make = fn(&Tensor) -> Box<dyn Distribution>;
    let cases: [(Make, f64); 11] = [
        (|t| Box::new(Normal::new(t, 1.5)), 0.7),
        (|t| Box::new(Laplace::new(0.5, t)), 0.7),
        (|t| Box::new(Uniform::new(-0.5, t)), 0.7),
        (|t| Box::new(Exponential::new(t)), 0.7),
        (|t| Box::new(Gamma::new(t, 2.0)), 0.7),
        (|t| Box::new(Gamma::new(3.0, t)), 0.7),
        (|t| Box::new(Beta::new(t, 2.0)), 0.7),
        (|t| Box::new(Chi2::new(t)), 2.7),
        (|t| Box::new(LogNormal::new(0.1, t)), 0.5),
        (|t| Box::new(Gumbel::new(t, 0.5)), 0.7),
        (|t| Box::new(ContinuousBernoulli::from_probs(t)), 0.3),
    ];
    for (i, (make, at)) in cases.iter().enumerate() {
        let moment = |d: &dyn Distribution| (d.variance() + d.mean().square()).sum();
        let (a, b) = (one(*at).requires_grad_(true), one(*at).requires_grad_(true));
        moment(&*make(&a)).backward();
        let n = 40_000;
        let d = make(&b);
        assert!(d.has_rsample());
        seeded(1300 + i as u64, || d.rsample(&[n])).square().mean().backward();
        let want = a.grad().expect("a gradient").item();
        let got = b.grad().expect("a gradient").item();
        assert!((got / want - 1.0).abs() < 0.06, "{d:?}: {got}, {want}");
        assert!(seeded(1, || d.sample(&[2])).grad_fn().is_none());
    }
}

#[test]
fn dirichlet_samples_have_the_gradients_of_their_moments() {
    let make = || list(&[0.4, 1.5, 3.0]).requires_grad_(true);
    let (a, b) = (make(), make());
    let weights = list(&[1.0, -2.0, 0.5]);
    let exact = Dirichlet::new(&a);
    ((exact.variance() + exact.mean().square()) * &weights).sum().backward();
    let x = seeded(1500, || Dirichlet::new(&b).rsample(&[40_000]));
    (x.square() * &weights).sum_dim(&[-1], false).mean().backward();
    let (want, got) = (a.grad().expect("a gradient"), b.grad().expect("a gradient"));
    assert!((&want - &got).abs().max().item() < 0.01, "{want:?} {got:?}");
}

#[test]
fn a_second_derivative_of_gamma_samples_is_refused() {
    use torchrs::autograd::{GraphMode, grad};
    let a = list(&[2.0]).requires_grad_(true);
    let x = seeded(1, || a.standard_gamma());
    let g = grad(&[&x], &[&a], &[None], GraphMode::Create);
    let g = g[0].clone().expect("a gradient");
    let error = catch(|| g.backward()).expect_err("must be refused").to_string();
    assert!(error.contains("no second derivative"), "{error}");
}

#[test]
fn samples_do_not_depend_on_the_number_of_threads() {
    let all: Vec<Box<dyn Distribution>> = vec![
        Box::new(Gamma::new(one(0.7), 1.0)),
        Box::new(Poisson::new(one(30.0))),
        Box::new(Binomial::from_probs(one(90.0), 0.3)),
        Box::new(VonMises::new(one(0.7), 1.0)),
        Box::new(Dirichlet::new(list(&[0.5, 2.0]))),
        Box::new(Categorical::from_probs(&list(&[0.5, 2.0]))),
    ];
    let before = get_num_threads();
    for d in &all {
        let draw = || seeded(3, || d.sample(&[20_000]));
        set_num_threads(1);
        let one = draw();
        set_num_threads(4);
        let four = draw();
        set_num_threads(before);
        assert!(one.equal(&four), "{d:?}");
    }
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    let message = |f: &dyn Fn() -> Tensor| catch(f).expect_err("must be refused").to_string();
    let of = |f: fn() -> Box<dyn Distribution>| message(&move || f().mean());
    let error = of(|| Box::new(Normal::new(0.0, -1.0)));
    assert!(
        error.contains("Normal: argument `scale`") && error.contains("greater_than(0)"),
        "{error}"
    );
    assert!(of(|| Box::new(Uniform::new(2.0, 1.0))).contains("`low`"));
    assert!(of(|| Box::new(Geometric::from_probs(0.0))).contains("`probs`"));
    assert!(of(|| Box::new(LKJCholesky::new(1, 1.0))).contains("`dim`"));
    assert!(of(|| Box::new(RelaxedBernoulli::from_probs(0.0, 0.5))).contains("`temperature`"));
    let relaxed = || RelaxedOneHotCategorical::from_logits(-1.0, &list(&[0.0, 1.0])).probs();
    assert!(message(&relaxed).contains("`temperature`"));
    let real = constraints::real;
    assert!(
        message(&|| constraints::stack(vec![real()], 0).check(&list(&[1., 2.]))).contains("size 1")
    );
    let parts =
        || constraints::cat(vec![real(), real()], 0, &[1, 2]).check(&list(&[1., 2., 3., 4.]));
    assert!(message(&parts).contains("size 3"));
    assert!(of(|| Box::new(Normal::new(list(&[1., 2.]), list(&[1., 2., 3.])))).contains("scale"));
    let error = message(&|| Gamma::new(1.0, 1.0).icdf(&list(&[0.5])));
    assert!(error.contains("icdf") && error.contains("Gamma"), "{error}");
    let error = message(&|| Exponential::new(1.0).log_prob(&list(&[-1.0])));
    assert!(error.contains("within the support") && error.contains("-1"), "{error}");
    let error = message(&|| Normal::new(list(&[0., 0.]), 1.0).log_prob(&list(&[1., 2., 3.])));
    assert!(error.contains("cannot be broadcast"), "{error}");
    let error = message(&|| kl_divergence(&StudentT::new(1.0, 0.0, 1.0), &Normal::new(0.0, 1.0)));
    assert!(error.contains("StudentT") && error.contains("register_kl"), "{error}");
    assert!(message(&|| list(&[-1.0]).poisson()).contains("-1 at position 0"));
    assert!(message(&|| Tensor::normal(&list(&[0.0]), -1.0)).contains("`std`"));
    assert!(message(&|| Tensor::binomial(&list(&[3.0]), &list(&[1.5]))).contains("`prob`"));
    let unchecked = with_validate_args(false, || Exponential::new(1.0));
    assert_eq!(unchecked.log_prob(&list(&[-1.0])).item(), 1.0);
}

#[test]
fn parents_have_the_formulas_that_cases_of_them_lack() {
    let kl = |p: &dyn Distribution, q: &dyn Distribution| kl_divergence(p, q).item();
    let (a, b) = (one(3.0), one(5.0));
    let same = kl(&Gamma::new(&a * 0.5, 0.5), &Gamma::new(&b * 0.5, 0.5));
    assert_eq!(kl(&Chi2::new(&a), &Chi2::new(&b)), same);
    let normal = kl(&Normal::new(&a, 1.0), &Normal::new(&b, 2.0));
    assert_eq!(kl(&LogNormal::new(&a, 1.0), &LogNormal::new(&b, 2.0)), normal);
    let made = TransformedDistribution::new(Normal::new(&b, 2.0), ExpTransform);
    assert_eq!(kl(&LogNormal::new(&a, 1.0), &made), normal);
    let shifted = TransformedDistribution::new(Normal::new(&b, 2.0), AffineTransform::new(0, 2));
    assert!(catch(|| kl(&LogNormal::new(&a, 1.0), &shifted)).is_err());
    // By samples.
    let (p, q) = (
        Wishart::from_covariance(4.0, Tensor::from([[2f64, 0.6], [0.6, 1.]])),
        Wishart::from_covariance(5.0, Tensor::from([[1f64, 0.], [0., 1.]])),
    );
    let x = seeded(77, || p.sample(&[20_000]));
    let mean = (p.log_prob(&x) - q.log_prob(&x)).mean().item();
    assert!((mean - kl(&p, &q)).abs() < 0.05, "{mean} {}", kl(&p, &q));
}

#[test]
fn transforms_refuse_tensors_of_other_events() {
    let refused = |what: &str, f: &dyn Fn() -> Tensor| {
        let error = catch(f).expect_err(what).to_string();
        assert!(error.contains(what) && error.contains("shape"), "{error}");
    };
    let (number, three) = (&one(0.5), &list(&[1., 2., 3.]));
    let affine = AffineTransform::new(1.0, three).event_dim(1);
    refused("AffineTransform", &|| affine.log_abs_det_jacobian(number, number));
    let reshape = ReshapeTransform::new(&[2, 2], &[4]);
    refused("ReshapeTransform", &|| reshape.log_abs_det_jacobian(three, three));
    refused("ReshapeTransform", &|| {
        let x = Tensor::zeros([2, 3], Dtype::F64);
        reshape.log_abs_det_jacobian(&x, &x)
    });
    let independent = IndependentTransform::new(ExpTransform, 1);
    refused("IndependentTransform", &|| independent.log_abs_det_jacobian(number, number));
    let tall = Tensor::from([[1f64, 0.], [0.6, 0.8], [0., 1.]]);
    refused("CorrCholeskyTransform", &|| CorrCholeskyTransform.inverse(&tall));
}

#[test]
fn falling_transforms_turn_probabilities_around() {
    let base = Uniform::new(one(0.5), 2.0);
    let chain = vec![
        PowerTransform::new(-1.0).into_transform(),
        AffineTransform::new(1, -2).into_transform(),
    ];
    let d = TransformedDistribution::new(base, chain);
    let x = list(&[-2.0, -1.0]);
    let p = d.cdf(&x);
    assert!(d.icdf(&p).allclose(&x, Default::default()), "{p:?}");
    assert!(p.i(0).item() < p.i(1).item());
}
