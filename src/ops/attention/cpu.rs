//! Attention on the CPU: the batch's items, and shares of their queries, over the threads; `cpu::attention` does each.

use smallvec::smallvec;

use super::plan::Plan;
use crate::autograd::{Grads, no_grad};
use crate::cpu::{
    attention::Rows, products::tiled::Tiled, threads::get_num_threads, threads::parallel_items,
    threads::parts::Parts,
};
use crate::ops::compute_type;
use crate::tensor::{Shape, Tensor, dispatch};

/// Y and the logarithms of the sums.
pub(super) fn forward(
    plan: &Plan,
    [q, k, v]: [&Tensor; 3],
    mask: Option<&Tensor>,
) -> (Tensor, Tensor) {
    let a = plan.attention;
    let dtype = q.dtype();
    let [q, k, v] = [q, k, v].map(|t| Operand::new(t, &plan.batch));
    let mask = mask.map(|m| Operand::mask(m, plan));
    let y = Tensor::empty(plan.with_batch([a.queries, a.width]), dtype.compute().on_host());
    let logsum = Tensor::empty(plan.with_batch([a.queries, 1]), dtype.compute().on_host());
    // Each share of a batch item's queries packs its keys: only as many as there are threads.
    let count = plan.count();
    let shares = get_num_threads().div_ceil(count.max(1)).min(a.queries.div_ceil(64)).max(1);
    let flops = 4 * a.queries * a.keys * (a.depth + a.width) / shares;
    dispatch!(compute dtype.compute(), "scaled_dot_product_attention", T => {
        // SAFETY: new contiguous tensors of this type.
        let (y, logsum) = unsafe { (y.as_mut_slice::<T>(), logsum.as_mut_slice::<T>()) };
        let (y, logsum) = (Parts::new(y), Parts::new(logsum));
        parallel_items(count * shares, 1_000_000 / flops.max(1) + 1, |item| {
            let (b, share) = (item / shares, item % shares);
            let part = |s: usize| a.queries * s / shares;
            let range = part(share)..part(share + 1);
            let (from, to) = (b * a.queries + range.start, b * a.queries + range.end);
            // SAFETY: each share of the queries is one thread's.
            let (y, logsum) = unsafe { (y.slice(from * a.width..to * a.width), logsum.slice(from..to)) };
            let mask = mask.as_ref().map(|m| m.rows::<T>(b, a.queries, a.keys));
            let (q, k, v) = (q.rows(b, a.queries, a.depth), k.rows(b, a.keys, a.depth), v.rows(b, a.keys, a.width));
            a.forward(range, q, k, v, mask, y, logsum);
        });
    });
    (compute_type::narrow(y, dtype), logsum)
}

/// The gradients of queries, keys and values.
pub(super) fn backward(
    plan: &Plan,
    [q, k, v]: [&Tensor; 3],
    mask: Option<&Tensor>,
    (y, logsum): (&Tensor, &Tensor),
    dy: &Tensor,
) -> Grads {
    let a = plan.attention;
    let dtype = q.dtype();
    let [q, k, v] = [q, k, v].map(|t| Operand::new(t, &plan.batch));
    let mask = mask.map(|m| Operand::mask(m, plan));
    let (y, dy) = (compute_type::widen(y), compute_type::widen(dy));
    let zeros =
        |rows, columns| Tensor::zeros(plan.with_batch([rows, columns]), dtype.compute().on_host());
    let grads = [zeros(a.queries, a.depth), zeros(a.keys, a.depth), zeros(a.keys, a.width)];
    let flops = 10 * a.queries * a.keys * (a.depth + a.width);
    dispatch!(compute dtype.compute(), "scaled_dot_product_attention", T => {
        // SAFETY: contiguous tensors of this type, the gradients new.
        let (y, logsum, dy) = unsafe { (y.as_slice::<T>(), logsum.as_slice::<T>(), dy.as_slice::<T>()) };
        // SAFETY: contiguous new tensors of this type.
        let parts = grads.each_ref().map(|g| Parts::new(unsafe { g.as_mut_slice::<T>() }));
        parallel_items(plan.count(), 1_000_000 / flops.max(1) + 1, |b| {
            let mask = mask.as_ref().map(|m| m.rows::<T>(b, a.queries, a.keys));
            let item = |len: usize| b * len..(b + 1) * len;
            let lens = [a.queries * a.depth, a.keys * a.depth, a.keys * a.width];
            let [dq, dk, dv] = [0, 1, 2].map(|i| {
                // SAFETY: each batch item is one thread's.
                unsafe { parts[i].slice(item(lens[i])) }
            });
            let (q, k, v) = (q.rows(b, a.queries, a.depth), k.rows(b, a.keys, a.depth), v.rows(b, a.keys, a.width));
            let of_y = item(a.queries * a.width);
            a.backward(q, k, v, mask, &y[of_y.clone()], &logsum[item(a.queries)], &dy[of_y], [dq, dk, dv]);
        });
    });
    let [dq, dk, dv] = grads.map(|g| Some(compute_type::narrow(g, dtype)));
    smallvec![dq, dk, dv, None]
}

/// An operand as rows per batch item, widened if it is of a half type, without a copy if its rows
/// are contiguous.
struct Operand {
    tensor: Tensor,
    /// Where each batch item starts, from the tensor's first element.
    starts: Vec<usize>,
}

impl Operand {
    fn new(t: &Tensor, batch: &[usize]) -> Self {
        let mut t = t.detach();
        if t.dtype() != t.dtype().compute() {
            t = compute_type::widen(&t);
        }
        // A row of one number may have any stride.
        if t.strides()[t.dim() - 1] != 1 {
            t = no_grad(|| t.clone_contiguous()).detach();
        }
        let mut shape = Shape::from_slice(batch);
        shape.extend_from_slice(&t.shape()[t.dim() - 2..]);
        let tensor = no_grad(|| t.expand(&shape));
        let mut starts = vec![0];
        for (&n, &stride) in batch.iter().zip(tensor.strides()) {
            let step = |at: usize| (0..n).map(move |i| at + i * stride as usize);
            starts = starts.into_iter().flat_map(step).collect();
        }
        Operand { tensor, starts }
    }

    /// A mask, its last two dimensions in full.
    fn mask(mask: &Tensor, plan: &Plan) -> Self {
        let a = plan.attention;
        let outer = mask.dim().saturating_sub(2);
        let mut shape = Shape::from_slice(&mask.shape()[..outer]);
        shape.extend([a.queries, a.keys]);
        let full = no_grad(|| compute_type::widen(&mask.detach().expand(&shape)));
        Operand::new(&full, &plan.batch)
    }

    fn rows<T: Tiled>(&self, b: usize, rows: usize, len: usize) -> Rows<'_, T> {
        let row = self.tensor.strides()[self.tensor.dim() - 2] as usize;
        let extent = if rows == 0 || len == 0 { 0 } else { (rows - 1) * row + len };
        // SAFETY: `extent` elements from the batch item's start are inside the tensor's layout; the
        // dispatch gave its type.
        let data = unsafe {
            std::slice::from_raw_parts(
                self.tensor.data_ptr().cast::<T>().add(self.starts[b]),
                extent,
            )
        };
        Rows { data, row }
    }
}
