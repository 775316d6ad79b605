//! Derivatives of functions (`torch.autograd.functional`, `torch.func`).

use super::{enable_grad, grad};
use crate::Tensor;

fn leaf(x: &Tensor) -> Tensor {
    x.detach().requires_grad_(true)
}

/// `f(x)` and `v^T J`, the vector-Jacobian product (`torch.autograd.functional.vjp`).
///
/// ```
/// use torchrs::{Tensor, autograd::vjp};
/// let (x, v) = (Tensor::from([1f64, 2.]), Tensor::from([1f64, 10.]));
/// let (y, product) = vjp(|x| x * x, &x, &v);
/// assert_eq!((y.to_vec::<f64>(), product.to_vec::<f64>()), (vec![1., 4.], vec![2., 40.]));
/// ```
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) when `v` is not shaped like `f(x)`.
#[track_caller]
pub fn vjp(f: impl Fn(&Tensor) -> Tensor, x: &Tensor, v: &Tensor) -> (Tensor, Tensor) {
    let x = leaf(x);
    let y = enable_grad(|| f(&x));
    let product = match y.requires_grad() {
        true => grad(&[&y], &[&x], &[Some(v)], false, false).swap_remove(0),
        false => None,
    };
    (y.detach(), product.unwrap_or_else(|| x.zeros_like()))
}

/// `f(x)` and `J v`, the Jacobian-vector product (`torch.autograd.functional.jvp`): the derivative of
/// `v^T J` by v, which two passes of backward give.
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) when `v` is not shaped like `x`.
#[track_caller]
pub fn jvp(f: impl Fn(&Tensor) -> Tensor, x: &Tensor, v: &Tensor) -> (Tensor, Tensor) {
    let x = leaf(x);
    let y = enable_grad(|| f(&x));
    if !y.requires_grad() {
        return (y.detach(), y.zeros_like());
    }
    let u = y.zeros_like().requires_grad_(true);
    let by_x = grad(&[&y], &[&x], &[Some(&u)], true, true).swap_remove(0);
    let product = by_x
        .filter(Tensor::requires_grad)
        .and_then(|g| grad(&[&g], &[&u], &[Some(v)], false, false).swap_remove(0));
    (y.detach(), product.unwrap_or_else(|| u.detach()))
}

/// The Jacobian of `f` at `x`, of shape `f(x).shape + x.shape` (`torch.autograd.functional.jacobian`).
///
/// ```
/// use torchrs::{Tensor, autograd::jacobian};
/// let j = jacobian(|x| x * x, &Tensor::from([1f64, 2.]));
/// assert_eq!(j.to_vec::<f64>(), [2., 0., 0., 4.]);
/// ```
#[track_caller]
pub fn jacobian(f: impl Fn(&Tensor) -> Tensor, x: &Tensor) -> Tensor {
    rows(&f, &leaf(x), false)
}

/// The second derivatives of `f`, which gives one number, at `x`: shape `x.shape + x.shape`
/// (`torch.autograd.functional.hessian`).
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) when `f(x)` has more than one element.
#[track_caller]
pub fn hessian(f: impl Fn(&Tensor) -> Tensor, x: &Tensor) -> Tensor {
    let gradient = |x: &Tensor| {
        let y = f(x);
        let found = match y.requires_grad() {
            true => grad(&[&y], &[x], &[None], true, true).swap_remove(0),
            false => None,
        };
        found.unwrap_or_else(|| x.zeros_like())
    };
    rows(&gradient, &leaf(x), false)
}

/// One backward pass per element of `f(x)`.
#[track_caller]
fn rows(f: &dyn Fn(&Tensor) -> Tensor, x: &Tensor, create_graph: bool) -> Tensor {
    let y = enable_grad(|| f(x));
    let mut shape: Vec<i64> = y.shape().iter().map(|&n| n as i64).collect();
    shape.extend(x.shape().iter().map(|&n| n as i64));
    let flat = enable_grad(|| y.reshape([-1]));
    let row = |i: usize| {
        let element = enable_grad(|| flat.select(0, i as i64));
        let found = match y.requires_grad() {
            true => grad(&[&element], &[x], &[None], true, create_graph).swap_remove(0),
            false => None,
        };
        found.unwrap_or_else(|| x.zeros_like())
    };
    let rows: Vec<Tensor> = (0..y.numel()).map(row).collect();
    match rows.is_empty() {
        true => Tensor::zeros(shape.iter().map(|&n| n as usize).collect::<Vec<_>>(), x.dtype()),
        false => Tensor::stack(&rows, 0).reshape(&shape[..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_matrices_agree() {
        let x = Tensor::from([[0.5f64, -1.0, 2.0], [0.1, 0.7, -0.3]]);
        let f = |x: &Tensor| x.sin().matmul(&x.t()).reshape([-1]);
        let j = jacobian(f, &x).reshape([4, 6]);
        let v = Tensor::from([[1.0f64, 0.5, -2.0], [0.25, 3.0, 1.0]]);
        let (y, forward) = jvp(f, &x, &v);
        assert_eq!(y.to_vec::<f64>(), f(&x).to_vec::<f64>());
        let want = j.mv(&v.reshape([-1]));
        let near = |a: &Tensor, b: &Tensor| {
            let pairs = a.to_vec::<f64>().into_iter().zip(b.to_vec::<f64>());
            assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-12), "{a:?} {b:?}");
        };
        near(&forward, &want);
        let u = Tensor::from([1.0f64, -1.0, 0.5, 2.0]);
        near(&vjp(f, &x, &u).1.reshape([-1]), &j.t().mv(&u));
        // x^T A x has the Hessian A + A^T.
        let a = Tensor::from([[1.0f64, 2.0], [5.0, -3.0]]);
        let quadratic = |x: &Tensor| x.dot(&a.mv(x));
        near(&hessian(quadratic, &Tensor::from([0.3f64, 0.4])), &(&a + a.t()));
        // Of a linear function the Jacobian is there and the Hessian is zero.
        assert_eq!(hessian(|x| x.sum(), &Tensor::from([1.0f64, 2.0])).to_vec::<f64>(), [0.0; 4]);
    }
}
