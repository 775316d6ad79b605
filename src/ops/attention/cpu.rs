//! Attention on the CPU: the batch's items, their sequences, and shares of these's queries, over the threads;
//! `cpu::attention` does each.

use std::ops::Range;

use smallvec::smallvec;

use super::plan::Plan;
use crate::autograd::{Grads, no_grad};
use crate::cpu::{
    attention::Attention, attention::Band, attention::Rows, products::tiled::Tiled,
    threads::get_num_threads, threads::parallel_items, threads::parts::Parts,
};
use crate::ops::compute_type;
use crate::tensor::{Shape, Tensor, dispatch};

/// Queries and the keys that they attend to, of those that lie one after the other.
pub(super) struct Sequence {
    pub(super) queries: Range<usize>,
    pub(super) keys: Range<usize>,
    pub(super) band: Band,
}

impl Sequence {
    /// All of a plan's.
    pub(super) fn whole(plan: &Plan) -> [Sequence; 1] {
        let a = plan.attention;
        [Sequence { queries: 0..a.queries, keys: 0..a.keys, band: a.band }]
    }

    fn attention(&self, plan: &Plan) -> Attention {
        let (queries, keys) = (self.queries.len(), self.keys.len());
        Attention { queries, keys, band: self.band, ..plan.attention }
    }
}

/// Y and the logarithms of the sums. A mask is for a plan that is one sequence.
pub(super) fn forward(
    plan: &Plan,
    [q, k, v]: [&Tensor; 3],
    mask: Option<&Tensor>,
    sequences: &[Sequence],
) -> (Tensor, Tensor) {
    let a = plan.attention;
    let dtype = q.dtype();
    let [q, k, v] = [q, k, v].map(|t| Operand::new(t, &plan.batch));
    let mask = mask.map(|m| Operand::mask(m, plan));
    let y = Tensor::empty(plan.with_batch([a.queries, a.width]), dtype.compute().on_host());
    let logsum = Tensor::empty(plan.with_batch([a.queries, 1]), dtype.compute().on_host());
    // Each share of a batch item's queries packs its keys: only as many as there are threads.
    let count = plan.count() * sequences.len();
    let longest = sequences.iter().map(|s| s.queries.len()).max().unwrap_or(0);
    let shares = get_num_threads().div_ceil(count.max(1)).min(longest.div_ceil(64)).max(1);
    let flops = 4 * pairs(sequences) * (a.depth + a.width) / shares;
    dispatch!(compute dtype.compute(), "scaled_dot_product_attention", T => {
        // SAFETY: new contiguous tensors of this type.
        let (y, logsum) = unsafe { (y.as_mut_slice::<T>(), logsum.as_mut_slice::<T>()) };
        let (y, logsum) = (Parts::new(y), Parts::new(logsum));
        parallel_items(count * shares, 1_000_000 / flops.max(1) + 1, |item| {
            let (item, share) = (item / shares, item % shares);
            let (b, sequence) = (item / sequences.len(), &sequences[item % sequences.len()]);
            let own = sequence.attention(plan);
            let part = |s: usize| own.queries * s / shares;
            let range = part(share)..part(share + 1);
            let first = b * a.queries + sequence.queries.start;
            let (from, to) = (first + range.start, first + range.end);
            // SAFETY: each share of the queries is one thread's.
            let (y, logsum) = unsafe { (y.slice(from * a.width..to * a.width), logsum.slice(from..to)) };
            if own.keys == 0 {
                y.fill(T::default());
                logsum.fill(T::default());
                return;
            }
            let mask = mask.as_ref().map(|m| m.rows::<T>(b, &sequence.queries, a.keys));
            let (q, k) = (q.rows(b, &sequence.queries, a.depth), k.rows(b, &sequence.keys, a.depth));
            own.forward(range, q, k, v.rows(b, &sequence.keys, a.width), mask, y, logsum);
        });
    });
    (compute_type::narrow(y, dtype), logsum)
}

/// The mean number of pairs of queries and keys of a sequence.
fn pairs(sequences: &[Sequence]) -> usize {
    let all: usize = sequences.iter().map(|s| s.queries.len() * s.keys.len()).sum();
    all / sequences.len().max(1)
}

/// The gradients of queries, keys and values.
pub(super) fn backward(
    plan: &Plan,
    [q, k, v]: [&Tensor; 3],
    mask: Option<&Tensor>,
    sequences: &[Sequence],
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
    let flops = 10 * pairs(sequences) * (a.depth + a.width);
    let count = plan.count() * sequences.len();
    dispatch!(compute dtype.compute(), "scaled_dot_product_attention", T => {
        // SAFETY: contiguous tensors of this type, the gradients new.
        let (y, logsum, dy) = unsafe { (y.as_slice::<T>(), logsum.as_slice::<T>(), dy.as_slice::<T>()) };
        // SAFETY: contiguous new tensors of this type.
        let parts = grads.each_ref().map(|g| Parts::new(unsafe { g.as_mut_slice::<T>() }));
        parallel_items(count, 1_000_000 / flops.max(1) + 1, |item| {
            let (b, sequence) = (item / sequences.len(), &sequences[item % sequences.len()]);
            let (queries, keys) = (&sequence.queries, &sequence.keys);
            if queries.is_empty() || keys.is_empty() {
                return;
            }
            let mask = mask.as_ref().map(|m| m.rows::<T>(b, queries, a.keys));
            // Rows of an item's tensor of `all` rows, each of `len` numbers.
            let of = |rows: &Range<usize>, all: usize, len: usize| {
                (b * all + rows.start) * len..(b * all + rows.end) * len
            };
            let ranges = [
                of(queries, a.queries, a.depth),
                of(keys, a.keys, a.depth),
                of(keys, a.keys, a.width),
            ];
            let [dq, dk, dv] = [0, 1, 2].map(|i| {
                // SAFETY: each sequence of a batch item is one thread's.
                unsafe { parts[i].slice(ranges[i].clone()) }
            });
            let (q, k) = (q.rows(b, queries, a.depth), k.rows(b, keys, a.depth));
            let (of_y, of_sums) = (of(queries, a.queries, a.width), of(queries, a.queries, 1));
            let (y, dy) = (&y[of_y.clone()], &dy[of_y]);
            let own = sequence.attention(plan);
            own.backward(q, k, v.rows(b, keys, a.width), mask, y, &logsum[of_sums], dy, [dq, dk, dv]);
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

    fn rows<T: Tiled>(&self, b: usize, rows: &Range<usize>, len: usize) -> Rows<'_, T> {
        let row = self.tensor.strides()[self.tensor.dim() - 2] as usize;
        let none = rows.is_empty() || len == 0;
        let (extent, first) =
            if none { (0, 0) } else { ((rows.len() - 1) * row + len, rows.start * row) };
        // SAFETY: `extent` elements from these rows' start in the batch item are inside the tensor's layout; the
        // dispatch gave its type.
        let data = unsafe {
            std::slice::from_raw_parts(
                self.tensor.data_ptr().cast::<T>().add(self.starts[b] + first),
                extent,
            )
        };
        Rows { data, row }
    }
}
