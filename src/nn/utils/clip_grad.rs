//! Gradient clipping (`torch.nn.utils.clip_grad_norm_` and relatives).

use std::sync::Arc;

use crate::autograd::{Together, check_reduced, no_grad};
use crate::error::{Error, Result, throw};
use crate::ops::gradients;
use crate::tensor::{Dtype, Tensor, promote_types};

/// Scales the gradients of `parameters` so that the norm of all of them taken together is at most
/// `max_norm`. Gives the norm before, as a 0-dim tensor. Parameters without a gradient are left out.
/// A norm that is not finite makes the gradients NaN or 0, as in PyTorch; [`clip_grad_norm_with`] can refuse it.
///
/// ```
/// use torchrs::{Tensor, nn::clip_grad_norm_};
/// let w = Tensor::from([0f32, 0.]).requires_grad_(true);
/// w.set_grad(Some(Tensor::from([3f32, 4.])));
/// assert_eq!(clip_grad_norm_(&[w.clone()], 1.0).item(), 5.0);
/// assert!((w.grad().unwrap().to_vec::<f32>()[0] - 0.6).abs() < 1e-6);
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] when `max_norm` is negative, which would turn gradients round, or NaN;
/// [`Error::Autograd`] while a module of `fully_shard` holds gradients back.
#[track_caller]
pub fn clip_grad_norm_(parameters: &[Tensor], max_norm: f64) -> Tensor {
    if let Err(error) = check("clip_grad_norm_", max_norm) {
        throw(error);
    }
    let grads = grads_of("clip_grad_norm_", parameters).unwrap_or_else(|error| throw(error));
    let norm = get_total_norm(&grads, 2.0);
    scale(&grads, max_norm, &norm);
    norm
}

/// Scales the gradients of `parameters` as [`clip_grad_norm_`] does, by a norm that is known already
/// (`torch.nn.utils.clip_grads_with_norm_`): of more gradients than these, or of all ranks.
///
/// ```
/// use torchrs::{Tensor, nn::utils::clip_grads_with_norm_};
/// let w = Tensor::from([0f64, 0.]).requires_grad_(true);
/// w.set_grad(Some(Tensor::from([3f64, 4.])));
/// clip_grads_with_norm_(&[w.clone()], 1.0, &Tensor::from([10f64]));
/// assert!((w.grad().unwrap() - Tensor::from([0.3f64, 0.4])).abs().max().item() < 1e-6);
/// ```
///
/// # Panics
/// As [`clip_grad_norm_`].
#[track_caller]
pub fn clip_grads_with_norm_(parameters: &[Tensor], max_norm: f64, total_norm: &Tensor) {
    if let Err(error) = check("clip_grads_with_norm_", max_norm) {
        throw(error);
    }
    let grads = grads_of("clip_grads_with_norm_", parameters).unwrap_or_else(|error| throw(error));
    scale(&grads, max_norm, total_norm);
}

/// [`clip_grad_norm_`] by another norm: `norm_type` is its order, which may be infinite.
///
/// ```
/// use torchrs::{Tensor, nn::clip_grad_norm_with};
/// # fn main() -> torchrs::Result<()> {
/// let w = Tensor::from([0f32, 0.]).requires_grad_(true);
/// w.set_grad(Some(Tensor::from([3f32, -4.])));
/// assert_eq!(clip_grad_norm_with(&[w.clone()], 9.0, f64::INFINITY, true)?.item(), 4.0);
/// w.set_grad(Some(Tensor::from([f32::NAN, 0.])));
/// assert!(clip_grad_norm_with(&[w], 9.0, 2.0, true).is_err());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Argument`] when `max_norm` is negative or NaN, and with `error_if_nonfinite` when the norm is
/// infinite or NaN; the gradients are then as they were. [`Error::Autograd`] while a module of `fully_shard` holds
/// gradients back.
#[track_caller]
pub fn clip_grad_norm_with(
    parameters: &[Tensor],
    max_norm: f64,
    norm_type: f64,
    error_if_nonfinite: bool,
) -> Result<Tensor> {
    check("clip_grad_norm_", max_norm)?;
    let grads = grads_of("clip_grad_norm_", parameters)?;
    let norm = get_total_norm(&grads, norm_type);
    if error_if_nonfinite && !norm.item().is_finite() {
        let message = format!(
            "the total norm of order {norm_type} is {}, so the gradients cannot be clipped; allow \
             it with error_if_nonfinite = false",
            norm.item()
        );
        return Err(Error::argument("clip_grad_norm_", "parameters", message));
    }
    scale(&grads, max_norm, &norm);
    Ok(norm)
}

/// The gradients that parameters have, once ranks have reduced them.
fn grads_of(op: &str, parameters: &[Tensor]) -> Result<Vec<Tensor>> {
    check_reduced(op, parameters)?;
    Ok(parameters.iter().filter_map(Tensor::grad).collect())
}

fn check(op: &str, max_norm: f64) -> Result<()> {
    if max_norm.is_nan() || max_norm < 0.0 {
        return Err(Error::argument(op, "max_norm", format!("{max_norm}; must be at least 0")));
    }
    Ok(())
}

/// Limits every element of the gradients of `parameters` to -`clip_value` .. `clip_value`.
///
/// ```
/// use torchrs::{Tensor, nn::clip_grad_value_};
/// let w = Tensor::from([0f32, 0.]).requires_grad_(true);
/// w.set_grad(Some(Tensor::from([3f32, -0.5])));
/// clip_grad_value_(&[w.clone()], 1.0);
/// assert_eq!(w.grad().unwrap().to_vec::<f32>(), [1.0, -0.5]);
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] when `clip_value` is negative.
#[track_caller]
pub fn clip_grad_value_(parameters: &[Tensor], clip_value: f64) {
    if clip_value.is_nan() || clip_value < 0.0 {
        let message = format!("{clip_value}; must be at least 0");
        throw(Error::argument("clip_grad_value_", "clip_value", message));
    }
    let grads = grads_of("clip_grad_value_", parameters).unwrap_or_else(|error| throw(error));
    no_grad(|| grads.iter().for_each(|grad| _ = grad.clamp_(-clip_value, clip_value)));
}

/// The norm of order `norm_type` of all tensors taken together, as a 0-dim tensor of their common
/// dtype (`torch.nn.utils.get_total_norm`). 0 when there are none.
///
/// Gradients of parameters that `fully_shard` has sharded count whole: all ranks make the call, which is one all-reduce
/// for each set of ranks between which some are sharded. What is computed from such a gradient is this rank's alone.
///
/// ```
/// use torchrs::{Tensor, nn::get_total_norm};
/// let tensors = [Tensor::from([3f32, 0.]), Tensor::from([[4f32]])];
/// assert_eq!(get_total_norm(&tensors, 2.0).item(), 5.0);
/// assert_eq!(get_total_norm(&tensors, f64::INFINITY).item(), 4.0);
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] unless the order is above 0.
#[track_caller]
pub fn get_total_norm(tensors: &[Tensor], norm_type: f64) -> Tensor {
    if norm_type.is_nan() || norm_type <= 0.0 {
        let message = format!("{norm_type}; must be above 0");
        throw(Error::argument("get_total_norm", "norm_type", message));
    }
    let dtype = tensors.iter().map(Tensor::dtype).reduce(promote_types).unwrap_or(Dtype::F32);
    if tensors.iter().any(Tensor::is_sharded) {
        return Tensor::full(
            [],
            over_ranks(tensors, norm_type).unwrap_or_else(|e| throw(e)),
            dtype,
        );
    }
    if let Some(gpu) = gradients::common_gpu(tensors) {
        return no_grad(|| gradients::total_norm(gpu, tensors, norm_type).to_dtype(dtype));
    }
    let norms = no_grad(|| {
        let norm = |t: &Tensor| t.detach().norm_dim(norm_type, &[], false).item();
        tensors.iter().filter(|t| t.numel() > 0).map(norm).collect::<Vec<f64>>()
    });
    Tensor::full([], of_norms(norms, norm_type), dtype)
}

/// Of the parts' norms, in f64: the same norm again.
fn of_norms(norms: impl IntoIterator<Item = f64>, norm_type: f64) -> f64 {
    let norms = norms.into_iter();
    match norm_type.is_infinite() {
        true => norms.fold(0.0, |most, n| if n > most || n.is_nan() { n } else { most }),
        false => norms.map(|n| n.powf(norm_type)).sum::<f64>().powf(1.0 / norm_type),
    }
}

/// The norm where parts of some tensors are with other ranks.
fn over_ranks(tensors: &[Tensor], norm_type: f64) -> Result<f64> {
    /// Who has the parts, if others do, and the tensors here.
    type Sharers = (Option<Arc<dyn Together>>, Vec<Tensor>);
    let mut sharers: Vec<Sharers> = Vec::new();
    for tensor in tensors {
        let own = tensor.together().filter(|group| group.ranks().len() > 1);
        let ranks = own.as_ref().map(|group| group.ranks());
        let is_same =
            |(other, _): &&mut Sharers| other.as_ref().map(|group| group.ranks()) == ranks;
        // Without what says that they are parts.
        let tensor = tensor.detach();
        match sharers.iter_mut().find(is_same) {
            Some((_, tensors)) => tensors.push(tensor),
            None => sharers.push((own.clone(), vec![tensor])),
        }
    }
    let norms = sharers.into_iter().map(|(group, tensors)| {
        let norm = get_total_norm(&tensors, norm_type).item();
        let Some(group) = group else { return Ok(norm) };
        let values = match norm_type.is_infinite() {
            // The maximum of NaN and a number may be either: it is told beside.
            true => Tensor::from([norm, f64::from(u8::from(norm.is_nan()))]),
            false => Tensor::from([norm.powf(norm_type), 0.0]),
        };
        match norm_type.is_infinite() {
            true => group.max(&values)?,
            false => group.sum(&values)?,
        }
        let values = values.to_vec::<f64>();
        Ok(match norm_type.is_infinite() {
            true if values[1] > 0.0 => f64::NAN,
            true => values[0],
            false => values[0].powf(1.0 / norm_type),
        })
    });
    Ok(of_norms(norms.collect::<Result<Vec<f64>>>()?, norm_type))
}

/// Multiplies by `max_norm / norm` if that makes gradients smaller (or NaN).
fn scale(grads: &[Tensor], max_norm: f64, norm: &Tensor) {
    if let Some(gpu) = gradients::common_gpu(grads)
        && norm.device() == gpu.device()
    {
        return gradients::scale_by_norm(gpu, grads, max_norm, norm);
    }
    let factor = max_norm / (norm.item() + 1e-6);
    if factor < 1.0 || factor.is_nan() {
        no_grad(|| grads.iter().for_each(|grad| _ = grad.mul_(factor)));
    }
}
