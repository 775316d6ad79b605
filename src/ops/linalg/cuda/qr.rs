//! `A = Q R` by panels (`kernels/linalg_qr.cu`): the reflections of a panel become the products with which it is
//! applied to the columns after it, and to the identity for Q.

use super::matrices::{Matrices, blocks, identities, launch, part, shared_room, stack};
use crate::cuda::cuda_args;
use crate::cuda::{family::Family, family::REALS, sources::family};
use crate::ops::{gpu::Gpu, products::matmul::subtract::subtract_product};
use crate::tensor::Tensor;

pub(in crate::ops) static QR: Family =
    family!("linalg_qr": "linalg.cuh", "linalg_qr.cu").with(&[(REALS, &["any"])]);

/// `WIDTH` of the kernels.
const WIDTH: usize = 32;

/// `I - V T V^T` from a row and column on.
struct Reflections {
    first: usize,
    /// `[count, width, rows]`
    turned: Tensor,
    /// `[count, width, width]`
    factor: Tensor,
}

impl Reflections {
    /// Applies them, or their transpose, to rows from the first on.
    #[track_caller]
    fn apply(&self, gpu: Gpu, x: &Tensor, transposed: bool) {
        let factor = if transposed { self.factor.mt() } else { self.factor.clone() };
        let inner = factor.matmul(&self.turned.matmul(x));
        subtract_product(gpu, x, &self.turned.mt(), &inner);
    }
}

/// The first `columns` columns of Q, and as many rows of R; at least the smaller side of the matrices.
#[track_caller]
pub fn qr(gpu: Gpu, a: &Tensor, columns: usize) -> Vec<Tensor> {
    let shape = &a.shape()[..a.dim() - 2];
    let unstacked = |x: Tensor| x.reshape_to(&[shape, &x.shape()[1..]].concat());
    let (q, r) = stacked(gpu, &stack(a), columns);
    vec![unstacked(q), unstacked(r)]
}

/// [`qr`] of a stack, which is overwritten.
#[track_caller]
pub fn stacked(gpu: Gpu, a: &Tensor, columns: usize) -> (Tensor, Tensor) {
    let (m, n) = (a.size(1), a.size(2));
    let q = identities(a, m, columns);
    let mut all = Vec::new();
    if a.numel() > 0 {
        let (mut first, least) = (0, m.min(n));
        while first < least {
            let (width, copied) = panel(gpu, a, first);
            let end = (first + width).min(least);
            let reflections = factor(gpu, a, first..end, copied);
            if end < n {
                reflections.apply(gpu, &part(a, first..m, end..n), true);
            }
            all.push(reflections);
            first = end;
        }
    }
    for reflections in all.iter().rev() {
        let first = reflections.first;
        reflections.apply(gpu, &part(&q, first..m, first..columns), false);
    }
    // A triangle by panels; above them, from the products.
    (q, part(a, 0..columns, 0..n).contiguous())
}

/// [`stacked`] with as many columns of Q as the matrices have, who have no fewer rows; R's signs may be others. Of tall
/// and narrow matrices parts of the rows are factored at the same time, then the parts' R below one another.
#[track_caller]
pub fn thin(gpu: Gpu, a: &Tensor) -> (Tensor, Tensor) {
    /// The least rows of a part, and the most columns for which parts are worth it.
    const ROWS: usize = 512;
    const COLUMNS: usize = 64;
    let (count, m, n) = (a.size(0), a.size(1), a.size(2));
    if n > COLUMNS || m < 8 * ROWS {
        return stacked(gpu, a, n);
    }
    // The last part is filled with zeros. No reflection touches those if as many rows as columns are above them.
    let fits = |rows: &usize| m.is_multiple_of(*rows) || m % rows >= n;
    let rows = (ROWS..2 * ROWS).find(fits).unwrap_or(m);
    let parts = m.div_ceil(rows);
    if parts == 1 {
        return stacked(gpu, a, n);
    }
    let zeros = Tensor::zeros([count, parts * rows - m, n], (a.dtype(), a.device()));
    let all = Tensor::cat(&[a, &zeros], 1).reshape_to(&[count * parts, rows, n]);
    let (outer, r) = stacked(gpu, &all, n);
    let (inner, r) = thin(gpu, &r.reshape_to(&[count, parts * n, n]));
    let q = outer.matmul(&inner.reshape_to(&[count * parts, n, n]));
    (q.reshape_to(&[count, parts * rows, n]).narrow(1, 0, m), r)
}

/// How many columns are factored at once, and whether in shared memory.
#[track_caller]
fn panel(gpu: Gpu, a: &Tensor, first: usize) -> (usize, bool) {
    let room = shared_room(gpu) / a.dtype().size() / (a.size(1) - first);
    let fitting = [WIDTH, 16, 8].into_iter().find(|&width| width <= room);
    (fitting.unwrap_or(WIDTH), fitting.is_some())
}

#[track_caller]
fn factor(gpu: Gpu, a: &Tensor, columns: std::ops::Range<usize>, copied: bool) -> Reflections {
    let (count, m, n, first) = (a.size(0), a.size(1) - columns.start, columns.len(), columns.start);
    let new = |rows, columns| Tensor::empty([count, rows, columns], (a.dtype(), a.device()));
    let (turned, factor) = (new(n, m), new(n, n));
    let panel = Matrices::of(&part(a, first..a.size(1), columns));
    let (vectors, factors) = (turned.device_ptr(), factor.device_ptr());
    let threads = if m <= 16 { 64 } else { 256 };
    let shared = if copied { m * n * a.dtype().size() } else { 0 };
    let shape = blocks(count, threads).with_shared(shared);
    let (items, m, n, copied) = (count as i64, m as i64, n as i32, i32::from(copied));
    let args = cuda_args!(panel, vectors, factors, items, m, n, copied);
    // SAFETY: the kernel's parameters, of tensors of this GPU with these sizes.
    unsafe { launch(gpu, (&QR, "qr_panel"), a, shape, args) };
    Reflections { first, turned, factor }
}
