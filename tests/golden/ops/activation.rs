//! Ops of groups `activation` and `dropout`.

use torchrs::Tensor;
use torchrs::nn::functional as F;

use super::Table;
use crate::arg::{Call, Outcome, lacks};

fn x(c: &Call) -> Outcome<&Tensor> {
    c.tensor(0, "input")
}

/// `F::op(x, ..)`, or with `inplace` `x.op_(..)`; the arguments are those of the first.
macro_rules! in_place_or_not {
    ($t:ident: $($name:literal $op:ident $op_:ident ($($i:literal $argument:literal $default:expr),*);)*) => {$(
        $t.op(concat!("nn.functional.", $name), |c| match c.flag(usize::MAX, "inplace", false)? {
            false => Ok(F::$op(x(c)?, $(c.float($i, $argument, $default)?),*)),
            true => Ok(x(c)?.$op_($(c.float($i, $argument, $default)?),*).clone()),
        });
    )*};
}

/// Whether `inplace` is asked for of an op without such a form.
fn plain(c: &Call) -> Outcome<&Tensor> {
    match c.flag(usize::MAX, "inplace", false)? {
        false => x(c),
        true => lacks("inplace"),
    }
}

pub fn fill(t: &mut Table) {
    in_place_or_not! { t:
        "relu" relu relu_();
        "elu" elu elu_(1 "alpha" 1.0);
        "celu" celu celu_(1 "alpha" 1.0);
        "selu" selu selu_();
        "silu" silu silu_();
        "mish" mish mish_();
        "hardtanh" hardtanh hardtanh_(1 "min_val" -1.0, 2 "max_val" 1.0);
        "hardsigmoid" hardsigmoid hardsigmoid_();
        "hardswish" hardswish hardswish_();
        "leaky_relu" leaky_relu leaky_relu_(1 "negative_slope" 0.01);
        "threshold" threshold threshold_(1 "threshold" 0.0, 2 "value" 0.0);
    }
    t.op("nn.functional.relu6", |c| Ok(F::relu6(plain(c)?)));
    t.op("nn.functional.gelu", |c| {
        let tanh = c.choice(1, "approximate", &[("none", false), ("tanh", true)])?;
        Ok(if tanh { F::gelu_tanh(x(c)?) } else { F::gelu(x(c)?) })
    });
    t.op("nn.functional.softplus", |c| {
        Ok(F::softplus(x(c)?, c.float(1, "beta", 1.0)?, c.float(2, "threshold", 20.0)?))
    });
    t.op("nn.functional.softsign", |c| Ok(F::softsign(x(c)?)));
    t.op("nn.functional.tanhshrink", |c| Ok(F::tanhshrink(x(c)?)));
    t.op("nn.functional.hardshrink", |c| Ok(F::hardshrink(x(c)?, c.float(1, "lambd", 0.5)?)));
    t.op("nn.functional.softshrink", |c| Ok(F::softshrink(x(c)?, c.float(1, "lambd", 0.5)?)));
    t.op("nn.functional.prelu", |c| Ok(F::prelu(x(c)?, c.tensor(1, "weight")?)));
    t.op("nn.functional.logsigmoid", |c| Ok(F::logsigmoid(x(c)?)));
    t.op("nn.functional.glu", |c| Ok(F::glu(x(c)?, c.int(1, "dim", -1)?)));
    softmax(t);
    lengths(t);
    dropout(t);
}

fn softmax(t: &mut Table) {
    t.op("softmax", |c| {
        let dim = c.int(1, "dim", 0)?;
        Ok(match c.maybe_dtype(usize::MAX, "dtype")? {
            Some(dtype) => x(c)?.softmax_as(dim, dtype),
            None => x(c)?.softmax(dim),
        })
    });
    t.op("log_softmax", |c| {
        let dim = c.int(1, "dim", 0)?;
        Ok(match c.maybe_dtype(usize::MAX, "dtype")? {
            Some(dtype) => x(c)?.log_softmax_as(dim, dtype),
            None => x(c)?.log_softmax(dim),
        })
    });
    t.op("nn.functional.softmin", |c| {
        let dim = c.int(1, "dim", 0)?;
        Ok(match c.maybe_dtype(usize::MAX, "dtype")? {
            Some(dtype) => F::softmin(&x(c)?.to_dtype(dtype), dim),
            None => F::softmin(x(c)?, dim),
        })
    });
}

fn lengths(t: &mut Table) {
    t.op("nn.functional.normalize", |c| {
        let (p, dim) = (c.float(1, "p", 2.0)?, c.int(2, "dim", 1)?);
        Ok(F::normalize(x(c)?, p, dim, c.float(3, "eps", 1e-12)?))
    });
    t.op("nn.functional.cosine_similarity", |c| {
        let (a, b) = (c.tensor(0, "x1")?, c.tensor(1, "x2")?);
        Ok(F::cosine_similarity(a, b, c.int(2, "dim", 1)?, c.float(3, "eps", 1e-8)?))
    });
    t.op("nn.functional.pairwise_distance", |c| {
        let (a, b) = (c.tensor(0, "x1")?, c.tensor(1, "x2")?);
        let (p, eps) = (c.float(2, "p", 2.0)?, c.float(3, "eps", 1e-6)?);
        let keepdim = c.flag(4, "keepdim", false)?;
        Ok(F::pairwise_distance(a, b, F::PairwiseDistanceOptions { p, eps, keepdim }))
    });
    t.op("nn.functional.pdist", |c| Ok(F::pdist(x(c)?, c.float(1, "p", 2.0)?)));
}

fn dropout(t: &mut Table) {
    let settings = |c: &Call| -> Outcome<(f64, bool)> {
        Ok((c.float(1, "p", 0.5)?, c.flag(2, "training", true)?))
    };
    t.op("nn.functional.dropout", move |c| {
        let (p, training) = settings(c)?;
        Ok(F::dropout(plain(c)?, p, training))
    });
    t.op("nn.functional.dropout2d", move |c| {
        let (p, training) = settings(c)?;
        Ok(F::dropout2d(plain(c)?, p, training))
    });
    t.op("nn.functional.alpha_dropout", move |c| {
        let (p, training) = settings(c)?;
        Ok(F::alpha_dropout(plain(c)?, p, training))
    });
    t.op("nn.functional.rrelu", |c| {
        let (lower, upper) = (c.float(1, "lower", 0.125)?, c.float(2, "upper", 1.0 / 3.0)?);
        Ok(F::rrelu(plain(c)?, lower, upper, c.flag(3, "training", false)?))
    });
}
