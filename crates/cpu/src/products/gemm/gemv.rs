//! A few rows times a matrix. Reading the matrix is most of the work, so that nothing is packed and it is
//! read in the order in which it lies. What C holds is added to.

use std::slice::{from_raw_parts, from_raw_parts_mut};

use super::operands::Gemm;
use crate::arch::vectorize::{Kernel, vectorize};
use crate::numbers::float::single;
use crate::numbers::vector::{Plain, Vector, with_registers};
use crate::numbers::widen::Real;
use crate::products::tiled::Tiled;

/// Most rows for which this is fastest.
pub const ROWS: usize = 4;
/// Columns of four rows of B that are in the first-level cache together.
const BLOCK: usize = 1024;
/// Columns of C that are, where it has one row: nothing of B is used twice then, and long runs of its rows are
/// what the processor foresees.
pub const LINE: usize = 4096;
/// As often as anything is added to one number, in a row; more often the error would be that of a sum of so many, not
/// of its parts.
pub const LONGEST: usize = 1024;
/// Sums that a dot product is taken in, with 256-bit registers.
pub const LANES: usize = 16;

/// `C += alpha A B`, where the rows of C are dense and those of B too: multiples of B's rows are added up.
///
/// # Safety
/// As [`Gemm::run`].
pub unsafe fn sums<T: Tiled>(product: Gemm<T>) {
    vectorize(Sums(product));
}

struct Sums<T>(Gemm<T>);

impl<T: Tiled> Kernel for Sums<T> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Gemm { size: (m, n, k), alpha, a, b, c, .. } = self.0;
        let mut first = 0;
        while first < n {
            let count = if m == 1 { LINE } else { BLOCK }.min(n - first);
            // SAFETY: part of a row of B, by the *Gemm invariant*.
            let row = |p: usize| unsafe { from_raw_parts(b.at(p, first).ptr, count) };
            // SAFETY: an element of A, by the *Gemm invariant*.
            let factor = |i: usize, p: usize| alpha * unsafe { *a.at(i, p).ptr };
            let mut p = 0;
            while p + 4 <= k {
                let (b0, b1, b2, b3) = (row(p), row(p + 1), row(p + 2), row(p + 3));
                for i in 0..m {
                    // SAFETY: part of a row of C, by the *Gemm invariant*, which nobody else uses.
                    let c = unsafe { from_raw_parts_mut(c.at(i, first).ptr, count) };
                    let (x0, x1) = (factor(i, p), factor(i, p + 1));
                    let (x2, x3) = (factor(i, p + 2), factor(i, p + 3));
                    for j in 0..count {
                        let low = x1.fma::<FMA>(b1[j], x0.fma::<FMA>(b0[j], c[j]));
                        c[j] = x3.fma::<FMA>(b3[j], x2.fma::<FMA>(b2[j], low));
                    }
                }
                p += 4;
            }
            while p < k {
                let b = row(p);
                for i in 0..m {
                    // SAFETY: part of a row of C, by the *Gemm invariant*, which nobody else uses.
                    let c = unsafe { from_raw_parts_mut(c.at(i, first).ptr, count) };
                    let x = factor(i, p);
                    for j in 0..count {
                        c[j] = x.fma::<FMA>(b[j], c[j]);
                    }
                }
                p += 1;
            }
            first += count;
        }
    }
}

/// `C += alpha A B`, where the columns of B are dense: their dot products with A's rows.
///
/// # Safety
/// As [`Gemm::run`].
pub unsafe fn dots<T: Tiled>(product: Gemm<T>) {
    let (m, _, k) = product.size;
    // SAFETY: an element of A, by the *Gemm invariant*.
    let row = |i: usize| (0..k).map(move |p| unsafe { *product.a.at(i, p).ptr });
    let rows: Vec<T> = (0..m).flat_map(row).collect();
    vectorize(Dots { rows: &rows, product });
}

struct Dots<'a, T> {
    /// Those of A, dense.
    rows: &'a [T],
    product: Gemm<T>,
}

impl<T: Tiled> Kernel for Dots<'_, T> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        match single(self.rows) {
            Some(rows) => {
                with_registers!(FMA, V = Plain<f32> => all_dots::<T, V>(rows, self.product))
            }
            None => all_dots::<T, Plain<T>>(self.rows, self.product),
        }
    }
}

/// All dot products, where T is V's number.
#[inline(always)]
fn all_dots<T: Tiled, V: Vector>(rows: &[V::Number], product: Gemm<T>) {
    let Gemm { size: (m, n, k), alpha, b, c, .. } = product;
    let mut j = 0;
    while j < n {
        let count = if j + 4 <= n { 4 } else { 1 };
        for i in 0..m {
            // SAFETY: columns of B, k numbers of a row of A and elements of C, which the caller of `dots`
            // vouches for; registers hold the processor's numbers, the same type under another name.
            unsafe {
                let x = rows[i * k..(i + 1) * k].as_ptr();
                let column = |l: usize| b.at(0, j + l).ptr.cast::<V::Number>();
                let sums = if count == 4 {
                    dot::<V, 4>(k, x, [column(0), column(1), column(2), column(3)])
                } else {
                    let [sum] = dot::<V, 1>(k, x, [column(0)]);
                    [sum; 4]
                };
                for l in 0..count {
                    *c.at(i, j + l).ptr += alpha * T::of(sums[l].as_f64());
                }
            }
        }
        j += count;
    }
}

/// The dot products of x and N other vectors of k numbers.
///
/// # Safety
/// They have k numbers, and the processor has the instruction set.
#[inline(always)]
unsafe fn dot<V: Vector, const N: usize>(
    k: usize,
    x: *const V::Number,
    b: [*const V::Number; N],
) -> [V::Number; N] {
    // SAFETY: this function's contract: all vectors have `k` numbers. `Vector`'s *Instructions*.
    unsafe {
        let mut sums = [[V::splat(V::Number::ZERO); 2]; N];
        let mut p = 0;
        while p + 2 * V::LANES <= k {
            for h in 0..2 {
                let at = p + h * V::LANES;
                let x = V::load(x.add(at));
                for c in 0..N {
                    sums[c][h] = x.fma(V::load(b[c].add(at)), sums[c][h]);
                }
            }
            p += 2 * V::LANES;
        }
        let mut out = [V::Number::ZERO; N];
        for c in 0..N {
            let mut lanes = [V::Number::ZERO; 8];
            sums[c][0].add(sums[c][1]).store(lanes.as_mut_ptr());
            let pairs = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
            out[c] = pairs + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
            for l in p..k {
                out[c] += *x.add(l) * *b[c].add(l);
            }
        }
        out
    }
}
