//! A run stops at a loss or a gradient that is not finite, before it reaches the weights, and says where it
//! came from.

use torchrs::autograd::{self, detect_anomaly};
use torchrs::checkpoint::TensorMap;
use torchrs::distributed::{ProcessGroup, ReduceOp};
use torchrs::{Error, Result, Tensor, catch};

use crate::models::Network;

/// How many steps one after the other a loss scaler may leave out: its scale, 65536 at first, is below 1 by
/// then, and no longer the reason.
pub const MAX_SKIPPED: u64 = 20;

/// Lines of an anomaly's report that are shown.
const LINES: usize = 12;

/// What one rank has of a step.
#[derive(Clone, Copy)]
pub struct Facts {
    pub loss: f64,
    /// Of the averaged gradients, before they are clipped.
    pub grad_norm: f64,
    /// Told to stop.
    pub stop: bool,
}

/// What all ranks agree on about a step.
pub struct Agreed {
    /// The mean loss.
    pub loss: f64,
    pub stop: bool,
    /// A loss or the gradient is not finite, on any rank.
    pub bad: bool,
}

impl Facts {
    fn is_bad(&self) -> bool {
        !self.loss.is_finite() || !self.grad_norm.is_finite()
    }

    /// One small message per step.
    pub fn agree(&self, group: &ProcessGroup) -> Result<Agreed> {
        let mine = [self.loss as f32, f32::from(self.stop), f32::from(self.is_bad())];
        let facts = Tensor::from_slice(&mine, [3]);
        group.all_reduce(&facts, ReduceOp::Avg)?;
        let facts = facts.to_vec::<f64>();
        let bad = facts[2] > 0.0 || !facts[0].is_finite();
        Ok(Agreed { loss: facts[0], stop: facts[1] > 0.0, bad })
    }
}

/// The first of these tensors that is not finite.
pub fn first_not_finite<'a>(
    named: impl IntoIterator<Item = (&'a String, &'a Tensor)>,
) -> Option<&'a str> {
    let is_finite = |t: &Tensor| !t.dtype().is_floating_point() || t.isfinite().all().item() != 0.0;
    named.into_iter().find(|(_, t)| !is_finite(t)).map(|(name, _)| name.as_str())
}

/// An error when a tensor that is to be saved is not finite: the checkpoint before is the better one.
pub fn check_before_save(group: &str, tensors: &TensorMap) -> Result<()> {
    match first_not_finite(tensors) {
        None => Ok(()),
        Some(name) => Err(Error::Other(format!(
            "no checkpoint is saved: `{name}` of the {group} is not finite; the last one stays"
        ))),
    }
}

/// Whether a buffer of any rank's model is not finite, as running means are after a batch with NaN.
pub fn buffers_are_bad(model: &dyn Network, group: &ProcessGroup) -> Result<bool> {
    let buffers = model.named_buffers();
    let bad = first_not_finite(buffers.iter().map(|(name, t)| (name, t))).is_some();
    let any = Tensor::from_slice(&[f32::from(bad)], [1]);
    group.all_reduce(&any, ReduceOp::Max)?;
    Ok(any.item() != 0.0)
}

/// The error of all ranks for a step that was bad, from what each finds on its own. `losses` are this rank's
/// batches once more, forward, whose results nobody sends; gradients are still there, and not clipped.
pub fn error(
    facts: &Facts,
    step: u64,
    skipped: u64,
    model: &dyn Network,
    losses: impl Iterator<Item = Tensor>,
    group: &ProcessGroup,
) -> Result<Error> {
    let found = if facts.is_bad() { find(model, losses) } else { None };
    let mine = match &found {
        Some(found) => format!("loss {}: {found}", facts.loss),
        None if !facts.loss.is_finite() => format!("loss {}", facts.loss),
        None => String::new(),
    };
    let all = group.all_gather_bytes(mine.as_bytes())?;
    let mut text = format!("step {step}: a loss or gradient is not finite, and the run stops");
    if skipped > 0 {
        text += &format!(" ({skipped} steps before it were left out as well)");
    }
    for (rank, finding) in all.iter().enumerate().filter(|(_, finding)| !finding.is_empty()) {
        text += &format!("\n  rank {rank}, {}", String::from_utf8_lossy(finding));
    }
    let gradients: Vec<(String, Tensor)> =
        model.named_parameters().into_iter().filter_map(|(n, p)| Some((n, p.grad()?))).collect();
    match first_not_finite(gradients.iter().map(|(name, t)| (name, t))) {
        Some(name) => {
            text += &format!("\n  the first gradient that is not finite is that of `{name}`")
        }
        None if !facts.grad_norm.is_finite() => {
            text += "\n  all gradients are finite, but their norm is not"
        }
        None => {}
    }
    text += "\n  weights and checkpoints are as they were before the step; try a smaller --lr, or look at the data";
    Ok(Error::Other(text))
}

/// The first parameter, or the first op by module and line, that is to blame on this rank.
fn find(model: &dyn Network, mut losses: impl Iterator<Item = Tensor>) -> Option<String> {
    let named = model.named_parameters();
    if let Some(name) = first_not_finite(named.iter().map(|(name, t)| (name, t))) {
        return Some(format!("the parameter `{name}` is not finite"));
    }
    let again = || {
        detect_anomaly(|| {
            // Learns the parameters' names.
            let parameters = model.parameters();
            let parameters: Vec<&Tensor> = parameters.iter().collect();
            losses.by_ref().for_each(|loss| {
                _ = autograd::grad(&[&loss], &parameters, &[None], autograd::GraphMode::Free)
            });
        })
    };
    let error = catch(again).err()?.to_string();
    let lines: Vec<&str> = error.lines().take(LINES).collect();
    Some(lines.join("\n  "))
}
