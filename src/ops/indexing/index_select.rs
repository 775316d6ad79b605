//! Whole slices by index: `index_select` takes slices `i_0, i_1, ...` of a dimension, `index_add_`
//! adds slices at those places. Each is the other's gradient.
//!
//! Both work on a dense `[outer, n, inner]` array; the reference is the loop
//! `for o, k, j { y[o][k][j] = x[o][index[k]][j] }`.

use std::ops::Range;

use half::{bf16, f16};
use smallvec::smallvec;

use super::cuda;
use crate::autograd::{no_grad, record, record_inplace};
use crate::cpu::{
    arch::cache::LINE, arch::cache::are_far, arch::prefetch::prefetch, arch::vectorize::Kernel,
    arch::vectorize::vectorize, elementwise::streaming::copy_line_streaming,
    elementwise::streaming::finish, elementwise::streaming::is_for_copies, folds::fold::Shared,
    folds::fold::SharedMut, numbers::widen::Widen, threads::GRAIN, threads::parallel_for,
};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::{gpu, shape::around::around};
use crate::profiler;
use crate::storage::race::Scope;
use crate::tensor::{Dtype, Scalar, Tensor, dispatch};

/// `index` as dense i64, after checking that all its values are below `n`; on a GPU the kernels check.
#[track_caller]
pub(in crate::ops) fn checked_index(op: &str, index: &Tensor, n: usize) -> Tensor {
    let index = dense_index(op, index);
    if index.device().is_apart() {
        return index;
    }
    // SAFETY: contiguous i64; nobody writes to it.
    let all = unsafe { index.as_slice::<i64>() };
    if let Some(position) = all.iter().position(|&i| !(0..n as i64).contains(&i)) {
        throw(Error::argument(
            op,
            "index",
            format!("{} at position {position} is out of range for a size of {n}", all[position]),
        ));
    }
    index
}

/// `index` as dense i64, whatever its values.
#[track_caller]
pub(in crate::ops) fn dense_index(op: &str, index: &Tensor) -> Tensor {
    if !index.dtype().is_integral() {
        throw(Error::dtype(op, format!("`index` holds {}; integers are needed", index.dtype())));
    }
    index.detach().to_dtype(Dtype::I64).contiguous()
}

/// Addition as tensors do it: integers wrap, bool is "or", half types round each sum.
pub(in crate::ops) trait Accumulate: Copy + Send + Sync {
    fn plus(self, other: Self) -> Self;
}

macro_rules! accumulate {
    ($($t:ty: |$a:ident, $b:ident| $sum:expr;)*) => {$(
        impl Accumulate for $t {
            #[inline(always)]
            fn plus(self, $b: Self) -> Self { let $a = self; $sum }
        }
    )*};
}
accumulate! {
    f64: |a, b| a + b;
    f32: |a, b| a + b;
    f16: |a, b| f16::narrow(a.widen() + b.widen());
    bf16: |a, b| bf16::narrow(a.widen() + b.widen());
    i64: |a, b| a.wrapping_add(b);
    i32: |a, b| a.wrapping_add(b);
    i16: |a, b| a.wrapping_add(b);
    i8: |a, b| a.wrapping_add(b);
    u8: |a, b| a.wrapping_add(b);
    bool: |a, b| a | b;
}

/// Copies `row_bytes` bytes; common sizes without a call.
///
/// # Safety
/// Both have so many bytes and do not overlap.
#[inline(always)]
unsafe fn copy_row(from: *const u8, to: *mut u8, row_bytes: usize) {
    // SAFETY: this function's contract: `row_bytes` bytes on both sides, apart; no alignment is assumed.
    unsafe {
        match row_bytes {
            1 => *to = *from,
            2 => to.cast::<u16>().write_unaligned(from.cast::<u16>().read_unaligned()),
            4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
            8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            _ => to.copy_from_nonoverlapping(from, row_bytes),
        }
    }
}

/// Bytes of a row from which [`TakeRows`] copies it line by line.
const LONG: usize = 512;
/// Bytes of a later row's start that are asked for: the processor sees by itself how a row goes on, but not
/// where the next one starts.
const START: usize = 4096;

/// Copies rows of `row` bytes, at least [`LONG`], by an index: row i of the result is row `index[i % m]` of
/// the `n` of its part, where an index has m places.
struct TakeRows<'a> {
    from: Shared<u8>,
    to: SharedMut<u8>,
    index: &'a [i64],
    n: usize,
    row: usize,
    rows: Range<usize>,
    /// Whether the result leaves the cache before it is read; its rows are whole lines then.
    far: bool,
}

/// Rows that are copied in turns, line by line, past the cache.
const TURNS: usize = 4;

impl Kernel for TakeRows<'_> {
    type Output = ();
    const WIDE: bool = true;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let TakeRows { from, to, index, n, row, rows, far } = self;
        let m = index.len();
        let source = |i: usize| (i / m * n + index[i % m] as usize) * row;
        let (mut first, last) = (rows.start, rows.end - 1);
        while far && first + TURNS <= rows.end {
            let (mut at, mut later) = ([from.0; TURNS], [from.0; TURNS]);
            for turn in 0..TURNS {
                // SAFETY: checked indices.
                unsafe {
                    at[turn] = from.at(source(first + turn));
                    later[turn] = from.at(source((first + turn + TURNS).min(last)));
                }
            }
            // SAFETY: a row of the result is written once; both have `row` bytes, a whole number of lines.
            unsafe {
                let out = to.at(first * row);
                for byte in (0..row).step_by(LINE) {
                    for turn in 0..TURNS {
                        prefetch(later[turn].add(byte));
                        copy_line_streaming::<FMA>(out.add(turn * row + byte), at[turn].add(byte));
                    }
                }
            }
            first += TURNS;
        }
        if far {
            finish();
        }
        for i in first..rows.end {
            // SAFETY: checked indices; a row of the result is written once.
            let (mut at, mut out) = unsafe { (from.at(source(i)), to.at(i * row)) };
            // SAFETY: a row of this call's.
            let later = unsafe { from.at(source((i + 2).min(last))) };
            for line in 0..row / 64 {
                prefetch(later.wrapping_add((64 * line).min(START)));
                // SAFETY: `row` bytes are left at the beginning, one line less each time.
                unsafe {
                    out.cast::<[u64; 8]>().write_unaligned(at.cast::<[u64; 8]>().read_unaligned());
                    (at, out) = (at.add(64), out.add(64));
                }
            }
            // SAFETY: what is left of the row.
            unsafe { out.copy_from_nonoverlapping(at, row % 64) };
        }
    }
}

/// The slices `index` (checked) of dimension `d` of the contiguous `x`, not recorded.
#[track_caller]
pub(in crate::ops) fn take_slices(x: &Tensor, d: usize, index: &Tensor) -> Tensor {
    if let Some(gpu) = gpu::of("index_select", &[x, index]) {
        return cuda::take_slices(gpu, x, d, index);
    }
    let [outer, n, inner] = around(x.shape(), d);
    // SAFETY: dense i64 by `checked_index`.
    let index = unsafe { index.as_slice::<i64>() };
    let mut shape = x.layout().shape.clone();
    if let Some(size) = shape.get_mut(d) {
        *size = index.len();
    }
    assert!(x.is_contiguous());
    let out = Tensor::empty(&shape, x.dtype().on_host());
    let (row, m) = (inner * x.dtype().size(), index.len());
    let (from, to) = (Shared(x.data_ptr()), SharedMut(out.data_ptr()));
    let far = row.is_multiple_of(LINE)
        && out.data_ptr().addr().is_multiple_of(LINE)
        && are_far(outer * m * row)
        && is_for_copies(outer * m * row);
    parallel_for(outer * m, 4 * GRAIN / row.max(1), |rows| {
        if row >= LONG {
            return vectorize(TakeRows { from, to, index, n, row, rows, far });
        }
        let (mut o, mut k) = (rows.start / m, rows.start % m);
        for i in rows {
            let source = (o * n + index[k] as usize) * row;
            // SAFETY: `index[k]` is below n, `i` below outer * m.
            unsafe { copy_row(from.at(source), to.at(i * row), row) };
            k += 1;
            if k == m {
                (o, k) = (o + 1, 0);
            }
        }
    });
    out
}

/// Columns that one thread takes at least.
const COLUMNS: usize = 128;

/// Adds the slices of `src` to the slices `index` (checked) of `x`; all dense, `x` fresh or the
/// caller's. A column belongs to one thread and rows are added in order, so the result does not
/// depend on the number of threads.
#[track_caller]
pub(in crate::ops) fn add_slices(x: &Tensor, d: usize, index: &Tensor, src: &Tensor) {
    if x.dtype().is_complex() {
        let (x, src) = (x.detach().view_as_real(), src.detach().view_as_real());
        return add_slices(&x, d, index, &src);
    }
    if let Some(gpu) = gpu::of("index_add_", &[x, index, src]) {
        return cuda::add_slices(gpu, x, d, index, src, None);
    }
    let [outer, n, inner] = around(x.shape(), d);
    assert!(x.is_contiguous() && src.is_contiguous() && x.dtype() == src.dtype());
    assert_eq!(src.numel(), outer * index.numel() * inner);
    let blocks = inner.div_ceil(COLUMNS);
    dispatch!(x.dtype(), T => {
        // SAFETY: dense, of these types; `x` is only written below.
        let (index, src) = unsafe { (index.as_slice::<i64>(), src.as_slice::<T>()) };
        let to = SharedMut(x.data_ptr().cast::<T>());
        let cost = index.len() * COLUMNS.min(inner);
        parallel_for(outer * blocks, GRAIN / cost.max(1), |part| {
            vectorize(AddSlices { to, src, index, n, inner, blocks, part });
        });
    });
}

struct AddSlices<'a, T> {
    to: SharedMut<T>,
    src: &'a [T],
    index: &'a [i64],
    n: usize,
    inner: usize,
    blocks: usize,
    part: Range<usize>,
}

impl<T: Accumulate> Kernel for AddSlices<'_, T> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let AddSlices { to, src, index, n, inner, blocks, part } = self;
        let mut block = part.start;
        while block < part.end {
            // Neighbouring blocks of one `outer` are one run of columns.
            let (o, first) = (block / blocks, block % blocks);
            let last = blocks.min(first + part.end - block);
            let columns = first * COLUMNS..inner.min(last * COLUMNS);
            for (k, &i) in index.iter().enumerate() {
                let at = (o * n + i as usize) * inner;
                // SAFETY: inside `x`; these columns are this part's alone.
                let row = unsafe { to.slice(at + columns.start..at + columns.end) };
                let from = (o * index.len() + k) * inner;
                for (x, &s) in row.iter_mut().zip(&src[from + columns.start..from + columns.end]) {
                    *x = x.plus(s);
                }
            }
            block += last - first;
        }
    }
}

/// Throws unless `index` is a list.
#[track_caller]
fn assert_list(op: &str, index: &Tensor) {
    if index.dim() > 1 {
        throw(Error::shape(op, format!("`index` must be 1-dim, has shape {:?}", index.shape())));
    }
}

impl Tensor {
    /// The slices of dimension `dim` named by `index`, a list of integers (`torch.index_select`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4], [5, 6]]);
    /// let y = x.index_select(0, &Tensor::from([2i64, 0]));
    /// assert_eq!(y.to_vec::<i64>(), [5, 6, 1, 2]);
    /// ```
    ///
    /// # Panics
    /// Throws when `index` is not a list of integers or names a slice that is not there.
    #[track_caller]
    pub fn index_select(&self, dim: i64, index: &Tensor) -> Tensor {
        let _span = profiler::op("index_select");
        let d = self.normalize_dim("index_select", dim);
        assert_list("index_select", index);
        let n = self.shape().get(d).copied().unwrap_or(1);
        let index = checked_index("index_select", index, n);
        if self.dim() == 0 && index.numel() != 1 {
            throw(Error::shape("index_select", "of a 0-dim tensor takes one index"));
        }
        let out = take_slices(&self.detach().contiguous(), d, &index);
        let shape = self.layout().shape.clone();
        record("index_select", &[self], out, |saver| {
            let index = saver.save(&index);
            move |ctx| {
                let g = ctx.grad(0);
                let out = Tensor::zeros(&shape, (g.dtype(), g.device()));
                out.index_add_(d as i64, &ctx.get(&index), &g);
                smallvec![Some(out)]
            }
        })
    }

    /// Adds the slices of `source` to the slices of dimension `dim` named by `index`
    /// (`torch.Tensor.index_add_`); a slice may be named several times.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f32, 2.], [3., 4.]]);
    /// x.index_add_(0, &Tensor::from([1i64, 1]), &Tensor::from([[10f32, 20.], [100., 200.]]));
    /// assert_eq!(x.to_vec::<f32>(), [1.0, 2.0, 113.0, 224.0]);
    /// ```
    ///
    /// # Panics
    /// Throws when shapes or types do not fit, or `index` names a slice that is not there.
    #[track_caller]
    pub fn index_add_(&self, dim: i64, index: &Tensor, source: &Tensor) -> &Tensor {
        let d = self.normalize_dim("index_add_", dim);
        assert_list("index_add_", index);
        let n = self.shape().get(d).copied().unwrap_or(1);
        let index = checked_index("index_add_", index, n);
        let mut expected = self.layout().shape.clone();
        if let Some(size) = expected.get_mut(d) {
            *size = index.numel();
        }
        let entries = source.shape().get(d).copied().unwrap_or(1);
        if source.shape() != &expected[..]
            || source.dtype() != self.dtype()
            || entries != index.numel()
        {
            throw(Error::shape(
                "index_add_",
                format!(
                    "source is {} {:?}; {} {:?} is needed for {} indices into {:?} along {d}",
                    source.dtype(),
                    source.shape(),
                    self.dtype(),
                    &expected[..],
                    index.numel(),
                    self.shape()
                ),
            ));
        }
        let _scope = Scope::enter(|| "index_add_");
        self.assert_inplace_legal("index_add_");
        let dense = source.detach().contiguous();
        self.change_dense(|x| add_slices(x, d, &index, &dense));
        record_inplace("index_add_", self, &[self, source], |saver| {
            let index = saver.save(&index);
            move |ctx| {
                let g = ctx.grad(0);
                let source = ctx.needs(1).then(|| g.index_select(d as i64, &ctx.get(&index)));
                smallvec![Some(g), source]
            }
        });
        self
    }

    /// [`index_add_`](Self::index_add_) to a copy (`torch.index_add`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2, 3]);
    /// let y = x.index_add(0, &Tensor::from([2i64, 0]), &Tensor::from([10i64, 20]));
    /// assert_eq!(y.to_vec::<i64>(), [21, 2, 13]);
    /// ```
    #[track_caller]
    pub fn index_add(&self, dim: i64, index: &Tensor, source: &Tensor) -> Tensor {
        let out = self.clone_contiguous();
        out.index_add_(dim, index, source);
        out
    }

    /// Adds the slices of `source` times `alpha` (`torch.Tensor.index_add_` with `alpha`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]);
    /// let y = x.index_add_scaled_(0, &Tensor::from([1i64]), &Tensor::from([10f32]), -0.5);
    /// assert_eq!(y.to_vec::<f32>(), [1.0, -3.0]);
    /// ```
    ///
    /// # Panics
    /// As [`index_add_`](Self::index_add_).
    #[track_caller]
    pub fn index_add_scaled_(
        &self,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        alpha: impl Into<Scalar>,
    ) -> &Tensor {
        self.index_add_(dim, index, &source.mul(alpha.into()))
    }

    /// [`index_add_scaled_`](Self::index_add_scaled_) to a copy (`torch.index_add` with `alpha`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2]);
    /// let y = x.index_add_scaled(0, &Tensor::from([1i64]), &Tensor::from([10i64]), 3);
    /// assert_eq!(y.to_vec::<i64>(), [1, 32]);
    /// ```
    #[track_caller]
    pub fn index_add_scaled(
        &self,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        alpha: impl Into<Scalar>,
    ) -> Tensor {
        self.index_add(dim, index, &source.mul(alpha.into()))
    }

    /// Runs `change` on this tensor's elements as a dense tensor: in place if they lie so, else on a
    /// copy that is then written back. Not recorded.
    pub(in crate::ops) fn change_dense(&self, change: impl FnOnce(&Tensor)) {
        let detached = self.detach();
        if detached.is_contiguous() {
            change(&detached);
        } else {
            let dense = detached.clone_contiguous();
            change(&dense);
            no_grad(|| detached.copy_(&dense).numel());
        }
    }
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let x = || vec![values([3, 4, 2], 1)];
    let index = || Tensor::from([2i64, 0, 2]);
    vec![
        OpSample::new("index_select(0)", x(), move |x| {
            x[0].index_select(0, &index().to_device(x[0].device()))
        }),
        OpSample::new("index_select(-1)", x(), |x| {
            x[0].index_select(-1, &Tensor::from([1i32]).to_device(x[0].device()))
        }),
        OpSample::new("index_select(1), empty", x(), |x| {
            x[0].index_select(1, &Tensor::from([0i64; 0]).to_device(x[0].device()))
        }),
        OpSample::new("index_add(0)", [values([3, 200], 1), values([3, 200], 2)], move |x| {
            x[0].index_add(0, &index().to_device(x[0].device()), &x[1])
        }),
        OpSample::new("index_add(1)", [values([2, 3, 4], 1), values([2, 3, 4], 2)], move |x| {
            x[0].index_add(1, &index().to_device(x[0].device()), &x[1])
        }),
        OpSample::new("index_add_ of a view", [values([4, 3], 1), values([4, 2], 2)], |x| {
            let out = x[0].clone_contiguous();
            out.slice(0, 0, 4, 2).t().index_add_(
                0,
                &Tensor::from([2i64, 2, 0, 1]).to_device(x[0].device()),
                &x[1],
            );
            out
        }),
    ]
}

#[cfg(test)]
mod tests {
    use crate::tensor::{Dtype, Tensor};

    #[test]
    fn rows_of_every_length_are_taken_whole() {
        for inner in [1, 127, 128, 131, 160, 1200] {
            let x =
                Tensor::arange(0, 2 * 7 * inner as i64, 1, Dtype::F32).reshape_to(&[2, 7, inner]);
            let chosen = [6i64, 0, 0, 3, 5];
            let y = x.index_select(1, &Tensor::from(chosen)).to_vec::<f32>();
            assert_eq!(y.len(), 2 * chosen.len() * inner);
            for (i, row) in y.chunks(inner).enumerate() {
                let first = (i / 5 * 7 + chosen[i % 5] as usize) * inner;
                assert!(
                    row.iter().enumerate().all(|(j, &v)| v == (first + j) as f32),
                    "{inner} {i}"
                );
            }
        }
    }

    #[test]
    fn rows_of_a_result_that_leaves_the_cache_are_taken_whole() {
        let (inner, n) = (1024, 2111i64);
        let x = Tensor::arange(0, 50 * inner, 1, Dtype::F32).reshape_to(&[50, inner as usize]);
        let chosen: Vec<i64> = (0..n).map(|i| i * i % 50).collect();
        let y = x.index_select(0, &Tensor::from(chosen.clone())).to_vec::<f32>();
        for (row, &from) in y.chunks(inner as usize).zip(&chosen) {
            let first = from * inner;
            assert!(row.iter().enumerate().all(|(j, &v)| v == (first + j as i64) as f32), "{from}");
        }
    }
}
