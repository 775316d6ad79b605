//! Products on the host. Halves are computed in f32 where the processor has nothing for them.

use half::bf16;

use super::batch::of_batch;
use super::epilogue::Epilogue;
use crate::cpu::{
    numbers::widen::Real, products::gemm::Gemm, products::gemm::HalfGemm, products::gemm::Matrix,
    products::pairs::Finish,
};
use crate::error::{Error, throw};
use crate::ops::compute_type;
use crate::tensor::{Dtype, Element, Tensor, dispatch};

/// The product of two matrices that fit each other, in `place` if that is of their dtype.
pub(super) fn product_at(a: &Tensor, b: &Tensor, place: Tensor) -> Tensor {
    let shape = [a.shape()[0], b.shape()[1]];
    if !(matches!(a.dtype(), Dtype::F32 | Dtype::F64) && place.dtype() == a.dtype()) {
        return product(a, b, &shape, None);
    }
    debug_assert_eq!(place.shape(), shape);
    let size = (shape[0], shape[1], a.shape()[1]);
    dispatch!(compute a.dtype(), "matmul", T => {
        let (a, b, c) = (matrix::<T>(a), matrix::<T>(b), self::place::<T>(&place));
        // SAFETY: the layouts lie inside their storages; the place is dense and to be overwritten.
        unsafe { Gemm { size, alpha: T::of(1.0), a, b, beta: T::of(0.0), c }.run() };
    });
    place
}

/// The product of two matrices whose sizes and dtypes were checked. What it calls sees no history.
#[track_caller]
pub(super) fn product(
    a: &Tensor,
    b: &Tensor,
    shape: &[usize; 2],
    epilogue: Option<Epilogue>,
) -> Tensor {
    let dtype = a.dtype();
    let size = (shape[0], shape[1], a.shape()[1]);
    match dtype {
        Dtype::F32 | Dtype::F64 => {
            let out = Tensor::uninitialised(shape, dtype);
            let (start, beta, alpha) =
                epilogue.map_or((None, 0.0, 1.0), |e| (Some(e.start), e.beta, e.alpha));
            let start = start.filter(|_| beta != 0.0);
            let row = start.filter(|t| beta == 1.0 && t.dim() == 1 && t.numel() == shape[1]);
            dispatch!(compute dtype, "matmul", T => {
                let (alpha, beta) = (T::of(alpha), T::of(beta));
                let (a, b, c) = (matrix::<T>(a), matrix::<T>(b), place::<T>(&out));
                let gemm = Gemm { size, alpha, a, b, beta, c };
                let row = row.filter(|t| t.is_contiguous()).map(|t| t.data_ptr().cast::<T>());
                // SAFETY: the layouts lie inside their storages; `out` is new and contiguous, the row too.
                if !row.is_some_and(|row| unsafe { gemm.run_plus_row(row) }) {
                    if let Some(start) = start {
                        out.copy_(&start.detach());
                    }
                    // SAFETY: the *Gemm invariant*: the layouts lie inside their storages; `out` is
                    // new and contiguous.
                    unsafe { gemm.run() };
                }
            });
            out
        }
        Dtype::BF16 if HalfGemm::is_there() => half_product(a, b, size, epilogue),
        Dtype::F16 | Dtype::BF16 => {
            let start = epilogue.as_ref().map(|e| compute_type::widen(e.start));
            let epilogue = epilogue.zip(start.as_ref()).map(|(e, start)| Epilogue { start, ..e });
            let wide = product(&compute_type::widen(a), &compute_type::widen(b), shape, epilogue);
            compute_type::narrow(wide, dtype)
        }
        Dtype::Bool => throw(Error::dtype(
            "matmul",
            "bool tensors cannot be multiplied as matrices; convert with `.to_dtype`",
        )),
        _ => {
            let (a, b) = (a.detach().contiguous(), b.detach().contiguous());
            let out = Tensor::empty(shape, dtype.on_host());
            let e = epilogue.map(|e| {
                let start = e.start.detach().expand(shape).contiguous();
                (start, e.beta as i64, e.alpha as i64)
            });
            dispatch!(dtype, T => {
                // SAFETY: contiguous, of this type; `out` is new.
                let (a, b, out) = unsafe { (a.as_slice::<T>(), b.as_slice::<T>(), out.as_mut_slice::<T>()) };
                integers(size, a, b, out);
                if let Some((start, beta, alpha)) = &e {
                    // SAFETY: a contiguous tensor of this type, which nobody writes.
                    for (out, s) in out.iter_mut().zip(unsafe { start.as_slice::<T>() }) {
                        let product = out.to_i64().wrapping_mul(*alpha);
                        *out = T::from_i64(s.to_i64().wrapping_mul(*beta).wrapping_add(product));
                    }
                }
            });
            out
        }
    }
}

/// [`product`] of bf16 in pairs.
fn half_product(
    a: &Tensor,
    b: &Tensor,
    size: (usize, usize, usize),
    epilogue: Option<Epilogue>,
) -> Tensor {
    let shape = [size.0, size.1];
    let out = Tensor::uninitialised(&shape, Dtype::BF16);
    let start =
        epilogue.as_ref().filter(|e| e.beta != 0.0).map(|e| e.start.detach().expand(&shape));
    let finish = epilogue.map(|e| Finish {
        alpha: e.alpha as f32,
        beta: e.beta as f32,
        start: start.as_ref().map(matrix::<bf16>),
    });
    let (a, b, c) = (matrix::<bf16>(a), matrix::<bf16>(b), place::<bf16>(&out));
    // SAFETY: the layouts lie inside their storages; `out` is new and contiguous.
    unsafe { HalfGemm { size, a, b, c, finish }.run() };
    out
}

/// Row-major integer matrices; sums wrap around as the element type does.
fn integers<T: Element>((m, n, k): (usize, usize, usize), a: &[T], b: &[T], out: &mut [T]) {
    let mut sums = vec![0i64; n];
    for i in 0..m {
        sums.fill(0);
        for p in 0..k {
            let x = a[i * k + p].to_i64();
            for (sum, y) in sums.iter_mut().zip(&b[p * n..]) {
                *sum = sum.wrapping_add(x.wrapping_mul(y.to_i64()));
            }
        }
        for (out, &sum) in out[i * n..].iter_mut().zip(&sums) {
            *out = T::from_i64(sum);
        }
    }
}

/// Products of batches, which `a` and `b` broadcast to.
#[track_caller]
pub(super) fn products(
    a: &Tensor,
    b: &Tensor,
    batch: &[usize],
    size: (usize, usize, usize),
) -> Tensor {
    let dtype = a.dtype();
    let (m, n, k) = size;
    let stretch = |t: &Tensor, rows, columns| t.expand(&of_batch(batch, rows, columns));
    let shape = of_batch(batch, m, n);
    match dtype {
        Dtype::F32 | Dtype::F64 => {
            let (a, b) = (stretch(a, m, k), stretch(b, k, n));
            let offsets = offsets(batch, a.strides(), b.strides(), m * n);
            let out = Tensor::empty(&shape, dtype.on_host());
            dispatch!(compute dtype, "matmul", T => {
                // SAFETY: the layouts lie inside their storages; `out` is new and contiguous.
                unsafe {
                    let (a, b, c) = (matrix::<T>(&a), matrix::<T>(&b), place::<T>(&out));
                    Gemm { size, alpha: T::of(1.0), a, b, beta: T::ZERO, c }.run_batched(&offsets);
                }
            });
            out
        }
        Dtype::BF16 if HalfGemm::is_there() => {
            let (a, b) = (stretch(a, m, k), stretch(b, k, n));
            let offsets = offsets(batch, a.strides(), b.strides(), m * n);
            let out = Tensor::uninitialised(&shape, dtype);
            let (a, b, c) = (matrix::<bf16>(&a), matrix::<bf16>(&b), place::<bf16>(&out));
            // SAFETY: the layouts lie inside their storages; `out` is new and contiguous.
            unsafe { HalfGemm { size, a, b, c, finish: None }.run_batched(&offsets) };
            out
        }
        Dtype::F16 | Dtype::BF16 => {
            let wide = products(&compute_type::widen(a), &compute_type::widen(b), batch, size);
            compute_type::narrow(wide, dtype)
        }
        _ => {
            let count = batch.iter().product();
            let a = stretch(a, m, k).reshape_to(&[count, m, k]);
            let b = stretch(b, k, n).reshape_to(&[count, k, n]);
            let out = Tensor::empty([count, m, n], dtype.on_host());
            for i in 0..count as i64 {
                out.select(0, i).copy_(&product(&a.select(0, i), &b.select(0, i), &[m, n], None));
            }
            out.reshape_to(&shape).detach()
        }
    }
}

/// Where each batch's matrices start in the two operands and, `size` elements apart, in the result.
fn offsets(batch: &[usize], a: &[isize], b: &[isize], size: usize) -> Vec<[isize; 3]> {
    let mut out = vec![[0, 0, 0]];
    for (d, &n) in batch.iter().enumerate() {
        let step = |i: usize, [x, y, z]: [isize; 3]| {
            [x + i as isize * a[d], y + i as isize * b[d], z * n as isize + i as isize]
        };
        out = out.into_iter().flat_map(|at| (0..n).map(move |i| step(i, at))).collect();
    }
    out.iter_mut().for_each(|item| item[2] *= size as isize);
    out
}

/// The last two dimensions.
#[inline]
pub(super) fn matrix<T>(t: &Tensor) -> Matrix<*const T> {
    let n = t.dim();
    Matrix { ptr: t.data_ptr().cast(), row: t.strides()[n - 2], column: t.strides()[n - 1] }
}

#[inline]
pub(super) fn place<T>(t: &Tensor) -> Matrix<*mut T> {
    let Matrix { ptr, row, column } = matrix::<T>(t);
    Matrix { ptr: ptr.cast_mut(), row, column }
}
