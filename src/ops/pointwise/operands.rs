//! What a row's operands are to a kernel, and what they have in common: the type that they promote to, the
//! shape that they broadcast to, memory for the result.
use smallvec::SmallVec;

use super::format::format_of;
use super::row::{Kind, Row};
use crate::error::{Error, throw};
use crate::loops::{Compute, Constant, Format, Operand as Buffer};
use crate::storage::{Device, Storage};
use crate::tensor::{Dtype, Layout, Operand, ResultType, Scalar, Shape, Tensor, broadcast_shapes};

#[inline]
pub(super) fn buffer(t: &Tensor, kind: Kind) -> Buffer<'_> {
    let format = match (t.dtype(), kind) {
        // `!true` is -2 as an integer; its lowest bit is right.
        (Dtype::Bool, Kind::Bitwise) => Format::Bit,
        (dtype, _) => format_of(dtype),
    };
    Buffer::Memory { ptr: t.device_ptr(), format, shape: t.shape(), strides: t.strides() }
}

pub(super) fn constants(params: &[Scalar]) -> SmallVec<[Constant; 4]> {
    let mut out = SmallVec::new();
    for &param in params {
        out.push(constant(param));
    }
    out
}

#[inline]
pub(super) fn constant(s: Scalar) -> Constant {
    match s {
        Scalar::F(v) => Constant::F(v),
        Scalar::I(v) => Constant::I(v),
        Scalar::B(v) => Constant::I(v as i64),
    }
}

/// The type in which tensors of that type are computed.
#[inline]
pub(super) fn compute_of(dtype: Dtype) -> Compute {
    match dtype {
        Dtype::F64 => Compute::F64,
        Dtype::F32 | Dtype::F16 | Dtype::BF16 => Compute::F32,
        _ => Compute::I64,
    }
}

#[inline]
pub(super) fn compute_type(row: &Row, common: Dtype) -> Compute {
    match row.kind {
        Kind::Float => compute_of(row.result_dtype(common)),
        _ => compute_of(common),
    }
}

#[inline]
pub(super) fn has_complex(inputs: &[Operand<'_>]) -> bool {
    inputs.iter().any(|input| tensor(input).is_some_and(|t| t.dtype().is_complex()))
}

#[inline]
pub(super) fn tensor<'a>(operand: &Operand<'a>) -> Option<&'a Tensor> {
    match operand {
        Operand::Tensor(t) => Some(t),
        Operand::Scalar(_) => None,
    }
}

#[inline]
pub(super) fn overlap(a: &Tensor, b: &Tensor) -> bool {
    a.storage().ptr_eq(b.storage()) && buffer(a, Kind::Arith).overlaps(&buffer(b, Kind::Arith))
}

/// True when writing `target` would change elements of `t` before they are read.
pub(super) fn overlaps_otherwise(target: &Tensor, t: &Tensor) -> bool {
    overlap(target, t) && !buffer(target, Kind::Arith).is_same_view(&buffer(t, Kind::Arith))
}

/// The type that the operands promote to.
#[track_caller]
#[inline]
pub(super) fn common_dtype(row: &Row, inputs: &[Operand<'_>]) -> Dtype {
    let mut common = ResultType::default();
    for (operand, input) in inputs.iter().zip(row.inputs) {
        if !input.mask {
            common = common.operand(*operand);
        } else if !matches!(operand, Operand::Tensor(t) if t.dtype() == Dtype::Bool) {
            refuse_mask(row, input.name, operand);
        }
    }
    let common = common.dtype();
    if row.kind == Kind::Difference {
        refuse_bools(row.name, inputs);
    }
    if !row.takes(common) {
        refuse_dtype(row, common);
    }
    common
}

/// Refuses bools among the operands of a difference, as PyTorch: who subtracts a mask nearly always means "not" or
/// "exclusive or".
#[track_caller]
pub(super) fn refuse_bools(op: &str, inputs: &[Operand<'_>]) {
    let dtype = |input: &Operand<'_>| match input {
        Operand::Tensor(t) => t.dtype(),
        Operand::Scalar(s) => s.dtype(),
    };
    if inputs.iter().any(|input| dtype(input) == Dtype::Bool) {
        let got = inputs.iter().map(|input| dtype(input).to_string()).collect::<Vec<_>>();
        throw(Error::dtype(
            op,
            format!(
                "takes numbers, got {}; use `logical_xor` or `logical_not`, or convert with `.to(..)`",
                got.join(" and ")
            ),
        ));
    }
}

/// The operands of a comparison in a half type, rounded to that type as in PyTorch: the number 1.001 equals 1 in bf16.
/// `None` where no operand changes. `kept` keeps the new tensors.
#[inline]
pub(super) fn rounded<'a>(
    row: &Row,
    common: Dtype,
    inputs: &[Operand<'a>],
    kept: &'a mut SmallVec<[Tensor; 2]>,
) -> Option<SmallVec<[Operand<'a>; 4]>> {
    let half = matches!(common, Dtype::F16 | Dtype::BF16);
    (half && row.kind == Kind::Compare).then(|| rounded_to(common, inputs, kept))
}

#[cold]
fn rounded_to<'a>(
    common: Dtype,
    inputs: &[Operand<'a>],
    kept: &'a mut SmallVec<[Tensor; 2]>,
) -> SmallVec<[Operand<'a>; 4]> {
    let other = |input: &Operand<'a>| tensor(input).filter(|t| t.dtype() != common);
    kept.extend(inputs.iter().filter_map(other).map(|t| t.detach().to_dtype(common)));
    let mut kept = kept.iter();
    let rounded = |input: &Operand<'a>| match input {
        Operand::Scalar(s) => Operand::Scalar(Scalar::F(match common {
            Dtype::F16 => half::f16::from_f32(s.to_f64() as f32).to_f64(),
            _ => half::bf16::from_f32(s.to_f64() as f32).to_f64(),
        })),
        Operand::Tensor(t) if t.dtype() != common => kept.next().map_or(*input, Operand::Tensor),
        Operand::Tensor(_) => *input,
    };
    inputs.iter().map(rounded).collect()
}

#[cold]
#[track_caller]
fn refuse_mask(row: &Row, name: &str, operand: &Operand<'_>) -> ! {
    let got = match operand {
        Operand::Tensor(t) => format!("a {} tensor", t.dtype()),
        Operand::Scalar(_) => "a number".to_owned(),
    };
    throw(Error::dtype(row.name, format!("`{name}` must be a bool tensor, got {got}")))
}

#[cold]
#[track_caller]
fn refuse_dtype(row: &Row, dtype: Dtype) -> ! {
    let takes = match row.kind {
        Kind::Numeric => "numbers; for bool use the logical ops",
        _ => "integer and bool tensors",
    };
    throw(Error::dtype(row.name, format!("takes {takes}, got {dtype}")))
}

/// The shape that the operands broadcast to.
#[track_caller]
#[inline]
pub(super) fn broadcast(op: &str, inputs: &[Operand<'_>]) -> Shape {
    let mut shapes = inputs.iter().filter_map(tensor).map(|t| t.shape());
    let mut shape = Shape::from_slice(shapes.next().unwrap_or(&[]));
    for other in shapes {
        if shape[..] != *other {
            shape = match broadcast_shapes(&shape, other) {
                Ok(shape) => shape,
                Err(d) => refuse_shapes(op, &shape, other, d),
            };
        }
    }
    shape
}

#[cold]
#[track_caller]
fn refuse_shapes(op: &str, a: &[usize], b: &[usize], d: usize) -> ! {
    let n = a.len().max(b.len());
    let (x, y) = (a[d + a.len() - n], b[d + b.len() - n]);
    throw(Error::shape(
        op,
        format!("shapes {a:?} and {b:?} do not broadcast: dimension {d} has {x} and {y}"),
    ))
}

/// Where an op on these operands computes: on their GPU, if one is on one.
#[inline]
pub(super) fn device_of(inputs: &[Operand<'_>]) -> Device {
    for input in inputs {
        if let Operand::Tensor(t) = input
            && t.device().is_apart()
        {
            return t.device();
        }
    }
    Device::Cpu
}

/// Memory for a result. As PyTorch, it lies in memory as the first input of that shape does when
/// that one is dense (channels-last in, channels-last out), else in row-major order.
#[inline]
#[track_caller]
pub(super) fn allocate(shape: &[usize], dtype: Dtype, inputs: &[Operand<'_>]) -> Tensor {
    let device = device_of(inputs);
    let first = inputs.iter().filter_map(tensor).find(|t| t.shape() == shape);
    match first {
        Some(t) if !t.is_contiguous() && t.layout().is_non_overlapping_and_dense() => {
            let layout = Layout { offset: 0, ..t.layout().clone() };
            Tensor::from_parts(Storage::on(device, t.numel() * dtype.size()), layout, dtype)
        }
        _ => Tensor::uninitialised_on(shape, dtype, device),
    }
}
