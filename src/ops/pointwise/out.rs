//! Results in memory that is there already: PyTorch's `out=`.

use smallvec::SmallVec;

use super::apply::{alike, is_like, keeps, run, run_alike};
use super::operands::{
    broadcast, common_dtype, compute_type, has_complex, overlaps_otherwise, rounded, tensor,
};
use super::row::Row;
use crate::autograd::any_differentiated;
use crate::error::{Error, throw};
use crate::profiler;
use crate::tensor::{Dtype, Operand, Scalar, Tensor, can_cast};

/// The row's op on `inputs`, written into `out` (`torch.add(x, y, out=out)`): for loops that make the same
/// large result again and again. It is converted to `out`'s type as by an in-place op. Nothing is recorded.
///
/// ```
/// use torchrs::{Dtype, Tensor, ops::pointwise};
/// let add = pointwise::tables().find(|row| row.name == "add").unwrap();
/// let (x, out) = (Tensor::from([1f32, 2.]), Tensor::zeros([2], Dtype::F32));
/// pointwise::apply_out(add, &[(&x).into(), 10.0.into()], &[], &out);
/// assert_eq!(out.to_vec::<f32>(), [11.0, 12.0]);
/// ```
///
/// # Panics
/// Throws when `out` has another shape than the result or a type that it cannot be converted to, when its
/// elements share memory with each other, for complex operands, and, as PyTorch, when autograd would have to
/// record the call.
#[track_caller]
pub fn apply_out(row: &'static Row, inputs: &[Operand<'_>], params: &[Scalar], out: &Tensor) {
    let _span = profiler::op(row.name);
    let refuse = |why: &str| throw(Error::argument(row.name, "out", why.to_owned()));
    if out.requires_grad() || any_differentiated(inputs.len(), |k| tensor(&inputs[k])) {
        refuse(
            "takes no part in automatic differentiation; call it in `no_grad`, or without `out`",
        );
    }
    if has_complex(inputs) || out.dtype().is_complex() {
        refuse("complex numbers are not written in place");
    }
    out.assert_inplace_legal(row.name);
    let common = common_dtype(row, inputs);
    let result = row.result_dtype(common);
    if result != Dtype::Bool && !can_cast(result, out.dtype()) {
        throw(Error::dtype(
            row.name,
            format!(
                "the result is {result} and cannot be written into an `out` of {}",
                out.dtype()
            ),
        ));
    }
    let shape = broadcast(row.name, inputs);
    if shape[..] != *out.shape() {
        throw(Error::shape(
            row.name,
            format!("the result has shape {:?}, `out` has {:?}", &shape[..], out.shape()),
        ));
    }
    let mut kept = SmallVec::new();
    let halves = rounded(row, common, inputs, &mut kept);
    let inputs = halves.as_deref().unwrap_or(inputs);
    let copy = |input: &Operand<'_>| {
        tensor(input).filter(|t| overlaps_otherwise(out, t)).map(|t| t.detach().clone_contiguous())
    };
    let copies: SmallVec<[Option<Tensor>; 4]> = inputs.iter().map(copy).collect();
    let apart: SmallVec<[Operand<'_>; 4]> = copies
        .iter()
        .zip(inputs)
        .map(|(copy, input)| copy.as_ref().map_or(*input, Operand::Tensor))
        .collect();
    // SAFETY: `out` has the broadcast shape, names no element twice, and every input is the same view, a copy,
    // or elsewhere. Who else may use the memory is the caller's concern, as for every in-place op.
    unsafe {
        if alike(&apart).is_some_and(|like| keeps(row, like.dtype()) && is_like(out, like)) {
            run_alike(&row.kernel, out, &apart, params);
        } else {
            run(&row.kernel, row.kind, compute_type(row, common), &[out], &apart, params);
        }
    }
    out.storage().bump_version();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd::no_grad;
    use crate::error::catch;
    use crate::ops::pointwise::tables;

    fn row(name: &str) -> &'static Row {
        tables().find(|row| row.name == name).unwrap()
    }

    #[test]
    fn results_go_where_they_are_wanted() {
        let x = Tensor::arange(0, 6, 1, Dtype::F32).view([2, 3]);
        let out = Tensor::zeros([3, 2], Dtype::F64);
        apply_out(row("exp"), &[(&x).into()], &[], &out.t());
        assert!(out.t().allclose(&x.exp().to_dtype(Dtype::F64), Default::default()));
        assert_eq!(out.version(), 1);
        // An input that the result overwrites elsewhere.
        apply_out(row("add"), &[(&x.narrow(1, 0, 2)).into(), 1.0.into()], &[], &x.narrow(1, 1, 2));
        assert_eq!(x.to_vec::<f32>(), [0., 1., 2., 3., 4., 5.]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let x = Tensor::from([1f32, 2.]);
        let refused = |inputs: &[Operand<'_>], out: &Tensor| {
            catch(|| apply_out(row("add"), inputs, &[], out)).unwrap_err().to_string()
        };
        let text = refused(&[(&x).into(), 1.0.into()], &Tensor::zeros([3], Dtype::F32));
        assert!(text.contains("[2]") && text.contains("[3]"), "{text}");
        let text = refused(&[(&x).into(), 1.0.into()], &Tensor::zeros([2], Dtype::I64));
        assert!(text.contains("f32") && text.contains("i64"), "{text}");
        let leaf = x.detach().requires_grad_(true);
        let out = Tensor::zeros([2], Dtype::F32);
        assert!(refused(&[(&leaf).into(), 1.0.into()], &out).contains("no_grad"));
        no_grad(|| apply_out(row("add"), &[(&leaf).into(), 1.0.into()], &[], &out));
        assert_eq!(out.to_vec::<f32>(), [2.0, 3.0]);
    }
}
