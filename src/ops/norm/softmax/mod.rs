//! Softmax `y_i = e^{x_i - m} / s` with `m = max x`, `s = sum_j e^{x_j - m}`, and its logarithm
//! `y_i = x_i - m - log s`.
//!
//! Gradients: softmax `dx = y (g - sum g y)`, log-softmax `dx = g - e^y sum g`; one fused loop each.
//!
//! A dense `[outer, n, inner]` array is worked on row by row where the dimension is innermost, a tile
//! of columns at a time elsewhere. Half types compute in f32. An exponential below the least normal number
//! (1.2e-38 in f32) counts as 0.

mod columns;
pub(in crate::ops) mod cuda;
mod short_rows;

use smallvec::smallvec;

use crate::amp::cast_op;
use crate::autograd::record;
use crate::cpu::{
    arch::vectorize::Kernel, arch::vectorize::vectorize, folds::fold::SharedMut, folds::row,
    folds::row::Float, numbers::widen::Real, threads::GRAIN, threads::parallel_for,
};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::{gpu, shape::around::around};
use crate::tensor::{Dtype, Tensor, dispatch};

/// Elements of cheap work that an exponential is worth, for the size of parallel parts.
const EXP_COST: usize = 4;

/// Part of a forward or backward pass over dense rows. In forward `a` is `x`; in backward `a` is `y` and `b` is `g`.
struct Rows<'a, T, const LOG: bool, const BACKWARD: bool> {
    a: &'a [T],
    b: &'a [T],
    out: SharedMut<T>,
    n: usize,
    rows: std::ops::Range<usize>,
}

impl<T: Float, const LOG: bool, const BACKWARD: bool> Kernel for Rows<'_, T, LOG, BACKWARD> {
    type Output = ();
    const WIDE: bool = size_of::<T>() == 4;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Rows { a, b, out, n, rows } = self;
        if n <= short_rows::LONGEST && rows.len() >= short_rows::ROWS / 4 {
            let mut tiles = [[[T::Wide::ZERO; short_rows::ROWS]; short_rows::LONGEST]; 2];
            let mut first = rows.start;
            while first < rows.end {
                let next = rows.end.min(first + short_rows::ROWS);
                let some = first * n..next * n;
                // SAFETY: rows are disjoint, and `out` is as long as `a`.
                let out = unsafe { out.slice(some.clone()) };
                if BACKWARD {
                    let (y, g) = (&a[some.clone()], &b[some]);
                    short_rows::backward::<T, LOG, FMA>(y, g, n, out, &mut tiles);
                } else {
                    short_rows::forward::<T, LOG, FMA>(&a[some], n, out, &mut tiles[0]);
                }
                first = next;
            }
            return;
        }
        let narrow = size_of::<T>() < size_of::<T::Wide>();
        let mut scratch = vec![T::Wide::ZERO; if LOG || BACKWARD || !narrow { 0 } else { n }];
        for i in rows {
            let row = i * n..(i + 1) * n;
            // SAFETY: each row is one thread's.
            let out = unsafe { out.slice(row.clone()) };
            if BACKWARD {
                row_backward::<T, LOG, FMA>(&a[row.clone()], &b[row], out);
            } else {
                row_forward::<T, LOG, FMA>(&a[row.start..], out, &mut scratch);
            }
        }
    }
}

#[inline(always)]
fn row_forward<T: Float, const LOG: bool, const FMA: bool>(
    x: &[T],
    out: &mut [T],
    scratch: &mut [T::Wide],
) {
    let n = out.len();
    let m = row::max(x, n);
    if LOG {
        let s = row::sum!(T, x, n, T::Wide::NEG_INFINITY, |x| (x - m).exp_flushed::<FMA>());
        let shift = s.log::<FMA>();
        row::map!(T, x, out, |x| x - m - shift);
    } else if let Some(out) = row::as_wide(out) {
        // Written while the exponentials are computed, which hides that lines must come from memory first.
        let scale = T::Wide::ONE / row::exp_sum::<T, FMA>(x, m, out);
        for i in 0..out.len() {
            out[i] = out[i] * scale;
        }
    } else {
        let scale = T::Wide::ONE / row::exp_sum::<T, FMA>(x, m, scratch);
        let powers = &scratch[..n];
        for i in 0..out.len() {
            out[i] = T::narrow(powers[i] * scale);
        }
    }
}

#[inline(always)]
fn row_backward<T: Float, const LOG: bool, const FMA: bool>(y: &[T], g: &[T], out: &mut [T]) {
    let (y, g) = (&y[..out.len()], &g[..out.len()]);
    if LOG {
        let s = row::sum!(T, g, g.len(), T::Wide::ZERO, |g| g);
        for i in 0..out.len() {
            out[i] = T::narrow(g[i].widen() - y[i].widen().exp_flushed::<FMA>() * s);
        }
    } else {
        let s = row::sum2!(T, y, g, |y, g| y * g);
        for i in 0..out.len() {
            out[i] = T::narrow(y[i].widen() * (g[i].widen() - s));
        }
    }
}

/// Runs a pass over all of `a` (and `b`, in backward), dense and of the same shape.
#[track_caller]
fn run<const LOG: bool, const BACKWARD: bool>(a: &Tensor, b: Option<&Tensor>, d: usize) -> Tensor {
    if let Some(gpu) = gpu::of("softmax", &[a]) {
        return cuda::run(gpu, LOG, a, b, d);
    }
    let out = a.empty_like();
    let [outer, n, inner] = around(a.shape(), d);
    if a.numel() == 0 {
        return out;
    }
    dispatch!(float a.dtype(), "softmax", T => {
        // SAFETY: contiguous (the callers see to it), of type T, and nobody writes to them.
        let (a, b) = unsafe { (a.as_slice::<T>(), b.map_or(&[][..], |b| b.as_slice::<T>())) };
        let to = SharedMut(out.data_ptr().cast::<T>());
        if inner > 1 {
            columns::run::<T, LOG, BACKWARD>(a, b, to, [outer, n, inner], EXP_COST);
        } else {
            parallel_for(outer, GRAIN / (n * EXP_COST), |rows| {
                vectorize(Rows::<T, LOG, BACKWARD> { a, b, out: to, n, rows });
            });
        }
    });
    out
}

impl Tensor {
    /// `exp(x) / sum(exp(x))` along `dim` (`torch.softmax`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([0f32, 0.]).softmax(-1).to_vec::<f32>(), [0.5, 0.5]);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and when the dimension is out of range.
    #[track_caller]
    pub fn softmax(&self, dim: i64) -> Tensor {
        cast_op!("softmax", [x = self] => x.softmax(dim));
        let d = self.normalize_dim("softmax", dim);
        assert_float("softmax", self.dtype());
        let out = run::<false, false>(&self.detach().contiguous(), None, d);
        record("softmax", &[self], out, |saver| {
            let y = saver.save_output(0);
            move |ctx| {
                let (y, g) = (ctx.get(&y), ctx.grad(0));
                smallvec![Some(if ctx.create_graph() {
                    &y * (&g - (&g * &y).sum_dim(&[d as i64], true))
                } else {
                    run::<false, true>(&y, Some(&g.contiguous()), d)
                })]
            }
        })
    }

    /// The logarithm of [`softmax`](Self::softmax), without its loss of precision
    /// (`torch.log_softmax`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([[0f64, 3f64.ln()], [0., 1000.]]).log_softmax(1);
    /// let expected = Tensor::from([[0.25f64.ln(), 0.75f64.ln()], [-1000.0, 0.0]]);
    /// assert!(y.allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and when the dimension is out of range.
    #[track_caller]
    pub fn log_softmax(&self, dim: i64) -> Tensor {
        cast_op!("log_softmax", [x = self] => x.log_softmax(dim));
        let d = self.normalize_dim("log_softmax", dim);
        assert_float("log_softmax", self.dtype());
        let out = run::<true, false>(&self.detach().contiguous(), None, d);
        record("log_softmax", &[self], out, |saver| {
            let y = saver.save_output(0);
            move |ctx| {
                let (y, g) = (ctx.get(&y), ctx.grad(0));
                smallvec![Some(if ctx.create_graph() {
                    &g - y.exp() * g.sum_dim(&[d as i64], true)
                } else {
                    run::<true, true>(&y, Some(&g.contiguous()), d)
                })]
            }
        })
    }
}

/// Throws for types that have no softmax.
#[track_caller]
fn assert_float(op: &str, dtype: Dtype) {
    if !dtype.is_floating_point() {
        crate::tensor::dtype::not_floating(op, dtype);
    }
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let x = || vec![values([3, 4, 5], 3)];
    let long = || vec![values([2, 300], 3)];
    // Columns in more than one tile.
    let wide = || vec![values([2, 3, 70], 4)];
    // Lines in more than one block, rows in more than one tile.
    let deep = || vec![values([530, 3], 5)];
    vec![
        OpSample::new("softmax(-1)", x(), |x| x[0].softmax(-1)),
        OpSample::new("softmax(1)", x(), |x| x[0].softmax(1)),
        OpSample::new("softmax(1), wide", wide(), |x| x[0].softmax(1)),
        OpSample::new("softmax(0), deep", deep(), |x| x[0].softmax(0)),
        OpSample::new("softmax(-1), many short", deep(), |x| x[0].softmax(-1)),
        OpSample::new("log_softmax(0), deep", deep(), |x| x[0].log_softmax(0)),
        OpSample::new("log_softmax(-1), many short", deep(), |x| x[0].log_softmax(-1)),
        OpSample::new("softmax(-1), long", long(), |x| x[0].softmax(-1)),
        OpSample::new("softmax, 0-dim", [values([], 1)], |x| x[0].softmax(0)),
        OpSample::new("softmax, empty", [values([0, 3], 1)], |x| x[0].softmax(1)),
        OpSample::new("log_softmax(-1)", x(), |x| x[0].log_softmax(-1)),
        OpSample::new("log_softmax(0)", x(), |x| x[0].log_softmax(0)),
        OpSample::new("log_softmax(1), wide", wide(), |x| x[0].log_softmax(1)),
        OpSample::new("log_softmax(-1), long", long(), |x| x[0].log_softmax(-1)),
    ]
}
