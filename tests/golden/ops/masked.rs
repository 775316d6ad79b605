//! Ops of `torch.masked`.

use torchrs::masked;
use torchrs::{Dtype, Tensor};

use super::Table;
use crate::arg::{Call, Outcome};

fn mask(c: &Call) -> Outcome<Option<&Tensor>> {
    c.maybe_tensor(usize::MAX, "mask")
}

/// The input, converted where a type is given.
fn x(c: &Call) -> Outcome<Tensor> {
    let x = c.tensor(0, "input")?;
    Ok(match c.maybe_dtype(usize::MAX, "dtype")? {
        Some(dtype) => x.to_dtype(dtype),
        None => x.clone(),
    })
}

fn dims(c: &Call, i: usize) -> Outcome<Vec<i64>> {
    Ok(c.maybe_ints(i, "dim")?.unwrap_or_default())
}

fn keepdim(c: &Call) -> Outcome<bool> {
    c.flag(usize::MAX, "keepdim", false)
}

/// Functions of dimensions and a mask.
macro_rules! reductions {
    ($t:ident: $($name:ident)*) => {$(
        $t.op(concat!("masked.", stringify!($name)), |c| {
            Ok(masked::$name(&x(c)?, &dims(c, 1)?, keepdim(c)?, mask(c)?))
        });
    )*};
}

/// Functions of a dimension and a mask.
macro_rules! along {
    ($t:ident: $($name:ident)*) => {$(
        $t.op(concat!("masked.", stringify!($name)), |c| {
            Ok(masked::$name(&x(c)?, c.int(1, "dim", -1)?, mask(c)?))
        });
    )*};
}

pub fn fill(t: &mut Table) {
    reductions! { t: sum prod amax amin mean logsumexp }
    along! { t: softmax log_softmax softmin cumsum cumprod }
    t.op("masked.argmax", |c| {
        Ok(masked::argmax(&x(c)?, c.maybe_int(1, "dim")?, keepdim(c)?, mask(c)?).to_dtype(own(c)?))
    });
    t.op("masked.argmin", |c| {
        Ok(masked::argmin(&x(c)?, c.maybe_int(1, "dim")?, keepdim(c)?, mask(c)?).to_dtype(own(c)?))
    });
    t.op("masked.median", |c| {
        Ok(masked::median(&x(c)?, c.int(1, "dim", -1)?, keepdim(c)?, mask(c)?))
    });
    t.op("masked.var", |c| {
        Ok(masked::var(&x(c)?, &dims(c, 1)?, correction(c)?, keepdim(c)?, mask(c)?))
    });
    t.op("masked.std", |c| {
        Ok(masked::std(&x(c)?, &dims(c, 1)?, correction(c)?, keepdim(c)?, mask(c)?))
    });
    t.op("masked.norm", |c| {
        Ok(masked::norm(&x(c)?, c.float(1, "ord", 2.0)?, &dims(c, 2)?, keepdim(c)?, mask(c)?))
    });
    t.op("masked.normalize", |c| {
        let (ord, dim) = (c.float(1, "ord", 2.0)?, c.int(2, "dim", -1)?);
        Ok(masked::normalize(&x(c)?, ord, dim, c.float(usize::MAX, "eps", 1e-12)?, mask(c)?))
    });
    t.op("masked.logaddexp", |c| {
        let other = c.tensor(1, "other")?;
        let own = c.maybe_tensor(usize::MAX, "input_mask")?;
        Ok(masked::logaddexp(&x(c)?, other, own, c.maybe_tensor(usize::MAX, "other_mask")?))
    });
}

/// PyTorch gives places in the input's type.
fn own(c: &Call) -> Outcome<Dtype> {
    Ok(x(c)?.dtype())
}

fn correction(c: &Call) -> Outcome<f64> {
    Ok(match c.maybe_flag(2, "unbiased")? {
        Some(unbiased) => f64::from(unbiased),
        None => c.float(usize::MAX, "correction", 1.0)?,
    })
}
