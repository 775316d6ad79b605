//! Jacobians and Hessians as matrices: one pass per row, or one run per column.

use super::{Options, Strategy, enter, gradients, jvp_with, leave};
use crate::autograd::enable_grad;
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// The Jacobian of a function of several tensors: for each output and each input a tensor of shape
/// `output.shape + input.shape` (`torch.autograd.functional.jacobian`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::autograd::functional::{Options, Strategy, jacobian_with};
/// let (a, b) = (Tensor::from([2f64]), Tensor::from([3f64, 4.]));
/// let options = Options { strategy: Strategy::ForwardMode, ..Default::default() };
/// let j = jacobian_with(|x| vec![&x[0] * &x[1]], &[&a, &b], options);
/// assert_eq!(j[0][0].to_vec::<f64>(), [3.0, 4.0]);
/// assert_eq!(j[0][1].to_vec::<f64>(), [2.0, 0.0, 0.0, 2.0]);
/// ```
///
/// # Panics
/// Throws as [`Options::strict`] says, and for forward mode together with `create_graph`, as in PyTorch.
#[track_caller]
pub fn jacobian_with(
    f: impl Fn(&[Tensor]) -> Vec<Tensor>,
    inputs: &[&Tensor],
    options: Options,
) -> Vec<Vec<Tensor>> {
    match (options.strategy, options.create_graph) {
        (Strategy::ReverseMode, _) => rows(&f, &enter(inputs, options.create_graph), options),
        (Strategy::ForwardMode, false) => columns(&f, inputs, options),
        (Strategy::ForwardMode, true) => throw(Error::argument(
            "jacobian",
            "strategy",
            "forward mode cannot be combined with create_graph; use the reverse mode",
        )),
    }
}

/// The second derivatives of a function of several tensors that gives one number: for each two inputs a
/// tensor of shape `first.shape + second.shape` (`torch.autograd.functional.hessian`). The strategy is that
/// of the outer derivative.
///
/// ```
/// use torchrs::{Tensor, autograd::functional::hessian_with};
/// let (a, b) = (Tensor::from([2f64]), Tensor::from([3f64]));
/// let h = hessian_with(|x| &x[0] * &x[0] * &x[1], &[&a, &b], Default::default());
/// assert_eq!([0, 1].map(|i| [0, 1].map(|j| h[i][j].item())), [[6.0, 4.0], [4.0, 0.0]]);
/// ```
///
/// # Panics
/// As [`hessian`](super::hessian) and [`jacobian_with`].
#[track_caller]
pub fn hessian_with(
    f: impl Fn(&[Tensor]) -> Tensor,
    inputs: &[&Tensor],
    options: Options,
) -> Vec<Vec<Tensor>> {
    let gradient = |x: &[Tensor]| {
        // In forward mode the tangents, in reverse mode the histories go through the gradient.
        let reverse = options.strategy == Strategy::ReverseMode;
        let own = |t: &Tensor| if reverse { t.clone() } else { enter_dual(t) };
        let x: Vec<Tensor> = x.iter().map(own).collect();
        let y = enable_grad(|| f(&x));
        if y.numel() != 1 {
            let shape = y.shape();
            throw(Error::shape(
                "hessian",
                format!("the function gave shape {shape:?}; one number is needed"),
            ));
        }
        gradients("hessian", &[y], &x, &[None], reverse, options.strict)
    };
    jacobian_with(gradient, inputs, options)
}

/// A dual tensor to differentiate by in reverse too.
fn enter_dual(t: &Tensor) -> Tensor {
    t.detach_with_tangent().requires_grad_(true)
}

/// One backward pass per element of the outputs.
#[track_caller]
fn rows(
    f: &dyn Fn(&[Tensor]) -> Vec<Tensor>,
    inputs: &[Tensor],
    options: Options,
) -> Vec<Vec<Tensor>> {
    let Options { create_graph, strict, .. } = options;
    let of_output = |y: &Tensor| {
        let flat = enable_grad(|| y.reshape([-1]));
        let row = |i: usize| {
            let element = enable_grad(|| flat.select(0, i as i64));
            gradients("jacobian", &[element], inputs, &[None], create_graph, strict)
        };
        let rows: Vec<Vec<Tensor>> = (0..y.numel()).map(row).collect();
        let by_input = |(k, x): (usize, &Tensor)| {
            let shape = [y.shape(), x.shape()].concat();
            let part: Vec<Tensor> = rows.iter().map(|row| row[k].clone()).collect();
            stack(&part, 0, &shape, x)
        };
        leave(inputs.iter().enumerate().map(by_input).collect(), create_graph)
    };
    enable_grad(|| f(inputs)).iter().map(of_output).collect()
}

/// One run in forward mode per element of the inputs.
#[track_caller]
fn columns(
    f: &dyn Fn(&[Tensor]) -> Vec<Tensor>,
    inputs: &[&Tensor],
    options: Options,
) -> Vec<Vec<Tensor>> {
    let zeros: Vec<Tensor> = inputs.iter().map(|x| x.zeros_like()).collect();
    let along = |k: usize, i: usize| {
        let mut unit = vec![0.0; inputs[k].numel()];
        unit[i] = 1.0;
        let unit = Tensor::from_slice(&unit, inputs[k].shape()).to_dtype(inputs[k].dtype());
        let mut v: Vec<&Tensor> = zeros.iter().collect();
        v[k] = &unit;
        jvp_with(f, inputs, &v, options)
    };
    // For the outputs' shapes, also where no input has elements.
    let outputs = f(&inputs.iter().map(|x| x.detach()).collect::<Vec<_>>());
    let mut matrix: Vec<Vec<Tensor>> = outputs.iter().map(|_| Vec::new()).collect();
    for (k, x) in inputs.iter().enumerate() {
        let columns: Vec<Vec<Tensor>> = (0..x.numel()).map(|i| along(k, i).1).collect();
        for (o, y) in outputs.iter().enumerate() {
            let part: Vec<Tensor> = columns.iter().map(|c| c[o].clone()).collect();
            matrix[o].push(stack(&part, -1, &[y.shape(), x.shape()].concat(), y));
        }
    }
    matrix
}

/// The parts along a new dimension, in that shape.
fn stack(parts: &[Tensor], dim: i64, shape: &[usize], like: &Tensor) -> Tensor {
    if parts.is_empty() {
        return Tensor::zeros(shape, (like.dtype(), like.device()));
    }
    enable_grad(|| Tensor::stack(parts, dim).reshape_to(shape))
}
