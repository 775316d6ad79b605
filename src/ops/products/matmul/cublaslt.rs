//! Matrix products by cuBLASLt. It takes matrices with neighbours along rows or columns, and batches at one distance.
//! What lies otherwise is copied; of batches of several distances all but one dimension are gone through, if that is
//! sooner done than a copy.

use smallvec::{SmallVec, smallvec};

use crate::backends;
use crate::cuda::cublaslt::{self, Addresses, Epilogue, Kind, Lie, Problem};
use crate::error::throw;
use crate::ops::gpu::{self, Gpu};
use crate::tensor::{Dtype, Layout, Tensor};

use super::batch::{Batch, joined};
use super::epilogue::turned;

/// Bytes that a GPU moves while one more product is started: what a copy may cost to save a launch.
const BYTES_PER_LAUNCH: usize = 16 << 20;

/// How the last two dimensions lie, if cuBLASLt takes it.
pub(super) fn lie(t: &Tensor, batch: i64) -> Option<Lie> {
    let n = t.dim();
    let ([rows, columns], [row, column]) =
        ([t.shape()[n - 2], t.shape()[n - 1]], [t.strides()[n - 2], t.strides()[n - 1]]);
    let by = |turned, long: usize, near: isize, count: usize, far: isize| {
        let step = if count == 1 { long as i64 } else { far as i64 };
        let dense = (near == 1 || long == 1) && step >= long as i64;
        dense.then_some(Lie { turned, step, batch })
    };
    by(false, columns, column, rows, row).or_else(|| by(true, rows, row, columns, column))
}

/// What cuBLASLt calls a dtype, if it is to compute its products.
pub(super) fn kind(dtype: Dtype) -> Option<Kind> {
    match dtype {
        Dtype::F32 if backends::cuda::matmul::allow_tf32() => Some(Kind::Tf32),
        Dtype::F32 => Some(Kind::F32),
        Dtype::F64 => Some(Kind::F64),
        Dtype::F16 => Some(Kind::F16),
        Dtype::BF16 => Some(Kind::BF16),
        _ => None,
    }
    .filter(|_| cublaslt::is_available())
}

/// Whether a product of matrices `m` x `k` and `k` x `n` is one for cuBLASLt. Rows and columns are left to our
/// kernels, which are as fast as memory.
pub(super) fn is_fit([m, n, k]: [usize; 3], items: usize) -> bool {
    let most = m.max(n).max(k).max(items);
    m > 1 && n > 1 && k > 0 && items > 0 && most <= i32::MAX as usize
}

/// Starts a product on the current stream; false where cuBLASLt is not there or does not compute it.
///
/// # Safety
/// That of [`cublaslt::product`].
#[track_caller]
pub(super) unsafe fn start_product(
    gpu: Gpu,
    problem: &Problem,
    addresses: Addresses,
    scales: (f64, f64),
) -> bool {
    // SAFETY: the contract of `cublaslt::product`, which this function has too.
    let done = unsafe { cublaslt::product(problem, addresses, scales, gpu.stream()) };
    done.unwrap_or_else(|error| throw(error))
}

/// `out = alpha a b + beta start`, of which the last has the result's shape; false where cuBLASLt is not there or does
/// not compute it. Sums of halves may be f32, and start too then.
#[track_caller]
pub(super) fn product(
    gpu: Gpu,
    out: &Tensor,
    a: &Tensor,
    b: &Tensor,
    start: Option<&Tensor>,
    (alpha, beta): (f64, f64),
) -> bool {
    let size = [out.shape()[0], out.shape()[1], a.shape()[1]];
    let Some(kind) = kind(a.dtype()).filter(|_| is_fit(size, 1)) else { return false };
    let wide = out.dtype() != a.dtype();
    let [a, b] = [a, b].map(|t| if lie(t, 0).is_some() { t.clone() } else { dense(t) });
    let (Some(left), Some(right)) = (lie(&a, 0), lie(&b, 0)) else { return false };
    let n = size[1];
    let result = Lie { turned: false, step: out.strides()[0] as i64, batch: 0 };
    let to = out.device_ptr();
    let run = |epilogue, at: *const u8, lie, vector, beta| {
        let problem =
            Problem { kind, wide, size, batch: 1, left, right, start: lie, out: result, epilogue };
        let (left, right) = (a.device_ptr(), b.device_ptr());
        let kept = std::ptr::null_mut();
        let addresses = Addresses { left, right, start: at, out: to, vector, kept };
        // SAFETY: tensors of this GPU that lie as described; the result is new, or what is added.
        unsafe { start_product(gpu, &problem, addresses, (alpha, beta)) }
    };
    let none = std::ptr::null_mut();
    let Some(start) = start else { return run(Epilogue::Plain, to, result, none, 0.0) };
    // A row that is added is an epilogue; a matrix is the product's own.
    let [row, column] = [start.strides()[0], start.strides()[1]];
    let at = start.device_ptr();
    let is_row = row == 0 && column == 1 && beta == 1.0;
    if is_row && kind.has(Epilogue::Bias) && run(Epilogue::Bias, to, result, at, 0.0) {
        return true;
    }
    let lie = Lie { step: row as i64, ..result };
    if column == 1 && row >= n as isize && run(Epilogue::Plain, at, lie, none, beta) {
        return true;
    }
    // Whatever else is added is first written where the result comes, as in PyTorch.
    out.copy_(start);
    run(Epilogue::Plain, to, result, none, beta)
}

/// Products of batches into the contiguous `out`; false as above.
#[track_caller]
pub(super) fn products(gpu: Gpu, out: &Tensor, a: &Tensor, b: &Tensor, batch: &[usize]) -> bool {
    let last = batch.len();
    let size = [out.shape()[last], out.shape()[last + 1], a.shape()[last + 1]];
    let items = batch.iter().product::<usize>();
    let Some(kind) = kind(out.dtype()).filter(|_| is_fit(size, items)) else { return false };
    let Arranged { a, b, dims } = arranged(a, b, batch);
    let widest = (0..dims.len()).max_by_key(|&d| dims[d][0]);
    let [count, step_a, step_b] = widest.map_or([1, 0, 0], |d| dims[d]);
    // The distance of the results along each dimension.
    let mut steps: SmallVec<[i64; 4]> = smallvec![(size[0] * size[1]) as i64; dims.len()];
    for d in (1..dims.len()).rev() {
        steps[d - 1] = steps[d] * dims[d][0];
    }
    let step = widest.map_or(0, |d| steps[d]);
    let (Some(left), Some(right)) = (lie(&a, step_a), lie(&b, step_b)) else { return false };
    let result = Lie { turned: false, step: size[1] as i64, batch: step };
    let problem = Problem {
        kind,
        wide: false,
        size,
        batch: count as usize,
        left,
        right,
        start: result,
        out: result,
        epilogue: Epilogue::Plain,
    };
    let bytes = out.dtype().size() as i64;
    for item in 0..items as i64 / count {
        let (mut rest, mut at) = (item, [0; 3]);
        for (d, [size, of_a, of_b]) in dims.iter().enumerate().rev() {
            if Some(d) != widest {
                let i = rest % size;
                rest /= size;
                for (at, step) in at.iter_mut().zip([*of_a, *of_b, steps[d]]) {
                    *at += i * step * bytes;
                }
            }
        }
        let from = |t: &Tensor, at: i64| t.device_ptr().wrapping_offset(at as isize);
        let to = from(out, at[2]);
        let (left, right) = (from(&a, at[0]), from(&b, at[1]));
        let none = std::ptr::null_mut();
        let addresses = Addresses { left, right, start: to, out: to, vector: none, kept: none };
        // SAFETY: tensors of this GPU that lie as described; the result is new.
        if !unsafe { start_product(gpu, &problem, addresses, (1.0, 0.0)) } {
            return false;
        }
    }
    true
}

/// A copy with neighbours along rows or columns, whichever is nearer to how they lie.
fn dense(t: &Tensor) -> Tensor {
    let n = t.dim();
    match t.strides()[n - 2] == 1 && t.strides()[n - 1] != 1 {
        true => t.transpose(-1, -2).contiguous().transpose(-1, -2),
        false => t.contiguous(),
    }
}

/// Operands that cuBLASLt takes, and the dimensions of their batch: sizes and distances.
struct Arranged {
    a: Tensor,
    b: Tensor,
    dims: Batch,
}

/// The operands as they lie, or copied where that is sooner done than several products.
fn arranged(a: &Tensor, b: &Tensor, batch: &[usize]) -> Arranged {
    let needed = [a, b].map(|t| lie(t, 0).is_none());
    let dims = joined(batch, a.strides(), b.strides());
    if needed == [false; 2] && dims.len() < 2 {
        return Arranged { a: a.clone(), b: b.clone(), dims };
    }
    let items = batch.iter().product::<usize>();
    let cost = |copied: [bool; 2]| {
        let strides = |t: &Tensor, copied: bool| match copied {
            true => Layout::contiguous(t.shape()).strides,
            false => t.layout().strides.clone(),
        };
        let dims = joined(batch, &strides(a, copied[0]), &strides(b, copied[1]));
        let widest = dims.iter().map(|dim| dim[0] as usize).max().unwrap_or(1);
        let copies = [a, b].into_iter().zip(copied).filter(|(_, copied)| *copied);
        let moved: usize =
            copies.map(|(t, _)| 2 * t.numel() * t.dtype().size() + BYTES_PER_LAUNCH).sum();
        moved + items / widest * BYTES_PER_LAUNCH
    };
    let choices = [[false, false], [true, false], [false, true], [true, true]];
    let able = choices.into_iter().filter(|c| (0..2).all(|i| c[i] || !needed[i]));
    let [of_a, of_b] = able.min_by_key(|c| cost(*c)).unwrap_or([true; 2]);
    let take = |t: &Tensor, copied| if copied { dense(t) } else { t.clone() };
    let (a, b) = (take(a, of_a), take(b, of_b));
    let dims = joined(batch, a.strides(), b.strides());
    Arranged { a, b, dims }
}

/// How a layer's weight lies, whose gradient is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    /// `[out, in]`, as `linear`'s: the gradient is `g^T x`.
    OutIn,
    /// `[in, out]`, as `addmm`'s: the gradient is `x^T g`.
    InOut,
}

/// The gradients of a layer's weight and bias, which are the sums of `g`'s rows, by one call of cuBLASLt if it has such;
/// `g` and `x` are matrices.
#[track_caller]
pub(super) fn weight_and_bias(g: &Tensor, x: &Tensor, how: Weight) -> Option<(Tensor, Tensor)> {
    let dtype = g.dtype();
    let halves = matches!(dtype, Dtype::F16 | Dtype::BF16);
    let gpu = gpu::of("linear", &[g, x]).filter(|_| halves)?;
    let (l, r, epilogue) = match how {
        Weight::OutIn => (g, x, Epilogue::LeftSums),
        Weight::InOut => (x, g, Epilogue::RightSums),
    };
    let ([rows, n], m) = ([r.shape()[0], r.shape()[1]], l.shape()[1]);
    if !is_fit([m, n, rows], 1) {
        return None;
    }
    let (left, right) = (lie(&turned(l), 0)?, lie(r, 0)?);
    let [weight, bias] = [&[m, n][..], &[g.shape()[1]][..]]
        .map(|s| Tensor::uninitialised_on(s, dtype, gpu.device()));
    let result = Lie { turned: false, step: n as i64, batch: (m * n) as i64 };
    let problem = Problem {
        kind: kind(dtype)?,
        wide: false,
        size: [m, n, rows],
        batch: 1,
        left,
        right,
        start: result,
        out: result,
        epilogue,
    };
    let out = weight.device_ptr();
    let addresses = Addresses {
        left: l.device_ptr(),
        right: r.device_ptr(),
        start: out,
        out,
        vector: bias.device_ptr(),
        kept: std::ptr::null_mut(),
    };
    // SAFETY: addresses of dense tensors of the problem's sizes, of which the results are new.
    unsafe { start_product(gpu, &problem, addresses, (1.0, 0.0)) }.then_some((weight, bias))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::simulated_test::on_gpu;
    use crate::storage::Device;

    fn add_rows() {
        for dtype in [Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16] {
            let of = |from: i64, shape: &[i64]| {
                let count = shape.iter().product::<i64>();
                Tensor::arange(from, from + count, 1, dtype).view(shape)
            };
            let (bias, x, w) = (of(1, &[5]), of(-3, &[4, 3]), of(-2, &[5, 3]));
            let [b, y, v] = [&bias, &x, &w].map(|t| t.to_device(Device::Cuda(0)));
            assert!(y.linear(&v, Some(&b)).cpu().equal(&x.linear(&w, Some(&bias))), "{dtype}");
            assert_eq!(cublaslt::refused(), 0, "{dtype}");
        }
    }

    /// The gradients of both kinds of layers, of whole numbers that every order of sums gives exactly.
    fn sum_gradients() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            let of = |from: i64, shape: &[i64]| {
                let count = shape.iter().product::<i64>();
                (Tensor::arange(from, from + count, 1, Dtype::F32).remainder(5.0) - 2.0)
                    .to_dtype(dtype)
                    .view(shape)
            };
            let gradients = |device: Device, layer: fn(&Tensor, &Tensor, &Tensor) -> Tensor| {
                let on = |t: Tensor| t.to_device(device).requires_grad_(true);
                let x = on(of(1, &[4, 8]));
                let (w, b) = (on(of(3, &[8, 8])), on(of(0, &[8])));
                let y = layer(&x, &w, &b);
                (&y * &of(2, &[4, 8]).to_device(device)).sum().backward();
                [x, w, b].map(|t| t.grad().unwrap().cpu())
            };
            let layers: [fn(&Tensor, &Tensor, &Tensor) -> Tensor; 2] =
                [|x, w, b| x.linear(w, Some(b)), |x, w, b| b.addmm(x, w, 1.0, 1.0)];
            for layer in layers {
                let (here, there) =
                    (gradients(Device::Cpu, layer), gradients(Device::Cuda(0), layer));
                for (a, b) in here.iter().zip(&there) {
                    assert!(a.equal(b) && a.shape() == b.shape(), "{dtype}: {a:?} {b:?}");
                }
            }
            assert_eq!(cublaslt::refused(), 0, "{dtype}");
        }
    }

    #[test]
    fn gradients_of_weights_and_biases_come_together() {
        let test =
            "ops::products::matmul::cublaslt::tests::gradients_of_weights_and_biases_come_together";
        on_gpu(test, sum_gradients);
    }

    #[test]
    fn no_product_asks_for_an_epilogue_that_its_type_lacks() {
        let test = "ops::products::matmul::cublaslt::tests::no_product_asks_for_an_epilogue_that_its_type_lacks";
        on_gpu(test, add_rows);
    }
}
