//! Products of Jacobians and Hessians with vectors, which need no matrix.

use super::{Options, check_vectors, enter, gradients, independent, leave};
use crate::autograd::{
    enable_grad, forward_ad::dual_level, forward_ad::make_dual, forward_ad::unpack_dual,
};
use crate::tensor::Tensor;

/// `f(inputs)` and the product of a vector for each output with the Jacobian: one tensor for each input
/// (`torch.autograd.functional.vjp`).
///
/// ```
/// use torchrs::{Tensor, autograd::functional::vjp_with};
/// let (a, b, v) = (Tensor::from([2f64]), Tensor::from([3f64]), Tensor::from([10f64]));
/// let (y, g) = vjp_with(|x| vec![&x[0] * &x[1]], &[&a, &b], &[&v], Default::default());
/// assert_eq!((y[0].item(), g[0].item(), g[1].item()), (6.0, 30.0, 20.0));
/// ```
///
/// # Panics
/// As [`vjp`](super::vjp), and as [`Options::strict`] says.
#[track_caller]
pub fn vjp_with(
    f: impl Fn(&[Tensor]) -> Vec<Tensor>,
    inputs: &[&Tensor],
    v: &[&Tensor],
    options: Options,
) -> (Vec<Tensor>, Vec<Tensor>) {
    let Options { create_graph, strict, .. } = options;
    let inputs = enter(inputs, create_graph);
    let outputs = enable_grad(|| f(&inputs));
    check_vectors("vjp", "outputs", &outputs, v);
    let vs: Vec<Option<&Tensor>> = v.iter().map(|v| Some(*v)).collect();
    let product = gradients("vjp", &outputs, &inputs, &vs, create_graph, strict);
    (leave(outputs, create_graph), leave(product, create_graph))
}

/// `f(inputs)` and the product of the Jacobian with a vector for each input: one tensor for each output
/// (`torch.autograd.functional.jvp`).
///
/// ```
/// use torchrs::{Tensor, autograd::functional::jvp_with};
/// let (a, b) = (Tensor::from([2f64]), Tensor::from([3f64]));
/// let (v, w) = (Tensor::from([1f64]), Tensor::from([10f64]));
/// let (y, t) = jvp_with(|x| vec![&x[0] * &x[1]], &[&a, &b], &[&v, &w], Default::default());
/// assert_eq!((y[0].item(), t[0].item()), (6.0, 23.0));
/// ```
///
/// # Panics
/// As [`jvp`](super::jvp), and as [`Options::strict`] says.
#[track_caller]
pub fn jvp_with(
    f: impl Fn(&[Tensor]) -> Vec<Tensor>,
    inputs: &[&Tensor],
    v: &[&Tensor],
    options: Options,
) -> (Vec<Tensor>, Vec<Tensor>) {
    let create_graph = options.create_graph;
    check_vectors("jvp", "inputs", inputs, v);
    let own = |t: &&Tensor| if create_graph { (*t).clone() } else { t.detach() };
    let inputs: Vec<Tensor> = inputs.iter().map(own).collect();
    let (outputs, product) = dual_level(|| {
        let duals: Vec<Tensor> = inputs.iter().zip(v).map(|(x, v)| make_dual(x, v)).collect();
        let parts = enable_grad(|| f(&duals)).into_iter().enumerate().map(|(i, y)| {
            let y = unpack_dual(&y);
            let tangent = match y.tangent {
                None if options.strict => {
                    independent("jvp", &format!("output {i} does not depend on any input"))
                }
                tangent => tangent.unwrap_or_else(|| y.primal.zeros_like()),
            };
            (y.primal, tangent)
        });
        parts.unzip()
    });
    (leave(outputs, create_graph), leave(product, create_graph))
}

/// `f(inputs)`, a number, and the product of its second derivatives with a vector for each input
/// (`torch.autograd.functional.hvp`). With `create_graph` by two passes of backward, else by one, in
/// forward mode.
///
/// ```
/// use torchrs::{Tensor, autograd::functional::hvp_with};
/// let (a, b) = (Tensor::from([2f64]), Tensor::from([3f64]));
/// let (v, w) = (Tensor::from([1f64]), Tensor::from([10f64]));
/// let f = |x: &[Tensor]| &x[0] * &x[0] * &x[1];
/// let (y, h) = hvp_with(f, &[&a, &b], &[&v, &w], Default::default());
/// assert_eq!((y.item(), h[0].item(), h[1].item()), (12.0, 46.0, 4.0));
/// ```
///
/// # Panics
/// As [`hvp`](super::hvp), and as [`Options::strict`] says.
#[track_caller]
pub fn hvp_with(
    f: impl Fn(&[Tensor]) -> Tensor,
    inputs: &[&Tensor],
    v: &[&Tensor],
    options: Options,
) -> (Tensor, Vec<Tensor>) {
    if options.create_graph {
        // The matrix is symmetric.
        return vhp_with(f, inputs, v, options);
    }
    check_vectors("hvp", "inputs", inputs, v);
    let inputs = enter(inputs, false);
    dual_level(|| {
        let duals: Vec<Tensor> = inputs.iter().zip(v).map(|(x, v)| make_dual(x, v)).collect();
        let y = enable_grad(|| f(&duals));
        let first =
            gradients("hvp", std::slice::from_ref(&y), &duals, &[None], false, options.strict);
        let tangent = |(i, g): (usize, &Tensor)| match unpack_dual(g).tangent {
            None if options.strict => {
                independent("hvp", &format!("the gradient by input {i} does not depend on any"))
            }
            tangent => tangent.map_or_else(|| g.zeros_like(), |t| t.detach()),
        };
        (y.detach(), first.iter().enumerate().map(tangent).collect())
    })
}

/// `f(inputs)`, a number, and the product of a vector for each input with its second derivatives
/// (`torch.autograd.functional.vhp`), by two passes of backward.
///
/// ```
/// use torchrs::{Tensor, autograd::functional::vhp_with};
/// let (a, b) = (Tensor::from([2f64]), Tensor::from([3f64]));
/// let (v, w) = (Tensor::from([1f64]), Tensor::from([10f64]));
/// let f = |x: &[Tensor]| &x[0] * &x[0] * &x[1];
/// let (y, h) = vhp_with(f, &[&a, &b], &[&v, &w], Default::default());
/// assert_eq!((y.item(), h[0].item(), h[1].item()), (12.0, 46.0, 4.0));
/// ```
///
/// # Panics
/// As [`vhp`](super::vhp), and as [`Options::strict`] says.
#[track_caller]
pub fn vhp_with(
    f: impl Fn(&[Tensor]) -> Tensor,
    inputs: &[&Tensor],
    v: &[&Tensor],
    options: Options,
) -> (Tensor, Vec<Tensor>) {
    let Options { create_graph, strict, .. } = options;
    check_vectors("vhp", "inputs", inputs, v);
    let inputs = enter(inputs, create_graph);
    let y = enable_grad(|| f(&inputs));
    let first = gradients("vhp", std::slice::from_ref(&y), &inputs, &[None], true, strict);
    let vs: Vec<Option<&Tensor>> = v.iter().map(|v| Some(*v)).collect();
    let product = gradients("vhp", &first, &inputs, &vs, create_graph, strict);
    (leave(vec![y], create_graph).swap_remove(0), leave(product, create_graph))
}
