//! Derivatives of functions (`torch.autograd.functional`).
//!
//! The short forms ([`vjp`], [`jvp`], [`jacobian`], [`hessian`], [`hvp`], [`vhp`]) take a function of one
//! tensor; those that end in `_with` take several tensors, and [`Options`].
//!
//! ```
//! use torchrs::{Tensor, autograd::functional};
//! let x = Tensor::from([1f64, 2.]);
//! let f = |x: &Tensor| (x * x).sum();
//! assert_eq!(functional::jacobian(f, &x).to_vec::<f64>(), [2.0, 4.0]);
//! assert_eq!(functional::hessian(f, &x).to_vec::<f64>(), [2.0, 0.0, 0.0, 2.0]);
//! ```

mod matrices;
mod products;

pub use matrices::{hessian_with, jacobian_with};
pub use products::{hvp_with, jvp_with, vhp_with, vjp_with};

use super::GraphMode;
use super::{enable_grad, grad};
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// How derivatives are computed.
///
/// ```
/// use torchrs::autograd::functional::{Options, jacobian_with};
/// use torchrs::{Tensor, catch};
/// let (a, b) = (Tensor::from([2f64]), Tensor::from([3f64]));
/// let f = |x: &[Tensor]| vec![&x[0] * 5.0]; // of the first one only
/// let j = jacobian_with(f, &[&a, &b], Options::default());
/// assert_eq!((j[0][0].item(), j[0][1].item()), (5.0, 0.0));
/// let strict = Options { strict: true, ..Default::default() };
/// assert!(catch(|| jacobian_with(f, &[&a, &b], strict)).is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The results can be differentiated, by the inputs too.
    pub create_graph: bool,
    /// An output that does not depend on an input is an error; else its derivative is zero.
    pub strict: bool,
    /// For Jacobians and Hessians: which way the (outer) derivative is taken.
    pub strategy: Strategy,
}

/// Which way a Jacobian is computed.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::autograd::functional::{Options, Strategy, jacobian_with};
/// let x = Tensor::from([1f64, 2.]);
/// let jacobian = |strategy| {
///     let options = Options { strategy, ..Default::default() };
///     jacobian_with(|x| vec![&x[0] * &x[0]], &[&x], options)[0][0].to_vec::<f64>()
/// };
/// assert_eq!(jacobian(Strategy::ReverseMode), [2.0, 0.0, 0.0, 4.0]);
/// assert_eq!(jacobian(Strategy::ForwardMode), [2.0, 0.0, 0.0, 4.0]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// Row by row: one backward per element of the outputs.
    #[default]
    ReverseMode,
    /// Column by column: one forward run per element of the inputs.
    ForwardMode,
}

/// A function of one tensor as one of several.
fn single(f: impl Fn(&Tensor) -> Tensor) -> impl Fn(&[Tensor]) -> Vec<Tensor> {
    move |x| vec![f(&x[0])]
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
/// Throws [`Error::Shape`] when `v` is not shaped like `f(x)`.
#[track_caller]
pub fn vjp(f: impl Fn(&Tensor) -> Tensor, x: &Tensor, v: &Tensor) -> (Tensor, Tensor) {
    let (mut y, mut product) = vjp_with(single(f), &[x], &[v], Options::default());
    (y.swap_remove(0), product.swap_remove(0))
}

/// `f(x)` and `J v`, the Jacobian-vector product (`torch.autograd.functional.jvp`), in one run of `f` in
/// [forward mode](super::forward_ad).
///
/// ```
/// use torchrs::{Tensor, autograd::jvp};
/// let (x, v) = (Tensor::from([1f64, 2.]), Tensor::from([1f64, 10.]));
/// let (y, product) = jvp(|x| (x * x).sum(), &x, &v);
/// assert_eq!((y.item(), product.item()), (5.0, 42.0));
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when `v` is not shaped like `x`, and [`Error::Autograd`] inside a dual level.
#[track_caller]
pub fn jvp(f: impl Fn(&Tensor) -> Tensor, x: &Tensor, v: &Tensor) -> (Tensor, Tensor) {
    let (mut y, mut product) = jvp_with(single(f), &[x], &[v], Options::default());
    (y.swap_remove(0), product.swap_remove(0))
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
    jacobian_with(single(f), &[x], Options::default()).swap_remove(0).swap_remove(0)
}

/// The second derivatives of `f`, which gives one number, at `x`: shape `x.shape + x.shape`
/// (`torch.autograd.functional.hessian`).
///
/// ```
/// use torchrs::{Tensor, autograd::hessian};
/// let h = hessian(|x| (x * x * x).sum(), &Tensor::from([1f64, 2.]));
/// assert_eq!(h.to_vec::<f64>(), [6.0, 0.0, 0.0, 12.0]);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when `f(x)` has more than one element.
#[track_caller]
pub fn hessian(f: impl Fn(&Tensor) -> Tensor, x: &Tensor) -> Tensor {
    hessian_with(|x| f(&x[0]), &[x], Options::default()).swap_remove(0).swap_remove(0)
}

/// `f(x)` and `H v`, the product of the second derivatives of `f`, which gives one number, with a vector
/// (`torch.autograd.functional.hvp`): the derivative of the gradient along `v`, in forward mode.
///
/// ```
/// use torchrs::{Tensor, autograd::hvp};
/// let (x, v) = (Tensor::from([1f64, 2.]), Tensor::from([1f64, 10.]));
/// assert_eq!(hvp(|x| (x * x * x).sum(), &x, &v).1.to_vec::<f64>(), [6.0, 120.0]);
/// ```
///
/// # Panics
/// As [`hessian`] and [`jvp`].
#[track_caller]
pub fn hvp(f: impl Fn(&Tensor) -> Tensor, x: &Tensor, v: &Tensor) -> (Tensor, Tensor) {
    let (y, mut product) = hvp_with(|x| f(&x[0]), &[x], &[v], Options::default());
    (y, product.swap_remove(0))
}

/// `f(x)` and `v^T H` (`torch.autograd.functional.vhp`), by two passes of backward.
///
/// ```
/// use torchrs::{Tensor, autograd::vhp};
/// let (x, v) = (Tensor::from([1f64, 2.]), Tensor::from([1f64, 10.]));
/// let (y, product) = vhp(|x| (x * x * x).sum(), &x, &v);
/// assert_eq!((y.item(), product.to_vec::<f64>()), (9.0, vec![6.0, 120.0]));
/// ```
///
/// # Panics
/// As [`hessian`], and when `v` is not shaped like `x`.
#[track_caller]
pub fn vhp(f: impl Fn(&Tensor) -> Tensor, x: &Tensor, v: &Tensor) -> (Tensor, Tensor) {
    let (y, mut product) = vhp_with(|x| f(&x[0]), &[x], &[v], Options::default());
    (y, product.swap_remove(0))
}

/// The inputs as tensors to differentiate by: connected with the given ones if the result is to be.
fn enter(inputs: &[&Tensor], create_graph: bool) -> Vec<Tensor> {
    let own = |t: &&Tensor| match create_graph && t.requires_grad() {
        true => enable_grad(|| t.view_as(t)),
        false => t.detach().requires_grad_(true),
    };
    inputs.iter().map(own).collect()
}

/// The results as the caller gets them.
fn leave(tensors: Vec<Tensor>, create_graph: bool) -> Vec<Tensor> {
    match create_graph {
        true => tensors,
        false => tensors.iter().map(Tensor::detach).collect(),
    }
}

/// The gradients of `outputs` by `inputs`; zeros where there is none, unless that is to be an error.
#[track_caller]
fn gradients(
    op: &str,
    outputs: &[Tensor],
    inputs: &[Tensor],
    vs: &[Option<&Tensor>],
    create_graph: bool,
    strict: bool,
) -> Vec<Tensor> {
    if strict && let Some(i) = outputs.iter().position(|y| !y.requires_grad()) {
        independent(op, &format!("output {i} does not depend on any input"));
    }
    let (roots, vs): (Vec<&Tensor>, Vec<Option<&Tensor>>) =
        outputs.iter().zip(vs).filter(|(y, _)| y.requires_grad()).map(|(y, v)| (y, *v)).unzip();
    let found = match roots.is_empty() {
        true => vec![None; inputs.len()],
        false => {
            let inputs: Vec<&Tensor> = inputs.iter().collect();
            grad(
                &roots,
                &inputs,
                &vs,
                if create_graph { GraphMode::Create } else { GraphMode::Retain },
            )
        }
    };
    let or_zeros = |(i, g): (usize, Option<Tensor>)| match g {
        Some(g) => g,
        None if strict => independent(op, &format!("no output depends on input {i}")),
        None => inputs[i].zeros_like(),
    };
    found.into_iter().enumerate().map(or_zeros).collect()
}

#[track_caller]
fn independent(op: &str, what: &str) -> ! {
    throw(Error::Autograd(format!("{op}: {what}, which `strict` forbids")))
}

/// There must be a vector of the same shape for each tensor.
#[track_caller]
fn check_vectors(op: &str, of: &str, tensors: &[impl std::borrow::Borrow<Tensor>], vs: &[&Tensor]) {
    let shapes: Vec<&[usize]> = tensors.iter().map(|t| t.borrow().shape()).collect();
    let given: Vec<&[usize]> = vs.iter().map(|v| v.shape()).collect();
    if shapes != given {
        throw(Error::shape(op, format!("v has shapes {given:?}, the {of} have {shapes:?}")));
    }
}
