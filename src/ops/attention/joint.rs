//! Queries, keys and values that are parts of one tensor, as of one product for all three: their gradients are made as
//! parts of one tensor too, which then is the gradient of the whole without a copy.

use crate::tensor::{Layout, Tensor};

/// New tensors without values that lie to each other as these do, if these lie side by side.
pub(super) fn new_like(qkv: [&Tensor; 3]) -> Option<[Tensor; 3]> {
    let [q, k, v] = qkv.map(|t| t.layout());
    let first = qkv[0];
    let is_like = |t: &Tensor, layout: &Layout| {
        t.storage().ptr_eq(first.storage())
            && t.dtype() == first.dtype()
            && (&layout.shape, &layout.strides) == (&q.shape, &q.strides)
    };
    let step = k.offset.checked_sub(q.offset).filter(|step| *step > 0)?;
    if !is_like(qkv[1], k) || !is_like(qkv[2], v) || v.offset != k.offset + step {
        return None;
    }
    let (mut shape, mut strides) = (q.shape.clone(), q.strides.clone());
    shape.insert(0, 3);
    strides.insert(0, step as isize);
    let whole = Layout { shape, strides, offset: 0 };
    if !whole.is_non_overlapping_and_dense() {
        return None;
    }
    let new = Tensor::uninitialised_on(&[3 * first.numel()], first.dtype(), first.device());
    let part = |place: usize| {
        let layout = Layout { offset: place * step, ..q.clone() };
        Tensor::from_parts(new.storage().clone(), layout, first.dtype())
    };
    Some([part(0), part(1), part(2)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Dtype;

    #[test]
    fn parts_of_one_tensor_get_parts_of_one() {
        let qkv = Tensor::zeros([2, 5, 3, 4, 8], Dtype::F32);
        let [q, k, v] = [0, 1, 2].map(|part| qkv.select(2, part).transpose(1, 2));
        let [dq, dk, dv] = new_like([&q, &k, &v]).unwrap();
        assert!(dq.storage().ptr_eq(dv.storage()) && dk.strides() == k.strides());
        assert_eq!([&dq, &dk, &dv].map(|t| t.layout().offset), [0, 32, 64]);
        assert!(new_like([&q, &v, &k]).is_none());
        assert!(new_like([&q, &k, &v.clone_contiguous()]).is_none());
        // Between these lies what none of them has.
        let other = Tensor::zeros([2, 5, 4, 4, 8], Dtype::F32);
        let [q, k, v] = [0, 1, 2].map(|part| other.select(2, part));
        assert!(new_like([&q, &k, &v]).is_none());
    }
}
