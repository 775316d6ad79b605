//! Derivatives against finite differences (`torch.autograd.gradcheck`).

use super::GraphMode;
use super::forward_ad::{dual_level, make_dual, unpack_dual};
use super::{grad, no_grad};
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

/// Step and tolerances of [`gradcheck`].
///
/// ```
/// use torchrs::autograd::{GradcheckOptions, gradcheck};
/// let x = torchrs::Tensor::from([0.5f64]).requires_grad_(true);
/// let options = GradcheckOptions { check_forward_ad: true, ..Default::default() };
/// assert!(gradcheck(|t| t[0].tanh(), &[&x], options).is_ok());
/// assert!(gradcheck(|t| t[0].detach() * &t[0], &[&x], options).is_err()); // half of the gradient
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradcheckOptions {
    /// Step of the central differences.
    pub eps: f64,
    /// Absolute tolerance.
    pub atol: f64,
    /// Relative tolerance.
    pub rtol: f64,
    /// Compares forward-mode derivatives too.
    pub check_forward_ad: bool,
}

impl Default for GradcheckOptions {
    /// PyTorch's.
    fn default() -> Self {
        GradcheckOptions { eps: 1e-6, atol: 1e-5, rtol: 1e-3, check_forward_ad: false }
    }
}

/// Compares the gradients of `f` by each input that requires one with central differences
/// (`torch.autograd.gradcheck`), element by element: made for small f64 and c128 inputs. Complex
/// tensors are taken as pairs of real ones. Inputs stay on their devices.
///
/// ```
/// use torchrs::{Tensor, autograd::gradcheck};
/// let x = Tensor::from([0.3f64, -0.7]).requires_grad_(true);
/// gradcheck(|x| x[0].sin() * &x[0], &[&x], Default::default()).unwrap();
/// ```
///
/// # Errors
/// [`Error::Autograd`] that names the first input and element that differ, or an input that is not f64 or
/// c128; when no input or not the output requires a gradient.
pub fn gradcheck(
    f: impl Fn(&[Tensor]) -> Tensor,
    inputs: &[&Tensor],
    options: GradcheckOptions,
) -> Result<()> {
    let complex: Vec<bool> = inputs.iter().map(|t| t.is_complex()).collect();
    let f = |all: &[Tensor]| {
        let join = |(t, complex): (&Tensor, &bool)| match complex {
            // Also where only values are asked for: `gradgradcheck` takes gradients by it.
            true => super::enable_grad(|| t.view_as_complex()),
            false => t.clone(),
        };
        let y = f(&all.iter().zip(&complex).map(join).collect::<Vec<_>>());
        if y.is_complex() { y.view_as_real() } else { y }
    };
    let inputs = leaves(inputs)?;
    let wanted: Vec<usize> = (0..inputs.len()).filter(|&i| inputs[i].requires_grad()).collect();
    if wanted.is_empty() {
        return Err(Error::Autograd("gradcheck: no input requires a gradient".into()));
    }
    let y = f(&inputs);
    let w = weights(&y);
    if !y.requires_grad() {
        return Err(Error::Autograd("gradcheck: the output does not require a gradient".into()));
    }
    let by: Vec<&Tensor> = wanted.iter().map(|&i| &inputs[i]).collect();
    let grads = grad(&[&y], &by, &[Some(&w)], GraphMode::Free);
    let value = |inputs: &[Tensor]| no_grad(|| (f(inputs) * &w).sum().item());
    for (&i, analytic) in wanted.iter().zip(&grads) {
        let zeros = || inputs[i].zeros_like();
        let analytic = analytic.clone().unwrap_or_else(zeros).to_vec::<f64>();
        for (k, &a) in analytic.iter().enumerate() {
            let at = |step: f64| value(&moved(&inputs, i, k, step));
            let n = (at(options.eps) - at(-options.eps)) / (2.0 * options.eps);
            if !near(a, n, options) {
                return Err(Error::Autograd(format!(
                    "gradcheck: the gradient by element {k} of input {i} is {a}, finite differences \
                     give {n}"
                )));
            }
        }
    }
    if options.check_forward_ad { forward(&f, &inputs, &wanted, &w, options) } else { Ok(()) }
}

/// NaN is near nothing.
fn near(a: f64, n: f64, options: GradcheckOptions) -> bool {
    (a - n).abs() <= options.atol + options.rtol * n.abs()
}

/// Compares the derivative along one direction for all inputs, weighted, with differences.
fn forward(
    f: &dyn Fn(&[Tensor]) -> Tensor,
    inputs: &[Tensor],
    wanted: &[usize],
    w: &Tensor,
    options: GradcheckOptions,
) -> Result<()> {
    let mut directions: Vec<Tensor> = inputs.iter().map(Tensor::zeros_like).collect();
    for &i in wanted {
        directions[i] = weights(&inputs[i]);
        let duals = || -> Vec<Tensor> {
            let dual = |(x, v): (&Tensor, &Tensor)| make_dual(&x.detach(), v);
            let plain = |(k, pair): (usize, (&Tensor, &Tensor))| match wanted.contains(&k) {
                true => dual(pair),
                false => pair.0.clone(),
            };
            inputs.iter().zip(&directions).enumerate().map(plain).collect()
        };
        let tangent = dual_level(|| unpack_dual(&f(&duals())).tangent);
        let a = tangent.map_or(0.0, |t| (t.detach() * w).sum().item());
        let at = |step: f64| {
            let moved = |(x, v): (&Tensor, &Tensor)| match x.requires_grad() {
                true => (x.detach() + v * step).requires_grad_(true),
                false => x.clone(),
            };
            let inputs: Vec<Tensor> = inputs.iter().zip(&directions).map(moved).collect();
            no_grad(|| (f(&inputs) * w).sum().item())
        };
        let n = (at(options.eps) - at(-options.eps)) / (2.0 * options.eps);
        if !near(a, n, options) {
            return Err(Error::Autograd(format!(
                "gradcheck: the forward-mode derivative along a direction of inputs up to {i} is {a}, \
                 finite differences give {n}"
            )));
        }
    }
    Ok(())
}

/// [`gradcheck`] of the gradient of `f`, as a function of the inputs and of the output's gradient
/// (`torch.autograd.gradgradcheck`).
///
/// ```
/// use torchrs::{Tensor, autograd::gradgradcheck};
/// let x = Tensor::from([0.3f64, -0.7]).requires_grad_(true);
/// assert!(gradgradcheck(|t| t[0].sin() * &t[0], &[&x], Default::default()).is_ok());
/// assert!(gradgradcheck(|t| t[0].detach() * &t[0], &[&x], Default::default()).is_err());
/// ```
///
/// # Errors
/// As [`gradcheck`].
pub fn gradgradcheck(
    f: impl Fn(&[Tensor]) -> Tensor,
    inputs: &[&Tensor],
    options: GradcheckOptions,
) -> Result<()> {
    let y = no_grad(|| f(&inputs.iter().map(|t| (*t).clone()).collect::<Vec<_>>()));
    let w = weights(&y).requires_grad_(true);
    let first = |all: &[Tensor]| {
        let (w, inputs) = all.split_last().expect("the weights are there");
        let y = f(inputs);
        let by: Vec<&Tensor> = inputs.iter().filter(|t| t.requires_grad()).collect();
        let zeros = |(g, t): (Option<Tensor>, &&Tensor)| g.unwrap_or_else(|| t.zeros_like());
        let grads = grad(&[&y], &by, &[Some(w)], GraphMode::Create);
        let real = |g: Tensor| if g.is_complex() { g.view_as_real() } else { g };
        let flat: Vec<Tensor> =
            grads.into_iter().zip(&by).map(|p| real(zeros(p)).reshape([-1])).collect();
        Tensor::cat(&flat, 0)
    };
    // Differences run without recording, but the gradient inside must be recorded.
    let recorded = |all: &[Tensor]| {
        super::enable_grad(|| {
            let all: Vec<Tensor> = all
                .iter()
                .map(|t| if t.requires_grad() { t.clone() } else { t.detach() })
                .collect();
            first(&all)
        })
    };
    let mut all = inputs.to_vec();
    all.push(&w);
    gradcheck(recorded, &all, options)
}

/// Copies that are leaves; f64 only, pairs for complex numbers.
fn leaves(inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let leaf = |(i, t): (usize, &&Tensor)| match (t.requires_grad(), t.dtype()) {
        (requires_grad, Dtype::C128) => {
            Ok(t.detach().view_as_real().detach().requires_grad_(requires_grad))
        }
        (false, Dtype::C64) => Ok(t.detach().view_as_real().detach()),
        (true, Dtype::F64) => Ok(t.detach().requires_grad_(true)),
        (true, other) => Err(Error::Autograd(format!(
            "gradcheck: input {i} is {other}; finite differences need f64 or c128"
        ))),
        (false, _) => Ok((*t).clone()),
    };
    inputs.iter().enumerate().map(leaf).collect()
}

/// Fixed numbers between -1 and 1, none of them 0, so that the whole Jacobian is tried at once.
fn weights(like: &Tensor) -> Tensor {
    let number = |i: usize| ((i * 7 + 3) % 17) as f64 / 8.5 - 1.0;
    if like.is_complex() {
        return weights(&like.detach().view_as_real()).view_as_complex().detach();
    }
    let data: Vec<f64> = (0..like.numel()).map(number).collect();
    Tensor::from_slice(&data, like.shape()).to_dtype(like.dtype()).to_device(like.device())
}

/// The inputs with element `k` of input `i` moved.
fn moved(inputs: &[Tensor], i: usize, k: usize, step: f64) -> Vec<Tensor> {
    let mut data = inputs[i].to_vec::<f64>();
    data[k] += step;
    let mut all = inputs.to_vec();
    let values = Tensor::from_slice(&data, inputs[i].shape()).to_device(inputs[i].device());
    all[i] = values.requires_grad_(true);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd::record;

    #[test]
    fn right_derivatives_pass_twice_and_a_wrong_one_is_named() {
        let x = Tensor::from([0.3f64, -0.7, 1.9]).requires_grad_(true);
        let y = Tensor::from([1.3f64, 0.4, -0.2]).requires_grad_(true);
        let f = |t: &[Tensor]| t[0].sin() * t[1].exp() * &t[0];
        gradcheck(f, &[&x, &y], Default::default()).unwrap();
        gradgradcheck(f, &[&x, &y], Default::default()).unwrap();
        let wrong = |t: &[Tensor]| {
            let y = no_grad(|| &t[0] * &t[0]);
            record("wrong", &[&t[0]], y, |saver| {
                let x = saver.save(&t[0]);
                move |ctx| [Some(ctx.grad(0) * ctx.get(&x))].into_iter().collect()
            })
        };
        let error = gradcheck(wrong, &[&x], Default::default()).unwrap_err().to_string();
        assert!(error.contains("element 0 of input 0"), "{error}");
    }

    #[test]
    fn forward_mode_is_checked_and_nothing_passes_by_being_nan_or_absent() {
        let x = Tensor::from([0.3f64, -0.7, 1.9]).requires_grad_(true);
        let options = GradcheckOptions { check_forward_ad: true, ..Default::default() };
        gradcheck(|t| t[0].sin() * t[0].exp(), &[&x], options).unwrap();
        let nan = |t: &[Tensor]| (&t[0] - 10.0).sqrt();
        assert!(gradcheck(nan, &[&x], Default::default()).is_err());
        let error = gradcheck(|t| t[0].sin(), &[&x.detach()], options).unwrap_err().to_string();
        assert!(error.contains("no input"), "{error}");
        assert!(
            weights(&Tensor::zeros([34], Dtype::F64)).to_vec::<f64>().iter().all(|w| *w != 0.0)
        );
    }
}
