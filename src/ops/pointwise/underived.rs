//! Results of rows that have no derivative in PyTorch, or none by one of their operands: their backward is an error that says so,
//! where silence would be a wrong gradient.

use smallvec::{SmallVec, smallvec};

use super::apply;
use super::operands::{common_dtype, tensor};
use super::row::Row;
use crate::autograd::{BackwardCtx, record};
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Operand, Tensor};

fn error(op: &str, argument: &str) -> Error {
    let what =
        "has no derivative, here as in PyTorch; `detach` it to take the result as a constant";
    Error::argument(op, argument, what)
}

/// Throws for half types, which PyTorch's function does not take.
#[track_caller]
pub(super) fn refuse_halves(row: &Row, inputs: &[Operand<'_>]) {
    let is_complex = |input| tensor(input).is_some_and(|t| t.dtype().is_complex());
    if inputs.iter().any(is_complex) {
        return;
    }
    let dtype = common_dtype(row, inputs);
    if matches!(dtype, Dtype::F16 | Dtype::BF16) {
        let message = format!("takes f32 and f64, and integers as f32, got {dtype}");
        throw(Error::dtype(row.name, message));
    }
}

/// The row's op on `inputs`, none of which it has a derivative by.
#[track_caller]
pub(super) fn apply_underived(row: &'static Row, inputs: &[Operand<'_>]) -> Tensor {
    refuse_halves(row, inputs);
    let output = apply(row, inputs, &[]);
    let tensors: SmallVec<[&Tensor; 4]> = inputs.iter().filter_map(tensor).collect();
    record(row.name, &tensors, output, |_| {
        let (op, argument) = (row.name, row.inputs[0].name);
        move |_: &BackwardCtx<'_>| throw(error(op, argument))
    })
}

/// `output`, computed from `input` among others, with an error where a derivative by `input` is asked for.
#[track_caller]
pub(super) fn without_derivative_by(
    op: &'static str,
    argument: &'static str,
    input: Operand<'_>,
    output: Tensor,
) -> Tensor {
    let Operand::Tensor(input) = input else { return output };
    if !input.requires_grad() {
        return output;
    }
    let alias = output.detach();
    record(op, &[&output, input], alias, |_| {
        move |ctx: &BackwardCtx<'_>| {
            if ctx.needs(1) {
                throw(error(op, argument));
            }
            smallvec![Some(ctx.grad(0)), None]
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::autograd::{GraphMode, grad};
    use crate::error::catch;
    use crate::special;
    use crate::tensor::{Dtype, Tensor};

    #[test]
    fn backward_says_that_there_is_no_derivative() {
        let x = Tensor::from([0.5f64, 2.0]).requires_grad_(true);
        let n = Tensor::from([2f64, 3.0]);
        for y in [x.airy_ai(), x.spherical_bessel_j0(), x.legendre_polynomial_p(&n), x.zeta(&n)] {
            // Beside a part that has one, where silence would be a wrong gradient.
            let error = catch(|| (y + &x).sum().backward()).unwrap_err().to_string();
            assert!(error.contains("no derivative") && error.contains("detach"), "{error}");
        }
    }

    #[test]
    fn the_other_operand_of_two_has_its_derivative() {
        let a = Tensor::from([1.5f64, 2.0]).requires_grad_(true);
        let x = Tensor::from([0.5f64, 3.0]).requires_grad_(true);
        let y = a.igamma(&x).sum();
        let by_x = grad(&[&y], &[&x], &[None], GraphMode::Retain)[0].clone().expect("has one");
        let want = ((&a - 1.0) * x.log() - &x - a.lgamma()).exp();
        assert!(by_x.allclose(&want.detach(), Default::default()));
        let error = catch(|| _ = grad(&[&y], &[&a], &[None], GraphMode::Free)).unwrap_err();
        assert!(error.to_string().contains("no derivative"), "{error}");
    }

    #[test]
    fn half_types_integers_and_numbers_are_as_in_pytorch() {
        let x = Tensor::from([0.5f32]);
        let error = catch(|| x.to_dtype(Dtype::BF16).bessel_j0()).unwrap_err().to_string();
        assert!(error.contains("bf16"), "{error}");
        assert_eq!(Tensor::from([2i64]).bessel_j0().dtype(), Dtype::F32);
        assert_eq!(x.to_dtype(Dtype::BF16).igamma(&x.to_dtype(Dtype::BF16)).dtype(), Dtype::BF16);
        assert!(catch(|| Tensor::from([2i64]).igamma(&x)).is_err());
        assert!(catch(|| special::zeta(2.0, 3.0)).is_err());
        assert_eq!(special::legendre_polynomial_p(0.5, &Tensor::from([2i64])).dtype(), Dtype::F32);
    }
}
