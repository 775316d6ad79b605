//! Ops of group `creation`.

use torchrs::{Dtype, Operand, Scalar, Tensor, TensorOptions};

use super::Table;
use crate::arg::{Arg, Call, Outcome, Stop};

/// The type asked for, or `default`, and whether a gradient is.
fn options(c: &Call, default: Dtype) -> Outcome<TensorOptions> {
    let dtype = c.maybe_dtype(usize::MAX, "dtype")?.unwrap_or(default);
    let requires_grad = c.flag(usize::MAX, "requires_grad", false)?;
    Ok(TensorOptions::from(dtype).requires_grad(requires_grad))
}

fn number(c: &Call, i: usize, name: &str) -> Outcome<Scalar> {
    match c.maybe_number(i, name)? {
        Some(number) => Ok(number),
        None => Err(Stop::Unwritable(format!("no {name}"))),
    }
}

/// The type of a tensor full of `value`: integers count as i64.
fn type_of(value: Scalar) -> Dtype {
    value.dtype()
}

pub fn fill(t: &mut Table) {
    t.op("arange", |c| {
        let zero = Scalar::I(0);
        let (start, end) = match c.maybe_number(1, "end")? {
            Some(end) => (number(c, 0, "start")?, end),
            None => (zero, number(c, 0, "start")?),
        };
        let step = c.maybe_number(2, "step")?.unwrap_or(Scalar::I(1));
        let integers = [start, end, step].iter().all(|s| matches!(s, Scalar::I(_)));
        let options = options(c, if integers { Dtype::I64 } else { Dtype::F32 })?;
        Ok(Tensor::arange(start, end, step, options))
    });
    t.op("linspace", |c| {
        let (start, end) = (c.float(0, "start", 0.0)?, c.float(1, "end", 0.0)?);
        Ok(Tensor::linspace(start, end, c.count(2, "steps", 0)?, options(c, Dtype::F32)?))
    });
    t.op("logspace", |c| {
        let (start, end) = (c.float(0, "start", 0.0)?, c.float(1, "end", 0.0)?);
        if let Arg::Float(steps) = c.get(2, "steps") {
            return Err(Stop::Unwritable(format!("{steps} steps")));
        }
        let (steps, base) = (c.count(2, "steps", 0)?, c.float(3, "base", 10.0)?);
        Ok(Tensor::logspace(start, end, steps, base, options(c, Dtype::F32)?))
    });
    t.op("eye", |c| {
        let n = c.count(0, "n", 0)?;
        Ok(Tensor::eye_of(n, c.count(1, "m", n)?, options(c, Dtype::F32)?))
    });
    t.op("full", |c| {
        let value = number(c, 1, "fill_value")?;
        Ok(Tensor::full(c.sizes(0, "size")?, value, options(c, type_of(value))?))
    });
    t.op("zeros", |c| Ok(Tensor::zeros(c.sizes(0, "size")?, options(c, Dtype::F32)?)));
    t.op("ones", |c| Ok(Tensor::ones(c.sizes(0, "size")?, options(c, Dtype::F32)?)));
    t.op("full_like", |c| {
        let x = c.tensor(0, "input")?;
        let value = number(c, 1, "fill_value")?;
        Ok(Tensor::full(x.shape(), value, options(c, x.dtype())?))
    });
    t.op("zeros_like", |c| {
        let x = c.tensor(0, "input")?;
        Ok(Tensor::zeros(x.shape(), options(c, x.dtype())?))
    });
    t.op("ones_like", |c| {
        let x = c.tensor(0, "input")?;
        Ok(Tensor::ones(x.shape(), options(c, x.dtype())?))
    });
    t.op("new_zeros", |c| {
        let x = c.tensor(0, "input")?;
        Ok(x.new_zeros(sizes(c)?).to_dtype(options(c, x.dtype())?.dtype))
    });
    t.op("new_ones", |c| {
        let x = c.tensor(0, "input")?;
        Ok(x.new_ones(sizes(c)?).to_dtype(options(c, x.dtype())?.dtype))
    });
    t.op("new_full", |c| {
        let x = c.tensor(0, "input")?;
        let dtype = options(c, x.dtype())?.dtype;
        Ok(x.to_dtype(dtype).new_full(sizes(c)?, number(c, 2, "fill_value")?))
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
    t.op("linalg.vander", |c| {
        let x = c.tensor(0, "x")?;
        let n = x.shape().last().copied().unwrap_or(0);
        Ok(x.vander(c.count(1, "N", n)?))
    });
    t.op("fill", |c| match c.operand(1, "value")? {
        Operand::Scalar(value) => Ok(c.tensor(0, "input")?.fill(value)),
        Operand::Tensor(value) => {
            let out = c.tensor(0, "input")?.clone_contiguous();
            out.copy_(value);
            Ok(out)
        }
    });
    t.op("fill_", |c| match c.operand(1, "value")? {
        Operand::Scalar(value) => Ok(c.tensor(0, "input")?.fill_(value).clone()),
        Operand::Tensor(value) => Ok(c.tensor(0, "input")?.copy_(value).clone()),
    });
    t.op("signal.windows.hann", |c| {
        let symmetric = c.flag(1, "sym", true)?;
        Ok(Tensor::hann_window(c.count(0, "M", 0)?, symmetric, options(c, Dtype::F32)?))
    });
    t.op("signal.windows.hamming", |c| {
        let symmetric = c.flag(1, "sym", true)?;
        Ok(Tensor::hamming_window(c.count(0, "M", 0)?, symmetric, options(c, Dtype::F32)?))
    });
}

/// The shape that a `new_*` method is given.
fn sizes(c: &Call) -> Outcome<Vec<usize>> {
    Ok(c.ints(1, "size")?.into_iter().map(|n| n as usize).collect())
}
