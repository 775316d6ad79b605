//! Ops of groups `activation` and `dropout`.

use torchrs::Tensor;
use torchrs::nn::functional as F;

use super::Table;
use crate::arg::{Call, Outcome};

fn x(c: &Call) -> Outcome<&Tensor> {
    c.tensor(0, "input")
}

/// `inplace` changes nothing that the cases can see.
fn plain(c: &Call) -> Outcome<&Tensor> {
    c.keyword("inplace");
    x(c)
}

pub fn fill(t: &mut Table) {
    t.op("nn.functional.relu", |c| Ok(F::relu(plain(c)?)));
    t.op("nn.functional.relu6", |c| Ok(F::relu6(plain(c)?)));
    t.op("nn.functional.elu", |c| Ok(F::elu(plain(c)?, c.float(1, "alpha", 1.0)?)));
    t.op("nn.functional.celu", |c| Ok(F::celu(plain(c)?, c.float(1, "alpha", 1.0)?)));
    t.op("nn.functional.selu", |c| Ok(F::selu(plain(c)?)));
    t.op("nn.functional.gelu", |c| match c.text(1, "approximate", "none")?.as_str() {
        "tanh" => Ok(F::gelu_tanh(x(c)?)),
        _ => Ok(F::gelu(x(c)?)),
    });
    t.op("nn.functional.silu", |c| Ok(F::silu(plain(c)?)));
    t.op("nn.functional.mish", |c| Ok(F::mish(plain(c)?)));
    t.op("nn.functional.softplus", |c| {
        Ok(F::softplus(x(c)?, c.float(1, "beta", 1.0)?, c.float(2, "threshold", 20.0)?))
    });
    t.op("nn.functional.softsign", |c| Ok(F::softsign(x(c)?)));
    t.op("nn.functional.tanhshrink", |c| Ok(F::tanhshrink(x(c)?)));
    t.op("nn.functional.hardtanh", |c| {
        Ok(F::hardtanh(plain(c)?, c.float(1, "min_val", -1.0)?, c.float(2, "max_val", 1.0)?))
    });
    t.op("nn.functional.hardsigmoid", |c| Ok(F::hardsigmoid(plain(c)?)));
    t.op("nn.functional.hardswish", |c| Ok(F::hardswish(plain(c)?)));
    t.op("nn.functional.hardshrink", |c| Ok(F::hardshrink(x(c)?, c.float(1, "lambd", 0.5)?)));
    t.op("nn.functional.softshrink", |c| Ok(F::softshrink(x(c)?, c.float(1, "lambd", 0.5)?)));
    t.op("nn.functional.leaky_relu", |c| {
        Ok(F::leaky_relu(plain(c)?, c.float(1, "negative_slope", 0.01)?))
    });
    t.op("nn.functional.prelu", |c| Ok(F::prelu(x(c)?, c.tensor(1, "weight")?)));
    t.op("nn.functional.threshold", |c| {
        Ok(F::threshold(plain(c)?, c.float(1, "threshold", 0.0)?, c.float(2, "value", 0.0)?))
    });
    t.op("nn.functional.logsigmoid", |c| Ok(F::logsigmoid(x(c)?)));
    t.op("nn.functional.glu", |c| Ok(F::glu(x(c)?, c.int(1, "dim", -1)?)));
    softmax(t);
    lengths(t);
    dropout(t);
}

/// With `dtype` the input is converted first.
fn converted(c: &Call) -> Outcome<Tensor> {
    Ok(match c.maybe_dtype(usize::MAX, "dtype")? {
        Some(dtype) => x(c)?.to_dtype(dtype),
        None => x(c)?.clone(),
    })
}

fn softmax(t: &mut Table) {
    t.op("softmax", |c| Ok(converted(c)?.softmax(c.int(1, "dim", 0)?)));
    t.op("log_softmax", |c| Ok(converted(c)?.log_softmax(c.int(1, "dim", 0)?)));
    t.op("nn.functional.softmin", |c| Ok(F::softmin(&converted(c)?, c.int(1, "dim", 0)?)));
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
        Ok(F::pairwise_distance(a, b, p, eps, c.flag(4, "keepdim", false)?))
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
