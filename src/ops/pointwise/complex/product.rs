//! Products and quotients of complex numbers: the only loops over them. With a number as a pair,
//!
//! ```text
//! (a + ib)(c + id) = (ac - bd) + i(ad + bc)
//! by z = x y:  gx = g conj(y),  gy = g conj(x)
//! by z = x / y:  gx = g / conj(y),  gy = -g conj(x / y / y)
//! ```

use smallvec::smallvec;

use super::cuda;
use crate::autograd::{BackwardCtx, no_grad, record};
use crate::cpu::{folds::fold::SharedMut, threads::GRAIN, threads::parallel_for};
use crate::error::{Error, throw};
use crate::ops::gpu;
use crate::tensor::{Complex, Dtype, Element, Shape, Tensor, broadcast_shapes};

/// `x * y` of one complex type; they broadcast.
#[track_caller]
pub(in crate::ops) fn mul(x: &Tensor, y: &Tensor) -> Tensor {
    let out = match (gpu::of("mul", &[x, y]), x.dtype()) {
        (Some(gpu), _) => cuda::zip(gpu, "multiply", x, y, &common_shape("mul", x, y)),
        (None, Dtype::C64) => zip::<Complex<f32>>("mul", x, y, |x, y| x * y),
        _ => zip::<Complex<f64>>("mul", x, y, |x, y| x * y),
    };
    record("mul", &[x, y], out, |saver| {
        // Only what a wanted gradient uses.
        let (kept_x, kept_y) =
            (y.requires_grad().then(|| saver.save(x)), x.requires_grad().then(|| saver.save(y)));
        move |ctx: &BackwardCtx<'_>| {
            let g = ctx.grad(0);
            let by = |input, other| {
                ctx.get_for(input, other).map(|t| match ctx.create_graph() {
                    true => mul(&g, &t.conj()),
                    false => mul_conj(&g, &t),
                })
            };
            smallvec![by(0, &kept_y), by(1, &kept_x)]
        }
    })
}

/// `x conj(y)` of one complex type, without history.
#[track_caller]
pub(super) fn mul_conj(x: &Tensor, y: &Tensor) -> Tensor {
    match gpu::of("mul", &[x, y]) {
        Some(gpu) => cuda::zip(gpu, "multiply_conj", x, y, &common_shape("mul", x, y)),
        None => no_grad(|| mul(x, &y.conj())),
    }
}

/// `x / y` of one complex type; they broadcast.
#[track_caller]
pub(in crate::ops) fn div(x: &Tensor, y: &Tensor) -> Tensor {
    let out = match (gpu::of("div", &[x, y]), x.dtype()) {
        (Some(gpu), _) => cuda::zip(gpu, "divide", x, y, &common_shape("div", x, y)),
        (None, Dtype::C64) => zip::<Complex<f32>>("div", x, y, quotient_single),
        _ => zip::<Complex<f64>>("div", x, y, quotient),
    };
    record("div", &[x, y], out, |saver| {
        let (x, y) = (saver.save(x), saver.save(y));
        move |ctx: &BackwardCtx<'_>| {
            let (g, y) = (ctx.grad(0), ctx.get(&y));
            let by_x = ctx.needs(0).then(|| div(&g, &y.conj()));
            let by_y = ctx.needs(1).then(|| {
                let x = ctx.get(&x);
                -mul(&g, &div(&div(&x, &y), &y).conj())
            });
            smallvec![by_x, by_y]
        }
    })
}

/// Smith's way: no overflow where the result has none.
fn quotient(x: Complex<f64>, y: Complex<f64>) -> Complex<f64> {
    if y.re.abs() >= y.im.abs() {
        if y.re == 0.0 {
            // By 0: infinities and NaN with the signs that parts divided by 0 have.
            return Complex::new(x.re / y.re.abs(), x.im / y.re.abs());
        }
        let ratio = y.im / y.re;
        let scale = y.re + y.im * ratio;
        Complex::new((x.re + x.im * ratio) / scale, (x.im - x.re * ratio) / scale)
    } else {
        let ratio = y.re / y.im;
        let scale = y.im + y.re * ratio;
        Complex::new((x.re * ratio + x.im) / scale, (x.im * ratio - x.re) / scale)
    }
}

fn quotient_single(x: Complex<f32>, y: Complex<f32>) -> Complex<f32> {
    let wide = |z: Complex<f32>| Complex::new(f64::from(z.re), f64::from(z.im));
    let z = quotient(wide(x), wide(y));
    Complex::new(z.re as f32, z.im as f32)
}

/// The shape that both broadcast to.
#[track_caller]
fn common_shape(op: &str, x: &Tensor, y: &Tensor) -> Shape {
    broadcast_shapes(x.shape(), y.shape()).unwrap_or_else(|d| {
        let (a, b) = (x.shape(), y.shape());
        throw(Error::shape(op, format!("shapes {a:?} and {b:?} do not broadcast: dimension {d}")))
    })
}

/// `f` of two tensors with elements `T` that broadcast: a dense tensor.
#[track_caller]
fn zip<T: Element>(op: &str, x: &Tensor, y: &Tensor, f: impl Fn(T, T) -> T + Sync) -> Tensor {
    let shape = common_shape(op, x, y);
    let dense = |t: &Tensor| t.detach().expand(&shape).contiguous();
    let (x, y) = (dense(x), dense(y));
    let out = Tensor::empty(&shape, T::DTYPE.on_host());
    // SAFETY: dense, with elements T by the check in `as_slice`; nobody writes them meanwhile.
    let (x, y) = unsafe { (x.as_slice::<T>(), y.as_slice::<T>()) };
    let to = SharedMut(out.data_ptr().cast::<T>());
    parallel_for(x.len(), GRAIN, |range| {
        for i in range {
            // SAFETY: `out` is new and as large; each place is one thread's.
            unsafe { to.at(i).write(f(x[i], y[i])) };
        }
    });
    out
}
