//! Numbers in another dtype, where all have a place in it.

use crate::autograd::no_grad;
use crate::error::{Result, catch};
use crate::tensor::{Dtype, Tensor};

/// A tensor of the host in another dtype; or what some of its numbers would become, which were lost.
///
/// # Errors
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory) where there is no room.
pub(super) fn cast(
    tensor: &Tensor,
    dtype: Dtype,
) -> Result<std::result::Result<Tensor, &'static str>> {
    let tensor = tensor.detach();
    if tensor.dtype() == dtype {
        return Ok(Ok(tensor));
    }
    catch(|| {
        no_grad(|| {
            let cast = tensor.to_dtype(dtype);
            let is_float = |t: &Tensor| t.dtype().is_floating_point();
            let (lost, what) = if is_float(&tensor) && is_float(&cast) {
                let lost = tensor.isfinite().logical_and(&cast.isfinite().logical_not());
                (lost, "infinite")
            } else if tensor.dtype().is_complex() || cast.dtype().is_complex() || is_float(&cast) {
                return Ok(cast);
            } else {
                // Not a number is equal to nothing, and has no place among integers.
                (cast.to_dtype(tensor.dtype()).ne(&tensor), "others")
            };
            if lost.any().item() != 0.0 { Err(what) } else { Ok(cast) }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_a_place_are_told_of() {
        let wide = Tensor::from([1e6f32, 2.5, f32::INFINITY]);
        assert_eq!(cast(&wide, Dtype::F16).unwrap().unwrap_err(), "infinite");
        assert_eq!(cast(&wide, Dtype::BF16).unwrap().unwrap().dtype(), Dtype::BF16);
        assert!(cast(&wide.narrow(0, 1, 2), Dtype::F16).unwrap().is_ok());
        assert_eq!(cast(&wide.narrow(0, 1, 1), Dtype::I64).unwrap().unwrap_err(), "others");
        let whole = Tensor::from([3f32, -7.0]);
        assert_eq!(cast(&whole, Dtype::I64).unwrap().unwrap().to_vec::<i64>(), [3, -7]);
        assert_eq!(cast(&Tensor::from([300i64]), Dtype::U8).unwrap().unwrap_err(), "others");
        assert_eq!(cast(&Tensor::from([f32::NAN]), Dtype::I64).unwrap().unwrap_err(), "others");
        assert_eq!(cast(&Tensor::from([3i64]), Dtype::F32).unwrap().unwrap().item(), 3.0);
    }
}
