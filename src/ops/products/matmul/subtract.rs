//! `out -= a b` in place on a GPU, for parts of larger matrices: what blocked factorisations are made of.

use crate::cuda::cublaslt::{Addresses, Epilogue, Lie, Problem};
use crate::ops::gpu::Gpu;
use crate::tensor::Tensor;

use super::cublaslt::{is_fit, kind, lie, start_product};
use super::cuda::{Finish, run};

/// A depth from which cuBLASLt is asked: plans for small products of every size are not worth their making.
const LEAST_DEPTH: usize = 48;

/// `out -= a b` for stacks `[count, rows, columns]` of one type, `out` with neighbours along rows or columns. It
/// overlaps neither operand.
#[track_caller]
pub(in crate::ops) fn subtract_product(gpu: Gpu, out: &Tensor, a: &Tensor, b: &Tensor) {
    let (&[count, rows, columns], &[batch, row, column]) = (out.shape(), out.strides()) else {
        unreachable!("stacks of matrices")
    };
    if column != 1 && row == 1 {
        return subtract_product(gpu, &out.mt(), &b.mt(), &a.mt());
    }
    if out.numel() == 0 || a.size(-1) == 0 {
        return;
    }
    if column == 1 && a.size(-1) >= LEAST_DEPTH && by_library(gpu, out, a, b) {
        return;
    }
    let mut finish = Finish::new(out, rows, columns);
    finish.start = finish.out;
    (finish.out_row, finish.out_column) = (row as i64, column as i64);
    (finish.start_row, finish.start_column) = (row as i64, column as i64);
    (finish.alpha, finish.beta) = (-1.0, 1.0);
    run(gpu, out.dtype(), finish, a, b, &[count], batch as usize);
}

/// False where cuBLASLt is not there or does not compute it.
#[track_caller]
fn by_library(gpu: Gpu, out: &Tensor, a: &Tensor, b: &Tensor) -> bool {
    let (&[count, rows, columns], &[batch, row, _]) = (out.shape(), out.strides()) else {
        unreachable!("stacks of matrices")
    };
    let depth = a.size(-1);
    if !is_fit([rows, columns, depth], count) || row < columns as isize {
        return false;
    }
    let Some(kind) = kind(out.dtype()) else { return false };
    let step = |t: &Tensor| if count == 1 { 0 } else { t.strides()[0] as i64 };
    let (Some(left), Some(right)) = (lie(a, step(a)), lie(b, step(b))) else { return false };
    let own = Lie { turned: false, step: row as i64, batch: batch as i64 };
    let size = [rows, columns, depth];
    let epilogue = Epilogue::Plain;
    let problem = Problem {
        kind,
        wide: false,
        size,
        batch: count,
        left,
        right,
        start: own,
        out: own,
        epilogue,
    };
    let at = out.device_ptr();
    let addresses = Addresses {
        left: a.device_ptr(),
        right: b.device_ptr(),
        start: at,
        out: at,
        vector: std::ptr::null_mut(),
        kept: std::ptr::null_mut(),
    };
    // SAFETY: tensors of this GPU that lie as described; the result is what is added.
    unsafe { start_product(gpu, &problem, addresses, (-1.0, 1.0)) }
}
