//! Ops of group `binary`, and of `promotion`, which has the same.

use torchrs::ops::pointwise::{Closeness, Rounding};
use torchrs::tensor::{can_cast, promote_types, result_type};
use torchrs::{Dtype, Operand, Scalar, Tensor};

use super::Table;
use crate::arg::{Arg, Call, Outcome, Stop};

/// `x.op(other)`, and `x.op_(other)` for those behind the semicolon.
macro_rules! methods {
    ($t:ident: $($name:ident)*; $($inplace:ident)*) => {
        $($t.op(stringify!($name), |c| {
            Ok(c.tensor(0, "input")?.$name(c.operand(1, "other")?))
        });)*
        $($t.op(stringify!($inplace), |c| {
            Ok(c.tensor(0, "input")?.$inplace(c.operand(1, "other")?).clone())
        });)*
    };
}

/// `x.op(other)` of two tensors.
macro_rules! tensors {
    ($t:ident: $($name:ident)*) => {
        $($t.op(stringify!($name), |c| {
            Ok(c.tensor(0, "input")?.$name(c.tensor(1, "other")?))
        });)*
    };
}

pub fn fill(t: &mut Table) {
    methods! { t:
        mul eq ne lt le gt ge floor_divide bitwise_and bitwise_or bitwise_xor fmod copysign
        bitwise_left_shift bitwise_right_shift;
        mul_ eq_ ne_ lt_ le_ gt_ ge_ remainder_ floor_divide_ logical_and_ logical_or_
        logical_xor_ bitwise_and_ bitwise_or_ bitwise_xor_ fmod_ atan2_ copysign_ xlogy_ ldexp_
        nextafter_ float_power_ hypot_ gcd_ lcm_ heaviside_ bitwise_left_shift_ bitwise_right_shift_
    }
    // PyTorch takes tensors only.
    tensors! { t:
        maximum minimum logical_and logical_or logical_xor atan2 fmax fmin logaddexp logaddexp2 gcd
        lcm heaviside ldexp nextafter hypot
    }
    t.op("true_divide", |c| Ok(c.tensor(0, "input")?.div(c.operand(1, "other")?)));
    t.op("true_divide_", |c| Ok(c.tensor(0, "input")?.div_(c.operand(1, "other")?).clone()));
    scaled(t);
    reversed(t);
    division(t);
    powers(t);
    choices(t);
    ternary(t);
    types(t);
}

/// The kernel's factor; PyTorch refuses fractions of integers.
fn alpha(c: &Call) -> Outcome<Option<Scalar>> {
    c.maybe_number(usize::MAX, "alpha")
}

fn scaled(t: &mut Table) {
    t.op("add", |c| {
        let (x, other) = (c.tensor(0, "input")?, c.operand(1, "other")?);
        Ok(match alpha(c)? {
            Some(alpha) => x.add_scaled(other, alpha),
            None => x.add(other),
        })
    });
    t.op("add_", |c| {
        let (x, other) = (c.tensor(0, "input")?, c.operand(1, "other")?);
        Ok(match alpha(c)? {
            Some(alpha) => x.add_scaled_(other, alpha),
            None => x.add_(other),
        }
        .clone())
    });
    t.op("sub", |c| {
        let (x, other) = (c.tensor(0, "input")?, c.operand(1, "other")?);
        Ok(match alpha(c)? {
            Some(alpha) => x.sub_scaled(other, alpha),
            None => x.sub(other),
        })
    });
    t.op("sub_", |c| {
        let (x, other) = (c.tensor(0, "input")?, c.operand(1, "other")?);
        Ok(match alpha(c)? {
            Some(alpha) => x.sub_scaled_(other, alpha),
            None => x.sub_(other),
        }
        .clone())
    });
    t.op("rsub", |c| {
        let (x, other) = (c.tensor(0, "input")?, c.operand(1, "other")?);
        Ok(x.rsub(other, alpha(c)?.unwrap_or(Scalar::I(1))))
    });
}

/// Python's operators with the tensor on the right.
fn reversed(t: &mut Table) {
    let both = |c: &Call| -> Outcome<(Tensor, Tensor)> {
        Ok((c.tensor(0, "self")?.clone(), c.tensor(1, "other")?.clone()))
    };
    t.op("__rsub__", move |c| both(c).map(|(x, other)| x.rsub(&other, 1i64)));
    t.op("__rpow__", move |c| both(c).map(|(x, other)| x.rpow(&other)));
    t.op("__rdiv__", move |c| both(c).map(|(x, other)| other / x));
    t.op("__radd__", move |c| both(c).map(|(x, other)| x + other));
    t.op("__rmul__", move |c| both(c).map(|(x, other)| x * other));
    t.op("__rmatmul__", move |c| both(c).map(|(x, other)| other.matmul(&x)));
    t.op("__rand__", move |c| both(c).map(|(x, other)| x & other));
    t.op("__ror__", move |c| both(c).map(|(x, other)| x | other));
    t.op("__rxor__", move |c| both(c).map(|(x, other)| x ^ other));
    t.op("__rmod__", move |c| both(c).map(|(x, other)| other.remainder(&x)));
}

pub fn rounding(c: &Call) -> Outcome<Option<Rounding>> {
    let modes = [("", None), ("floor", Some(Rounding::Floor)), ("trunc", Some(Rounding::Trunc))];
    c.choice(usize::MAX, "rounding_mode", &modes)
}

fn division(t: &mut Table) {
    t.op("div", |c| {
        let (x, other) = (c.tensor(0, "input")?, c.operand(1, "other")?);
        Ok(match rounding(c)? {
            Some(rounding) => x.div_rounded(other, rounding),
            None => x.div(other),
        })
    });
    t.op("div_", |c| {
        let (x, other) = (c.tensor(0, "input")?, c.operand(1, "other")?);
        Ok(match rounding(c)? {
            Some(rounding) => x.div_rounded_(other, rounding),
            None => x.div_(other),
        }
        .clone())
    });
}

fn powers(t: &mut Table) {
    t.op("remainder", |c| match (c.operand(0, "input")?, c.operand(1, "other")?) {
        (Operand::Tensor(x), other) => Ok(x.remainder(other)),
        (Operand::Scalar(Scalar::I(x)), Operand::Tensor(other)) => Ok(x % other),
        (Operand::Scalar(x), Operand::Tensor(other)) => Ok(x.to_f64() % other),
        _ => Err(Stop::Unwritable("two numbers".into())),
    });
    t.op("pow", |c| {
        let (x, exponent) = (c.operand(0, "input")?, c.operand(1, "exponent")?);
        match (x, exponent) {
            (Operand::Tensor(x), exponent) => Ok(x.pow(exponent)),
            (base, Operand::Tensor(x)) => Ok(x.rpow(base)),
            _ => Err(Stop::Unwritable("two numbers".into())),
        }
    });
    t.op("pow_", |c| Ok(c.tensor(0, "input")?.pow_(c.operand(1, "exponent")?).clone()));
}

fn choices(t: &mut Table) {
    t.op("where", |c| {
        let condition = c.tensor(0, "condition")?;
        Ok(condition.where_(c.operand(1, "input")?, c.operand(2, "other")?))
    });
    t.op("clamp", |c| match (c.given_operand(1, "min")?, c.given_operand(2, "max")?) {
        (Some(min), Some(max)) => Ok(c.tensor(0, "input")?.clamp(min, max)),
        (Some(min), None) => Ok(c.tensor(0, "input")?.clamp_min(min)),
        (None, Some(max)) => Ok(c.tensor(0, "input")?.clamp_max(max)),
        (None, None) => Err(Stop::Unwritable("neither min nor max".into())),
    });
    t.op("clamp_", |c| {
        let x = c.tensor(0, "input")?;
        match (c.given_operand(1, "min")?, c.given_operand(2, "max")?) {
            (Some(min), Some(max)) => Ok(x.clamp_(min, max).clone()),
            (Some(min), None) => Ok(x.clamp_min_(min).clone()),
            (None, Some(max)) => Ok(x.clamp_max_(max).clone()),
            (None, None) => Err(Stop::Unwritable("neither min nor max".into())),
        }
    });
    t.op("clamp_min", |c| Ok(c.tensor(0, "input")?.clamp_min(c.operand(1, "min")?)));
    t.op("clamp_min_", |c| Ok(c.tensor(0, "input")?.clamp_min_(c.operand(1, "min")?).clone()));
    t.op("clamp_max", |c| Ok(c.tensor(0, "input")?.clamp_max(c.operand(1, "max")?)));
    t.op("clamp_max_", |c| Ok(c.tensor(0, "input")?.clamp_max_(c.operand(1, "max")?).clone()));
    let limits = |c: &Call| -> Outcome<Closeness> {
        let default = Closeness::default();
        Ok(Closeness {
            rtol: c.float(2, "rtol", default.rtol)?,
            atol: c.float(3, "atol", default.atol)?,
            equal_nan: c.flag(4, "equal_nan", false)?,
        })
    };
    t.op("isclose", move |c| Ok(c.tensor(0, "input")?.isclose(c.tensor(1, "other")?, limits(c)?)));
    t.any("allclose", move |c| {
        Ok(Arg::Bool(c.tensor(0, "input")?.allclose(c.tensor(1, "other")?, limits(c)?)))
    });
    t.any("equal", |c| Ok(Arg::Bool(c.tensor(0, "input")?.equal(c.tensor(1, "other")?))));
}

fn ternary(t: &mut Table) {
    t.op("lerp", |c| Ok(c.tensor(0, "input")?.lerp(c.tensor(1, "end")?, c.operand(2, "weight")?)));
    t.op("lerp_", |c| {
        Ok(c.tensor(0, "input")?.lerp_(c.tensor(1, "end")?, c.operand(2, "weight")?).clone())
    });
    let value = |c: &Call| -> Outcome<Scalar> {
        Ok(c.maybe_number(usize::MAX, "value")?.unwrap_or(Scalar::I(1)))
    };
    t.op("addcmul", move |c| {
        let (a, b) = (c.tensor(1, "tensor1")?, c.tensor(2, "tensor2")?);
        Ok(c.tensor(0, "input")?.addcmul(a, b, value(c)?))
    });
    t.op("addcmul_", move |c| {
        let (a, b) = (c.tensor(1, "tensor1")?, c.tensor(2, "tensor2")?);
        Ok(c.tensor(0, "input")?.addcmul_(a, b, value(c)?).clone())
    });
    t.op("addcdiv", move |c| {
        let (a, b) = (c.tensor(1, "tensor1")?, c.tensor(2, "tensor2")?);
        Ok(c.tensor(0, "input")?.addcdiv(a, b, value(c)?))
    });
    t.op("addcdiv_", move |c| {
        let (a, b) = (c.tensor(1, "tensor1")?, c.tensor(2, "tensor2")?);
        Ok(c.tensor(0, "input")?.addcdiv_(a, b, value(c)?).clone())
    });
}

fn types(t: &mut Table) {
    let pair = |c: &Call| -> Outcome<(Dtype, Dtype)> {
        match (c.maybe_dtype(0, "from")?, c.maybe_dtype(1, "to")?) {
            (Some(a), Some(b)) => Ok((a, b)),
            _ => Err(Stop::Unwritable("no type".into())),
        }
    };
    t.any("can_cast", move |c| pair(c).map(|(from, to)| Arg::Bool(can_cast(from, to))));
    t.any("promote_types", move |c| pair(c).map(|(a, b)| Arg::Dtype(Some(promote_types(a, b)))));
    t.any("result_type", |c| {
        let (a, b) = (c.operand(0, "tensor1")?, c.operand(1, "tensor2")?);
        Ok(Arg::Dtype(Some(result_type(a, b))))
    });
}
