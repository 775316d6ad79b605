//! What rows say of complex numbers is made of these functions. Over numbers as pairs, most are formulas of tensors,
//! whose derivatives follow.

use smallvec::smallvec;

use super::cuda;
use super::pairs::Numbers;
pub(in crate::ops) use super::pairs::join;
pub(in crate::ops) use super::product::{div, mul};
use crate::autograd::{BackwardCtx, record};
use crate::error::{Error, throw};
use crate::ops::gpu;
use crate::tensor::{Operand, Shape, Tensor};

/// Of pairs of numbers, `a` where the condition is true, else `b`.
#[track_caller]
pub(in crate::ops) fn choose(condition: Operand<'_>, a: &Tensor, b: &Tensor) -> Tensor {
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

/// e^z.
#[track_caller]
pub(in crate::ops) fn exp(z: &Tensor) -> Tensor {
    let Some(gpu) = gpu::of("exp", &[z]) else {
        return Tensor::polar(&z.real().exp(), &z.imag());
    };
    record("exp", &[z], cuda::exp(gpu, z), |saver| {
        let y = saver.save_output(0);
        move |ctx: &BackwardCtx<'_>| smallvec![Some(mul(&ctx.grad(0), &ctx.get(&y).conj()))]
    })
}

/// The absolute value; its gradient at 0 is 0.
#[track_caller]
pub(in crate::ops) fn abs(z: &Tensor) -> Tensor {
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

/// The angle, of zeros too.
pub(in crate::ops) fn angle(z: &Tensor) -> Tensor {
    let (zero, safe) = without_zeros(z);
    // Zeros have signs, and so an angle.
    let at_zero = z.detach().imag().atan2(&z.detach().real());
    zero.where_(&at_zero, &safe.imag().atan2(&safe.real()))
}

/// z / |z|, 0 at 0.
pub(in crate::ops) fn sgn(z: &Tensor) -> Tensor {
    let (zero, safe) = without_zeros(z);
    (&safe / abs(&safe)).masked_fill(&zero, 0.0)
}

/// The root with a real part of at least 0.
pub(in crate::ops) fn sqrt(z: &Tensor) -> Tensor {
    let (zero, safe) = without_zeros(z);
    Tensor::polar(&abs(&safe).sqrt(), &(angle(&safe) * 0.5)).masked_fill(&zero, 0.0)
}

/// The first operand to the power of the second.
pub(in crate::ops) fn pow(numbers: &Numbers<'_>) -> Tensor {
    let (z, exponent, dtype) = (&numbers.z(0), numbers.input(1), numbers.dtype);
    if let Operand::Scalar(s) = exponent {
        let n = s.to_f64();
        if n.fract() == 0.0 && n.abs() <= 16.0 {
            let power = (0..n.abs() as usize).fold(z.detach().ones_like(), |p, _| mul(&p, z));
            return if n < 0.0 { power.reciprocal() } else { power };
        }
    }
    // A power of 0 is 0, but for the exponent 0.
    let exponent = numbers.z(1);
    let (zero, safe) = without_zeros(z);
    let power = mul(&exponent, &safe.log()).exp();
    let one = exponent.detach().eq(0i64).to_dtype(dtype);
    let shape: Shape = power.shape().into();
    zero.expand(&shape).where_(&one.expand(&shape), &power)
}

/// The product; a real factor multiplies both parts.
pub(in crate::ops) fn product_of(z: &Numbers<'_>) -> Tensor {
    match (z.is_complex(0), z.is_complex(1)) {
        (true, false) => join(z.pairs(0) * z.factor(1)),
        (false, true) => join(z.pairs(1) * z.factor(0)),
        _ => mul(&z.z(0), &z.z(1)),
    }
}

/// The quotient; a real divisor divides both parts.
pub(in crate::ops) fn quotient_of(z: &Numbers<'_>) -> Tensor {
    if z.is_complex(1) { div(&z.z(0), &z.z(1)) } else { join(z.pairs(0) / z.factor(1)) }
}

/// The point between the first two operands that the third says.
pub(in crate::ops) fn between(z: &Numbers<'_>) -> Tensor {
    let way = z.z(1) - z.z(0);
    z.z(0)
        + match z.input(2) {
            Operand::Tensor(weight) => way * weight,
            Operand::Scalar(weight) => way * weight.to_f64(),
        }
}

/// The complex number of these two functions of the parts.
pub(in crate::ops) fn of_parts(
    z: &Tensor,
    real: impl FnOnce(&Tensor, &Tensor) -> Tensor,
    imag: impl FnOnce(&Tensor, &Tensor) -> Tensor,
) -> Tensor {
    let (a, b) = (z.real(), z.imag());
    Tensor::complex(&real(&a, &b), &imag(&a, &b))
}
