//! Running sums and products along a dimension.
//!
//! cumsum: `y_k = sum_{i <= k} x_i`; `dx` is the running sum of `g` from the other end.
//! cumprod: `y_k = prod_{i <= k} x_i`; with `s_k = g_k + x_{k+1} s_{k+1}`, `dx_k = y_{k-1} s_k`: no
//! division, so zeros need no care.

pub(in crate::ops) mod cuda;

use std::ops::{Add, Mul};

use smallvec::smallvec;

use crate::amp::cast_op;
use crate::autograd::record;
use crate::cpu::{folds::fold::SharedMut, threads::GRAIN, threads::parallel_for};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::{gpu, pointwise::complex::by_pairs, shape::around::around};
use crate::tensor::{Dtype, Element, Tensor, dtype::assert_real, dtype::widest};

/// Columns that run side by side when the dimension is not the innermost.
const COLUMNS: usize = 256;
/// Rows that do when it is.
const ROWS: usize = 4;

/// Scans the dense `[outer, n, inner]` array `x` along its middle dimension into `out`. The running
/// value is an f64, or an i64 for integers.
fn scan<T: Element, A: Copy + Send + Sync>(
    x: &[T],
    out: &mut [T],
    [outer, n, inner]: [usize; 3],
    first: A,
    step: impl Fn(A, T) -> A + Sync,
    narrow: impl Fn(A) -> T + Sync,
) {
    let to = SharedMut(out.as_mut_ptr());
    if inner == 1 {
        return parallel_for(outer.div_ceil(ROWS), GRAIN / (n * ROWS).max(1), |range| {
            let (start, end) = (range.start * ROWS, outer.min(range.end * ROWS));
            let mut row = start;
            while row < end {
                // SAFETY: rows up to `end` are inside of both, and this thread's.
                unsafe {
                    if row + ROWS <= end {
                        scan_rows::<ROWS, _, _>(x, to, row, n, first, &step, &narrow);
                        row += ROWS;
                    } else {
                        scan_rows::<1, _, _>(x, to, row, n, first, &step, &narrow);
                        row += 1;
                    }
                }
            }
        });
    }
    let blocks = inner.div_ceil(COLUMNS);
    parallel_for(outer * blocks, GRAIN / (n * COLUMNS.min(inner)).max(1), |range| {
        for block in range {
            let start = (block % blocks) * COLUMNS;
            let width = COLUMNS.min(inner - start);
            let mut running = [first; COLUMNS];
            for k in 0..n {
                let at = (block / blocks * n + k) * inner + start;
                for (j, r) in running[..width].iter_mut().enumerate() {
                    *r = step(*r, x[at + j]);
                    // SAFETY: `at + j` is below outer * n * inner; blocks are disjoint.
                    unsafe { to.at(at + j).write(narrow(*r)) };
                }
            }
        }
    });
}

/// Scans `R` rows of `n`, from row `row` on, side by side: each step waits for the one before it in its row.
///
/// # Safety
/// The rows are inside both arrays, and nobody else uses those of `to`.
#[inline(always)]
unsafe fn scan_rows<const R: usize, T: Element, A: Copy>(
    x: &[T],
    to: SharedMut<T>,
    row: usize,
    n: usize,
    first: A,
    step: &impl Fn(A, T) -> A,
    narrow: &impl Fn(A) -> T,
) {
    let mut running = [first; R];
    for k in 0..n {
        for (r, running) in running.iter_mut().enumerate() {
            let at = (row + r) * n + k;
            // SAFETY: this function's contract: the rows are inside both arrays, and nobody else
            // uses those of `to`.
            unsafe {
                *running = step(*running, *x.get_unchecked(at));
                to.at(at).write(narrow(*running));
            }
        }
    }
}

/// A scan of any dtype, not recorded: floats in f64, integers and bools to i64. On a GPU by the kernel's
/// operation of that name.
#[track_caller]
fn scan_of(
    kernel: &'static str,
    x: &Tensor,
    d: usize,
    first: f64,
    float: impl Fn(f64, f64) -> f64 + Sync,
    integer: impl Fn(i64, i64) -> i64 + Sync,
) -> Tensor {
    if let Some(gpu) = gpu::of("scan", &[x]) {
        return cuda::scan(gpu, kernel, x, d, false);
    }
    let dtype = if x.dtype().is_floating_point() { x.dtype() } else { Dtype::I64 };
    let x = x.detach().to_dtype(dtype.compute()).contiguous();
    let (out, sizes) = (x.empty_like(), around(x.shape(), d));
    // SAFETY: contiguous and of the type matched on; `out` is fresh.
    unsafe {
        match x.dtype() {
            Dtype::F64 => scan(x.as_slice(), out.as_mut_slice(), sizes, first, float, |v| v),
            Dtype::F32 => {
                let step = |a, x: f32| float(a, x as f64);
                scan(x.as_slice(), out.as_mut_slice(), sizes, first, step, |v| v as f32)
            }
            _ => scan(x.as_slice(), out.as_mut_slice(), sizes, first as i64, integer, |v| v),
        }
    }
    out.to_dtype(dtype)
}

impl Tensor {
    /// Running sums along `dim` (`torch.cumsum`); i64 for integers and bools.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([[1i64, 2], [3, 4]]).cumsum(1).to_vec::<i64>(), [1, 3, 3, 7]);
    /// ```
    ///
    /// # Panics
    /// Throws when the dimension is out of range.
    #[track_caller]
    pub fn cumsum(&self, dim: i64) -> Tensor {
        cast_op!("cumsum", [x = self] => x.cumsum(dim));
        let d = self.normalize_dim("cumsum", dim);
        if self.is_complex() {
            return match self.dim() {
                0 => self.clone_contiguous(),
                _ => by_pairs(self, |pairs| pairs.cumsum(d as i64)),
            };
        }
        let out = scan_of("Add", self, d, 0.0, f64::add, i64::wrapping_add);
        record("cumsum", &[self], out, |_| {
            move |ctx| smallvec![Some(sum_from_end(&ctx.grad(0), d))]
        })
    }

    /// Running products along `dim` (`torch.cumprod`); i64 for integers and bools.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([2i64, 3, 4]).cumprod(0).to_vec::<i64>(), [2, 6, 24]);
    /// ```
    ///
    /// # Panics
    /// Throws when the dimension is out of range.
    #[track_caller]
    pub fn cumprod(&self, dim: i64) -> Tensor {
        cast_op!("cumprod", [x = self] => x.cumprod(dim));
        let d = self.normalize_dim("cumprod", dim);
        assert_real("cumprod", self.dtype());
        let out = scan_of("Mul", self, d, 1.0, f64::mul, i64::wrapping_mul);
        record("cumprod", &[self], out, |saver| {
            let x = saver.save(self);
            move |ctx| {
                let (x, g) = (ctx.get(&x), ctx.grad(0));
                smallvec![Some(match gpu::of("cumprod", &[&x]) {
                    Some(gpu) if !ctx.create_graph() => cuda::products_backward(gpu, &x, &g, d),
                    _ => cumprod_backward(&x, &g, d as i64),
                })]
            }
        })
    }
}

/// Running sums along `d` from its end.
fn sum_from_end(g: &Tensor, d: usize) -> Tensor {
    if let Some(gpu) = gpu::of("cumsum", &[g]) {
        let out = cuda::scan(gpu, "Add", g, d, true);
        return record("cumsum", &[g], out, |_| {
            move |ctx| smallvec![Some(ctx.grad(0).cumsum(d as i64))]
        });
    }
    let flipped: &[i64] = if g.dim() == 0 { &[] } else { &[d as i64] };
    g.flip(flipped).cumsum(d as i64).flip(flipped)
}

/// log(e^a + e^b) without overflow.
fn log_add_exp(a: f64, b: f64) -> f64 {
    let (low, high) = if a > b { (b, a) } else { (a, b) };
    if low == f64::NEG_INFINITY || high == f64::INFINITY {
        return if a.is_nan() || b.is_nan() { f64::NAN } else { high };
    }
    high + (low - high).exp().ln_1p()
}

impl Tensor {
    /// Logarithms of running sums of exponentials along `dim` (`torch.logcumsumexp`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f64.ln(), 2f64.ln(), 3f64.ln()]);
    /// let expected = Tensor::from([0.0, 3f64.ln(), 6f64.ln()]);
    /// assert!(x.logcumsumexp(0).allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and when the dimension is out of range.
    #[track_caller]
    pub fn logcumsumexp(&self, dim: i64) -> Tensor {
        let d = self.normalize_dim("logcumsumexp", dim);
        if !self.dtype().is_floating_point() {
            crate::tensor::dtype::not_floating("logcumsumexp", self.dtype());
        }
        let out = scan_of("LogAddExp", self, d, f64::NEG_INFINITY, log_add_exp, i64::wrapping_add);
        record("logcumsumexp", &[self], out, |saver| {
            let (x, y) = (saver.save(self), saver.save_output(0));
            move |ctx| {
                let (x, y, g) = (ctx.get(&x), ctx.get(&y), ctx.grad(0));
                smallvec![Some(logcumsumexp_backward(&x, &y, &g, d, ctx.create_graph()))]
            }
        })
    }
}

/// Shares of sums that second derivatives keep at once: 256 MiB of f32. Beyond, the sums are taken without them, which
/// overflows where elements of a line differ by more than 88.
const MOST_SHARES: usize = 1 << 26;

/// `dx_i = sum_{k >= i} g_k e^{x_i - y_k}`.
fn logcumsumexp_backward(x: &Tensor, y: &Tensor, g: &Tensor, d: usize, graph: bool) -> Tensor {
    if x.dim() == 0 || x.numel() == 0 {
        return g.clone();
    }
    let dim = d as i64;
    let from_end =
        |t: &Tensor, scan: fn(&Tensor, i64) -> Tensor| scan(&t.flip(&[dim]), dim).flip(&[dim]);
    if graph {
        // Made of ops that can be differentiated further.
        let n = x.shape()[d];
        if n.saturating_mul(x.numel()) > MOST_SHARES {
            let shift = x.detach().amax(&[dim], true);
            return (x - &shift).exp() * from_end(&(g * (&shift - y).exp()), Tensor::cumsum);
        }
        // The matrix of `exp(x_i - y_j)` for i <= j: shares of sums, none above 1.
        let (x, y, g) = (x.movedim(dim, -1), y.movedim(dim, -1), g.movedim(dim, -1));
        let earlier = x.unsqueeze(-1) - y.unsqueeze(-2);
        let places = Tensor::arange(0, n as i64, 1, (Dtype::I64, x.device()));
        let later = places.unsqueeze(1).le(&places);
        let shares = later.where_(&earlier, f64::NEG_INFINITY).exp();
        return (shares * g.unsqueeze(-2)).sum_dim(&[-1], false).movedim(-1, dim);
    }
    // In logarithms nothing overflows; positive and negative gradients apart.
    let part = |g: Tensor| {
        let logs = g.clamp_min(0.0).log() - y;
        (from_end(&logs, Tensor::logcumsumexp) + x).exp()
    };
    part(g.clone()) - part(-g)
}

/// Running extremes and the last places where they were reached; dense, of type T.
fn running_extremes<T: Element + PartialOrd>(
    x: &Tensor,
    d: usize,
    replaces: fn(&T, &T) -> bool,
) -> (Tensor, Tensor) {
    let (values, places) = (x.empty_like(), Tensor::empty(x.shape(), Dtype::I64.on_host()));
    let [outer, n, inner] = around(x.shape(), d);
    // SAFETY: `x` is dense and of type T; the results are fresh.
    let (x, values_of, places_of) =
        unsafe { (x.as_slice::<T>(), values.as_mut_slice::<T>(), places.as_mut_slice::<i64>()) };
    for line in 0..outer * inner {
        let start = line / inner * n * inner + line % inner;
        let mut best = 0;
        for k in 0..n {
            let (old, new) = (&x[start + best * inner], &x[start + k * inner]);
            // NaN replaces all, and only NaN replaces it.
            let is_nan = |v: &T| v.partial_cmp(v).is_none();
            if is_nan(new) || !is_nan(old) && replaces(new, old) {
                best = k;
            }
            values_of[start + k * inner] = x[start + best * inner];
            places_of[start + k * inner] = best as i64;
        }
    }
    (values, places)
}

macro_rules! running {
    ($($name:ident $compare:ident $largest:literal $word:literal $x:literal $values:literal;)*) => {
        impl Tensor {$(
            #[doc = concat!("The ", $word, " elements so far along `dim`, and where they were last reached (`torch.", stringify!($name), "`).")]
            ///
            /// ```
            /// use torchrs::Tensor;
            #[doc = concat!("let (values, places) = Tensor::from(", $x, ").", stringify!($name), "(0);")]
            #[doc = concat!("assert_eq!(values.to_vec::<i64>(), ", $values, ");")]
            /// assert_eq!(places.to_vec::<i64>(), [0, 1, 1]);
            /// ```
            ///
            /// # Panics
            /// Throws when the dimension is out of range; as in PyTorch, not for a tensor without dimensions or
            /// elements.
            #[track_caller]
            pub fn $name(&self, dim: i64) -> (Tensor, Tensor) {
                let dim = if self.dim() == 0 || self.numel() == 0 { 0 } else { dim };
                let d = self.normalize_dim(stringify!($name), dim);
                let wide = widest(stringify!($name), self.dtype());
                let device = gpu::of(stringify!($name), &[self]);
                let (values, places) = match device {
                    Some(gpu) => cuda::extremes(gpu, $largest, self, d),
                    None => {
                        let x = self.detach().to_dtype(wide).contiguous();
                        let (values, places) = match wide {
                            Dtype::F64 => running_extremes::<f64>(&x, d, f64::$compare),
                            Dtype::F32 => running_extremes::<f32>(&x, d, f32::$compare),
                            _ => running_extremes::<i64>(&x, d, i64::$compare),
                        };
                        (values.to_dtype(self.dtype()), places)
                    }
                };
                let shape = self.layout().shape.clone();
                let values = record(stringify!($name), &[self], values, |saver| {
                    let places = saver.save(&places);
                    move |ctx| {
                        let g = ctx.grad(0);
                        let zeros = Tensor::zeros(&shape, (g.dtype(), g.device()));
                        smallvec![Some(zeros.scatter_add(d as i64, &ctx.get(&places), &g))]
                    }
                });
                (values, places)
            }
        )*}
    };
}
running! {
    cummax ge true "largest" "[1i64, 3, 2]" "[1, 3, 3]";
    cummin le false "smallest" "[3i64, 1, 2]" "[3, 1, 1]";
}

impl Tensor {
    /// In-place form of [`cumsum`](Self::cumsum) (`torch.Tensor.cumsum_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2., 3.]);
    /// assert_eq!(x.cumsum_(0).to_vec::<f32>(), [1.0, 3.0, 6.0]);
    /// ```
    #[track_caller]
    pub fn cumsum_(&self, dim: i64) -> &Tensor {
        self.copy_(&self.cumsum(dim))
    }

    /// In-place form of [`cumprod`](Self::cumprod) (`torch.Tensor.cumprod_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([2f32, 3., 4.]);
    /// assert_eq!(x.cumprod_(0).to_vec::<f32>(), [2.0, 6.0, 24.0]);
    /// ```
    #[track_caller]
    pub fn cumprod_(&self, dim: i64) -> &Tensor {
        self.copy_(&self.clone_contiguous().cumprod(dim))
    }
}

/// The gradient by the recurrence in the head comment, one slice at a time.
fn cumprod_backward(x: &Tensor, g: &Tensor, dim: i64) -> Tensor {
    if x.dim() == 0 || x.numel() == 0 {
        return g.clone();
    }
    let (xs, gs) = (x.unbind(dim), g.unbind(dim));
    let mut sums = vec![gs[gs.len() - 1].clone()];
    for k in (0..gs.len() - 1).rev() {
        let s = &gs[k] + &xs[k + 1] * &sums[sums.len() - 1];
        sums.push(s);
    }
    sums.reverse();
    let one = x.narrow(dim, 0, 1).ones_like();
    let n = xs.len();
    let before = Tensor::cat(&[one, x.cumprod(dim).narrow(dim, 0, n - 1)], dim);
    let sums = Tensor::stack(&sums, dim);
    // A zero among what follows wins over what overflowed before it.
    let beside = before.detach().isinf().logical_and(&sums.detach().eq(0.0));
    (before * sums).masked_fill(&beside, 0.0)
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let x = || vec![values([3, 4, 2], 5)];
    let zeros = || vec![Tensor::from([[1.5f64, 0., -2., 0.], [0.5, 3., 0., 1.]])];
    vec![
        OpSample::new("cumsum(0)", x(), |x| x[0].cumsum(0)),
        OpSample::new("cumsum(-1)", x(), |x| x[0].cumsum(-1)),
        OpSample::new("cumsum, bool", [Tensor::from([true, false, true])], |x| x[0].cumsum(0)),
        OpSample::new("cumsum, 0-dim", [values([], 1)], |x| x[0].cumsum(0)),
        OpSample::new("cumprod(1)", x(), |x| x[0].cumprod(1)).slack(4.0),
        OpSample::new("cumprod(1), zeros", zeros(), |x| x[0].cumprod(1)).slack(4.0),
        OpSample::new("cummax(1)", x(), |x| x[0].cummax(1).0),
        OpSample::new("cummin(0)", x(), |x| x[0].cummin(0).0),
        OpSample::new("logcumsumexp(1)", x(), |x| x[0].logcumsumexp(1)),
        OpSample::new("cumprod, empty", [values([0, 2], 1)], |x| x[0].cumprod(0)),
    ]
}
