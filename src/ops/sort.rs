//! Sorting along a dimension: sort, argsort, topk. Stable: equal elements keep their order (topk
//! takes the first of them). NaN counts as the largest. The gradient goes back to the places that
//! the elements came from.
//!
//! An element is mapped to an unsigned integer with the same order, next to its index: such pairs are
//! all different, so the fastest unstable sort of them is stable.

use smallvec::smallvec;

use super::reduce::select_backward;
#[cfg(test)]
use super::samples::{OpSample, Order, values};
use super::scan::around;
use crate::autograd::record;
use crate::cpu::fold::SharedMut;
use crate::cpu::threads::{GRAIN, parallel_for};
use crate::error::{Error, throw};
use crate::{Dtype, Tensor};

/// An element and its place in one number that sorts by element, then by place.
trait Key: Copy + Ord + Send + Sync {
    fn place(self) -> usize;
}

impl Key for u64 {
    #[inline(always)]
    fn place(self) -> usize {
        self as u32 as usize
    }
}

impl Key for (u64, u32) {
    #[inline(always)]
    fn place(self) -> usize {
        self.1 as usize
    }
}

/// An unsigned integer with the order of f32: 0.0 and -0.0 alike, NaN above all.
#[inline(always)]
fn order32(x: f32) -> u32 {
    let bits = (if x == 0.0 { 0.0 } else { x }).to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    if x.is_nan() { u32::MAX } else { ordered }
}

#[inline(always)]
fn order64(x: f64) -> u64 {
    let bits = (if x == 0.0 { 0.0 } else { x }).to_bits();
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    if x.is_nan() { u64::MAX } else { ordered }
}

/// For each of the lines of a dense `[outer, n, inner]` array, the places of its `k` first elements
/// in order, written to `places` of shape `[outer, k, inner]`. `key(at, i)` is the key of the element
/// at `at`, which is number `i` of its line.
fn order_lines<K: Key>(
    [outer, n, inner]: [usize; 3],
    k: usize,
    places: SharedMut<i64>,
    key: &(dyn Fn(usize, u32) -> K + Sync),
) {
    parallel_for(outer * inner, GRAIN / (8 * n).max(1), |lines| {
        let mut keys: Vec<K> = Vec::with_capacity(n);
        for line in lines {
            let (o, j) = (line / inner, line % inner);
            keys.clear();
            keys.extend((0..n).map(|i| key((o * n + i) * inner + j, i as u32)));
            if k < n {
                keys.select_nth_unstable(k);
            }
            keys[..k].sort_unstable();
            for (i, key) in keys[..k].iter().enumerate() {
                // SAFETY: a place of this line's, inside [outer, k, inner].
                unsafe { places.at((o * k + i) * inner + j).write(key.place() as i64) };
            }
        }
    });
}

/// The places of the `k` first elements along dimension `d`, in order.
#[track_caller]
fn order_of(op: &str, x: &Tensor, d: usize, descending: bool, k: usize) -> Tensor {
    let dtype = if x.dtype().is_floating_point() { x.dtype().compute() } else { Dtype::I64 };
    let x = x.detach().to_dtype(dtype).contiguous();
    let mut shape = x.layout().shape.clone();
    if let Some(n) = shape.get_mut(d) {
        *n = k;
    }
    let out = Tensor::empty(&shape, Dtype::I64);
    let (sizes, places) = (around(x.shape(), d), SharedMut(out.data_ptr().cast::<i64>()));
    if sizes[1] > u32::MAX as usize {
        throw(Error::shape(op, format!("more than 2^32 elements along dimension {d}")));
    }
    let (flip32, flip64) = if descending { (u32::MAX, u64::MAX) } else { (0, 0) };
    // SAFETY: contiguous and of the type matched on; nobody writes to it.
    unsafe {
        match dtype {
            Dtype::F32 => {
                let x = x.as_slice::<f32>();
                let key = |at, i| ((order32(x[at]) ^ flip32) as u64) << 32 | i as u64;
                order_lines(sizes, k, places, &key);
            }
            Dtype::F64 => {
                let x = x.as_slice::<f64>();
                order_lines(sizes, k, places, &|at, i| (order64(x[at]) ^ flip64, i));
            }
            _ => {
                let x = x.as_slice::<i64>();
                order_lines(sizes, k, places, &|at, i| ((x[at] as u64 ^ 1 << 63) ^ flip64, i));
            }
        }
    }
    out
}

/// The elements at `places` along `d`; their gradient goes back there.
fn at_places(op: &'static str, x: &Tensor, d: usize, places: &Tensor) -> Tensor {
    let out = x.detach().gather(d as i64, places);
    record(op, &[x], out, |saver| {
        let (places, shape) = (saver.save(places), x.layout().shape.clone());
        move |ctx| {
            smallvec![Some(select_backward(&ctx.grad(0), &ctx.get(&places), &shape, d, true))]
        }
    })
}

impl Tensor {
    /// Elements in order along `dim`, and where they were (`torch.sort`, stable).
    ///
    /// # Panics
    /// Throws when the dimension is out of range.
    #[track_caller]
    pub fn sort(&self, dim: i64, descending: bool) -> (Tensor, Tensor) {
        let d = self.normalize_dim("sort", dim);
        let n = self.shape().get(d).copied().unwrap_or(1);
        let places = order_of("sort", self, d, descending, n);
        (at_places("sort", self, d, &places), places)
    }

    /// The places of the elements in order along `dim` (`torch.argsort`, stable).
    ///
    /// # Panics
    /// Throws when the dimension is out of range.
    #[track_caller]
    pub fn argsort(&self, dim: i64, descending: bool) -> Tensor {
        let d = self.normalize_dim("argsort", dim);
        order_of("argsort", self, d, descending, self.shape().get(d).copied().unwrap_or(1))
    }

    /// The `k` largest (or smallest) elements along `dim` in order, and where they are
    /// (`torch.topk`).
    ///
    /// # Panics
    /// Throws when the dimension is out of range or has fewer than `k` elements.
    #[track_caller]
    pub fn topk(&self, k: usize, dim: i64, largest: bool) -> (Tensor, Tensor) {
        let d = self.normalize_dim("topk", dim);
        let n = self.shape().get(d).copied().unwrap_or(1);
        if k > n {
            throw(Error::argument(
                "topk",
                "k",
                format!("{k} elements of a dimension of {n} (dimension {d} of {:?})", self.shape()),
            ));
        }
        let places = order_of("topk", self, d, largest, k);
        (at_places("topk", self, d, &places), places)
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    let x = || vec![values([3, 4, 2], 5)];
    let ties = || vec![Tensor::from([[1f64, f64::NAN, -0.0, 1.0, 0.0]])];
    vec![
        OpSample::new("sort(1)", x(), |x| x[0].sort(1, false).0),
        OpSample::new("sort(-1, descending)", x(), |x| x[0].sort(-1, true).0),
        OpSample::new("sort, 0-dim", [values([], 1)], |x| x[0].sort(0, false).0),
        OpSample::new("argsort, ties", ties(), |x| x[0].argsort(1, false)).order(Order::None),
        OpSample::new("argsort(descending), ties", ties(), |x| x[0].argsort(1, true))
            .order(Order::None),
        OpSample::new("topk(2, 1)", x(), |x| x[0].topk(2, 1, true).0),
        OpSample::new("topk(1, 0), smallest", x(), |x| x[0].topk(1, 0, false).0),
        OpSample::new("sort, i64", [Tensor::from([3i64, i64::MIN, -1])], |x| x[0].sort(0, false).0),
    ]
}
