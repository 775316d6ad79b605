//! Distributions, transforms and constraints as the cases write them.

use std::sync::Arc;

use serde_json::Value;
use torchrs::Tensor;
use torchrs::distributions::transforms as t;
use torchrs::distributions::{
    self as d, Constraint, Distribution, IntoDistribution, Param, Transform, constraints,
    with_validate_args,
};

use crate::arg::{Arg, Call, Outcome, Stop, lacks};
use crate::case::Case;
use crate::forward::Named;

/// The call that an object's arguments are.
fn call(case: &Case, spec: &Value, inputs: &Named) -> Call {
    let args = match case.decode(&spec["args"], inputs) {
        Arg::List(args) => args,
        _ => Vec::new(),
    };
    let named = spec["kwargs"].as_object().into_iter().flatten();
    let named = named.map(|(name, value)| (name.clone(), case.decode(value, inputs))).collect();
    Call::new(args, named)
}

/// What was not asked for is not supported.
fn all_asked<T>(c: &Call, built: Outcome<T>) -> Outcome<T> {
    let built = built?;
    match c.unused() {
        Some(unused) => lacks(unused),
        None => Ok(built),
    }
}

fn param(c: &Call, i: usize, name: &str) -> Outcome<Param> {
    match c.get(i, name) {
        Arg::Tensor(x) => Ok(x.into()),
        Arg::Int(v) => Ok((*v).into()),
        Arg::Float(v) => Ok((*v).into()),
        _ => c.odd(i, name),
    }
}

fn param_or(c: &Call, i: usize, name: &str, default: f64) -> Outcome<Param> {
    if c.given(i, name) { param(c, i, name) } else { Ok(default.into()) }
}

/// An object inside of an argument.
fn inside(arg: &Arg, kind: &str) -> Outcome<Value> {
    let Arg::Other(text) = arg else {
        return Err(Stop::Unwritable(format!("{arg:?} for a {kind}")));
    };
    let value: Value = serde_json::from_str(text).unwrap_or(Value::Null);
    match value.get(kind) {
        Some(spec) => Ok(spec.clone()),
        None => Err(Stop::Unwritable(format!("{text} for a {kind}"))),
    }
}

/// The `one` of two parameters that is given, by `probs` or by `logits`.
fn either<T>(
    c: &Call,
    i: usize,
    probs: impl FnOnce(Param) -> T,
    logits: impl FnOnce(Param) -> T,
) -> Outcome<T> {
    let (p, l) = (c.get(i, "probs"), c.get(i + 1, "logits"));
    match (p, l) {
        (Arg::None, Arg::None) => Err(Stop::Unwritable("neither `probs` nor `logits`".into())),
        (_, Arg::None) => Ok(probs(param(c, i, "probs")?)),
        (Arg::None, _) => Ok(logits(param(c, i + 1, "logits")?)),
        _ => Err(Stop::Unwritable("both `probs` and `logits`".into())),
    }
}

/// [`either`] of tensors.
fn either_tensor<T>(
    c: &Call,
    i: usize,
    probs: impl FnOnce(&Tensor) -> T,
    logits: impl FnOnce(&Tensor) -> T,
) -> Outcome<T> {
    let plain = |p: Param| match p {
        Param::Tensor(t) => Some(t),
        _ => None,
    };
    let missing = || Stop::Unwritable("a number for a tensor".into());
    either(
        c,
        i,
        |p| plain(p).map(|p| probs(&p)).ok_or_else(missing),
        |l| plain(l).map(|l| logits(&l)).ok_or_else(missing),
    )?
}

/// The one matrix of three that is given.
fn matrix<T>(
    c: &Call,
    covariance: impl FnOnce(Tensor) -> T,
    precision: impl FnOnce(Tensor) -> T,
    tril: impl FnOnce(Tensor) -> T,
) -> Outcome<T> {
    let given = [
        c.maybe_tensor(1, "covariance_matrix")?,
        c.maybe_tensor(2, "precision_matrix")?,
        c.maybe_tensor(3, "scale_tril")?,
    ];
    match given {
        [Some(m), None, None] => Ok(covariance(m.clone())),
        [None, Some(m), None] => Ok(precision(m.clone())),
        [None, None, Some(m)] => Ok(tril(m.clone())),
        _ => Err(Stop::Unwritable("not one of the three matrices".into())),
    }
}

pub fn distribution(
    case: &Case,
    op: &str,
    spec: &Value,
    inputs: &Named,
) -> Outcome<Arc<dyn Distribution>> {
    let c = call(case, spec, inputs);
    let built = match c.maybe_flag(usize::MAX, "validate_args")? {
        Some(validate) => with_validate_args(validate, || by_name(case, op, &c, inputs)),
        None => by_name(case, op, &c, inputs),
    };
    all_asked(&c, built)
}

fn by_name(case: &Case, op: &str, c: &Call, inputs: &Named) -> Outcome<Arc<dyn Distribution>> {
    let nested = |i: usize, name: &str| -> Outcome<Arc<dyn Distribution>> {
        let spec = inside(c.get(i, name), "distribution")?;
        distribution(case, spec["op"].as_str().unwrap_or(""), &spec, inputs)
    };
    macro_rules! of {
        ($name:ident($($p:ident),+)) => {{
            let mut i = 0;
            $(let $p = param(c, i, stringify!($p))?; i += 1;)+
            let _ = i;
            d::$name::new($($p),+).into_distribution()
        }};
    }
    Ok(match op.strip_prefix("distributions.").unwrap_or(op) {
        "Normal" => of!(Normal(loc, scale)),
        "HalfNormal" => of!(HalfNormal(scale)),
        "LogNormal" => of!(LogNormal(loc, scale)),
        "LogisticNormal" => of!(LogisticNormal(loc, scale)),
        "Cauchy" => of!(Cauchy(loc, scale)),
        "HalfCauchy" => of!(HalfCauchy(scale)),
        "Laplace" => of!(Laplace(loc, scale)),
        "Uniform" => of!(Uniform(low, high)),
        "Exponential" => of!(Exponential(rate)),
        "Gumbel" => of!(Gumbel(loc, scale)),
        "Pareto" => of!(Pareto(scale, alpha)),
        "Weibull" => of!(Weibull(scale, concentration)),
        "GeneralizedPareto" => of!(GeneralizedPareto(loc, scale, concentration)),
        "Gamma" => of!(Gamma(concentration, rate)),
        "Chi2" => of!(Chi2(df)),
        "InverseGamma" => of!(InverseGamma(concentration, rate)),
        "FisherSnedecor" => of!(FisherSnedecor(df1, df2)),
        "Dirichlet" => of!(Dirichlet(concentration)),
        "Beta" => of!(Beta(concentration1, concentration0)),
        "Kumaraswamy" => of!(Kumaraswamy(concentration1, concentration0)),
        "Poisson" => of!(Poisson(rate)),
        "VonMises" => of!(VonMises(loc, concentration)),
        "StudentT" => {
            let (loc, scale) = (param_or(c, 1, "loc", 0.0)?, param_or(c, 2, "scale", 1.0)?);
            d::StudentT::new(param(c, 0, "df")?, loc, scale).into_distribution()
        }
        "Bernoulli" => {
            either(c, 0, d::Bernoulli::from_probs, d::Bernoulli::from_logits)?.into_distribution()
        }
        "Geometric" => {
            either(c, 0, d::Geometric::from_probs, d::Geometric::from_logits)?.into_distribution()
        }
        "ContinuousBernoulli" => {
            let built = either(
                c,
                0,
                d::ContinuousBernoulli::from_probs,
                d::ContinuousBernoulli::from_logits,
            )?;
            let built = match c.get(2, "lims") {
                Arg::None => built,
                _ => {
                    let lims = c.floats(2, "lims")?;
                    built.lims(lims[0], lims[1])
                }
            };
            built.into_distribution()
        }
        "RelaxedBernoulli" => {
            let temperature = param(c, 0, "temperature")?;
            either(
                c,
                1,
                |p| d::RelaxedBernoulli::from_probs(&temperature, p),
                |l| d::RelaxedBernoulli::from_logits(&temperature, l),
            )?
            .into_distribution()
        }
        "RelaxedOneHotCategorical" => {
            let temperature = param(c, 0, "temperature")?;
            either_tensor(
                c,
                1,
                |p| d::RelaxedOneHotCategorical::from_probs(&temperature, p),
                |l| d::RelaxedOneHotCategorical::from_logits(&temperature, l),
            )?
            .into_distribution()
        }
        "Binomial" => {
            let n = param_or(c, 0, "total_count", 1.0)?;
            either(c, 1, |p| d::Binomial::from_probs(&n, p), |l| d::Binomial::from_logits(&n, l))?
                .into_distribution()
        }
        "NegativeBinomial" => {
            let n = param(c, 0, "total_count")?;
            either(
                c,
                1,
                |p| d::NegativeBinomial::from_probs(&n, p),
                |l| d::NegativeBinomial::from_logits(&n, l),
            )?
            .into_distribution()
        }
        "Multinomial" => {
            let n = c.count(0, "total_count", 1)?;
            either_tensor(
                c,
                1,
                |p| d::Multinomial::from_probs(n, p),
                |l| d::Multinomial::from_logits(n, l),
            )?
            .into_distribution()
        }
        "Categorical" => categorical(c)?.into_distribution(),
        "OneHotCategorical" => either_tensor(
            c,
            0,
            d::OneHotCategorical::from_probs,
            d::OneHotCategorical::from_logits,
        )?
        .into_distribution(),
        "OneHotCategoricalStraightThrough" => either_tensor(
            c,
            0,
            d::OneHotCategoricalStraightThrough::from_probs,
            d::OneHotCategoricalStraightThrough::from_logits,
        )?
        .into_distribution(),
        "MultivariateNormal" => {
            let loc = c.tensor(0, "loc")?;
            matrix(
                c,
                |m| d::MultivariateNormal::from_covariance(loc.clone(), m),
                |m| d::MultivariateNormal::from_precision(loc.clone(), m),
                |m| d::MultivariateNormal::from_scale_tril(loc.clone(), m),
            )?
            .into_distribution()
        }
        "LowRankMultivariateNormal" => {
            let of = |i, name: &str| c.tensor(i, name).cloned();
            d::LowRankMultivariateNormal::new(
                of(0, "loc")?,
                of(1, "cov_factor")?,
                of(2, "cov_diag")?,
            )
            .into_distribution()
        }
        "Wishart" => {
            let df = param(c, 0, "df")?;
            matrix(
                c,
                |m| d::Wishart::from_covariance(&df, m),
                |m| d::Wishart::from_precision(&df, m),
                |m| d::Wishart::from_scale_tril(&df, m),
            )?
            .into_distribution()
        }
        "LKJCholesky" => {
            let concentration = param_or(c, 1, "concentration", 1.0)?;
            d::LKJCholesky::new(c.count(0, "dim", 0)?, concentration).into_distribution()
        }
        "Independent" => {
            let n = c.count(1, "reinterpreted_batch_ndims", 0)?;
            d::Independent::new(nested(0, "base_distribution")?, n).into_distribution()
        }
        "MixtureSameFamily" => {
            let mixture = nested(0, "mixture_distribution")?;
            let component = nested(1, "component_distribution")?;
            match mixture.downcast_ref::<d::Categorical>() {
                Some(weights) => {
                    d::MixtureSameFamily::new(weights.clone(), component).into_distribution()
                }
                None => return Err(Stop::Unwritable("weights that are not categorical".into())),
            }
        }
        "TransformedDistribution" => {
            let base = nested(0, "base_distribution")?;
            let chain = match c.get(1, "transforms") {
                Arg::List(list) => {
                    let each = list.iter().map(|arg| one_transform(case, arg, inputs));
                    each.collect::<Outcome<Vec<_>>>()?
                }
                one => vec![one_transform(case, one, inputs)?],
            };
            d::TransformedDistribution::new(base, chain).into_distribution()
        }
        other => return lacks(format!("distribution {other}")),
    })
}

fn categorical(c: &Call) -> Outcome<d::Categorical> {
    either_tensor(c, 0, d::Categorical::from_probs, d::Categorical::from_logits)
}

/// A parameter in one of its forms.
pub fn attribute(any: &dyn Distribution, name: &str) -> Option<Tensor> {
    macro_rules! find {
        ($method:ident of $($name:ident)+) => {
            match name == stringify!($method) {
                true => None$(.or_else(|| any.downcast_ref::<d::$name>().map(|d| d.$method())))+,
                false => None,
            }
        };
    }
    find!(probs of Bernoulli Geometric ContinuousBernoulli RelaxedBernoulli Categorical
        OneHotCategorical OneHotCategoricalStraightThrough RelaxedOneHotCategorical Binomial
        NegativeBinomial Multinomial)
    .or_else(|| {
        find!(logits of Bernoulli Geometric ContinuousBernoulli RelaxedBernoulli Categorical
            OneHotCategorical OneHotCategoricalStraightThrough RelaxedOneHotCategorical Binomial
            NegativeBinomial Multinomial)
    })
    .or_else(|| find!(covariance_matrix of MultivariateNormal LowRankMultivariateNormal Wishart))
    .or_else(|| find!(precision_matrix of MultivariateNormal LowRankMultivariateNormal Wishart))
    .or_else(|| find!(scale_tril of MultivariateNormal LowRankMultivariateNormal Wishart))
}

fn one_transform(case: &Case, arg: &Arg, inputs: &Named) -> Outcome<Arc<dyn Transform>> {
    let spec = inside(arg, "transform")?;
    transform(case, spec["op"].as_str().unwrap_or(""), &spec, inputs)
}

pub fn transform(
    case: &Case,
    op: &str,
    spec: &Value,
    inputs: &Named,
) -> Outcome<Arc<dyn Transform>> {
    let c = call(case, spec, inputs);
    let built = transform_by_name(case, op, &c, inputs);
    all_asked(&c, built)
}

fn transform_by_name(
    case: &Case,
    op: &str,
    c: &Call,
    inputs: &Named,
) -> Outcome<Arc<dyn Transform>> {
    let list = |i: usize, name: &str| -> Outcome<Vec<Arc<dyn Transform>>> {
        match c.get(i, name) {
            Arg::List(list) => list.iter().map(|arg| one_transform(case, arg, inputs)).collect(),
            _ => c.odd(i, name),
        }
    };
    Ok(match op.strip_prefix("distributions.").unwrap_or(op) {
        "ExpTransform" => Arc::new(t::ExpTransform),
        "AbsTransform" => Arc::new(t::AbsTransform),
        "SigmoidTransform" => Arc::new(t::SigmoidTransform),
        "SoftplusTransform" => Arc::new(t::SoftplusTransform),
        "TanhTransform" => Arc::new(t::TanhTransform),
        "SoftmaxTransform" => Arc::new(t::SoftmaxTransform),
        "StickBreakingTransform" => Arc::new(t::StickBreakingTransform),
        "LowerCholeskyTransform" => Arc::new(t::LowerCholeskyTransform),
        "PositiveDefiniteTransform" => Arc::new(t::PositiveDefiniteTransform),
        "CorrCholeskyTransform" => Arc::new(t::CorrCholeskyTransform),
        "PowerTransform" => Arc::new(t::PowerTransform::new(param(c, 0, "exponent")?)),
        "AffineTransform" => {
            let (loc, scale) = (param(c, 0, "loc")?, param(c, 1, "scale")?);
            let event_dim = c.count(2, "event_dim", 0)?;
            Arc::new(t::AffineTransform::new(loc, scale).event_dim(event_dim))
        }
        "ComposeTransform" => Arc::new(t::ComposeTransform::new(list(0, "parts")?)),
        "IndependentTransform" => {
            let base = one_transform(case, c.get(0, "base_transform"), inputs)?;
            let n = c.count(1, "reinterpreted_batch_ndims", 0)?;
            Arc::new(t::IndependentTransform::new(base, n))
        }
        "ReshapeTransform" => {
            let (from, to) = (c.size_list(0, "in_shape")?, c.size_list(1, "out_shape")?);
            Arc::new(t::ReshapeTransform::new(&from, &to))
        }
        "CatTransform" => {
            let parts = list(0, "tseq")?;
            let lengths = match c.get(2, "lengths") {
                Arg::None => vec![1; parts.len()],
                _ => c.size_list(2, "lengths")?,
            };
            Arc::new(t::CatTransform::new(parts, c.int(1, "dim", 0)?, &lengths))
        }
        "StackTransform" => Arc::new(t::StackTransform::new(list(0, "tseq")?, c.int(1, "dim", 0)?)),
        "CumulativeDistributionTransform" => {
            let spec = inside(c.get(0, "distribution"), "distribution")?;
            let op = spec["op"].as_str().unwrap_or("");
            Arc::new(t::CumulativeDistributionTransform::new(distribution(
                case, op, &spec, inputs,
            )?))
        }
        "biject_to" => d::biject_to(&constraint(case, c.get(0, "constraint"), inputs)?),
        "transform_to" => d::transform_to(&constraint(case, c.get(0, "constraint"), inputs)?),
        other => return lacks(format!("transform {other}")),
    })
}

fn constraint(case: &Case, arg: &Arg, inputs: &Named) -> Outcome<Constraint> {
    let spec = inside(arg, "constraint")?;
    let c = call(case, &spec, inputs);
    let part = |i: usize, name: &str| constraint(case, c.get(i, name), inputs);
    let parts = |i: usize, name: &str| -> Outcome<Vec<Constraint>> {
        match c.get(i, name) {
            Arg::List(list) => list.iter().map(|arg| constraint(case, arg, inputs)).collect(),
            _ => c.odd(i, name),
        }
    };
    let (low, high) = (|| param(&c, 0, "lower_bound"), |i| param(&c, i, "upper_bound"));
    let built = Ok(match spec["name"].as_str().unwrap_or("") {
        "boolean" => constraints::boolean(),
        "one_hot" => constraints::one_hot(),
        "real" => constraints::real(),
        "real_vector" => constraints::real_vector(),
        "positive" => constraints::positive(),
        "nonnegative" => constraints::nonnegative(),
        "nonnegative_integer" => constraints::nonnegative_integer(),
        "positive_integer" => constraints::positive_integer(),
        "unit_interval" => constraints::unit_interval(),
        "simplex" => constraints::simplex(),
        "lower_triangular" => constraints::lower_triangular(),
        "lower_cholesky" => constraints::lower_cholesky(),
        "corr_cholesky" => constraints::corr_cholesky(),
        "square" => constraints::square(),
        "symmetric" => constraints::symmetric(),
        "positive_semidefinite" => constraints::positive_semidefinite(),
        "positive_definite" => constraints::positive_definite(),
        "greater_than" => constraints::greater_than(low()?),
        "greater_than_eq" => constraints::greater_than_eq(low()?),
        "less_than" => constraints::less_than(high(0)?),
        "multinomial" => constraints::multinomial(high(0)?),
        "interval" => constraints::interval(low()?, high(1)?),
        "half_open_interval" => constraints::half_open_interval(low()?, high(1)?),
        "integer_interval" => constraints::integer_interval(low()?, high(1)?),
        "independent" => {
            let n = c.count(1, "reinterpreted_batch_ndims", 0)?;
            constraints::independent(part(0, "base_constraint")?, n)
        }
        "cat" => {
            let parts = parts(0, "cseq")?;
            let lengths = match c.get(2, "lengths") {
                Arg::None => vec![1; parts.len()],
                _ => c.size_list(2, "lengths")?,
            };
            constraints::cat(parts, c.int(1, "dim", 0)?, &lengths)
        }
        "stack" => constraints::stack(parts(0, "cseq")?, c.int(1, "dim", 0)?),
        other => return lacks(format!("constraint {other}")),
    });
    all_asked(&c, built)
}
