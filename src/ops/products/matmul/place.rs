//! Products into a matrix that is there, and sums of products in the type that is computed in.

use crate::autograd::no_grad;
use crate::cpu::{numbers::widen::Real, products::gemm::Gemm};
use crate::ops::compute_type;
use crate::ops::gpu::{self, Gpu};
use crate::profiler::flops;
use crate::tensor::{Dtype, Tensor, dispatch};

use super::cpu::{matrix, place};
use super::cuda::Finish;
use super::epilogue::Epilogue;
use super::{cpu, cublaslt, cuda, product_flops};

/// What a product is added to.
#[derive(Clone, Copy)]
pub(in crate::ops) enum Start<'a> {
    /// Nothing.
    Nothing,
    /// What is in the matrix already.
    Itself,
    /// A row, to each of its rows; of the operands' type, as the matrix.
    Row(&'a Tensor),
}

/// `out = start + a b`. `out` is of the operands' type or, but for a row, of the one that they are computed in; it
/// overlaps neither, and has neighbours along its rows. Nothing is recorded, nor kept for another time.
#[track_caller]
pub(in crate::ops) fn product_into(out: &Tensor, a: &Tensor, b: &Tensor, start: Start<'_>) {
    let [m, n, k] = [a.shape()[0], b.shape()[1], a.shape()[1]];
    debug_assert!(out.strides()[1] == 1 && out.shape() == [m, n] && b.shape()[0] == k);
    debug_assert!(out.dtype() == a.dtype() || out.dtype() == a.dtype().compute());
    flops("mm", || product_flops([m, n, k], &[]));
    let [out, a, b] = [out, a, b].map(Tensor::untracked);
    no_grad(|| match gpu::of("matmul", &[&out, &a, &b]) {
        Some(gpu) => on_gpu(gpu, &out, &a, &b, start),
        None => on_host(&out, &a, &b, start),
    });
    out.storage().bump_version();
}

#[track_caller]
fn on_gpu(gpu: Gpu, out: &Tensor, a: &Tensor, b: &Tensor, start: Start<'_>) {
    let shape = [out.shape()[0], out.shape()[1]];
    let from = match start {
        Start::Nothing => None,
        Start::Itself => Some(out.clone()),
        Start::Row(row) => Some(row.untracked().expand(&shape)),
    };
    let scales = (1.0, if from.is_some() { 1.0 } else { 0.0 });
    if cublaslt::product(gpu, out, a, b, from.as_ref(), scales) {
        return;
    }
    if out.dtype() != a.dtype() {
        let [a, b] = [a, b].map(compute_type::widen);
        return on_gpu(gpu, out, &a, &b, start);
    }
    let mut finish = Finish::new(out, shape[0], shape[1]);
    finish.out_row = out.strides()[0] as i64;
    if let Some(from) = &from {
        (finish.start, finish.beta) = (from.device_ptr(), 1.0);
        (finish.start_row, finish.start_column) =
            (from.strides()[0] as i64, from.strides()[1] as i64);
    }
    cuda::run(gpu, out.dtype(), finish, a, b, &[], shape[0] * shape[1]);
}

#[track_caller]
fn on_host(out: &Tensor, a: &Tensor, b: &Tensor, start: Start<'_>) {
    let shape = [out.shape()[0], out.shape()[1]];
    if out.dtype() != a.dtype() {
        let [a, b] = [a, b].map(compute_type::widen);
        return on_host(out, &a, &b, start);
    }
    if !matches!(a.dtype(), Dtype::F32 | Dtype::F64) {
        let row = match start {
            Start::Row(start) => Some(Epilogue { start, beta: 1.0, alpha: 1.0 }),
            _ => None,
        };
        return add(out, &cpu::product(a, b, &shape, row), start);
    }
    let beta = match start {
        Start::Nothing => 0.0,
        Start::Itself => 1.0,
        Start::Row(row) => {
            out.copy_(&row.untracked().expand(&shape));
            1.0
        }
    };
    let size = (shape[0], shape[1], a.shape()[1]);
    dispatch!(compute a.dtype(), "matmul", T => {
        let (a, b, c) = (matrix::<T>(a), matrix::<T>(b), place::<T>(out));
        // SAFETY: the *Gemm invariant*: the layouts lie inside their storages; `out` is the caller's own.
        unsafe { Gemm { size, alpha: T::of(1.0), a, b, beta: T::of(beta), c }.run() };
    });
}

/// Adds or copies a finished product.
#[track_caller]
fn add(out: &Tensor, product: &Tensor, start: Start<'_>) {
    match start {
        Start::Itself => _ = out.add_(product),
        _ => _ = out.copy_(product),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::simulated_test::on_gpu;
    use crate::storage::Device;

    /// Of whole numbers, which every order of sums gives exactly.
    fn products_into(device: Device) {
        let of = |count: i64, shape: &[i64], dtype: Dtype| {
            let numbers = (Tensor::arange(1, count + 1, 1, Dtype::F32) * 7.0).remainder(5.0) - 2.0;
            numbers.to_dtype(dtype).view(shape).to_device(device)
        };
        for dtype in [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16] {
            let (a, b, row) =
                (of(24, &[8, 3], dtype).t(), of(40, &[8, 5], dtype), of(5, &[5], dtype));
            let want = a.to_dtype(Dtype::F64).mm(&b.to_dtype(Dtype::F64));
            for to in [dtype, dtype.compute()] {
                let out = of(15, &[3, 5], to);
                let before = out.clone_contiguous().to_dtype(Dtype::F64);
                product_into(&out, &a, &b, Start::Itself);
                assert!(out.to_dtype(Dtype::F64).equal(&(before + &want)), "{dtype} {to}");
                product_into(&out, &a, &b, Start::Nothing);
                assert!(out.to_dtype(Dtype::F64).equal(&want), "{dtype} {to}");
            }
            let out = of(15, &[3, 5], dtype);
            product_into(&out, &a, &b, Start::Row(&row));
            let want = &want + row.to_dtype(Dtype::F64);
            assert!(out.to_dtype(Dtype::F64).equal(&want), "{dtype} row");
        }
    }

    #[test]
    fn products_are_added_where_they_belong() {
        products_into(Device::Cpu);
        let test = "ops::products::matmul::place::tests::products_are_added_where_they_belong";
        on_gpu(test, || {
            products_into(Device::Cuda(0));
            assert_eq!(crate::cuda::cublaslt::refused(), 0);
        });
    }
}
