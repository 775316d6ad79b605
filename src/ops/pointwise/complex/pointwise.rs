//! Pointwise ops on complex numbers, by the names of their rows. What is not here throws.

use smallvec::smallvec;

use super::{Operand, Scalar, Tensor, as_complex, cuda, factor, join, product};
use crate::autograd::{BackwardCtx, record};
use crate::error::{Error, throw};
use crate::ops::gpu;
use crate::ops::pointwise::{Row, apply, tables};
use crate::tensor::dtype::not_real;
use crate::tensor::{Dtype, ResultType, Shape, can_cast};

/// The row's op where an operand is complex.
#[track_caller]
pub fn pointwise(row: &'static Row, inputs: &[Operand<'_>], params: &[Scalar]) -> Tensor {
    let mut common = ResultType::default();
    for (operand, input) in inputs.iter().zip(row.inputs) {
        if !input.mask {
            common = common.operand(*operand);
        }
    }
    let dtype = common.dtype();
    // A row of another crate may have one of these names.
    if !dtype.is_complex() || !tables().any(|own| std::ptr::eq(own, row)) {
        not_real(row.name, dtype);
    }
    match evaluate(row.name, dtype, inputs, params) {
        Some(value) => value,
        None => not_real(row.name, dtype),
    }
}

/// The row's op written into its first operand, where an operand is complex.
#[track_caller]
pub fn pointwise_inplace(
    row: &'static Row,
    target: &Tensor,
    inputs: &[Operand<'_>],
    params: &[Scalar],
) {
    // Backward may want the old value.
    let old = target.clone_contiguous();
    let current = |input: &Operand<'_>| matches!(input, Operand::Tensor(t) if t.ptr_eq(target));
    let inputs: Vec<Operand<'_>> = inputs
        .iter()
        .map(|input| if current(input) { Operand::Tensor(&old) } else { *input })
        .collect();
    let result = apply(row, &inputs, params);
    let (from, to) = (result.dtype(), target.dtype());
    let parts = matches!(row.name, "abs" | "angle");
    if !can_cast(from, to) && from != Dtype::Bool || parts {
        throw(Error::dtype(
            row.name,
            format!("the result is {from} and cannot be written in place into a {to} tensor"),
        ));
    }
    target.assign_same_shape(row.name, &result);
}

/// `None` for an op that has no meaning for complex numbers, or no formula here.
#[track_caller]
fn evaluate(op: &str, dtype: Dtype, inputs: &[Operand<'_>], params: &[Scalar]) -> Option<Tensor> {
    let device = inputs
        .iter()
        .find_map(|x| match x {
            Operand::Tensor(t) if t.dim() > 0 || t.device().is_cuda() => Some(t.device()),
            _ => None,
        })
        .unwrap_or_default();
    let z = |k: usize| as_complex(inputs[k], dtype, device);
    let pairs = |k: usize| z(k).view_as_real();
    let is_complex = |k: usize| matches!(inputs[k], Operand::Tensor(t) if t.is_complex());
    Some(match op {
        "add" => join(pairs(0) + pairs(1)),
        "add_scaled" => join(pairs(0).add_scaled(&pairs(1), params[0])),
        "sub" => join(pairs(0) - pairs(1)),
        "neg" => join(-pairs(0)),
        "mul" => match (is_complex(0), is_complex(1)) {
            (true, false) => join(pairs(0) * factor(inputs[1], dtype)),
            (false, true) => join(pairs(1) * factor(inputs[0], dtype)),
            _ => product::mul(&z(0), &z(1)),
        },
        "div" if is_complex(1) => product::div(&z(0), &z(1)),
        "div" => join(pairs(0) / factor(inputs[1], dtype)),
        "reciprocal" => product::div(&Tensor::ones([], (dtype, device)), &z(0)),
        "square" => product::mul(&z(0), &z(0)),
        "addcmul" => z(0) + product::mul(&z(1), &z(2)) * params[0].to_f64(),
        "addcdiv" => z(0) + product::div(&z(1), &z(2)) * params[0].to_f64(),
        "lerp" => {
            let way = z(1) - z(0);
            z(0) + match inputs[2] {
                Operand::Tensor(weight) => way * weight,
                Operand::Scalar(weight) => way * weight.to_f64(),
            }
        }
        "eq" => pairs(0).eq(&pairs(1)).all_dim(&[-1], false),
        "ne" => pairs(0).ne(&pairs(1)).any_dim(&[-1], false),
        "isnan" => pairs(0).isnan().any_dim(&[-1], false),
        "isinf" => pairs(0).isinf().any_dim(&[-1], false),
        "isfinite" => pairs(0).isfinite().all_dim(&[-1], false),
        "logical_not" => z(0).eq(0i64),
        "where_" => choose(inputs[0], &pairs(1), &pairs(2)),
        "masked_fill" => choose(inputs[1], &pairs(2), &pairs(0)),
        "abs" => abs(&z(0)),
        "angle" => angle(&z(0)),
        "exp" => exp(&z(0)),
        "log" => Tensor::complex(&abs(&z(0)).log(), &angle(&z(0))),
        "sqrt" => sqrt(&z(0)),
        "rsqrt" => sqrt(&z(0)).reciprocal(),
        "pow" => pow(&z(0), inputs[1], dtype),
        "sin" => {
            let (a, b) = (z(0).real(), z(0).imag());
            Tensor::complex(&(a.sin() * b.cosh()), &(a.cos() * b.sinh()))
        }
        "cos" => {
            let (a, b) = (z(0).real(), z(0).imag());
            Tensor::complex(&(a.cos() * b.cosh()), &-(a.sin() * b.sinh()))
        }
        "sinh" => {
            let (a, b) = (z(0).real(), z(0).imag());
            Tensor::complex(&(a.sinh() * b.cos()), &(a.cosh() * b.sin()))
        }
        "cosh" => {
            let (a, b) = (z(0).real(), z(0).imag());
            Tensor::complex(&(a.cosh() * b.cos()), &(a.sinh() * b.sin()))
        }
        _ => return None,
    })
}

#[track_caller]
fn choose(condition: Operand<'_>, a: &Tensor, b: &Tensor) -> Tensor {
    match condition {
        Operand::Tensor(mask) => join(mask.unsqueeze(-1).where_(a, b)),
        Operand::Scalar(_) => {
            throw(Error::dtype("where", "`condition` must be a bool tensor, got a number"))
        }
    }
}

/// Where `z` is 0, and z with 1 in those places: what formulas that have no derivative at 0 are
/// computed of, so that their gradient is 0 there instead of NaN.
fn without_zeros(z: &Tensor) -> (Tensor, Tensor) {
    let zero = z.detach().eq(0i64);
    let safe = z.masked_fill(&zero, 1.0);
    (zero, safe)
}

#[track_caller]
fn exp(z: &Tensor) -> Tensor {
    let Some(gpu) = gpu::of("exp", &[z]) else {
        return Tensor::polar(&z.real().exp(), &z.imag());
    };
    record("exp", &[z], cuda::exp(gpu, z), |saver| {
        let y = saver.save_output(0);
        move |ctx: &BackwardCtx<'_>| {
            smallvec![Some(product::mul(&ctx.grad(0), &ctx.get(&y).conj()))]
        }
    })
}

#[track_caller]
fn abs(z: &Tensor) -> Tensor {
    if let Some(gpu) = gpu::of("abs", &[z]) {
        return record("abs", &[z], cuda::abs(gpu, z), |saver| {
            let z = saver.save(z);
            move |ctx: &BackwardCtx<'_>| {
                let (g, z) = (ctx.grad(0), ctx.get(&z));
                smallvec![Some(match ctx.create_graph() {
                    true => sgn(&z) * g,
                    false => cuda::abs_backward(gpu, &z, &g),
                })]
            }
        });
    }
    let (zero, safe) = without_zeros(z);
    safe.real().hypot(&safe.imag()).masked_fill(&zero, 0.0)
}

fn angle(z: &Tensor) -> Tensor {
    let (zero, safe) = without_zeros(z);
    // Zeros have signs, and so an angle.
    let at_zero = z.detach().imag().atan2(&z.detach().real());
    zero.where_(&at_zero, &safe.imag().atan2(&safe.real()))
}

/// z / |z|, 0 at 0.
pub(super) fn sgn(z: &Tensor) -> Tensor {
    let (zero, safe) = without_zeros(z);
    (&safe / abs(&safe)).masked_fill(&zero, 0.0)
}

/// The root with a real part of at least 0.
fn sqrt(z: &Tensor) -> Tensor {
    let (zero, safe) = without_zeros(z);
    Tensor::polar(&abs(&safe).sqrt(), &(angle(&safe) * 0.5)).masked_fill(&zero, 0.0)
}

fn pow(z: &Tensor, exponent: Operand<'_>, dtype: Dtype) -> Tensor {
    if let Operand::Scalar(s) = exponent {
        let n = s.to_f64();
        if n.fract() == 0.0 && n.abs() <= 16.0 {
            let power =
                (0..n.abs() as usize).fold(z.detach().ones_like(), |p, _| product::mul(&p, z));
            return if n < 0.0 { power.reciprocal() } else { power };
        }
    }
    // A power of 0 is 0, but for the exponent 0.
    let exponent = as_complex(exponent, dtype, z.device());
    let (zero, safe) = without_zeros(z);
    let power = product::mul(&exponent, &safe.log()).exp();
    let one = exponent.detach().eq(0i64).to_dtype(dtype);
    let shape: Shape = power.shape().into();
    zero.expand(&shape).where_(&one.expand(&shape), &power)
}
