//! Ops of group `creation`.

use torchrs::nn::functional::gumbel_softmax;
use torchrs::ops::random::default_generator;
use torchrs::{Dtype, Scalar, Tensor, TensorOptions};

use super::Table;
use crate::arg::{Call, Outcome, Stop};

/// The type asked for, or `default`, and whether a gradient is.
fn options(c: &Call, default: Dtype) -> Outcome<TensorOptions> {
    let dtype = c.maybe_dtype(usize::MAX, "dtype")?.unwrap_or(default);
    let requires_grad = c.flag(usize::MAX, "requires_grad", false)?;
    Ok(TensorOptions::from(dtype).requires_grad(requires_grad))
}

/// What a call that takes after a tensor asks for that is not as there.
fn own_options(c: &Call) -> Outcome<Option<TensorOptions>> {
    let dtype = c.maybe_dtype(usize::MAX, "dtype")?;
    let options = options(c, c.tensor(0, "input")?.dtype())?;
    Ok(Some(options).filter(|options| dtype.is_some() || options.requires_grad))
}

type New = fn(&[usize], TensorOptions) -> Tensor;
type NewLike = fn(&Tensor, &[usize]) -> Tensor;

fn number(c: &Call, i: usize, name: &str) -> Outcome<Scalar> {
    match c.maybe_number(i, name)? {
        Some(number) => Ok(number),
        None => Err(Stop::Unwritable(format!("no {name}"))),
    }
}

/// Ops that draw: what they refuse. No draw is recorded.
fn random(t: &mut Table) {
    t.op("bernoulli", |c| Ok(default_generator().bernoulli(c.tensor(0, "input")?)));
    t.op("poisson", |c| Ok(default_generator().poisson(c.tensor(0, "input")?)));
    t.op("binomial", |c| {
        Ok(default_generator().binomial(c.tensor(0, "count")?, c.tensor(1, "prob")?))
    });
    t.op("normal", |c| Ok(default_generator().normal(c.operand(0, "mean")?, c.operand(1, "std")?)));
    t.op("multinomial", |c| {
        let (x, count) = (c.tensor(0, "input")?, c.count(1, "num_samples", 1)?);
        Ok(default_generator().multinomial(x, count, c.flag(2, "replacement", false)?))
    });
    t.op("nn.functional.gumbel_softmax", |c| {
        let (tau, hard) = (c.float(1, "tau", 1.0)?, c.flag(2, "hard", false)?);
        Ok(gumbel_softmax(c.tensor(0, "logits")?, tau, hard, c.int(3, "dim", -1)?))
    });
}

pub fn fill(t: &mut Table) {
    random(t);
    t.op("arange", |c| {
        let (start, end) = match c.maybe_number(1, "end")? {
            Some(end) => (number(c, 0, "start")?, end),
            None => (Scalar::I(0), number(c, 0, "start")?),
        };
        let step = c.maybe_number(2, "step")?.unwrap_or(Scalar::I(1));
        let requires_grad = c.flag(usize::MAX, "requires_grad", false)?;
        let x = match c.maybe_dtype(usize::MAX, "dtype")? {
            Some(dtype) => Tensor::arange(start, end, step, dtype),
            None => Tensor::arange_inferred(start, end, step),
        };
        Ok(x.requires_grad_(requires_grad))
    });
    t.op("linspace", |c| {
        let (start, end) = (c.float(0, "start", 0.0)?, c.float(1, "end", 0.0)?);
        Ok(Tensor::linspace(start, end, c.count(2, "steps", 0)?, options(c, Dtype::F32)?))
    });
    t.op("logspace", |c| {
        let (start, end) = (c.float(0, "start", 0.0)?, c.float(1, "end", 0.0)?);
        let (steps, base) = (c.count(2, "steps", 0)?, c.float(3, "base", 10.0)?);
        Ok(Tensor::logspace(start, end, steps, base, options(c, Dtype::F32)?))
    });
    t.op("eye", |c| {
        let n = c.count(0, "n", 0)?;
        Ok(Tensor::eye_of(n, c.count(1, "m", n)?, options(c, Dtype::F32)?))
    });
    t.op("full", |c| {
        let value = number(c, 1, "fill_value")?;
        Ok(Tensor::full(c.sizes(0, "size")?, value, options(c, value.dtype())?))
    });
    t.op("zeros", |c| Ok(Tensor::zeros(c.sizes(0, "size")?, options(c, Dtype::F32)?)));
    t.op("ones", |c| Ok(Tensor::ones(c.sizes(0, "size")?, options(c, Dtype::F32)?)));
    for (name, like, new) in [
        (
            "zeros_like",
            Tensor::zeros_like as fn(&Tensor) -> Tensor,
            (|s, o| Tensor::zeros(s, o)) as New,
        ),
        ("ones_like", Tensor::ones_like, |s, o| Tensor::ones(s, o)),
    ] {
        t.op(name, move |c| {
            let x = c.tensor(0, "input")?;
            Ok(match own_options(c)? {
                None => like(x),
                Some(options) => new(x.shape(), options),
            })
        });
    }
    t.op("full_like", |c| {
        let (x, value) = (c.tensor(0, "input")?, number(c, 1, "fill_value")?);
        Ok(match own_options(c)? {
            None => x.full_like(value),
            Some(options) => Tensor::full(x.shape(), value, options),
        })
    });
    for (name, own, new) in [
        ("new_zeros", (|x, s| x.new_zeros(s)) as NewLike, (|s, o| Tensor::zeros(s, o)) as New),
        ("new_ones", |x, s| x.new_ones(s), |s, o| Tensor::ones(s, o)),
    ] {
        t.op(name, move |c| {
            let (x, sizes) = (c.tensor(0, "input")?, c.sizes(1, "size")?);
            Ok(match own_options(c)? {
                None => own(x, &sizes),
                Some(options) => new(&sizes, options),
            })
        });
    }
    t.op("new_full", |c| {
        let (x, value) = (c.tensor(0, "input")?, number(c, 2, "fill_value")?);
        let sizes = c.size_list(1, "size")?;
        Ok(match own_options(c)? {
            None => x.new_full(sizes, value),
            Some(options) => Tensor::full(sizes, value, options),
        })
    });
    for (name, f) in [
        ("tril_indices", Tensor::tril_indices as fn(usize, usize, i64) -> Tensor),
        ("triu_indices", Tensor::triu_indices),
    ] {
        t.op(name, move |c| {
            let dtype = options(c, Dtype::I64)?.dtype;
            let (rows, columns) = (c.count(0, "row", 0)?, c.count(1, "col", 0)?);
            Ok(f(rows, columns, c.int(2, "offset", 0)?).to_dtype(dtype))
        });
    }
    t.op("scalar_tensor", |c| Ok(Tensor::full([], number(c, 0, "s")?, options(c, Dtype::F32)?)));
    t.op("linalg.vander", |c| Ok(c.tensor(0, "x")?.vander(c.maybe_count(1, "N")?)));
    t.op("fill", |c| Ok(c.tensor(0, "input")?.fill(c.operand(1, "value")?)));
    t.op("fill_", |c| Ok(c.tensor(0, "input")?.fill_(c.operand(1, "value")?).clone()));
    t.op("signal.windows.hann", |c| {
        let symmetric = c.flag(1, "sym", true)?;
        Ok(Tensor::hann_window(c.count(0, "M", 0)?, symmetric, options(c, Dtype::F32)?))
    });
    t.op("signal.windows.hamming", |c| {
        let symmetric = c.flag(1, "sym", true)?;
        Ok(Tensor::hamming_window(c.count(0, "M", 0)?, symmetric, options(c, Dtype::F32)?))
    });
}
