//! Rows on complex numbers: what a row's clause `complex(z) { .. }` says, as a new result or in place.

use super::pairs::Numbers;
use crate::error::{Error, throw, within};
use crate::ops::pointwise::operands::refuse_bools;
use crate::ops::pointwise::row::{Kind, Row};
use crate::profiler;
use crate::tensor::{Dtype, Operand, ResultType, Scalar, Tensor, can_cast, dtype::not_real};

/// The row's op where an operand is complex.
#[track_caller]
pub fn pointwise(row: &'static Row, inputs: &[Operand<'_>], params: &[Scalar]) -> Tensor {
    let mut common = ResultType::default();
    for (operand, input) in inputs.iter().zip(row.inputs) {
        if !input.mask {
            common = common.operand(*operand);
        }
    }
    if row.kind == Kind::Difference {
        refuse_bools(row.name, inputs);
    }
    let dtype = common.dtype();
    let (true, Some(meaning)) = (dtype.is_complex(), row.complex) else {
        not_real(row.name, dtype)
    };
    let device = inputs
        .iter()
        .find_map(|x| match x {
            Operand::Tensor(t) if t.dim() > 0 || t.device().is_apart() => Some(t.device()),
            _ => None,
        })
        .unwrap_or_default();
    // A function that is called by its address does not know who called.
    let _line = within::line();
    meaning(&Numbers { inputs, params, dtype, device })
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
    let result = {
        let _span = profiler::op(row.name);
        pointwise(row, &inputs, params)
    };
    let (from, to) = (result.dtype(), target.dtype());
    // Absolute values and angles are no numbers of the target's kind.
    let parts = !from.is_complex() && from != Dtype::Bool;
    if !can_cast(from, to) && from != Dtype::Bool || parts {
        throw(Error::dtype(
            row.name,
            format!("the result is {from} and cannot be written in place into a {to} tensor"),
        ));
    }
    target.assign_same_shape(row.name, &result);
}
