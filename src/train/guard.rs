//! A run stops at a loss or a gradient that is not finite, before it reaches the weights, and says where it
//! came from.

use serde::{Deserialize, Serialize};

use super::StopReason;
use super::finite::first_not_finite;
use crate::autograd::{self, GraphMode, detect_anomaly};
use crate::distributed::{ProcessGroup, ReduceOp};
use crate::error::{Error, Result, catch};
use crate::nn::Module;
use crate::optim::GradScaler;
use crate::tensor::Tensor;

/// Lines of an anomaly's report that are shown.
const LINES: usize = 12;

/// What one rank has of a step, between backward and the optimizer.
///
/// ```
/// use torchrs::{Tensor, nn::{self, Forward, Module}, train::{NanGuard, StepCheck}};
/// let group = torchrs::distributed::init_process_group(Default::default())?;
/// let model = nn::Linear::new(2, 1);
/// let mut guard = NanGuard::new();
/// let mut check = |x: Tensor| {
///     let loss_of = || model.forward(&x).sum();
///     let loss = loss_of();
///     model.zero_grad();
///     loss.backward();
///     let at = StepCheck {
///         step: 1, loss: loss.item(), grad_norm: 1.0, stop: None, model: &model, scaler: None, group: &group,
///     };
///     guard.check(&at, || [loss_of()])
/// };
/// assert!(check(Tensor::from([[1f32, 2.]]))?.take_step);
/// let error = check(Tensor::from([[1f32, f32::NAN]])).unwrap_err().to_string();
/// assert!(error.contains("step 1") && error.contains("`linear` gave NaN"), "{error}");
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct StepCheck<'a> {
    /// The step's number, for messages.
    pub step: u64,
    /// The loss of this rank's batches.
    pub loss: f64,
    /// The norm of the averaged gradients, unscaled, before they are clipped.
    pub grad_norm: f64,
    /// Whether this rank is asked to stop ([`GracefulStop::requested_here`](super::GracefulStop::requested_here)).
    pub stop: Option<StopReason>,
    /// The model.
    pub model: &'a dyn Module,
    /// The loss scaler, whose gradients may overflow now and then.
    pub scaler: Option<&'a GradScaler>,
    /// All ranks.
    pub group: &'a ProcessGroup,
}

/// What all ranks agree on about a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepAgreed {
    /// The mean loss over the ranks.
    pub loss: f64,
    /// Whether a rank is asked to stop.
    pub stop: Option<StopReason>,
    /// Whether the optimizer takes the step. If not, the loss scaler's scale was too high: leave the step out, and
    /// `update` the scaler.
    pub take_step: bool,
}

/// Looks at every step's loss and gradients on all ranks, in one small message.
///
/// It can be a [value](super::TrainState::value) of the run's state. Example: [`StepCheck`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NanGuard {
    max_skipped: u64,
    /// Steps that were left out, one after the other.
    skipped: u64,
}

impl Default for NanGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl NanGuard {
    /// With at most 20 steps that a loss scaler leaves out one after the other: its scale, 65536 at first, is below 1 by
    /// then, and no longer the reason.
    pub fn new() -> Self {
        NanGuard { max_skipped: 20, skipped: 0 }
    }

    /// With another limit of steps that are left out.
    pub fn max_skipped(mut self, steps: u64) -> Self {
        self.max_skipped = steps;
        self
    }

    /// Whether all ranks' losses and gradients are finite. Collective, after backward and `unscale_`. `losses` are this
    /// rank's losses once more, without DistributedDataParallel's forward; they are computed after a failure only.
    ///
    /// # Errors
    /// The same on all ranks: [`Error::Other`] for a loss or gradient that is not finite and that is not due to a loss
    /// scaler. It names step and ranks, on those the op, its module and line, and the first gradient that is not finite.
    #[track_caller]
    pub fn check<L: IntoIterator<Item = Tensor>>(
        &mut self,
        at: &StepCheck<'_>,
        losses: impl FnOnce() -> L,
    ) -> Result<StepAgreed> {
        let agreed = at.agree()?;
        if agreed.take_step {
            self.skipped = 0;
            return Ok(agreed);
        }
        let may_skip =
            at.scaler.is_some_and(GradScaler::is_enabled) && self.skipped < self.max_skipped;
        if may_skip && !at.buffers_are_bad()? {
            self.skipped += 1;
            return Ok(agreed);
        }
        Err(at.explain(self.skipped, losses().into_iter())?)
    }
}

impl StepCheck<'_> {
    fn is_bad(&self) -> bool {
        !self.loss.is_finite() || !self.grad_norm.is_finite()
    }

    fn agree(&self) -> Result<StepAgreed> {
        let mut mine = vec![self.loss, f64::from(u8::from(self.is_bad()))];
        // How many ranks have each reason.
        mine.extend(StopReason::ALL.map(|reason| f64::from(u8::from(self.stop == Some(reason)))));
        let sums = Tensor::from_slice(&mine, [mine.len()]);
        self.group.all_reduce(&sums, ReduceOp::Sum)?;
        let sums = sums.to_vec::<f64>();
        let loss = sums[0] / self.group.world_size() as f64;
        let stop = StopReason::ALL.into_iter().zip(&sums[2..]).filter(|(_, ranks)| **ranks > 0.0);
        let stop = stop.map(|(reason, _)| reason).next_back();
        Ok(StepAgreed { loss, stop, take_step: sums[1] == 0.0 && loss.is_finite() })
    }

    /// Whether a buffer of any rank's model is not finite, as running means are after a batch with NaN.
    fn buffers_are_bad(&self) -> Result<bool> {
        let buffers = self.model.named_buffers();
        let bad = first_not_finite(buffers.iter().map(|(name, t)| (name.as_str(), t))).is_some();
        let any = Tensor::from_slice(&[f32::from(bad)], [1]);
        self.group.all_reduce(&any, ReduceOp::Max)?;
        Ok(any.item() != 0.0)
    }

    /// The error of all ranks, from what each finds on its own.
    fn explain(&self, skipped: u64, losses: impl Iterator<Item = Tensor>) -> Result<Error> {
        let found = if self.is_bad() { find(self.model, losses) } else { None };
        let mine = match &found {
            Some(found) => format!("loss {}: {found}", self.loss),
            None if !self.loss.is_finite() => format!("loss {}", self.loss),
            None => String::new(),
        };
        let all = self.group.all_gather_bytes(mine.as_bytes())?;
        let step = self.step;
        let mut text = format!("step {step}: a loss or gradient is not finite, and the run stops");
        if skipped > 0 {
            text += &format!(" ({skipped} steps before it were left out as well)");
        }
        for (rank, finding) in all.iter().enumerate().filter(|(_, finding)| !finding.is_empty()) {
            text += &format!("\n  rank {rank}, {}", String::from_utf8_lossy(finding));
        }
        let parameters = self.model.named_parameters().into_iter();
        let gradients: Vec<(String, Tensor)> =
            parameters.filter_map(|(n, p)| Some((n, p.grad()?))).collect();
        match first_not_finite(gradients.iter().map(|(name, t)| (name.as_str(), t))) {
            Some(name) => {
                text += &format!("\n  the first gradient that is not finite is that of `{name}`");
            }
            None if !self.grad_norm.is_finite() => {
                text += "\n  all gradients are finite, but their norm is not";
            }
            None => {}
        }
        text += "\n  weights and checkpoints are as they were before the step; try a lower learning rate, or look at \
                 the data";
        Ok(Error::Other(text))
    }
}

/// The first parameter, or the first op by module and line, that is to blame on this rank.
fn find(model: &dyn Module, mut losses: impl Iterator<Item = Tensor>) -> Option<String> {
    let named = model.named_parameters();
    // What is sharded is there while all ranks compute, and not all may look.
    if named.iter().any(|(_, parameter)| parameter.together().is_some()) {
        return None;
    }
    if let Some(name) = first_not_finite(named.iter().map(|(name, t)| (name.as_str(), t))) {
        return Some(format!("the parameter `{name}` is not finite"));
    }
    let again = || {
        detect_anomaly(|| {
            // Learns the parameters' names.
            let parameters = model.parameters();
            let parameters: Vec<&Tensor> = parameters.iter().collect();
            losses.by_ref().for_each(|loss| {
                _ = autograd::grad(&[&loss], &parameters, &[None], GraphMode::Free);
            });
        })
    };
    let error = catch(again).err()?.to_string();
    let lines: Vec<&str> = error.lines().take(LINES).collect();
    Some(lines.join("\n  "))
}
